//! PERSISTENT RESERVE OUT (SPC-4 6.16).

use base::{Buf, Chain};
use proto::iscsi::initiator::Transfer;
use proto::scsi::Cdb;

use super::{ALL_BLOCKS, Command, Effect};
use crate::{Error, Lun, Session};

/// The basic parameter list.
const LIST_LEN: u8 = 24;

/// Changes registrations or the reservation, for the I_T nexus of the session that sends it.
#[derive(Clone, Copy, Debug)]
pub struct PersistentReserveOut {
    /// The service action.
    pub action: ServiceAction,
    /// The type of the reservation; not used for registrations.
    pub kind: ReservationType,
    /// RESERVATION KEY: the key with which we are registered.
    pub key: u64,
    /// SERVICE ACTION RESERVATION KEY: the key to register, or the key of the registrant to remove.
    pub action_key: u64,
    /// APTPL: registrations and reservation survive a power loss.
    pub survives: bool,
}

/// SPC-4 table 219.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum ServiceAction {
    Register = 0,
    Reserve = 1,
    Release = 2,
    Clear = 3,
    Preempt = 4,
    PreemptAndAbort = 5,
    RegisterAndIgnoreExistingKey = 6,
}

base::numbered! {
    /// SPC-4 table 61.
    #[allow(missing_docs)]
    pub enum ReservationType: u8 {
        WriteExclusive = 1,
        ExclusiveAccess = 3,
        WriteExclusiveRegistrantsOnly = 5,
        ExclusiveAccessRegistrantsOnly = 6,
        WriteExclusiveAllRegistrants = 7,
        ExclusiveAccessAllRegistrants = 8,
    }
}

impl PersistentReserveOut {
    /// Registers `key`, whatever was registered before; zero removes the registration.
    pub fn register(key: u64) -> PersistentReserveOut {
        PersistentReserveOut {
            action: ServiceAction::RegisterAndIgnoreExistingKey,
            kind: ReservationType::WriteExclusive,
            key: 0,
            action_key: key,
            survives: false,
        }
    }

    fn list(&self) -> [u8; LIST_LEN as usize] {
        let mut list = [0; LIST_LEN as usize];
        list[..8].copy_from_slice(&self.key.to_be_bytes());
        list[8..16].copy_from_slice(&self.action_key.to_be_bytes());
        list[20] = u8::from(self.survives);
        list
    }
}

impl Command for PersistentReserveOut {
    type Answer = ();
    const NAME: &'static str = "PERSISTENT RESERVE OUT";

    fn cdb(&self) -> Cdb {
        let mut cdb = [0; 16];
        let has_type = !matches!(
            self.action,
            ServiceAction::Register | ServiceAction::RegisterAndIgnoreExistingKey | ServiceAction::Clear
        );
        cdb[..3].copy_from_slice(&[0x5f, self.action as u8, if has_type { self.kind as u8 } else { 0 }]);
        cdb[8] = LIST_LEN;
        Cdb(cdb)
    }

    fn transfer(&self) -> Transfer {
        Transfer::Out(Chain::copy_of(&self.list()))
    }

    /// A reservation affects all writes.
    fn effect(&self) -> Effect {
        Effect::Once(ALL_BLOCKS)
    }

    fn answer(&self, _: Option<Buf>) -> Option<()> {
        Some(())
    }
}

impl Session {
    /// Changes registrations or the reservation.
    pub async fn reserve(&self, lun: Lun, command: PersistentReserveOut) -> Result<(), Error> {
        self.send(lun, &command).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_preemption() {
        let command = PersistentReserveOut {
            action: ServiceAction::PreemptAndAbort,
            kind: ReservationType::WriteExclusiveRegistrantsOnly,
            key: 0x0102,
            action_key: 0x0304,
            survives: true,
        };
        assert_eq!(command.cdb().0[..10], [0x5f, 0x05, 0x05, 0, 0, 0, 0, 0, 24, 0]);
        let mut expected = [0; 24];
        (expected[6], expected[7], expected[14], expected[15], expected[20]) = (1, 2, 3, 4, 1);
        assert_eq!(command.list(), expected);
        assert_eq!(PersistentReserveOut::register(9).cdb().0[..3], [0x5f, 0x06, 0x00], "no type");
    }
}
