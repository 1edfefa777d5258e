//! What one core knows of one logical unit, and the way of a command through it.
//!
//! Every command passes the same gates, in the order of [`LogicalUnit::start`]: is there such a command
//! ([`operations`](super::operations)), is a unit attention to be told first, does the access state of the
//! port's group admit it, does a reservation of another nexus forbid it, is the unit started. Then its row in
//! the table of operations says which function carries it out:
//!
//! ```text
//!  operations.rs       table: name, usage, gates, function
//!    inquiry, lun, mode/, report, power, reservations/  commands that need no medium
//!    commands/                                          commands of the medium (SBC-3) and third-party copy
//! ```
//!
//! A function is `fn(&mut LogicalUnit, Request) -> Result<Step, Sense>`. It may read the unit through the
//! getters here: [`LogicalUnit::config`], [`LogicalUnit::state`]; what only `commands/` keeps is in
//! `LogicalUnit::block`. It answers with [`Step::Done`], or asks for blocks or a copy with what
//! [`LogicalUnit::finish`] needs, or for a change of [`LuState`]. Sense data leaves in the format that the
//! unit is set to: `start`, `finish` and `decide` see to that, nobody else.

use std::collections::BTreeMap;

use base::Chain;

use super::attention::Attentions;
use super::change::Change;
use super::commands::{self, BlockState, CopySegment, Pending};
use super::operations::{self, Access, OnAttention, Operation, Reach};
use super::power;
use super::reservations::conflict::Standing;
use super::sense::{Sense, SenseFormat, SenseKey, code};
use super::{
    AccessState, BlockDone, BlockError, BlockOp, Cdb, ChangeRequest, ItNexus, LuConfig, LuState, NexusId,
    Notice, Outcome, Refusal, ReportLuns, Status, UnitAttention,
};

/// One command as it arrived.
#[derive(Clone, Debug)]
pub struct Request {
    /// Who asks: a nexus that was attached.
    pub nexus: NexusId,
    /// The command.
    pub cdb: Cdb,
    /// The data that came with it.
    pub data_out: Chain,
}

/// What is to be done for a command.
#[derive(Debug)]
pub enum Step {
    /// The answer.
    Done(Outcome),
    /// Carry out the operation, then `finish`.
    Block(Pending, BlockOp),
    /// Have the home core decide the change, then answer with what it gave.
    Change(ChangeRequest),
    /// Copy the segments in order (EXTENDED COPY), then `finish`.
    Copy(Pending, Vec<CopySegment>),
    /// Tell every unit of the nexus ([`LogicalUnit::luns_reported`]), and answer with [`ReportLuns::answer`].
    ReportLuns(ReportLuns),
}

/// What one core knows of one logical unit.
pub struct LogicalUnit {
    config: LuConfig,
    /// As of the last [`LogicalUnit::install`]; the home core's is the newest.
    state: LuState,
    /// The nexuses whose commands arrive on this core.
    nexuses: BTreeMap<NexusId, Nexus>,
    /// What the block commands keep.
    pub(super) block: BlockState,
}

/// One login, as this unit sees it.
struct Nexus {
    /// Its names.
    name: ItNexus,
    /// What it has not been told.
    attentions: Attentions,
    /// How it stands to the reservations of the installed state.
    standing: Standing,
    /// The state of its port's group in the configuration.
    access: AccessState,
}

impl LogicalUnit {
    /// A unit with no nexus yet.
    pub fn new(config: LuConfig, state: LuState) -> LogicalUnit {
        LogicalUnit { config, state, nexuses: BTreeMap::new(), block: BlockState::default() }
    }

    /// What it is.
    pub fn config(&self) -> &LuConfig {
        &self.config
    }

    /// What all cores agree on, as far as this one has heard.
    pub fn state(&self) -> &LuState {
        &self.state
    }

    /// A login whose commands will arrive on this core. It is told of its arrival with its first command:
    /// POWER ON OCCURRED, or I_T NEXUS LOSS OCCURRED if `again` says that this login replaces one of the same
    /// names.
    pub fn attach_nexus(&mut self, id: NexusId, name: ItNexus, again: bool) {
        let mut attentions = Attentions::default();
        attentions.add(if again { UnitAttention::NexusLoss } else { UnitAttention::PowerOn });
        let standing = self.state.reservations.standing(&name);
        let access = self.config.access_state(name.port);
        self.nexuses.insert(id, Nexus { name, attentions, standing, access });
    }

    /// The login is over. If the unit's state holds something that ends with it, the change is to be decided.
    #[must_use]
    pub fn detach_nexus(&mut self, id: NexusId) -> Option<ChangeRequest> {
        let from = self.nexuses.remove(&id)?.name;
        self.block.forget(id);
        let holds = self.state.reservations.legacy.as_ref() == Some(&from);
        holds.then_some(ChangeRequest { from, change: Change::NexusLost, transfer: 0 })
    }

    /// Another size, name or port. Initiators are told what concerns them.
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

    /// A state that the home core decided, with the notices of that decision; `None` if only the notices
    /// count.
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

    /// Something happened that every nexus must hear of.
    pub fn attention_to_all(&mut self, attention: UnitAttention) {
        self.nexuses.values_mut().for_each(|nexus| nexus.attentions.add(attention));
    }

    /// Something happened that one nexus must hear of.
    pub fn attention(&mut self, id: NexusId, attention: UnitAttention) {
        if let Some(nexus) = self.nexuses.get_mut(&id) {
            nexus.attentions.add(attention);
        }
    }

    /// The nexus has read which units there are, of this unit or of another one (SPC-4, REPORT LUNS).
    pub fn luns_reported(&mut self, id: NexusId) {
        if let Some(nexus) = self.nexuses.get_mut(&id) {
            nexus.attentions.forget(UnitAttention::ReportedLunsChanged);
        }
    }

    /// Takes in one command. Unit attentions and reservations are checked here.
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

    /// The gates (SAM-5, Status precedence): news of a reset comes before a reservation conflict, all other
    /// news after it. Through a port in a state that does not admit the command there is no conflict to tell
    /// of: a node that is out of reach of the others knows their reservations as they were.
    fn admit(&mut self, request: &Request) -> Result<operations::Run, Outcome> {
        // A nexus that was detached meanwhile: nobody will read the answer.
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

    /// The answer to a command whose step was carried out.
    pub fn finish(&mut self, pending: Pending, result: Result<BlockDone, BlockError>) -> Outcome {
        let mut outcome = commands::finish(self, pending, result);
        self.put_format(&mut outcome);
        outcome
    }

    /// The answer to a command whose change is under way and takes longer than the initiator should wait for
    /// it.
    pub fn in_progress(&self) -> Outcome {
        self.check(SenseKey::NotReady, code::LOGICAL_UNIT_NOT_READY_OPERATION_IN_PROGRESS)
    }

    /// The answer to a command whose change could not be carried out, and will not be if it is asked for
    /// again.
    pub fn failed(&self) -> Outcome {
        self.check(SenseKey::HardwareError, code::INTERNAL_TARGET_FAILURE)
    }

    fn check(&self, key: SenseKey, code: u16) -> Outcome {
        let mut outcome = Outcome::check(Sense::new(key, code));
        self.put_format(&mut outcome);
        outcome
    }

    /// Whether a copy may read here on behalf of `nexus`: as a READ from it.
    ///
    /// # Errors
    /// What that would be answered.
    pub fn may_copy_from(&self, nexus: &ItNexus) -> Result<(), Refusal> {
        self.may_copy(nexus, Access::Read)
    }

    /// Whether a copy may write here on behalf of `nexus`: as a WRITE from it.
    ///
    /// # Errors
    /// What that would be answered.
    pub fn may_copy_to(&self, nexus: &ItNexus) -> Result<(), Refusal> {
        self.may_copy(nexus, Access::Exclusive)?;
        Ok(commands::writable(self)?)
    }

    fn may_copy(&self, nexus: &ItNexus, access: Access) -> Result<(), Refusal> {
        self.config.access_state(nexus.port).admits(Reach::Active)?;
        if !self.state.reservations.standing(nexus).permits(access, &Cdb([0; 16])) {
            return Err(Refusal::Conflict);
        }
        Ok(check_started(self.state.stopped)?)
    }

    /// Gives sense data the format that D_SENSE asks for.
    pub(super) fn put_format(&self, outcome: &mut Outcome) {
        if let Some(sense) = &mut outcome.sense {
            let descriptor = self.state.mode.descriptor_sense;
            sense.format = if descriptor { SenseFormat::Descriptor } else { SenseFormat::Fixed };
        }
    }

    /// The names of a nexus, for a change that it asks for.
    pub(super) fn nexus_name(&self, id: NexusId) -> Option<&ItNexus> {
        self.nexuses.get(&id).map(|nexus| &nexus.name)
    }

    /// Why the medium cannot be reached through the port of a nexus, if so.
    pub(super) fn inaccessible(&self, id: NexusId) -> Option<Sense> {
        self.nexuses.get(&id)?.access.admits(Reach::Active).err()
    }

    /// Tells the next attention in another way than by CHECK CONDITION.
    pub(super) fn take_attention(&mut self, id: NexusId) -> Option<UnitAttention> {
        self.nexuses.get_mut(&id)?.attentions.take()
    }
}

/// The unit was not stopped (SBC-3, START STOP UNIT).
fn check_started(stopped: bool) -> Result<(), Sense> {
    if stopped { Err(power::STOPPED) } else { Ok(()) }
}

/// NACA in the CONTROL byte asks for auto contingent allegiance, which there is none of (NORMACA is zero,
/// SAM-5).
fn check_control(cdb: &Cdb, operation: &Operation) -> Result<(), Sense> {
    let at = operation.usage.len() - 1;
    if at < cdb.0.len() && cdb.bit(at, 2) {
        return Err(Sense::invalid_field_in_cdb(at as u16, 2));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
