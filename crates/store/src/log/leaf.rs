//! A leaf: the map of 512 blocks of a branch, as it is stored on disk. Byte table: `docs/formats/log.md`.
//!
//! Leaves are kept in memory in this form, too: a lookup counts bits.

use std::collections::BTreeMap;
use std::rc::Rc;

use base::crc32c;

use super::memory::LogShare;
use super::place::{Place, Spot, Stored};
use crate::canary::{Canary, makes};
use crate::cursor::Cursor;

/// Blocks of a leaf: 2 MiB of a slice.
pub(crate) const LEAF_BLOCKS: u64 = 512;

/// Alignment of leaves, and the unit of their length in the directory, in bytes.
pub(crate) const LEAF_GRAIN: usize = 64;

const MAGIC: &[u8; 4] = b"ULEF";
const BITS_AT: usize = 32;
const BITS_BYTES: usize = LEAF_BLOCKS as usize / 8;
const ENTRIES_AT: usize = 100;
const ENTRY_BYTES: usize = 9;

/// Bytes of the largest leaf, in whole grains.
pub(crate) const LEAF_BYTES_MAX: usize =
    (ENTRIES_AT + LEAF_BLOCKS as usize * ENTRY_BYTES).next_multiple_of(LEAF_GRAIN);

/// Bytes that a leaf takes at most for a single block, including rounding.
pub(crate) const LEAF_BYTES_ONE: usize = (ENTRIES_AT + ENTRY_BYTES).next_multiple_of(LEAF_GRAIN);

const _: () = assert!(LEAF_BYTES_MAX / LEAF_GRAIN <= u8::MAX as usize, "a length is one byte");

/// An era of a branch: the time from one snapshot to the next. The first one, before all snapshots, has
/// number 0. An era may also begin with a restore.
///
/// In tables of changes, it identifies what was written in that time. In the map, it identifies what was
/// overwritten in that time, as it was before; number 0 is the branch as it is now, and so is the era of its
/// last restore, if it has been restored: see [`super::marks`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Era {
    pub branch: u32,
    pub number: u32,
}

impl Era {
    pub(crate) fn new(branch: u32, number: u32) -> Era {
        Era { branch, number }
    }

    /// The one before the first snapshot; in the map, the branch as it is now.
    pub(crate) fn first(branch: u32) -> Era {
        Era { branch, number: 0 }
    }
}

/// Identifies a leaf: the era, and the number of its first block divided by [`LEAF_BLOCKS`].
pub(crate) type LeafKey = (Era, u64);

/// The leaves of all eras of a branch that map the same blocks: the branch, and the number of the leaves.
pub(crate) type GroupKey = (u32, u64);

/// What the blocks of a leaf read as.
pub(crate) type Spots = [Spot; LEAF_BLOCKS as usize];

/// The bytes of a leaf that lies in a segment of this generation; `None` if it has no block.
pub(crate) fn encode((era, number): LeafKey, generation: u64, spots: &Spots) -> Option<Vec<u8>> {
    let present = spots.iter().filter(|spot| **spot != Spot::Nothing).count();
    if present == 0 {
        return None;
    }
    let mut bytes = Vec::with_capacity((ENTRIES_AT + present * ENTRY_BYTES).next_multiple_of(LEAF_GRAIN));
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&[0; 4]);
    bytes.extend_from_slice(&era.branch.to_le_bytes());
    bytes.extend_from_slice(&number.to_le_bytes());
    bytes.extend_from_slice(&(present as u16).to_le_bytes());
    bytes.extend_from_slice(&[1, 0]);
    bytes.extend_from_slice(&generation.to_le_bytes());
    let mut bits = [0u8; BITS_BYTES];
    for (index, _) in spots.iter().enumerate().filter(|(_, spot)| **spot != Spot::Nothing) {
        bits[index / 8] |= 1 << (index % 8);
    }
    bytes.extend_from_slice(&bits);
    bytes.extend_from_slice(&era.number.to_le_bytes());
    for spot in spots.iter().filter(|spot| **spot != Spot::Nothing) {
        let (place, crc) = match spot {
            Spot::At(stored) => (stored.place, stored.crc),
            Spot::Parent => (Place::PARENT, 0),
            Spot::Zeros | Spot::Nothing => (Place::ZEROS, 0),
        };
        bytes.extend_from_slice(&place.to_bytes());
        bytes.extend_from_slice(&crc.to_le_bytes());
    }
    bytes.resize(bytes.len().next_multiple_of(LEAF_GRAIN), 0);
    let crc = crc32c(&bytes[8..]);
    bytes[4..8].copy_from_slice(&crc.to_le_bytes());
    Some(bytes)
}

/// An intact leaf.
#[derive(Clone, Debug)]
pub(crate) struct Leaf(Rc<[u8]>);

impl Leaf {
    /// Checks what was read for leaf `key` from a segment of this generation; `None` if it is another leaf,
    /// or damaged.
    pub(crate) fn check(bytes: &[u8], key: LeafKey, generation: u64) -> Option<Leaf> {
        let mut fields = Cursor::new(bytes);
        let whole = fields.take(4)? == MAGIC && fields.u32()? == crc32c(bytes.get(8..)?);
        let is_it = fields.u32()? == key.0.branch && fields.u64()? == key.1;
        let present = usize::from(fields.u16()?);
        let of_this_version = fields.u8()? == 1 && fields.u8()? == 0;
        let is_current = fields.u64()? == generation || makes(Canary::LeafOfEarlierUse);
        if !(whole && is_it && of_this_version && is_current) {
            return None;
        }
        let bits = fields.take(BITS_BYTES)?;
        if fields.u32()? != key.0.number {
            return None;
        }
        let counted: u32 = bits.iter().map(|byte| byte.count_ones()).sum();
        let entries = bytes.get(ENTRIES_AT..ENTRIES_AT + present * ENTRY_BYTES)?;
        let sound = |entry: &[u8]| entry[..5].try_into().ok().and_then(Place::from_bytes).is_some();
        let sound = counted as usize == present && entries.chunks(ENTRY_BYTES).all(sound);
        sound.then(|| Leaf(bytes.into()))
    }

    /// Bytes of memory that the leaf takes.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// What all its blocks read as.
    pub(crate) fn spots(&self) -> Spots {
        let mut spots = [Spot::Nothing; LEAF_BLOCKS as usize];
        let mut entries = self.0[ENTRIES_AT..].chunks(ENTRY_BYTES);
        for (index, spot) in spots.iter_mut().enumerate() {
            if self.0[BITS_AT + index / 8] >> (index % 8) & 1 == 1 {
                *spot = entries.next().map_or(Spot::Nothing, decoded);
            }
        }
        spots
    }

    /// What the blocks from `first` on read as.
    pub(crate) fn read(&self, first: usize, spots: &mut [Spot]) {
        let bit = |index: usize| self.0[BITS_AT + index / 8] >> (index % 8) & 1 == 1;
        let before: u32 = self.0[BITS_AT..BITS_AT + first / 8].iter().map(|byte| byte.count_ones()).sum();
        let before = before as usize + (first / 8 * 8..first).filter(|index| bit(*index)).count();
        let mut entries = self.0[ENTRIES_AT + before * ENTRY_BYTES..].chunks(ENTRY_BYTES);
        for (index, spot) in (first..).zip(spots) {
            if bit(index) {
                *spot = entries.next().map_or(Spot::Nothing, decoded);
            }
        }
    }
}

fn decoded(entry: &[u8]) -> Spot {
    match stored(entry) {
        Some(stored) if stored.place == Place::ZEROS => Spot::Zeros,
        Some(stored) if stored.place == Place::PARENT => Spot::Parent,
        stored => stored.map_or(Spot::Nothing, Spot::At),
    }
}

fn stored(entry: &[u8]) -> Option<Stored> {
    let place = Place::from_bytes(entry.get(..5)?.try_into().ok()?)?;
    let crc = u32::from_le_bytes(entry.get(5..9)?.try_into().ok()?);
    Some(Stored { place, crc })
}

/// Leaves in memory, as many as the log has memory for. The least recently used one is dropped first.
pub(crate) struct LeafCache {
    share: LogShare,
    held: usize,
    leaves: BTreeMap<LeafKey, (Leaf, u64)>,
    /// By the number of their last use.
    by_use: BTreeMap<u64, LeafKey>,
    uses: u64,
}

/// What a leaf takes in addition to its bytes: entries of two maps.
const OVERHEAD_BYTES: usize = 128;

impl LeafCache {
    pub(super) fn new(share: LogShare) -> LeafCache {
        LeafCache { share, held: 0, leaves: BTreeMap::new(), by_use: BTreeMap::new(), uses: 0 }
    }

    /// The log's share of the memory of all logs.
    pub(super) fn share(&self) -> &LogShare {
        &self.share
    }

    /// Bytes of memory that the leaves take.
    #[cfg(any(test, debug_assertions))]
    pub(crate) fn held(&self) -> usize {
        self.held
    }

    pub(crate) fn get(&mut self, key: LeafKey) -> Option<Leaf> {
        let (leaf, used) = self.leaves.get_mut(&key)?;
        self.by_use.remove(used);
        self.uses += 1;
        *used = self.uses;
        self.by_use.insert(self.uses, key);
        Some(leaf.clone())
    }

    /// As [`LeafCache::get`], but does not count as a use.
    pub(crate) fn peek(&self, key: LeafKey) -> Option<Leaf> {
        self.leaves.get(&key).map(|(leaf, _)| leaf.clone())
    }

    pub(crate) fn remove(&mut self, key: LeafKey) {
        if let Some((leaf, used)) = self.leaves.remove(&key) {
            self.by_use.remove(&used);
            let held = leaf.len() + OVERHEAD_BYTES;
            self.held -= held;
            self.share.give(held as u64);
        }
    }

    pub(crate) fn insert(&mut self, key: LeafKey, leaf: Leaf) {
        self.remove(key);
        let wanted = leaf.len() + OVERHEAD_BYTES;
        if !self.share.take(wanted as u64) {
            if self.drop_oldest(wanted as u64) < wanted as u64 {
                return;
            }
            self.share.take_in_exchange(wanted as u64);
        }
        self.uses += 1;
        self.held += wanted;
        self.by_use.insert(self.uses, key);
        self.leaves.insert(key, (leaf, self.uses));
    }

    /// Drops leaves if other logs are entitled to their memory and have asked for it.
    pub(crate) fn yield_to_others(&mut self) {
        self.drop_oldest(self.share.to_give_up());
    }

    /// Drops all leaves.
    pub(crate) fn clear(&mut self) {
        self.drop_oldest(u64::MAX);
    }

    /// Drops the least recently used leaves, at least `bytes` of them if there are that many. Returns how
    /// many bytes.
    fn drop_oldest(&mut self, bytes: u64) -> u64 {
        let before = self.held;
        while ((before - self.held) as u64) < bytes
            && let Some((_, oldest)) = self.by_use.first_key_value()
        {
            self.remove(*oldest);
        }
        (before - self.held) as u64
    }
}

#[cfg(test)]
mod tests {
    use base::ByteLen;

    use super::super::memory::LogMemory;
    use super::*;

    const KEY: LeafKey = (Era { branch: 1, number: 7 }, 2);

    fn leaf(key: LeafKey, blocks: &[usize]) -> Leaf {
        let mut spots = [Spot::Nothing; 512];
        for block in blocks {
            let place = Place::new(*block as u32, 3);
            spots[*block] = match block % 10 {
                4 => Spot::Zeros,
                9 => Spot::Parent,
                _ => Spot::At(Stored { place, crc: 9 }),
            };
        }
        let bytes = encode(key, 5, &spots).unwrap();
        let leaf = Leaf::check(&bytes, key, 5).unwrap();
        assert_eq!(leaf.spots(), spots);
        let mut tail = vec![Spot::Nothing; 100];
        leaf.read(400, &mut tail);
        assert_eq!(tail, spots[400..500]);
        assert!(Leaf::check(&bytes, (key.0, key.1 + 1), 5).is_none(), "another leaf's place");
        let other = Era { number: key.0.number + 1, ..key.0 };
        assert!(Leaf::check(&bytes, (other, key.1), 5).is_none(), "another snapshot's");
        assert!(Leaf::check(&bytes, key, 6).is_none(), "left by an earlier user of the segment");
        leaf
    }

    #[test]
    fn lookups_count_bits() {
        leaf(KEY, &[0]);
        leaf(KEY, &[7, 8, 399, 400, 411, 499, 500, 511]);
        leaf(KEY, &(0..512).collect::<Vec<usize>>());
        assert_eq!(encode(KEY, 5, &[Spot::Nothing; 512]), None);
    }

    #[test]
    fn the_cache_stays_within_its_budget() {
        let limit = 3 * (LEAF_BYTES_ONE + OVERHEAD_BYTES);
        let mut cache = LeafCache::new(LogMemory::new(ByteLen(limit as u64)).join(|| ()));
        for number in 0..10 {
            cache.insert((KEY.0, number), leaf((KEY.0, number), &[1]));
            assert!(cache.get((KEY.0, 0)).is_some(), "it was used last");
            assert!(cache.held() <= limit);
        }
        assert!(cache.get((KEY.0, 9)).is_some() && cache.get((KEY.0, 5)).is_none());
    }
}
