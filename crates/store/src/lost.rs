//! Blocks of a copy's slice that are lost: no copy could read them when this one was brought up to date
//! (R27 in `docs/why/replication.md`). What the disk holds there is something else.
//!
//! A slice's list is the first of its pages in the volume's dirty map area (`docs/formats/pool.md`). It fits
//! in one sector, which a power cut leaves as it was or as it was to be. It names units of 4096 bytes, the
//! largest block that a disk has, and which sectors of each are lost.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;

use base::{ByteLen, ByteOffset, crc32c};

use crate::copy::MAP_PAGE_BYTES;
use crate::range_lock::{Locked, RangeLock};
use crate::slice::join;

/// Units that a list names at most.
pub const LOST_UNITS_MAX: usize = 62;

/// Bytes of a unit.
pub const LOST_UNIT: u64 = 4096;
/// The smallest block of a volume or a disk.
const SECTOR: u64 = 512;

const MAGIC: [u8; 8] = *b"URSALOST";
const CRC_AT: usize = 12;
const HEADER_BYTES: usize = 16;

const _: () = assert!(HEADER_BYTES + LOST_UNITS_MAX * 8 == SECTOR as usize, "a list is a sector");
const _: () = assert!(LOST_UNIT / SECTOR == u8::BITS as u64, "a bit a sector");

/// By number, the units that have lost sectors: a bit for each sector.
type Units = BTreeMap<u64, u8>;

/// The list of one slice.
#[derive(Default)]
pub(crate) struct Lost {
    /// `None`: it has not been read yet.
    units: RefCell<Option<Units>>,
    /// Changes of the list follow each other.
    changes: RangeLock,
}

impl Lost {
    /// Whether the list has been read.
    pub fn is_known(&self) -> bool {
        self.units.borrow().is_some()
    }

    /// Takes in what the disk holds, unless that is known already. Says whether it is a list.
    pub fn load(&self, page: &[u8; MAP_PAGE_BYTES]) -> bool {
        let Some(units) = decode(page) else { return false };
        self.units.borrow_mut().get_or_insert(units);
        true
    }

    /// Waits until nobody else changes the list.
    pub async fn change(&self) -> Locked<'_> {
        self.changes.lock(0, 1).await
    }

    /// The first lost byte of the range.
    pub fn first_in(&self, range: &Range<u64>) -> Option<u64> {
        self.with(|units| {
            let touched = units.range(range.start / LOST_UNIT..range.end.div_ceil(LOST_UNIT));
            touched.filter_map(|(unit, mask)| first(*unit, mask & mask_of(*unit, range))).next()
        })
    }

    /// The first byte beside the range in a unit that is lost as a whole and that the range has a part of. A
    /// disk may have such blocks, and not read them: it could not write a part of one. The slice has `len`
    /// bytes.
    pub fn torn_by(&self, range: &Range<u64>, len: u64) -> Option<u64> {
        self.with(|units| {
            let mut touched = units.range(range.start / LOST_UNIT..range.end.div_ceil(LOST_UNIT));
            touched.find_map(|(unit, mask)| {
                let (all, written) = (mask_of(*unit, &(0..len)), mask_of(*unit, range));
                first(*unit, all & !written).filter(|_| mask & all == all)
            })
        })
    }

    /// All that is lost, in order; touching ranges are one.
    pub fn ranges(&self) -> Vec<(ByteOffset, ByteLen)> {
        let mut found = Vec::new();
        self.with(|units| {
            for (unit, mask) in units {
                for sector in (0..8).filter(|sector| mask & 1 << sector != 0) {
                    join(&mut found, unit * LOST_UNIT + sector * SECTOR, SECTOR);
                }
            }
            None::<()>
        });
        found
    }

    /// Whether nothing is lost.
    pub fn is_empty(&self) -> bool {
        self.units.borrow().as_ref().is_none_or(Units::is_empty)
    }

    /// Lists the range too. `false`: there is no room for it, and nothing has changed. The caller holds
    /// [`Lost::change`] until the disk has that, too.
    pub fn add(&self, range: &Range<u64>) -> bool {
        let mut known = self.units.borrow_mut();
        let mut units = known.clone().unwrap_or_default();
        for unit in range.start / LOST_UNIT..range.end.div_ceil(LOST_UNIT) {
            *units.entry(unit).or_default() |= mask_of(unit, range);
        }
        let fits = units.len() <= LOST_UNITS_MAX;
        if fits {
            *known = Some(units);
        }
        fits
    }

    /// The list without the range. The caller holds [`Lost::change`], writes it, and then has it count.
    pub fn without(&self, range: &Range<u64>) -> Units {
        let mut units = self.units.borrow().clone().unwrap_or_default();
        for unit in range.start / LOST_UNIT..range.end.div_ceil(LOST_UNIT) {
            if let Some(mask) = units.get_mut(&unit) {
                *mask &= !mask_of(unit, range);
            }
        }
        units.retain(|_, mask| *mask != 0);
        units
    }

    /// The list is that from now on: the disk has it.
    pub fn set(&self, units: Units) {
        self.units.replace(Some(units));
    }

    /// The page that says what the list says.
    pub fn page(&self) -> [u8; MAP_PAGE_BYTES] {
        encode(self.units.borrow().as_ref().unwrap_or(&Units::new()))
    }

    fn with<T>(&self, find: impl FnOnce(&Units) -> Option<T>) -> Option<T> {
        self.units.borrow().as_ref().filter(|units| !units.is_empty()).and_then(find)
    }
}

/// The sectors of the unit that are in the range, if only in part.
fn mask_of(unit: u64, range: &Range<u64>) -> u8 {
    let within = |at: u64| at.clamp(unit * LOST_UNIT, (unit + 1) * LOST_UNIT) - unit * LOST_UNIT;
    let (start, end) = (within(range.start) / SECTOR, within(range.end).div_ceil(SECTOR));
    (start..end).fold(0, |mask, sector| mask | 1 << sector)
}

/// Where the first of these sectors of the unit begins.
fn first(unit: u64, mask: u8) -> Option<u64> {
    (mask != 0).then(|| unit * LOST_UNIT + u64::from(mask.trailing_zeros()) * SECTOR)
}

/// The page of a list.
pub(crate) fn encode(units: &Units) -> [u8; MAP_PAGE_BYTES] {
    let mut page = [0; MAP_PAGE_BYTES];
    page[..8].copy_from_slice(&MAGIC);
    page[8..CRC_AT].copy_from_slice(&(units.len() as u32).to_le_bytes());
    for (entry, (unit, mask)) in page[HEADER_BYTES..].chunks_exact_mut(8).zip(units) {
        entry.copy_from_slice(&(unit << 8 | u64::from(*mask)).to_le_bytes());
    }
    let crc = checksum(&page);
    page[CRC_AT..HEADER_BYTES].copy_from_slice(&crc.to_le_bytes());
    page
}

/// The list of a page; a page of zeros was never written. `None`: it is damaged.
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
    let entry = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
    Some(entries.map(entry).map(|entry| (entry >> 8, entry as u8)).collect())
}

/// Of the list's sector, without the checksum itself.
fn checksum(page: &[u8; MAP_PAGE_BYTES]) -> u32 {
    let mut sector = page[..SECTOR as usize].to_vec();
    sector[CRC_AT..HEADER_BYTES].fill(0);
    crc32c(&sector)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(ranges: &[Range<u64>]) -> Lost {
        let lost = Lost::default();
        assert!(lost.load(&[0; MAP_PAGE_BYTES]));
        ranges.iter().for_each(|range| assert!(lost.add(range)));
        lost
    }

    #[test]
    fn a_list_is_what_its_page_says() {
        let lost = list(&[4096..8192, 9216..9728]);
        let page = lost.page();
        assert_eq!(page[..12], *b"URSALOST\x02\0\0\0");
        assert_eq!(page[16..32], [0xff, 1, 0, 0, 0, 0, 0, 0, 0b100, 2, 0, 0, 0, 0, 0, 0]);
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
        assert!(!lost.add(&(1 << 30..(1 << 30) + SECTOR)));
        assert!(lost.add(&(0..LOST_UNIT)));
        let again = Lost::default();
        assert!(again.load(&lost.page()));
        assert_eq!(again.ranges(), lost.ranges());
    }
}
