//! WRITE (16) (SBC-3 5.34).

use base::{BlockCount, BlockSize, Buf, Chain, Lba};
use proto::iscsi::initiator::Transfer;
use proto::scsi::Cdb;

use super::{Command, Effect, block_cdb, blocks};
use crate::{Error, Lun, Session};

/// Writes whole blocks.
#[derive(Clone, Debug)]
pub struct Write {
    /// The first block.
    pub lba: Lba,
    /// The data.
    pub data: Chain,
    /// The unit's block size.
    pub size: BlockSize,
    /// FUA: the data is on the medium when the write is answered, without a [`super::SynchronizeCache`].
    pub durable: bool,
}

impl Write {
    fn count(&self) -> BlockCount {
        BlockCount(self.data.len() as u64 >> self.size.shift())
    }
}

impl Command for Write {
    type Answer = ();
    const NAME: &'static str = "WRITE (16)";

    fn cdb(&self) -> Cdb {
        let mut cdb = block_cdb(0x8a, self.lba, self.count());
        cdb.0[1] = u8::from(self.durable) << 3;
        cdb
    }

    fn transfer(&self) -> Transfer {
        Transfer::Out(self.data.clone())
    }

    fn effect(&self) -> Effect {
        Effect::Sets(blocks(self.lba, self.count()))
    }

    fn answer(&self, _: Option<Buf>) -> Option<()> {
        Some(())
    }
}

impl Session {
    /// Writes whole blocks.
    pub async fn write(&self, lun: Lun, lba: Lba, data: Chain, size: BlockSize) -> Result<(), Error> {
        self.send(lun, &Write { lba, data, size, durable: false }).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_durable_write() {
        let data = Chain::copy_of(&[7; 1024]);
        let write = Write { lba: Lba(5), data, size: BlockSize::B512, durable: true };
        assert_eq!(write.cdb().0, [0x8a, 0x08, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 2, 0, 0]);
        assert_eq!(write.effect(), Effect::Sets(blocks(Lba(5), BlockCount(2))));
    }
}
