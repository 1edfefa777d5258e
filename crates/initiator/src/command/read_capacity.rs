//! READ CAPACITY (16) (SBC-3 5.16).

use base::{BlockCount, BlockSize, Buf};
use proto::iscsi::initiator::Transfer;
use proto::scsi::Cdb;

use super::{Command, Effect, u32_at, u64_at};
use crate::{Error, Lun, Session};

/// The length of the answer.
const LEN: u32 = 32;

/// Asks for the unit's capacity.
#[derive(Clone, Copy, Debug)]
pub struct ReadCapacity;

/// A unit's capacity, as READ CAPACITY (16) returns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// The number of blocks.
    pub blocks: BlockCount,
    /// Their size.
    pub block_size: BlockSize,
}

impl Command for ReadCapacity {
    type Answer = Capacity;
    const NAME: &'static str = "READ CAPACITY (16)";

    fn cdb(&self) -> Cdb {
        let mut cdb = [0; 16];
        (cdb[0], cdb[1]) = (0x9e, 0x10);
        cdb[10..14].copy_from_slice(&LEN.to_be_bytes());
        Cdb(cdb)
    }

    fn transfer(&self) -> Transfer {
        Transfer::In(LEN)
    }

    fn effect(&self) -> Effect {
        Effect::None
    }

    fn answer(&self, data: Option<Buf>) -> Option<Capacity> {
        parse(&data?)
    }
}

/// SBC-3 5.16.2: the last LBA and the block length.
fn parse(data: &[u8]) -> Option<Capacity> {
    let last = u64_at(data, 0)?;
    let size = u32_at(data, 8)?;
    Some(Capacity { blocks: BlockCount(last.checked_add(1)?), block_size: BlockSize::from_bytes(size)? })
}

impl Session {
    /// The unit's capacity.
    ///
    /// # Errors
    /// As for [`Session::send`]; [`Error::BadAnswer`] for an unsupported block size.
    pub async fn read_capacity(&self, lun: Lun) -> Result<Capacity, Error> {
        self.send(lun, &ReadCapacity).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_block_is_reported() {
        let data = [0, 0, 0, 0, 0, 0, 0x0f, 0xff, 0, 0, 0x10, 0];
        assert_eq!(parse(&data), Some(Capacity { blocks: BlockCount(4096), block_size: BlockSize::B4096 }));
        assert_eq!(parse(&[0xff; 12]), None);
        assert_eq!(parse(&[0; 8]), None);
    }
}
