//! Unit attentions: what a unit must report to an initiator before it executes the initiator's next command
//! (SAM-5 5.14).

use std::mem;

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use super::mode;
use super::sense::{Sense, SenseKey, code};

/// An event that the unit has not yet reported to a nexus.
///
/// Resets come first and in the order of precedence (SAM-5 5.14.2): the most comprehensive reset replaces the
/// others and is reported before other attentions, which are reported in the order in which they occurred.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum UnitAttention {
    /// The nexus is new to this unit.
    PowerOn,
    /// The target was reset (cold or warm).
    BusReset,
    /// The unit was reset.
    DeviceReset,
    /// The session was lost and established again.
    NexusLoss,
    /// Another nexus cleared the task set.
    CommandsCleared,
    /// Another nexus preempted the reservation.
    ReservationsPreempted,
    /// The reservation that restricted this nexus is gone.
    ReservationsReleased,
    /// Another nexus removed this nexus' registration.
    RegistrationsPreempted,
    /// Another nexus changed mode parameters with MODE SELECT.
    ModeParametersChanged,
    /// A target port group changed its state.
    AccessStateChanged,
    /// The unit's content was replaced: it was restored to a snapshot.
    ContentReplaced,
    /// The size of the unit changed.
    CapacityChanged,
    /// The space for blocks that the unit may still have to store is running out: the threshold with this
    /// index in [`Thresholds::available`](super::Thresholds) was reached.
    SoftThreshold(u8),
    /// INQUIRY data (a name, a port) changed.
    InquiryChanged,
    /// Units were mapped or unmapped.
    ReportedLunsChanged,
}

impl UnitAttention {
    /// The sense data that reports it.
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
            UnitAttention::ContentReplaced => code::NOT_READY_TO_READY_CHANGE_MEDIUM_MAY_HAVE_CHANGED,
            UnitAttention::CapacityChanged => code::CAPACITY_DATA_HAS_CHANGED,
            UnitAttention::SoftThreshold(_) => code::THIN_PROVISIONING_SOFT_THRESHOLD_REACHED,
            UnitAttention::InquiryChanged => code::INQUIRY_DATA_HAS_CHANGED,
            UnitAttention::ReportedLunsChanged => code::REPORTED_LUNS_DATA_HAS_CHANGED,
        };
        let sense = Sense::new(SenseKey::UnitAttention, code);
        match self {
            UnitAttention::SoftThreshold(index) => sense.with_information(mode::threshold_offset(index)),
            _ => sense,
        }
    }

    /// Whether this is one of the resets (the 29h codes).
    pub fn is_reset(self) -> bool {
        self <= UnitAttention::NexusLoss
    }
}

/// The attentions of one unit that one nexus has yet to receive. Each kind is kept once, so the set is never
/// larger than the enum.
#[derive(Clone, Debug, Default)]
pub(super) struct Attentions(SmallVec<[UnitAttention; 2]>);

impl Attentions {
    /// Adds an attention. Of several resets only one is reported. A reset does not replace other attentions:
    /// an initiator that received only the reset would miss a changed capacity. Of several thresholds, the
    /// last one is reported: an initiator repeats a command only a few times.
    pub(super) fn add(&mut self, attention: UnitAttention) {
        if attention.is_reset() {
            match self.0.iter_mut().find(|pending| pending.is_reset()) {
                Some(pending) => *pending = attention.min(*pending),
                None => self.0.insert(0, attention),
            }
        } else {
            let kind = mem::discriminant(&attention);
            match self.0.iter_mut().find(|pending| mem::discriminant::<UnitAttention>(pending) == kind) {
                Some(pending) => *pending = attention.max(*pending),
                None => self.0.push(attention),
            }
        }
    }

    /// Takes the pending reset, if there is one.
    pub(super) fn take_reset(&mut self) -> Option<UnitAttention> {
        if self.0.first()?.is_reset() { self.take() } else { None }
    }

    /// Takes the next attention.
    pub(super) fn take(&mut self) -> Option<UnitAttention> {
        (!self.0.is_empty()).then(|| self.0.remove(0))
    }

    /// Drops an attention that has become pointless.
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

    /// NOT READY TO READY CHANGE, MEDIUM MAY HAVE CHANGED: initiators look at the unit again.
    #[test]
    fn replaced_content_is_reported_once_as_a_medium_that_may_have_changed() {
        let mut attentions = Attentions::default();
        attentions.add(UnitAttention::ContentReplaced);
        attentions.add(UnitAttention::CapacityChanged);
        attentions.add(UnitAttention::ContentReplaced);
        let told: Vec<_> = std::iter::from_fn(|| attentions.take()).map(|a| a.sense().code).collect();
        assert_eq!(told, [0x2800, 0x2a09]);
    }

    /// INFORMATION is the offset of the threshold's descriptor in the Logical Block Provisioning mode page.
    #[test]
    fn the_last_of_several_thresholds_is_reported() {
        let mut attentions = Attentions::default();
        attentions.add(UnitAttention::SoftThreshold(0));
        attentions.add(UnitAttention::CapacityChanged);
        attentions.add(UnitAttention::SoftThreshold(2));
        attentions.add(UnitAttention::SoftThreshold(1));
        let told: Vec<_> = std::iter::from_fn(|| attentions.take()).map(UnitAttention::sense).collect();
        let told: Vec<_> = told.iter().map(|sense| (sense.code, sense.information)).collect();
        assert_eq!(told, [(0x3807, Some(32)), (0x2a09, None)]);
        #[rustfmt::skip]
        assert_eq!(UnitAttention::SoftThreshold(0).sense().encode().as_slice(), [
            0xf0, 0, 0x06, 0, 0, 0, 16, 10, 0, 0, 0, 0, 0x38, 0x07, 0, 0, 0, 0,
        ]);
    }
}
