//! Collects the changes that become one transaction of the disk.

use std::collections::BTreeSet;

use raft::eraftpb::{Entry, Message};

use super::{Engine, Reply};
use crate::embedded::saved::{Batch, Position};
use crate::limits::{LOG_BYTES_MAX, LOG_KEPT_PART};
use crate::record::Remembered;

/// What waits until a batch is durable.
pub(super) struct Unconfirmed {
    /// raft-rs's number of the batch; 0 if raft-rs does not wait for it.
    pub(super) number: u64,
    pub(super) messages: Vec<Message>,
    pub(super) replies: Vec<Reply>,
}

/// The changes since the last batch.
#[derive(Default)]
pub(super) struct Deferred {
    /// When the first of them happened.
    pub(super) since: Option<u64>,
    pub(super) replaced: bool,
    pub(super) members: bool,
    pub(super) promises: bool,
    pub(super) entries: Vec<Entry>,
    pub(super) keys: BTreeSet<String>,
    /// Results after this sequence number are new.
    pub(super) sequence: u64,
}

impl Engine {
    /// Everything that has changed since the last batch, and which log entries to delete.
    pub(super) fn take_batch(&mut self, number: u64, messages: Vec<Message>) -> Batch {
        let replies = std::mem::take(&mut self.member_replies);
        self.unconfirmed = Some(Unconfirmed { number, messages, replies });
        self.shorten();
        let saved = self.raft.store();
        let record = &saved.record;
        let new = |it: &&Remembered| it.sequence > self.deferred.sequence;
        let mut results: Vec<_> = record.remembered().rev().take_while(new).copied().collect();
        results.reverse();
        let writes = self.deferred.keys.iter().map(|key| (key.clone(), record.get(key).cloned()));
        let batch = Batch {
            replaced: self.deferred.replaced,
            vote: saved.vote,
            entries: std::mem::take(&mut self.deferred.entries),
            compacted: saved.compacted,
            applied: saved.applied,
            revision: record.revision(),
            sequence: record.sequence(),
            members: self.deferred.members.then(|| saved.members.clone()),
            writes: writes.collect(),
            results,
            forgotten: record.forgotten(),
            promises: self.deferred.promises.then(|| saved.promises.clone()),
            set_back: saved.set_back,
        };
        self.deferred = Deferred { sequence: batch.sequence, ..Deferred::default() };
        batch
    }

    /// Drops log entries that all nodes have, or will get with a snapshot.
    fn shorten(&mut self) {
        let entries_max = self.settings.log_entries;
        let saved = self.raft.mut_store();
        let bytes = |entry: &Entry| entry.data.len() + entry.context.len();
        let total: usize = saved.entries.iter().map(bytes).sum();
        if saved.entries.len() <= entries_max && total <= LOG_BYTES_MAX {
            return;
        }
        let mut left = LOG_BYTES_MAX / 2;
        let fits = |entry: &&Entry| {
            let fits = bytes(entry) <= left;
            left = left.saturating_sub(bytes(entry));
            fits
        };
        let kept =
            saved.entries.iter().rev().take(entries_max / LOG_KEPT_PART).take_while(fits).count() as u64;
        let index = saved.applied.min(saved.last().index - kept);
        if index > saved.compacted.index {
            let term = raft::Storage::term(saved, index).expect("what was applied is in the log");
            saved.compacted = Position { index, term };
            saved.compact();
        }
    }
}
