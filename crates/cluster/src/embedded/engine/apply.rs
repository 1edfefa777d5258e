//! Applies what was committed, in the same way on every node.

use raft::eraftpb::{Entry, Snapshot};

use super::batch::Deferred;
use super::{Answered, Engine, Notification, Reply};
use crate::embedded::entry::{self, Command, Content, Proposal};
use crate::embedded::saved::{Position, decode_state};
use crate::error;
use crate::record::Applied;
use crate::transaction::Outcome;
use crate::watch::Change;

impl Engine {
    pub(super) fn restore(&mut self, snapshot: &Snapshot) {
        let (members, record) = decode_state(&snapshot.data).expect("checked when it came");
        let metadata = snapshot.get_metadata();
        let position = Position { index: metadata.index, term: metadata.term };
        self.deferred = Deferred {
            since: Some(self.ticks),
            replaced: true,
            members: true,
            promises: true,
            keys: record.everything().entries.keys().cloned().collect(),
            entries: Vec::new(),
            sequence: 0,
        };
        let saved = self.saved_mut();
        saved.entries.clear();
        (saved.compacted, saved.applied) = (position, position.index);
        saved.vote.commit = saved.vote.commit.max(position.index);
        saved.set_members(members);
        saved.record = record;
        self.told.push_back(Notification::Replaced);
    }

    pub(super) fn apply(&mut self, entries: Vec<Entry>) {
        let Some(last) = entries.last().map(|entry| entry.index) else { return };
        self.deferred.since.get_or_insert(self.ticks);
        for entry in entries {
            match entry::content(&entry).expect("checked when it came") {
                Content::Nothing => {}
                Content::Transaction(command) => self.apply_transaction(&command),
                Content::Members(proposal) => self.apply_members(proposal),
            }
            self.saved_mut().applied = entry.index;
        }
        let committed = self.raft.raft.raft_log.committed;
        self.saved_mut().vote.commit = committed;
        self.raft.advance_apply_to(last);
    }

    fn apply_transaction(&mut self, command: &Command) {
        let transaction = &command.transaction;
        let applied = self.saved_mut().record.apply(transaction, command.seen);
        if let Applied::Done { outcome: Outcome::Committed(revision), again: false } = applied {
            self.deferred.keys.extend(transaction.writes.iter().map(|(key, _)| key.clone()));
            let value = |key: &String| self.record().get(key).map(|entry| entry.value.clone());
            let writes = transaction.writes.iter().map(|(key, _)| (key.clone(), value(key))).collect();
            self.told.push_back(Notification::Change(Change { revision, writes }));
        }
        let result = match applied {
            Applied::Done { outcome, .. } => Ok(Answered::Outcome(outcome)),
            Applied::Full => Err(error::Error::Full),
            Applied::TooOld => Err(error::Error::OutcomeUnknown),
        };
        self.reply(transaction.op_id, &result);
    }

    fn apply_members(&mut self, proposal: Proposal) {
        if proposal.generation != self.saved().identity.generation {
            return;
        }
        let after = match self.members().after(proposal.change) {
            Ok(after) => after,
            Err(refusal) => return self.reply(proposal.op_id, &Err(refusal.into())),
        };
        if after != *self.members() {
            // raft-rs may refuse a change that was committed; then it has no effect, on any node.
            if self.raft.apply_conf_change(&proposal.conf_change()).is_err() {
                return;
            }
            self.saved_mut().set_members(after);
            (self.deferred.members, self.deferred.promises) = (true, true);
            if self.is_leader() && !self.is_voter() {
                // raft-rs lets a leader continue that is no longer a member, although it could propose
                // nothing.
                let term = self.raft.raft.term;
                self.raft.raft.become_follower(term, 0);
            }
        }
        let calls = self.pending.take(proposal.op_id).into_iter();
        self.member_replies.extend(calls.map(|call| Reply { call, result: Ok(Answered::Members) }));
    }

    fn reply(&mut self, op_id: u128, result: &Result<Answered, error::Error>) {
        for call in self.pending.take(op_id) {
            self.replies.push_back(Reply { call, result: result.clone() });
        }
    }
}
