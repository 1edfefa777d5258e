//! Changes that were asked for at this node and have no result yet. They are handed on again and again until
//! they do: messages get lost and leaders change. Nothing happens twice, because each has a name.

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
    /// When it was last handed on to a leader; `None`: never, so that it has had no effect.
    handed_on: Option<u64>,
    /// It is due now: it is new, or the leader is.
    due: bool,
}

/// What is proposed.
#[derive(Clone)]
pub(super) enum What {
    /// A command's bytes.
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

    /// All are to be handed on: there is a new leader.
    pub(super) fn all_due(&mut self) {
        self.by_op.values_mut().for_each(|change| change.due = true);
    }

    /// What is to be handed on now, which is said with [`Pending::handed_on`].
    pub(super) fn due(&self, tick: u64) -> Vec<(u128, What)> {
        let late = |it: &&Change| it.handed_on.is_some_and(|at| tick >= at + it.what.retry_ticks());
        let due = self.by_op.iter().filter(|(_, it)| it.due || late(it));
        due.map(|(op_id, it)| (*op_id, it.what.clone())).collect()
    }

    /// A leader has it, or will have it, or it is lost on the way there.
    pub(super) fn handed_on(&mut self, op_id: u128, tick: u64) {
        if let Some(change) = self.by_op.get_mut(&op_id) {
            (change.handed_on, change.due) = (Some(tick), false);
        }
    }

    /// The calls that waited for the result of `op_id`.
    pub(super) fn take(&mut self, op_id: u128) -> Vec<CallId> {
        let Some(change) = self.by_op.remove(&op_id) else { return Vec::new() };
        self.calls -= change.calls.len();
        self.bytes -= change.what.bytes();
        change.calls.into_iter().map(|(call, _)| call).collect()
    }

    /// The calls whose time is over, and what they are told.
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
