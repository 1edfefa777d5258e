//! The dirty map: one bit for each region and each copy of the volume, which says "that copy may differ from
//! this one here".
//!
//! It guarantees R4: before a region changes on the disk, its bits for all other copies are on the disk. So
//! whichever nodes are lost together, two copies that differ in a region have a bit for each other there, and
//! a resync that copies the regions with bits makes them equal.
//!
//! Bits are set rarely (by the first write to a clean region) and cleared lazily. The map is written in
//! pages. A page holds the bits of all copies for [`PAGE_REGIONS`] regions, so the first write to a region
//! costs one page write, whatever the number of copies. A bit counts as set only if it is in every version of
//! the page that the disk may hold: the last one that was written and the one that is being written.

use std::ops::Range;

use base::Crc32c;

use crate::{Slot, Slots};

/// Bytes of a page on the disk.
pub const PAGE_BYTES: usize = 4096;
const HEADER_BYTES: usize = 32;
const BITS_BYTES: usize = PAGE_BYTES - HEADER_BYTES;
/// Regions per page: each takes four bits.
pub const PAGE_REGIONS: u64 = BITS_BYTES as u64 * 2;
const MAGIC: [u8; 8] = *b"URSADMAP";

const _: () = assert!(Slot::MAX == 4, "two regions share a byte");

type Bits = [u8; BITS_BYTES];

/// The dirty map of a slice; see the module.
#[derive(Debug)]
pub struct DirtyMap {
    regions: u64,
    pages: Vec<Page>,
    /// How many bits are set for each slot.
    counts: [u64; Slot::MAX],
    /// How many pages are urgent: a large slice has thousands of pages, and almost never one that is.
    urgent: usize,
    /// Where to look next for a changed page: a page that changes all the time must not keep others from the
    /// disk.
    idle_from: usize,
}

#[derive(Debug, Default)]
struct Page {
    /// The present bits; `None` if no bit is set.
    bits: Option<Box<Bits>>,
    /// The bits on the disk, if they differ from `bits` or did when a write began.
    durable: Option<Box<Bits>>,
    /// The bits that are being written.
    writing: Option<Box<Bits>>,
    /// Whether bits were set that are not in the write under way: writes wait for them.
    urgent: bool,
    /// Whether `bits` differs from what was last written or is being written.
    changed: bool,
    version: u64,
}

/// A page to be written durably to its place in the disk's map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageWrite {
    /// Which page.
    pub page: usize,
    /// Its bytes, [`PAGE_BYTES`] of them.
    pub image: Vec<u8>,
}

/// Why a page that was read is not accepted.
#[derive(Clone, Copy, Debug, thiserror::Error, PartialEq, Eq)]
#[error("the page of the dirty map is damaged")]
pub struct Damaged;

impl DirtyMap {
    /// A map of `regions` regions, all clean.
    pub fn new(regions: u64) -> DirtyMap {
        let pages = (0..regions.div_ceil(PAGE_REGIONS)).map(|_| Page::default()).collect();
        DirtyMap { regions, pages, counts: [0; Slot::MAX], urgent: 0, idle_from: 0 }
    }

    /// How many pages the map takes.
    pub fn pages(&self) -> usize {
        self.pages.len()
    }

    /// The slice has become longer: it has `regions` regions. The new ones are clean.
    pub fn grow(&mut self, regions: u64) {
        assert!(regions >= self.regions, "slices only grow");
        self.pages.resize_with(regions.div_ceil(PAGE_REGIONS) as usize, Page::default);
        self.regions = regions;
    }

    /// Loads a page from the disk, at the start. A page of zeros was never written: all is clean.
    ///
    /// # Errors
    /// [`Damaged`]: then the caller marks the page's regions for all copies.
    pub fn load(&mut self, page: usize, image: &[u8; PAGE_BYTES]) -> Result<(), Damaged> {
        if image.iter().all(|byte| *byte == 0) {
            return Ok(());
        }
        let (header, bits) = image.split_at(HEADER_BYTES);
        let crc = u32::from_le_bytes(header[28..32].try_into().expect("four bytes"));
        let number = u64::from_le_bytes(header[8..16].try_into().expect("eight bytes"));
        if header[..8] != MAGIC || number != page as u64 || crc != page_crc(&header[..28], bits) {
            return Err(Damaged);
        }
        let bits: Box<Bits> = Box::new(bits.try_into().expect("the page without its header"));
        let state = &mut self.pages[page];
        state.version = u64::from_le_bytes(header[16..24].try_into().expect("eight bytes"));
        for at in 0..PAGE_REGIONS as usize {
            count(&mut self.counts, read(&bits, at), 1);
        }
        state.durable = Some(bits.clone());
        state.bits = Some(bits);
        Ok(())
    }

    /// How many regions have a bit for the slot.
    pub fn count(&self, slot: Slot) -> u64 {
        self.counts[slot.index()]
    }

    /// Whether no region has a bit for any of the slots.
    pub fn is_clear_of(&self, slots: Slots) -> bool {
        slots.iter().all(|slot| self.count(slot) == 0)
    }

    /// The slots whose bits are set for the region.
    pub fn get(&self, region: u64) -> Slots {
        let (page, at) = place(region);
        self.pages[page].bits.as_deref().map_or(Slots::NONE, |bits| read(bits, at))
    }

    /// Sets bits. They count once [`DirtyMap::is_durable`] says so.
    pub fn mark(&mut self, regions: Range<u64>, slots: Slots) {
        for region in regions {
            let (page, at) = place(region);
            let page = &mut self.pages[page];
            let certain = page.certain(at).covers(slots);
            let bits = page.bits.get_or_insert_with(|| Box::new([0; BITS_BYTES]));
            let before = read(bits, at);
            if !before.covers(slots) {
                write(bits, at, before.or(slots));
                count(&mut self.counts, slots.minus(before), 1);
                page.changed = true;
            }
            if !certain && !page.writing.as_deref().is_some_and(|writing| read(writing, at).covers(slots)) {
                self.urgent += usize::from(!page.urgent);
                page.urgent = true;
                page.changed = true;
            }
        }
    }

    /// Clears bits. Nothing waits until that is on the disk: a stale bit only makes a resync copy its region.
    pub fn clear(&mut self, region: u64, slots: Slots) {
        let (page, at) = place(region);
        let page = &mut self.pages[page];
        let Some(bits) = page.bits.as_deref_mut() else { return };
        let before = read(bits, at);
        if !before.and(slots).is_empty() {
            write(bits, at, before.minus(slots));
            count(&mut self.counts, before.and(slots), -1);
            page.changed = true;
        }
    }

    /// Clears the bits of these slots everywhere.
    pub fn clear_all(&mut self, slots: Slots) {
        let mut from = 0;
        while let Some(region) = self.next_dirty(from, slots) {
            self.clear(region, slots);
            from = region + 1;
        }
    }

    /// Whether these bits are on the disk for all of the regions.
    pub fn is_durable(&self, regions: Range<u64>, slots: Slots) -> bool {
        regions.into_iter().all(|region| {
            let (page, at) = place(region);
            self.pages[page].certain(at).covers(slots)
        })
    }

    /// Whether the disk has a version of every page.
    ///
    /// Then it holds this map, and not what was there before.
    pub fn is_written(&self) -> bool {
        // A page that was never changed is clean, and all zeros on the disk.
        self.pages.iter().all(|page| page.bits.is_none() || page.durable.is_some())
    }

    /// Whether the disk has the present map: nothing must be written, and nothing is being written.
    pub fn is_clean(&self) -> bool {
        self.pages.iter().all(|page| !page.changed && page.writing.is_none())
    }

    /// The next page to write: one that writes wait for, or with `idle` any that changed.
    ///
    /// Each page has at most one write under way.
    pub fn poll_write(&mut self, idle: bool) -> Option<PageWrite> {
        if !idle && self.urgent == 0 {
            return None;
        }
        let first = if idle { self.idle_from } else { 0 };
        let ready = |page: &Page| page.writing.is_none() && (page.urgent || idle && page.changed);
        let page = (first..self.pages.len()).chain(0..first).find(|page| ready(&self.pages[*page]))?;
        if idle {
            self.idle_from = page + 1;
        }
        let state = &mut self.pages[page];
        state.version += 1;
        self.urgent -= usize::from(state.urgent);
        state.urgent = false;
        state.changed = false;
        let bits = state.bits.clone().unwrap_or_else(|| Box::new([0; BITS_BYTES]));
        let mut image = Vec::with_capacity(PAGE_BYTES);
        image.extend_from_slice(&MAGIC);
        image.extend_from_slice(&(page as u64).to_le_bytes());
        image.extend_from_slice(&state.version.to_le_bytes());
        image.extend_from_slice(&[0; 4]);
        let crc = page_crc(&image, &bits[..]);
        image.extend_from_slice(&crc.to_le_bytes());
        image.extend_from_slice(&bits[..]);
        state.writing = Some(bits);
        Some(PageWrite { page, image })
    }

    /// The write of the page has succeeded.
    pub fn handle_written(&mut self, page: usize) {
        let state = &mut self.pages[page];
        state.durable = state.writing.take();
    }

    /// The first region from `from` on with a bit for one of the slots.
    pub fn next_dirty(&self, from: u64, slots: Slots) -> Option<u64> {
        // The usual case, asked for again and again: a map that was ever written to keeps its pages.
        if self.is_clear_of(slots) {
            return None;
        }
        let mut region = from;
        while region < self.regions {
            let (page, at) = place(region);
            match self.pages[page].bits.as_deref() {
                None => region = (page as u64 + 1) * PAGE_REGIONS,
                // Skips eight regions at a time where nothing is set.
                Some(bits)
                    if at.is_multiple_of(8)
                        && bits[at / 2..].len() >= 4
                        && bits[at / 2..at / 2 + 4] == [0; 4] =>
                {
                    region += 8
                }
                Some(bits) if !read(bits, at).and(slots).is_empty() => return Some(region),
                Some(_) => region += 1,
            }
        }
        None
    }

    /// The regions with a bit for one of the slots, in order.
    pub fn dirty(&self, slots: Slots) -> impl Iterator<Item = u64> {
        let mut from = 0;
        std::iter::from_fn(move || {
            let region = self.next_dirty(from, slots)?;
            from = region + 1;
            Some(region)
        })
    }
}

impl Page {
    /// The slots whose bits are set in every version that the disk may hold after a crash.
    fn certain(&self, at: usize) -> Slots {
        let durable = self.durable.as_deref().map_or(Slots::NONE, |bits| read(bits, at));
        match self.writing.as_deref() {
            Some(bits) => durable.and(read(bits, at)),
            None => durable,
        }
    }
}

fn count(counts: &mut [u64; Slot::MAX], slots: Slots, change: i64) {
    for slot in slots.iter() {
        counts[slot.index()] = counts[slot.index()].strict_add_signed(change);
    }
}

fn place(region: u64) -> (usize, usize) {
    ((region / PAGE_REGIONS) as usize, (region % PAGE_REGIONS) as usize)
}

fn read(bits: &Bits, at: usize) -> Slots {
    Slots::from_bits(bits[at / 2] >> (at % 2 * 4))
}

fn write(bits: &mut Bits, at: usize, slots: Slots) {
    let shift = at % 2 * 4;
    bits[at / 2] = bits[at / 2] & !(0xf << shift) | slots.bits() << shift;
}

fn page_crc(header: &[u8], bits: &[u8]) -> u32 {
    let mut crc = Crc32c::new();
    crc.update(header);
    crc.update(bits);
    crc.value()
}

#[cfg(test)]
mod tests {
    use base::Rng;

    use super::*;

    fn slots(bits: u8) -> Slots {
        Slots::from_bits(bits)
    }

    #[test]
    fn a_bit_counts_when_the_disk_has_it_whatever_is_under_way() {
        let mut map = DirtyMap::new(10);
        map.mark(3..4, slots(0b10));
        assert!(!map.is_durable(3..4, slots(0b10)));
        let first = map.poll_write(false).unwrap();
        assert!(!map.is_durable(3..4, slots(0b10)) && map.poll_write(false).is_none());
        map.handle_written(first.page);
        assert!(map.is_durable(3..4, slots(0b10)));

        // Cleared, and the page without the bit is on its way: when set again, the bit waits for the next
        // write.
        map.clear(3, slots(0b10));
        assert!(map.poll_write(false).is_none(), "nobody waits for a bit that is cleared");
        map.poll_write(true).unwrap();
        map.mark(3..4, slots(0b10));
        assert!(!map.is_durable(3..4, slots(0b10)));
        map.handle_written(0);
        assert!(!map.is_durable(3..4, slots(0b10)));
        map.poll_write(false).expect("the bit is set again");
        map.handle_written(0);
        assert!(map.is_durable(3..4, slots(0b10)));
    }

    #[test]
    fn a_map_is_clean_when_the_disk_has_all_of_it() {
        let mut map = DirtyMap::new(10);
        assert!(map.is_clean());
        map.mark(3..4, slots(0b10));
        assert!(!map.is_clean());
        map.poll_write(false).unwrap();
        assert!(!map.is_clean(), "it is being written");
        map.handle_written(0);
        assert!(map.is_clean());
        map.clear(3, slots(0b10));
        assert!(!map.is_clean());
    }

    #[test]
    fn a_map_grows_and_keeps_its_bits() {
        let mut map = DirtyMap::new(5);
        map.mark(4..5, slots(0b10));
        map.grow(PAGE_REGIONS + 2);
        assert_eq!((map.pages(), map.get(5), map.get(PAGE_REGIONS + 1)), (2, Slots::NONE, Slots::NONE));
        map.mark(PAGE_REGIONS + 1..PAGE_REGIONS + 2, slots(0b10));
        assert_eq!(map.dirty(slots(0b10)).collect::<Vec<_>>(), [4, PAGE_REGIONS + 1]);
    }

    #[test]
    fn it_is_known_without_a_search_for_whom_no_bit_is_set() {
        let mut map = DirtyMap::new(PAGE_REGIONS + 1);
        map.mark(PAGE_REGIONS..PAGE_REGIONS + 1, slots(0b110));
        assert!(map.is_clear_of(slots(0b1001)) && !map.is_clear_of(slots(0b11)));
        map.clear(PAGE_REGIONS, slots(0b10));
        assert!(map.is_clear_of(slots(0b1011)) && !map.is_clear_of(slots(0b100)));
        assert_eq!(map.next_dirty(0, slots(0b1011)), None);
        assert_eq!(map.next_dirty(0, slots(0b100)), Some(PAGE_REGIONS));
    }

    #[test]
    fn a_map_is_written_when_each_page_is() {
        let mut map = DirtyMap::new(PAGE_REGIONS + 1);
        map.mark(0..PAGE_REGIONS + 1, slots(0b1111));
        for _ in 0..2 {
            assert!(!map.is_written());
            let write = map.poll_write(false).unwrap();
            map.handle_written(write.page);
        }
        assert!(map.is_written());
    }

    #[test]
    fn a_cleared_bit_that_the_disk_still_has_is_set_again_for_nothing() {
        let mut map = DirtyMap::new(10);
        map.mark(3..4, slots(0b10));
        map.poll_write(false).unwrap();
        map.handle_written(0);
        map.clear(3, slots(0b10));
        map.mark(3..4, slots(0b10));
        assert_eq!(map.get(3), slots(0b10), "what is cleared in memory only must come back in memory, too");
        assert!(map.is_durable(3..4, slots(0b10)));
        map.poll_write(true);
        assert!(map.is_durable(3..4, slots(0b10)));
    }

    /// A resync clears bits of one page after the other while hosts write to the first: its progress must
    /// reach the disk, too.
    #[test]
    fn a_page_that_changes_all_the_time_keeps_no_other_from_the_disk() {
        let mut map = DirtyMap::new(3 * PAGE_REGIONS);
        map.mark(0..3 * PAGE_REGIONS, slots(1));
        while let Some(write) = map.poll_write(false) {
            map.handle_written(write.page);
        }
        map.clear(2 * PAGE_REGIONS, slots(1));
        let pages: Vec<usize> = (0..4)
            .map(|region| {
                map.clear(region, slots(1));
                let page = map.poll_write(true).unwrap().page;
                map.handle_written(page);
                page
            })
            .collect();
        assert_eq!(pages, [0, 2, 0, 0]);
    }

    #[test]
    fn urgent_pages_are_counted() {
        let mut rng = Rng::new(7);
        let regions = 5 * PAGE_REGIONS;
        let (mut map, mut under_way) = (DirtyMap::new(regions), Vec::new());
        let mut seen = [0; 6];
        for _ in 0..4000 {
            let region = rng.below(5) * PAGE_REGIONS + rng.below(4);
            match rng.below(5) {
                0 => map.clear(region, slots(0b10)),
                1 | 2 => map.mark(region..region + 1, slots(0b10)),
                3 => under_way.extend(map.poll_write(rng.one_in(4)).map(|write| write.page)),
                _ if under_way.is_empty() => {}
                _ => map.handle_written(under_way.swap_remove(rng.below(under_way.len() as u64) as usize)),
            }
            assert_eq!(map.urgent, map.pages.iter().filter(|page| page.urgent).count());
            seen[map.urgent] += 1;
        }
        assert!(seen.iter().filter(|times| **times > 0).count() >= 3, "{seen:?}");
    }

    #[test]
    fn bits_are_counted() {
        let mut rng = Rng::new(7);
        let regions = PAGE_REGIONS + 100;
        let mut map = DirtyMap::new(regions);
        for _ in 0..4000 {
            let region = rng.below(regions);
            let who = slots(rng.below(16) as u8);
            match rng.below(3) {
                0 => map.clear(region, who),
                _ => map.mark(region..(region + rng.below(4)).min(regions), who),
            }
        }
        let mut again = DirtyMap::new(regions);
        while let Some(write) = map.poll_write(true) {
            again.load(write.page, &write.image.try_into().unwrap()).unwrap();
            map.handle_written(write.page);
        }
        for slot in Slot::all() {
            let counted = map.dirty(Slots::NONE.with(slot)).count() as u64;
            assert!(counted > 100);
            assert_eq!((map.count(slot), again.count(slot)), (counted, counted));
        }
    }

    #[test]
    fn pages_come_back_as_they_were_and_damage_is_noticed() {
        let regions = PAGE_REGIONS + 5;
        let mut map = DirtyMap::new(regions);
        map.mark(1..2, slots(0b1000));
        map.mark(PAGE_REGIONS..PAGE_REGIONS + 2, slots(0b0110));
        let mut again = DirtyMap::new(regions);
        while let Some(write) = map.poll_write(false) {
            let mut image: [u8; PAGE_BYTES] = write.image.clone().try_into().unwrap();
            again.load(write.page, &image).unwrap();
            map.handle_written(write.page);
            image[100] ^= 1;
            assert_eq!(DirtyMap::new(regions).load(write.page, &image), Err(Damaged));
        }
        assert_eq!(again.dirty(slots(0b1111)).collect::<Vec<_>>(), [1, PAGE_REGIONS, PAGE_REGIONS + 1]);
        assert!(again.is_durable(1..2, slots(0b1000)));
        assert_eq!(again.load(0, &[0; PAGE_BYTES]), Ok(()));
    }

    /// The layout of docs/formats/dirty-map.md.
    #[test]
    fn a_page_is_as_documented() {
        let mut map = DirtyMap::new(4);
        map.mark(0..1, slots(0b0010));
        map.mark(3..4, slots(0b0101));
        let image = map.poll_write(false).unwrap().image;
        assert_eq!(&image[..28], b"URSADMAP\0\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\0\0\0\0");
        assert_eq!(&image[32..36], [0x02, 0x50, 0, 0]);
    }

    /// Whatever version of a page the disk has after a crash, it has the bits that counted.
    #[test]
    fn a_crash_never_loses_a_bit_that_counted() {
        let mut rng = Rng::new(11);
        for _ in 0..200 {
            let mut map = DirtyMap::new(16);
            let mut disk = vec![[0; PAGE_BYTES]];
            let mut under_way: Option<PageWrite> = None;
            for _ in 0..80 {
                let region = rng.below(16);
                let who = slots(1 + rng.below(15) as u8);
                match rng.below(5) {
                    0 | 1 => map.mark(region..region + 1, who),
                    2 => map.clear(region, who),
                    3 if under_way.is_none() => {
                        under_way = map.poll_write(rng.one_in(2));
                        // A crash may leave this version or the last one.
                        disk.extend(
                            under_way
                                .as_ref()
                                .map(|write| <[u8; PAGE_BYTES]>::try_from(&write.image[..]).unwrap()),
                        );
                    }
                    _ => {
                        if let Some(write) = under_way.take() {
                            map.handle_written(write.page);
                            disk.drain(..disk.len() - 1);
                        }
                    }
                }
                for image in &disk {
                    let mut after = DirtyMap::new(16);
                    after.load(0, image).unwrap();
                    for region in 0..16 {
                        for slot in Slot::all() {
                            let bit = Slots::NONE.with(slot);
                            // A bit that is set and durable now must be in every version.
                            if map.get(region).covers(bit) && map.is_durable(region..region + 1, bit) {
                                assert!(after.get(region).covers(bit));
                            }
                        }
                    }
                }
            }
        }
    }
}
