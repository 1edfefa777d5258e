//! The table of commands, by which commands are dispatched and which REPORT SUPPORTED OPERATION CODES
//! returns.
//!
//! Commands of the medium have their rows in [`commands::OPERATIONS`]. Rows with the same operation code must
//! be adjacent.

use super::inquiry::INQUIRY;
use super::log::LOG_SENSE;
use super::lun::REPORT_LUNS;
use super::mode::{MODE_SELECT_6, MODE_SELECT_10, MODE_SENSE_6, MODE_SENSE_10};
use super::power::{
    PREVENT_ALLOW_MEDIUM_REMOVAL, REQUEST_SENSE, SEND_DIAGNOSTIC, START_STOP_UNIT, TEST_UNIT_READY,
};
use super::report::{
    REPORT_SUPPORTED_OPERATION_CODES, REPORT_SUPPORTED_TASK_MANAGEMENT, REPORT_TARGET_PORT_GROUPS,
};
use super::reservations::{LEGACY, PERSISTENT_RESERVE_IN, PERSISTENT_RESERVE_OUT};
use super::{Cdb, LogicalUnit, Request, Sense, Step, commands};

/// A command.
#[derive(Clone, Copy)]
pub(super) struct Operation {
    /// The standard's name.
    pub(super) name: &'static str,
    /// Its operation code.
    pub(super) opcode: u8,
    /// Its service action, if the operation code is shared.
    pub(super) service_action: Option<u8>,
    /// CDB USAGE DATA (SPC-4, REPORT SUPPORTED OPERATION CODES): the operation code, then a mask of the bits
    /// that are evaluated. It is as long as the CDB.
    ///
    /// The service action is in it as a value, and of the CONTROL byte only NACA. DPO counts as evaluated:
    /// DPOFUA reports that it is accepted, and libiscsi compares the two.
    pub(super) usage: &'static [u8],
    /// How a reservation by another nexus affects it.
    pub(super) access: Access,
    /// What the command does when a unit attention is pending.
    pub(super) attention: OnAttention,
    /// Whether the command needs a started unit; otherwise it is answered NOT READY.
    pub(super) needs_ready: bool,
    /// Through which ports the command is executed.
    pub(super) reach: Reach,
    /// Executes the command. Reservations, attentions and readiness have been checked.
    pub(super) run: Run,
}

/// A command with its own operation code that needs a started unit, and its medium.
pub(super) const fn row(name: &'static str, access: Access, run: Run, usage: &'static [u8]) -> Operation {
    Operation {
        name,
        opcode: usage[0],
        service_action: None,
        usage,
        access,
        attention: OnAttention::Report,
        needs_ready: true,
        reach: Reach::Active,
        run,
    }
}

/// A command that needs the unit, but neither its medium nor that it is started.
pub(super) const fn unready(name: &'static str, access: Access, run: Run, usage: &'static [u8]) -> Operation {
    Operation { needs_ready: false, reach: Reach::Standby, ..row(name, access, run, usage) }
}

/// A command that nothing holds back: no other nexus, no attention, no state of the unit or of its port.
pub(super) const fn always(name: &'static str, run: Run, usage: &'static [u8]) -> Operation {
    Operation { attention: OnAttention::Run, reach: Reach::Any, ..unready(name, Access::Free, run, usage) }
}

/// Executes a command; an error becomes CHECK CONDITION.
pub(super) type Run = fn(&mut LogicalUnit, Request) -> Result<Step, Sense>;

/// Classes of commands by the effect of other nexuses' reservations on them (SPC-4 and SBC-3, the tables of
/// commands that are allowed in the presence of various reservations).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// Never a conflict: INQUIRY, REPORT LUNS, REQUEST SENSE, LOG SENSE.
    Free,
    /// Allowed under persistent reservations, a conflict with a RESERVE(6): TEST UNIT READY, READ CAPACITY.
    Status,
    /// Reads the medium: allowed under write exclusive types.
    Read,
    /// Changes the medium or the unit, or reports on other nexuses: needs the reservation, or a registration
    /// where that suffices.
    Exclusive,
    /// PERSISTENT RESERVE OUT: decided with the newest state.
    PersistentOut,
    /// RESERVE(6), RESERVE(10): decided with the newest state.
    Reserve,
    /// RELEASE(6), RELEASE(10): never a conflict, and no effect unless the nexus is the holder.
    Release,
    /// START STOP UNIT: starting is [`Access::Status`], all else [`Access::Exclusive`].
    StartStop,
    /// PREVENT ALLOW MEDIUM REMOVAL: allowing is [`Access::Free`], preventing [`Access::Exclusive`].
    PreventAllow,
}

/// What a command does when a unit attention is pending for its nexus (SAM-5, Unit attention conditions).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OnAttention {
    /// The command ends with CHECK CONDITION, which reports the attention.
    Report,
    /// The command runs, and the attention stays pending: INQUIRY, REPORT LUNS, and REQUEST SENSE, which
    /// reports it as data.
    Run,
}

/// The asymmetric access states of its port's group in which a command is executed (SPC-4 5.15.2.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// All states: commands that tell which unit it is, how else it can be reached, and why not here.
    Any,
    /// Standby, too: commands that need the unit but not its medium.
    Standby,
    /// Active states only.
    Active,
}

/// All commands, by the module that implements them.
const GROUPS: &[&[Operation]] = &[
    &[TEST_UNIT_READY, REQUEST_SENSE, INQUIRY, MODE_SELECT_6],
    &LEGACY,
    &[
        MODE_SENSE_6,
        START_STOP_UNIT,
        SEND_DIAGNOSTIC,
        PREVENT_ALLOW_MEDIUM_REMOVAL,
        LOG_SENSE,
        MODE_SELECT_10,
        MODE_SENSE_10,
    ],
    &PERSISTENT_RESERVE_IN,
    &PERSISTENT_RESERVE_OUT,
    &[
        REPORT_LUNS,
        REPORT_TARGET_PORT_GROUPS,
        REPORT_SUPPORTED_OPERATION_CODES,
        REPORT_SUPPORTED_TASK_MANAGEMENT,
    ],
    commands::OPERATIONS,
];

const COUNT: usize = {
    let (mut i, mut count) = (0, 0);
    while i < GROUPS.len() {
        count += GROUPS[i].len();
        i += 1;
    }
    count
};

/// All commands.
pub(super) static OPERATIONS: [Operation; COUNT] = {
    let mut all = [TEST_UNIT_READY; COUNT];
    let (mut i, mut at) = (0, 0);
    while i < GROUPS.len() {
        let mut j = 0;
        while j < GROUPS[i].len() {
            all[at] = GROUPS[i][j];
            at += 1;
            j += 1;
        }
        i += 1;
    }
    all
};

/// The first row of each operation code; `NONE` if there is no such command.
static FIRST: [u8; 256] = {
    let mut first = [NONE; 256];
    let mut i = OPERATIONS.len();
    while i > 0 {
        i -= 1;
        first[OPERATIONS[i].opcode as usize] = i as u8;
    }
    first
};

const NONE: u8 = u8::MAX;
const _: () = assert!(OPERATIONS.len() < NONE as usize, "a row's number fits into FIRST");

/// The rows of an operation code; empty if it is not supported.
pub(super) fn with_opcode(opcode: u8) -> &'static [Operation] {
    let first = usize::from(FIRST[usize::from(opcode)]);
    let Some(rest) = OPERATIONS.get(first..) else { return &[] };
    let count = rest.iter().take_while(|operation| operation.opcode == opcode).count();
    &rest[..count]
}

/// Finds the command of a CDB.
pub(super) fn find(cdb: &Cdb) -> Result<&'static Operation, Sense> {
    let rows = with_opcode(cdb.opcode());
    match rows {
        [] => Err(Sense::invalid_opcode()),
        [only] if only.service_action.is_none() => Ok(only),
        _ => rows
            .iter()
            .find(|operation| operation.service_action == Some(cdb.service_action()))
            .ok_or(Sense::invalid_field_in_cdb(1, 4)),
    }
}
