//! The table of changes: what was written since the map was last merged. Reads look here first.
//!
//! An entry is a run of blocks that one record has in consecutive places of one size, or a range that reads
//! as zeros. Entries never overlap, so a block has at most one entry, its newest change. Moves by the cleaner
//! are kept separately: until the next merge, a block is read from its old place.

use std::collections::BTreeMap;

use super::leaf::{LEAF_BLOCKS, LeafKey};
use super::place::{Place, Slots, Spot, Stored};
use super::state::LeafPlace;

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
    /// By branch and first block.
    entries: BTreeMap<(u32, u64), Change>,
    /// How many blocks have a place here, and how many of the entries are ranges of zeros.
    blocks: usize,
    ranges: usize,
    /// How many quarters of slots the blocks take that have a place here.
    quarters: u64,
    /// The checksums of all blocks that were entered, including those that were overwritten since: 4 bytes
    /// for each block that a replay may have to read.
    crcs: Vec<u32>,
    moves: BTreeMap<(u32, u64), Move>,
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
        branch: u32,
        block: u64,
        place: Place,
        crcs: impl Iterator<Item = u32>,
        dead: &mut Vec<Slots>,
    ) {
        let at = self.crcs.len();
        self.crcs.extend(crcs);
        let count = self.crcs.len() - at;
        if count > 1 || self.has_runs() {
            self.cut(branch, block, count as u64, dead);
        }
        self.blocks += count;
        self.quarters += count as u64 * u64::from(place.size().quarters());
        let change = Change::Blocks { place, count: count as u16, crcs: at as u32 };
        if let Some(Change::Blocks { place, .. }) = self.entries.insert((branch, block), change) {
            self.blocks -= 1;
            self.quarters -= u64::from(place.size().quarters());
            Slots::add(dead, place);
        }
    }

    /// Enters a range that reads as zeros. Slots that become dead are added to `dead`.
    pub(crate) fn zero(&mut self, branch: u32, block: u64, count: u64, dead: &mut Vec<Slots>) {
        if count > 0 {
            self.cut(branch, block, count, dead);
            self.entries.insert((branch, block), Change::Zeros(count));
            self.ranges += 1;
        }
    }

    /// Enters a block that the cleaner has copied. Returns the place of an earlier copy, which is dead now.
    pub(crate) fn moved(&mut self, branch: u32, block: u64, moved: Move) -> Option<Place> {
        let quarters = |moved: Move| u64::from(moved.to.place.size().quarters());
        self.moved_quarters += quarters(moved);
        let earlier = self.moves.insert((branch, block), moved)?;
        self.moved_quarters -= quarters(earlier);
        Some(earlier.to.place)
    }

    /// Whether an entry may cover more than one block. If not, the entry of a block begins at that block.
    fn has_runs(&self) -> bool {
        self.ranges > 0 || self.blocks > self.entries.len()
    }

    /// The entry that begins before a block and covers it, too: its first block, and what it says about the
    /// blocks before this one, and from this one on.
    fn across(&self, branch: u32, block: u64) -> Option<(u64, Change, Change)> {
        if !self.has_runs() {
            return None;
        }
        let ((_, start), change) = self.entries.range((branch, 0)..(branch, block)).next_back()?;
        let (before, behind) = change.split(block - start)?;
        Some((*start, before, behind))
    }

    /// Makes an entry that covers a block begin there.
    fn split(&mut self, branch: u32, block: u64) {
        if let Some((start, before, behind)) = self.across(branch, block) {
            self.entries.insert((branch, start), before);
            self.entries.insert((branch, block), behind);
            self.ranges += usize::from(matches!(behind, Change::Zeros(_)));
        }
    }

    /// Removes the entries of a range.
    fn cut(&mut self, branch: u32, block: u64, count: u64, dead: &mut Vec<Slots>) {
        let end = block + count;
        self.split(branch, block);
        self.split(branch, end);
        for (_, change) in self.entries.extract_if((branch, block)..(branch, end), |_, _| true) {
            match change {
                Change::Blocks { place, count, .. } => {
                    let slots = place.run(count);
                    self.blocks -= usize::from(count);
                    self.quarters -= u64::from(slots.quarters());
                    dead.push(slots);
                }
                Change::Zeros(_) => self.ranges -= 1,
            }
        }
    }

    /// The entries that touch a range, in order. One that begins before the range is cut there.
    fn within(&self, branch: u32, block: u64, count: u64) -> impl Iterator<Item = (u64, Change)> {
        let across = self.across(branch, block).map(|(_, _, behind)| (block, behind));
        let inside = self.entries.range((branch, block)..(branch, block + count));
        across.into_iter().chain(inside.map(|((_, start), change)| (*start, *change)))
    }

    /// Applies the table's entries for the blocks from `block` on to `spots`.
    pub(crate) fn overlay(&self, branch: u32, block: u64, spots: &mut [Spot]) {
        for (start, change) in self.within(branch, block, spots.len() as u64) {
            let spots = &mut spots[(start - block) as usize..];
            let count = change.blocks().min(spots.len() as u64) as usize;
            match change {
                Change::Blocks { mut place, crcs, .. } => {
                    for (spot, crc) in spots[..count].iter_mut().zip(&self.crcs[crcs as usize..]) {
                        *spot = Spot::At(Stored { place, crc: *crc });
                        place = place.next();
                    }
                }
                Change::Zeros(_) => spots[..count].fill(Spot::Nothing),
            }
        }
    }

    /// Whether the entries cover all of a range, so that the map is not needed.
    pub(crate) fn covers(&self, branch: u32, block: u64, count: u64) -> bool {
        let mut at = block;
        for (start, change) in self.within(branch, block, count) {
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

    /// How many of them begin in a leaf.
    pub(crate) fn entries_of(&self, (branch, number): LeafKey) -> usize {
        let first = number * LEAF_BLOCKS;
        let blocks = (branch, first)..(branch, first + LEAF_BLOCKS);
        self.entries.range(blocks.clone()).count() + self.moves.range(blocks).count()
    }

    /// The moves of a leaf's blocks.
    pub(crate) fn moves_of(&self, (branch, number): LeafKey) -> impl Iterator<Item = (u64, Move)> {
        let first = number * LEAF_BLOCKS;
        let moves = self.moves.range((branch, first)..(branch, first + LEAF_BLOCKS));
        moves.map(|((_, block), moved)| (*block, *moved))
    }

    /// The first leaf, from `from` on, that the table changes. A range of zeros changes only leaves that are
    /// in the map.
    pub(crate) fn next_leaf(&self, from: LeafKey, map: &BTreeMap<LeafKey, LeafPlace>) -> Option<LeafKey> {
        let moved = self.moves.range((from.0, from.1 * LEAF_BLOCKS)..).next();
        let moved = moved.map(|((branch, block), _)| (*branch, block / LEAF_BLOCKS));
        let changed = self.next_changed_leaf(from, map);
        moved.into_iter().chain(changed).min()
    }

    /// The same, if moves do not count.
    pub(crate) fn next_changed_leaf(
        &self,
        from: LeafKey,
        map: &BTreeMap<LeafKey, LeafPlace>,
    ) -> Option<LeafKey> {
        let first = (from.0, from.1 * LEAF_BLOCKS);
        let across = self.across(first.0, first.1).map(|(_, _, behind)| (first, behind));
        let inside = self.entries.range(first..).map(|(key, change)| (*key, *change));
        for ((branch, start), change) in across.into_iter().chain(inside) {
            let leaf = start / LEAF_BLOCKS;
            match change {
                Change::Blocks { .. } => return Some((branch, leaf)),
                Change::Zeros(zeros) => {
                    let last = (start + zeros - 1) / LEAF_BLOCKS;
                    if let Some((key, _)) = map.range((branch, leaf)..=(branch, last)).next() {
                        return Some(*key);
                    }
                }
            }
        }
        None
    }

    /// The first block of a branch, from `block` on, that has a place in the table.
    pub(crate) fn next_block(&self, branch: u32, block: u64) -> Option<u64> {
        let mut entries = self.within(branch, block, u64::MAX - block);
        entries.find(|(_, change)| matches!(change, Change::Blocks { .. })).map(|(start, _)| start)
    }

    /// The first branch, from `from` on, of which the table has an entry.
    pub(crate) fn next_branch(&self, from: u32) -> Option<u32> {
        self.entries.range((from, 0)..).next().map(|((branch, _), _)| *branch)
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

#[cfg(test)]
mod tests {
    use base::Rng;

    use super::super::place::Size;
    use super::*;

    /// Where block `index` of write `number` lies.
    fn stored(number: u32, index: u64) -> Stored {
        let size = [Size::Whole, Size::Half, Size::Quarter][number as usize % 3];
        let place = Place::at(number, index as u32 * size.quarters(), size);
        Stored { place, crc: 100 * number + index as u32 }
    }

    /// Writes a run. Returns the slots that become dead.
    fn write(table: &mut Changes, branch: u32, block: u64, count: u64, number: u32) -> Vec<Slots> {
        let mut dead = Vec::new();
        let crcs = (0..count).map(|index| stored(number, index).crc);
        table.write(branch, block, stored(number, 0).place, crcs, &mut dead);
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
                    table.zero(1, block, count, &mut dead);
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
                assert_eq!((table.blocks, table.ranges), (stored_blocks, ranges.count()));
                let sizes = obvious.values().filter_map(|spot| Some(spot.stored()?.place.size()));
                assert_eq!(table.quarters(), sizes.map(|size| u64::from(size.quarters())).sum::<u64>());
                assert_eq!(table.places().len(), stored_blocks);
                let (from, len) = (rng.below(30), 1 + rng.below(30));
                let mut spots = vec![Spot::At(stored(1000, 0)); len as usize];
                table.overlay(1, from, &mut spots);
                let expected = |block| obvious.get(&block).copied().unwrap_or(Spot::At(stored(1000, 0)));
                assert_eq!(spots, (from..from + len).map(expected).collect::<Vec<Spot>>());
                assert_eq!(
                    table.covers(1, from, len),
                    (from..from + len).all(|block| obvious.contains_key(&block))
                );
                let next = obvious.range(from..).find(|(_, spot)| spot.stored().is_some());
                assert_eq!(table.next_block(1, from), next.map(|(block, _)| *block));
            }
            let mut spots = [Spot::Nothing; 4];
            table.overlay(2, 0, &mut spots);
            assert_eq!(spots, [Spot::Nothing; 4], "another branch");
        }
    }

    fn leaves(table: &Changes, map: &BTreeMap<LeafKey, LeafPlace>) -> Vec<LeafKey> {
        let mut found = Vec::new();
        let mut from = (0, 0);
        while let Some(key) = table.next_leaf(from, map) {
            found.push(key);
            from = (key.0, key.1 + 1);
        }
        found
    }

    #[test]
    fn a_range_of_zeros_matters_where_the_map_has_leaves() {
        let place = LeafPlace { segment: 0, at: 0, len: 1, blocks: 1, quarters: 4 };
        let map = BTreeMap::from([((1, 7), place), ((1, 5000), place), ((2, 1), place)]);
        let mut table = Changes::default();
        table.zero(1, 100, 1 << 40, &mut Vec::new());
        write(&mut table, 3, 1000, 1, 1);
        assert_eq!(leaves(&table, &map), [(1, 7), (1, 5000), (3, 1)]);
    }

    #[test]
    fn a_run_may_touch_several_leaves() {
        let mut table = Changes::default();
        write(&mut table, 1, 1000, 160, 1);
        write(&mut table, 1, 5 * LEAF_BLOCKS - 1, 2, 2);
        assert_eq!(leaves(&table, &BTreeMap::new()), [(1, 1), (1, 2), (1, 4), (1, 5)]);
    }

    /// What the limit of memory assumes.
    #[test]
    fn an_entry_is_small() {
        assert_eq!(size_of::<((u32, u64), Change)>(), 32);
    }
}
