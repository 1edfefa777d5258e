//! Maps an initiator's task tag to our slot: an open-addressed table, so that a lookup costs one or two cache
//! lines.
//!
//! Initiators choose the tags; a hostile one may make them collide. The table holds at most one window of
//! commands, so the worst case is a scan of a few hundred entries. The table is never iterated, so its order
//! has no effect.

use crate::iscsi::wire::InitiatorTag;

/// The empty entry. No task has the reserved tag.
const EMPTY: (InitiatorTag, u32) = (InitiatorTag::RESERVED, 0);

#[derive(Debug)]
pub(super) struct TagIndex {
    /// The length is a power of two, and at most half of the entries are used, so that every probe ends.
    entries: Vec<(InitiatorTag, u32)>,
    used: usize,
}

impl TagIndex {
    pub(super) fn new() -> TagIndex {
        TagIndex { entries: vec![EMPTY; 64], used: 0 }
    }

    fn home(&self, tag: InitiatorTag) -> usize {
        // Fibonacci hashing: initiators count tags up, or combine an index and a generation in different
        // bits.
        (tag.0.wrapping_mul(0x9e37_79b9) >> 16) as usize & (self.entries.len() - 1)
    }

    /// The position of `tag`, or the empty position where it belongs.
    fn find(&self, tag: InitiatorTag) -> usize {
        let mask = self.entries.len() - 1;
        let mut at = self.home(tag);
        while self.entries[at].0 != tag && self.entries[at].0 != InitiatorTag::RESERVED {
            at = (at + 1) & mask;
        }
        at
    }

    pub(super) fn get(&self, tag: InitiatorTag) -> Option<u32> {
        if tag == InitiatorTag::RESERVED {
            return None;
        }
        let (found, slot) = self.entries[self.find(tag)];
        (found == tag).then_some(slot)
    }

    /// Adds a tag that is not in the table and is not the reserved one.
    pub(super) fn insert(&mut self, tag: InitiatorTag, slot: u32) {
        assert!(tag != InitiatorTag::RESERVED, "the reserved tag is no task's");
        if (self.used + 1) * 2 > self.entries.len() {
            let doubled = vec![EMPTY; self.entries.len() * 2];
            for (tag, slot) in std::mem::replace(&mut self.entries, doubled) {
                if tag != InitiatorTag::RESERVED {
                    let at = self.find(tag);
                    self.entries[at] = (tag, slot);
                }
            }
        }
        let at = self.find(tag);
        self.entries[at] = (tag, slot);
        self.used += 1;
    }

    pub(super) fn remove(&mut self, tag: InitiatorTag) {
        let mask = self.entries.len() - 1;
        let mut hole = self.find(tag);
        if tag == InitiatorTag::RESERVED || self.entries[hole].0 != tag {
            return;
        }
        self.used -= 1;
        // Close the gap: move back each following entry whose home is not behind the hole.
        let mut at = hole;
        loop {
            at = (at + 1) & mask;
            let (moved, _) = self.entries[at];
            if moved == InitiatorTag::RESERVED {
                break;
            }
            let from_home = at.wrapping_sub(self.home(moved)) & mask;
            let from_hole = at.wrapping_sub(hole) & mask;
            if from_home >= from_hole {
                self.entries[hole] = self.entries[at];
                hole = at;
            }
        }
        self.entries[hole] = EMPTY;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use base::Rng;

    use super::*;

    #[test]
    fn it_equals_a_map() {
        let mut rng = Rng::new(5);
        let (mut index, mut map) = (TagIndex::new(), BTreeMap::new());
        for step in 0..100_000 {
            // Few tags, with equal low bits, so that they collide.
            let tag = InitiatorTag((rng.below(400) as u32) << 20);
            match map.get(&tag) {
                Some(_) if rng.one_in(2) => {
                    index.remove(tag);
                    map.remove(&tag);
                }
                None => {
                    index.insert(tag, step);
                    map.insert(tag, step);
                }
                _ => {}
            }
            let probe = InitiatorTag((rng.below(400) as u32) << 20);
            assert_eq!(index.get(probe), map.get(&probe).copied());
        }
        assert_eq!(index.get(InitiatorTag::RESERVED), None);
    }
}
