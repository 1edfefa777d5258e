//! What happened, told once for all nodes: changes by revision, and what callers were told when.

use std::collections::{BTreeMap, BTreeSet};

use cluster::{Change, Everything, Outcome, Revision};

/// The one history that all nodes must agree on.
#[derive(Default)]
pub(super) struct History {
    /// By revision, from 1.
    changes: Vec<Change>,
    /// All there was after each of them.
    states: Vec<Everything>,
    /// Which operation wrote which revision; each writes a key of its own.
    by_op: BTreeMap<u64, Revision>,
    /// The highest revision that a finished call has shown to anybody.
    pub(super) shown: Revision,
    /// Operations that certainly did nothing.
    void: BTreeSet<u64>,
    /// Conflicts: key, what was found, and from which revision on it may have been found.
    conflicts: Vec<(String, Option<Revision>, Revision, Revision)>,
}

/// The key that only operation `op` writes.
pub(super) fn mark(op: u64) -> String {
    format!("op/{op}")
}

impl History {
    /// A node tells its watches of `change`.
    pub(super) fn tell(&mut self, change: &Change) {
        let at = change.revision.0 as usize;
        assert!(at <= self.changes.len() + 1, "revision {at} came before the one before it");
        if let Some(known) = self.changes.get(at - 1) {
            assert_eq!(known, change, "two nodes have two histories");
            return;
        }
        self.changes.push(change.clone());
        let mut all = self.at(change.revision.0 - 1);
        all.change(change);
        self.states.push(all);
        let marks = change.writes.iter().filter_map(|(key, _)| key.strip_prefix("op/"));
        for op in marks.map(|op| op.parse().unwrap()) {
            let before = self.by_op.insert(op, change.revision);
            assert_eq!(before, None, "operation {op} took effect twice");
        }
    }

    /// All there was at `revision`.
    pub(super) fn at(&self, revision: u64) -> Everything {
        revision.checked_sub(1).map(|before| self.states[before as usize].clone()).unwrap_or_default()
    }

    pub(super) fn last(&self) -> Revision {
        Revision(self.changes.len() as u64)
    }

    /// A transaction that was begun when `since` had been shown has its outcome.
    pub(super) fn outcome(&mut self, op: u64, outcome: &Outcome, since: Revision) {
        match outcome {
            Outcome::Committed(revision) => {
                assert_eq!(self.by_op.get(&op), Some(revision), "the revision of operation {op}");
                assert!(*revision > since, "operation {op} took effect before it began");
                self.shown = self.shown.max(*revision);
            }
            Outcome::Conflict { key, found } => {
                self.void.insert(op);
                self.conflicts.push((key.clone(), *found, since, self.last()));
            }
        }
    }

    /// A read that was begun when `since` had been shown has seen `all`.
    pub(super) fn read(&mut self, all: &Everything, since: Revision) {
        assert!(all.revision >= since, "a read at {} after {since} was shown", all.revision);
        assert_eq!(*all, self.at(all.revision.0));
        self.shown = self.shown.max(all.revision);
    }

    /// Operation `op` did nothing, its caller was told.
    pub(super) fn void(&mut self, op: u64) {
        self.void.insert(op);
    }

    /// At the end: what did nothing is nowhere, and each conflict was one at some time during its call.
    pub(super) fn check(&self) {
        for op in &self.void {
            assert!(!self.by_op.contains_key(op), "operation {op} was said to have done nothing");
        }
        for (key, found, since, until) in &self.conflicts {
            let writes = |change: &&Change| change.writes.iter().any(|(it, _)| it == key);
            let value = |change: &Change| {
                let write = change.writes.iter().find(|(it, _)| it == key);
                write.and_then(|(_, value)| value.as_ref()).map(|_| change.revision)
            };
            let before = self.changes[..since.0 as usize].iter().rev().find(writes).and_then(value);
            let during = self.changes[since.0 as usize..until.0 as usize].iter().filter(writes).map(value);
            let mut possible = std::iter::once(before).chain(during);
            assert!(possible.any(|it| it == *found), "{key} never was at {found:?} during that call");
        }
    }
}
