//! Fields that all basic header segments share (RFC 7143 11.2.1).

use thiserror::Error;

use super::Serial;

/// The length of a basic header segment.
pub const HEADER_LEN: usize = 48;

/// The tag that an initiator assigns to a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct InitiatorTag(pub u32);

impl InitiatorTag {
    /// No task.
    pub const RESERVED: InitiatorTag = InitiatorTag(0xffff_ffff);
}

/// The tag that a target assigns to a transfer, a ping or a text exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TargetTag(pub u32);

impl TargetTag {
    /// No tag.
    pub const RESERVED: TargetTag = TargetTag(0xffff_ffff);
}

/// The sequence numbers that nearly every PDU of a target carries in bytes 24 to 35.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SerialNumbers {
    pub stat_sn: Serial,
    pub exp_cmd_sn: Serial,
    pub max_cmd_sn: Serial,
}

base::numbered! {
    /// What a PDU is (RFC 7143 11.2.1.2).
    #[derive(PartialOrd, Ord)]
    pub enum Opcode: u8 {
        NopOut = 0x00,
        ScsiCommand = 0x01,
        TaskRequest = 0x02,
        LoginRequest = 0x03,
        TextRequest = 0x04,
        DataOut = 0x05,
        LogoutRequest = 0x06,
        Snack = 0x10,
        NopIn = 0x20,
        ScsiResponse = 0x21,
        TaskResponse = 0x22,
        LoginResponse = 0x23,
        TextResponse = 0x24,
        DataIn = 0x25,
        LogoutResponse = 0x26,
        R2t = 0x31,
        AsyncMessage = 0x32,
        Reject = 0x3f,
    }
}

/// Why a header cannot be decoded.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum HeaderError {
    /// RFC 7143 11.17.1: command not supported.
    #[error("unexpected opcode {0:#04x}")]
    Opcode(u8),
    /// RFC 7143 11.17.1: invalid PDU field.
    #[error("{0} has a value that the standard does not define")]
    Field(&'static str),
}

pub const fn opcode(header: &[u8; HEADER_LEN]) -> u8 {
    header[0] & 0x3f
}

/// The I bit: the request is executed at once and does not count in CmdSN.
pub const fn is_immediate(header: &[u8; HEADER_LEN]) -> bool {
    header[0] & 0x40 != 0
}

/// DataSegmentLength, without padding.
pub const fn data_segment_length(header: &[u8; HEADER_LEN]) -> u32 {
    u32::from_be_bytes([0, header[5], header[6], header[7]])
}

/// TotalAHSLength in bytes.
pub(super) const fn ahs_length(header: &[u8; HEADER_LEN]) -> usize {
    header[4] as usize * 4
}

pub(super) const fn get_u16(header: &[u8; HEADER_LEN], at: usize) -> u16 {
    u16::from_be_bytes([header[at], header[at + 1]])
}

pub(super) const fn get_u32(header: &[u8; HEADER_LEN], at: usize) -> u32 {
    u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
}

pub(super) const fn get_serial(header: &[u8; HEADER_LEN], at: usize) -> Serial {
    Serial(get_u32(header, at))
}

pub(super) fn get_lun(header: &[u8; HEADER_LEN]) -> [u8; 8] {
    std::array::from_fn(|i| header[8 + i])
}

pub(super) const fn get_initiator_tag(header: &[u8; HEADER_LEN]) -> InitiatorTag {
    InitiatorTag(get_u32(header, 16))
}

pub(super) const fn get_target_tag(header: &[u8; HEADER_LEN]) -> TargetTag {
    TargetTag(get_u32(header, 20))
}

pub(super) const fn get_serial_numbers(header: &[u8; HEADER_LEN]) -> SerialNumbers {
    SerialNumbers {
        stat_sn: get_serial(header, 24),
        exp_cmd_sn: get_serial(header, 28),
        max_cmd_sn: get_serial(header, 32),
    }
}

/// Starts a header: opcode, I bit, flags and data segment length; the rest is zero.
pub(super) fn start(opcode: Opcode, immediate: bool, flags: u8, data_len: u32) -> [u8; HEADER_LEN] {
    assert!(data_len < 1 << 24, "a data segment's length has 24 bits");
    let mut header = [0; HEADER_LEN];
    header[0] = opcode as u8 | if immediate { 0x40 } else { 0 };
    header[1] = flags;
    put_u32(&mut header, 4, data_len);
    header
}

pub(super) fn put_u16(header: &mut [u8; HEADER_LEN], at: usize, value: u16) {
    header[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

pub(super) fn put_u32(header: &mut [u8; HEADER_LEN], at: usize, value: u32) {
    header[at..at + 4].copy_from_slice(&value.to_be_bytes());
}

pub(super) fn put_lun(header: &mut [u8; HEADER_LEN], lun: [u8; 8]) {
    header[8..16].copy_from_slice(&lun);
}

pub(super) fn put_serial_numbers(header: &mut [u8; HEADER_LEN], numbers: SerialNumbers) {
    put_u32(header, 24, numbers.stat_sn.0);
    put_u32(header, 28, numbers.exp_cmd_sn.0);
    put_u32(header, 32, numbers.max_cmd_sn.0);
}
