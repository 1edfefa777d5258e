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
//!
//! A restore begins a *line* of its own: eras that follow one another, up to the next restore. What a line
//! does not have itself is read in the snapshot that it went back to, which is on an earlier line: see
//! [`Stretch`].
//!
//! A *clone* is a branch that is read through a snapshot of another one, its *origin*. Whatever line of the
//! clone has no parent on its own branch is read there. To the origin's branch a clone is one more reader of
//! a snapshot that is kept, so nothing that changes leaves there looks at clones.

mod clones;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::leaf::Era;
pub(crate) use clones::Origin;

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

/// A restore of a branch: a line begins, with the content of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Restore {
    /// The era that begins with it. Leaves of this era map the line as it is now, or was when the next line
    /// began.
    pub era: u32,
    /// How the pool's user knows it.
    pub id: u64,
    /// The era of the snapshot. 0: the line has everything itself.
    pub to: u32,
}

/// Who gets what is overwritten in an era of a line, and what deleted snapshots of the line had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Heir {
    /// The line: the era with which it begins, 0 if no restore does.
    pub line: u32,
    /// The era of the snapshot. `None`: nobody needs it.
    pub snapshot: Option<u32>,
}

/// A part of the search for what a block reads as, on one line. A block that is not found there, or is noted
/// as in the parent, is looked for in the next stretch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stretch {
    pub branch: u32,
    /// The eras of leaves of snapshots, in the order in which they are asked.
    pub snapshots: Vec<u32>,
    /// The line: its leaves come last.
    pub line: u32,
    /// The eras of entries of tables that change what those say.
    pub entries: Range<u32>,
}

impl Stretch {
    /// The eras of its leaves, in the order in which they are asked.
    pub(crate) fn eras(&self) -> impl Iterator<Item = Era> {
        self.snapshots.iter().chain([&self.line]).map(|era| Era::new(self.branch, *era))
    }
}

/// The snapshots and restores of all branches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Marks {
    /// By branch, in the order of eras; branches without any are missing.
    of: BTreeMap<u32, Vec<Mark>>,
    /// The same for restores. Those before the last one stay as long as the map has something of their lines.
    restores: BTreeMap<u32, Vec<Restore>>,
    /// The branches that are being restored, and the eras of the snapshots that they go back to.
    restoring: BTreeMap<u32, u32>,
    /// The eras of deleted snapshots that no line is read through, and no clone.
    deleted: BTreeSet<Era>,
    /// The snapshots that clones are read through, by the branch of the clone. The catalog says which clones
    /// there are: see [`Marks::set_origins`].
    origins: BTreeMap<u32, Era>,
    /// The clones whose snapshot the log does not have, and clones of these.
    orphans: BTreeSet<u32>,
    /// How many callers hold a snapshot, because they make clones of it.
    held: BTreeMap<Era, usize>,
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
        self.of.is_empty() && self.restores.is_empty()
    }

    /// How many there are, including deleted ones that were not removed yet, and restores.
    pub(crate) fn len(&self) -> usize {
        let restores: usize = self.restores.values().map(Vec::len).sum();
        self.of.values().map(Vec::len).sum::<usize>() + restores
    }

    /// All snapshots, with their branches.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &Mark)> {
        self.of.iter().flat_map(|(branch, marks)| marks.iter().map(move |mark| (*branch, mark)))
    }

    /// All restores, with their branches.
    pub(crate) fn restores(&self) -> impl Iterator<Item = (u32, &Restore)> {
        let restores = self.restores.iter();
        restores.flat_map(|(branch, of)| of.iter().map(move |restore| (*branch, restore)))
    }

    /// The branches that were restored.
    pub(crate) fn restored_branches(&self) -> impl Iterator<Item = u32> {
        self.restores.keys().copied()
    }

    /// Those of a branch, in their order.
    pub(crate) fn restores_of(&self, branch: u32) -> &[Restore] {
        self.restores.get(&branch).map_or(&[], Vec::as_slice)
    }

    /// Whether a branch has neither snapshots nor restores, and is not a clone.
    pub(crate) fn is_bare(&self, branch: u32) -> bool {
        self.of(branch).is_empty() && self.restores_of(branch).is_empty() && !self.is_clone(branch)
    }

    /// Those of a branch, in the order in which they were taken.
    pub(crate) fn of(&self, branch: u32) -> &[Mark] {
        self.of.get(&branch).map_or(&[], Vec::as_slice)
    }

    /// Whether the era begins with a snapshot, or a restore.
    pub(crate) fn has(&self, era: Era) -> bool {
        has(self.of(era.branch), era.number) || era.number > 0 && self.is_line(era.branch, era.number)
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

    /// Takes note that a snapshot was deleted. If a line or a clone is read through it, it stays.
    pub(crate) fn delete(&mut self, era: Era) {
        let known = self.of.get_mut(&era.branch);
        let known = known.and_then(|marks| marks.iter_mut().find(|mark| mark.era == era.number));
        if let Some(mark) = known {
            mark.standing = Standing::Deleted;
            if !self.is_pinned(era) {
                self.deleted.insert(era);
            }
        }
    }

    /// Begins an era of a branch with a restore to the snapshot of era `to`. It takes effect with
    /// [`Marks::restored`]; until then, or [`Marks::not_restored`], that snapshot stays.
    pub(crate) fn begin_restore(&mut self, branch: u32, to: u32) -> u32 {
        self.newest += 1;
        self.restoring.insert(branch, to);
        self.newest
    }

    /// Whether a restore of a branch has begun, and has neither taken effect nor failed.
    pub(crate) fn is_restoring(&self, branch: u32) -> bool {
        self.restoring.contains_key(&branch)
    }

    /// Takes note that a restore has taken effect. After a crash that may be all that is known.
    pub(crate) fn restored(&mut self, branch: u32, restore: Restore) {
        self.note(restore.era);
        let restores = self.restores.entry(branch).or_default();
        if let Err(at) = restores.binary_search_by_key(&restore.era, |known| known.era) {
            restores.insert(at, restore);
        }
        self.restoring.remove(&branch);
        self.pin_again(branch);
    }

    /// Takes note that a restore that had begun has ended, whether or not it has taken effect.
    pub(crate) fn not_restored(&mut self, branch: u32) {
        self.restoring.remove(&branch);
        self.pin_again(branch);
    }

    /// Adds a restore that is newer than all of its branch; returns `false` if it is not.
    pub(crate) fn push_restore(&mut self, branch: u32, restore: Restore) -> bool {
        let is_taken = has(self.of(branch), restore.era);
        let is_newer = !is_taken && self.now(branch) < restore.era && restore.to < restore.era;
        if is_newer {
            self.restored(branch, restore);
        }
        is_newer
    }

    /// The line that begins with a restore is read through another snapshot from now on, or none.
    pub(crate) fn set_parent(&mut self, line: Era, to: u32) {
        let restores = self.restores.get_mut(&line.branch);
        let restore = restores.and_then(|of| of.iter_mut().find(|restore| restore.era == line.number));
        if let Some(restore) = restore {
            restore.to = to;
        }
        self.pin_again(line.branch);
    }

    /// Removes the restores for which this holds.
    pub(crate) fn remove_restores(&mut self, is_needless: impl Fn(u32, &Restore) -> bool) {
        let branches: Vec<u32> = self.restores.keys().copied().collect();
        self.restores.retain(|branch, restores| {
            restores.retain(|restore| !is_needless(*branch, restore));
            !restores.is_empty()
        });
        branches.into_iter().for_each(|branch| self.pin_again(branch));
    }

    /// Whether a line or a clone is read through the snapshot, or a line soon will be.
    pub(crate) fn is_pinned(&self, era: Era) -> bool {
        let is_to = |restore: &Restore| restore.to == era.number;
        self.restoring.get(&era.branch) == Some(&era.number)
            || self.restores_of(era.branch).iter().any(is_to)
            || self.is_cloned(era)
    }

    /// Finds out which deleted snapshots of a branch lines and clones are read through.
    fn pin_again(&mut self, branch: u32) {
        let deleted = self.of(branch).iter().filter(|mark| mark.standing == Standing::Deleted);
        let deleted: Vec<Era> = deleted.map(|mark| Era::new(branch, mark.era)).collect();
        for era in deleted {
            if self.is_pinned(era) {
                self.deleted.remove(&era);
            } else {
                self.deleted.insert(era);
            }
        }
    }

    /// Whether a snapshot is read, or a line or a clone is read through it.
    fn is_needed(&self, branch: u32, mark: &Mark) -> bool {
        !self.deleted.contains(&Era::new(branch, mark.era))
    }

    /// After a crash: what no record says was taken does not count.
    pub(crate) fn drop_unfinished(&mut self) {
        let unfinished = self.iter().filter(|(_, mark)| mark.standing == Standing::Taking);
        let unfinished: Vec<Era> = unfinished.map(|(branch, mark)| Era::new(branch, mark.era)).collect();
        unfinished.into_iter().for_each(|era| self.delete(era));
    }

    /// Takes note that all snapshots were deleted.
    pub(crate) fn delete_all(&mut self) {
        let all: Vec<Era> = self.iter().map(|(branch, mark)| Era::new(branch, mark.era)).collect();
        all.into_iter().for_each(|era| self.delete(era));
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

    /// The line that a branch is on now: the era of its last restore, 0 if there is none.
    pub(crate) fn now(&self, branch: u32) -> u32 {
        self.restores_of(branch).last().map_or(0, |restore| restore.era)
    }

    /// The line of an era.
    pub(crate) fn line(&self, branch: u32, era: u32) -> u32 {
        let until = self.restores_of(branch).iter().rev().find(|restore| restore.era <= era);
        until.map_or(0, |restore| restore.era)
    }

    /// Whether a line begins with this era.
    pub(crate) fn is_line(&self, branch: u32, era: u32) -> bool {
        self.line(branch, era) == era
    }

    /// All lines of a branch that the map may have something of.
    pub(crate) fn lines(&self, branch: u32) -> impl Iterator<Item = u32> {
        std::iter::once(0).chain(self.restores_of(branch).iter().map(|restore| restore.era))
    }

    /// The eras of a line.
    pub(crate) fn eras_of_line(&self, branch: u32, line: u32) -> Range<u32> {
        let next = self.restores_of(branch).iter().find(|restore| restore.era > line);
        line..next.map_or(u32::MAX, |restore| restore.era)
    }

    /// The snapshots of a line.
    pub(crate) fn of_line(&self, branch: u32, line: u32) -> &[Mark] {
        let (marks, eras) = (self.of(branch), self.eras_of_line(branch, line));
        let until = |era: u32| marks.partition_point(|mark| mark.era < era);
        &marks[until(eras.start)..until(eras.end)]
    }

    /// Whether a line is the present one, or has snapshots that are needed.
    pub(crate) fn is_line_needed(&self, branch: u32, line: u32) -> bool {
        line == self.now(branch) || self.of_line(branch, line).iter().any(|mark| self.is_needed(branch, mark))
    }

    /// The snapshot that a line is read through: the one that it went back to, or else the one of which the
    /// branch is a clone.
    pub(crate) fn parent(&self, branch: u32, line: u32) -> Option<Era> {
        let own = self.own_parent(branch, line).map(|to| Era::new(branch, to));
        own.or_else(|| self.origins.get(&branch).copied())
    }

    /// The era of the snapshot of the same branch that a line went back to.
    pub(crate) fn own_parent(&self, branch: u32, line: u32) -> Option<u32> {
        let restore = self.restores_of(branch).iter().find(|restore| restore.era == line);
        restore.map(|restore| restore.to).filter(|to| *to > 0)
    }

    /// The lines that are needed, and read through this snapshot.
    pub(crate) fn children(&self, branch: u32, snapshot: u32) -> impl Iterator<Item = u32> {
        let lines = self.restores_of(branch).iter().filter(move |restore| restore.to == snapshot);
        lines.map(|restore| restore.era).filter(move |line| self.is_line_needed(branch, *line))
    }

    /// The leaves that say last what a line that is needed reads as: its own, before them those of its last
    /// snapshot if it is a former line, because nobody reads what came later.
    pub(crate) fn end_of_line(&self, branch: u32, line: u32) -> (u32, Option<u32>) {
        let is_former = line != self.now(branch);
        (line, self.heir_of_line(branch, line).snapshot.filter(|_| is_former))
    }

    /// The eras of deleted snapshots that lines are read through, and no clone: with one, they keep what they
    /// have.
    pub(crate) fn hidden(&self, branch: u32) -> impl Iterator<Item = u32> {
        let deleted = self.of(branch).iter().filter(|mark| mark.standing == Standing::Deleted);
        let needed = deleted.filter(move |mark| self.is_needed(branch, mark)).map(|mark| mark.era);
        needed.filter(move |era| !self.is_cloned(Era::new(branch, *era)))
    }

    /// Where to look for what a branch reads as now, or read as in the snapshot with which an era began.
    /// `None`: that cannot be read.
    pub(crate) fn stretches(&self, branch: u32, snapshot: Option<u32>) -> Option<Vec<Stretch>> {
        if let Some(era) = snapshot {
            let marks = self.of(branch);
            let at = marks.binary_search_by_key(&era, |mark| mark.era).ok()?;
            if marks[at].standing != Standing::Kept {
                return None;
            }
        }
        let line = snapshot.map_or(self.now(branch), |era| self.line(branch, era));
        Some(self.stretches_of(branch, line, snapshot))
    }

    /// The same for what a line reads as at its end, or in one of its snapshots, whoever may read it.
    pub(crate) fn stretches_of(&self, branch: u32, line: u32, snapshot: Option<u32>) -> Vec<Stretch> {
        let stretch = |branch: u32, line: u32, snapshot: Option<u32>| {
            let later = self.of_line(branch, line).iter().map(|mark| mark.era);
            let snapshots = later.filter(|era| snapshot.is_some_and(|snapshot| *era >= snapshot)).collect();
            let end = snapshot.unwrap_or(self.eras_of_line(branch, line).end);
            Stretch { branch, snapshots, line, entries: line..end }
        };
        let mut found = vec![stretch(branch, line, snapshot)];
        let (mut branch, mut line) = (branch, line);
        while let Some(to) = self.parent(branch, line) {
            (branch, line) = (to.branch, self.line(to.branch, to.number));
            found.push(stretch(branch, line, Some(to.number)));
        }
        found
    }

    /// The eras of the leaves that may say what a line reads as at its end; of a clone, those of other
    /// branches, too.
    pub(crate) fn eras_under(&self, branch: u32, line: u32) -> Vec<Era> {
        self.stretches_of(branch, line, None).iter().flat_map(Stretch::eras).collect()
    }

    /// The eras in which what one snapshot reads as may have become what another one does, or the branch does
    /// now.
    pub(crate) fn between(&self, branch: u32, one: u32, other: Option<u32>) -> Vec<Range<u32>> {
        let of = |snapshot: Option<u32>| {
            let line = snapshot.map_or(self.now(branch), |era| self.line(branch, era));
            // What the branch is a clone of is the same for both.
            let stretches = self.stretches_of(branch, line, snapshot).into_iter();
            let own = stretches.filter(|stretch| stretch.branch == branch);
            own.map(|stretch| stretch.entries).rev().collect::<Vec<Range<u32>>>()
        };
        let (mut one, mut other) = (of(Some(one)), of(other));
        let common = one.iter().zip(&other).take_while(|(one, other)| one == other).count();
        let (mut one, mut other) = (one.split_off(common), other.split_off(common));
        // On the last line that both have, they differ in where they leave it.
        let mut on_both = None;
        if let (Some(first), Some(second)) = (one.first(), other.first())
            && first.start == second.start
        {
            on_both = Some(first.end.min(second.end)..first.end.max(second.end));
            one.remove(0);
            other.remove(0);
        }
        // Of a line that only one of them has, anything may differ. What was written there before a snapshot
        // may be in the leaf of a later one: that of a former line is folded into its last snapshot.
        let whole = one.into_iter().chain(other).map(|eras| self.eras_of_line(branch, eras.start));
        on_both.into_iter().chain(whole).collect()
    }

    /// The newest era that has begun, of any branch: that of what is written now.
    pub(crate) fn newest(&self) -> u32 {
        self.newest
    }

    /// What an era in a record counts as: the newest one up to it that begins with a snapshot.
    pub(crate) fn known(&self, branch: u32, era: u32) -> u32 {
        let marks = self.of(branch);
        let until = marks.partition_point(|mark| mark.era <= era);
        until.checked_sub(1).map_or(0, |last| marks[last].era).max(self.line(branch, era))
    }

    /// The snapshot that gets what is overwritten in an era: the newest one of its line up to its beginning
    /// that is needed.
    pub(crate) fn heir(&self, branch: u32, era: u32) -> Heir {
        let line = self.line(branch, era);
        let marks = self.of_line(branch, line).iter().rev().skip_while(|mark| mark.era > era);
        let mut needed = marks.filter(|mark| self.is_needed(branch, mark));
        Heir { line, snapshot: needed.next().map(|mark| mark.era) }
    }

    /// The one that gets what a line had at its end.
    pub(crate) fn heir_of_line(&self, branch: u32, line: u32) -> Heir {
        self.heir(branch, self.eras_of_line(branch, line).end - 1)
    }

    /// The deleted snapshots that are folded into the same one.
    pub(crate) fn folded_into(&self, branch: u32, heir: Heir) -> impl Iterator<Item = u32> {
        let marks = self.of_line(branch, heir.line).iter();
        let behind = marks.skip_while(move |mark| Some(mark.era) <= heir.snapshot);
        behind.take_while(move |mark| !self.is_needed(branch, mark)).map(|mark| mark.era)
    }

    /// The eras with which lines begin that nobody needs.
    pub(crate) fn needless_lines(&self) -> impl Iterator<Item = Era> {
        let needless = self.restores().filter(|(branch, of)| !self.is_line_needed(*branch, of.era));
        needless.map(|(branch, restore)| Era::new(branch, restore.era))
    }

    /// The eras of deleted snapshots that no line is read through, and no clone.
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
        let heir = |era| marks.heir(7, era).snapshot;
        let heirs = (0..=9).map(heir).collect::<Vec<Option<u32>>>();
        let (two, five) = (Some(2), Some(5));
        assert_eq!(heirs, [None, None, two, two, two, five, five, five, five, five]);
        let folded = |snapshot| marks.folded_into(7, Heir { line: 0, snapshot }).collect::<Vec<u32>>();
        assert_eq!((folded(None), folded(two), folded(five)), (vec![1], vec![3, 4], vec![6]));
        assert_eq!((marks.heir(8, 3).snapshot, marks.known(8, 3)), (None, 0));
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
        assert_eq!(marks.heir(7, 7).snapshot, Some(5));
        marks.remove(|_, _| true);
        assert!(marks.is_empty() && marks.next() == 8);
    }

    /// Snapshots with which eras 1 to 3 begin; a restore to that of 2, and snapshots with 5 and 6; and a
    /// restore to that of 5.
    fn lines() -> Marks {
        let mut marks = Marks::starting(1);
        let take = |marks: &mut Marks| {
            let era = marks.begin(7, marks.next().into(), 0);
            marks.taken(7, Mark { era, id: 0, time: 0, standing: Standing::Taking });
        };
        (0..3).for_each(|_| take(&mut marks));
        let era = marks.begin_restore(7, 2);
        marks.restored(7, Restore { era, id: 1, to: 2 });
        (0..2).for_each(|_| take(&mut marks));
        let era = marks.begin_restore(7, 5);
        marks.restored(7, Restore { era, id: 2, to: 5 });
        marks
    }

    #[test]
    fn a_line_is_read_through_its_parent() {
        let mut marks = lines();
        let stretches = |snapshot| {
            let stretches = marks.stretches(7, snapshot).unwrap().into_iter();
            let parts = |of: Stretch| (of.snapshots, of.line, of.entries);
            stretches.map(parts).collect::<Vec<(Vec<u32>, u32, Range<u32>)>>()
        };
        let (root, middle) = ((vec![2, 3], 0, 0..2), (vec![5, 6], 4, 4..5));
        assert_eq!(stretches(None), [(vec![], 7, 7..u32::MAX), middle.clone(), root.clone()]);
        assert_eq!(stretches(Some(6)), [(vec![6], 4, 4..6), root.clone()]);
        assert_eq!(stretches(Some(1)), [(vec![1, 2, 3], 0, 0..1)]);
        assert_eq!((0..=8).map(|era| marks.known(7, era)).collect::<Vec<u32>>(), [0, 1, 2, 3, 4, 5, 6, 7, 7]);
        let heir = |line, snapshot| Heir { line, snapshot };
        assert_eq!((marks.heir(7, 3), marks.heir(7, 4)), (heir(0, Some(3)), heir(4, None)));
        assert_eq!((marks.heir(7, 6), marks.heir(7, 7)), (heir(4, Some(6)), heir(7, None)));
        // A parent that is deleted is hidden, and still gets what others hand over.
        [2, 3, 5, 6].into_iter().for_each(|era| marks.delete(Era::new(7, era)));
        assert_eq!(marks.deleted().map(|era| era.number).collect::<Vec<u32>>(), [3, 6]);
        assert_eq!(marks.hidden(7).collect::<Vec<u32>>(), [2, 5]);
        assert!(marks.stretches(7, Some(2)).is_none() && marks.kept(7, 2).is_none());
        assert_eq!(marks.heir_of_line(7, 0), heir(0, Some(2)));
        assert_eq!(marks.folded_into(7, heir(0, Some(2))).collect::<Vec<u32>>(), [3]);
        assert_eq!((marks.end_of_line(7, 4), marks.end_of_line(7, 7)), ((4, Some(5)), (7, None)));
        assert!(marks.is_line_needed(7, 4) && marks.needless_lines().next().is_none());
        // Nothing is left of them.
        marks.set_parent(Era::new(7, 4), 0);
        marks.set_parent(Era::new(7, 7), 0);
        assert_eq!(marks.deleted().map(|era| era.number).collect::<Vec<u32>>(), [2, 3, 5, 6]);
        assert!(!marks.is_line_needed(7, 4));
        assert_eq!(marks.needless_lines().collect::<Vec<Era>>(), [Era::new(7, 4)]);
    }

    #[test]
    fn what_may_differ_lies_on_the_way_from_one_to_the_other() {
        let mut marks = lines();
        let eras = 1..3;
        assert_eq!(marks.between(7, 1, Some(3)), [eras]);
        assert_eq!(marks.between(7, 3, Some(6)), [2..3, 4..7]);
        assert_eq!(*marks.between(7, 2, Some(5)), *std::slice::from_ref(&(4..7)));
        assert_eq!(marks.between(7, 2, None), [4..7, 7..u32::MAX]);
        assert_eq!(marks.between(7, 6, None), [5..6, 7..u32::MAX]);
        marks.set_parent(Era::new(7, 7), 0);
        assert_eq!(marks.between(7, 1, None), [0..4, 7..u32::MAX]);
    }

    /// Before it has taken effect, the snapshot may be deleted.
    #[test]
    fn a_snapshot_stays_while_a_branch_is_restored_to_it() {
        let mut marks = marks();
        let era = marks.begin_restore(7, 5);
        marks.delete(Era::new(7, 5));
        assert!(!marks.deleted().any(|era| era.number == 5) && marks.is_restoring(7));
        let mut failed = marks.clone();
        failed.not_restored(7);
        assert!(failed.deleted().any(|era| era.number == 5) && !failed.is_restoring(7));
        marks.restored(7, Restore { era, id: 1, to: 5 });
        marks.not_restored(7);
        assert!(!marks.deleted().any(|era| era.number == 5) && marks.now(7) == 7);
        marks.remove_restores(|_, _| true);
        assert!(marks.deleted().any(|era| era.number == 5) && marks.now(7) == 0);
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
