//! How all nodes that serve a volume agree on the state of its unit: mode pages and reservations. No I/O and
//! no clock: answers, completed work and time go in; questions, work and outcomes come out. The driver is
//! `member/reconciler/agreement.rs`; `docs/why/reservations.md` has the rules U1 to U12, and why they
//! suffice.
//!
//! Every change that was answered is known to all members of its epoch and of every later one. The node that
//! receives a change decides it ([`Decider`]), in rounds of questions to all members of an epoch, itself
//! included:
//!
//! 1. It asks each member what it knows, and brings the newest state to the members that lack it.
//! 2. It decides the change against that state, and brings the outcome to the member with the lowest slot in
//!    sync. That member takes it only if its own state is the one that the change was decided against. So of
//!    two concurrent changes one is decided again.
//! 3. It brings the outcome to all other members. Only then does it answer.
//!
//! A [`Member`] takes nothing of an epoch that it does not act in, and nothing that is older than its own
//! state: in the next epoch another change may have been decided without this one. The node that decided this
//! one sees by [`Agreed::contains`] whether it has to decide it again.

mod decider;
mod member;
#[cfg(test)]
mod rig;
#[cfg(test)]
mod world;

use proto::scsi::{Abort, LuState, Notice};
use replica::{Config, Epoch, NodeId, Slot};
use serde::{Deserialize, Serialize};

pub use self::decider::{Decider, Next, Query, Question, Reply};
pub use self::member::{Here, Member, News, Stored, Work};

/// The place of a change among all changes of a unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Version {
    /// The epoch in which it was decided.
    epoch: u64,
    /// Its number in that epoch.
    number: u64,
    /// The node that decided it; orders two changes that are decided at once.
    by: u16,
}

/// What a node knows of a unit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Agreed {
    version: Version,
    /// The state that the last change has left.
    state: LuState,
    /// The unit attentions that the last change raises, and for whom.
    notices: Vec<Notice>,
    /// The commands that the last change aborts.
    abort: Abort,
    /// For each node, the last of its changes that this state includes; the last change is among them. A node
    /// that has decided a change and finds a later one sees here whether that was decided on top of its own.
    contains: Vec<Version>,
}

impl Agreed {
    /// The changes that the state includes with one of that version on top.
    fn contains_with(&self, version: Version) -> Vec<Version> {
        let others = self.contains.iter().filter(|other| other.by != version.by);
        others.copied().chain([version]).collect()
    }

    /// Whether the node has decided the last change.
    pub fn is_by(&self, node: NodeId) -> bool {
        self.version.by == node.0
    }
}

/// What a member says about a unit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberReport {
    agreed: Agreed,
    /// It has learned this from other members since it became one.
    known: bool,
    /// Its pool has stored the part that must survive.
    stored: bool,
}

impl MemberReport {
    /// Whether the member has learned this from other members since it became one.
    pub fn is_known(&self) -> bool {
        self.known
    }
}

/// A change, or the newest state, for a member to take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// The epoch in which it is offered (U7).
    pub epoch: Epoch,
    /// The member takes it only if it has this version (U3); `None`: if it has an older one.
    pub expected: Option<Version>,
    /// The unit after the change.
    pub agreed: Agreed,
}

/// The members of an epoch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Members {
    /// The epoch.
    pub epoch: Epoch,
    /// Their nodes, by slot.
    pub nodes: Vec<NodeId>,
    /// Those whose copies are in sync, by slot.
    pub in_sync: Vec<NodeId>,
}

impl Members {
    /// The members of this configuration; `None`: no copy is in sync.
    pub fn of(config: &Config) -> Option<Members> {
        let node = |slot: Slot| config.copy(slot).map(|copy| copy.node);
        let nodes = config.members().iter().filter_map(node).collect();
        let in_sync: Vec<NodeId> = config.in_sync().iter().filter_map(node).collect();
        (!in_sync.is_empty()).then_some(Members { epoch: config.epoch, nodes, in_sync })
    }

    /// The member that is asked first to take a change (U3): the one with the lowest slot in sync.
    fn first(&self) -> Option<NodeId> {
        self.in_sync.first().copied()
    }
}
