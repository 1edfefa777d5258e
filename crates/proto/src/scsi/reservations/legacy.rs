//! RESERVE and RELEASE (SPC-2), which old clusters and libiscsi use.

use super::Reservations;
use crate::scsi::change::Change;
use crate::scsi::operations::{Access, Operation, Reach, Run, unready};
use crate::scsi::{ItNexus, LogicalUnit, Request, Sense, Status, Step};

/// The four commands.
pub(in crate::scsi) const LEGACY: [Operation; 4] = [
    operation("RESERVE(6)", Access::Reserve, &[0x16, 0, 0, 0, 0, 0x04], |unit, request| {
        ask(unit, request, Legacy::Reserve)
    }),
    operation("RELEASE(6)", Access::Release, &[0x17, 0, 0, 0, 0, 0x04], |unit, request| {
        ask(unit, request, Legacy::Release)
    }),
    operation("RESERVE(10)", Access::Reserve, &[0x56, 0, 0, 0, 0, 0, 0, 0, 0, 0x04], |unit, request| {
        ask(unit, request, Legacy::Reserve)
    }),
    operation("RELEASE(10)", Access::Release, &[0x57, 0, 0, 0, 0, 0, 0, 0, 0, 0x04], |unit, request| {
        ask(unit, request, Legacy::Release)
    }),
];

const fn operation(name: &'static str, access: Access, usage: &'static [u8], run: Run) -> Operation {
    Operation { reach: Reach::Active, ..unready(name, access, run, usage) }
}

/// Which of the two commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::scsi) enum Legacy {
    Reserve,
    Release,
}

/// Third-party and extent reservations are obsolete since SPC-2: 3RDPTY, LONGID and EXTENT must be zero.
fn ask(unit: &mut LogicalUnit, request: Request, legacy: Legacy) -> Result<Step, Sense> {
    match request.cdb.service_action() {
        0 => unit.change(&request, Change::Legacy(legacy), 0),
        flags => Err(Sense::invalid_field_in_cdb(1, 7 - flags.leading_zeros() as u8)),
    }
}

impl Legacy {
    /// Decides the change. `Err` is the status of the response.
    pub(in crate::scsi) fn decide(
        self,
        reservations: &Reservations,
        from: &ItNexus,
    ) -> Result<Option<Reservations>, Status> {
        // SPC-4, exceptions to SPC-2 RESERVE and RELEASE behavior: with CRH, the command succeeds without
        // effect for a holder, and for a registrant of a shared type.
        if !reservations.registrations.is_empty() {
            let shared =
                reservations.reservation.as_ref().is_some_and(|reservation| reservation.kind.is_shared());
            let content =
                reservations.is_holder(from) || shared && reservations.registrations.contains_key(from);
            return if content { Ok(None) } else { Err(Status::ReservationConflict) };
        }
        let held_by_other = reservations.legacy.as_ref().is_some_and(|holder| holder != from);
        let legacy = match self {
            Legacy::Reserve if held_by_other => return Err(Status::ReservationConflict),
            Legacy::Release if held_by_other => return Ok(None),
            Legacy::Reserve => Some(from.clone()),
            Legacy::Release => None,
        };
        Ok((legacy != reservations.legacy).then(|| Reservations { legacy, ..reservations.clone() }))
    }
}
