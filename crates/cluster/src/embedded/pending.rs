//! Changes that were requested on this node and have no result yet. The node forwards them repeatedly until
//! they have one, because messages get lost and leaders change. Each has an ID, so none takes effect twice.

use std::collections::BTreeMap;

use base::Instant;

use super::engine::CallId;
use super::entry::Proposal;
use crate::error::Error;
use crate::limits::{MEMBER_RETRY_TICKS, RETRY_TICKS};

#[derive(Default)]
pub(super) struct Pending {
    by_op: BTreeMap<u128, Change>,
    calls: usize,
    bytes: usize,
}

struct Change {
    what: What,
    calls: Vec<(CallId, Instant)>,
    /// When it was last forwarded to a leader; `None`: never, so it has had no effect.
    handed_on: Option<u64>,
    /// It is due now, because it or the leader is new.
    due: bool,
}

/// The change that is proposed.
#[derive(Clone)]
pub(super) enum What {
    /// The bytes of a command.
    Transaction(Vec<u8>),
    Members(Proposal),
}

impl What {
    fn bytes(&self) -> usize {
        match self {
            What::Transaction(bytes) => bytes.len(),
            What::Members(_) => 0,
        }
    }

    fn retry_ticks(&self) -> u64 {
        match self {
            What::Transaction(_) => RETRY_TICKS,
            What::Members(_) => MEMBER_RETRY_TICKS,
        }
    }
}

impl Pending {
    pub(super) fn calls(&self) -> usize {
        self.calls
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds a call that waits for the result of `op_id`.
    pub(super) fn push(&mut self, op_id: u128, call: CallId, deadline: Instant, what: impl FnOnce() -> What) {
        self.calls += 1;
        let bytes = &mut self.bytes;
        let change = self.by_op.entry(op_id).or_insert_with(|| {
            let what = what();
            *bytes += what.bytes();
            Change { what, calls: Vec::new(), handed_on: None, due: true }
        });
        change.calls.push((call, deadline));
    }

    /// Makes all changes due, because there is a new leader.
    pub(super) fn all_due(&mut self) {
        self.by_op.values_mut().for_each(|change| change.due = true);
    }

    /// The changes to forward now; the caller confirms each with [`Pending::handed_on`].
    pub(super) fn due(&self, tick: u64) -> Vec<(u128, What)> {
        let late = |it: &&Change| it.handed_on.is_some_and(|at| tick >= at + it.what.retry_ticks());
        let due = self.by_op.iter().filter(|(_, it)| it.due || late(it));
        due.map(|(op_id, it)| (*op_id, it.what.clone())).collect()
    }

    /// The change was sent to a leader; the message may get lost.
    pub(super) fn handed_on(&mut self, op_id: u128, tick: u64) {
        if let Some(change) = self.by_op.get_mut(&op_id) {
            (change.handed_on, change.due) = (Some(tick), false);
        }
    }

    /// Removes the change; returns the calls that waited for its result.
    pub(super) fn take(&mut self, op_id: u128) -> Vec<CallId> {
        let Some(change) = self.by_op.remove(&op_id) else { return Vec::new() };
        self.calls -= change.calls.len();
        self.bytes -= change.what.bytes();
        change.calls.into_iter().map(|(call, _)| call).collect()
    }

    /// The calls whose deadline has passed, and their errors.
    pub(super) fn expire(&mut self, now: Instant, leader: bool) -> Vec<(CallId, Error)> {
        let mut expired = Vec::new();
        for change in self.by_op.values_mut() {
            let error = match change.handed_on {
                Some(_) => Error::OutcomeUnknown,
                None if leader => Error::NoQuorum,
                None => Error::NoLeader,
            };
            let over = change.calls.extract_if(.., |(_, deadline)| *deadline <= now);
            expired.extend(over.map(|(call, _)| (call, error.clone())));
        }
        self.calls -= expired.len();
        let nobody_waits = self.by_op.extract_if(.., |_, change| change.calls.is_empty());
        self.bytes -= nobody_waits.map(|(_, change)| change.what.bytes()).sum::<usize>();
        expired
    }
}
