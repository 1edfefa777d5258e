//! The table of changes: what was written since the map was last merged. Reads look here first.
//!
//! An entry is a run of blocks that one record has in consecutive places of one size, or a range that reads
//! as zeros. Entries of an era never overlap, so a block has at most one entry in each: its newest change
//! before the next snapshot. Moves by the cleaner are kept separately: until the next merge, a block is read
//! from its old place.

use std::collections::BTreeMap;
use std::ops::{Range, RangeInclusive};

use super::leaf::{Era, GroupKey, LEAF_BLOCKS};
use super::place::{Place, Slots, Spot, Stored};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    /// This many blocks lie in the places from `place` on; their checksums are in the table from `crcs` on.
    Blocks { place: Place, count: u16, crcs: u32 },
    /// This many blocks read as zeros.
    Zeros(u64),
}

impl Change {
    fn blocks(self) -> u64 {
        match self {
            Change::Blocks { count, .. } => u64::from(count),
            Change::Zeros(count) => count,
        }
    }

    /// The change of the first `blocks` blocks, and that of the others; `None` if there are no others.
    fn split(self, blocks: u64) -> Option<(Change, Change)> {
        if blocks >= self.blocks() {
            return None;
        }
        Some(match self {
            Change::Blocks { place, count, crcs } => {
                let first = blocks as u16;
                let (next, more) = (place.plus(first), crcs + u32::from(first));
                let others = Change::Blocks { place: next, count: count - first, crcs: more };
                (Change::Blocks { place, count: first, crcs }, others)
            }
            Change::Zeros(count) => (Change::Zeros(blocks), Change::Zeros(count - blocks)),
        })
    }
}

/// A block that the cleaner has copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Move {
    pub from: Place,
    pub to: Stored,
    /// The number of its record.
    pub sequence: u64,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Changes {
    /// By era and first block.
    entries: BTreeMap<(Era, u64), Change>,
    /// There may be entries of eras that begin with a snapshot.
    has_later_eras: bool,
    /// How many blocks have a place here, and how many of the entries are ranges of zeros.
    blocks: usize,
    ranges: usize,
    /// How many blocks these ranges have.
    zeros: u64,
    /// How many quarters of slots the blocks take that have a place here.
    quarters: u64,
    /// The checksums of all blocks that were entered, including those that were overwritten since: 4 bytes
    /// for each block that a replay may have to read.
    crcs: Vec<u32>,
    /// By branch, block, and the era in which the block was written.
    moves: BTreeMap<(u32, u64, u32), Move>,
    /// How many quarters of slots the moved blocks take.
    moved_quarters: u64,
}

impl Changes {
    /// The number of blocks, ranges of zeros and moves: this is what the table's limit applies to. There are
    /// never more entries than that, so it limits the memory.
    pub(crate) fn len(&self) -> usize {
        self.blocks + self.ranges + self.moves.len()
    }

    /// How many blocks have a place here, other than moves.
    pub(crate) fn blocks(&self) -> u64 {
        self.blocks as u64
    }

    /// How many blocks the ranges of zeros have.
    pub(crate) fn zeros(&self) -> u64 {
        self.zeros
    }

    /// How many leaves ranges of zeros may change, besides one for each range.
    pub(crate) fn zeroed_leaves(&self) -> u64 {
        self.zeros / LEAF_BLOCKS + self.ranges as u64
    }

    /// How many quarters of slots these blocks take.
    pub(crate) fn quarters(&self) -> u64 {
        self.quarters
    }

    /// How many quarters of slots the blocks take that the cleaner has moved.
    pub(crate) fn moved_quarters(&self) -> u64 {
        self.moved_quarters
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Enters the new places of consecutive blocks with these checksums: those from `place` on. Slots
    /// that become dead are added to `dead`.
    pub(crate) fn write(
        &mut self,
        era: Era,
        block: u64,
        place: Place,
        crcs: impl Iterator<Item = u32>,
        dead: &mut Vec<Slots>,
    ) {
        let at = self.crcs.len();
        self.crcs.extend(crcs);
        let count = self.crcs.len() - at;
        self.has_later_eras |= era.number > 0;
        if count > 1 || self.has_runs() {
            self.cut(era, block, count as u64, dead);
        }
        self.blocks += count;
        self.quarters += count as u64 * u64::from(place.size().quarters());
        let change = Change::Blocks { place, count: count as u16, crcs: at as u32 };
        if let Some(Change::Blocks { place, .. }) = self.entries.insert((era, block), change) {
            self.blocks -= 1;
            self.quarters -= u64::from(place.size().quarters());
            Slots::add(dead, place);
        }
    }

    /// Enters a range that reads as zeros. Slots that become dead are added to `dead`.
    pub(crate) fn zero(&mut self, era: Era, block: u64, count: u64, dead: &mut Vec<Slots>) {
        if count > 0 {
            self.has_later_eras |= era.number > 0;
            self.cut(era, block, count, dead);
            self.entries.insert((era, block), Change::Zeros(count));
            self.ranges += 1;
            self.zeros += count;
        }
    }

    /// Enters a block that was written in this era, and that the cleaner has copied. Returns the place of an
    /// earlier copy, which is dead now.
    pub(crate) fn moved(&mut self, era: Era, block: u64, moved: Move) -> Option<Place> {
        let quarters = |moved: Move| u64::from(moved.to.place.size().quarters());
        self.moved_quarters += quarters(moved);
        let earlier = self.moves.insert((era.branch, block, era.number), moved)?;
        self.moved_quarters -= quarters(earlier);
        Some(earlier.to.place)
    }

    /// Whether an entry may cover more than one block. If not, the entry of a block begins at that block.
    fn has_runs(&self) -> bool {
        self.ranges > 0 || self.blocks > self.entries.len()
    }

    /// The entry that begins before a block and covers it, too: its first block, and what it says about the
    /// blocks before this one, and from this one on.
    fn across(&self, era: Era, block: u64) -> Option<(u64, Change, Change)> {
        if !self.has_runs() {
            return None;
        }
        let ((_, start), change) = self.entries.range((era, 0)..(era, block)).next_back()?;
        let (before, behind) = change.split(block - start)?;
        Some((*start, before, behind))
    }

    /// Makes an entry that covers a block begin there.
    fn split(&mut self, era: Era, block: u64) {
        if let Some((start, before, behind)) = self.across(era, block) {
            self.entries.insert((era, start), before);
            self.entries.insert((era, block), behind);
            self.ranges += usize::from(matches!(behind, Change::Zeros(_)));
        }
    }

    /// Removes the entries of a range.
    fn cut(&mut self, era: Era, block: u64, count: u64, dead: &mut Vec<Slots>) {
        let end = block + count;
        self.split(era, block);
        self.split(era, end);
        for (_, change) in self.entries.extract_if((era, block)..(era, end), |_, _| true) {
            match change {
                Change::Blocks { place, count, .. } => {
                    let slots = place.run(count);
                    self.blocks -= usize::from(count);
                    self.quarters -= u64::from(slots.quarters());
                    dead.push(slots);
                }
                Change::Zeros(count) => {
                    self.ranges -= 1;
                    self.zeros -= count;
                }
            }
        }
    }

    /// The entries that touch a range, in order. One that begins before the range is cut there.
    fn within(&self, era: Era, block: u64, count: u64) -> impl Iterator<Item = (u64, Change)> {
        let across = self.across(era, block).map(|(_, _, behind)| (block, behind));
        let inside = self.entries.range((era, block)..(era, block + count));
        across.into_iter().chain(inside.map(|((_, start), change)| (*start, *change)))
    }

    /// The eras of a branch of which the table has entries, in order.
    ///
    /// Without snapshots there is only the first one, and nothing is looked up.
    pub(crate) fn eras(&self, branch: u32) -> impl Iterator<Item = Era> {
        let first = Era::first(branch);
        let first = if self.has_later_eras { self.next_era(first) } else { Some(first) };
        let next = move |era: &Era| {
            let number = era.number.checked_add(1).filter(|_| self.has_later_eras)?;
            self.next_era(Era { number, ..*era })
        };
        std::iter::successors(first, next)
    }

    /// The first era of the same branch, from this one on, of which the table has an entry.
    fn next_era(&self, from: Era) -> Option<Era> {
        let next = self.entries.range((from, 0)..).next().map(|((era, _), _)| *era);
        next.filter(|era| era.branch == from.branch)
    }

    /// Whether the table has an entry of this era.
    pub(crate) fn has_era(&self, era: Era) -> bool {
        self.next_era(era) == Some(era)
    }

    /// Whether the table has an entry of one of these eras of a branch.
    pub(crate) fn has_eras(&self, branch: u32, eras: &Range<u32>) -> bool {
        let first = self.next_era(Era { branch, number: eras.start });
        first.is_some_and(|first| first.number < eras.end)
    }

    /// Whether an entry of this era concerns a leaf of this number.
    pub(crate) fn touches(&self, era: Era, number: u64) -> bool {
        self.within(era, number * LEAF_BLOCKS, LEAF_BLOCKS).next().is_some()
    }

    /// Whether an entry of this era unmaps blocks of a leaf of this number.
    pub(crate) fn unmaps(&self, era: Era, number: u64) -> bool {
        let mut entries = self.within(era, number * LEAF_BLOCKS, LEAF_BLOCKS);
        entries.any(|(_, change)| matches!(change, Change::Zeros(_)))
    }

    /// Applies the table's entries for the blocks from `block` on to `spots`: those of these eras, in order.
    pub(crate) fn overlay_all(
        &self,
        branch: u32,
        eras: &Range<u32>,
        block: u64,
        spots: &mut [Spot],
        zeros: Spot,
    ) {
        let eras = self.eras(branch).filter(|era| eras.contains(&era.number));
        eras.for_each(|era| self.overlay(era, block, spots, zeros));
    }

    /// The first block of a branch, from `block` on, that was changed in these eras.
    pub(crate) fn next_change(&self, branch: u32, eras: &[Range<u32>], block: u64) -> Option<u64> {
        let eras = self.eras(branch).filter(|era| is_in(eras, *era));
        eras.filter_map(|era| Some(self.within(era, block, u64::MAX - block).next()?.0)).min()
    }

    /// Notes which of the blocks from `block` on were changed in these eras.
    pub(crate) fn note_changes(&self, branch: u32, eras: &[Range<u32>], block: u64, changed: &mut [bool]) {
        for era in self.eras(branch).filter(|era| is_in(eras, *era)) {
            for (start, change) in self.within(era, block, changed.len() as u64) {
                let changed = &mut changed[(start - block) as usize..];
                let count = change.blocks().min(changed.len() as u64) as usize;
                changed[..count].fill(true);
            }
        }
    }

    /// Applies the table's entries of one era for the blocks from `block` on to `spots`. What they zero
    /// becomes `zeros`.
    pub(crate) fn overlay(&self, era: Era, block: u64, spots: &mut [Spot], zeros: Spot) {
        for (start, change) in self.within(era, block, spots.len() as u64) {
            let spots = &mut spots[(start - block) as usize..];
            let count = change.blocks().min(spots.len() as u64) as usize;
            match change {
                Change::Blocks { mut place, crcs, .. } => {
                    for (spot, crc) in spots[..count].iter_mut().zip(&self.crcs[crcs as usize..]) {
                        *spot = Spot::At(Stored { place, crc: *crc });
                        place = place.next();
                    }
                }
                Change::Zeros(_) => spots[..count].fill(zeros),
            }
        }
    }

    /// Whether the entries of eras from `from` on cover all of a range, so that the map is not needed for
    /// what it reads as now.
    pub(crate) fn covers(&self, branch: u32, from: u32, block: u64, count: u64) -> bool {
        self.eras(branch).any(|era| era.number >= from && self.covers_in(era, block, count))
    }

    fn covers_in(&self, era: Era, block: u64, count: u64) -> bool {
        let mut at = block;
        for (start, change) in self.within(era, block, count) {
            if start > at {
                return false;
            }
            at = start + change.blocks();
        }
        at >= block + count
    }

    /// How many entries and moves there are.
    pub(crate) fn entries(&self) -> usize {
        self.entries.len() + self.moves.len()
    }

    /// How many of them begin in the leaves of a group.
    pub(crate) fn entries_of(&self, (branch, number): GroupKey) -> usize {
        let first = number * LEAF_BLOCKS;
        let of_era = |era| self.entries.range((era, first)..(era, first + LEAF_BLOCKS)).count();
        let moves = self.moves.range((branch, first, 0)..(branch, first + LEAF_BLOCKS, 0)).count();
        self.eras(branch).map(of_era).sum::<usize>() + moves
    }

    /// The moves of blocks of a group: the era in which the block was written, the block, and the move.
    pub(crate) fn moves_of(&self, (branch, number): GroupKey) -> impl Iterator<Item = (u32, u64, Move)> {
        let first = number * LEAF_BLOCKS;
        let moves = self.moves.range((branch, first, 0)..(branch, first + LEAF_BLOCKS, 0));
        moves.map(|((_, block, era), moved)| (*era, *block, *moved))
    }

    /// The first group, from `from` on, of which the table changes a leaf. A range of zeros changes only
    /// leaves of numbers that are in the map: `next` says which is the first between two of them, for what is
    /// written in this era.
    pub(crate) fn next_group(&self, from: GroupKey, next: NextLeaf<'_>) -> Option<GroupKey> {
        let moved = self.moves.range((from.0, from.1 * LEAF_BLOCKS, 0)..).next();
        let moved = moved.map(|((branch, block, _), _)| (*branch, block / LEAF_BLOCKS));
        let changed = self.next_changed_group(from, next);
        moved.into_iter().chain(changed).min()
    }

    /// The same, if moves do not count.
    pub(crate) fn next_changed_group(&self, from: GroupKey, next: NextLeaf<'_>) -> Option<GroupKey> {
        let (mut branch, mut number) = from;
        loop {
            let changed = self.eras(branch).filter_map(|era| self.next_changed_leaf(era, number, next));
            if let Some(number) = changed.min() {
                return Some((branch, number));
            }
            branch = self.next_branch(branch.checked_add(1)?)?;
            number = 0;
        }
    }

    /// The first leaf of the branch, from `number` on, that the entries of an era change.
    fn next_changed_leaf(&self, era: Era, number: u64, next: NextLeaf<'_>) -> Option<u64> {
        let first = number * LEAF_BLOCKS;
        for (start, change) in self.within(era, first, u64::MAX - first) {
            let leaf = start / LEAF_BLOCKS;
            match change {
                Change::Blocks { .. } => return Some(leaf),
                Change::Zeros(zeros) => {
                    let last = (start + zeros - 1) / LEAF_BLOCKS;
                    let found = next(era, leaf..=last);
                    if found.is_some() {
                        return found;
                    }
                }
            }
        }
        None
    }

    /// The first block of a branch, from `block` on, that has a place in the table, perhaps one of an earlier
    /// era.
    pub(crate) fn next_block(&self, branch: u32, block: u64) -> Option<u64> {
        let next = |era| {
            let mut entries = self.within(era, block, u64::MAX - block);
            entries.find(|(_, change)| matches!(change, Change::Blocks { .. })).map(|(start, _)| start)
        };
        self.eras(branch).filter_map(next).min()
    }

    /// The first branch, from `from` on, of which the table has an entry.
    pub(crate) fn next_branch(&self, from: u32) -> Option<u32> {
        self.entries.range((Era::first(from), 0)..).next().map(|((era, _), _)| era.branch)
    }

    /// All places in the table, including those of moves: for checks.
    #[cfg(any(test, debug_assertions))]
    pub(crate) fn places(&self) -> Vec<Place> {
        let blocks = self.entries.values().filter_map(|change| match change {
            Change::Blocks { place, count, .. } => Some(place.run(*count)),
            Change::Zeros(_) => None,
        });
        blocks.flat_map(Slots::places).chain(self.moves.values().map(|moved| moved.to.place)).collect()
    }
}

/// See [`Changes::next_group`].
pub(crate) type NextLeaf<'a> = &'a dyn Fn(Era, RangeInclusive<u64>) -> Option<u64>;

fn is_in(eras: &[Range<u32>], era: Era) -> bool {
    eras.iter().any(|eras| eras.contains(&era.number))
}

#[cfg(test)]
mod tests {
    use base::Rng;

    use super::super::leaf::LeafKey;
    use super::super::place::Size;
    use super::super::state::LeafPlace;
    use super::*;

    /// Where block `index` of write `number` lies.
    fn stored(number: u32, index: u64) -> Stored {
        let size = [Size::Whole, Size::Half, Size::Quarter][number as usize % 3];
        let place = Place::at(number, index as u32 * size.quarters(), size);
        Stored { place, crc: 100 * number + index as u32 }
    }

    /// Writes a run. Returns the slots that become dead.
    fn write(table: &mut Changes, branch: u32, block: u64, count: u64, number: u32) -> Vec<Slots> {
        write_in(table, Era::first(branch), block, count, number)
    }

    fn write_in(table: &mut Changes, era: Era, block: u64, count: u64, number: u32) -> Vec<Slots> {
        let mut dead = Vec::new();
        let crcs = (0..count).map(|index| stored(number, index).crc);
        table.write(era, block, stored(number, 0).place, crcs, &mut dead);
        dead
    }

    /// Compares with a table of single blocks.
    #[test]
    fn equal_to_the_obvious_version() {
        for seed in 0..300 {
            let mut rng = Rng::new(seed);
            let mut table = Changes::default();
            let mut obvious: BTreeMap<u64, Spot> = BTreeMap::new();
            // Some tables get only single blocks, some no zeros.
            let (runs, zeros) = (seed % 3 > 0, seed % 3 > 1);
            for number in 0..60 {
                let block = rng.below(40);
                let count = if runs && rng.one_in(2) { 1 + rng.below(20) } else { 1 };
                let blocks = block..block + count;
                let before: Vec<Place> = blocks
                    .clone()
                    .filter_map(|block| obvious.get(&block)?.stored().map(|stored| stored.place))
                    .collect();
                let dead = if zeros && rng.one_in(3) {
                    let mut dead = Vec::new();
                    table.zero(Era::first(1), block, count, &mut dead);
                    obvious.extend(blocks.map(|block| (block, Spot::Nothing)));
                    dead
                } else {
                    let spots = (0..count).map(|index| Spot::At(stored(number, index)));
                    obvious.extend(blocks.zip(spots));
                    write(&mut table, 1, block, count, number)
                };
                assert_eq!(dead.into_iter().flat_map(Slots::places).collect::<Vec<Place>>(), before);
                let stored_blocks = obvious.values().filter(|spot| spot.stored().is_some()).count();
                let ranges = table.entries.values().filter(|change| matches!(change, Change::Zeros(_)));
                let zeros = ranges.clone().map(|change| change.blocks()).sum::<u64>();
                let counted = (table.blocks, table.ranges, table.zeros);
                assert_eq!(counted, (stored_blocks, ranges.count(), zeros));
                let sizes = obvious.values().filter_map(|spot| Some(spot.stored()?.place.size()));
                assert_eq!(table.quarters(), sizes.map(|size| u64::from(size.quarters())).sum::<u64>());
                assert_eq!(table.places().len(), stored_blocks);
                let (from, len) = (rng.below(30), 1 + rng.below(30));
                let mut spots = vec![Spot::At(stored(1000, 0)); len as usize];
                table.overlay_all(1, &ALL, from, &mut spots, Spot::Nothing);
                let expected = |block| obvious.get(&block).copied().unwrap_or(Spot::At(stored(1000, 0)));
                assert_eq!(spots, (from..from + len).map(expected).collect::<Vec<Spot>>());
                assert_eq!(
                    table.covers(1, 0, from, len),
                    (from..from + len).all(|block| obvious.contains_key(&block))
                );
                let next = obvious.range(from..).find(|(_, spot)| spot.stored().is_some());
                assert_eq!(table.next_block(1, from), next.map(|(block, _)| *block));
            }
            let mut spots = [Spot::Nothing; 4];
            table.overlay_all(2, &ALL, 0, &mut spots, Spot::Nothing);
            assert_eq!(spots, [Spot::Nothing; 4], "another branch");
        }
    }

    const ALL: Range<u32> = 0..u32::MAX;

    fn groups(table: &Changes, map: &BTreeMap<LeafKey, LeafPlace>) -> Vec<GroupKey> {
        let mut found = Vec::new();
        let mut from = (0, 0);
        let next = |era: Era, leaves: RangeInclusive<u64>| {
            let now = Era::first(era.branch);
            map.range((now, *leaves.start())..=(now, *leaves.end())).next().map(|((_, leaf), _)| *leaf)
        };
        while let Some(key) = table.next_group(from, &next) {
            found.push(key);
            from = (key.0, key.1 + 1);
        }
        found
    }

    #[test]
    fn a_range_of_zeros_matters_where_the_map_has_leaves() {
        let place = LeafPlace { segment: 0, at: 0, len: 1, blocks: 1, quarters: 4 };
        let leaves = [(1, 7), (1, 5000), (2, 1)].map(|(branch, leaf)| ((Era::first(branch), leaf), place));
        let past = ((Era::new(1, 4), 9), place);
        let map = BTreeMap::from_iter(leaves.into_iter().chain([past]));
        let mut table = Changes::default();
        table.zero(Era::first(1), 100, 1 << 40, &mut Vec::new());
        write(&mut table, 3, 1000, 1, 1);
        assert_eq!(groups(&table, &map), [(1, 7), (1, 5000), (3, 1)]);
    }

    /// What was written before a snapshot stays in the table beside what was written since.
    #[test]
    fn each_era_has_entries_of_its_own() {
        let mut table = Changes::default();
        write(&mut table, 1, 10, 4, 1);
        assert!(write_in(&mut table, Era::new(1, 3), 12, 1, 2).is_empty());
        table.zero(Era::new(1, 5), 11, 2, &mut Vec::new());
        write_in(&mut table, Era::new(1, 5), 700, 1, 4);
        write(&mut table, 2, 0, 1, 5);
        let spots = |until: Option<u32>| {
            let mut spots = [Spot::Nothing; 4];
            table.overlay_all(1, &(0..until.unwrap_or(u32::MAX)), 10, &mut spots, Spot::Zeros);
            spots
        };
        let [a, b, c, d] = [0, 1, 2, 3].map(|index| Spot::At(stored(1, index)));
        let later = Spot::At(stored(2, 0));
        assert_eq!([Some(1), Some(3)].map(spots), [[a, b, c, d]; 2]);
        assert_eq!([Some(4), Some(5)].map(spots), [[a, b, later, d]; 2]);
        assert_eq!(spots(None), [a, Spot::Zeros, Spot::Zeros, d]);
        assert!(table.covers(1, 5, 11, 2) && !table.covers(1, 6, 11, 2) && !table.covers(1, 0, 11, 9));
        let changed = |eras: Range<u32>| {
            let mut changed = [false; 4];
            let eras = [eras];
            table.note_changes(1, &eras, 10, &mut changed);
            (changed.map(usize::from), table.next_change(1, &eras, 12))
        };
        assert_eq!(changed(1..5), ([0, 0, 1, 0], Some(12)));
        assert_eq!(changed(4..u32::MAX), ([0, 1, 1, 0], Some(12)));
        assert_eq!(changed(6..9), ([0; 4], None));
        assert!(table.has_era(Era::new(1, 3)) && !table.has_era(Era::new(1, 4)));
        assert!(table.has_eras(1, &(4..6)) && !table.has_eras(1, &(1..3)) && !table.has_eras(1, &(6..9)));
        assert!(!Changes::default().has_eras(1, &ALL));
        assert!(table.touches(Era::new(1, 5), 1) && !table.touches(Era::new(1, 3), 1));
        assert_eq!(groups(&table, &BTreeMap::new()), [(1, 0), (1, 1), (2, 0)]);
        assert_eq!((table.entries_of((1, 0)), table.entries_of((1, 1))), (3, 1));
        assert_eq!((table.next_block(1, 11), table.next_block(1, 14)), (Some(11), Some(700)));
    }

    #[test]
    fn a_run_may_touch_several_leaves() {
        let mut table = Changes::default();
        write(&mut table, 1, 1000, 160, 1);
        write(&mut table, 1, 5 * LEAF_BLOCKS - 1, 2, 2);
        assert_eq!(groups(&table, &BTreeMap::new()), [(1, 1), (1, 2), (1, 4), (1, 5)]);
    }

    /// What the limit of memory assumes.
    #[test]
    fn an_entry_is_small() {
        assert_eq!(size_of::<((Era, u64), Change)>(), 32);
    }
}
