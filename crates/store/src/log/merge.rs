//! Merging the leaves of a branch that map the same blocks, those of snapshots included.
//!
//! What must never happen: a place is freed that a leaf still names, or one that the disk may read again some
//! day; two of these leaves change, and only one takes effect.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use rt::DiskError;

use super::changes::{Changes, Move};
use super::checkpoint::STEP_LEAVES;
use super::leaf::{Era, GroupKey, LEAF_BLOCKS, Leaf, LeafKey, Spots};
use super::marks::Heir;
use super::place::{Place, SLOT_QUARTERS, Slots, Spot, Stored};
use super::{Running, Usage};
use crate::canary::{Canary, makes};

/// Leaves of a branch that map the same blocks. They change together: a block that is overwritten goes from
/// one to another.
#[derive(Default)]
pub(super) struct Group {
    pub(super) key: GroupKey,
    /// The frozen table has changes or moves of blocks of the branch.
    is_changed: bool,
    /// It has changes.
    is_written: bool,
    /// The eras of leaves that are written somewhere else in any case.
    forced: Vec<u32>,
    /// These are of deleted snapshots, and are folded. Or what lines hold is handed on.
    folds: bool,
    /// Former lines whose leaves are folded, too.
    pub(super) retired: Vec<u32>,
    /// Hidden snapshots that hand what they have to who still needs it.
    pub(super) hidden: Vec<u32>,
    /// What the blocks of the leaves read as that have been read, by era.
    leaves: BTreeMap<u32, Box<Spots>>,
    /// The eras of leaves that were read in search of moved blocks, and name none. They are not kept: there
    /// may be a thousand, of 8 KiB each.
    pub(super) searched: BTreeSet<u32>,
    /// Which blocks some leaf has that was read and is not kept. Empty: there is no such leaf.
    under: Vec<bool>,
    /// Why leaves cannot be read, by era.
    pub(super) unreadable: BTreeMap<u32, DiskError>,
    /// Leaves that cannot be read stay where they are.
    has_left: bool,
    /// A leaf that a clone is read through cannot be read: whatever is unmapped must be hidden.
    pub(super) hides_all: bool,
}

impl Group {
    /// The leaves of these lines are folded, and these hidden snapshots hand on what they have.
    pub(super) fn settling(key: GroupKey, retired: Vec<u32>, hidden: Vec<u32>) -> Group {
        Group { key, folds: true, retired, hidden, ..Group::default() }
    }

    /// A leaf that is only written somewhere else. If the frozen table changes it, that has been merged.
    pub(super) fn evacuated(key: LeafKey) -> Group {
        let (era, number) = key;
        Group { key: (era.branch, number), forced: vec![era.number], ..Group::default() }
    }

    pub(super) fn leaf(&self, era: u32) -> LeafKey {
        (Era::new(self.key.0, era), self.key.1)
    }

    /// Notes which blocks a leaf has that is not kept.
    pub(super) fn lies_over(&mut self, spots: &Spots) {
        self.under.resize(spots.len(), false);
        for (under, spot) in self.under.iter_mut().zip(spots) {
            *under |= *spot != Spot::Nothing;
        }
    }
}

pub(super) const NOTHING: Spots = [Spot::Nothing; LEAF_BLOCKS as usize];

/// What the merge of a group changes.
pub(super) struct Merged {
    pub(super) branch: u32,
    /// The leaves that change. They have 8 KiB each, which would be copied with each move otherwise.
    pub(super) leaves: Vec<(LeafKey, Box<Spots>)>,
    /// Slots that no leaf of the group points at any more, and what those of them take that were blocks which
    /// the branch no longer has.
    pub(super) dead: Vec<Slots>,
    pub(super) forgotten: Usage,
}

/// Folds a leaf into that of a snapshot before it, or into nothing.
fn fold(
    leaves: &mut BTreeMap<u32, Box<Spots>>,
    era: u32,
    into: Option<u32>,
    changed: &mut BTreeSet<u32>,
    die: &mut dyn FnMut(Stored),
) {
    let Some(spots) = leaves.get_mut(&era) else { return };
    let folded = std::mem::replace(&mut **spots, NOTHING);
    changed.insert(era);
    let kept = into.and_then(|era| Some((era, leaves.get_mut(&era)?)));
    let Some((into, kept)) = kept else {
        folded.iter().filter_map(|spot| spot.stored()).for_each(die);
        return;
    };
    for (spot, kept) in folded.iter().zip(kept.iter_mut()) {
        let is_first = *kept == Spot::Nothing || makes(Canary::FoldOver);
        if is_first && *spot != Spot::Nothing {
            *kept = *spot;
            changed.insert(into);
        } else if let Some(stored) = spot.stored() {
            die(stored);
        }
    }
}

/// Whether a block lies in this place.
fn is_at(spot: Spot, place: Place) -> bool {
    spot.stored().is_some_and(|stored| stored.place == place)
}

impl Running {
    /// The next groups to be merged: those of which the frozen table changes a leaf, and those of `others`,
    /// the last one first.
    pub(super) fn next_groups(&self, mut from: GroupKey, others: &mut Vec<LeafKey>) -> Vec<Group> {
        let of = |(era, number): LeafKey| (era.branch, number);
        let (mut groups, mut leaves) = (Vec::new(), 0);
        while leaves < STEP_LEAVES {
            let next = |era, leaves| self.next_leaf_under(era, leaves);
            let changed = self.frozen.as_ref().and_then(|frozen| frozen.next_group(from, &next));
            let other = others.last().map(|key| of(*key));
            let Some(key) = changed.into_iter().chain(other).min() else { break };
            // What a clone has to hide is known when what it is read through has been merged. Its branch
            // comes later, but leaves of a step take effect together.
            let is_of_other = |group: &Group| group.key.0 != key.0;
            if groups.last().is_some_and(is_of_other) && self.marks.is_clone(key.0) {
                break;
            }
            let mut forced = Vec::new();
            while let Some((era, _)) = others.pop_if(|other| of(*other) == key) {
                forced.push(era.number);
            }
            let written = || self.frozen.as_ref()?.next_changed_group(key, &next);
            let is_changed = changed == Some(key);
            let is_written = is_changed && written() == Some(key);
            let group = Group { key, is_changed, is_written, forced, ..Group::default() };
            leaves += self.unread(&group).len() + self.leaves_beneath(&group).len();
            groups.push(group);
            from = (key.0, key.1 + 1);
        }
        groups
    }

    /// The first of these leaves that the map has of what is written over in an era.
    pub(super) fn next_leaf_under(&self, era: Era, leaves: RangeInclusive<u64>) -> Option<u64> {
        let branch = era.branch;
        let first = |era: Era| self.next_leaf_of_era(era, leaves.clone());
        let line = self.marks.line(branch, era.number);
        if self.marks.parent(branch, line).is_none() {
            return first(Era::new(branch, line));
        }
        self.marks.eras_under(branch, line).into_iter().filter_map(first).min()
    }

    /// The lines whose own leaves the frozen table's entries for a group change.
    fn written_lines(&self, group: &Group) -> impl Iterator<Item = u32> {
        let (branch, number) = group.key;
        let frozen = self.frozen.iter().filter(|_| group.is_written);
        let eras = frozen
            .flat_map(move |frozen| frozen.eras(branch).filter(move |era| frozen.touches(*era, number)));
        eras.map(move |era| self.marks.line(branch, era.number))
    }

    /// The same, and the present line: moved blocks are most likely there.
    fn changed_lines(&self, group: &Group) -> impl Iterator<Item = u32> {
        let now = group.is_changed.then(|| self.marks.now(group.key.0));
        self.written_lines(group).chain(now)
    }

    /// The eras of the leaves of a group that must be read next. None: it can be merged.
    pub(super) fn unread(&self, group: &Group) -> Vec<u32> {
        if group.forced.is_empty() && self.marks.is_bare(group.key.0) {
            let is_done = !group.leaves.is_empty() || !group.unreadable.is_empty();
            return if is_done { Vec::new() } else { vec![0] };
        }
        let mut eras: BTreeSet<u32> = group.forced.iter().copied().collect();
        eras.extend(self.changed_lines(group));
        eras.extend(self.eras_of_snapshots(group));
        eras.extend(self.eras_to_hand_on(group));
        eras.extend(self.eras_to_hide(group));
        eras.retain(|era| !group.leaves.contains_key(era) && !group.unreadable.contains_key(era));
        if eras.is_empty() {
            eras.extend(self.next_to_search(group));
        }
        eras.into_iter().collect()
    }

    /// The eras of the leaves of snapshots that may change with a group.
    ///
    /// What is overwritten goes to a snapshot, but only if neither it, nor a deleted one that is folded into
    /// it, has the block already. And deleted ones are folded together, because the oldest of them that has a
    /// block counts.
    fn eras_of_snapshots(&self, group: &Group) -> BTreeSet<u32> {
        let (branch, number) = group.key;
        let mut eras = BTreeSet::new();
        for heir in self.heirs(group) {
            let deleted = self.marks.folded_into(branch, heir);
            eras.extend(deleted.filter(|era| self.leaves.contains_key(&(Era::new(branch, *era), number))));
            eras.extend(heir.snapshot);
        }
        eras
    }

    /// The eras of the leaves that say which blocks of a group have something that must be hidden when they
    /// are unmapped, because the volume was restored.
    fn eras_to_hide(&self, group: &Group) -> BTreeSet<u32> {
        let branch = group.key.0;
        let is_restored = !self.marks.restores_of(branch).is_empty();
        let under = self.eras_under_unmapped(group).filter(|era| is_restored && era.branch == branch);
        let is_unread =
            |era: &u32| self.leaves.contains_key(&group.leaf(*era)) && !group.searched.contains(era);
        under.map(|era| era.number).filter(is_unread).collect()
    }

    /// The same of other branches, because the volume is a clone.
    pub(super) fn leaves_beneath(&self, group: &Group) -> BTreeSet<LeafKey> {
        let (branch, number) = group.key;
        let under = self.eras_under_unmapped(group).filter(|era| era.branch != branch);
        under.map(|era| (era, number)).filter(|key| self.leaves.contains_key(key)).collect()
    }

    /// The eras of the leaves that the lines are read through in which blocks of a group are unmapped.
    fn eras_under_unmapped(&self, group: &Group) -> impl Iterator<Item = Era> {
        let (branch, number) = group.key;
        let has_parents = !self.marks.restores_of(branch).is_empty() || self.marks.is_clone(branch);
        let frozen = self.frozen.iter().filter(|_| group.is_written && has_parents);
        let unmapped =
            frozen.flat_map(move |frozen| frozen.eras(branch).filter(move |era| frozen.unmaps(*era, number)));
        let lines: BTreeSet<u32> = unmapped.map(|era| self.marks.line(branch, era.number)).collect();
        let lines = lines.into_iter().filter(move |line| self.marks.parent(branch, *line).is_some());
        lines.flat_map(move |line| self.marks.eras_under(branch, line))
    }

    /// The snapshots that get something of a group: what is overwritten, and what deleted ones had.
    ///
    /// A leaf of a deleted one that is only written somewhere else is not folded for that: the other one
    /// would have to be read and written, too.
    fn heirs(&self, group: &Group) -> BTreeSet<Heir> {
        let (branch, number) = group.key;
        let frozen = self.frozen.as_ref().filter(|_| group.is_written);
        let written = frozen.into_iter().flat_map(|frozen| {
            frozen.eras(branch).filter(move |era| frozen.touches(*era, number)).map(|era| era.number)
        });
        let folded = group.forced.iter().copied().filter(|_| group.folds);
        let mut heirs: BTreeSet<Heir> =
            written.chain(folded).map(|era| self.marks.heir(branch, era)).collect();
        heirs.extend(group.retired.iter().map(|line| self.marks.heir_of_line(branch, *line)));
        for hidden in &group.hidden {
            heirs.extend([hidden - 1, *hidden].map(|era| self.marks.heir(branch, era)));
        }
        heirs
    }

    /// The moves of a group of which no leaf that was read names the old place, though that is live: the era
    /// in which the block was written, and the move.
    ///
    /// Of a block that has died, the new place dies, too, whichever leaf named it.
    fn unowned(&self, group: &Group) -> impl Iterator<Item = (u32, Move)> {
        let moves =
            self.frozen.iter().filter(|_| group.is_changed).flat_map(|frozen| frozen.moves_of(group.key));
        let is_unowned = |(_, block, moved): &(u32, u64, Move)| {
            let index = (*block % LEAF_BLOCKS) as usize;
            self.segments.is_set(moved.from)
                && !group.leaves.values().any(|spots| is_at(spots[index], moved.from))
        };
        moves.filter(is_unowned).map(|(written, _, moved)| (written, moved))
    }

    /// The era of the next leaf of a group to be read because it may name a block that the cleaner has moved.
    fn next_to_search(&self, group: &Group) -> Option<u32> {
        let (branch, _) = group.key;
        let marks = self.marks.of(branch);
        let is_unread = |era: &u32| {
            let is_known = group.leaves.contains_key(era) || group.searched.contains(era);
            !is_known && !group.unreadable.contains_key(era) && self.leaves.contains_key(&group.leaf(*era))
        };
        let mut unowned = self.unowned(group).filter(|_| !self.marks.is_bare(branch));
        unowned.find_map(|(written, _)| {
            // It was overwritten in a later era than that in which it was written. If no leaf of these names
            // it, and none of the others does either, nothing does.
            let later = marks.partition_point(|mark| mark.era <= written);
            let snapshots = marks[later..].iter().chain(&marks[..later]).map(|mark| mark.era);
            snapshots.chain(self.marks.lines(branch)).find(is_unread)
        })
    }

    /// Keeps what the blocks of a leaf of a group read as, unless it was only searched for moved blocks, and
    /// names none.
    pub(super) fn keep(&self, group: &mut Group, era: u32, spots: Spots) {
        let key = group.key;
        let names = |block: u64, moved: Move| is_at(spots[(block % LEAF_BLOCKS) as usize], moved.from);
        let moves = |frozen: &Changes| frozen.moves_of(key).any(|(_, block, moved)| names(block, moved));
        let is_needed = self.marks.is_bare(key.0)
            || group.forced.contains(&era)
            || self.changed_lines(group).any(|line| line == era)
            || self.eras_of_snapshots(group).contains(&era)
            || self.hands_on(group, era, &spots)
            || self.frozen.as_ref().is_some_and(moves);
        if is_needed {
            group.leaves.insert(era, Box::new(spots));
        } else {
            group.searched.insert(era);
            group.lies_over(&spots);
        }
    }

    /// Whether deleted snapshots still have leaves, and may be folded.
    pub(super) fn has_to_fold(&self) -> bool {
        self.to_fold() > 0
    }

    /// The same, and there is room for leaves that get something.
    pub(super) fn may_fold(&self) -> bool {
        self.has_to_fold() && self.room_to_fold() > 0
    }

    /// How many leaves they have, or at least as many as a step folds.
    ///
    /// Asked for each record, so it does not count those of a thousand snapshots.
    pub(super) fn to_fold(&self) -> u64 {
        let (mut leaves, unfolded) = (0, self.unfolded.len() as u64);
        if !self.folding_paused {
            let mut held = self.marks.deleted().filter_map(|era| self.held.get(&era));
            while leaves < STEP_LEAVES as u64 + unfolded
                && let Some(held) = held.next()
            {
                leaves += held.leaves;
            }
        }
        let left = leaves.saturating_sub(unfolded);
        // What lines hand on is not counted: it is not known without a look.
        if self.unsettled.is_empty() || self.folding_paused { left } else { left.max(STEP_LEAVES as u64) }
    }

    /// The next groups with leaves of deleted snapshots. None if there are too few segments for the leaves
    /// that would be written: those that the next root frees are needed first.
    pub(super) fn next_to_fold(&mut self) -> Vec<Group> {
        let (mut groups, mut leaves) = (Vec::new(), 0);
        if !self.may_fold() {
            return groups;
        }
        // Of each group, one leaf is written at most.
        let most = self.room_to_fold();
        self.make_room_to_fold();
        for era in self.marks.deleted().filter(|era| self.held.contains_key(era)) {
            let keys = self.leaves.range((era, 0)..=(era, u64::MAX)).map(|(key, _)| *key);
            for (_, number) in keys.filter(|key| !self.unfolded.contains(key)) {
                if leaves >= STEP_LEAVES || groups.len() >= most {
                    break;
                }
                let (key, forced) = ((era.branch, number), vec![era.number]);
                let group = Group { key, forced, folds: true, ..Group::default() };
                leaves += self.unread(&group).len();
                groups.push(group);
            }
            if !groups.is_empty() {
                break;
            }
        }
        groups
    }

    /// The leaves of a group that change, after the changes of the frozen table. Of a volume that is gone,
    /// nothing is left.
    pub(super) fn merged(&self, group: Group, is_gone: bool) -> Merged {
        let heirs = self.heirs(&group);
        let (is_changed, is_written, has_left) = (group.is_changed, group.is_written, group.has_left);
        let hides_all = has_left || group.hides_all;
        let Group { key, forced, retired, hidden, mut leaves, under, .. } = group;
        let (branch, number) = key;
        let first = number * LEAF_BLOCKS;
        let mut dead = Vec::new();
        let mut forgotten = Usage::default();
        let mut die = |stored: Stored| {
            Slots::add(&mut dead, stored.place);
            forgotten.add(Usage::of(stored.place.run(1)));
        };
        let mut changed: BTreeSet<u32> = forced.into_iter().collect();
        let mut moved_away = Vec::new();
        // If not, they have been merged already, or there are none.
        let frozen = self.frozen.iter().filter(|_| is_changed);
        for (_, block, moved) in frozen.flat_map(|frozen| frozen.moves_of(key)) {
            let index = (block - first) as usize;
            let owner = leaves.iter().find(|(_, spots)| is_at(spots[index], moved.from)).map(|(era, _)| *era);
            let owner = owner.filter(|_| self.segments.is_set(moved.from));
            let owner = owner.or(makes(Canary::MoveWithoutLooking).then_some(0));
            let owner = owner.and_then(|era| Some((era, leaves.get_mut(&era)?)));
            if let Some((era, spots)) = owner {
                spots[index] = Spot::At(moved.to);
                changed.insert(era);
                Slots::add(&mut moved_away, moved.from);
            } else if has_left && self.segments.is_set(moved.from) {
                // A leaf that stays may name the old place, and the new one has died already.
            } else {
                Slots::add(&mut moved_away, moved.to.place);
                if self.is_orphan(moved) {
                    Slots::add(&mut moved_away, moved.from);
                }
            }
        }
        // Of deleted snapshots, the one before gets what it does not have.
        for heir in heirs {
            for deleted in self.marks.folded_into(branch, heir) {
                fold(&mut leaves, deleted, heir.snapshot, &mut changed, &mut die);
            }
        }
        let frozen = self.frozen.as_ref().filter(|_| is_written);
        for (frozen, era) in
            frozen.into_iter().flat_map(|frozen| frozen.eras(branch).map(move |era| (frozen, era)))
        {
            let line = self.marks.line(branch, era.number);
            let Some(mut now) = leaves.remove(&line) else { continue };
            changed.insert(line);
            let before = *now;
            // Of a line that has a parent, the leaf must hide what that has.
            let has_parent = self.marks.parent(branch, line).is_some();
            let unwritten = if has_parent { Spot::Parent } else { Spot::Zeros };
            let zeros = if has_parent { Spot::Zeros } else { Spot::Nothing };
            frozen.overlay(era, first, &mut now[..], zeros);
            // Where none of them has anything, there is nothing to hide. A note for each block would make the
            // map of a sparse volume many times as large.
            if has_parent && !hides_all {
                let eras = self.marks.eras_under(branch, line).into_iter().filter(|era| era.branch == branch);
                let kept = eras.filter_map(|era| leaves.get(&era.number)).collect::<Vec<_>>();
                for (index, (old, new)) in before.iter().zip(now.iter_mut()).enumerate() {
                    let is_hidden = || {
                        let is_there = under.get(index).is_some_and(|under| *under);
                        is_there || kept.iter().any(|spots| spots[index] != Spot::Nothing)
                    };
                    if *new == Spot::Zeros && *old == Spot::Nothing && !is_hidden() {
                        *new = Spot::Nothing;
                    }
                }
            }
            let heir = self.marks.heir(branch, era.number).snapshot.filter(|_| !is_gone);
            let mut kept = heir.and_then(|era| Some((era, leaves.get_mut(&era)?)));
            for (index, (old, new)) in before.iter().zip(now.iter()).enumerate() {
                if old == new {
                    continue;
                }
                match &mut kept {
                    // The first time that it is overwritten since the snapshot.
                    Some((era, kept)) if kept[index] == Spot::Nothing => {
                        kept[index] = if *old == Spot::Nothing { unwritten } else { *old };
                        changed.insert(*era);
                        if !makes(Canary::FreeKept) {
                            continue;
                        }
                    }
                    _ => {}
                }
                old.stored().into_iter().for_each(&mut die);
            }
            leaves.insert(line, now);
        }
        for line in retired {
            fold(&mut leaves, line, self.marks.heir_of_line(branch, line).snapshot, &mut changed, &mut die);
        }
        for snapshot in hidden {
            self.hand_on(branch, snapshot, &mut leaves, &mut changed, &mut die);
        }
        if is_gone {
            // The last records of the volume may have completed after it was deleted.
            for (era, spots) in &mut leaves {
                let merged = std::mem::replace(&mut **spots, NOTHING);
                merged.iter().filter_map(|spot| spot.stored()).for_each(&mut die);
                changed.insert(*era);
            }
        }
        dead.append(&mut moved_away);
        let leaves = leaves.into_iter().filter(|(era, _)| changed.contains(era));
        let leaves = leaves.map(|(era, spots)| ((Era::new(branch, era), number), spots)).collect();
        Merged { branch, leaves, dead, forgotten }
    }

    /// The index of the disk on which a leaf lies.
    fn disk_of_leaf(&self, key: LeafKey) -> u16 {
        let segment = self.leaves.get(&key).and_then(|place| self.segments.locate(place.segment));
        segment.map_or(0, |(disk, _)| disk)
    }

    /// Whether the slot that a block was moved from is live although nothing points there, given that the
    /// leaf does not: a leaf that did was lost.
    ///
    /// Otherwise the block was overwritten, and merged, since the cleaner gathered it. Then the slot is dead;
    /// or its segment was freed, and holds what newer records than the move have written.
    fn is_orphan(&self, moved: Move) -> bool {
        let used = self.segments.used.get(&moved.from.segment);
        self.segments.is_set(moved.from) && used.is_some_and(|used| used.newest < moved.sequence)
    }

    /// Decides about the leaves of a group that cannot be read. Returns those that are lost.
    ///
    /// One that nothing changes but moves from a disk that is leaving stays where it is: it may be readable
    /// again some day. Its segment is not emptied until then, nor are those from which blocks were moved that
    /// it may name; these moves do not count. And what a deleted snapshot held can be freed later, unless
    /// nobody needs any of it.
    ///
    /// The moves are those from the disk that is leaving, of the zone that is being emptied or another one:
    /// no new data is to be written there, so it does not matter that segments stay in use.
    pub(super) fn leave_unread(
        &mut self,
        group: &mut Group,
        left: Option<u16>,
        is_gone: bool,
    ) -> BTreeMap<u32, DiskError> {
        let mut lost = std::mem::take(&mut group.unreadable);
        if lost.is_empty() || is_gone {
            return lost;
        }
        if group.folds {
            if self.heirs(group).iter().all(|heir| heir.snapshot.is_none()) {
                return lost;
            }
            let leaves: Vec<LeafKey> = group.forced.iter().map(|era| group.leaf(*era)).collect();
            self.unfolded.extend(leaves);
            *group = Group { key: group.key, ..Group::default() };
            return BTreeMap::new();
        }
        let moves: Vec<Move> = self.unowned(group).map(|(_, moved)| moved).collect();
        let is_left = |moved: &Move| {
            let disk = self.segments.locate(moved.from.segment).map(|(disk, _)| disk);
            left.is_some() && disk == left || self.segments.is_on_leaving_disk(moved.from.segment)
        };
        if !moves.iter().all(is_left) {
            return lost;
        }
        let mut changed = self.eras_of_snapshots(group);
        changed.extend(self.written_lines(group));
        let staying = lost.extract_if(.., |era, _| !changed.contains(era));
        for era in staying.map(|(era, _)| era).collect::<Vec<u32>>() {
            group.has_left = true;
            let place = self
                .leaves
                .get(&group.leaf(era))
                .filter(|_| !moves.is_empty() || group.forced.contains(&era));
            if let Some(segment) = place.map(|place| place.segment) {
                self.segments.set_stuck(segment);
            }
            group.forced.retain(|forced| *forced != era);
        }
        for moved in moves.iter().filter(|_| group.has_left) {
            self.segments.clear(moved.to.place.run(1));
            // It has not been overwritten, and its segment is the same.
            if self.is_orphan(*moved) {
                self.segments.set_bad(moved.from);
            }
        }
        lost
    }

    /// Takes a leaf of a group for lost: it names no block any more. All of them that the slice has, of `len`
    /// blocks, count as its branch's, because none reads as zeros. Those by which it grows later do.
    pub(super) fn lose(&mut self, group: &mut Group, era: u32, len: u64) {
        let key = group.leaf(era);
        let (blocks, quarters) = self.leaves.get(&key).map_or((0, 0), |place| (place.blocks, place.quarters));
        let count = len.saturating_sub(key.1 * LEAF_BLOCKS).min(LEAF_BLOCKS);
        let added = Usage {
            blocks: count.saturating_sub(blocks.into()),
            quarters: (count * u64::from(SLOT_QUARTERS)).saturating_sub(quarters.into()),
        };
        self.add_used(key.0.branch, added);
        let mut spots = NOTHING;
        spots[..count as usize].fill(Spot::At(Stored::lost(self.disk_of_leaf(key))));
        group.leaves.insert(era, Box::new(spots));
        // Also if it was only searched: a moved block that it named dies in both places.
        group.forced.push(era);
    }

    /// Removes a leaf whose volume was deleted. `leaf` is `None` if it cannot be read.
    pub(super) fn sweep_away(&mut self, key: LeafKey, leaf: Option<&Leaf>) {
        let swept = self.swept(key, leaf);
        self.take_in(key, None);
        self.exhausted &= swept.dead.is_empty();
        self.let_die(&swept);
        // The volume's last records may have replaced some of that. It is not subtracted a second time.
        self.replaced.merged(swept.branch, swept.forgotten);
    }

    /// What is left of a leaf whose volume was deleted: nothing. `leaf` is `None` if it cannot be read.
    fn swept(&self, key: LeafKey, leaf: Option<&Leaf>) -> Merged {
        let mut dead = Vec::new();
        let stored = leaf.into_iter().flat_map(Leaf::spots).filter_map(Spot::stored);
        stored.for_each(|stored| Slots::add(&mut dead, stored.place));
        let known = self.leaves.get(&key);
        let forgotten = known.map_or_else(Usage::default, |place| Usage {
            blocks: u64::from(place.blocks),
            quarters: u64::from(place.quarters),
        });
        Merged { branch: key.0.branch, leaves: Vec::new(), dead, forgotten }
    }

    /// Applies what has died with a merge.
    pub(super) fn let_die(&mut self, merged: &Merged) {
        merged.dead.iter().for_each(|slots| self.segments.clear(*slots));
        self.forget(merged.branch, merged.forgotten);
        self.frozen_replaced.merged(merged.branch, merged.forgotten);
    }
}

#[cfg(test)]
mod tests {
    use base::ByteLen;

    use super::super::LogMemory;
    use super::super::segment::{Kind, Zone};
    use super::super::state::LeafPlace;
    use super::super::tests::without_pool;
    use super::*;

    /// A log with a hundred snapshots of branch 1, each of which has a leaf, and a move of block 9 in the
    /// frozen table. All blocks lie in zone 0, leaves in zone 1.
    fn with_a_moved_block() -> (Running, Group) {
        let mut state = without_pool(20, LogMemory::new(ByteLen(1 << 30)));
        for (number, kind) in [(0, Kind::Data), (1, Kind::Map)] {
            state.segments.add_zone(number, Zone { disk: number as u16, offset: 0, leaving: false });
            state.segments.begin(number * state.segments.zone_segments, 7, kind);
        }
        let segment = state.segments.zone_segments;
        for slot in [5, 6] {
            state.segments.set(stored(slot).place.run(1));
        }
        for id in 1..=100 {
            let era = Era::new(1, state.marks.begin(1, id, 0));
            let place = LeafPlace { segment, at: 0, len: 2, blocks: 1, quarters: 4 };
            state.segments.add_leaf(segment, place.len);
            state.hold(era, &place);
            state.leaves.insert((era, 0), place);
        }
        let mut frozen = Changes::default();
        let moved = Move { from: stored(5).place, to: stored(6), sequence: 1 };
        frozen.moved(Era::new(1, 3), 9, moved);
        state.frozen = Some(frozen);
        let groups = state.next_groups((0, 0), &mut Vec::new());
        assert_eq!(groups.len(), 1);
        (state, groups.into_iter().next().unwrap())
    }

    fn stored(slot: u16) -> Stored {
        Stored { place: Place::new(0, slot), crc: 0 }
    }

    /// Reads what must be read of a group before it is merged: the block is in the leaf of era `found`, and
    /// that of era 50 cannot be read. Returns the eras that were read.
    fn read_all(state: &Running, group: &mut Group, found: u32) -> Vec<u32> {
        let mut read = Vec::new();
        loop {
            let unread = state.unread(group);
            if unread.is_empty() {
                return read;
            }
            read.extend(&unread);
            for era in unread {
                let mut spots = NOTHING;
                if era == found {
                    spots[9] = Spot::At(stored(5));
                }
                if era == 50 {
                    group.unreadable.insert(era, DiskError::Media(std::io::ErrorKind::InvalidData.into()));
                } else {
                    state.keep(group, era, spots);
                }
            }
        }
    }

    fn eras(merged: &Merged) -> Vec<u32> {
        merged.leaves.iter().map(|((era, _), _)| era.number).collect()
    }

    /// Before, all leaves were kept that a search had come across, up to a thousand of 8 KiB for each group.
    /// And one that could not be read was lost, although another one had the block.
    #[test]
    fn a_search_for_moved_blocks_keeps_only_leaves_that_name_them() {
        let (mut state, mut group) = with_a_moved_block();
        let read = read_all(&state, &mut group, 80);
        assert_eq!(read, std::iter::once(0).chain(4..=80).collect::<Vec<u32>>());
        assert_eq!(group.leaves.keys().copied().collect::<Vec<u32>>(), [0, 80]);
        assert!(state.leave_unread(&mut group, None, false).is_empty());
        assert_eq!(eras(&state.merged(group, false)), [80]);
        assert_eq!(state.segments.stuck, 0);
    }

    /// No other leaf has the block: it dies in both places, so the leaf must not be read any more. But if it
    /// was moved because its disk is leaving, everything stays as it is.
    #[test]
    fn a_leaf_that_may_name_a_moved_block_is_lost_or_left() {
        for leaves in [false, true] {
            let (mut state, mut group) = with_a_moved_block();
            if leaves {
                assert!(state.segments.set_leaving_disk(Some(0)));
                state.segments.retire_zone(0);
            }
            let read = read_all(&state, &mut group, u32::MAX);
            assert_eq!(read.len(), 101, "it may be anywhere");
            let lost = state.leave_unread(&mut group, None, false);
            assert_eq!(lost.is_empty(), leaves);
            lost.into_keys().for_each(|era| state.lose(&mut group, era, u64::MAX));
            let merged = state.merged(group, false);
            assert_eq!(eras(&merged), if leaves { vec![] } else { vec![50] });
            state.let_die(&merged);
            assert_eq!(state.segments.is_set(stored(5).place), leaves);
            assert!(!state.segments.is_set(stored(6).place));
            assert_eq!(state.segments.stuck, if leaves { 2 } else { 0 });
        }
    }

    /// A checkpoint evacuates leaves after its merge. A leaf of a snapshot may be among them that has a block
    /// of which another version was moved.
    #[test]
    fn moves_that_have_been_merged_do_not_count_for_evacuated_leaves() {
        let (mut state, _) = with_a_moved_block();
        // The merge has found the block in the leaf of another era.
        state.segments.clear(stored(5).place.run(1));
        let mut group = Group::evacuated((Era::new(1, 50), 0));
        assert_eq!(state.unread(&group), [50]);
        let mut spots = NOTHING;
        spots[9] = Spot::At(stored(7));
        state.keep(&mut group, 50, spots);
        assert!(state.unread(&group).is_empty());
        let merged = state.merged(group, false);
        assert_eq!(eras(&merged), [50]);
        assert!(merged.dead.is_empty(), "the new place is live");
    }

    /// What a deleted snapshot had goes to another one, which would be lost for that.
    #[test]
    fn a_leaf_that_cannot_be_read_is_not_lost_for_a_deleted_snapshot() {
        let (mut state, _) = with_a_moved_block();
        state.frozen = None;
        state.segments.free = (100..200).collect();
        for deleted in [51, 61] {
            state.marks.delete(Era::new(1, deleted));
        }
        let mut folded = Vec::new();
        while let Some(mut group) = state.next_to_fold().pop() {
            read_all(&state, &mut group, u32::MAX);
            assert!(state.leave_unread(&mut group, None, false).is_empty());
            for (key, _) in state.merged(group, false).leaves {
                folded.push(key.0.number);
                state.take_in(key, None);
            }
        }
        assert_eq!(folded, [61], "that of era 60 gets its blocks");
        assert!(!state.has_to_fold(), "the other one is not tried again and again");
        assert!(state.held.contains_key(&Era::new(1, 51)));
    }
}
