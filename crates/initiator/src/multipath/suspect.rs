//! Commands that may still be under way on a lost path, or are to be sent again. Other commands that write
//! the same blocks wait for them.
//!
//! `docs/why/multipath.md` has the reasons. A command takes a place when it fails in a way that leaves its
//! blocks in doubt, and releases the place when it can have no further effect. Places are in the order of the
//! failures: of two commands that are both to be sent again, the one that failed first goes first.

use std::collections::BTreeMap;

use base::LbaRange;

/// A place in the order of failures; the smaller one came first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place(u64);

#[derive(Debug, Default)]
pub(super) struct Doubt {
    blocks: BTreeMap<Place, LbaRange>,
    next: u64,
}

impl Doubt {
    /// Whether nothing is in doubt.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Marks these blocks as in doubt.
    pub(super) fn add(&mut self, blocks: LbaRange) -> Place {
        let place = Place(self.next);
        self.next += 1;
        self.blocks.insert(place, blocks);
        place
    }

    /// The blocks of this place are no longer in doubt.
    pub(super) fn remove(&mut self, place: Place) {
        self.blocks.remove(&place);
    }

    /// Whether a command that changes these blocks may be sent.
    ///
    /// It may if none of the blocks is in doubt. A command that has a `place` itself ignores those that
    /// failed after it.
    pub(super) fn admits(&self, blocks: LbaRange, place: Option<Place>) -> bool {
        let before = self.blocks.iter().take_while(|(other, _)| place.is_none_or(|place| **other < place));
        before.into_iter().all(|(_, other)| !other.overlaps(blocks))
    }
}

#[cfg(test)]
mod tests {
    use base::{BlockCount, Lba};

    use super::*;

    fn blocks(start: u64, count: u64) -> LbaRange {
        LbaRange::new(Lba(start), BlockCount(count)).unwrap()
    }

    #[test]
    fn a_write_to_the_same_blocks_waits() {
        let mut doubt = Doubt::default();
        assert!(doubt.is_empty() && doubt.admits(blocks(0, 100), None));
        let place = doubt.add(blocks(10, 10));
        assert!(doubt.admits(blocks(0, 10), None) && doubt.admits(blocks(20, 5), None));
        assert!(!doubt.admits(blocks(0, 11), None) && !doubt.admits(blocks(19, 1), None));
        assert!(doubt.admits(blocks(12, 1), Some(place)), "its own");
        doubt.remove(place);
        assert!(doubt.is_empty() && doubt.admits(blocks(12, 1), None));
    }

    #[test]
    fn the_first_to_fail_goes_first() {
        let mut doubt = Doubt::default();
        let [first, second, third] = [blocks(0, 8), blocks(4, 8), blocks(100, 1)].map(|it| doubt.add(it));
        assert!(doubt.admits(blocks(0, 8), Some(first)));
        assert!(!doubt.admits(blocks(4, 8), Some(second)));
        assert!(doubt.admits(blocks(100, 1), Some(third)));
        doubt.remove(first);
        assert!(doubt.admits(blocks(4, 8), Some(second)));
        assert!(doubt.admits(blocks(4, 8), Some(second)) && !doubt.is_empty());
    }
}
