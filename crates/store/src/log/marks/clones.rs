//! Clones: branches that are read through a snapshot of another branch.
//!
//! The pool's catalog alone says which clones there are. So creating and deleting one is one commit, and a
//! log needs neither a record nor an entry in its state for it.

use std::collections::{BTreeMap, BTreeSet};

use super::super::leaf::Era;
use super::Marks;
use crate::canary::{Canary, makes};

/// What a clone was made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    /// The branch of the volume: a smaller number than the clone's.
    pub branch: u32,
    /// How the pool's user knows the snapshot.
    pub snapshot: u64,
}

impl Marks {
    /// Takes over which clones there are, by branch. Their snapshots are found by identity, so these must
    /// have been loaded.
    pub(crate) fn set_origins(&mut self, wanted: &BTreeMap<u32, Origin>) {
        let mut touched: BTreeSet<u32> = self.origins.values().map(|era| era.branch).collect();
        self.origins.clear();
        self.orphans.clear();
        for (clone, origin) in wanted {
            // The branch is a smaller one, or reads could come back to the same branch again and again. And
            // it must not lack its own snapshot: what it does not have itself would read as zeros.
            let may_be_read = origin.branch < *clone && !self.is_orphan(origin.branch);
            let era = self.newest_with(origin).filter(|_| may_be_read);
            if let Some(era) = era {
                self.origins.insert(*clone, Era::new(origin.branch, era));
            } else {
                self.orphans.insert(*clone);
            }
        }
        touched.extend(self.origins.values().map(|era| era.branch));
        touched.into_iter().for_each(|branch| self.pin_again(branch));
    }

    /// The era of the snapshot that a clone was made of. An earlier one may have had the same identity, and
    /// be deleted.
    fn newest_with(&self, origin: &Origin) -> Option<u32> {
        let mut marks = self.of(origin.branch).iter().rev();
        marks.find(|mark| mark.id == origin.snapshot).map(|mark| mark.era)
    }

    /// Whether exactly these are known as clones.
    pub(crate) fn knows_clones(&self, wanted: &BTreeMap<u32, Origin>) -> bool {
        let is_known = |branch: &u32| self.is_clone(*branch) || self.is_orphan(*branch);
        wanted.len() == self.origins.len() + self.orphans.len() && wanted.keys().all(is_known)
    }

    /// Begins snapshots for clones whose own are missing. Nobody relies on what they read as.
    pub(crate) fn replace_missing(&mut self, wanted: &BTreeMap<u32, Origin>) {
        for clone in std::mem::take(&mut self.orphans) {
            let Some(origin) = wanted.get(&clone).filter(|origin| origin.branch < clone) else { continue };
            if self.newest_with(origin).is_none() {
                self.begin(origin.branch, origin.snapshot, 0);
            }
        }
        self.set_origins(wanted);
    }

    /// The branches of clones, and the snapshots that they are read through.
    #[cfg(any(test, debug_assertions))]
    pub(crate) fn origins(&self) -> impl Iterator<Item = (u32, Era)> {
        self.origins.iter().map(|(branch, era)| (*branch, *era))
    }

    /// How many clones there are.
    pub(crate) fn clones(&self) -> usize {
        self.origins.len()
    }

    /// Whether a branch is read through a snapshot of another one.
    pub(crate) fn is_clone(&self, branch: u32) -> bool {
        self.origins.contains_key(&branch)
    }

    /// The clones whose snapshot the log does not have, and clones of these.
    pub(crate) fn orphans(&self) -> impl Iterator<Item = u32> {
        self.orphans.iter().copied()
    }

    /// Whether a branch is one of them.
    pub(crate) fn is_orphan(&self, branch: u32) -> bool {
        self.orphans.contains(&branch)
    }

    /// A branch, that of its origin if it is a clone, and so on.
    pub(crate) fn ancestors(&self, branch: u32) -> impl Iterator<Item = u32> {
        std::iter::successors(Some(branch), move |branch| Some(self.origins.get(branch)?.branch))
    }

    /// Whether a clone is read through a snapshot.
    pub(crate) fn is_cloned(&self, era: Era) -> bool {
        self.origins.values().any(|origin| *origin == era) && !makes(Canary::PinForgotten)
    }

    /// Whether a clone is read through a snapshot, or is being made of it.
    pub(crate) fn is_held(&self, era: Era) -> bool {
        self.is_cloned(era) || self.held.contains_key(&era)
    }

    /// Keeps a snapshot from being deleted, until [`Marks::let_go`].
    pub(crate) fn hold(&mut self, era: Era) {
        *self.held.entry(era).or_default() += 1;
    }

    /// Ends one [`Marks::hold`].
    pub(crate) fn let_go(&mut self, era: Era) {
        if let Some(count) = self.held.get_mut(&era) {
            *count -= 1;
            if *count == 0 {
                self.held.remove(&era);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use super::super::{Mark, Restore, Standing, Stretch};
    use super::*;

    fn take(marks: &mut Marks, branch: u32, id: u64) -> Era {
        let era = marks.begin(branch, id, 0);
        marks.taken(branch, Mark { era, id, time: 0, standing: Standing::Taking });
        Era::new(branch, era)
    }

    fn restore(marks: &mut Marks, to: Era) {
        let era = marks.begin_restore(to.branch, to.number);
        marks.restored(to.branch, Restore { era, id: 0, to: to.number });
    }

    fn origins(of: &[(u32, u32, u64)]) -> BTreeMap<u32, Origin> {
        of.iter()
            .map(|(clone, branch, snapshot)| (*clone, Origin { branch: *branch, snapshot: *snapshot }))
            .collect()
    }

    /// Snapshots of branch 1 with identities 11 and 12, eras 1 and 2; a clone of the first, branch 5, with a
    /// snapshot 13 of its own, era 3; and a clone of that, branch 6.
    fn clones() -> (Marks, BTreeMap<u32, Origin>) {
        let mut marks = Marks::starting(1);
        take(&mut marks, 1, 11);
        take(&mut marks, 1, 12);
        marks.set_origins(&origins(&[(5, 1, 11)]));
        take(&mut marks, 5, 13);
        let wanted = origins(&[(5, 1, 11), (6, 5, 13)]);
        marks.set_origins(&wanted);
        (marks, wanted)
    }

    fn stretches(marks: &Marks, branch: u32, snapshot: Option<u32>) -> Vec<(u32, Vec<u32>, u32, Range<u32>)> {
        let parts = |of: Stretch| (of.branch, of.snapshots, of.line, of.entries);
        marks.stretches(branch, snapshot).unwrap().into_iter().map(parts).collect()
    }

    #[test]
    fn a_clone_is_read_through_its_origin() {
        let (mut marks, _) = clones();
        let root = (1, vec![1, 2], 0, 0..1);
        assert_eq!(stretches(&marks, 5, None), [(5, vec![], 0, 0..u32::MAX), root.clone()]);
        assert_eq!(stretches(&marks, 5, Some(3)), [(5, vec![3], 0, 0..3), root.clone()]);
        let of_clone = (5, vec![3], 0, 0..3);
        assert_eq!(stretches(&marks, 6, None), [(6, vec![], 0, 0..u32::MAX), of_clone, root.clone()]);
        assert_eq!(marks.ancestors(6).collect::<Vec<u32>>(), [6, 5, 1]);
        assert_eq!(marks.ancestors(1).collect::<Vec<u32>>(), [1]);
        let under = [Era::first(5), Era::new(1, 1), Era::new(1, 2), Era::first(1)];
        assert_eq!(marks.eras_under(5, 0), under);
        assert!(!marks.is_bare(6) && marks.is_bare(7));
        // A line of a clone that has no parent on its branch any more is still read through the origin.
        restore(&mut marks, Era::new(5, 3));
        let line = (5, vec![], 4, 4..u32::MAX);
        assert_eq!(stretches(&marks, 5, None), [line.clone(), (5, vec![3], 0, 0..3), root.clone()]);
        marks.set_parent(Era::new(5, 4), 0);
        assert_eq!(stretches(&marks, 5, None), [line, root]);
        // Only what is on the clone's own branch may differ between its snapshots.
        assert_eq!(marks.between(5, 3, None), [0..4, 4..u32::MAX]);
    }

    #[test]
    fn the_snapshot_of_a_clone_stays() {
        let (mut marks, mut wanted) = clones();
        let (first, second) = (Era::new(1, 1), Era::new(1, 2));
        assert!(marks.is_held(first) && !marks.is_held(second));
        marks.hold(second);
        marks.hold(second);
        marks.let_go(second);
        assert!(marks.is_held(second) && !marks.is_pinned(second), "a clone is being made of it");
        marks.let_go(second);
        assert!(!marks.is_held(second));
        // If it was deleted all the same, nobody gets what it has, although a line is read through it, too.
        restore(&mut marks, first);
        marks.delete(first);
        marks.delete(second);
        assert_eq!(marks.deleted().collect::<Vec<Era>>(), [second]);
        assert_eq!(marks.hidden(1).count(), 0);
        wanted.remove(&5);
        assert!(!marks.knows_clones(&wanted));
        marks.set_origins(&wanted);
        assert!(marks.knows_clones(&wanted));
        assert_eq!(marks.hidden(1).collect::<Vec<u32>>(), [1]);
        marks.remove_restores(|_, _| true);
        assert_eq!(marks.deleted().collect::<Vec<Era>>(), [first, second]);
    }

    /// Identities may be used again when their snapshots have been deleted.
    #[test]
    fn the_newest_snapshot_with_an_identity_counts() {
        let mut marks = Marks::starting(1);
        let earlier = take(&mut marks, 1, 11);
        marks.delete(earlier);
        let later = take(&mut marks, 1, 11);
        marks.set_origins(&origins(&[(5, 1, 11)]));
        assert_eq!(marks.parent(5, 0), Some(later));
        assert_eq!(marks.deleted().collect::<Vec<Era>>(), [earlier]);
    }

    #[test]
    fn a_clone_without_its_snapshot_is_an_orphan() {
        let mut marks = Marks::starting(1);
        take(&mut marks, 3, 11);
        let wanted = origins(&[(2, 3, 11), (4, 3, 12), (5, 3, 11)]);
        marks.set_origins(&wanted);
        assert_eq!(marks.orphans().collect::<Vec<u32>>(), [2, 4], "the first one would be read in a circle");
        assert!(marks.is_orphan(4) && !marks.is_clone(4) && marks.knows_clones(&wanted));
        // If nobody relies on the log, it gets one that reads as whatever is there.
        marks.replace_missing(&wanted);
        marks.delete_all();
        assert_eq!(marks.orphans().collect::<Vec<u32>>(), [2]);
        assert_eq!(marks.parent(4, 0), Some(Era::new(3, 2)));
        assert_eq!(marks.deleted().count(), 0, "both are read through");
        let mut again = marks.clone();
        again.set_origins(&wanted);
        assert_eq!(again, marks, "the next opening finds the same");
    }

    /// Before, it was not: what neither of the two had read as zeros.
    #[test]
    fn a_clone_of_an_orphan_is_an_orphan() {
        let mut marks = Marks::starting(1);
        let snapshot = take(&mut marks, 4, 13);
        let wanted = origins(&[(4, 3, 12), (5, 4, 13), (6, 3, 12)]);
        marks.set_origins(&wanted);
        assert_eq!(marks.orphans().collect::<Vec<u32>>(), [4, 5, 6]);
        marks.replace_missing(&wanted);
        assert_eq!((marks.orphans().count(), marks.parent(5, 0)), (0, Some(snapshot)));
        assert_eq!((marks.of(3).len(), marks.of(4).len()), (1, 1), "only what is missing is replaced");
    }
}
