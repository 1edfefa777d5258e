//! What one core knows of one logical unit, and the way of a command through it.
//!
//! Every command passes the same gates, in the order of [`LogicalUnit::start`]: is there such a command
//! ([`operations`](super::operations)), is a unit attention to be told first, does a reservation of another nexus forbid it,
//! is the unit started. Then its row in the table of operations says which function carries it out:
//!
//! ```text
//!  operations.rs       table: name, usage, gates, function
//!    inquiry, mode, report, power, reservations/        commands that need no medium
//!    commands/                                          commands of the medium (SBC-3) and third-party copy
//! ```
//!
//! A function is `fn(&mut LogicalUnit, Request) -> Result<Step, Sense>`. It may read the unit through the getters here:
//! [`LogicalUnit::config`], [`LogicalUnit::state`]; what only `commands/` keeps is in `LogicalUnit::block`. It answers with
//! [`Step::Done`], or asks for blocks or a copy with what [`LogicalUnit::finish`] needs, or for a change of [`LuState`].
//! Sense data leaves in the format that the unit is set to: `start`, `finish` and `decide` see to that, nobody else.

use std::collections::BTreeMap;

use base::Chain;

use super::attention::Attentions;
use super::commands::{self, BlockState, CopySegment, Pending};
use super::operations::{self, OnAttention};
use super::sense::{Sense, SenseFormat, SenseKey, code};
use super::{
    BlockDone, BlockError, BlockOp, Cdb, ChangeRequest, ItNexus, LuConfig, LuState, NexusId, Notice, Outcome,
    Status, UnitAttention,
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

    /// A login whose commands will arrive on this core. It is told of its arrival with its first command: POWER ON
    /// OCCURRED, or I_T NEXUS LOSS OCCURRED if `again` says that this login replaces one of the same names.
    pub fn attach_nexus(&mut self, id: NexusId, name: ItNexus, again: bool) {
        let mut attentions = Attentions::default();
        attentions.add(if again { UnitAttention::NexusLoss } else { UnitAttention::PowerOn });
        self.nexuses.insert(id, Nexus { name, attentions });
    }

    /// The login is over. If the unit's state holds something that ends with it, the change is to be decided.
    #[must_use]
    pub fn detach_nexus(&mut self, id: NexusId) -> Option<ChangeRequest> {
        self.nexuses.remove(&id)?;
        self.block.forget(id);
        None
    }

    /// Another size, name or port. Initiators are told what concerns them.
    pub fn reconfigure(&mut self, config: LuConfig) {
        if (config.blocks, config.block_size) != (self.config.blocks, self.config.block_size) {
            self.attention_to_all(UnitAttention::CapacityChanged);
        }
        if config.identity != self.config.identity {
            self.attention_to_all(UnitAttention::InquiryChanged);
        }
        if config.port_groups != self.config.port_groups {
            self.attention_to_all(UnitAttention::AccessStateChanged);
        }
        self.config = config;
    }

    /// A state that the home core decided, with the notices of that decision; `None` if only the notices count.
    pub fn install(&mut self, state: Option<LuState>, notices: &[Notice]) {
        if let Some(state) = state {
            self.state = state;
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

    /// The gates. The order of attention, conflict and the rest is that of SAM-5 5.3.3.
    fn admit(&mut self, request: &Request) -> Result<operations::Run, Outcome> {
        // A nexus that was detached meanwhile: nobody will read the answer.
        let nexus = self.nexuses.get_mut(&request.nexus).ok_or(Outcome::status(Status::Busy))?;
        let operation = operations::find(&request.cdb);
        let on_attention = operation.as_ref().map_or(OnAttention::Report, |operation| operation.attention);
        if on_attention == OnAttention::Report
            && let Some(attention) = nexus.attentions.take()
        {
            return Err(attention.sense().into());
        }
        let operation = operation?;
        if operation.needs_ready && self.state.stopped {
            let code = code::LOGICAL_UNIT_NOT_READY_INITIALIZING_COMMAND_REQUIRED;
            return Err(Sense::new(SenseKey::NotReady, code).into());
        }
        Ok(operation.run)
    }

    /// The answer to a command whose step was carried out.
    pub fn finish(&mut self, pending: Pending, result: Result<BlockDone, BlockError>) -> Outcome {
        let mut outcome = commands::finish(self, pending, result);
        self.put_format(&mut outcome);
        outcome
    }

    /// Gives sense data the format that D_SENSE asks for.
    pub(super) fn put_format(&self, outcome: &mut Outcome) {
        if let Some(sense) = &mut outcome.sense {
            sense.format = SenseFormat::Fixed;
        }
    }

    /// The names of a nexus, for a change that it asks for.
    pub(super) fn nexus_name(&self, id: NexusId) -> Option<&ItNexus> {
        self.nexuses.get(&id).map(|nexus| &nexus.name)
    }
}
