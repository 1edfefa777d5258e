//! Reservations: which nexuses may use the unit (SPC-4, persistent reservations; SPC-2, RESERVE and RELEASE).
//!
//! The state is [`Reservations`]. [`conflict`] decides which commands it forbids, [`out`] how PERSISTENT
//! RESERVE OUT changes it, both as pure functions. The state refers to I_T nexuses by their names, so that a
//! registration survives the login in which it was made.

pub(super) mod conflict;
mod legacy;
mod out;
mod persistent_in;
mod persistent_out;
#[cfg(test)]
mod tests;
mod transport_id;

use std::collections::BTreeMap;
use std::mem;

use serde::{Deserialize, Serialize};

use super::{ItNexus, RelativePort};
use crate::canary::{Canary, makes};

pub(super) use legacy::{LEGACY, Legacy};
pub(super) use persistent_in::PERSISTENT_RESERVE_IN;
pub(super) use persistent_out::{PERSISTENT_RESERVE_OUT, PersistentOut};

/// The most registrations of one unit: 64 hosts with four paths each. With the longest names they take 62 KiB
/// of durable state.
pub(super) const REGISTRATIONS_MAX: usize = 256;

/// All registrations and reservations of a unit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::scsi) struct Reservations {
    /// PRGENERATION: zero at power on, even if the rest survives (SPC-4, PERSISTENT RESERVE IN).
    pub(in crate::scsi) generation: u32,
    /// APTPL of the last registration: registrations and reservation survive a power loss.
    pub(in crate::scsi) survives: bool,
    /// The registered nexuses with their keys, which are never zero.
    #[serde(with = "pairs")]
    pub(in crate::scsi) registrations: BTreeMap<ItNexus, u64>,
    /// The persistent reservation. Its holder is registered; with an *all registrants* type at least one
    /// nexus is.
    pub(in crate::scsi) reservation: Option<Reservation>,
    /// The nexus that holds a RESERVE(6) or RESERVE(10). Never together with a registration.
    pub(in crate::scsi) legacy: Option<ItNexus>,
}

/// A persistent reservation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::scsi) struct Reservation {
    pub(in crate::scsi) kind: Kind,
    /// The nexus that holds it; `None` for *all registrants* types, which all registrants hold.
    pub(in crate::scsi) holder: Option<ItNexus>,
}

base::listed! {
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
}

impl Kind {
    /// The type with this code.
    pub(in crate::scsi) fn from_code(code: u8) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| *kind as u8 == code)
    }

    /// Whether other nexuses may read.
    fn allows_reads(self) -> bool {
        match self {
            Kind::WriteExclusive
            | Kind::WriteExclusiveRegistrantsOnly
            | Kind::WriteExclusiveAllRegistrants => true,
            Kind::ExclusiveAccessAllRegistrants => makes(Canary::AllRegistrantsLetRead),
            Kind::ExclusiveAccess | Kind::ExclusiveAccessRegistrantsOnly => false,
        }
    }

    /// Whether every registered nexus may do everything.
    fn is_shared(self) -> bool {
        !matches!(self, Kind::WriteExclusive | Kind::ExclusiveAccess)
    }

    /// Whether every registered nexus is a holder.
    pub(in crate::scsi) fn is_all_registrants(self) -> bool {
        matches!(self, Kind::WriteExclusiveAllRegistrants | Kind::ExclusiveAccessAllRegistrants)
    }
}

/// Serializes a map whose keys are not text as a list of pairs.
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
    /// Gives the target ports of all nexuses other numbers.
    ///
    /// If two nexuses become one, the key counts that was registered under the name that stays.
    pub(in crate::scsi) fn renumber(&mut self, number: impl Fn(RelativePort) -> RelativePort) {
        let stays = |nexus: &ItNexus| number(nexus.port) == nexus.port;
        let (stay, change): (BTreeMap<ItNexus, u64>, BTreeMap<ItNexus, u64>) =
            mem::take(&mut self.registrations).into_iter().partition(|(nexus, _)| stays(nexus));
        self.registrations = stay;
        for (nexus, key) in change {
            self.registrations.entry(nexus.renumbered(&number)).or_insert(key);
        }
        let holder = self.reservation.as_mut().and_then(|held| held.holder.as_mut());
        for nexus in holder.into_iter().chain(&mut self.legacy) {
            nexus.port = number(nexus.port);
        }
    }

    fn is_holder(&self, nexus: &ItNexus) -> bool {
        self.reservation.as_ref().is_some_and(|reservation| match &reservation.holder {
            Some(holder) => holder == nexus,
            None => self.registrations.contains_key(nexus),
        })
    }

    /// Asserts the invariants.
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
