//! Whether the unit is ready, and why not: TEST UNIT READY, REQUEST SENSE, START STOP UNIT, SEND DIAGNOSTIC,
//! PREVENT ALLOW MEDIUM REMOVAL.
//!
//! Each time, the volume is asked whether its disk accepts writes. Otherwise TEST UNIT READY could report a
//! path as good although writes on it fail as if it were bad, and initiators would fail over and back
//! endlessly.

use super::change::Change;
use super::operations::{Access, Operation, Reach, always, row, unready};
use super::sense::{Sense, SenseFormat, SenseKey, code};
use super::{LogicalUnit, Outcome, Request, Step, commands};

pub(super) const TEST_UNIT_READY: Operation =
    row("TEST UNIT READY", Access::Status, |_, _| Ok(commands::test_ready()), &[0x00, 0, 0, 0, 0, 0x04]);

pub(super) const REQUEST_SENSE: Operation =
    always("REQUEST SENSE", request_sense, &[0x03, 0x01, 0, 0, 0xff, 0x04]);

pub(super) const START_STOP_UNIT: Operation = Operation {
    reach: Reach::Active,
    ..unready("START STOP UNIT", Access::StartStop, start_stop_unit, &[0x1b, 0, 0, 0, 0xf7, 0x04])
};

pub(super) const SEND_DIAGNOSTIC: Operation = Operation {
    reach: Reach::Standby,
    ..row("SEND DIAGNOSTIC", Access::Exclusive, send_diagnostic, &[0x1d, 0xe0, 0, 0xff, 0xff, 0x04])
};

pub(super) const PREVENT_ALLOW_MEDIUM_REMOVAL: Operation = Operation {
    reach: Reach::Active,
    ..unready(
        "PREVENT ALLOW MEDIUM REMOVAL",
        Access::PreventAllow,
        prevent_allow,
        &[0x1e, 0, 0, 0, 0x03, 0x04],
    )
};

/// The sense data of a unit that has been stopped.
pub(super) const STOPPED: Sense =
    Sense::new(SenseKey::NotReady, code::LOGICAL_UNIT_NOT_READY_INITIALIZING_COMMAND_REQUIRED);

/// SPC-4 6.39: reports a pending attention as data, or else why the unit is not ready.
fn request_sense(unit: &mut LogicalUnit, request: Request) -> Result<Step, Sense> {
    let format = if request.cdb.bit(1, 0) { SenseFormat::Descriptor } else { SenseFormat::Fixed };
    let allocation = usize::from(request.cdb.u8(4));
    let sense = match (unit.take_attention(request.nexus), unit.inaccessible(request.nexus)) {
        (Some(attention), _) => attention.sense(),
        (None, Some(inaccessible)) => inaccessible,
        (None, None) if unit.state().stopped => STOPPED,
        (None, None) => return Ok(commands::tell_readiness(format, allocation)),
    };
    let bytes = Sense { format, ..sense }.encode();
    Ok(Step::Done(Outcome::parameters(&bytes, allocation)))
}

/// SBC-3 5.25. There are no power conditions, and no medium to eject.
fn start_stop_unit(unit: &mut LogicalUnit, request: Request) -> Result<Step, Sense> {
    let cdb = &request.cdb;
    if cdb.u8(4) >> 4 != 0 {
        return Err(Sense::invalid_field_in_cdb(4, 7));
    }
    if cdb.bit(4, 1) {
        return Err(Sense::invalid_field_in_cdb(4, 1));
    }
    let stop = !cdb.bit(4, 0);
    unit.change(&request, Change::Power { stop, flush: stop && !cdb.bit(4, 2) }, 0)
}

/// SPC-4 6.42: the default self-test succeeds if this code runs.
fn send_diagnostic(_: &mut LogicalUnit, request: Request) -> Result<Step, Sense> {
    let cdb = &request.cdb;
    if cdb.u8(1) >> 5 != 0 {
        return Err(Sense::invalid_field_in_cdb(1, 7));
    }
    if cdb.u16(3) != 0 {
        return Err(Sense::invalid_field_in_cdb(3, 7));
    }
    Ok(Step::Done(Outcome::good()))
}

/// SBC-3 5.11: the medium cannot be removed anyway.
fn prevent_allow(_: &mut LogicalUnit, request: Request) -> Result<Step, Sense> {
    if request.cdb.bit(4, 1) {
        return Err(Sense::invalid_field_in_cdb(4, 1)); // obsolete values
    }
    Ok(Step::Done(Outcome::good()))
}
