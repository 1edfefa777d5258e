//! MAINTENANCE IN: what the unit supports and how it can be reached (SPC-4).

use super::operations::{self, Access, Operation, Reach, unready};
use super::{LogicalUnit, Outcome, PortGroup, Request, Sense, Step, commands};

pub(super) const REPORT_TARGET_PORT_GROUPS: Operation = Operation {
    service_action: Some(0x0a),
    reach: Reach::Any,
    ..unready(
        "REPORT TARGET PORT GROUPS",
        Access::Status,
        report_target_port_groups,
        &[0xa3, 0xea, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0x04],
    )
};

pub(super) const REPORT_SUPPORTED_OPERATION_CODES: Operation = Operation {
    service_action: Some(0x0c),
    ..unready(
        "REPORT SUPPORTED OPERATION CODES",
        Access::Exclusive,
        report_supported_operation_codes,
        &[0xa3, 0x0c, 0x87, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0x04],
    )
};

pub(super) const REPORT_SUPPORTED_TASK_MANAGEMENT: Operation = Operation {
    service_action: Some(0x0d),
    ..unready(
        "REPORT SUPPORTED TASK MANAGEMENT FUNCTIONS",
        Access::Exclusive,
        report_supported_task_management,
        &[0xa3, 0x0d, 0x80, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0x04],
    )
};

fn parameters(request: &Request, bytes: &[u8]) -> Result<Step, Sense> {
    Ok(Step::Done(Outcome::parameters(bytes, request.cdb.u32(6) as usize)))
}

/// SPC-4, REPORT TARGET PORT GROUPS, with both parameter data formats.
fn report_target_port_groups(unit: &mut LogicalUnit, request: Request) -> Result<Step, Sense> {
    let groups = &unit.config().port_groups;
    let descriptors: Vec<u8> = groups.iter().flat_map(group_descriptor).collect();
    let extended: &[u8] = match request.cdb.u8(1) >> 5 {
        0 => &[],
        // EXTENDED HEADER. No implicit transition takes longer than a command.
        1 => &[0x10, 0, 0, 0],
        _ => return Err(Sense::invalid_field_in_cdb(1, 7)),
    };
    let mut bytes = ((extended.len() + descriptors.len()) as u32).to_be_bytes().to_vec();
    bytes.extend_from_slice(extended);
    bytes.extend_from_slice(&descriptors);
    parameters(&request, &bytes)
}

/// The states that a group can have: transitioning, offline, unavailable, standby, active/non-optimized and
/// optimized.
const ACCESS_STATES: u8 = 0xcf;

fn group_descriptor(group: &PortGroup) -> Vec<u8> {
    let [high, low] = group.id.to_be_bytes();
    let ports = &group.ports[..group.ports.len().min(usize::from(u8::MAX))];
    let state = u8::from(group.preferred) << 7 | group.state as u8;
    let mut bytes = vec![state, ACCESS_STATES, high, low, 0, 0, 0, ports.len() as u8];
    for port in ports {
        let [high, low] = port.relative.0.to_be_bytes();
        bytes.extend_from_slice(&[0, 0, high, low]);
    }
    bytes
}

/// SPC-4, REPORT SUPPORTED OPERATION CODES.
fn report_supported_operation_codes(unit: &mut LogicalUnit, request: Request) -> Result<Step, Sense> {
    let cdb = &request.cdb;
    let timeouts = cdb.bit(2, 7);
    let (opcode, action) = (cdb.u8(3), cdb.u16(4));
    let config = unit.config();
    let offered = |row: &&Operation| commands::offered(row, config);
    let rows = operations::with_opcode(opcode);
    let has_actions = rows.iter().any(|row| row.service_action.is_some());
    let by_action = || rows.iter().find(|row| row.service_action.map(u16::from) == Some(action));
    let one = match cdb.u8(2) & 0x07 {
        0 => {
            let rows = operations::OPERATIONS.iter().filter(offered);
            return parameters(&request, &all_commands(rows, timeouts));
        }
        1 if has_actions => return Err(Sense::invalid_field_in_cdb(2, 2)),
        1 => rows.first(),
        2 if !rows.is_empty() && !has_actions => return Err(Sense::invalid_field_in_cdb(2, 2)),
        2 => by_action(),
        3 if has_actions => by_action(),
        3 => rows.first().filter(|_| action == 0),
        _ => return Err(Sense::invalid_field_in_cdb(2, 2)),
    };
    parameters(&request, &one_command(one.filter(offered), timeouts))
}

/// COMMAND TIMEOUTS DESCRIPTOR (SPC-4, command timeouts descriptor): no times are reported.
const NO_TIMEOUTS: [u8; 12] = [0x00, 0x0a, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

fn all_commands<'a>(rows: impl Iterator<Item = &'a Operation>, timeouts: bool) -> Vec<u8> {
    let mut descriptors = Vec::new();
    for row in rows {
        let action = u16::from(row.service_action.unwrap_or(0)).to_be_bytes();
        let flags = u8::from(timeouts) << 1 | u8::from(row.service_action.is_some());
        let length = (row.usage.len() as u16).to_be_bytes();
        descriptors.extend_from_slice(&[row.opcode, 0, action[0], action[1], 0, flags, length[0], length[1]]);
        if timeouts {
            descriptors.extend_from_slice(&NO_TIMEOUTS);
        }
    }
    let mut bytes = (descriptors.len() as u32).to_be_bytes().to_vec();
    bytes.extend(descriptors);
    bytes
}

fn one_command(row: Option<&Operation>, timeouts: bool) -> Vec<u8> {
    let Some(row) = row else {
        return vec![0, 0x01, 0, 0]; // SUPPORT: not supported
    };
    let [high, low] = (row.usage.len() as u16).to_be_bytes();
    // SUPPORT: supported as in the standard.
    let mut bytes = vec![0, u8::from(timeouts) << 7 | 0x03, high, low];
    bytes.extend_from_slice(row.usage);
    if timeouts {
        bytes.extend_from_slice(&NO_TIMEOUTS);
    }
    bytes
}

/// Reports ABORT TASK, ABORT TASK SET, CLEAR TASK SET, LOGICAL UNIT RESET and TARGET RESET.
///
/// Unlike elsewhere, an allocation length without room for the first four bytes is an error (SPC-4, REPORT
/// SUPPORTED TASK MANAGEMENT FUNCTIONS).
fn report_supported_task_management(_: &mut LogicalUnit, request: Request) -> Result<Step, Sense> {
    if request.cdb.u32(6) < 4 {
        return Err(Sense::invalid_field_in_cdb(6, 7));
    }
    let mut bytes = vec![0xda, 0, 0, 0];
    if request.cdb.bit(2, 7) {
        bytes[3] = 0x0c; // REPD: twelve more bytes, with no timeouts told
        bytes.resize(16, 0);
    }
    parameters(&request, &bytes)
}
