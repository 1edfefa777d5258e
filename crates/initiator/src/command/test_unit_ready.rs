//! TEST UNIT READY (SPC-4 6.47).

use base::Buf;
use proto::scsi::Cdb;

use super::{Command, Effect};
use crate::{Error, Lun, Session};

/// How many unit attentions to accept before giving up: a reset, a resize and a change of reservations at
/// once would be three.
const ATTENTIONS_MAX: usize = 8;

/// Asks whether the unit would execute a command.
#[derive(Clone, Copy, Debug)]
pub struct TestUnitReady;

impl Command for TestUnitReady {
    type Answer = ();
    const NAME: &'static str = "TEST UNIT READY";

    fn cdb(&self) -> Cdb {
        Cdb([0; 16])
    }

    fn effect(&self) -> Effect {
        Effect::None
    }

    fn answer(&self, _: Option<Buf>) -> Option<()> {
        Some(())
    }
}

impl Session {
    /// Waits until the unit has reported all its unit attentions.
    ///
    /// # Errors
    /// As for [`Session::command`].
    pub async fn make_ready(&self, lun: Lun) -> Result<(), Error> {
        let mut result = Ok(());
        for _ in 0..ATTENTIONS_MAX {
            result = self.send(lun, &TestUnitReady).await;
            match &result {
                Err(error) if error.is_unit_attention() => {}
                _ => break,
            }
        }
        result
    }
}
