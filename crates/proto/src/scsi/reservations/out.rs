//! The effect of PERSISTENT RESERVE OUT: a pure function of the state, the nexus and its request, which
//! returns the new state and the unit attentions. The section names here are those of SPC-4, persistent
//! reservations.

use super::persistent_out::{Action, Move, PersistentOut, Registration};
use super::{Kind, REGISTRATIONS_MAX, Reservation, Reservations};
use crate::scsi::sense::code;
use crate::scsi::{InitiatorPort, ItNexus, Refusal, RelativePort, Sense, UnitAttention};

/// The result of a PERSISTENT RESERVE OUT.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::scsi) struct Ruling {
    pub(in crate::scsi) reservations: Reservations,
    /// The unit attentions to report, on every core.
    pub(in crate::scsi) tell: Vec<(ItNexus, UnitAttention)>,
    /// The nexuses whose commands are aborted first.
    pub(in crate::scsi) abort: Vec<ItNexus>,
}

impl PersistentOut {
    /// Decides the request for a unit with these ports.
    pub(in crate::scsi) fn decide(
        &self,
        state: &Reservations,
        from: &ItNexus,
        ports: &[RelativePort],
    ) -> Result<Ruling, Refusal> {
        // SPC-2: not together with RESERVE(6), no matter which nexus holds it.
        if state.legacy.is_some() {
            return Err(Refusal::Conflict);
        }
        let mut ruling = Ruling { reservations: state.clone(), tell: Vec::new(), abort: Vec::new() };
        let knows_its_key = state.registrations.get(from) == Some(&self.key);
        match &self.action {
            Action::Register(registration) => ruling.register(self, registration, from, ports)?,
            _ if !knows_its_key => return Err(Refusal::Conflict),
            Action::Reserve(kind) => ruling.reserve(*kind, from)?,
            Action::Release(kind) => ruling.release(*kind, from)?,
            Action::Clear => ruling.clear(from),
            Action::Preempt { kind, abort } => ruling.preempt(self.action_key, *kind, *abort, from)?,
            Action::Move(wanted) => ruling.move_to(self.action_key, wanted, from, ports)?,
        }
        Ok(ruling)
    }
}

impl Ruling {
    fn generation_passes(&mut self) {
        self.reservations.generation = self.reservations.generation.wrapping_add(1);
    }

    /// Adds a unit attention for every registered nexus but `from`.
    fn tell_registrants(&mut self, from: &ItNexus, attention: UnitAttention) {
        let others = self.reservations.registrations.keys().filter(|nexus| *nexus != from);
        self.tell.extend(others.map(|nexus| (nexus.clone(), attention)));
    }

    /// *Registering*.
    fn register(
        &mut self,
        out: &PersistentOut,
        registration: &Registration,
        from: &ItNexus,
        ports: &[RelativePort],
    ) -> Result<(), Refusal> {
        let own = self.reservations.registrations.get(from).copied();
        if !registration.ignore_key && out.key != own.unwrap_or(0) {
            return Err(Refusal::Conflict);
        }
        if own.is_some() && registration.also.is_some() {
            return Err(Sense::invalid_field_in_parameter_list(20, 3).into());
        }
        if own.is_none() && out.action_key == 0 {
            return Ok(()); // nothing to do
        }
        let mut nexuses = through(&from.initiator, from.port, registration, ports);
        // All or none: a nexus that is already registered through another port must have the same key.
        let conflicts = |nexus: &ItNexus| {
            let key = self.reservations.registrations.get(nexus);
            nexus != from && !registration.ignore_key && key.is_some_and(|key| *key != out.key)
        };
        if nexuses.iter().any(conflicts) {
            return Err(Refusal::Conflict);
        }
        let others = registration.also.iter().flatten();
        let others: Vec<_> =
            others.flat_map(|initiator| through(initiator, from.port, registration, ports)).collect();
        // A nexus that SPEC_I_PT names must not be registered yet, no matter with which key.
        if others.iter().any(|nexus| self.reservations.registrations.contains_key(nexus)) {
            return Err(Sense::invalid_field_in_parameter_list(24, 7).into());
        }
        nexuses.extend(others);
        if out.action_key == 0 {
            nexuses.iter().for_each(|nexus| self.unregister(nexus));
        } else {
            self.reservations.registrations.extend(nexuses.into_iter().map(|nexus| (nexus, out.action_key)));
            if self.reservations.registrations.len() > REGISTRATIONS_MAX {
                return Err(Sense::illegal(code::INSUFFICIENT_REGISTRATION_RESOURCES).into());
            }
        }
        self.reservations.survives = registration.survives;
        self.generation_passes();
        Ok(())
    }

    /// *Unregistering*: a reservation ends with the registration of its holder, or with the last
    /// registration.
    fn unregister(&mut self, nexus: &ItNexus) {
        let held = self.reservations.reservation.as_ref();
        let was_holder = held.is_some_and(|held| held.holder.as_ref() == Some(nexus));
        self.reservations.registrations.remove(nexus);
        if was_holder || self.reservations.registrations.is_empty() {
            let released = self.reservations.reservation.take();
            if released.is_some_and(|released| released.kind.is_shared()) {
                self.tell_registrants(nexus, UnitAttention::ReservationsReleased);
            }
        }
    }

    /// *Reserving*.
    fn reserve(&mut self, kind: Kind, from: &ItNexus) -> Result<(), Refusal> {
        match &self.reservations.reservation {
            Some(held) if held.kind == kind && self.reservations.is_holder(from) => {}
            Some(_) => return Err(Refusal::Conflict),
            None => self.reservations.reservation = Some(Reservation::new(kind, from)),
        }
        Ok(())
    }

    /// *Releasing*.
    fn release(&mut self, kind: Kind, from: &ItNexus) -> Result<(), Refusal> {
        if !self.reservations.is_holder(from) {
            return Ok(());
        }
        if self.reservations.reservation.as_ref().is_some_and(|held| held.kind != kind) {
            return Err(Sense::illegal(code::INVALID_RELEASE_OF_PERSISTENT_RESERVATION).into());
        }
        self.reservations.reservation = None;
        if kind.is_shared() {
            self.tell_registrants(from, UnitAttention::ReservationsReleased);
        }
        Ok(())
    }

    /// *Clearing*.
    fn clear(&mut self, from: &ItNexus) {
        self.tell_registrants(from, UnitAttention::ReservationsPreempted);
        self.reservations.registrations.clear();
        self.reservations.reservation = None;
        self.generation_passes();
    }

    /// *Preempting*, *Removing registrations*, *Preempting and aborting*.
    fn preempt(&mut self, key: u64, kind: Kind, abort: bool, from: &ItNexus) -> Result<(), Refusal> {
        let held = self.reservations.reservation.clone();
        let of_all = held.as_ref().is_some_and(|held| held.kind.is_all_registrants());
        let holder_key = held
            .as_ref()
            .and_then(|held| self.reservations.registrations.get(held.holder.as_ref()?))
            .copied();
        // Whether the command takes the reservation, or only removes registrations.
        let takes = if of_all { key == 0 } else { holder_key == Some(key) };
        if key == 0 && !takes {
            return Err(Sense::invalid_field_in_parameter_list(8, 7).into());
        }
        let removed: Vec<ItNexus> = self
            .reservations
            .registrations
            .iter()
            .filter(|(nexus, k)| if takes { *nexus != from && (key == 0 || **k == key) } else { **k == key })
            .map(|(nexus, _)| nexus.clone())
            .collect();
        if removed.is_empty() && !takes {
            return Err(Refusal::Conflict);
        }
        for nexus in &removed {
            self.reservations.registrations.remove(nexus);
            if nexus != from {
                self.tell.push((nexus.clone(), UnitAttention::RegistrationsPreempted));
            }
        }
        if takes {
            if held.is_some_and(|held| held.kind != kind) {
                self.tell_registrants(from, UnitAttention::ReservationsReleased);
            }
            self.reservations.reservation = Some(Reservation::new(kind, from));
        } else if self.reservations.registrations.is_empty() {
            self.reservations.reservation = None;
        }
        if abort {
            self.abort = removed.into_iter().filter(|nexus| nexus != from).collect();
        }
        self.generation_passes();
        Ok(())
    }

    /// *Registering and moving the reservation*.
    fn move_to(
        &mut self,
        key: u64,
        wanted: &Move,
        from: &ItNexus,
        ports: &[RelativePort],
    ) -> Result<(), Refusal> {
        let to = &wanted.to;
        let Some(held) = self.reservations.reservation.clone() else {
            return Err(Sense::invalid_field_in_cdb(1, 4).into());
        };
        // A reservation of an *all registrants* type cannot be moved.
        if held.holder.as_ref() != Some(from) {
            return Err(Refusal::Conflict);
        }
        if key == 0 {
            return Err(Sense::invalid_field_in_parameter_list(8, 7).into());
        }
        if !ports.contains(&to.port) {
            return Err(Sense::invalid_field_in_parameter_list(18, 7).into());
        }
        // Not to the same initiator port, through any target port.
        if to.initiator == from.initiator {
            return Err(Sense::invalid_field_in_parameter_list(24, 7).into());
        }
        self.reservations.registrations.insert(to.clone(), key);
        self.reservations.reservation = Some(Reservation { kind: held.kind, holder: Some(to.clone()) });
        if wanted.unregister {
            self.reservations.registrations.remove(from);
        }
        if self.reservations.registrations.len() > REGISTRATIONS_MAX {
            return Err(Sense::illegal(code::INSUFFICIENT_REGISTRATION_RESOURCES).into());
        }
        self.reservations.survives = wanted.survives;
        self.generation_passes();
        Ok(())
    }
}

impl Reservation {
    fn new(kind: Kind, holder: &ItNexus) -> Reservation {
        Reservation { kind, holder: (!kind.is_all_registrants()).then(|| holder.clone()) }
    }
}

/// The nexuses of an initiator port: through the command's port, or through all ports.
fn through(
    initiator: &InitiatorPort,
    port: RelativePort,
    registration: &Registration,
    ports: &[RelativePort],
) -> Vec<ItNexus> {
    let nexus = |port: &RelativePort| ItNexus { initiator: initiator.clone(), port: *port };
    let mut nexuses = vec![nexus(&port)];
    if registration.all_ports {
        nexuses.extend(ports.iter().filter(|other| **other != port).map(nexus));
    }
    nexuses
}
