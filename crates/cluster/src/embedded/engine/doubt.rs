//! Whether this node's disk was set back: the others remember what it has promised. See `docs/why/record.md`,
//! *A voter that was set back*.

use std::collections::BTreeSet;

use raft::eraftpb::{Message, MessageType};

use super::Engine;
use crate::embedded::message::{self, Content};
use crate::embedded::promise::Promise;
use crate::embedded::saved::Position;
use crate::limits::{DOUBT_TICKS, QUESTION_TICKS};
use crate::node_id::NodeId;

/// A node that starts cannot know what it has forgotten. It asks the voters, and votes for no node until they
/// have answered.
pub(super) struct Doubt {
    /// The ID of its questions.
    pub(super) name: u64,
    pub(super) answered: BTreeSet<NodeId>,
}

impl Engine {
    /// Ends the doubt, or asks the voters that have not answered yet.
    ///
    /// The doubt ends when all voters have answered, or when a quorum with this node has and the others have
    /// had their time: waiting longer would make every fault of one node a fault of the cluster.
    pub(super) fn settle_doubt(&mut self) {
        let Some(doubt) = self.doubt.as_ref().filter(|_| !self.has_forgotten()) else { return };
        let me = self.node();
        let others: Vec<NodeId> =
            self.members().voters.iter().copied().filter(|voter| *voter != me).collect();
        let silent: Vec<NodeId> =
            others.iter().copied().filter(|voter| !doubt.answered.contains(voter)).collect();
        // This counts this node, which may have become a voter since.
        let has_quorum = silent.len() * 2 < others.len() + 1;
        if silent.is_empty() || (has_quorum && self.ticks >= DOUBT_TICKS) {
            self.doubt = None;
        } else if self.ticks.is_multiple_of(QUESTION_TICKS) {
            let question = Content::Question(doubt.name);
            silent.into_iter().for_each(|voter| self.post(voter, &question));
        }
    }

    /// Whether this node may stand for election: it has everything that it may ever have had.
    pub(super) fn may_stand(&self) -> bool {
        !self.has_forgotten() && self.doubt.is_none() && self.saved().last() >= self.floor
    }

    /// Whether this node may accept `message`, which may be a candidate's.
    pub(super) fn may_heed(&self, message: &Message) -> bool {
        match message.get_msg_type() {
            MessageType::MsgTimeoutNow => self.may_stand(),
            MessageType::MsgRequestVote | MessageType::MsgRequestPreVote => {
                let candidate = Position { index: message.index, term: message.log_term };
                self.doubt.is_none() && candidate >= self.floor
            }
            _ => true,
        }
    }

    /// Remembers what `node` has promised, for its next start.
    pub(super) fn remember(&mut self, node: NodeId, mut promise: Promise) {
        if !self.members().has(node) {
            return;
        }
        let before = self.saved().promises.get(&node).copied().unwrap_or_default();
        let (log, term) = (&self.raft.raft.raft_log, self.raft.raft.term);
        // No position for an entry that is no longer in this log: `node` has received it from here.
        let position = |index| log.term(index).map_or(Position::default(), |term| Position { index, term });
        // The entry was not accepted here. If its sender loses it, too, no node has it, and none can be
        // required to have it.
        if position(promise.sent.index) != promise.sent {
            promise.sent = Position::default();
        }
        // Only the leader knows which entry was acknowledged.
        let leads = |of: u64| self.is_leader() && of == term;
        let acknowledged = promise.acknowledged.index;
        promise.acknowledged = if leads(promise.term) { position(acknowledged) } else { Position::default() };
        let mut now = before.and(promise);
        if leads(now.term) {
            let committed = position(now.acknowledged.index.min(log.committed));
            now.committed = now.committed.max(committed);
        }
        if now != before {
            self.saved_mut().promises.insert(node, now);
            self.deferred.promises = true;
            self.deferred.since.get_or_insert(self.ticks);
        }
    }

    /// Another node remembers a promise that this node's disk does not have.
    pub(super) fn find_set_back(&mut self) {
        if !self.saved().set_back {
            self.saved_mut().set_back = true;
            self.deferred.since.get_or_insert(self.ticks);
        }
    }

    pub(super) fn post(&mut self, to: NodeId, content: &Content) {
        // Updates which of the acknowledged entries are committed.
        self.remember(to, Promise::default());
        let saved = self.saved();
        let promised = saved.promises.get(&to).copied().unwrap_or_default();
        if let Some(bytes) = message::encode(&saved.identity, to, &promised, content) {
            self.messages.push_back((to, bytes));
        }
    }
}
