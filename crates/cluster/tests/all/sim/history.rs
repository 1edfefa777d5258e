//! What happened, once for all nodes: changes by revision, and which results callers got when.

use std::collections::{BTreeMap, BTreeSet};

use cluster::{Change, Everything, Outcome, Revision};

/// The one history that all nodes must agree on.
#[derive(Default)]
pub(super) struct History {
    /// By revision, from 1.
    changes: Vec<Change>,
    /// The whole record after each of them.
    states: Vec<Everything>,
    /// The revision that each operation wrote; each writes a key of its own.
    by_op: BTreeMap<u64, Revision>,
    /// The highest revision that any completed call has shown.
    pub(super) shown: Revision,
    /// Operations that certainly had no effect.
    void: BTreeSet<u64>,
    /// Conflicts: key, revision found, and the range of revisions at which it may have been found.
    conflicts: Vec<(String, Option<Revision>, Revision, Revision)>,
}

/// The key that only operation `op` writes.
pub(super) fn mark(op: u64) -> String {
    format!("op/{op}")
}

impl History {
    /// A node sends `change` to its watches.
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

    /// The whole record at `revision`.
    pub(super) fn at(&self, revision: u64) -> Everything {
        revision.checked_sub(1).map(|before| self.states[before as usize].clone()).unwrap_or_default()
    }

    pub(super) fn last(&self) -> Revision {
        Revision(self.changes.len() as u64)
    }

    /// The outcome of a transaction that began when `since` had been shown.
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

    /// The result of a read that began when `since` had been shown.
    pub(super) fn read(&mut self, all: &Everything, since: Revision) {
        assert!(all.revision >= since, "a read at {} after {since} was shown", all.revision);
        assert_eq!(*all, self.at(all.revision.0));
        self.shown = self.shown.max(all.revision);
    }

    /// Operation `op` had no effect, according to its caller's result.
    pub(super) fn void(&mut self, op: u64) {
        self.void.insert(op);
    }

    /// Checks at the end that operations without effect are nowhere, and that each conflict existed at some
    /// time during its call.
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

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    /// The change of operation `op` at `revision`, with a key that others write, too.
    fn change(revision: u64, op: u64, value: u8) -> Change {
        let key = |key: String, value: u8| (key, Some(vec![value].into()));
        Change { revision: Revision(revision), writes: vec![key(mark(op), 0), key("k".to_owned(), value)] }
    }

    fn complains(what: impl FnOnce(&mut History)) -> bool {
        let mut history = History::default();
        history.tell(&change(1, 1, 1));
        history.tell(&change(2, 2, 2));
        catch_unwind(AssertUnwindSafe(|| {
            what(&mut history);
            history.check();
        }))
        .is_err()
    }

    #[test]
    fn broken_histories_are_complained_of() {
        assert!(!complains(|it| it.tell(&change(2, 2, 2))), "another node tells the same");
        assert!(complains(|it| it.tell(&change(2, 2, 3))), "a fork");
        assert!(complains(|it| it.tell(&change(4, 4, 4))), "a gap");
        assert!(complains(|it| it.tell(&change(3, 1, 3))), "twice");
        let committed = |it: &mut History, op, revision, since| {
            it.outcome(op, &Outcome::Committed(Revision(revision)), Revision(since));
        };
        assert!(!complains(|it| committed(it, 2, 2, 1)));
        assert!(complains(|it| committed(it, 2, 1, 0)), "not its revision");
        assert!(complains(|it| committed(it, 3, 3, 0)), "never happened");
        assert!(complains(|it| committed(it, 1, 1, 1)), "before it began");
        assert!(complains(|it| it.void(1)), "it did something");
        assert!(!complains(|it| it.read(&it.at(1), Revision(1))));
        assert!(complains(|it| it.read(&it.at(1), Revision(2))), "a stale read");
        let invented = |it: &History| Everything { revision: Revision(2), ..it.at(1) };
        assert!(complains(|it| it.read(&invented(it), Revision(0))), "never was so");
        let conflict = |it: &mut History, found: Option<u64>, since| {
            let outcome = Outcome::Conflict { key: "k".to_owned(), found: found.map(Revision) };
            it.outcome(9, &outcome, Revision(since));
        };
        assert!(!complains(|it| conflict(it, Some(1), 1)) && !complains(|it| conflict(it, Some(2), 1)));
        assert!(!complains(|it| conflict(it, None, 0)));
        assert!(complains(|it| conflict(it, Some(1), 2)), "no longer so when it began");
        assert!(complains(|it| conflict(it, None, 1)), "never so during its call");
    }
}
