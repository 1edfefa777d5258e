//! Reservations: literal bytes, and invariants after random sequences.

use base::Rng;

use super::persistent_out::{Action, Move, PersistentOut, Registration};
use super::{Kind, Legacy, Reservations, transport_id};
use crate::scsi::rig::{A, A2, B, C, Rig, config, nexus};
use crate::scsi::{ItNexus, LuState, NexusId, Refusal, RelativePort, Reset, SenseKey, Status, UnitAttention};

const REGISTER: u8 = 0;
const RESERVE: u8 = 1;
const RELEASE: u8 = 2;
const CLEAR: u8 = 3;
const PREEMPT: u8 = 4;
const PREEMPT_AND_ABORT: u8 = 5;
const REGISTER_AND_IGNORE: u8 = 6;
const REGISTER_AND_MOVE: u8 = 7;

const GOOD: Status = Status::Good;
const CONFLICT: Status = Status::ReservationConflict;

fn list(key: u64, action_key: u64, flags: u8) -> Vec<u8> {
    let mut list = key.to_be_bytes().to_vec();
    list.extend_from_slice(&action_key.to_be_bytes());
    list.extend_from_slice(&[0, 0, 0, 0, flags, 0, 0, 0]);
    list
}

fn out_cdb(action: u8, kind: u8, len: usize) -> [u8; 10] {
    [0x5f, action, kind, 0, 0, 0, 0, (len >> 8) as u8, len as u8, 0]
}

impl Rig {
    fn out(&mut self, id: NexusId, action: u8, kind: u8, key: u64, action_key: u64) -> Status {
        self.status(id, &out_cdb(action, kind, 24), &list(key, action_key, 0))
    }

    fn keys(&mut self) -> Vec<u8> {
        self.data(A, &[0x5e, 0, 0, 0, 0, 0, 0, 1, 0, 0])
    }

    fn reservation(&mut self) -> Vec<u8> {
        self.data(A, &[0x5e, 1, 0, 0, 0, 0, 0, 1, 0, 0])
    }
}

#[test]
fn register_and_read_keys() {
    let mut rig = Rig::new();
    assert_eq!(rig.out(A, REGISTER, 0, 1, 7), CONFLICT);
    assert_eq!(rig.out(A, REGISTER, 0, 0, 7), GOOD);
    assert_eq!(rig.out(A, REGISTER, 0, 0, 8), CONFLICT);
    assert_eq!(rig.out(B, REGISTER_AND_IGNORE, 0, 99, 9), GOOD);
    assert_eq!(rig.keys(), [0, 0, 0, 2, 0, 0, 0, 16, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 9]);
    // The length covers all keys, however many fit.
    assert_eq!(rig.data(A, &[0x5e, 0, 0, 0, 0, 0, 0, 0, 8, 0]), [0, 0, 0, 2, 0, 0, 0, 16]);
    assert_eq!(rig.out(A, REGISTER, 0, 7, 0), GOOD);
    assert_eq!(rig.keys(), [0, 0, 0, 3, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 9]);
}

#[test]
fn capabilities() {
    let bytes = Rig::new().data(A, &[0x5e, 2, 0, 0, 0, 0, 0, 1, 0, 0]);
    assert_eq!(bytes, [0, 8, 0x1d, 0x90, 0xea, 0x01, 0, 0]);
}

#[test]
fn reserve_and_release() {
    for kind in [1, 3, 5, 6, 7, 8] {
        let mut rig = Rig::new();
        assert_eq!(rig.out(A, RESERVE, kind, 7, 0), CONFLICT, "not registered");
        rig.out(A, REGISTER, 0, 0, 7);
        rig.out(B, REGISTER, 0, 0, 9);
        assert_eq!(rig.reservation(), [0, 0, 0, 2, 0, 0, 0, 0]);
        assert_eq!(rig.out(A, RESERVE, kind, 7, 0), GOOD);
        let key = if kind >= 7 { 0 } else { 7 };
        assert_eq!(
            rig.reservation(),
            [0, 0, 0, 2, 0, 0, 0, 16, 0, 0, 0, 0, 0, 0, 0, key, 0, 0, 0, 0, 0, kind, 0, 0]
        );
        assert_eq!(rig.out(A, RESERVE, kind, 7, 0), GOOD, "again");
        assert_eq!(rig.out(B, RESERVE, kind, 9, 0), if kind >= 7 { GOOD } else { CONFLICT });
        let other = if kind == 1 { 3 } else { 1 };
        assert_eq!(rig.out(A, RESERVE, other, 7, 0), CONFLICT, "not even the holder may change the type");
        // A release by a nexus that is not a holder has no effect.
        assert_eq!(rig.out(B, RELEASE, kind, 9, 0), GOOD);
        assert_eq!(rig.news(A), if kind >= 7 { vec![0x2a04] } else { vec![] });
        assert_eq!(rig.reservation().len() > 8, kind < 7);
        rig.out(A, RESERVE, kind, 7, 0);
        assert_eq!(rig.code(A, &out_cdb(RELEASE, other, 24), &list(7, 0, 0)), 0x2604);
        assert_eq!(rig.out(A, RELEASE, kind, 7, 0), GOOD);
        assert_eq!(rig.reservation().len(), 8);
        assert_eq!(rig.news(B), if kind >= 5 { vec![0x2a04] } else { vec![] });
    }
}

#[test]
fn conflicts_reach_commands() {
    let mut rig = Rig::new();
    rig.out(A, REGISTER, 0, 0, 7);
    rig.out(A, RESERVE, 3, 7, 0);
    assert_eq!(rig.status(B, &[0x00, 0, 0, 0, 0, 0], &[]), GOOD);
    assert_eq!(rig.status(B, &[0x1a, 0, 0x3f, 0, 255, 0], &[]), CONFLICT);
    assert_eq!(rig.status(A, &[0x1a, 0, 0x3f, 0, 255, 0], &[]), GOOD);
    // The same initiator through another port is another nexus.
    assert_eq!(rig.status(A2, &[0x1a, 0, 0x3f, 0, 255, 0], &[]), CONFLICT);
    assert_eq!(rig.out(B, RESERVE, 3, 0, 0), CONFLICT);
    // A conflict is reported before a unit attention, but not before a reset.
    rig.unit.attention(B, UnitAttention::CapacityChanged);
    assert_eq!(rig.status(B, &[0x1a, 0, 0x3f, 0, 255, 0], &[]), CONFLICT);
    rig.unit.attention(B, UnitAttention::DeviceReset);
    assert_eq!(rig.code(B, &[0x1a, 0, 0x3f, 0, 255, 0], &[]), 0x2903);
    assert_eq!(rig.code(B, &[0x00, 0, 0, 0, 0, 0], &[]), 0x2a09);
    assert_eq!(rig.unit.may_copy_to(&nexus(A)), Ok(()));
    assert_eq!(rig.unit.may_copy_from(&nexus(B)), Err(Refusal::Conflict));
    // Persistent reservations survive resets and logins.
    let reset = rig.unit.reset(Reset::Target, nexus(B));
    rig.carry_out(&reset);
    rig.news(B);
    assert!(rig.unit.detach_nexus(A).is_none());
    rig.unit.attach_nexus(A, nexus(A), true);
    rig.news(A);
    assert_eq!(rig.status(A, &[0x1a, 0, 0x3f, 0, 255, 0], &[]), GOOD);
    assert_eq!(rig.status(B, &[0x1a, 0, 0x3f, 0, 255, 0], &[]), CONFLICT);
}

/// What a copy does to its destination is a write, even if every nexus may read there.
#[test]
fn a_copy_does_not_write_where_its_initiator_may_only_read() {
    const WRITE_EXCLUSIVE: [u8; 3] = [1, 5, 7];
    for kind in WRITE_EXCLUSIVE {
        let mut rig = Rig::new();
        rig.out(A, REGISTER, 0, 0, 7);
        assert_eq!(rig.out(A, RESERVE, kind, 7, 0), GOOD);
        assert_eq!(rig.unit.may_copy_from(&nexus(B)), Ok(()), "type {kind}");
        assert_eq!(rig.unit.may_copy_to(&nexus(B)), Err(Refusal::Conflict), "type {kind}");
        assert_eq!(rig.unit.may_copy_to(&nexus(A)), Ok(()), "type {kind}");
    }
}

/// PREEMPT does not abort what waits: it must not begin any more.
#[test]
fn a_write_that_waits_may_not_begin_once_its_initiator_is_fenced_off() {
    let mut rig = Rig::new();
    rig.out(A, REGISTER, 0, 0, 7);
    rig.out(B, REGISTER, 0, 0, 9);
    assert_eq!(rig.out(A, RESERVE, 1, 7, 0), GOOD);
    assert!(rig.unit.may_still_write(A));
    assert_eq!(rig.out(B, PREEMPT, 1, 9, 7), GOOD);
    assert!(!rig.unit.may_still_write(A));
    assert!(rig.unit.may_still_write(B));
    assert!(rig.unit.detach_nexus(B).is_none());
    assert!(!rig.unit.may_still_write(B), "it has logged out");
}

#[test]
fn clear_and_preempt() {
    let mut rig = Rig::new();
    rig.out(A, REGISTER, 0, 0, 7);
    rig.out(B, REGISTER, 0, 0, 9);
    // Without a reservation, only registrations are removed.
    assert_eq!(rig.out(B, PREEMPT, 3, 9, 5), CONFLICT);
    assert_eq!(rig.out(B, PREEMPT, 3, 9, 7), GOOD);
    assert_eq!(rig.news(A), [0x2a05]);
    assert_eq!(rig.keys()[..8], [0, 0, 0, 3, 0, 0, 0, 8]);
    rig.out(A, REGISTER, 0, 0, 7);
    assert_eq!(rig.out(A, RESERVE, 5, 7, 0), GOOD);
    assert_eq!(rig.out(B, PREEMPT, 1, 9, 7), GOOD);
    assert_eq!(rig.news(A), [0x2a05]);
    assert_eq!(rig.reservation()[8..], [0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 1, 0, 0]);
    rig.out(A, REGISTER, 0, 0, 7);
    assert_eq!(rig.out(A, CLEAR, 0, 7, 0), GOOD);
    assert_eq!(rig.news(B), [0x2a03]);
    assert_eq!(rig.keys(), [0, 0, 0, 7, 0, 0, 0, 0]);
    assert_eq!(rig.reservation(), [0, 0, 0, 7, 0, 0, 0, 0]);
}

#[test]
fn preempt_and_abort_names_the_victims() {
    let ports = [RelativePort(1), RelativePort(2)];
    let mut state = Reservations::default();
    for (id, key) in [(A, 7), (B, 9), (A2, 7)] {
        state.registrations.insert(nexus(id), key);
    }
    let action = Action::Preempt { kind: Kind::WriteExclusive, abort: true };
    let ruling = PersistentOut { key: 9, action_key: 7, action }.decide(&state, &nexus(B), &ports).unwrap();
    assert_eq!(ruling.abort, [nexus(A), nexus(A2)]);
    // The same with the encoded command.
    let mut rig = Rig::new();
    rig.out(A, REGISTER, 0, 0, 7);
    rig.out(B, REGISTER, 0, 0, 9);
    assert_eq!(rig.out(B, PREEMPT_AND_ABORT, 3, 9, 7), GOOD);
}

#[test]
fn all_registrants_hold_it_together() {
    let mut rig = Rig::new();
    rig.out(A, REGISTER, 0, 0, 7);
    rig.out(B, REGISTER, 0, 0, 9);
    rig.out(A, RESERVE, 8, 7, 0);
    assert_eq!(rig.out(A, REGISTER, 0, 7, 0), GOOD);
    assert_eq!(rig.reservation()[21], 8);
    assert_eq!(rig.out(B, RELEASE, 8, 9, 0), GOOD);
    // PREEMPT with a key of zero takes it from all others.
    rig.out(A, REGISTER, 0, 0, 7);
    rig.out(A, RESERVE, 8, 7, 0);
    assert_eq!(rig.out(B, PREEMPT, 1, 9, 0), GOOD);
    assert_eq!(rig.news(A), [0x2a05]);
    assert_eq!(rig.out(B, REGISTER, 0, 9, 0), GOOD);
    assert_eq!(rig.reservation().len(), 8, "the last one leaves");
}

#[test]
fn a_holder_that_leaves_releases() {
    for (kind, news) in [(1, vec![]), (3, vec![]), (5, vec![0x2a04]), (6, vec![0x2a04])] {
        let mut rig = Rig::new();
        rig.out(A, REGISTER, 0, 0, 7);
        rig.out(B, REGISTER, 0, 0, 9);
        rig.out(A, RESERVE, kind, 7, 0);
        assert_eq!(rig.out(A, REGISTER_AND_IGNORE, 0, 0, 0), GOOD);
        assert_eq!(rig.reservation().len(), 8);
        assert_eq!(rig.news(B), news);
    }
}

#[test]
fn registering_others() {
    let mut rig = Rig::new();
    // SPEC_I_PT with ALL_TG_PT: this initiator and another through both ports.
    let mut parameters = list(0, 7, 0x0c);
    let id = transport_id::encode(&nexus(B).initiator);
    parameters.extend_from_slice(&(id.len() as u32).to_be_bytes());
    parameters.extend_from_slice(&id);
    assert_eq!(rig.status(A, &out_cdb(REGISTER, 0, parameters.len()), &parameters), GOOD);
    assert_eq!(rig.keys()[..8], [0, 0, 0, 1, 0, 0, 0, 32]);
    assert_eq!(
        rig.code(A, &out_cdb(REGISTER, 0, parameters.len()), &{
            let mut again = parameters.clone();
            again[7] = 7;
            again
        }),
        0x2600
    );
    assert_eq!(rig.out(B, RESERVE, 1, 7, 0), GOOD);
    // READ FULL STATUS: four descriptors with their TransportIDs.
    let status = rig.data(A, &[0x5e, 3, 0, 0, 0, 0, 0, 2, 0, 0]);
    assert_eq!(status[..8], [0, 0, 0, 1, 0, 0, 0, 4 * (24 + 28)]);
    let third = &status[8 + 2 * 52..8 + 3 * 52];
    assert_eq!(third[..24], [0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0x01, 0x01, 0, 0, 0, 0, 0, 1, 0, 0, 0, 28]);
    assert_eq!(third[24..], *b"\x45\0\0\x18iqn.b,i,0x00023d000001\0\0");
}

/// The parameter list of a REGISTER AND MOVE to an initiator port through a target port.
fn move_list(key: u64, action_key: u64, unregister: bool, to: NexusId) -> Vec<u8> {
    let to = nexus(to);
    let id = transport_id::encode(&to.initiator);
    let mut parameters = list(key, action_key, 0);
    parameters[17] = u8::from(unregister) << 1;
    parameters[18..20].copy_from_slice(&to.port.0.to_be_bytes());
    parameters[20..24].copy_from_slice(&(id.len() as u32).to_be_bytes());
    parameters.extend_from_slice(&id);
    parameters
}

#[test]
fn register_and_move() {
    let mut rig = Rig::new();
    rig.out(A, REGISTER, 0, 0, 7);
    rig.out(A, RESERVE, 1, 7, 0);
    let parameters = move_list(7, 9, true, B);
    assert_eq!(rig.status(A, &out_cdb(REGISTER_AND_MOVE, 1, parameters.len()), &parameters), GOOD);
    assert_eq!(rig.keys()[4..], [0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 9]);
    assert_eq!(rig.status(B, &[0x1a, 0, 0x3f, 0, 255, 0], &[]), GOOD);
    assert_eq!(rig.status(A, &[0x1a, 0, 0x3f, 0, 255, 0], &[]), CONFLICT);
}

/// The end of a command: a status, or CHECK CONDITION with this code.
#[derive(Debug, PartialEq, Eq)]
enum End {
    Status(Status),
    Check(u16),
}

impl Rig {
    fn end(&mut self, id: NexusId, cdb: &[u8], data: &[u8]) -> End {
        let outcome = self.run(id, cdb, data);
        outcome.sense.map_or(End::Status(outcome.status), |sense| {
            assert_eq!(sense.key, SenseKey::IllegalRequest);
            End::Check(sense.code)
        })
    }
}

/// The rows of *Register behaviors for a REGISTER service action* and of *... REGISTER AND IGNORE EXISTING
/// KEY service action* (SPC-4, Registering). A is registered with 7 or not at all, B with 9, and A2 (the
/// initiator of A through another port) not at all.
#[test]
fn the_rows_of_register() {
    const SPEC_I_PT: u8 = 0x08;
    // Whether A is registered; service action; RESERVATION KEY; SERVICE ACTION RESERVATION KEY; flags; the
    // port in SPEC_I_PT.
    type Row = (bool, u8, u64, u64, u8, Option<NexusId>, End);
    let rows: [Row; 16] = [
        (false, REGISTER, 0, 0, 0, None, End::Status(GOOD)),
        (false, REGISTER, 0, 0, SPEC_I_PT, Some(B), End::Status(GOOD)),
        (false, REGISTER, 0, 5, 0, None, End::Status(GOOD)),
        (false, REGISTER, 0, 5, SPEC_I_PT, Some(C), End::Status(GOOD)),
        (false, REGISTER, 0, 5, SPEC_I_PT, Some(B), End::Check(0x2600)),
        (false, REGISTER, 0, 9, SPEC_I_PT, Some(B), End::Check(0x2600)),
        (false, REGISTER, 5, 5, 0, None, End::Status(CONFLICT)),
        (false, REGISTER, 5, 5, SPEC_I_PT, Some(C), End::Status(CONFLICT)),
        (true, REGISTER, 8, 5, 0, None, End::Status(CONFLICT)),
        (true, REGISTER, 8, 5, SPEC_I_PT, Some(C), End::Status(CONFLICT)),
        (true, REGISTER, 7, 0, 0, None, End::Status(GOOD)),
        (true, REGISTER, 7, 0, SPEC_I_PT, Some(C), End::Check(0x2600)),
        (true, REGISTER, 7, 5, 0, None, End::Status(GOOD)),
        (true, REGISTER, 7, 5, SPEC_I_PT, Some(C), End::Check(0x2600)),
        (false, REGISTER_AND_IGNORE, 99, 5, 0, None, End::Status(GOOD)),
        (true, REGISTER_AND_IGNORE, 99, 0, 0, None, End::Status(GOOD)),
    ];
    for row in rows {
        let (registered, action, key, action_key, flags, named, expected) = &row;
        let mut rig = Rig::new();
        rig.out(B, REGISTER, 0, 0, 9);
        if *registered {
            rig.out(A, REGISTER, 0, 0, 7);
        }
        let before = rig.unit.state().reservations.registrations.clone();
        let mut parameters = list(*key, *action_key, *flags);
        if let Some(named) = named {
            let id = transport_id::encode(&nexus(*named).initiator);
            parameters.extend_from_slice(&(id.len() as u32).to_be_bytes());
            parameters.extend_from_slice(&id);
        }
        assert_eq!(rig.end(A, &out_cdb(*action, 0, parameters.len()), &parameters), *expected, "{row:?}");
        let mut after = before.clone();
        if *expected == End::Status(GOOD) && (*action_key != 0 || *registered) {
            let own = [Some(A), *named].into_iter().flatten().map(nexus);
            match action_key {
                0 => own.for_each(|nexus| {
                    after.remove(&nexus);
                }),
                key => after.extend(own.map(|nexus| (nexus, *key))),
            }
        }
        assert_eq!(rig.unit.state().reservations.registrations, after, "{row:?}");
    }
}

/// SPC-4, basic PERSISTENT RESERVE OUT parameter list: only REGISTER allows SPEC_I_PT.
#[test]
fn initiator_ports_are_named_to_register_only() {
    for action in [RESERVE, RELEASE, CLEAR, PREEMPT, PREEMPT_AND_ABORT, REGISTER_AND_IGNORE] {
        let mut rig = Rig::new();
        rig.out(A, REGISTER, 0, 0, 7);
        assert_eq!(rig.end(A, &out_cdb(action, 1, 24), &list(7, 7, 0x08)), End::Check(0x2600), "{action}");
    }
}

/// The rows of *Register behaviors for a REGISTER AND MOVE service action*, and the paragraphs below (SPC-4,
/// Registering and moving the reservation). A is registered with 7, B with 9.
#[test]
fn the_rows_of_register_and_move() {
    // The holder of the reservation and its type; the nexus that asks; RESERVATION KEY; SERVICE ACTION
    // RESERVATION KEY; the nexus to move to.
    type Row = (Option<(NexusId, u8)>, NexusId, u64, u64, NexusId, End);
    let rows: [Row; 15] = [
        (Some((A, 1)), A2, 7, 5, B, End::Status(CONFLICT)), // not registered
        (Some((A, 1)), A2, 0, 5, B, End::Status(CONFLICT)),
        (Some((A, 1)), A, 8, 5, B, End::Status(CONFLICT)),
        (Some((A, 1)), A, 8, 0, B, End::Status(CONFLICT)),
        (Some((A, 1)), A, 7, 0, B, End::Check(0x2600)),
        (Some((A, 1)), A, 7, 5, B, End::Status(GOOD)),
        (Some((A, 6)), A, 7, 5, C, End::Status(GOOD)),
        (Some((A, 1)), B, 9, 5, C, End::Status(CONFLICT)), // not the holder
        (Some((A, 1)), B, 9, 0, C, End::Status(CONFLICT)),
        (Some((A, 7)), A, 7, 5, B, End::Status(CONFLICT)), // all registrants
        (Some((A, 8)), A, 7, 5, B, End::Status(CONFLICT)),
        (None, A, 8, 5, B, End::Status(CONFLICT)),
        (None, A, 7, 5, B, End::Check(0x2400)), // nothing to move
        (Some((A, 1)), A, 7, 5, A, End::Check(0x2600)), // to itself
        (Some((A, 1)), A, 7, 5, A2, End::Check(0x2600)), // through whichever port
    ];
    for row in rows {
        let (holder, from, key, action_key, to, expected) = &row;
        let mut rig = Rig::new();
        rig.out(A, REGISTER, 0, 0, 7);
        rig.out(B, REGISTER, 0, 0, 9);
        if let Some((holder, kind)) = holder {
            assert_eq!(rig.out(*holder, RESERVE, *kind, 7, 0), GOOD);
        }
        let before = rig.unit.state().reservations.clone();
        let parameters = move_list(*key, *action_key, false, *to);
        let cdb = out_cdb(REGISTER_AND_MOVE, 1, parameters.len());
        assert_eq!(rig.end(*from, &cdb, &parameters), *expected, "{row:?}");
        let after = &rig.unit.state().reservations;
        if *expected == End::Status(GOOD) {
            assert_eq!(after.registrations.get(&nexus(*to)), Some(action_key), "{row:?}");
            assert_eq!(after.reservation.as_ref().unwrap().holder, Some(nexus(*to)), "{row:?}");
        } else {
            assert_eq!(*after, before, "{row:?}");
        }
    }
    // A port that the unit does not have, for a nexus that may move the reservation. Other nexuses get their
    // conflict first.
    let mut rig = Rig::new();
    rig.out(A, REGISTER, 0, 0, 7);
    rig.out(B, REGISTER, 0, 0, 9);
    rig.out(A, RESERVE, 1, 7, 0);
    for (from, key, expected) in [(A, 7, End::Check(0x2600)), (B, 9, End::Status(CONFLICT))] {
        let mut parameters = move_list(key, 5, false, C);
        parameters[19] = 77;
        assert_eq!(rig.end(from, &out_cdb(REGISTER_AND_MOVE, 1, parameters.len()), &parameters), expected);
    }
}

#[test]
fn power_loss() {
    // APTPL of the last registration counts.
    for (first, survives) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        let mut rig = Rig::new();
        assert_eq!(rig.status(A, &out_cdb(REGISTER, 0, 24), &list(0, 7, first)), GOOD);
        assert_eq!(rig.status(A, &out_cdb(REGISTER, 0, 24), &list(7, 7, survives)), GOOD);
        rig.out(A, RESERVE, 3, 7, 0);
        let state = LuState::from_durable(&rig.unit.state().to_durable()).unwrap();
        let mut rig = Rig::with(config(), state);
        let expected = if survives == 1 { CONFLICT } else { GOOD };
        assert_eq!(rig.status(B, &[0x1a, 0, 0x3f, 0, 255, 0], &[]), expected);
        assert_eq!(rig.keys()[..4], [0, 0, 0, 0], "PRGENERATION begins again");
    }
}

#[test]
fn wrong_lists() {
    let mut rig = Rig::new();
    assert_eq!(rig.code(A, &out_cdb(REGISTER, 0, 23), &list(0, 7, 0)), 0x1a00);
    assert_eq!(rig.code(A, &out_cdb(REGISTER, 0, 25), &[0; 25]), 0x1a00);
    assert_eq!(rig.code(A, &out_cdb(REGISTER, 0, 24), &[0; 20]), 0x0e03);
    assert_eq!(rig.code(A, &out_cdb(REGISTER, 0, 24), &list(0, 7, 8)), 0x1a00);
    assert_eq!(rig.code(A, &out_cdb(REGISTER_AND_IGNORE, 0, 24), &list(0, 7, 8)), 0x2600);
    rig.out(A, REGISTER, 0, 0, 7);
    assert_eq!(rig.code(A, &out_cdb(RESERVE, 2, 24), &list(7, 0, 0)), 0x2400);
    assert_eq!(rig.code(A, &out_cdb(RESERVE, 0x11, 24), &list(7, 0, 0)), 0x2400);
    assert_eq!(rig.code(A, &out_cdb(PREEMPT, 1, 24), &list(7, 0, 0)), 0x2600);
    assert_eq!(rig.code(A, &out_cdb(8, 0, 24), &list(7, 0, 0)), 0x2400);
}

#[test]
fn reserve_6() {
    const RESERVE_6: [u8; 6] = [0x16, 0, 0, 0, 0, 0];
    const RELEASE_6: [u8; 6] = [0x17, 0, 0, 0, 0, 0];
    const MODE_SENSE: [u8; 6] = [0x1a, 0, 0x3f, 0, 255, 0];
    let mut rig = Rig::new();
    assert_eq!(rig.status(A, &RESERVE_6, &[]), GOOD);
    assert_eq!(rig.status(A, &RESERVE_6, &[]), GOOD);
    assert_eq!(rig.status(B, &RESERVE_6, &[]), CONFLICT);
    assert_eq!(rig.status(B, &RELEASE_6, &[]), GOOD);
    assert_eq!(rig.status(A, &MODE_SENSE, &[]), GOOD);
    assert_eq!(rig.status(B, &MODE_SENSE, &[]), CONFLICT);
    assert_eq!(rig.status(B, &[0; 6], &[]), CONFLICT);
    assert_eq!(rig.status(B, &[0x12, 0, 0, 0, 96, 0], &[]), GOOD);
    assert_eq!(rig.out(A, REGISTER, 0, 0, 7), CONFLICT, "not together with persistent ones");
    assert_eq!(rig.status(A, &RELEASE_6, &[]), GOOD);
    assert_eq!(rig.status(B, &RESERVE_6, &[]), GOOD);
    // A reset, or the end of the session, drops it.
    let reset = rig.unit.reset(Reset::LogicalUnit, nexus(A));
    rig.carry_out(&reset);
    for id in [A, B, A2] {
        assert_eq!(rig.news(id), [0x2903]);
    }
    assert_eq!(rig.status(A, &RESERVE_6, &[]), GOOD);
    let lost = rig.unit.detach_nexus(A).unwrap();
    rig.carry_out(&lost);
    assert_eq!(rig.status(B, &RESERVE_6, &[]), GOOD);
    rig.status(B, &RELEASE_6, &[]);
    // With a registration, RESERVE(6) is refused, except for the holder of the reservation (CRH).
    rig.out(B, REGISTER, 0, 0, 9);
    assert_eq!(rig.status(B, &RESERVE_6, &[]), CONFLICT);
    rig.out(B, RESERVE, 1, 9, 0);
    assert_eq!(rig.status(B, &RESERVE_6, &[]), GOOD);
    assert_eq!(rig.status(A2, &RESERVE_6, &[]), CONFLICT);
    assert_eq!(rig.unit.state().reservations.legacy, None);
}

/// Random sequences: the invariants hold, and each service action has its effect.
#[test]
fn any_sequence() {
    let ports = [RelativePort(1), RelativePort(2)];
    let all: Vec<ItNexus> = [A, B, A2].map(nexus).to_vec();
    let mut counts = [0u32; 3];
    for seed in 0..300 {
        let mut rng = Rng::new(seed);
        let mut state = Reservations::default();
        for _ in 0..60 {
            let from = &all[rng.below(3) as usize];
            if rng.one_in(10) {
                let legacy = if rng.one_in(2) { Legacy::Reserve } else { Legacy::Release };
                if let Ok(Some(new)) = legacy.decide(&state, from) {
                    state = new;
                }
                state.check();
                continue;
            }
            let own = state.registrations.get(from).copied().unwrap_or(0);
            let key = if rng.one_in(5) { rng.below(4) } else { own };
            let action_key = rng.below(4);
            let kind = Kind::ALL[rng.below(6) as usize];
            let action = match rng.below(7) {
                0 | 1 => Action::Register(Registration {
                    ignore_key: rng.one_in(2),
                    also: rng.one_in(8).then(|| vec![all[rng.below(3) as usize].initiator.clone()]),
                    all_ports: rng.one_in(4),
                    survives: rng.one_in(2),
                }),
                2 => Action::Reserve(kind),
                3 => Action::Release(kind),
                4 if rng.one_in(3) => Action::Clear,
                5 => {
                    let to = all[rng.below(3) as usize].clone();
                    let unregister = rng.one_in(2);
                    Action::Move(Move { to, unregister, survives: rng.one_in(2) })
                }
                _ => Action::Preempt { kind, abort: rng.one_in(2) },
            };
            let out = PersistentOut { key, action_key, action };
            match out.decide(&state, from, &ports) {
                Err(Refusal::Conflict) => counts[0] += 1,
                Err(Refusal::Check(_)) => counts[1] += 1,
                Ok(ruling) => {
                    counts[2] += 1;
                    let new = ruling.reservations;
                    new.check();
                    let steps = new.generation - state.generation;
                    match &out.action {
                        Action::Reserve(_) | Action::Release(_) => {
                            assert_eq!(steps, 0);
                            assert_eq!(new.registrations, state.registrations);
                        }
                        Action::Register(_) => assert!(steps <= 1),
                        _ => assert_eq!(steps, 1),
                    }
                    assert!(ruling.tell.iter().all(|(told, _)| told != from), "whoever asks knows");
                    if matches!(out.action, Action::Preempt { .. } | Action::Clear) {
                        for lost in state.registrations.keys().filter(|n| !new.registrations.contains_key(*n))
                        {
                            assert!(
                                lost == from || ruling.tell.iter().any(|(told, _)| told == lost),
                                "{out:?}"
                            );
                        }
                    }
                    if let Action::Preempt { abort: true, .. } = out.action {
                        assert!(ruling.abort.iter().all(|n| !new.registrations.contains_key(n) && n != from));
                    }
                    state = new;
                }
            }
        }
    }
    assert!(counts.iter().all(|count| *count > 500), "every kind of ruling happens: {counts:?}");
}

/// As on a node that gets another number: what was registered through its ports counts as before.
#[test]
fn registrations_follow_the_numbers_of_their_ports() {
    let number = |port: RelativePort| RelativePort(0x0300 | (port.0 & 0xff));
    let mut rig = Rig::new();
    assert_eq!(rig.out(A, REGISTER, 0, 0, 7), GOOD);
    assert_eq!(rig.out(A2, REGISTER, 0, 0, 8), GOOD);
    assert_eq!(rig.out(A, RESERVE, 1, 7, 0), GOOD);
    let mut config = config();
    for port in config.port_groups.iter_mut().flat_map(|group| &mut group.ports) {
        port.relative = number(port.relative);
    }
    rig.unit.renumber(number, true);
    rig.unit.reconfigure(config);
    for id in [A, B, A2] {
        assert_eq!(rig.unit.take_attention(id), Some(UnitAttention::InquiryChanged));
        assert_eq!(rig.unit.take_attention(id), None);
    }
    let registered: Vec<(u16, u64)> =
        rig.unit.state().reservations.registrations.iter().map(|(nexus, key)| (nexus.port.0, *key)).collect();
    assert_eq!(registered, [(0x0301, 7), (0x0302, 8)]);
    rig.unit.state().reservations.check();
    assert_eq!(rig.out(A, RESERVE, 1, 7, 0), GOOD, "it holds the reservation");
    assert_eq!(rig.out(A2, RESERVE, 1, 8, 0), CONFLICT);
    assert_eq!(rig.out(B, REGISTER, 0, 0, 9), GOOD);
    assert_eq!(rig.out(B, PREEMPT, 1, 9, 7), GOOD);
    assert_eq!(rig.unit.take_attention(A), Some(UnitAttention::RegistrationsPreempted));
    assert_eq!(rig.out(A, RESERVE, 1, 7, 0), CONFLICT, "it is not registered under any other name");
    // Nothing changes for those that have their numbers already.
    for id in [A, B, A2] {
        while rig.unit.take_attention(id).is_some() {}
    }
    rig.unit.renumber(number, true);
    assert_eq!([A, B, A2].map(|id| rig.unit.take_attention(id)), [None; 3]);
}

#[test]
fn of_two_registrations_that_become_one_that_under_the_new_name_counts() {
    let at = |port| ItNexus { port: RelativePort(port), ..nexus(A) };
    let registrations = [(at(1), 7), (at(0x0301), 9)].into();
    let mut reservations = Reservations { registrations, ..Reservations::default() };
    reservations.renumber(|port| RelativePort(0x0300 | (port.0 & 0xff)));
    assert_eq!(reservations.registrations, [(at(0x0301), 9)].into());
    reservations.check();
}
