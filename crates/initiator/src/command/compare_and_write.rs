//! COMPARE AND WRITE (SBC-3 5.2).

use base::{BlockSize, Buf, Chain, Lba};
use proto::iscsi::initiator::Transfer;
use proto::scsi::Cdb;

use super::{Command, Effect, blocks};
use crate::{Error, Lun, Session};

/// Atomically writes blocks if they hold the expected data: the lock of clustered file systems.
#[derive(Clone, Debug)]
pub struct CompareAndWrite {
    /// The first block.
    pub lba: Lba,
    /// The expected data.
    pub compare: Chain,
    /// The data to write, of the same length.
    pub write: Chain,
    /// The unit's block size.
    pub size: BlockSize,
}

impl CompareAndWrite {
    /// # Panics
    /// If the two parts differ in length, or have 256 blocks or more.
    fn count(&self) -> u8 {
        assert_eq!(self.compare.len(), self.write.len(), "both parts have the same blocks");
        let count = self.write.len() >> self.size.shift();
        u8::try_from(count).expect("one COMPARE AND WRITE has less than 256 blocks")
    }
}

impl Command for CompareAndWrite {
    type Answer = ();
    const NAME: &'static str = "COMPARE AND WRITE";

    fn cdb(&self) -> Cdb {
        let mut cdb = [0; 16];
        cdb[0] = 0x89;
        cdb[2..10].copy_from_slice(&self.lba.0.to_be_bytes());
        cdb[13] = self.count();
        Cdb(cdb)
    }

    fn transfer(&self) -> Transfer {
        let mut both = self.compare.clone();
        both.append(self.write.clone());
        Transfer::Out(both)
    }

    fn effect(&self) -> Effect {
        Effect::Once(blocks(self.lba, base::BlockCount(u64::from(self.count()))))
    }

    fn answer(&self, _: Option<Buf>) -> Option<()> {
        Some(())
    }
}

impl Session {
    /// Writes blocks if they hold the expected data.
    ///
    /// # Errors
    /// As for [`Session::send`]; [`Error::is_miscompare`] tells whether the blocks held other data.
    pub async fn compare_and_write(&self, lun: Lun, command: CompareAndWrite) -> Result<(), Error> {
        self.send(lun, &command).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_parts_go_in_one() {
        let [compare, write] = [[1; 1024], [2; 1024]].map(|part| Chain::copy_of(&part));
        let command = CompareAndWrite { lba: Lba(7), compare, write, size: BlockSize::B512 };
        assert_eq!(command.cdb().0, [0x89, 0, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 2, 0, 0]);
        let Transfer::Out(data) = command.transfer() else { panic!() };
        assert_eq!(data.to_vec(), [[1; 1024], [2; 1024]].concat());
    }
}
