//! What the next merge frees, so that figures do not count it until then.
//!
//! A block that was overwritten or unmapped stays live until it is merged: its place cannot be used again
//! before, so admission counts it. Figures for people leave it out as soon as the log knows what the entry of
//! a table has replaced. It looks that up where nothing has to be read: in the other table, in leaves that
//! are in memory, and, for ranges of zeros, in the directory. Anything else counts until the merge. Nothing
//! is left out that the merge does not free.

use std::collections::BTreeMap;
use std::ops::Range;
use std::slice;

use super::changes::Changes;
use super::leaf::{Era, LEAF_BLOCKS, LeafKey};
use super::place::Spot;
use super::state::LeafPlace;
use super::{Running, Usage};

/// How many leaves are looked at for one range of zeros, *est.* 0.3 ms. Hosts wait meanwhile.
///
/// They map 2 GiB of a slice. What others have counts until the merge.
const COUNTED_LEAVES: usize = 1024;

/// What the entries of a table have replaced in the map, and in the other table if that one is older.
#[derive(Debug, Default)]
pub(super) struct Replaced {
    /// By branch, without what has been merged.
    branches: BTreeMap<u32, Usage>,
    /// How many quarters of slots that takes altogether.
    quarters: u64,
}

impl Replaced {
    fn add(&mut self, branch: u32, blocks: Usage) {
        if blocks.blocks > 0 {
            self.branches.entry(branch).or_default().add(blocks);
            self.quarters += blocks.quarters;
        }
    }

    /// Notes that blocks of a branch were removed from what it uses.
    pub(super) fn merged(&mut self, branch: u32, blocks: Usage) {
        if let Some(left) = self.branches.get_mut(&branch) {
            let before = left.quarters;
            left.subtract(blocks);
            self.quarters -= before - left.quarters;
        }
    }

    fn of(&self, branch: u32) -> Usage {
        self.branches.get(&branch).copied().unwrap_or_default()
    }
}

impl Running {
    /// What a branch will take after the next merge, as far as is known; never less.
    pub(super) fn usage_of(&self, branch: u32) -> Usage {
        let mut used = self.used.get(&branch).copied().unwrap_or_default();
        used.subtract(self.replaced.of(branch));
        used.subtract(self.frozen_replaced.of(branch));
        used
    }

    /// How many quarters of slots all branches together will take then.
    pub(super) fn usage_of_all(&self) -> u64 {
        self.used_by_all.saturating_sub(self.replaced.quarters + self.frozen_replaced.quarters)
    }

    /// Counts more blocks among those that a branch takes.
    pub(super) fn add_used(&mut self, branch: u32, blocks: Usage) {
        self.used.entry(branch).or_default().add(blocks);
        self.used_by_all += blocks.quarters;
    }

    /// Subtracts blocks that a branch no longer needs.
    pub(super) fn forget(&mut self, branch: u32, blocks: Usage) {
        if let Some(used) = self.used.get_mut(&branch) {
            let before = used.quarters;
            used.subtract(blocks);
            self.used_by_all -= before - used.quarters;
        }
    }

    /// Notes what is replaced by an entry that the table of its record is about to get.
    ///
    /// Blocks for which that table has an entry already do not count: what that one has replaced was looked
    /// up when it was entered.
    pub(super) fn count_replaced(&mut self, sequence: u64, branch: u32, block: u64, count: u64) {
        // What a snapshot needs is not freed.
        if count == 0 || !self.marks.is_bare(branch) {
            return;
        }
        let is_late = self.is_of_frozen(sequence);
        let (own, below) = match &self.frozen {
            Some(frozen) if is_late => (frozen, None),
            frozen => (&self.active, frozen.as_ref()),
        };
        let (era, end) = (Era::first(branch), block + count);
        let leaves = (era, block / LEAF_BLOCKS)..=(era, (end - 1) / LEAF_BLOCKS);
        let mut found = Usage::default();
        for (key, place) in self.leaves.range(leaves).take(COUNTED_LEAVES) {
            let first = key.1 * LEAF_BLOCKS;
            let blocks = block.max(first)..end.min(first + LEAF_BLOCKS);
            found.add(self.replaced_in(own, below, (*key, place), blocks));
        }
        let replaced = if is_late { &mut self.frozen_replaced } else { &mut self.replaced };
        replaced.add(branch, found);
    }

    /// What an entry of the table `own` replaces of the blocks of a leaf; `below` is the table that is merged
    /// before.
    fn replaced_in(
        &self,
        own: &Changes,
        below: Option<&Changes>,
        (key, place): (LeafKey, &LeafPlace),
        blocks: Range<u64>,
    ) -> Usage {
        let (era, number) = key;
        let len = blocks.end - blocks.start;
        let is_touched = || std::iter::once(own).chain(below).any(|table| table.touches(era, number));
        if len == LEAF_BLOCKS && !is_touched() {
            return Usage { blocks: place.blocks.into(), quarters: place.quarters.into() };
        }
        let mut found = Usage::default();
        let Some(leaf) = self.cache.peek(key) else { return found };
        let mut before = vec![Spot::Nothing; len as usize];
        leaf.read((blocks.start % LEAF_BLOCKS) as usize, &mut before);
        // The table that is merged may still have entries of the era of a snapshot that has just been
        // removed.
        let eras = 0..u32::MAX;
        if let Some(below) = below {
            below.overlay_all(era.branch, &eras, blocks.start, &mut before, Spot::Nothing);
        }
        let mut is_known = vec![false; before.len()];
        own.note_changes(era.branch, slice::from_ref(&eras), blocks.start, &mut is_known);
        let new = before.iter().zip(is_known).filter(|(_, is_known)| !is_known);
        new.filter_map(|(spot, _)| spot.stored()).for_each(|stored| {
            found.add(Usage::of(stored.place.run(1)));
        });
        found
    }
}

#[cfg(test)]
mod tests {
    use base::ByteLen;

    use super::super::LogMemory;
    use super::super::tests::without_pool;
    use super::*;

    /// Before, what its last records had replaced was subtracted twice while its leaves were removed.
    #[test]
    fn removing_a_deleted_volume_subtracts_nothing_of_others() {
        let mut state = without_pool(20, LogMemory::new(ByteLen(1 << 30)));
        let place = LeafPlace { segment: 0, at: 0, len: 73, blocks: 512, quarters: 2048 };
        for branch in [1, 2] {
            state.hold(Era::first(branch), &place);
            state.leaves.insert((Era::first(branch), 0), place);
            state.add_used(branch, Usage { blocks: 512, quarters: 2048 });
        }
        state.count_replaced(1, 2, 0, LEAF_BLOCKS);
        state.active.zero(Era::first(2), 0, LEAF_BLOCKS, &mut Vec::new());
        assert_eq!(state.usage_of_all(), 2048, "the second volume's was unmapped");
        state.sweep_away((Era::first(2), 0), None);
        assert_eq!(state.usage_of_all(), 2048);
    }
}
