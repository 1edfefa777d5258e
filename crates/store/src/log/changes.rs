//! The table of changes: what was written since the map was last merged. Reads look here first.
//!
//! An entry is a block, or a range that reads as zeros. Entries never overlap, so a block has at most one
//! entry, its newest change. Moves by the cleaner are kept separately: until the next merge, a block is read
//! from its old place.

use std::collections::BTreeMap;

use super::leaf::{LEAF_BLOCKS, LeafKey};
use super::place::{Place, Slots, Spot, Stored};
use super::state::LeafPlace;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Block(Stored),
    /// This many blocks read as zeros.
    Zeros(u64),
}

impl Change {
    fn blocks(self) -> u64 {
        match self {
            Change::Block(_) => 1,
            Change::Zeros(count) => count,
        }
    }
}

/// A block that the cleaner has copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Move {
    pub from: Place,
    pub to: Stored,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Changes {
    /// By branch and first block.
    entries: BTreeMap<(u32, u64), Change>,
    /// How many of the entries are ranges of zeros. If there are none, the entry of a block begins at that
    /// block.
    ranges: usize,
    moves: BTreeMap<(u32, u64), Move>,
}

impl Changes {
    /// The number of entries, including moves: this is what the table's limit applies to.
    pub(crate) fn len(&self) -> usize {
        self.entries.len() + self.moves.len()
    }

    /// How many of them are moves by the cleaner.
    pub(crate) fn moves(&self) -> usize {
        self.moves.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Enters a new place of a block. Slots that become dead are added to `dead`.
    pub(crate) fn write(&mut self, branch: u32, block: u64, stored: Stored, dead: &mut Vec<Slots>) {
        if self.ranges > 0 {
            self.cut(branch, block, 1, dead);
        }
        if let Some(Change::Block(old)) = self.entries.insert((branch, block), Change::Block(stored)) {
            Slots::add(dead, old.place);
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
        self.moves.insert((branch, block), moved).map(|earlier| earlier.to.place)
    }

    /// Removes the entries of a range.
    fn cut(&mut self, branch: u32, block: u64, count: u64, dead: &mut Vec<Slots>) {
        let end = block + count;
        let before = self.entries.range((branch, 0)..(branch, block)).next_back();
        if let Some((&(_, start), &Change::Zeros(zeros))) = before
            && start + zeros > block
        {
            self.entries.insert((branch, start), Change::Zeros(block - start));
            if start + zeros > end {
                self.entries.insert((branch, end), Change::Zeros(start + zeros - end));
                self.ranges += 1;
            }
        }
        while let Some((&key, &change)) = self.entries.range((branch, block)..(branch, end)).next() {
            self.entries.remove(&key);
            match change {
                Change::Block(stored) => Slots::add(dead, stored.place),
                Change::Zeros(zeros) if key.1 + zeros > end => {
                    self.entries.insert((branch, end), Change::Zeros(key.1 + zeros - end));
                }
                Change::Zeros(_) => self.ranges -= 1,
            }
        }
    }

    /// The entries that touch a range, in order.
    fn within(&self, branch: u32, block: u64, count: u64) -> impl Iterator<Item = (u64, Change)> {
        let before = || self.entries.range((branch, 0)..(branch, block)).next_back();
        let before = if self.ranges > 0 { before() } else { None };
        let before = before.filter(move |((_, start), change)| start + change.blocks() > block);
        let inside = self.entries.range((branch, block)..(branch, block + count));
        before.into_iter().chain(inside).map(|((_, start), change)| (*start, *change))
    }

    /// Applies the table's entries for the blocks from `block` on to `spots`.
    pub(crate) fn overlay(&self, branch: u32, block: u64, spots: &mut [Spot]) {
        let count = spots.len() as u64;
        for (start, change) in self.within(branch, block, count) {
            match change {
                Change::Block(stored) => spots[(start - block) as usize] = Spot::At(stored),
                Change::Zeros(zeros) => {
                    let from = (start.max(block) - block) as usize;
                    let to = ((start + zeros).min(block + count) - block) as usize;
                    spots[from..to].fill(Spot::Nothing);
                }
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

    fn next_changed_leaf(&self, from: LeafKey, map: &BTreeMap<LeafKey, LeafPlace>) -> Option<LeafKey> {
        let (branch, first) = (from.0, from.1 * LEAF_BLOCKS);
        let before = self.entries.range((branch, 0)..(branch, first)).next_back();
        let before = before.filter(|((_, start), change)| start + change.blocks() > first);
        for (&(branch, start), change) in before.into_iter().chain(self.entries.range((branch, first)..)) {
            let start_leaf =
                if branch == from.0 { (start / LEAF_BLOCKS).max(from.1) } else { start / LEAF_BLOCKS };
            match change {
                Change::Block(_) => return Some((branch, start_leaf)),
                Change::Zeros(zeros) => {
                    let last = (start + zeros - 1) / LEAF_BLOCKS;
                    if let Some((key, _)) = map.range((branch, start_leaf)..=(branch, last)).next() {
                        return Some(*key);
                    }
                }
            }
        }
        None
    }

    /// The first block of a branch, from `block` on, that has a place in the table.
    pub(crate) fn next_block(&self, branch: u32, block: u64) -> Option<u64> {
        let mut entries = self.entries.range((branch, block)..=(branch, u64::MAX));
        entries.find(|(_, change)| matches!(change, Change::Block(_))).map(|((_, block), _)| *block)
    }

    /// The branches of blocks that have a place in the table.
    pub(crate) fn branches(&self) -> impl Iterator<Item = u32> {
        let blocks = self.entries.iter().filter(|(_, change)| matches!(change, Change::Block(_)));
        blocks.map(|((branch, _), _)| *branch)
    }

    /// All places in the table, including those of moves: for checks.
    #[cfg(test)]
    pub(crate) fn places(&self) -> Vec<Place> {
        let blocks = self.entries.values().filter_map(|change| match change {
            Change::Block(stored) => Some(stored.place),
            Change::Zeros(_) => None,
        });
        blocks.chain(self.moves.values().map(|moved| moved.to.place)).collect()
    }
}

#[cfg(test)]
mod tests {
    use base::Rng;

    use super::*;

    fn stored(number: u32) -> Stored {
        Stored { place: Place { segment: number, slot: 0 }, crc: number }
    }

    /// Compares with a table of single blocks.
    #[test]
    fn equal_to_the_obvious_version() {
        for seed in 0..200 {
            let mut rng = Rng::new(seed);
            let mut table = Changes::default();
            let mut obvious: BTreeMap<u64, Spot> = BTreeMap::new();
            for number in 0..60 {
                let (block, mut dead) = (rng.below(40), Vec::new());
                let count = if rng.one_in(2) { 1 } else { 1 + rng.below(20) };
                let before: Vec<Place> = (block..block + count)
                    .filter_map(|block| obvious.get(&block)?.stored().map(|stored| stored.place))
                    .collect();
                if count == 1 {
                    table.write(1, block, stored(number), &mut dead);
                    obvious.insert(block, Spot::At(stored(number)));
                } else {
                    table.zero(1, block, count, &mut dead);
                    obvious.extend((block..block + count).map(|block| (block, Spot::Nothing)));
                }
                assert_eq!(dead.into_iter().flat_map(Slots::places).collect::<Vec<Place>>(), before);
                let (from, len) = (rng.below(30), 1 + rng.below(30));
                let ranges = table.entries.values().filter(|change| matches!(change, Change::Zeros(_)));
                assert_eq!(table.ranges, ranges.count());
                let mut spots = vec![Spot::At(stored(1000)); len as usize];
                table.overlay(1, from, &mut spots);
                let expected = |block| obvious.get(&block).copied().unwrap_or(Spot::At(stored(1000)));
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

    #[test]
    fn a_range_of_zeros_matters_where_the_map_has_leaves() {
        let place = LeafPlace { segment: 0, at: 0, len: 1, blocks: 1 };
        let map = BTreeMap::from([((1, 7), place), ((1, 5000), place), ((2, 1), place)]);
        let mut table = Changes::default();
        table.zero(1, 100, 1 << 40, &mut Vec::new());
        table.write(3, 1000, stored(1), &mut Vec::new());
        let mut found = Vec::new();
        let mut from = (0, 0);
        while let Some(key) = table.next_leaf(from, &map) {
            found.push(key);
            from = (key.0, key.1 + 1);
        }
        assert_eq!(found, [(1, 7), (1, 5000), (3, 1)]);
    }
}
