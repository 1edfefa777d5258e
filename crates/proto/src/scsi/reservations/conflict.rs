//! Which commands a reservation forbids: the tables of commands that are allowed in the presence of various
//! reservations (SPC-4 and SBC-3, Persistent reservations; SPC-2, Reservations).

use super::{Kind, Reservations};
use crate::scsi::operations::Access;
use crate::scsi::{Cdb, ItNexus};

/// The rights of a nexus under the reservations of a unit.
///
/// They change only with the reservations, so they are cached with the nexus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::scsi) enum ReservationRights {
    /// Nothing is reserved, or this nexus is a holder.
    Unhindered,
    /// Another nexus holds a RESERVE(6) or RESERVE(10).
    BehindLegacy,
    /// Another nexus holds a persistent reservation.
    Behind(Kind, Registered),
}

/// Whether a nexus is registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::scsi) enum Registered {
    Yes,
    No,
}

impl Reservations {
    pub(in crate::scsi) fn standing(&self, nexus: &ItNexus) -> ReservationRights {
        if self.legacy.as_ref().is_some_and(|holder| holder != nexus) {
            return ReservationRights::BehindLegacy;
        }
        match &self.reservation {
            Some(reservation) if !self.is_holder(nexus) => {
                let registered = self.registrations.contains_key(nexus);
                ReservationRights::Behind(
                    reservation.kind,
                    if registered { Registered::Yes } else { Registered::No },
                )
            }
            _ => ReservationRights::Unhindered,
        }
    }
}

impl ReservationRights {
    /// Whether a command of this class may run.
    pub(in crate::scsi) fn permits(self, access: Access, cdb: &Cdb) -> bool {
        let access = plain(access, cdb);
        match self {
            ReservationRights::Unhindered => true,
            ReservationRights::BehindLegacy => matches!(access, Access::Free | Access::Release),
            ReservationRights::Behind(kind, registered) => match access {
                Access::Free | Access::Status => true,
                // Decided later with the newest state.
                Access::PersistentOut | Access::Reserve | Access::Release => true,
                Access::Read if kind.allows_reads() => true,
                _ => kind.is_shared() && registered == Registered::Yes,
            },
        }
    }
}

/// Resolves classes that depend on the CDB.
fn plain(access: Access, cdb: &Cdb) -> Access {
    match access {
        Access::StartStop if cdb.bit(4, 0) && cdb.u8(4) >> 4 == 0 => Access::Status,
        Access::StartStop => Access::Exclusive,
        Access::PreventAllow if cdb.u8(4) & 0x03 == 0 => Access::Free,
        Access::PreventAllow => Access::Exclusive,
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Access::{Exclusive, Free, PersistentOut, PreventAllow, Read, Release, Reserve, StartStop, Status};

    /// A CDB whose byte 4 is `byte`.
    fn cdb(byte: u8) -> Cdb {
        let mut cdb = [0; 16];
        cdb[4] = byte;
        Cdb(cdb)
    }

    /// The columns of SPC-4's table for a nexus that does not hold the reservation: Write Exclusive,
    /// Exclusive Access, registered with a *registrants* type, not registered with Write Exclusive of
    /// registrants, and with Exclusive Access of registrants.
    fn columns(access: Access, byte: u8) -> String {
        use Kind::{
            ExclusiveAccess, ExclusiveAccessRegistrantsOnly, WriteExclusive, WriteExclusiveRegistrantsOnly,
        };
        [
            ReservationRights::Behind(WriteExclusive, Registered::No),
            ReservationRights::Behind(ExclusiveAccess, Registered::No),
            ReservationRights::Behind(ExclusiveAccessRegistrantsOnly, Registered::Yes),
            ReservationRights::Behind(WriteExclusiveRegistrantsOnly, Registered::No),
            ReservationRights::Behind(ExclusiveAccessRegistrantsOnly, Registered::No),
        ]
        .iter()
        .map(|standing| if standing.permits(access, &cdb(byte)) { 'A' } else { 'C' })
        .collect()
    }

    #[test]
    fn commands_that_are_allowed() {
        assert_eq!(columns(Free, 0), "AAAAA"); // INQUIRY
        assert_eq!(columns(Status, 0), "AAAAA"); // TEST UNIT READY
        assert_eq!(columns(Read, 0), "ACAAC"); // READ
        assert_eq!(columns(Exclusive, 0), "CCACC"); // WRITE, MODE SELECT
        assert_eq!(columns(StartStop, 0x01), "AAAAA");
        assert_eq!(columns(StartStop, 0x00), "CCACC");
        assert_eq!(columns(StartStop, 0x31), "CCACC"); // a power condition
        assert_eq!(columns(PreventAllow, 0x00), "AAAAA");
        assert_eq!(columns(PreventAllow, 0x01), "CCACC");
        for decided_later in [PersistentOut, Reserve, Release] {
            assert_eq!(columns(decided_later, 0), "AAAAA");
        }
    }

    #[test]
    fn registered_is_not_enough_for_exclusive_types() {
        for kind in [Kind::WriteExclusive, Kind::ExclusiveAccess] {
            assert!(!ReservationRights::Behind(kind, Registered::Yes).permits(Exclusive, &cdb(0)));
        }
        assert!(ReservationRights::Behind(Kind::WriteExclusive, Registered::Yes).permits(Read, &cdb(0)));
        assert!(!ReservationRights::Behind(Kind::ExclusiveAccess, Registered::Yes).permits(Read, &cdb(0)));
    }

    #[test]
    fn all_types_and_classes_agree_with_the_rule() {
        for kind in Kind::ALL {
            for registered in [Registered::Yes, Registered::No] {
                let standing = ReservationRights::Behind(kind, registered);
                let member = registered == Registered::Yes && kind as u8 >= 5;
                assert_eq!(standing.permits(Exclusive, &cdb(0)), member, "{standing:?}");
                let reads = matches!(kind as u8, 1 | 5 | 7);
                assert_eq!(standing.permits(Read, &cdb(0)), member || reads, "{standing:?}");
            }
        }
    }

    #[test]
    fn behind_reserve_6() {
        for access in [Status, Read, Exclusive, PersistentOut, Reserve] {
            assert!(!ReservationRights::BehindLegacy.permits(access, &cdb(1)), "{access:?}");
        }
        assert!(ReservationRights::BehindLegacy.permits(Free, &cdb(0)));
        assert!(ReservationRights::BehindLegacy.permits(Release, &cdb(0)));
    }
}
