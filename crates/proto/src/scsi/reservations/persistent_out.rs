//! The encoding of PERSISTENT RESERVE OUT (SPC-4). The session's core decodes it, [`super::out`] decides it.

use super::{Kind, transport_id};
use crate::scsi::change::Change;
use crate::scsi::operations::{Access, Operation, unready};
use crate::scsi::sense::code;
use crate::scsi::{Cdb, InitiatorPort, ItNexus, LogicalUnit, RelativePort, Request, Sense, Step, data_out};

const COUNT: usize = 8;

/// The service actions, 00h to 07h.
pub(in crate::scsi) const PERSISTENT_RESERVE_OUT: [Operation; COUNT] = {
    const NAMES: [&str; COUNT] = [
        "PERSISTENT RESERVE OUT, REGISTER",
        "PERSISTENT RESERVE OUT, RESERVE",
        "PERSISTENT RESERVE OUT, RELEASE",
        "PERSISTENT RESERVE OUT, CLEAR",
        "PERSISTENT RESERVE OUT, PREEMPT",
        "PERSISTENT RESERVE OUT, PREEMPT AND ABORT",
        "PERSISTENT RESERVE OUT, REGISTER AND IGNORE EXISTING KEY",
        "PERSISTENT RESERVE OUT, REGISTER AND MOVE",
    ];
    const USAGE: [[u8; 10]; COUNT] = {
        let mut usage = [[0x5f, 0, 0xff, 0, 0, 0xff, 0xff, 0xff, 0xff, 0x04]; COUNT];
        let mut action = 0;
        while action < COUNT {
            usage[action][1] = action as u8;
            action += 1;
        }
        usage
    };
    let mut rows = [unready("", Access::PersistentOut, persistent_reserve_out, &USAGE[0]); COUNT];
    let mut action = 0;
    while action < COUNT {
        rows[action].name = NAMES[action];
        rows[action].service_action = Some(action as u8);
        rows[action].usage = &USAGE[action];
        action += 1;
    }
    rows
};

/// A decoded request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::scsi) struct PersistentOut {
    /// RESERVATION KEY: the key under which the nexus believes to be registered.
    pub(super) key: u64,
    /// SERVICE ACTION RESERVATION KEY.
    pub(super) action_key: u64,
    pub(super) action: Action,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Register(Registration),
    Reserve(Kind),
    Release(Kind),
    Clear,
    Preempt {
        kind: Kind,
        /// PREEMPT AND ABORT.
        abort: bool,
    },
    Move(Move),
}

/// REGISTER AND MOVE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Move {
    /// The nexus that gets the reservation.
    pub(super) to: ItNexus,
    /// UNREG: the nexus gives up its own registration.
    pub(super) unregister: bool,
    /// APTPL.
    pub(super) survives: bool,
}

/// REGISTER, and REGISTER AND IGNORE EXISTING KEY.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Registration {
    /// Whether the current key of the nexus is ignored.
    pub(super) ignore_key: bool,
    /// SPEC_I_PT: these initiator ports are registered, too. `None` if the bit is not set.
    pub(super) also: Option<Vec<InitiatorPort>>,
    /// ALL_TG_PT: register through every port.
    pub(super) all_ports: bool,
    /// APTPL.
    pub(super) survives: bool,
}

/// The length of the parameter list without TransportIDs.
const BASIC_BYTES: usize = 24;

/// The longest accepted list: 16 TransportIDs of the longest names fit. The standard has no limit.
const LIST_BYTES_MAX: usize = 4096;

fn persistent_reserve_out(unit: &mut LogicalUnit, request: Request) -> Result<Step, Sense> {
    let transfer = u64::from(request.cdb.u32(5));
    if !(BASIC_BYTES as u64..=LIST_BYTES_MAX as u64).contains(&transfer) {
        return Err(Sense::parameter_list_length_error());
    }
    let list = match data_out::take(request.data_out.clone(), transfer) {
        Ok(list) => list.to_vec(),
        Err(refused) => return Ok(Step::Done(refused)),
    };
    let out = parse(&request.cdb, &list)?;
    unit.change(&request, Change::PersistentOut(out), transfer)
}

/// Decodes a parameter list of at least [`BASIC_BYTES`].
fn parse(cdb: &Cdb, list: &[u8]) -> Result<PersistentOut, Sense> {
    let action = cdb.service_action();
    let len = list.len();
    let flags = list[20];
    let spec_i_pt = flags & 0x08 != 0;
    // Only REGISTER accepts TransportIDs after the basic list; REGISTER AND MOVE has its own list.
    if spec_i_pt && action != 0 && action != 7 {
        return Err(Sense::invalid_field_in_parameter_list(20, 3));
    }
    if action != 7 && !spec_i_pt && len != BASIC_BYTES {
        return Err(Sense::parameter_list_length_error());
    }
    let parsed = match action {
        0 => Action::Register(Registration {
            ignore_key: false,
            also: if spec_i_pt { Some(transport_ids(list)?) } else { None },
            all_ports: flags & 0x04 != 0,
            survives: flags & 0x01 != 0,
        }),
        6 => Action::Register(Registration {
            ignore_key: true,
            also: None,
            all_ports: flags & 0x04 != 0,
            survives: flags & 0x01 != 0,
        }),
        1 => Action::Reserve(scope_and_type(cdb)?),
        2 => Action::Release(scope_and_type(cdb)?),
        3 => Action::Clear,
        4 => Action::Preempt { kind: scope_and_type(cdb)?, abort: false },
        5 => Action::Preempt { kind: scope_and_type(cdb)?, abort: true },
        7 => {
            // SCOPE and TYPE are ignored: the reservation keeps its own.
            move_to(list)?
        }
        _ => return Err(Sense::invalid_field_in_cdb(1, 4)),
    };
    Ok(PersistentOut { key: u64_at(list, 0), action_key: u64_at(list, 8), action: parsed })
}

/// Decodes SCOPE, which must be the unit, and TYPE.
fn scope_and_type(cdb: &Cdb) -> Result<Kind, Sense> {
    let byte = cdb.u8(2);
    if byte >> 4 != 0 {
        return Err(Sense::invalid_field_in_cdb(2, 7));
    }
    Kind::from_code(byte & 0x0f).ok_or(Sense::invalid_field_in_cdb(2, 3))
}

/// Decodes the additional parameter data of SPEC_I_PT.
fn transport_ids(list: &[u8]) -> Result<Vec<InitiatorPort>, Sense> {
    let Some([a, b, c, d]) = list.get(24..28) else { return Err(Sense::parameter_list_length_error()) };
    let mut rest = &list[28..];
    if u32::from_be_bytes([*a, *b, *c, *d]) as usize != rest.len() {
        return Err(Sense::parameter_list_length_error());
    }
    let mut ports = Vec::new();
    while !rest.is_empty() {
        let at = (list.len() - rest.len()) as u16;
        let (port, len) = transport_id::decode(rest).ok_or(Sense::invalid_field_in_parameter_list(at, 7))?;
        ports.push(port);
        rest = &rest[len..];
    }
    Ok(ports)
}

/// Decodes the list of REGISTER AND MOVE.
fn move_to(list: &[u8]) -> Result<Action, Sense> {
    let len = u32::from_be_bytes([list[20], list[21], list[22], list[23]]) as usize;
    if list.len() - BASIC_BYTES != len {
        return Err(Sense::parameter_list_length_error());
    }
    let invalid = Sense::invalid_field_in_parameter_list(24, 7);
    let (initiator, used) = transport_id::decode(&list[BASIC_BYTES..]).ok_or(invalid)?;
    if used != len {
        return Err(Sense::illegal(code::PARAMETER_LIST_LENGTH_ERROR));
    }
    let port = RelativePort(u16::from_be_bytes([list[18], list[19]]));
    Ok(Action::Move(Move {
        to: ItNexus { initiator, port },
        unregister: list[17] & 0x02 != 0,
        survives: list[17] & 0x01 != 0,
    }))
}

/// Reads eight bytes. The caller has checked the length.
fn u64_at(list: &[u8], at: usize) -> u64 {
    list[at..at + 8].iter().fold(0, |value, byte| value << 8 | u64::from(*byte))
}
