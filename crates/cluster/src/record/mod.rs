//! The record itself: keys and values, and how each transaction changes them. Nodes that apply the same
//! transactions in the same order hold the same record.
//!
//! *Exactly once.* The record remembers the results of the last transactions by `op_id`, so that one that
//! arrives again gets its first result. This memory is bounded, so a transaction also states what its
//! proposer had `seen`: how many transactions had been executed before it was first proposed. If results
//! since then may have been forgotten, the transaction is not executed ([`Applied::TooOld`]).

mod remembered;
mod snapshot;

use std::collections::BTreeMap;
use std::ops::Bound;

pub use remembered::{Remembered, Result as Remembrance};
pub use snapshot::VERSION as SNAPSHOT_VERSION;

use crate::limits::{ENTRY_BYTES, RECORD_BYTES_MAX};
use crate::transaction::{Outcome, Revision, Transaction, Versioned};
use crate::watch::Everything;
use remembered::Memory;

/// Keys, values and the results of the last transactions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    now: Everything,
    /// The size of all keys and values, plus [`ENTRY_BYTES`] for each.
    bytes: usize,
    memory: Memory,
}

/// The result of applying a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Applied {
    /// It was executed; the proposer gets the outcome.
    Done {
        /// Committed, or why not.
        outcome: Outcome,
        /// It was executed before; nothing changed now.
        again: bool,
    },
    /// It would exceed [`RECORD_BYTES_MAX`].
    Full,
    /// It may have been executed before, so it was not executed now.
    TooOld,
}

impl Record {
    /// The record from parts that were read from a disk.
    pub(crate) fn from_parts(
        now: Everything,
        sequence: u64,
        results: impl IntoIterator<Item = Remembered>,
    ) -> Record {
        let bytes = now.entries.iter().map(|(key, entry)| weight(key, entry.value.len())).sum();
        Record { now, bytes, memory: Memory::from_parts(sequence, results) }
    }

    /// The last committed transaction.
    pub fn revision(&self) -> Revision {
        self.now.revision
    }

    /// How many transactions were executed, including those that conflicted.
    pub fn sequence(&self) -> u64 {
        self.memory.sequence()
    }

    /// The value at `key`.
    pub fn get(&self, key: &str) -> Option<&Versioned> {
        self.now.entries.get(key)
    }

    /// All keys that begin with `prefix`, in order.
    pub fn list<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = (&'a String, &'a Versioned)> {
        list(&self.now.entries, prefix)
    }

    /// All keys and values.
    pub fn everything(&self) -> &Everything {
        &self.now
    }

    /// The remembered results, oldest first.
    pub fn remembered(&self) -> impl DoubleEndedIterator<Item = &Remembered> {
        self.memory.iter()
    }

    /// The sequence number up to which results are forgotten.
    pub(crate) fn forgotten(&self) -> u64 {
        self.memory.forgotten()
    }

    /// Executes `transaction`, whose proposer had `seen` that many executed.
    pub fn apply(&mut self, transaction: &Transaction, seen: u64) -> Applied {
        if let Some(result) = self.memory.get(transaction.op_id) {
            return match result.outcome(transaction) {
                Some(outcome) => Applied::Done { outcome, again: true },
                None => Applied::Full,
            };
        }
        if seen < self.memory.forgotten() {
            return Applied::TooOld;
        }
        let result = self.carry_out(transaction);
        self.memory.remember(transaction.op_id, result);
        match result.outcome(transaction) {
            Some(outcome) => Applied::Done { outcome, again: false },
            None => Applied::Full,
        }
    }

    fn carry_out(&mut self, transaction: &Transaction) -> Remembrance {
        for (at, (key, expected)) in transaction.preconditions.iter().enumerate() {
            let found = self.get(key).map(|entry| entry.revision);
            if found != *expected {
                let precondition = u16::try_from(at).expect("at most PRECONDITIONS_MAX");
                return Remembrance::Conflict { precondition, found };
            }
        }
        let mut bytes = self.bytes;
        for (key, value) in &transaction.writes {
            bytes -= self.get(key).map_or(0, |old| weight(key, old.value.len()));
            bytes += value.as_ref().map_or(0, |value| weight(key, value.len()));
        }
        // A transaction that only shrinks the record is always possible.
        if bytes > RECORD_BYTES_MAX && bytes > self.bytes {
            return Remembrance::Full;
        }
        self.bytes = bytes;
        self.now.revision.0 += 1;
        let revision = self.now.revision;
        for (key, value) in &transaction.writes {
            match value {
                Some(value) => {
                    let entry = Versioned { value: value.as_slice().into(), revision };
                    self.now.entries.insert(key.clone(), entry);
                }
                None => {
                    self.now.entries.remove(key);
                }
            }
        }
        Remembrance::Committed(revision)
    }

    /// Checks that the parts are consistent; otherwise says what is wrong with the data from a disk.
    pub(crate) fn verify(&self) -> Result<(), &'static str> {
        let bytes: usize = self.now.entries.iter().map(|(key, entry)| weight(key, entry.value.len())).sum();
        if self.bytes != bytes {
            return Err("the bytes of the record are miscounted");
        }
        if self.now.entries.values().any(|entry| entry.revision > self.now.revision) {
            return Err("a key is newer than the record");
        }
        self.memory.verify()
    }

    /// Asserts that the parts are consistent.
    pub fn check(&self) {
        assert_eq!(self.verify(), Ok(()));
    }
}

/// All entries whose keys begin with `prefix`.
pub(crate) fn list<'a>(
    entries: &'a BTreeMap<String, Versioned>,
    prefix: &'a str,
) -> impl Iterator<Item = (&'a String, &'a Versioned)> {
    let from = (Bound::Included(prefix), Bound::Unbounded);
    entries.range::<str, _>(from).take_while(move |(key, _)| key.starts_with(prefix))
}

fn weight(key: &str, value: usize) -> usize {
    key.len() + value + ENTRY_BYTES
}

#[cfg(test)]
mod tests;
