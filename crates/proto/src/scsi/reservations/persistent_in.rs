//! PERSISTENT RESERVE IN (SPC-4): answered from this core's state.

use super::{Kind, Reservations, transport_id};
use crate::scsi::operations::{Access, Operation, Run, unready};
use crate::scsi::{LogicalUnit, Outcome, Request, Sense, Step};

/// The four service actions.
pub(in crate::scsi) const PERSISTENT_RESERVE_IN: [Operation; 4] = [
    operation(0x00, "PERSISTENT RESERVE IN, READ KEYS", |unit, request| answer(unit, request, read_keys)),
    operation(0x01, "PERSISTENT RESERVE IN, READ RESERVATION", |unit, request| {
        answer(unit, request, read_reservation)
    }),
    operation(0x02, "PERSISTENT RESERVE IN, REPORT CAPABILITIES", |unit, request| {
        answer(unit, request, report_capabilities)
    }),
    operation(0x03, "PERSISTENT RESERVE IN, READ FULL STATUS", |unit, request| {
        answer(unit, request, read_full_status)
    }),
];

const fn operation(action: u8, name: &'static str, run: Run) -> Operation {
    const USAGE: [[u8; 10]; 4] = [
        [0x5e, 0x00, 0, 0, 0, 0, 0, 0xff, 0xff, 0x04],
        [0x5e, 0x01, 0, 0, 0, 0, 0, 0xff, 0xff, 0x04],
        [0x5e, 0x02, 0, 0, 0, 0, 0, 0xff, 0xff, 0x04],
        [0x5e, 0x03, 0, 0, 0, 0, 0, 0xff, 0xff, 0x04],
    ];
    Operation { service_action: Some(action), ..unready(name, Access::Status, run, &USAGE[action as usize]) }
}

fn answer(
    unit: &mut LogicalUnit,
    request: Request,
    parameters: fn(&Reservations) -> Vec<u8>,
) -> Result<Step, Sense> {
    let bytes = parameters(&unit.state().reservations);
    Ok(Step::Done(Outcome::parameters(&bytes, usize::from(request.cdb.u16(7)))))
}

/// Puts PRGENERATION and ADDITIONAL LENGTH before a list.
fn with_header(reservations: &Reservations, list: &[u8]) -> Vec<u8> {
    let mut bytes = reservations.generation.to_be_bytes().to_vec();
    bytes.extend_from_slice(&(list.len() as u32).to_be_bytes());
    bytes.extend_from_slice(list);
    bytes
}

fn read_keys(reservations: &Reservations) -> Vec<u8> {
    let keys: Vec<u8> = reservations.registrations.values().flat_map(|key| key.to_be_bytes()).collect();
    with_header(reservations, &keys)
}

/// READ RESERVATION. The key is zero for *all registrants* types.
fn read_reservation(reservations: &Reservations) -> Vec<u8> {
    let Some(reservation) = &reservations.reservation else { return with_header(reservations, &[]) };
    let holder = reservation.holder.as_ref();
    let key = holder.and_then(|holder| reservations.registrations.get(holder)).copied().unwrap_or(0);
    let mut bytes = key.to_be_bytes().to_vec();
    bytes.extend_from_slice(&[0, 0, 0, 0, 0, reservation.kind as u8, 0, 0]);
    with_header(reservations, &bytes)
}

/// REPORT CAPABILITIES: CRH, SIP_C, ATP_C, PTPL_C; TMV, ALLOW COMMANDS 001b (TEST UNIT READY); all types.
fn report_capabilities(reservations: &Reservations) -> Vec<u8> {
    let mask = Kind::ALL.iter().fold(0u16, |mask, kind| mask | 1 << type_bit(*kind));
    let [high, low] = mask.to_be_bytes();
    vec![0, 8, 0x1d, 0x90 | u8::from(reservations.survives), high, low, 0, 0]
}

/// The bit of a type in the PERSISTENT RESERVATION TYPE MASK.
fn type_bit(kind: Kind) -> u8 {
    match kind {
        Kind::WriteExclusiveAllRegistrants => 15,
        Kind::ExclusiveAccessRegistrantsOnly => 14,
        Kind::WriteExclusiveRegistrantsOnly => 13,
        Kind::ExclusiveAccess => 11,
        Kind::WriteExclusive => 9,
        Kind::ExclusiveAccessAllRegistrants => 0,
    }
}

fn read_full_status(reservations: &Reservations) -> Vec<u8> {
    let mut list = Vec::new();
    for (nexus, key) in &reservations.registrations {
        let holds = reservations.is_holder(nexus);
        let kind = reservations.reservation.as_ref().filter(|_| holds).map_or(0, |held| held.kind as u8);
        list.extend_from_slice(&key.to_be_bytes());
        list.extend_from_slice(&[0, 0, 0, 0, u8::from(holds), kind, 0, 0, 0, 0]);
        list.extend_from_slice(&nexus.port.0.to_be_bytes());
        let id = transport_id::encode(&nexus.initiator);
        list.extend_from_slice(&(id.len() as u32).to_be_bytes());
        list.extend(id);
    }
    with_header(reservations, &list)
}
