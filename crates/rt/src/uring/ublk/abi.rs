//! The kernel's structures, byte by byte (`include/uapi/linux/ublk_cmd.h`). All numbers are in native byte
//! order.

use std::mem::offset_of;

/// The number of a command. It includes length and direction, as in ioctl(2) (`UBLK_F_CMD_IOCTL_ENCODE`).
const fn command(direction: u32, len: u32, number: u32) -> u32 {
    direction << 30 | len << 16 | (b'u' as u32) << 8 | number
}

const READ: u32 = 2;
const READ_WRITE: u32 = 3;

/// Commands to `/dev/ublk-control`, with a `struct ublksrv_ctrl_cmd`.
pub(super) const GET_INFO: u32 = command(READ, CONTROL_COMMAND_LEN, 0x02);
pub(super) const ADD: u32 = command(READ_WRITE, CONTROL_COMMAND_LEN, 0x04);
pub(super) const DELETE: u32 = command(READ_WRITE, CONTROL_COMMAND_LEN, 0x05);
pub(super) const START: u32 = command(READ_WRITE, CONTROL_COMMAND_LEN, 0x06);
pub(super) const STOP: u32 = command(READ_WRITE, CONTROL_COMMAND_LEN, 0x07);
pub(super) const SET_PARAMETERS: u32 = command(READ_WRITE, CONTROL_COMMAND_LEN, 0x08);
pub(super) const GET_FEATURES: u32 = command(READ, CONTROL_COMMAND_LEN, 0x13);
pub(super) const DELETE_LATER: u32 = command(READ, CONTROL_COMMAND_LEN, 0x14);
pub(super) const UPDATE_SIZE: u32 = command(READ_WRITE, CONTROL_COMMAND_LEN, 0x15);

/// Commands to `/dev/ublkcN`, with a `struct ublksrv_io_cmd`.
pub(super) const FETCH: u32 = command(READ_WRITE, QUEUE_COMMAND_LEN, 0x20);
pub(super) const COMMIT_AND_FETCH: u32 = command(READ_WRITE, QUEUE_COMMAND_LEN, 0x21);

const CONTROL_COMMAND_LEN: u32 = 32;
const QUEUE_COMMAND_LEN: u32 = 16;

/// Features: `UBLK_F_USER_COPY`, `UBLK_F_UPDATE_SIZE`.
pub(super) const USER_COPY: u64 = 1 << 7;
pub(super) const CAN_UPDATE_SIZE: u64 = 1 << 10;

/// The queue number of a command for no queue, and the device number of a device that has none yet.
const NO_QUEUE: u16 = u16::MAX;
pub(super) const NO_DEVICE: u32 = u32::MAX;

/// The kernel's unit of length.
pub(super) const SECTOR_BYTES: u64 = 512;
const SECTOR_SHIFT: u32 = SECTOR_BYTES.trailing_zeros();

/// The most slots of a queue: the descriptors of the next queue begin after this many.
pub(super) const SLOTS_MAX: u16 = 4096;

/// The offset of a request's data in `/dev/ublkcN`, for read and write: this base, plus the slot's number
/// above 25 bits for the byte.
const DATA_OFFSET: u64 = 0x8000_0000;
const DATA_SHIFT: u32 = 25;

/// The most bytes of a request, given by these 25 bits.
pub(super) const REQUEST_BYTES_MAX: u32 = 1 << DATA_SHIFT;

/// The offset of the first data byte of `slot` in queue 0, the only one that we use.
pub(super) const fn data_offset(slot: u16) -> u64 {
    DATA_OFFSET + ((slot as u64) << DATA_SHIFT)
}

/// `struct ublksrv_ctrl_cmd`, padded with zeros to what a ring with long entries carries.
///
/// | bytes | |
/// |---|---|
/// | 0..4 | device |
/// | 4..6 | queue |
/// | 6..8 | length of the buffer |
/// | 8..16 | address of the buffer |
/// | 16..24 | a number that belongs to the command |
/// | 24..32 | for users without privileges |
pub(super) fn control_command(device: u32, number: u64, address: u64, len: u16) -> [u8; 80] {
    let mut bytes = [0; 80];
    bytes[..4].copy_from_slice(&device.to_ne_bytes());
    bytes[4..6].copy_from_slice(&NO_QUEUE.to_ne_bytes());
    bytes[6..8].copy_from_slice(&len.to_ne_bytes());
    bytes[8..16].copy_from_slice(&address.to_ne_bytes());
    bytes[16..24].copy_from_slice(&number.to_ne_bytes());
    bytes
}

/// `struct ublksrv_io_cmd`: queue (0..2), slot (2..4), result (4..8). It has no address, because data is
/// copied by read and write.
pub(super) fn queue_command(slot: u16, result: i32) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[2..4].copy_from_slice(&slot.to_ne_bytes());
    bytes[4..8].copy_from_slice(&result.to_ne_bytes());
    bytes
}

/// `struct ublksrv_io_desc`: a request, in memory shared with the kernel.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct Descriptor {
    /// The operation in the lowest eight bits, flags above.
    pub(super) operation: u32,
    pub(super) sectors: u32,
    pub(super) start: u64,
    /// Unused, because data is copied by read and write.
    pub(super) _address: u64,
}

const _: () = assert!(size_of::<Descriptor>() == 24 && offset_of!(Descriptor, start) == 8);

pub(super) const OP_READ: u32 = 0;
pub(super) const OP_WRITE: u32 = 1;
pub(super) const OP_FLUSH: u32 = 2;
pub(super) const OP_DISCARD: u32 = 3;
pub(super) const OP_WRITE_ZEROES: u32 = 5;
pub(super) const FLAG_FUA: u32 = 1 << 13;
pub(super) const FLAG_NOUNMAP: u32 = 1 << 15;

/// The state of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceState {
    /// It has not been started, was stopped, or is no longer served.
    Dead,
    /// It is served.
    Live,
    /// Any other state: it waits to be served again.
    Other(u16),
}

/// What the kernel knows about a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Its state.
    pub state: DeviceState,
    /// The mark that its creator has set.
    pub mark: u64,
}

/// `struct ublksrv_ctrl_dev_info`.
///
/// | bytes | |
/// |---|---|
/// | 0..2 | queues |
/// | 2..4 | slots of a queue |
/// | 4..6 | state |
/// | 8..12 | most bytes of a request |
/// | 12..16 | device |
/// | 16..20 | process |
/// | 24..32 | flags |
/// | 32..40 | the creator's mark |
/// | 40..64 | owner, and reserved |
pub(super) const INFO_LEN: usize = 64;

/// The parameters for creating a device: one queue, data copied by read and write.
pub(super) fn encode_info(device: u32, slots: u16, request_max: u32, mark: u64) -> [u8; INFO_LEN] {
    let mut bytes = [0; INFO_LEN];
    bytes[..2].copy_from_slice(&1_u16.to_ne_bytes());
    bytes[2..4].copy_from_slice(&slots.to_ne_bytes());
    bytes[8..12].copy_from_slice(&request_max.to_ne_bytes());
    bytes[12..16].copy_from_slice(&device.to_ne_bytes());
    bytes[24..32].copy_from_slice(&USER_COPY.to_ne_bytes());
    bytes[32..40].copy_from_slice(&mark.to_ne_bytes());
    bytes
}

/// The number that the kernel has assigned to a device.
pub(super) fn device_of_info(bytes: &[u8; INFO_LEN]) -> u32 {
    u32::from_ne_bytes([bytes[12], bytes[13], bytes[14], bytes[15]])
}

pub(super) fn decode_info(bytes: &[u8; INFO_LEN]) -> DeviceInfo {
    let mut mark = [0; 8];
    mark.copy_from_slice(&bytes[32..40]);
    let state = match u16::from_ne_bytes([bytes[4], bytes[5]]) {
        0 => DeviceState::Dead,
        1 => DeviceState::Live,
        other => DeviceState::Other(other),
    };
    DeviceInfo { state, mark: u64::from_ne_bytes(mark) }
}

/// The properties of the disk. All in bytes; all except the size and the limits are powers of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// The size, in whole blocks.
    pub size: u64,
    /// The logical block: 512 to 4096.
    pub block: u32,
    /// The unit that is written at once: `block` or more.
    pub physical_block: u32,
    /// The preferred granularity of a request.
    pub io_min: u32,
    /// The preferred length of a request.
    pub io_opt: u32,
    /// The longest read or write: whole blocks, and no more than the device was created for.
    pub request_max: u32,
    /// The granularity of discards.
    pub discard_granularity: u32,
    /// The longest discard; 0: none.
    pub discard_max: u64,
    /// The longest request for zeros; 0: none.
    pub zeros_max: u64,
    /// Writes are not allowed.
    pub read_only: bool,
}

/// `struct ublk_params` up to the discard parameters.
///
/// | bytes | |
/// |---|---|
/// | 0..4 | length of all |
/// | 4..8 | which are present: basic, discard |
/// | 8..12 | attributes |
/// | 12..16 | shifts of the logical block, the physical block, the best length, the smallest good length |
/// | 16..20 | most sectors of a request |
/// | 24..32 | sectors of the disk |
/// | 44..48 | granularity of discards (40..44: where the first one begins) |
/// | 48..52, 52..56 | sectors of a discard, of a request for zeros |
/// | 56..58 | ranges of a discard |
pub(super) const PARAMETERS_LEN: usize = 60;

const TYPE_BASIC: u32 = 1 << 0;
const TYPE_DISCARD: u32 = 1 << 1;
const READ_ONLY: u32 = 1 << 0;
const VOLATILE_CACHE: u32 = 1 << 2;
const FUA: u32 = 1 << 3;

impl Parameters {
    pub(super) fn encode(&self) -> [u8; PARAMETERS_LEN] {
        let shift = |bytes: u32| bytes.ilog2() as u8;
        let sectors = |bytes: u64| {
            // The kernel counts a request's bytes in 32 bits.
            let most = u64::from(u32::MAX) & !(u64::from(self.discard_granularity) - 1);
            (bytes.min(most) >> SECTOR_SHIFT) as u32
        };
        let read_only = if self.read_only { READ_ONLY } else { 0 };
        let mut bytes = [0; PARAMETERS_LEN];
        bytes[..4].copy_from_slice(&(PARAMETERS_LEN as u32).to_ne_bytes());
        bytes[4..8].copy_from_slice(&(TYPE_BASIC | TYPE_DISCARD).to_ne_bytes());
        bytes[8..12].copy_from_slice(&(VOLATILE_CACHE | FUA | read_only).to_ne_bytes());
        bytes[12..16].copy_from_slice(&[
            shift(self.block),
            shift(self.physical_block),
            shift(self.io_opt),
            shift(self.io_min),
        ]);
        bytes[16..20].copy_from_slice(&(self.request_max >> SECTOR_SHIFT).to_ne_bytes());
        bytes[24..32].copy_from_slice(&(self.size >> SECTOR_SHIFT).to_ne_bytes());
        bytes[44..48].copy_from_slice(&self.discard_granularity.to_ne_bytes());
        bytes[48..52].copy_from_slice(&sectors(self.discard_max).to_ne_bytes());
        bytes[52..56].copy_from_slice(&sectors(self.zeros_max).to_ne_bytes());
        bytes[56..58].copy_from_slice(&1_u16.to_ne_bytes());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From the header, computed with a C compiler.
    #[test]
    fn commands_have_the_kernels_numbers() {
        assert_eq!((ADD, DELETE, GET_INFO), (0xc020_7504, 0xc020_7505, 0x8020_7502));
        assert_eq!((GET_FEATURES, DELETE_LATER, UPDATE_SIZE), (0x8020_7513, 0x8020_7514, 0xc020_7515));
        assert_eq!((FETCH, COMMIT_AND_FETCH), (0xc010_7520, 0xc010_7521));
        assert_eq!(data_offset(3), 0x8600_0000);
    }

    #[test]
    fn structures_are_where_the_kernel_looks() {
        let command = control_command(7, 0x0102, 0x1000, 64);
        assert_eq!(command[..8], [7, 0, 0, 0, 0xff, 0xff, 64, 0]);
        assert_eq!(command[8..24], [0, 0x10, 0, 0, 0, 0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0]);
        assert_eq!(queue_command(0x0304, -5)[..8], [0, 0, 4, 3, 0xfb, 0xff, 0xff, 0xff]);
        let mut info = encode_info(NO_DEVICE, 128, 1 << 20, 0x7572_7361);
        assert_eq!(info[..16], [1, 0, 128, 0, 0, 0, 0, 0, 0, 0, 16, 0, 0xff, 0xff, 0xff, 0xff]);
        assert_eq!((info[24], info[32]), (0x80, 0x61));
        (info[4], info[12], info[13], info[14], info[15]) = (1, 2, 0, 0, 0);
        assert_eq!(device_of_info(&info), 2);
        assert_eq!(decode_info(&info), DeviceInfo { state: DeviceState::Live, mark: 0x7572_7361 });
    }

    #[test]
    fn parameters_are_in_shifts_and_sectors() {
        let parameters = Parameters {
            size: 1 << 30,
            block: 512,
            physical_block: 4096,
            io_min: 4096,
            io_opt: 1 << 16,
            request_max: 1 << 20,
            discard_granularity: 4096,
            discard_max: 0,
            zeros_max: 1 << 40,
            read_only: true,
        };
        let bytes = parameters.encode();
        assert_eq!(bytes[..16], [60, 0, 0, 0, 3, 0, 0, 0, 0x0d, 0, 0, 0, 9, 12, 16, 12]);
        assert_eq!(bytes[16..32], [0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 32, 0, 0, 0, 0, 0]);
        assert_eq!(bytes[44..58], [0, 16, 0, 0, 0, 0, 0, 0, 0xf8, 0xff, 0x7f, 0, 1, 0]);
    }
}
