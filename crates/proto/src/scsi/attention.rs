//! Unit attentions: what an initiator must hear before it goes on (SAM-5 5.14).

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use super::sense::{Sense, SenseKey, code};

/// Something happened to the unit that a nexus has not been told.
///
/// The order is the order of telling (SAM-5 5.14.2): resets first, the most comprehensive of them replaces
/// the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum UnitAttention {
    /// This nexus is new to us.
    PowerOn,
    /// The target was reset (cold or warm).
    BusReset,
    /// The unit was reset.
    DeviceReset,
    /// The session was lost and made again.
    NexusLoss,
    /// Another nexus cleared the task set.
    CommandsCleared,
    /// Somebody preempted the reservation.
    ReservationsPreempted,
    /// The reservation that this nexus was bound by is gone.
    ReservationsReleased,
    /// Somebody removed this nexus' registration.
    RegistrationsPreempted,
    /// MODE SELECT by another nexus.
    ModeParametersChanged,
    /// A target port group changed its state.
    AccessStateChanged,
    /// The unit has another size.
    CapacityChanged,
    /// Space for blocks that the unit may still have to store is running out.
    SoftThreshold,
    /// INQUIRY data (a name, a port) changed.
    InquiryChanged,
    /// Units were mapped or unmapped.
    ReportedLunsChanged,
}

impl UnitAttention {
    /// As sense data.
    pub fn sense(self) -> Sense {
        let code = match self {
            UnitAttention::PowerOn => code::POWER_ON_RESET_OR_BUS_DEVICE_RESET_OCCURRED,
            UnitAttention::BusReset => code::SCSI_BUS_RESET_OCCURRED,
            UnitAttention::DeviceReset => code::BUS_DEVICE_RESET_FUNCTION_OCCURRED,
            UnitAttention::NexusLoss => code::I_T_NEXUS_LOSS_OCCURRED,
            UnitAttention::CommandsCleared => code::COMMANDS_CLEARED_BY_ANOTHER_INITIATOR,
            UnitAttention::ReservationsPreempted => code::RESERVATIONS_PREEMPTED,
            UnitAttention::ReservationsReleased => code::RESERVATIONS_RELEASED,
            UnitAttention::RegistrationsPreempted => code::REGISTRATIONS_PREEMPTED,
            UnitAttention::ModeParametersChanged => code::MODE_PARAMETERS_CHANGED,
            UnitAttention::AccessStateChanged => code::ASYMMETRIC_ACCESS_STATE_CHANGED,
            UnitAttention::CapacityChanged => code::CAPACITY_DATA_HAS_CHANGED,
            UnitAttention::SoftThreshold => code::THIN_PROVISIONING_SOFT_THRESHOLD_REACHED,
            UnitAttention::InquiryChanged => code::INQUIRY_DATA_HAS_CHANGED,
            UnitAttention::ReportedLunsChanged => code::REPORTED_LUNS_DATA_HAS_CHANGED,
        };
        Sense::new(SenseKey::UnitAttention, code)
    }

    /// The 29h codes.
    pub fn is_reset(self) -> bool {
        self <= UnitAttention::NexusLoss
    }
}

/// What one nexus has not been told of one unit: each attention once, so the set is as small as the enum.
#[derive(Clone, Debug, Default)]
pub(super) struct Attentions(SmallVec<[UnitAttention; 2]>);

impl Attentions {
    /// Something happened. Of several resets one is told. A reset does not drop other news: an initiator that
    /// heard of the reset only would miss a changed capacity.
    pub(super) fn add(&mut self, attention: UnitAttention) {
        if attention.is_reset() {
            match self.0.iter_mut().find(|pending| pending.is_reset()) {
                Some(pending) => *pending = attention.min(*pending),
                None => self.0.insert(0, attention),
            }
        } else if !self.0.contains(&attention) {
            self.0.push(attention);
        }
    }

    /// Tells a reset, if there was one.
    pub(super) fn take_reset(&mut self) -> Option<UnitAttention> {
        if self.0.first()?.is_reset() { self.take() } else { None }
    }

    /// Tells one.
    pub(super) fn take(&mut self) -> Option<UnitAttention> {
        (!self.0.is_empty()).then(|| self.0.remove(0))
    }

    /// Forgets one that has become pointless.
    pub(super) fn forget(&mut self, attention: UnitAttention) {
        self.0.retain(|pending| *pending != attention);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resets_come_first_and_are_joined() {
        let mut attentions = Attentions::default();
        attentions.add(UnitAttention::CapacityChanged);
        attentions.add(UnitAttention::ModeParametersChanged);
        attentions.add(UnitAttention::CapacityChanged);
        attentions.add(UnitAttention::DeviceReset);
        attentions.add(UnitAttention::PowerOn);
        attentions.add(UnitAttention::NexusLoss);
        let told: Vec<_> = std::iter::from_fn(|| attentions.take()).map(|a| a.sense().code).collect();
        assert_eq!(told, [0x2900, 0x2a09, 0x2a01]);
    }
}
