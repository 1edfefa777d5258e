//! One core's view of a logical unit, and the path of a command through it.
//!
//! Every command passes the same gates, in the order of [`LogicalUnit::start`]: whether the command exists
//! ([`operations`](super::operations)), whether a unit attention must be reported first, whether the access
//! state of the port's group admits it, whether another nexus' reservation forbids it, whether the unit is
//! started. Then its row in the table of operations determines the function that executes it:
//!
//! ```text
//!  operations.rs       table: name, usage, gates, function
//!    inquiry, log, lun, mode/, report, power,  commands that need no medium
//!    reservations/
//!    commands/                                 commands of the medium (SBC-3) and third-party copy
//! ```
//!
//! A function is `fn(&mut LogicalUnit, Request) -> Result<Step, Sense>`. It may read the unit through the
//! getters here: [`LogicalUnit::config`], [`LogicalUnit::state`]. State that only `commands/` uses is in
//! `LogicalUnit::block`. The function returns [`Step::Done`]; or it requests an operation on blocks or a
//! copy, with what [`LogicalUnit::finish`] or [`LogicalUnit::finish_copy`] needs; or a change of [`LuState`].
//! Only `start`, `decide` and these two set the unit's format of sense data.

use std::collections::BTreeMap;

use base::Chain;

use super::attention::Attentions;
use super::change::Change;
use super::commands::{self, BlockState, CopyError, CopySegment, Pending, PendingCopy};
use super::operations::{self, Access, OnAttention, Operation, Reach};
use super::power;
use super::reservations::conflict::ReservationRights;
use super::sense::{Sense, SenseFormat, SenseKey, code};
use super::{
    AccessState, Cdb, ChangeRequest, ItNexus, LuConfig, LuState, NexusId, Notice, Outcome, Refusal,
    RelativePort, ReportLuns, Status, UnitAttention,
};
use crate::block::{BlockDone, BlockError, BlockOp};

/// A command as it arrived.
#[derive(Clone, Debug)]
pub struct Request {
    /// The nexus that sent the command; it must have been attached.
    pub nexus: NexusId,
    /// The command.
    pub cdb: Cdb,
    /// The data that arrived with the command.
    pub data_out: Chain,
}

/// The next step in executing a command.
#[derive(Debug)]
pub enum Step {
    /// The response.
    Done(Outcome),
    /// Execute the operation, then call `finish`.
    Block(Pending, BlockOp),
    /// Have core 0 decide the change, then send the outcome of the decision.
    Change(ChangeRequest),
    /// Copy the segments in order (EXTENDED COPY), then call `finish_copy`.
    Copy(PendingCopy, Vec<CopySegment>),
    /// Notify every unit of the nexus ([`LogicalUnit::luns_reported`]), and send the response of
    /// [`ReportLuns::answer`].
    ReportLuns(ReportLuns),
}

/// One core's view of a logical unit.
pub struct LogicalUnit {
    config: LuConfig,
    /// As of the last [`LogicalUnit::install`]; core 0 has the newest state.
    state: LuState,
    /// The nexuses whose commands arrive on this core.
    nexuses: BTreeMap<NexusId, Nexus>,
    /// State of the block commands.
    pub(super) block: BlockState,
}

/// A nexus (login) as this unit sees it.
struct Nexus {
    /// Its names.
    name: ItNexus,
    /// The unit attentions that it has yet to receive.
    attentions: Attentions,
    /// Its rights under the reservations of the installed state.
    standing: ReservationRights,
    /// The access state of its port's group in the configuration.
    access: AccessState,
}

impl LogicalUnit {
    /// A unit without nexuses.
    pub fn new(config: LuConfig, state: LuState) -> LogicalUnit {
        LogicalUnit { config, state, nexuses: BTreeMap::new(), block: BlockState::default() }
    }

    /// The unit's properties.
    pub fn config(&self) -> &LuConfig {
        &self.config
    }

    /// The state that all cores share, as last installed on this core.
    pub fn state(&self) -> &LuState {
        &self.state
    }

    /// Adds a nexus whose commands will arrive on this core.
    ///
    /// Its first command receives a unit attention: POWER ON OCCURRED, or I_T NEXUS LOSS OCCURRED if the
    /// login replaces one with the same names (`again`).
    pub fn attach_nexus(&mut self, id: NexusId, name: ItNexus, again: bool) {
        let mut attentions = Attentions::default();
        attentions.add(if again { UnitAttention::NexusLoss } else { UnitAttention::PowerOn });
        let standing = self.state.reservations.standing(&name);
        let access = self.config.access_state(name.port);
        self.nexuses.insert(id, Nexus { name, attentions, standing, access });
    }

    /// Removes a nexus whose login has ended.
    ///
    /// Returns the change to decide if the unit's state contains something that ends with it.
    #[must_use]
    pub fn detach_nexus(&mut self, id: NexusId) -> Option<ChangeRequest> {
        let from = self.nexuses.remove(&id)?.name;
        self.block.forget(id);
        let holds = self.state.reservations.legacy.as_ref() == Some(&from);
        holds.then_some(ChangeRequest { from, change: Change::NexusLost, transfer: 0 })
    }

    /// Sets a new size, name or port. Initiators receive the unit attentions that concern them.
    pub fn reconfigure(&mut self, config: LuConfig) {
        if (config.blocks, config.block_size) != (self.config.blocks, self.config.block_size) {
            self.attention_to_all(UnitAttention::CapacityChanged);
        }
        if config.identity != self.config.identity {
            self.attention_to_all(UnitAttention::InquiryChanged);
        }
        for nexus in self.nexuses.values_mut() {
            if config.changes_access(&self.config, nexus.name.port) {
                nexus.attentions.add(UnitAttention::AccessStateChanged);
            }
            nexus.access = config.access_state(nexus.name.port);
        }
        self.config = config;
    }

    /// Installs a state that core 0 decided, with the notices of that decision; `None` if there are only
    /// notices.
    pub fn install(&mut self, state: Option<LuState>, notices: &[Notice]) {
        if let Some(state) = state {
            self.state = state;
            for nexus in self.nexuses.values_mut() {
                nexus.standing = self.state.reservations.standing(&nexus.name);
            }
        }
        for notice in notices {
            for nexus in self.nexuses.values_mut().filter(|nexus| notice.to.includes(&nexus.name)) {
                nexus.attentions.add(notice.attention);
            }
        }
    }

    /// Gives the target ports of its nexuses other numbers, and with `all` those in its state, too.
    ///
    /// The configuration must get them next. Initiators learn that what INQUIRY reports has changed.
    pub fn renumber(&mut self, number: impl Fn(RelativePort) -> RelativePort, all: bool) {
        if all {
            self.state.reservations.renumber(&number);
        }
        for nexus in self.nexuses.values_mut() {
            let port = number(nexus.name.port);
            if port != nexus.name.port {
                nexus.name.port = port;
                nexus.attentions.add(UnitAttention::InquiryChanged);
            }
            nexus.standing = self.state.reservations.standing(&nexus.name);
        }
    }

    /// Adds a unit attention for every nexus.
    pub fn attention_to_all(&mut self, attention: UnitAttention) {
        self.nexuses.values_mut().for_each(|nexus| nexus.attentions.add(attention));
    }

    /// Adds a unit attention for one nexus.
    pub fn attention(&mut self, id: NexusId, attention: UnitAttention) {
        if let Some(nexus) = self.nexuses.get_mut(&id) {
            nexus.attentions.add(attention);
        }
    }

    /// Records that the nexus has read the list of units, from this unit or another one (SPC-4, REPORT LUNS).
    pub fn luns_reported(&mut self, id: NexusId) {
        if let Some(nexus) = self.nexuses.get_mut(&id) {
            nexus.attentions.forget(UnitAttention::ReportedLunsChanged);
        }
    }

    /// Starts a command. This is where unit attentions and reservations are checked.
    pub fn start(&mut self, request: Request) -> Step {
        let mut step = match self.admit(&request) {
            Ok(run) => run(self, request).unwrap_or_else(|sense| Step::Done(Outcome::check(sense))),
            Err(outcome) => Step::Done(outcome),
        };
        if let Step::Done(outcome) = &mut step {
            self.put_format(outcome);
        }
        step
    }

    /// Applies the gates (SAM-5, status precedence).
    ///
    /// A reset is reported before a reservation conflict, all other attentions after it. If the port's access
    /// state does not admit the command, no conflict is reported: a node that is cut off knows the
    /// reservations of the others only as they were.
    fn admit(&mut self, request: &Request) -> Result<operations::Run, Outcome> {
        // The nexus was detached meanwhile: nobody will read the response.
        let nexus = self.nexuses.get_mut(&request.nexus).ok_or(Outcome::status(Status::Busy))?;
        let operation = operations::find(&request.cdb);
        let reports = operation.as_ref().map_or(true, |operation| operation.attention == OnAttention::Report);
        if reports && let Some(reset) = nexus.attentions.take_reset() {
            return Err(reset.sense().into());
        }
        let admitted = operation.as_ref().map_or(Ok(()), |operation| nexus.access.admits(operation.reach));
        if admitted.is_ok()
            && let Ok(operation) = operation
            && !nexus.standing.permits(operation.access, &request.cdb)
        {
            return Err(Outcome::status(Status::ReservationConflict));
        }
        if reports && let Some(attention) = nexus.attentions.take() {
            return Err(attention.sense().into());
        }
        let operation = operation?;
        if !commands::offered(operation, &self.config) {
            return Err(Sense::invalid_opcode().into());
        }
        check_control(&request.cdb, operation)?;
        admitted?;
        if operation.needs_ready {
            check_started(self.state.stopped)?;
        }
        Ok(operation.run)
    }

    /// The response to a command whose operation has been executed.
    pub fn finish(&mut self, pending: Pending, result: Result<BlockDone, BlockError>) -> Outcome {
        let mut outcome = commands::finish(pending, result);
        self.put_format(&mut outcome);
        outcome
    }

    /// The response to a command whose copy has ended.
    pub fn finish_copy(&mut self, pending: PendingCopy, result: Result<(), CopyError>) -> Outcome {
        let mut outcome = commands::finish_copy(self, pending, result);
        self.put_format(&mut outcome);
        outcome
    }

    /// The response to a command whose change is in progress and takes longer than the initiator should wait.
    pub fn in_progress(&self) -> Outcome {
        self.check(SenseKey::NotReady, code::LOGICAL_UNIT_NOT_READY_OPERATION_IN_PROGRESS)
    }

    /// The response to a command whose change failed, and would fail again.
    pub fn failed(&self) -> Outcome {
        self.check(SenseKey::HardwareError, code::INTERNAL_TARGET_FAILURE)
    }

    fn check(&self, key: SenseKey, code: u16) -> Outcome {
        let mut outcome = Outcome::check(Sense::new(key, code));
        self.put_format(&mut outcome);
        outcome
    }

    /// Whether a copy on behalf of `nexus` may read here, like a READ by it.
    ///
    /// # Errors
    /// The response that such a READ would get.
    pub fn may_copy_from(&self, nexus: &ItNexus) -> Result<(), Refusal> {
        self.may_copy(nexus, Access::Read)
    }

    /// Whether a copy on behalf of `nexus` may write here, like a WRITE by it.
    ///
    /// # Errors
    /// The response that such a WRITE would get.
    pub fn may_copy_to(&self, nexus: &ItNexus) -> Result<(), Refusal> {
        self.may_copy(nexus, Access::Exclusive)?;
        Ok(commands::writable(self)?)
    }

    /// Whether a write of this nexus that was admitted before, and has not begun, may still begin.
    ///
    /// A reservation may have fenced its initiator off meanwhile: PREEMPT aborts nothing. The access state of
    /// the port is not looked at: if the medium cannot be reached, the write itself finds that, and says so.
    pub fn may_still_write(&self, id: NexusId) -> bool {
        let is_permitted = |nexus: &Nexus| nexus.standing.permits(Access::Exclusive, &Cdb([0; 16]));
        self.nexuses.get(&id).is_some_and(is_permitted) && commands::writable(self).is_ok()
    }

    fn may_copy(&self, nexus: &ItNexus, access: Access) -> Result<(), Refusal> {
        self.config.access_state(nexus.port).admits(Reach::Active)?;
        if !self.state.reservations.standing(nexus).permits(access, &Cdb([0; 16])) {
            return Err(Refusal::Conflict);
        }
        Ok(check_started(self.state.stopped)?)
    }

    /// Sets the format of sense data according to D_SENSE.
    pub(super) fn put_format(&self, outcome: &mut Outcome) {
        if let Some(sense) = &mut outcome.sense {
            let descriptor = self.state.mode.descriptor_sense;
            sense.format = if descriptor { SenseFormat::Descriptor } else { SenseFormat::Fixed };
        }
    }

    /// The names of a nexus, for a change that it requests.
    pub(super) fn nexus_name(&self, id: NexusId) -> Option<&ItNexus> {
        self.nexuses.get(&id).map(|nexus| &nexus.name)
    }

    /// Why the medium cannot be reached through the port of a nexus; `None` if it can.
    pub(super) fn inaccessible(&self, id: NexusId) -> Option<Sense> {
        self.nexuses.get(&id)?.access.admits(Reach::Active).err()
    }

    /// Takes the next attention, to report it in another way than by CHECK CONDITION.
    pub(super) fn take_attention(&mut self, id: NexusId) -> Option<UnitAttention> {
        self.nexuses.get_mut(&id)?.attentions.take()
    }
}

/// Checks that the unit has not been stopped (SBC-3, START STOP UNIT).
fn check_started(stopped: bool) -> Result<(), Sense> {
    if stopped { Err(power::STOPPED) } else { Ok(()) }
}

/// Refuses NACA in the CONTROL byte: it requests auto contingent allegiance, which is not supported (NORMACA
/// is zero, SAM-5).
fn check_control(cdb: &Cdb, operation: &Operation) -> Result<(), Sense> {
    let at = operation.usage.len() - 1;
    if at < cdb.0.len() && cdb.bit(at, 2) {
        return Err(Sense::invalid_field_in_cdb(at as u16, 2));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
