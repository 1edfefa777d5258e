//! The lines of volumes that were restored: what becomes of what they no longer need.
//!
//! A restore begins a line, which is read through a snapshot of an earlier one ([`super::marks`]). Two kinds
//! of leaves are left behind, besides those of snapshots. The leaves of the former line itself are folded
//! into its last snapshot, as if they were those of a later one that was deleted; where this snapshot has
//! none of the same number, they stay where they are. And a snapshot that was deleted, but that a line is
//! read through, hands on what only one other still needs, and frees what nobody does.
//!
//! What must never happen: what is handed on is not yet what the snapshot reads as, because a table has
//! something newer of that line; or somebody who needs it is overlooked.

use std::collections::{BTreeMap, BTreeSet};

use super::Running;
use super::checkpoint::STEP_LEAVES;
use super::leaf::{Era, Spots};
use super::marks::Restore;
use super::merge::Group;
use super::place::{Spot, Stored};
use crate::canary::{Canary, makes};

/// How many numbers of leaves are looked at in one step. Hosts wait meanwhile.
const LOOK_NUMBERS: usize = if cfg!(test) { 16 } else { 1024 };

impl Running {
    /// Has checkpoints look at what the lines of restored volumes hold.
    pub(super) fn look_at_lines(&mut self) {
        self.unsettled = self.marks.restored_branches().map(|branch| (branch, 0)).collect();
    }

    /// The next groups in which something may be handed on, perhaps none yet. `None`: there is nothing to do
    /// now.
    pub(super) fn next_to_settle(&mut self) -> Option<Vec<Group>> {
        let most = self.room_to_fold();
        if self.folding_paused || most == 0 {
            return None;
        }
        let mut unsettled = self.unsettled.iter().map(|(branch, from)| (*branch, *from));
        let (branch, mut from) = unsettled.find(|(branch, _)| self.may_settle(*branch))?;
        self.make_room_to_fold();
        let (mut groups, mut leaves) = (Vec::new(), 0);
        // It looks for leaves of each line.
        for _ in 0..(LOOK_NUMBERS / self.marks.restores_of(branch).len().max(1)).max(1) {
            let Some(number) = self.next_to_look_at(branch, from) else {
                self.unsettled.remove(&branch);
                return Some(groups);
            };
            let group = self.to_settle(branch, number);
            let size = group.as_ref().map_or(0, |group| self.unread(group).len());
            // A single group may have a leaf of each snapshot. If there is not enough room, it is left out.
            if leaves > 0 && leaves + size > most {
                break;
            }
            from = number + 1;
            groups.extend(group.filter(|_| size <= self.leaves_that_fit()));
            leaves += size;
            if leaves >= STEP_LEAVES {
                break;
            }
        }
        self.unsettled.insert(branch, from);
        Some(groups)
    }

    /// Whether the leaves of a branch's former lines say all that is known of them.
    fn may_settle(&self, branch: u32) -> bool {
        let is_merged = !self.active.has_eras(branch, &(0..self.marks.now(branch)));
        (is_merged || makes(Canary::SettleUnmerged))
            && self.frozen.is_none()
            && !self.marks.is_restoring(branch)
    }

    /// The first number, from `from` on, of a leaf that gets something of a former line, or that a hidden
    /// snapshot or such a line may hand on.
    fn next_to_look_at(&self, branch: u32, from: u64) -> Option<u64> {
        let now = self.marks.now(branch);
        let last = |line: u32| self.marks.heir_of_line(branch, line).snapshot;
        let former = self.marks.lines(branch).filter(|line| *line != now);
        let hidden = self.marks.hidden(branch).flat_map(|snapshot| {
            let line = self.marks.line(branch, snapshot);
            std::iter::once(snapshot).chain((last(line) == Some(snapshot)).then_some(line))
        });
        let eras = former.map(|line| last(line).unwrap_or(line)).chain(hidden);
        eras.filter_map(|era| self.next_leaf_of_era(Era::new(branch, era), from..=u64::MAX)).min()
    }

    /// The leaves of this number, if anything may be handed on or freed there.
    fn to_settle(&self, branch: u32, number: u64) -> Option<Group> {
        let marks = &self.marks;
        let has = |era: u32| self.leaves.contains_key(&(Era::new(branch, era), number));
        let now = marks.now(branch);
        let is_folded = |line: &u32| {
            *line != now && has(*line) && marks.heir_of_line(branch, *line).snapshot.is_none_or(has)
        };
        let mut retired: Vec<u32> = marks.lines(branch).filter(is_folded).collect();
        let mut hidden = Vec::new();
        for snapshot in marks.hidden(branch) {
            let line = marks.line(branch, snapshot);
            let is_last = marks.heir_of_line(branch, line).snapshot == Some(snapshot);
            if !(has(snapshot) || is_last && has(line)) || marks.children(branch, snapshot).next().is_none() {
                continue;
            }
            // Those that certainly need all of it, because they have nothing themselves.
            let before = marks.heir(branch, snapshot - 1).snapshot.filter(|era| !has(*era));
            let has_nothing = |line: &u32| {
                let (line, last) = marks.end_of_line(branch, *line);
                !has(line) && !last.is_some_and(has)
            };
            let children = marks.children(branch, snapshot).filter(has_nothing);
            if before.into_iter().chain(children).count() < 2 {
                hidden.push(snapshot);
                if is_last && has(line) && !retired.contains(&line) {
                    retired.push(line);
                }
            }
        }
        let is_needed = !retired.is_empty() || !hidden.is_empty();
        is_needed.then(|| Group::settling((branch, number), retired, hidden))
    }

    /// Leaves out groups in which something else is to be handed on by now than when they were found: a
    /// restore or a deletion came while their leaves were read. They are looked at again.
    ///
    /// What a restore has made a former line may have changes that no leaf says yet. What is handed on would
    /// hide them in its snapshots.
    pub(super) fn leave_outdated(&mut self, groups: &mut Vec<Group>) {
        groups.retain(|group| {
            let (branch, number) = group.key;
            let is_same = |now: Group| now.retired == group.retired && now.hidden == group.hidden;
            let settles = !(group.retired.is_empty() && group.hidden.is_empty());
            let is_current =
                || self.may_settle(branch) && self.to_settle(branch, number).is_some_and(is_same);
            let is_outdated = settles && !is_current();
            if is_outdated {
                self.unsettled.insert(branch, 0);
            }
            !is_outdated
        });
    }

    /// The eras of the leaves of a group that must be read because something is handed on, besides those of
    /// the snapshots that may get it.
    pub(super) fn eras_to_hand_on(&self, group: &Group) -> Vec<u32> {
        let (branch, _) = group.key;
        let mut eras = group.retired.clone();
        for line in group.hidden.iter().flat_map(|hidden| self.marks.children(branch, *hidden)) {
            let snapshots = self.marks.of_line(branch, line).iter().map(|mark| mark.era);
            let is_unread =
                |era: &u32| self.leaves.contains_key(&group.leaf(*era)) && !group.searched.contains(era);
            let (line, last) = self.marks.end_of_line(branch, line);
            eras.extend(last.into_iter().chain([line]).chain(snapshots.filter(is_unread)));
        }
        eras
    }

    /// Whether what such a leaf says is needed.
    pub(super) fn hands_on(&self, group: &Group, era: u32, spots: &Spots) -> bool {
        let (branch, _) = group.key;
        let mut lines = group.hidden.iter().flat_map(|hidden| self.marks.children(branch, *hidden));
        let of_line = self.marks.line(branch, era);
        let is_end = |line: u32| line == era || self.marks.end_of_line(branch, line).1 == Some(era);
        let has_noted = spots.contains(&Spot::Parent);
        group.retired.contains(&era) || lines.any(|line| is_end(line) || line == of_line && has_noted)
    }

    /// Hands on what a hidden snapshot has: to who needs it, if that is only one. If it is nobody, it dies.
    ///
    /// A line needs a block if it has not written it; or if one of its snapshots notes that it had not. Of a
    /// former line, the last snapshot gets it. An earlier snapshot of the same line needs it if it has not
    /// noted anything itself.
    pub(super) fn hand_on(
        &self,
        branch: u32,
        snapshot: u32,
        leaves: &mut BTreeMap<u32, Box<Spots>>,
        changed: &mut BTreeSet<u32>,
        die: &mut dyn FnMut(Stored),
    ) {
        let line = self.marks.line(branch, snapshot);
        let is_last = self.marks.heir_of_line(branch, line).snapshot == Some(snapshot);
        let before = self.marks.heir(branch, snapshot - 1).snapshot;
        let children = self.marks.children(branch, snapshot);
        let children: Vec<(u32, Option<u32>)> =
            children.map(|line| self.marks.end_of_line(branch, line)).collect();
        let needed = children.iter().flat_map(|(line, last)| last.iter().chain([line]));
        if !before.iter().chain(needed).all(|era| leaves.contains_key(era)) {
            return;
        }
        let Some(mut held) = leaves.remove(&snapshot) else { return };
        for (index, spot) in held.iter_mut().enumerate() {
            let reads = |era: u32, what: Spot| leaves.get(&era).is_some_and(|spots| spots[index] == what);
            let of_line = |(line, last): &(u32, Option<u32>)| {
                let mut snapshots = self.marks.of_line(branch, *line).iter().map(|mark| mark.era);
                // First: the line has nothing at its end, either, if its last snapshot has handed that on.
                let noted = snapshots.find(|era| reads(*era, Spot::Parent));
                let has_none = || last.iter().chain([line]).all(|era| reads(*era, Spot::Nothing));
                noted.or_else(|| has_none().then(|| last.unwrap_or(*line)))
            };
            match *spot {
                Spot::Nothing => continue,
                // It says that later leaves of the line do not count. Now there are none.
                Spot::Parent if is_last => {}
                Spot::Parent => continue,
                Spot::Zeros | Spot::At(_) => {
                    let earlier = before.filter(|era| reads(*era, Spot::Nothing)).into_iter();
                    let needed: Vec<u32> = earlier.chain(children.iter().filter_map(of_line)).collect();
                    match needed[..] {
                        [] => spot.stored().into_iter().for_each(&mut *die),
                        [heir] => {
                            if let Some(spots) = leaves.get_mut(&heir) {
                                spots[index] = *spot;
                                changed.insert(heir);
                            }
                        }
                        _ => continue,
                    }
                }
            }
            *spot = Spot::Nothing;
            changed.insert(snapshot);
        }
        leaves.insert(snapshot, held);
    }

    /// Lets lines be read without a snapshot that has handed on everything: through the one that its line
    /// went back to, if any.
    pub(super) fn shorten_lines(&mut self) {
        let restores: Vec<(u32, Restore)> = self.marks.restores().map(|(branch, of)| (branch, *of)).collect();
        for (branch, Restore { era, to, .. }) in restores.into_iter().filter(|(_, restore)| restore.to > 0) {
            let line = self.marks.line(branch, to);
            let eras = self.marks.eras_of_line(branch, line);
            let snapshots = self.marks.of_line(branch, line).iter().map(|mark| mark.era);
            let mut later = snapshots.filter(|snapshot| *snapshot >= to).chain([line]);
            let is_held = later.any(|era| self.held.contains_key(&Era::new(branch, era)));
            if !is_held && !self.active.has_eras(branch, &eras) {
                let parent = self.marks.own_parent(branch, line).unwrap_or(0);
                self.marks.set_parent(Era::new(branch, era), parent);
                self.unsettled.insert(branch, 0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use base::ByteLen;

    use super::super::LogMemory;
    use super::super::marks::{Mark, Standing};
    use super::super::state::LeafPlace;
    use super::super::tests::without_pool;
    use super::*;

    /// Before, a snapshot of the line that had just become a former one got what the hidden snapshot had, and
    /// no longer read as what had been written there and was not merged yet.
    #[test]
    fn nothing_is_handed_on_to_a_line_that_has_ended_meanwhile() {
        let mut state = without_pool(20, LogMemory::new(ByteLen(1 << 30)));
        state.segments.free = (100..200).collect();
        let take = |state: &mut Running, id: u64| {
            let era = state.marks.begin(1, id, 0);
            state.marks.taken(1, Mark { era, id, time: 0, standing: Standing::Taking });
            Era::new(1, era)
        };
        let restore = |state: &mut Running, to: Era| {
            let era = state.marks.begin_restore(1, to.number);
            state.marks.restored(1, Restore { era, id: era.into(), to: to.number });
            Era::new(1, era)
        };
        let hidden = take(&mut state, 1);
        let place = LeafPlace { segment: 0, at: 0, len: 2, blocks: 1, quarters: 4 };
        state.hold(hidden, &place);
        state.leaves.insert((hidden, 0), place);
        let line = restore(&mut state, hidden);
        state.marks.delete(hidden);
        state.look_at_lines();
        let mut groups = state.next_to_settle().unwrap();
        state.leave_outdated(&mut groups);
        assert_eq!(groups.len(), 1, "nothing has changed");
        assert!(state.unsettled.is_empty());
        // While its leaves are read, the line gets a change and a snapshot, and ends.
        state.active.zero(line, 5, 1, &mut Vec::new());
        let snapshot = take(&mut state, 2);
        restore(&mut state, snapshot);
        state.leave_outdated(&mut groups);
        assert!(groups.is_empty() && state.unsettled.contains_key(&1));
        assert_eq!(state.next_to_settle().map(|groups| groups.len()), None, "it has to be merged first");
    }
}
