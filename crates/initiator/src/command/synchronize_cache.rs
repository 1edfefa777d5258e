//! SYNCHRONIZE CACHE (16) (SBC-3 5.22).

use base::{BlockCount, Buf, Lba};
use proto::scsi::Cdb;

use super::{Command, Effect, block_cdb};
use crate::{Error, Lun, Session};

/// Makes writes to the whole unit durable.
///
/// It covers all writes that were answered before it was sent, over whatever path.
#[derive(Clone, Copy, Debug)]
pub struct SynchronizeCache;

impl Command for SynchronizeCache {
    type Answer = ();
    const NAME: &'static str = "SYNCHRONIZE CACHE (16)";

    fn cdb(&self) -> Cdb {
        // Zero blocks: up to the end of the unit.
        block_cdb(0x91, Lba(0), BlockCount(0))
    }

    fn effect(&self) -> Effect {
        Effect::None
    }

    fn answer(&self, _: Option<Buf>) -> Option<()> {
        Some(())
    }
}

impl Session {
    /// Makes all answered writes durable.
    pub async fn flush(&self, lun: Lun) -> Result<(), Error> {
        self.send(lun, &SynchronizeCache).await
    }
}
