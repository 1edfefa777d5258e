//! Changes of what all cores agree on: asked for on the core of a session, decided on the unit's home core, installed
//! on every core.

use super::{ItNexus, LogicalUnit, LuState, Outcome, UnitAttention};

/// A change that a command or an event asks for: MODE SELECT, PERSISTENT RESERVE OUT, RESERVE/RELEASE, START STOP UNIT, a
/// reset. Decoded and checked as far as that is possible without knowing the newest state.
#[derive(Clone, Debug)]
pub struct ChangeRequest {
    /// Who asks.
    pub(super) from: ItNexus,
    /// What for.
    pub(super) change: Change,
    /// The bytes of the parameter list, for the outcome.
    pub(super) transfer: u64,
}

#[derive(Clone, Debug)]
pub(super) enum Change {
    /// Forget what a reset does not preserve.
    Reset(Reset),
    /// The nexus' session is over.
    NexusLost,
}

/// How far a reset reaches. Task management is the node's: it aborts the commands, then asks for this change of every
/// unit that is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reset {
    /// LOGICAL UNIT RESET.
    LogicalUnit,
    /// TARGET WARM RESET or TARGET COLD RESET, for each unit of the target.
    Target,
}

/// Who must be told something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Affected {
    /// Every nexus.
    All,
    /// Every nexus but the one that did it.
    AllBut(ItNexus),
    /// One nexus.
    One(ItNexus),
}

impl Affected {
    /// Whether `nexus` is among them.
    pub fn includes(&self, nexus: &ItNexus) -> bool {
        match self {
            Affected::All => true,
            Affected::AllBut(other) => other != nexus,
            Affected::One(one) => one == nexus,
        }
    }
}

/// A unit attention with its receivers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// Who.
    pub to: Affected,
    /// What.
    pub attention: UnitAttention,
}

/// What the home core decided. The driver aborts, stores, flushes, installs `state` and `notices` on every core, and then
/// answers with `outcome`.
#[derive(Clone, Debug)]
pub struct Decision {
    /// The new state, if it changes.
    pub state: Option<LuState>,
    /// [`LuState::to_durable`] of it must be stored before the command is answered.
    pub durable: bool,
    /// The volume must be flushed before the command is answered (the write cache was turned off).
    pub flush: bool,
    /// Commands of these nexuses are aborted before the new state counts (PREEMPT AND ABORT).
    pub abort: Vec<ItNexus>,
    /// Whom to tell what, on every core: for [`LogicalUnit::install`].
    pub notices: Vec<Notice>,
    /// The answer to give after all that. It already has the unit's sense format.
    pub outcome: Outcome,
}

impl Decision {
    /// Nothing changes.
    pub(super) fn refuse(outcome: impl Into<Outcome>) -> Decision {
        Decision {
            state: None,
            durable: false,
            flush: false,
            abort: Vec::new(),
            notices: Vec::new(),
            outcome: outcome.into(),
        }
    }
}

impl LogicalUnit {
    /// Decides a change. Called on the home core only, one at a time: the next is decided when the state of the last is
    /// installed there.
    pub fn decide(&self, request: &ChangeRequest) -> Decision {
        let mut decision = match &request.change {
            Change::Reset(_) | Change::NexusLost => Decision::refuse(Outcome::good_out(request.transfer)),
        };
        self.put_format(&mut decision.outcome);
        decision
    }

    /// The change that a reset by `from` is.
    pub fn reset(&self, reset: Reset, from: ItNexus) -> ChangeRequest {
        ChangeRequest { from, change: Change::Reset(reset), transfer: 0 }
    }
}
