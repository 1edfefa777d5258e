//! The snapshots of the branches of a log.
//!
//! Each snapshot ends an era of its branch and begins the next one ([`Era`]). What is written says in which
//! era that was. When a merge finds that a block has been overwritten for the first time in an era, what was
//! there belongs to the snapshot with which the era began: its place goes into that snapshot's leaf. If the
//! block was overwritten before in the same era, nobody needs it. So a branch as it is now is read without a
//! look at snapshots, and a block of a snapshot is where the first leaf says that has it: the snapshot's own,
//! those of later ones, the branch's.
//!
//! A snapshot that is deleted is *folded* into the one before it, leaf by leaf: that one gets what it does
//! not have, and what it has makes the other's superfluous. If there is none before, nobody needs any of it.

use std::collections::{BTreeMap, BTreeSet};

use super::leaf::Era;

/// How many snapshots a branch may have.
pub(crate) const SNAPSHOTS_MAX: usize = 1000;

/// What is known of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It is not durable yet: no record says that it was taken, or that record is under way. After a crash it
    /// does not exist.
    Taking,
    /// It can be read.
    Kept,
    /// It was deleted. As long as the map has leaves of it, earlier snapshots are read through them.
    Deleted,
}

/// A snapshot of a branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    /// The era that begins with it.
    pub era: u32,
    /// How the pool's user knows it.
    pub id: u64,
    /// When it was taken, in seconds since 1970.
    pub time: u64,
    pub standing: Standing,
}

/// The snapshots of all branches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Marks {
    /// By branch, in the order of eras; branches without any are missing.
    of: BTreeMap<u32, Vec<Mark>>,
    /// The eras of those that are deleted.
    deleted: BTreeSet<Era>,
    /// The newest era that has begun. No number is used again, so of two versions of a block, the one with
    /// the larger number was written later.
    newest: u32,
}

impl Marks {
    /// No snapshots yet; the next one begins this era.
    pub(crate) fn starting(next: u32) -> Marks {
        Marks { newest: next.saturating_sub(1), ..Marks::default() }
    }

    /// The number of the next era.
    pub(crate) fn next(&self) -> u32 {
        self.newest.saturating_add(1)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.of.is_empty()
    }

    /// How many there are, including deleted ones that were not removed yet.
    pub(crate) fn len(&self) -> usize {
        self.of.values().map(Vec::len).sum()
    }

    /// All of them, with their branches.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &Mark)> {
        self.of.iter().flat_map(|(branch, marks)| marks.iter().map(move |mark| (*branch, mark)))
    }

    /// Those of a branch, in the order in which they were taken.
    pub(crate) fn of(&self, branch: u32) -> &[Mark] {
        self.of.get(&branch).map_or(&[], Vec::as_slice)
    }

    /// Whether the era begins with a snapshot.
    pub(crate) fn has(&self, era: Era) -> bool {
        has(self.of(era.branch), era.number)
    }

    /// Adds a snapshot that is newer than all of its branch; returns `false` if it is not.
    pub(crate) fn push(&mut self, branch: u32, mark: Mark) -> bool {
        let marks = self.of.entry(branch).or_default();
        let is_newer = marks.last().is_none_or(|last| last.era < mark.era);
        if is_newer {
            marks.push(mark);
            self.deleted.extend((mark.standing == Standing::Deleted).then_some(Era::new(branch, mark.era)));
        }
        is_newer
    }

    /// Takes note of an era in a record, so that its number is not used again.
    pub(crate) fn note(&mut self, era: u32) {
        self.newest = self.newest.max(era);
    }

    /// Begins an era of a branch, with a snapshot that is not durable yet.
    pub(crate) fn begin(&mut self, branch: u32, id: u64, time: u64) -> u32 {
        self.newest += 1;
        let mark = Mark { era: self.newest, id, time, standing: Standing::Taking };
        assert!(self.push(branch, mark), "eras are numbered in the order in which they begin");
        self.newest
    }

    /// Takes note that a record says that a snapshot was taken. After a crash that may be all that is known.
    pub(crate) fn taken(&mut self, branch: u32, mark: Mark) {
        self.note(mark.era);
        let marks = self.of.entry(branch).or_default();
        match marks.binary_search_by_key(&mark.era, |mark| mark.era) {
            // A late record does not bring a deleted one back.
            Ok(known) if marks[known].standing == Standing::Taking => marks[known].standing = Standing::Kept,
            Ok(_) => {}
            Err(at) => marks.insert(at, Mark { standing: Standing::Kept, ..mark }),
        }
    }

    /// Takes note that a snapshot was deleted.
    pub(crate) fn delete(&mut self, era: Era) {
        let known = self.of.get_mut(&era.branch);
        let known = known.and_then(|marks| marks.iter_mut().find(|mark| mark.era == era.number));
        if let Some(mark) = known {
            mark.standing = Standing::Deleted;
            self.deleted.insert(era);
        }
    }

    /// After a crash: what no record says was taken does not count.
    pub(crate) fn drop_unfinished(&mut self) {
        let unfinished = self.iter().filter(|(_, mark)| mark.standing == Standing::Taking);
        let unfinished: Vec<Era> = unfinished.map(|(branch, mark)| Era::new(branch, mark.era)).collect();
        unfinished.into_iter().for_each(|era| self.delete(era));
    }

    /// Removes the snapshots for which this holds. What was written in their eras counts as written in the
    /// one before.
    pub(crate) fn remove(&mut self, is_needless: impl Fn(u32, &Mark) -> bool) {
        self.of.retain(|branch, marks| {
            marks.retain(|mark| !is_needless(*branch, mark));
            !marks.is_empty()
        });
        let of = &self.of;
        let is_there = |era: &Era| of.get(&era.branch).is_some_and(|marks| has(marks, era.number));
        self.deleted.retain(is_there);
    }

    /// The snapshot with this identity, if it can be read.
    pub(crate) fn kept(&self, branch: u32, id: u64) -> Option<&Mark> {
        self.of(branch).iter().find(|mark| mark.id == id && mark.standing == Standing::Kept)
    }

    /// The snapshot with which an era begins and all later ones; `None` if it cannot be read.
    pub(crate) fn since(&self, era: Era) -> Option<&[Mark]> {
        let marks = self.of(era.branch);
        let at = marks.binary_search_by_key(&era.number, |mark| mark.era).ok()?;
        (marks[at].standing == Standing::Kept).then(|| &marks[at..])
    }

    /// The newest era that has begun, of any branch: that of what is written now.
    pub(crate) fn newest(&self) -> u32 {
        self.newest
    }

    /// What an era in a record counts as: the newest one up to it that begins with a snapshot.
    pub(crate) fn known(&self, branch: u32, era: u32) -> u32 {
        let marks = self.of(branch);
        let until = marks.partition_point(|mark| mark.era <= era);
        until.checked_sub(1).map_or(0, |last| marks[last].era)
    }

    /// The snapshot that gets what is overwritten in an era: the newest one up to its beginning that was not
    /// deleted. `None`: nobody needs it.
    pub(crate) fn reconciler(&self, branch: u32, era: u32) -> Option<u32> {
        let marks = self.of(branch).iter().rev().skip_while(|mark| mark.era > era);
        let mut kept = marks.filter(|mark| mark.standing != Standing::Deleted);
        kept.next().map(|mark| mark.era)
    }

    /// The deleted snapshots that are folded into the same one: `reconciler` is its era, or `None`.
    pub(crate) fn folded_into(&self, branch: u32, reconciler: Option<u32>) -> impl Iterator<Item = u32> {
        let behind = self.of(branch).iter().skip_while(move |mark| Some(mark.era) <= reconciler);
        behind.take_while(|mark| mark.standing == Standing::Deleted).map(|mark| mark.era)
    }

    /// The eras of deleted snapshots.
    pub(crate) fn deleted(&self) -> impl Iterator<Item = Era> {
        self.deleted.iter().copied()
    }

    /// Those of a branch.
    pub(crate) fn deleted_of(&self, branch: u32) -> impl Iterator<Item = Era> {
        self.deleted.range(Era::first(branch)..=Era::new(branch, u32::MAX)).copied()
    }
}

fn has(marks: &[Mark], era: u32) -> bool {
    marks.binary_search_by_key(&era, |mark| mark.era).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Snapshots with which eras 1 to 6 begin. Those of 1, 3, 4 and 6 were deleted.
    fn marks() -> Marks {
        let mut marks = Marks::starting(1);
        for id in 1..=6 {
            let era = marks.begin(7, id, 100 * id);
            marks.taken(7, Mark { era, id, time: 0, standing: Standing::Taking });
        }
        [1, 3, 4, 6].into_iter().for_each(|era| marks.delete(Era::new(7, era)));
        marks
    }

    #[test]
    fn what_is_overwritten_goes_to_the_newest_snapshot_before() {
        let marks = marks();
        let reconcilers = (0..=9).map(|era| marks.reconciler(7, era)).collect::<Vec<Option<u32>>>();
        let (two, five) = (Some(2), Some(5));
        assert_eq!(reconcilers, [None, None, two, two, two, five, five, five, five, five]);
        let folded = |reconciler| marks.folded_into(7, reconciler).collect::<Vec<u32>>();
        assert_eq!((folded(None), folded(two), folded(five)), (vec![1], vec![3, 4], vec![6]));
        assert_eq!((marks.reconciler(8, 3), marks.known(8, 3)), (None, 0));
        assert_eq!((marks.newest(), marks.known(7, 9)), (6, 6));
        assert_eq!(marks.deleted().map(|era| era.number).collect::<Vec<u32>>(), [1, 3, 4, 6]);
        assert!(marks.kept(7, 2).is_some() && marks.kept(7, 3).is_none() && marks.kept(8, 2).is_none());
    }

    /// The numbers are not used again: a version of a block that was written in an era which nobody knows any
    /// more is still older than what is written later.
    #[test]
    fn an_era_without_a_snapshot_counts_as_the_one_before() {
        let mut marks = marks();
        marks.remove(|_, mark| mark.standing == Standing::Deleted);
        assert_eq!((0..=6).map(|era| marks.known(7, era)).collect::<Vec<u32>>(), [0, 0, 2, 2, 2, 5, 5]);
        assert_eq!(marks.begin(7, 9, 0), 7);
        assert!(marks.kept(7, 9).is_none(), "it is not durable yet");
        marks.drop_unfinished();
        assert_eq!(marks.reconciler(7, 7), Some(5));
        marks.remove(|_, _| true);
        assert!(marks.is_empty() && marks.next() == 8);
    }

    /// A log may find a record of a snapshot that its root does not know.
    #[test]
    fn a_record_tells_of_a_snapshot() {
        let mut marks = Marks::starting(3);
        marks.push(7, Mark { era: 1, id: 1, time: 5, standing: Standing::Kept });
        let mark = |era| Mark { era, id: era.into(), time: 6, standing: Standing::Taking };
        marks.taken(7, mark(4));
        marks.taken(7, mark(3));
        assert_eq!(marks.of(7).iter().map(|mark| mark.era).collect::<Vec<u32>>(), [1, 3, 4]);
        assert!(marks.kept(7, 3).is_some() && marks.next() == 5);
        marks.delete(Era::new(7, 3));
        marks.taken(7, mark(3));
        assert!(marks.kept(7, 3).is_none());
    }
}
