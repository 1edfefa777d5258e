//! SCSI commands from the client's side (SPC-4, SBC-3).
//!
//! Each file has one command: as a type that defines what is sent, what is returned and how it affects the
//! unit, and as a method of [`Session`], which fails as [`Session::send`] does unless it says otherwise.

mod compare_and_write;
mod extended_copy;
mod get_lba_status;
mod identification;
mod inquiry;
mod persistent_reserve_in;
mod persistent_reserve_out;
mod read;
mod read_capacity;
mod report_luns;
mod report_target_port_groups;
mod synchronize_cache;
mod test_unit_ready;
mod unmap;
mod write;
mod write_same;

use base::{BlockCount, BlockSize, Buf, Lba, LbaRange};
use proto::iscsi::initiator::Transfer;
use proto::scsi::Cdb;

pub use self::compare_and_write::CompareAndWrite;
pub use self::extended_copy::{CopySegment, ExtendedCopy, SEGMENT_BLOCKS_MAX};
pub use self::get_lba_status::{GetLbaStatus, LbaStatus, Provisioning};
pub use self::identification::{Identification, Identity, UnitName};
pub use self::inquiry::Inquiry;
pub use self::persistent_reserve_in::{ReadFullStatus, ReadKeys, ReadReservation, Registrant, Reservation};
pub use self::persistent_reserve_out::{PersistentReserveOut, ReservationType, ServiceAction};
pub use self::read::Read;
pub use self::read_capacity::{Capacity, ReadCapacity};
pub use self::report_luns::ReportLuns;
pub use self::report_target_port_groups::{AccessState, PortGroup, ReportTargetPortGroups};
pub use self::synchronize_cache::SynchronizeCache;
pub use self::test_unit_ready::TestUnitReady;
pub use self::unmap::Unmap;
pub use self::write::Write;
pub use self::write_same::WriteSame;

#[cfg(doc)]
use crate::Session;

/// A command with a parser for its answer.
pub trait Command {
    /// What it returns on success.
    type Answer;

    /// Its name in the standard.
    const NAME: &'static str;

    /// The command descriptor block.
    fn cdb(&self) -> Cdb;

    /// The data to transfer.
    fn transfer(&self) -> Transfer {
        Transfer::None
    }

    /// The command's effect on the unit.
    fn effect(&self) -> Effect;

    /// Parses the returned data; `None` if it violates the standard.
    fn answer(&self, data: Option<Buf>) -> Option<Self::Answer>;
}

/// A command's effect on a unit: it decides whether the command may be repeated when its outcome is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// No effect, or none that a repetition changes.
    None,
    /// Gives these blocks a content that does not depend on their previous one: a repetition does no harm,
    /// unless another host has written in between.
    Sets(LbaRange),
    /// The effect depends on the state of the unit: a repetition may have another effect.
    Once(LbaRange),
}

impl Effect {
    /// The blocks that may change.
    pub fn blocks(&self) -> Option<LbaRange> {
        match self {
            Effect::None => None,
            Effect::Sets(blocks) | Effect::Once(blocks) => Some(*blocks),
        }
    }
}

/// All blocks of a unit of any size.
const ALL_BLOCKS: LbaRange = LbaRange { start: Lba(0), count: BlockCount(u64::MAX) };

/// The blocks of a command.
///
/// # Panics
/// If the last one is not a valid block number: the caller passed blocks that no unit has.
fn blocks(start: Lba, count: BlockCount) -> LbaRange {
    LbaRange::new(start, count).expect("a block's number has 64 bits")
}

/// # Panics
/// If one command would transfer 4 GiB or more.
fn transfer_len(count: BlockCount, size: BlockSize) -> u32 {
    u32::try_from((count * size).0).expect("one command moves less than 4 GiB")
}

/// A command of 16 bytes, with LBA and number of blocks where READ (16) has them.
///
/// # Panics
/// If there are 2^32 blocks or more.
fn block_cdb(operation: u8, lba: Lba, count: BlockCount) -> Cdb {
    let mut cdb = [0; 16];
    cdb[0] = operation;
    cdb[2..10].copy_from_slice(&lba.0.to_be_bytes());
    let count = u32::try_from(count.0).expect("one command has less than 2^32 blocks");
    cdb[10..14].copy_from_slice(&count.to_be_bytes());
    Cdb(cdb)
}

fn u16_at(data: &[u8], at: usize) -> Option<u16> {
    data.get(at..)?.first_chunk().copied().map(u16::from_be_bytes)
}

fn u32_at(data: &[u8], at: usize) -> Option<u32> {
    data.get(at..)?.first_chunk().copied().map(u32::from_be_bytes)
}

fn u64_at(data: &[u8], at: usize) -> Option<u64> {
    data.get(at..)?.first_chunk().copied().map(u64::from_be_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cdb_of_blocks() {
        assert_eq!(
            block_cdb(0x8a, Lba(0x0102_0304_0506), BlockCount(0x0708)).0,
            [0x8a, 0, 0, 0, 1, 2, 3, 4, 5, 6, 0, 0, 7, 8, 0, 0]
        );
    }
}
