//! Changes of the state that all cores share: requested on a session's core, decided on one core of the node
//! (core 0), installed on every core.

use serde::{Deserialize, Serialize};

use super::mode::ModeChange;
use super::reservations::{Legacy, PersistentOut};
use super::{ItNexus, LogicalUnit, LuState, Outcome, RelativePort, Request, Sense, Step, UnitAttention};

/// A change that a command or an event requests: MODE SELECT, PERSISTENT RESERVE OUT, RESERVE/RELEASE, START
/// STOP UNIT, a reset.
///
/// It has been decoded and checked as far as that is possible without the newest state.
#[derive(Clone, Debug)]
pub struct ChangeRequest {
    pub(super) from: ItNexus,
    pub(super) change: Change,
    /// The length of the parameter list in bytes, for the outcome.
    pub(super) transfer: u64,
}

impl ChangeRequest {
    /// The request after the target port of its nexus has got another number.
    #[must_use]
    pub fn renumbered(self, number: impl Fn(RelativePort) -> RelativePort) -> ChangeRequest {
        ChangeRequest { from: self.from.renumbered(number), ..self }
    }
}

#[derive(Clone, Debug)]
pub(super) enum Change {
    /// MODE SELECT.
    Mode(ModeChange),
    /// PERSISTENT RESERVE OUT.
    PersistentOut(PersistentOut),
    /// RESERVE or RELEASE.
    Legacy(Legacy),
    /// START STOP UNIT.
    Power {
        /// Stop the unit, or else start it.
        stop: bool,
        /// Make everything durable first.
        flush: bool,
    },
    /// Discard what a reset does not preserve.
    Reset(Reset),
    /// The nexus' session has ended.
    NexusLost,
}

/// The scope of a reset.
///
/// The node implements task management: it aborts the commands, then requests this change of every affected
/// unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reset {
    /// LOGICAL UNIT RESET.
    LogicalUnit,
    /// TARGET WARM RESET or TARGET COLD RESET, for each unit of the target.
    Target,
}

/// The nexuses that receive a notice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Affected {
    /// Every nexus.
    All,
    /// Every nexus but the one that caused it.
    AllBut(ItNexus),
    /// One nexus.
    One(ItNexus),
}

impl Affected {
    /// Whether `nexus` is one of them.
    pub fn includes(&self, nexus: &ItNexus) -> bool {
        match self {
            Affected::All => true,
            Affected::AllBut(other) => other != nexus,
            Affected::One(one) => one == nexus,
        }
    }

    fn renumbered(self, number: impl Fn(RelativePort) -> RelativePort) -> Affected {
        match self {
            Affected::All => Affected::All,
            Affected::AllBut(other) => Affected::AllBut(other.renumbered(number)),
            Affected::One(one) => Affected::One(one.renumbered(number)),
        }
    }
}

/// A unit attention and its receivers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notice {
    /// The receivers.
    pub to: Affected,
    /// The attention.
    pub attention: UnitAttention,
}

/// The nexuses whose commands a change aborts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Abort {
    /// Commands of these nexuses (PREEMPT AND ABORT); usually none.
    Of(Vec<ItNexus>),
    /// Commands of all nexuses (a reset).
    All,
}

impl Abort {
    /// No commands.
    pub const NONE: Abort = Abort::Of(Vec::new());
}

/// The result of deciding a change.
///
/// The driver makes the state durable, installs `state` and `notices` on every core, aborts commands,
/// flushes, and then answers with `outcome`. It waits for commands that were admitted under the old state
/// only after the installation, when no more of them can follow.
#[derive(Clone, Debug)]
pub struct Decision {
    /// The new state, if it changes.
    pub state: Option<LuState>,
    /// [`LuState::to_durable`] of the new state must be stored before the command is answered.
    pub durable: bool,
    /// The volume must be flushed before the command is answered (the write cache was turned off).
    pub flush: bool,
    /// Commands that were begun under the old state and must be aborted before the response.
    pub abort: Abort,
    /// The unit attentions to report, on every core: for [`LogicalUnit::install`].
    pub notices: Vec<Notice>,
    /// The response to send after all that. It already has the unit's sense format.
    pub outcome: Outcome,
}

impl LogicalUnit {
    /// Decides a change.
    ///
    /// Called on core 0 only, one change at a time: the next one is decided after the previous state has been
    /// installed there.
    pub fn decide(&self, request: &ChangeRequest) -> Decision {
        let mut decision = Decision::nothing(Outcome::good_out(request.transfer));
        self.decide_into(request, &mut decision);
        self.put_format(&mut decision.outcome);
        decision
    }

    fn decide_into(&self, request: &ChangeRequest, decision: &mut Decision) {
        let (state, from) = (self.state(), &request.from);
        match &request.change {
            Change::Mode(change) => change.decide(state, from, decision),
            Change::Power { stop, flush } => {
                decision.flush = *flush;
                decision.change(state, LuState { stopped: *stop, ..state.clone() });
            }
            Change::Legacy(legacy) => match legacy.decide(&state.reservations, from) {
                Ok(None) => {}
                Ok(Some(reservations)) => {
                    decision.change(state, LuState { reservations, ..state.clone() });
                }
                Err(status) => decision.outcome = Outcome::status(status),
            },
            Change::PersistentOut(out) => {
                let ports: Vec<_> = self.config().ports().map(|port| port.relative).collect();
                match out.decide(&state.reservations, from, &ports) {
                    Ok(ruling) => {
                        decision.abort = Abort::Of(ruling.abort);
                        decision.notices = ruling.tell.into_iter().map(Notice::to_one).collect();
                        let survives = state.reservations.survives || ruling.reservations.survives;
                        let new = LuState { reservations: ruling.reservations, ..state.clone() };
                        decision.durable = survives && new.to_durable() != state.to_durable();
                        decision.change(state, new);
                    }
                    Err(refusal) => decision.outcome = refusal.into(),
                }
            }
            Change::Reset(reset) => {
                let mut new = LuState { stopped: false, mode: state.saved_mode, ..state.clone() };
                new.reservations.legacy = None;
                // The saved mode may turn the write cache off.
                decision.flush = state.mode.write_cache && !new.mode.write_cache;
                decision.change(state, new);
                decision.notices.push(Notice { to: Affected::All, attention: reset.attention() });
                decision.abort = Abort::All;
            }
            Change::NexusLost => {
                let mut new = state.clone();
                new.reservations.legacy.take_if(|holder| holder == from);
                decision.change(state, new);
            }
        }
    }

    /// The change for a reset by `from`.
    pub fn reset(&self, reset: Reset, from: ItNexus) -> ChangeRequest {
        ChangeRequest { from, change: Change::Reset(reset), transfer: 0 }
    }

    /// The step of a command that requests a change, with `transfer` bytes of parameters.
    pub(super) fn change(&self, request: &Request, change: Change, transfer: u64) -> Result<Step, Sense> {
        let from = self.nexus_name(request.nexus).expect("a nexus without a name is not admitted").clone();
        Ok(Step::Change(ChangeRequest { from, change, transfer }))
    }
}

impl Decision {
    fn nothing(outcome: Outcome) -> Decision {
        Decision {
            state: None,
            durable: false,
            flush: false,
            abort: Abort::NONE,
            notices: Vec::new(),
            outcome,
        }
    }

    /// Sets the new state, if it differs.
    pub(super) fn change(&mut self, old: &LuState, new: LuState) {
        self.state = (new != *old).then_some(new);
    }
}

impl Notice {
    /// The notice after target ports have got other numbers.
    #[must_use]
    pub fn renumbered(self, number: impl Fn(RelativePort) -> RelativePort) -> Notice {
        Notice { to: self.to.renumbered(number), ..self }
    }

    fn to_one((nexus, attention): (ItNexus, UnitAttention)) -> Notice {
        Notice { to: Affected::One(nexus), attention }
    }
}

impl Reset {
    /// The attention for all nexuses (SAM-5 6.3).
    fn attention(self) -> UnitAttention {
        match self {
            Reset::LogicalUnit => UnitAttention::DeviceReset,
            Reset::Target => UnitAttention::BusReset,
        }
    }
}
