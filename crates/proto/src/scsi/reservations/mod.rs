//! Reservations: who may use the unit (SPC-4, Persistent reservations; SPC-2, RESERVE and RELEASE).
//!
//! The state is [`Reservations`]; [`conflict`] says what it means for a command, [`out`] how PERSISTENT
//! RESERVE OUT changes it, both as pure functions. Everything is kept by the names of I_T nexuses, so that a
//! registration survives the login it came from.

pub(super) mod conflict;
mod legacy;
mod out;
mod persistent_in;
mod persistent_out;
#[cfg(test)]
mod tests;
mod transport_id;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::ItNexus;
use crate::canary::{Canary, makes};

pub(super) use legacy::{LEGACY, Legacy};
pub(super) use persistent_in::PERSISTENT_RESERVE_IN;
pub(super) use persistent_out::{PERSISTENT_RESERVE_OUT, PersistentOut};

/// Registrations that one unit holds: 64 hosts with four paths each. With the longest names they take 62 KiB
/// of durable state.
pub(super) const REGISTRATIONS_MAX: usize = 256;

/// All reservations of a unit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::scsi) struct Reservations {
    /// PRGENERATION: zero at power on, even if the rest survives (SPC-4, PERSISTENT RESERVE IN).
    pub(in crate::scsi) generation: u32,
    /// APTPL of the last registration: the rest survives a loss of power.
    pub(in crate::scsi) survives: bool,
    /// The registered nexuses with their keys, which are never zero.
    #[serde(with = "pairs")]
    pub(in crate::scsi) registrations: BTreeMap<ItNexus, u64>,
    /// The persistent reservation. Its holder is registered; with a type of all registrants somebody is.
    pub(in crate::scsi) reservation: Option<Reservation>,
    /// Who holds a RESERVE(6) or RESERVE(10). Never together with a registration.
    pub(in crate::scsi) legacy: Option<ItNexus>,
}

/// A persistent reservation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::scsi) struct Reservation {
    pub(in crate::scsi) kind: Kind,
    /// Who made it; `None` for types of all registrants, which all hold.
    pub(in crate::scsi) holder: Option<ItNexus>,
}

/// The types of persistent reservations (SPC-4, PERSISTENT RESERVE IN). The scope is always the unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[repr(u8)]
pub(in crate::scsi) enum Kind {
    WriteExclusive = 1,
    ExclusiveAccess = 3,
    WriteExclusiveRegistrantsOnly = 5,
    ExclusiveAccessRegistrantsOnly = 6,
    WriteExclusiveAllRegistrants = 7,
    ExclusiveAccessAllRegistrants = 8,
}

impl Kind {
    pub(super) const ALL: [Kind; 6] = [
        Kind::WriteExclusive,
        Kind::ExclusiveAccess,
        Kind::WriteExclusiveRegistrantsOnly,
        Kind::ExclusiveAccessRegistrantsOnly,
        Kind::WriteExclusiveAllRegistrants,
        Kind::ExclusiveAccessAllRegistrants,
    ];

    /// The type of a code.
    pub(in crate::scsi) fn from_code(code: u8) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| *kind as u8 == code)
    }

    /// Others may read.
    fn allows_reads(self) -> bool {
        match self {
            Kind::WriteExclusive
            | Kind::WriteExclusiveRegistrantsOnly
            | Kind::WriteExclusiveAllRegistrants => true,
            Kind::ExclusiveAccessAllRegistrants => makes(Canary::AllRegistrantsLetRead),
            Kind::ExclusiveAccess | Kind::ExclusiveAccessRegistrantsOnly => false,
        }
    }

    /// Every registered nexus may do everything.
    fn is_shared(self) -> bool {
        !matches!(self, Kind::WriteExclusive | Kind::ExclusiveAccess)
    }

    /// Every registered nexus is a holder.
    pub(in crate::scsi) fn is_all_registrants(self) -> bool {
        matches!(self, Kind::WriteExclusiveAllRegistrants | Kind::ExclusiveAccessAllRegistrants)
    }
}

/// A map whose keys are no text, as a list of pairs.
mod pairs {
    use std::collections::BTreeMap;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::ItNexus;

    pub fn serialize<S: Serializer>(map: &BTreeMap<ItNexus, u64>, to: S) -> Result<S::Ok, S::Error> {
        map.iter().collect::<Vec<_>>().serialize(to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<ItNexus, u64>, D::Error> {
        Vec::<(ItNexus, u64)>::deserialize(from).map(BTreeMap::from_iter)
    }
}

impl Reservations {
    /// Whether `nexus` holds the persistent reservation.
    fn is_holder(&self, nexus: &ItNexus) -> bool {
        self.reservation.as_ref().is_some_and(|reservation| match &reservation.holder {
            Some(holder) => holder == nexus,
            None => self.registrations.contains_key(nexus),
        })
    }

    /// What must hold at all times.
    #[cfg(test)]
    fn check(&self) {
        assert!(self.registrations.len() <= REGISTRATIONS_MAX);
        assert!(self.registrations.values().all(|key| *key != 0), "a key of zero is no registration");
        assert!(self.legacy.is_none() || self.registrations.is_empty());
        if let Some(reservation) = &self.reservation {
            assert_eq!(reservation.holder.is_none(), reservation.kind.is_all_registrants());
            assert!(!self.registrations.is_empty(), "a reservation ends with its last holder");
            if let Some(holder) = &reservation.holder {
                assert!(self.registrations.contains_key(holder), "a holder is registered");
            }
        }
    }
}
