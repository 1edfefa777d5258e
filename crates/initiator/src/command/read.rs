//! READ (16) (SBC-3 5.11).

use base::{BlockCount, BlockSize, Buf, Lba};
use proto::iscsi::initiator::Transfer;
use proto::scsi::Cdb;

use super::{Command, Effect, block_cdb, transfer_len};
use crate::{Error, Lun, Session};

/// Reads blocks.
#[derive(Clone, Copy, Debug)]
pub struct Read {
    /// The first block.
    pub lba: Lba,
    /// How many.
    pub count: BlockCount,
    /// The unit's block size.
    pub size: BlockSize,
}

impl Command for Read {
    type Answer = Buf;
    const NAME: &'static str = "READ (16)";

    fn cdb(&self) -> Cdb {
        block_cdb(0x88, self.lba, self.count)
    }

    fn transfer(&self) -> Transfer {
        Transfer::In(transfer_len(self.count, self.size))
    }

    fn effect(&self) -> Effect {
        Effect::None
    }

    fn answer(&self, data: Option<Buf>) -> Option<Buf> {
        data.filter(|data| data.len() as u64 == (self.count * self.size).0)
    }
}

impl Session {
    /// Reads blocks.
    pub async fn read(&self, lun: Lun, lba: Lba, count: BlockCount, size: BlockSize) -> Result<Buf, Error> {
        self.send(lun, &Read { lba, count, size }).await
    }
}
