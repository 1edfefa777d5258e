//! WRITE SAME (16) (SBC-3 5.44).

use base::{BlockCount, Buf, Chain, Lba};
use proto::iscsi::initiator::Transfer;
use proto::scsi::Cdb;

use super::{Command, Effect, block_cdb, blocks};
use crate::{Error, Lun, Session};

/// Writes one block's content to many blocks.
#[derive(Clone, Debug)]
pub struct WriteSame {
    /// The first block.
    pub lba: Lba,
    /// How many blocks.
    pub count: BlockCount,
    /// The content of each block; empty (NDOB) means zeros.
    pub block: Chain,
    /// The unit may unmap the blocks if they then read the same.
    pub unmap: bool,
}

impl Command for WriteSame {
    type Answer = ();
    const NAME: &'static str = "WRITE SAME (16)";

    fn cdb(&self) -> Cdb {
        let mut cdb = block_cdb(0x93, self.lba, self.count);
        cdb.0[1] = u8::from(self.unmap) << 3 | u8::from(self.block.is_empty());
        cdb
    }

    fn transfer(&self) -> Transfer {
        match self.block.is_empty() {
            true => Transfer::None,
            false => Transfer::Out(self.block.clone()),
        }
    }

    fn effect(&self) -> Effect {
        match self.count {
            // SBC-3 5.44: to the end of the unit.
            BlockCount(0) => Effect::Sets(blocks(self.lba, BlockCount(u64::MAX - self.lba.0))),
            count => Effect::Sets(blocks(self.lba, count)),
        }
    }

    fn answer(&self, _: Option<Buf>) -> Option<()> {
        Some(())
    }
}

impl Session {
    /// Writes one block's content to many blocks.
    pub async fn write_same(&self, lun: Lun, command: WriteSame) -> Result<(), Error> {
        self.send(lun, &command).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_that_may_be_unmapped() {
        let zeros = WriteSame { lba: Lba(3), count: BlockCount(4), block: Chain::new(), unmap: true };
        assert_eq!(zeros.cdb().0, [0x93, 0x09, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0]);
        assert!(matches!(zeros.transfer(), Transfer::None));
    }
}
