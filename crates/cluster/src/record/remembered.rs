//! The results of the last transactions.

use std::collections::{BTreeMap, VecDeque};

use crate::limits::REMEMBERED_MAX;
use crate::transaction::{Outcome, Revision, Transaction};

/// The result of a transaction, small enough to be kept for a long time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Result {
    /// It took effect.
    Committed(Revision),
    /// A precondition did not hold.
    Conflict {
        /// Its index, from 0.
        precondition: u16,
        /// The revision that was found instead.
        found: Option<Revision>,
    },
    /// The record had no room.
    Full,
}

impl Result {
    /// The outcome for the proposer of `transaction`; `None`: the record had no room.
    pub(super) fn outcome(self, transaction: &Transaction) -> Option<Outcome> {
        match self {
            Result::Committed(revision) => Some(Outcome::Committed(revision)),
            Result::Conflict { precondition, found } => {
                // The key is missing only if the same op_id was used for another transaction.
                let key = transaction.preconditions.get(usize::from(precondition));
                let key = key.map(|(key, _)| key.clone()).unwrap_or_default();
                Some(Outcome::Conflict { key, found })
            }
            Result::Full => None,
        }
    }
}

/// A transaction that was executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remembered {
    /// Its sequence number: the first one has 1.
    pub sequence: u64,
    /// Its proposer's ID for it.
    pub op_id: u128,
    /// Its result.
    pub result: Result,
}

/// The last [`REMEMBERED_MAX`] results.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Memory {
    /// Transactions executed so far.
    sequence: u64,
    /// Oldest first; their sequence numbers are the latest ones, without a gap.
    results: VecDeque<Remembered>,
    by_op: BTreeMap<u128, Result>,
}

impl Memory {
    pub(super) fn from_parts(sequence: u64, results: impl IntoIterator<Item = Remembered>) -> Memory {
        let results: VecDeque<Remembered> = results.into_iter().collect();
        let by_op = results.iter().map(|it| (it.op_id, it.result)).collect();
        Memory { sequence, results, by_op }
    }

    pub(super) fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Results up to this sequence number are forgotten.
    pub(super) fn forgotten(&self) -> u64 {
        self.sequence.saturating_sub(REMEMBERED_MAX)
    }

    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = &Remembered> {
        self.results.iter()
    }

    pub(super) fn get(&self, op_id: u128) -> Option<Result> {
        self.by_op.get(&op_id).copied()
    }

    pub(super) fn remember(&mut self, op_id: u128, result: Result) {
        self.sequence += 1;
        self.results.push_back(Remembered { sequence: self.sequence, op_id, result });
        self.by_op.insert(op_id, result);
        let forgotten = self.forgotten();
        while let Some(oldest) = self.results.front().filter(|oldest| oldest.sequence <= forgotten) {
            self.by_op.remove(&oldest.op_id);
            self.results.pop_front();
        }
    }

    pub(super) fn verify(&self) -> std::result::Result<(), &'static str> {
        if self.results.len() != self.by_op.len() {
            return Err("a transaction has two results");
        }
        let numbers = self.results.iter().map(|it| it.sequence);
        if !numbers.eq(self.forgotten() + 1..=self.sequence) {
            return Err("results are missing");
        }
        Ok(())
    }
}
