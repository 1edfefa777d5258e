//! SCSI commands as clients know them (SPC-4, SBC-3): each file has one, as a type that says what is sent,
//! what comes back and what it does to the unit, and as a method of [`Session`].

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

/// A command whose answer we can read.
pub trait Command {
    /// What it gives when it went well.
    type Answer;

    /// Its name in the standard.
    const NAME: &'static str;

    /// The command descriptor block.
    fn cdb(&self) -> Cdb;

    /// Its data.
    fn transfer(&self) -> Transfer {
        Transfer::None
    }

    /// What it does to the unit.
    fn effect(&self) -> Effect;

    /// What the data that came says; `None` if it is not what the standard says.
    fn answer(&self, data: Option<Buf>) -> Option<Self::Answer>;
}

/// What a command does to a unit: whether it may be sent again when nobody knows what came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Nothing, or nothing that a second time changes.
    None,
    /// Gives these blocks a content that does not depend on what was there: a second time does no harm,
    /// unless somebody else has written in between.
    Sets(LbaRange),
    /// What it does depends on what it finds: a second time may do something else.
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

/// All blocks of a unit, of whatever size.
const ALL_BLOCKS: LbaRange = LbaRange { start: Lba(0), count: BlockCount(u64::MAX) };

/// The blocks of a command, whose last is a block number.
///
/// # Panics
/// If it is not: the caller asked for blocks that no unit has.
fn blocks(start: Lba, count: BlockCount) -> LbaRange {
    LbaRange::new(start, count).expect("a block's number has 64 bits")
}

/// # Panics
/// If one command is to move 4 GiB or more.
fn transfer_len(count: BlockCount, size: BlockSize) -> u32 {
    u32::try_from((count * size).0).expect("one command moves less than 4 GiB")
}

/// A command of 16 bytes with an LBA and a number of blocks where READ (16) has them.
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
