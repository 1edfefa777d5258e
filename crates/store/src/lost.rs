//! Blocks of a copy's slice that are lost or held.
//!
//! A block is *lost* if no copy could read it when this copy was resynced (R27 in `docs/why/replication.md`):
//! the disk holds other data there. A block is *held* if this copy's disk could not read it and another copy
//! has therefore noted it as lost.
//!
//! A slice's list is the first of its pages in the volume's dirty map area (`docs/formats/pool.md`). The list
//! fits in one sector, so a power cut leaves either the old or the new one. It names units of 4096 bytes, the
//! largest block that a disk has, and says for each which sectors are lost or held, and which copies hold
//! what is lost.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;

use base::{ByteLen, ByteOffset, crc32c};

use crate::copy::MAP_PAGE_BYTES;
use crate::range_lock::{Locked, RangeLock};
use crate::slice::join;

/// How many units a list can name.
pub const LOST_UNITS_MAX: usize = 62;

/// Bytes of a unit.
pub const LOST_UNIT: u64 = 4096;
/// Bytes of a sector, the smallest block of a volume or a disk.
const SECTOR: u64 = 512;

const MAGIC: [u8; 8] = *b"URSALOST";
const CRC_AT: usize = 12;
const HEADER_BYTES: usize = 16;

const _: () = assert!(HEADER_BYTES + LOST_UNITS_MAX * 8 == SECTOR as usize, "a list is a sector");
const _: () = assert!(LOST_UNIT / SECTOR == u8::BITS as u64, "a bit a sector");

/// The units that have lost or held sectors, by number.
pub(crate) type Units = BTreeMap<u64, Unit>;

/// What the list says of one unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Unit {
    /// A bit for each sector that is lost.
    lost: u8,
    /// A bit for each sector that is held. No sector is both held and lost.
    held: u8,
    /// A bit for each copy (by slot, four of them) that holds all lost sectors but whose disk could not read
    /// them.
    holders: u8,
}

/// The list of one slice.
#[derive(Default)]
pub(crate) struct Lost {
    /// `None` until the list has been read.
    units: RefCell<Option<Units>>,
    /// Serializes changes of the list.
    changes: RangeLock,
}

impl Lost {
    /// Whether the list has been read.
    pub fn is_known(&self) -> bool {
        self.units.borrow().is_some()
    }

    /// Takes the list from its page on disk, unless it is known already. Returns whether the page is a valid
    /// list.
    pub fn load(&self, page: &[u8; MAP_PAGE_BYTES]) -> bool {
        let Some(units) = decode(page) else { return false };
        self.units.borrow_mut().get_or_insert(units);
        true
    }

    /// Waits until nothing else changes the list.
    pub async fn change(&self) -> Locked<'_> {
        self.changes.lock(0, 1).await
    }

    /// The first lost byte in the range, or the start of its sector.
    pub fn first_in(&self, range: &Range<u64>) -> Option<u64> {
        self.with(|units| touched(units, range).find_map(|(unit, said, mask)| first(unit, said.lost & mask)))
    }

    /// Whether any part of the range is held.
    pub fn holds_some_of(&self, range: &Range<u64>) -> bool {
        self.with(|units| touched(units, range).find(|(_, said, mask)| said.held & mask != 0)).is_some()
    }

    /// Whether everything in the range is held, except what is lost.
    pub fn holds_all_of(&self, range: &Range<u64>) -> bool {
        let units = self.units.borrow();
        let is_held = |unit: u64| {
            let said = units.as_ref().and_then(|units| units.get(&unit)).copied().unwrap_or_default();
            mask_of(unit, range) & !(said.lost | said.held) == 0
        };
        (range.start / LOST_UNIT..range.end.div_ceil(LOST_UNIT)).all(is_held)
    }

    /// A bit for each copy, by slot, that holds everything that is lost in the range.
    pub fn holders(&self, range: &Range<u64>) -> u8 {
        let holders = self.with(|units| {
            let lost = touched(units, range).filter(|(_, said, mask)| said.lost & mask != 0);
            lost.map(|(_, said, _)| said.holders).reduce(|one, other| one & other)
        });
        holders.unwrap_or(0)
    }

    /// The first byte that a write of the range would leave lost in a unit that is lost as a whole.
    ///
    /// The range covers only part of that unit. A disk may have blocks of that size and be unable to read
    /// this one: then it could not write a part of it. The slice has `len` bytes.
    pub fn torn_by(&self, range: &Range<u64>, len: u64) -> Option<u64> {
        self.with(|units| {
            touched(units, range).find_map(|(unit, said, written)| {
                let all = mask_of(unit, &(0..len));
                first(unit, all & !written).filter(|_| said.lost & all == all)
            })
        })
    }

    /// All lost ranges in order; adjacent ranges are merged.
    pub fn ranges(&self) -> Vec<(ByteOffset, ByteLen)> {
        let mut found = Vec::new();
        self.with(|units| {
            for (unit, said) in units {
                for sector in (0..8).filter(|sector| said.lost & 1 << sector != 0) {
                    join(&mut found, unit * LOST_UNIT + sector * SECTOR, SECTOR);
                }
            }
            None::<()>
        });
        found
    }

    /// Whether nothing is lost.
    pub fn is_empty(&self) -> bool {
        self.with(|units| units.values().find(|said| said.lost != 0).map(|_| ())).is_none()
    }

    /// Adds the range to what is lost; the copies in `holders` hold it.
    ///
    /// With `keeps_held`, blocks that are held here do not become lost. Returns what was not lost before and
    /// is now; `None` if there is no room for it and nothing has changed. The caller holds [`Lost::change`]
    /// until the disk has the new list, too.
    pub fn add(
        &self,
        range: &Range<u64>,
        holders: u8,
        keeps_held: bool,
    ) -> Option<Vec<(ByteOffset, ByteLen)>> {
        let mut known = self.units.borrow_mut();
        let mut units = known.clone().unwrap_or_default();
        let mut added = Vec::new();
        for unit in range.start / LOST_UNIT..range.end.div_ceil(LOST_UNIT) {
            let said = units.get(&unit).copied().unwrap_or_default();
            let mask = mask_of(unit, range) & if keeps_held { !said.held } else { u8::MAX };
            if mask == 0 {
                continue;
            }
            for sector in (0..8).filter(|sector| mask & !said.lost & 1 << sector != 0) {
                join(&mut added, unit * LOST_UNIT + sector * SECTOR, SECTOR);
            }
            // A unit has one set of holders, so a copy counts only if it holds everything that is lost in the
            // unit.
            let is_all = said.lost & !mask == 0;
            let holders = if is_all { holders } else { said.holders & holders };
            units.insert(unit, Unit { lost: said.lost | mask, held: said.held & !mask, holders });
        }
        // Held blocks are noted only as long as there is room.
        while units.len() > LOST_UNITS_MAX {
            let held = units.iter().find(|(_, said)| said.lost == 0).map(|(unit, _)| *unit)?;
            units.remove(&held);
        }
        *known = Some(units);
        Some(added)
    }

    /// Adds the ranges to what is held, except where they are lost.
    ///
    /// If there is no room, older held units make way; what finds no room even so is not added
    /// ([`Lost::holds_all_of`]). Returns whether the list changed. The caller holds [`Lost::change`] until
    /// the disk has the new list.
    pub fn hold(&self, ranges: impl Iterator<Item = Range<u64>> + Clone) -> bool {
        let mut known = self.units.borrow_mut();
        let units = known.get_or_insert_default();
        let before = units.clone();
        for range in ranges.clone() {
            for unit in range.start / LOST_UNIT..range.end.div_ceil(LOST_UNIT) {
                if units.len() >= LOST_UNITS_MAX && !units.contains_key(&unit) {
                    let is_wanted = |unit: u64| ranges.clone().any(|range| mask_of(unit, &range) != 0);
                    let mut old = units.iter().filter(|(unit, said)| said.lost == 0 && !is_wanted(**unit));
                    let Some(old) = old.next().map(|(unit, _)| *unit) else { continue };
                    units.remove(&old);
                }
                let said = units.entry(unit).or_default();
                said.held |= mask_of(unit, &range) & !said.lost;
            }
        }
        *units != before
    }

    /// The list without what is lost in the range.
    ///
    /// The caller holds [`Lost::change`], writes the list, and then applies it with [`Lost::set`]. The same
    /// holds for [`Lost::without_held`] and [`Lost::unheld`].
    pub fn without(&self, range: &Range<u64>) -> Units {
        self.changed_in(range, |said, mask| said.lost &= !mask)
    }

    /// The list without what is held in the range.
    pub fn without_held(&self, range: &Range<u64>) -> Units {
        self.changed_in(range, |said, mask| said.held &= !mask)
    }

    /// The list of what is lost, with nothing held here and no holders.
    pub fn unheld(&self) -> Units {
        self.changed_in(&(0..u64::MAX), |said, _| (said.held, said.holders) = (0, 0))
    }

    fn changed_in(&self, range: &Range<u64>, change: impl Fn(&mut Unit, u8)) -> Units {
        let mut units = self.units.borrow().clone().unwrap_or_default();
        let touched = units.range_mut(range.start / LOST_UNIT..range.end.div_ceil(LOST_UNIT));
        touched.for_each(|(unit, said)| change(said, mask_of(*unit, range)));
        units.retain(|_, said| said.lost | said.held != 0);
        units
    }

    /// Replaces the list. The disk has the new one already.
    pub fn set(&self, units: Units) {
        self.units.replace(Some(units));
    }

    /// The page that stores the list.
    pub fn page(&self) -> [u8; MAP_PAGE_BYTES] {
        encode(self.units.borrow().as_ref().unwrap_or(&Units::new()))
    }

    fn with<T>(&self, find: impl FnOnce(&Units) -> Option<T>) -> Option<T> {
        self.units.borrow().as_ref().filter(|units| !units.is_empty()).and_then(find)
    }
}

/// The units that the range touches: number, content, and the sectors that are in the range.
fn touched(units: &Units, range: &Range<u64>) -> impl Iterator<Item = (u64, Unit, u8)> {
    let touched = units.range(range.start / LOST_UNIT..range.end.div_ceil(LOST_UNIT));
    touched.map(|(unit, said)| (*unit, *said, mask_of(*unit, range)))
}

/// The sectors of the unit that the range touches, if only in part.
fn mask_of(unit: u64, range: &Range<u64>) -> u8 {
    let within = |at: u64| at.clamp(unit * LOST_UNIT, (unit + 1) * LOST_UNIT) - unit * LOST_UNIT;
    let (start, end) = (within(range.start) / SECTOR, within(range.end).div_ceil(SECTOR));
    (start..end).fold(0, |mask, sector| mask | 1 << sector)
}

/// The offset of the first of these sectors of the unit.
fn first(unit: u64, mask: u8) -> Option<u64> {
    (mask != 0).then(|| unit * LOST_UNIT + u64::from(mask.trailing_zeros()) * SECTOR)
}

/// Encodes a list as its page.
pub(crate) fn encode(units: &Units) -> [u8; MAP_PAGE_BYTES] {
    let mut page = [0; MAP_PAGE_BYTES];
    page[..8].copy_from_slice(&MAGIC);
    page[8..CRC_AT].copy_from_slice(&(units.len() as u32).to_le_bytes());
    for (entry, (unit, said)) in page[HEADER_BYTES..].chunks_exact_mut(8).zip(units) {
        let bits = u32::from_le_bytes([said.lost, said.held, said.holders & 0xf, 0]);
        entry.copy_from_slice(&(unit << 20 | u64::from(bits)).to_le_bytes());
    }
    let crc = checksum(&page);
    page[CRC_AT..HEADER_BYTES].copy_from_slice(&crc.to_le_bytes());
    page
}

/// Decodes a page. A page of zeros was never written, and is an empty list. `None`: the page is damaged.
fn decode(page: &[u8; MAP_PAGE_BYTES]) -> Option<Units> {
    if page[..SECTOR as usize].iter().all(|byte| *byte == 0) {
        return Some(Units::new());
    }
    let word = |at: usize| u32::from_le_bytes(page[at..at + 4].try_into().expect("four bytes"));
    let count = word(8) as usize;
    if page[..8] != MAGIC || word(CRC_AT) != checksum(page) || count > LOST_UNITS_MAX {
        return None;
    }
    let entries = page[HEADER_BYTES..].chunks_exact(8).take(count);
    let entry = |bytes: &[u8]| {
        let entry = u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
        (entry >> 20, Unit { lost: bytes[0], held: bytes[1], holders: bytes[2] & 0xf })
    };
    Some(entries.map(entry).collect())
}

/// The checksum of the list's sector, without the checksum field itself.
fn checksum(page: &[u8; MAP_PAGE_BYTES]) -> u32 {
    let mut sector = page[..SECTOR as usize].to_vec();
    sector[CRC_AT..HEADER_BYTES].fill(0);
    crc32c(&sector)
}

#[cfg(test)]
mod tests {
    use std::iter;

    use super::*;

    fn list(ranges: &[Range<u64>]) -> Lost {
        let lost = Lost::default();
        assert!(lost.load(&[0; MAP_PAGE_BYTES]));
        ranges.iter().for_each(|range| assert!(lost.add(range, 0b10, false).is_some()));
        lost
    }

    #[test]
    fn a_list_is_what_its_page_says() {
        let lost = list(&[4096..8192, 9216..9728]);
        let page = lost.page();
        assert_eq!(page[..12], *b"URSALOST\x02\0\0\0");
        assert_eq!(page[16..32], [0xff, 0, 0x12, 0, 0, 0, 0, 0, 0b100, 0, 0x22, 0, 0, 0, 0, 0]);
        assert!(page[32..].iter().all(|byte| *byte == 0));
        let again = Lost::default();
        assert!(again.load(&page));
        assert_eq!(again.ranges(), lost.ranges());
        let expected = [(4096, 4096), (9216, 512)].map(|(at, len)| (ByteOffset(at), ByteLen(len)));
        assert_eq!(lost.ranges(), expected);
        for at in [0, 8, 12, 16, 511] {
            let mut damaged = page;
            damaged[at] ^= 1;
            assert!(!Lost::default().load(&damaged), "byte {at}");
        }
    }

    #[test]
    fn a_range_is_found_and_taken_out_by_sectors() {
        let lost = list(&[4096..6144, 6144..8192]);
        assert_eq!(lost.first_in(&(0..4096)), None);
        assert_eq!(lost.first_in(&(0..4097)), Some(4096));
        assert_eq!(lost.first_in(&(5120..9000)), Some(5120));
        lost.set(lost.without(&(4608..5632)));
        assert_eq!(lost.first_in(&(4608..5632)), None);
        assert_eq!(
            lost.ranges(),
            [(4096, 512), (5632, 2560)].map(|(at, len)| (ByteOffset(at), ByteLen(len)))
        );
        lost.set(lost.without(&(0..8192)));
        assert!(lost.is_empty());
    }

    #[test]
    fn a_unit_that_is_lost_as_a_whole_is_written_as_a_whole() {
        let lost = list(&[4096..8192, 12288..12800]);
        let torn = |range: Range<u64>| lost.torn_by(&range, 1 << 20);
        assert_eq!(torn(4096..8192), None);
        assert_eq!(torn(0..8704), None);
        assert_eq!(torn(4096..7680), Some(7680));
        assert_eq!(torn(4608..9000), Some(4096));
        assert_eq!(torn(12800..13312), None, "a disk has such small blocks, or it would be lost as well");
        assert_eq!(lost.torn_by(&(4096..6144), 6144), None, "the slice ends there");
    }

    #[test]
    fn a_list_that_is_full_takes_what_it_has() {
        let all = |count: u64| {
            (0..count).map(|unit| unit * LOST_UNIT..unit * LOST_UNIT + SECTOR).collect::<Vec<_>>()
        };
        let lost = list(&all(LOST_UNITS_MAX as u64));
        assert!(lost.add(&(1 << 30..(1 << 30) + SECTOR), 0, false).is_none());
        assert!(lost.add(&(0..LOST_UNIT), 0, false).is_some());
        let again = Lost::default();
        assert!(again.load(&lost.page()));
        assert_eq!(again.ranges(), lost.ranges());
    }

    #[test]
    fn the_last_block_of_the_largest_slice_has_its_number() {
        let last = (1 << 56) - SECTOR..1 << 56;
        let again = Lost::default();
        assert!(again.load(&list(std::slice::from_ref(&last)).page()));
        assert_eq!(again.ranges(), [(ByteOffset(last.start), ByteLen(SECTOR))]);
    }

    #[test]
    fn held_blocks_are_kept_until_written() {
        let lost = list(&[]);
        assert!(lost.add(&(0..512), 0b10, false).is_some());
        assert!(lost.hold(iter::once(0..8192)) && !lost.hold(iter::once(0..8192)));
        assert!(lost.first_in(&(512..8192)).is_none() && lost.holds_some_of(&(8191..8192)));
        assert_eq!(lost.page()[16..32], [1, 0xfe, 2, 0, 0, 0, 0, 0, 0, 0xff, 0x10, 0, 0, 0, 0, 0]);
        let again = Lost::default();
        assert!(again.load(&lost.page()));
        // Another copy notes as lost what is held here; then a copy that got the data from elsewhere does.
        assert_eq!(again.add(&(4096..8192), 0b1, true), Some(vec![]));
        assert_eq!(again.add(&(0..4608), 0b100, false), Some(vec![(ByteOffset(512), ByteLen(4096))]));
        assert!(again.holds_some_of(&(4608..8192)) && !again.holds_some_of(&(0..4608)));
        again.set(again.without_held(&(4608..8192)));
        assert!(!again.holds_some_of(&(4608..8192)) && again.first_in(&(4096..8192)) == Some(4096));
        assert!(again.hold(iter::once(8192..12288)));
        again.set(again.unheld());
        assert!(!again.holds_some_of(&(8192..12288)));
        assert_eq!((again.first_in(&(0..8192)), again.holders(&(0..8192))), (Some(0), 0));
    }

    #[test]
    fn a_copy_holds_all_that_is_lost_of_a_unit_or_none() {
        let lost = list(&[]);
        assert!(lost.add(&(0..512), 0b10, false).is_some());
        assert_eq!(lost.holders(&(0..4096)), 0b10);
        assert!(lost.add(&(512..1024), 0b110, false).is_some());
        assert_eq!(lost.holders(&(512..1024)), 0b10);
        assert!(lost.hold(iter::once(1024..1536)));
        assert_eq!(lost.add(&(1024..1536), 0b1, true), Some(vec![]));
        assert_eq!(lost.holders(&(0..4096)), 0b10, "nothing more is lost");
        assert!(lost.add(&(0..4096), 0b100, false).is_some());
        assert_eq!((lost.holders(&(0..4096)), lost.holders(&(4096..8192))), (0b100, 0));
    }

    #[test]
    fn held_blocks_yield_to_lost_ones_and_to_later_ones() {
        let lost = list(&[]);
        let unit = |unit: u64| unit * LOST_UNIT..(unit + 1) * LOST_UNIT;
        let last = LOST_UNITS_MAX as u64;
        assert!(lost.hold((0..last).map(unit)) && lost.hold(iter::once(unit(last))));
        assert!(!lost.holds_some_of(&unit(0)) && lost.holds_some_of(&unit(last)));
        assert!(
            (last..2 * last)
                .all(|unit| { lost.add(&(unit * LOST_UNIT..unit * LOST_UNIT + SECTOR), 0, false).is_some() })
        );
        assert!(!lost.holds_some_of(&(0..last * LOST_UNIT)));
        assert!(lost.add(&unit(0), 0, false).is_none() && !lost.hold(iter::once(unit(0))));
    }

    #[test]
    fn blocks_without_a_slot_are_not_held() {
        let lost = list(std::slice::from_ref(&(0..512)));
        let unit = |unit: u64| unit * LOST_UNIT..(unit + 1) * LOST_UNIT;
        let last = LOST_UNITS_MAX as u64;
        assert!(!lost.holds_all_of(&unit(0)) && lost.hold((0..last).map(unit)));
        assert!((0..last).all(|number| lost.holds_all_of(&unit(number))), "a part of the first one is lost");
        // Two more than there is room for: one of them displaces what was held before.
        assert!(lost.hold((2..last + 2).map(unit)));
        assert!(lost.holds_all_of(&unit(last)) && !lost.holds_all_of(&unit(last + 1)));
    }
}
