//! The layout of a disk of a pool.
//!
//! ```text
//! 0        superblocks A and B            ┐
//! 64 KiB   metadata slots A and B         │ head
//! …        extents                        ┘
//! …        metadata slots A and B again   ┐
//! end-8K   superblocks A and B again      ┘ tail
//! ```
//!
//! Both ends hold the same, so that damage to the start of a disk (a partition table, a `dd` to the wrong
//! device) costs nothing. Generation `g` goes to the copies A if it is even, to B if it is odd: a write that
//! a power cut interrupts can only damage the generation before the last.

/// A superblock is written in one piece, and found without knowing the layout.
pub(crate) const SUPERBLOCK_BYTES: u64 = 4096;

/// Reserved before the slots, for superblocks and future extensions.
const HEAD_BYTES: u64 = 64 << 10;

/// The superblocks at the end of the disk.
const TAIL_BYTES: u64 = 2 * SUPERBLOCK_BYTES;

/// Disks in a pool: a set of disks fits in one machine word.
pub const DISKS_MAX: usize = 64;

/// Extents in a pool.
///
/// An extent takes at most 14 bytes of metadata (a run of its own and a slice of its own), so the extents of
/// the worst catalog take less than 4 MiB. Usually it is far less, because runs are long.
pub const EXTENTS_MAX: u64 = 1 << 18;

/// Small pools get smaller extents, to have at least this many.
const EXTENTS_WANTED: u64 = 64;

/// The smallest extent: sixteen of the largest disk block, so that a stripe unit is whole blocks.
pub const EXTENT_BYTES_MIN: u64 = 64 << 10;

/// The extent size of a pool of ordinary size, up to 1 TiB.
const EXTENT_BYTES_USUAL: u64 = 4 << 20;

/// The largest extent: 2^18 of them are 2^58 bytes, more than a pool can have.
pub const EXTENT_BYTES_MAX: u64 = 1 << 40;

/// The smallest disk: room for four slots of a pool with few extents (200 KiB each), and some extents.
pub const DISK_BYTES_MIN: u64 = 2 << 20;

/// Every pool's metadata area has room for this many volumes with a record and a state of average size.
const SLOT_VOLUMES_MIN: u64 = 64;

/// Bytes of a volume's record without its slices and logical unit state: 46, 22 more if it is a copy, and the
/// name, rounded up.
const SLOT_RECORD_BYTES: u64 = 192;

/// The state of a logical unit on average: a few registered initiators with long names.
pub(crate) const SLOT_LU_STATE_BYTES: u64 = 2048;

/// Bytes that an extent takes at worst: a run of its own (10 bytes) in a slice of its own (4).
const SLOT_EXTENT_BYTES: u64 = 14;

/// The rest of the catalog: 64 disks of 28 bytes, names, and one logical unit state of the largest size.
const SLOT_FIXED_BYTES: u64 = (4 << 10) + crate::catalog::LU_STATE_BYTES_MAX as u64;

const _: () = assert!(DISKS_MAX <= u64::BITS as usize, "ThickSlice::flush has a bit a disk");

/// One end of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Head,
    Tail,
}

impl End {
    pub(crate) const BOTH: [End; 2] = [End::Head, End::Tail];
}

/// The layout of one disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Geometry {
    /// The size that the pool uses, in whole superblocks.
    pub disk_bytes: u64,
    pub extent_bytes: u64,
    pub extents: u32,
    pub slot_bytes: u64,
}

pub(crate) fn superblock_offset(disk_bytes: u64, end: End, generation: u64) -> u64 {
    let start = match end {
        End::Head => 0,
        End::Tail => disk_bytes - TAIL_BYTES,
    };
    start + generation % 2 * SUPERBLOCK_BYTES
}

impl Geometry {
    /// The layout of a disk of `disk_bytes`, or `None` if it is too small for one extent.
    pub(crate) fn new(disk_bytes: u64, extent_bytes: u64, slot_bytes: u64) -> Option<Geometry> {
        let disk_bytes = disk_bytes / SUPERBLOCK_BYTES * SUPERBLOCK_BYTES;
        if !extent_bytes.is_power_of_two()
            || !(EXTENT_BYTES_MIN..=EXTENT_BYTES_MAX).contains(&extent_bytes)
            || slot_bytes == 0
            || !slot_bytes.is_multiple_of(SUPERBLOCK_BYTES)
        {
            return None;
        }
        let head =
            HEAD_BYTES.checked_add(slot_bytes.checked_mul(2)?)?.checked_next_multiple_of(EXTENT_BYTES_MIN)?;
        let tail = Geometry::tail_bytes(slot_bytes);
        let space = disk_bytes.checked_sub(head)?.checked_sub(tail)?;
        // The catalog has another use for the highest bit.
        let extents =
            u32::try_from(space / extent_bytes).ok().filter(|extents| (1..1 << 31).contains(extents))?;
        Some(Geometry { disk_bytes, extent_bytes, extents, slot_bytes })
    }

    /// The layout of a place in the pool that has no disk: without extents.
    pub(crate) fn vacant(self) -> Geometry {
        Geometry { disk_bytes: 0, extents: 0, ..self }
    }

    /// The size of the smallest disk that has room for its metadata and one extent.
    pub(crate) fn bytes_min(extent_bytes: u64, slot_bytes: u64) -> u64 {
        let head = (HEAD_BYTES + 2 * slot_bytes).next_multiple_of(EXTENT_BYTES_MIN);
        head + extent_bytes + Geometry::tail_bytes(slot_bytes)
    }

    /// Bytes of metadata at the end of a disk.
    pub(crate) fn tail_bytes(slot_bytes: u64) -> u64 {
        2 * slot_bytes + TAIL_BYTES
    }

    pub(crate) fn extents_offset(&self) -> u64 {
        (HEAD_BYTES + 2 * self.slot_bytes).next_multiple_of(EXTENT_BYTES_MIN)
    }

    /// The offset of the metadata slot of `generation`.
    pub(crate) fn slot_offset(&self, end: End, generation: u64) -> u64 {
        let start = match end {
            End::Head => HEAD_BYTES,
            End::Tail => self.disk_bytes - Geometry::tail_bytes(self.slot_bytes),
        };
        start + generation % 2 * self.slot_bytes
    }

    pub(crate) fn superblock_offset(&self, end: End, generation: u64) -> u64 {
        superblock_offset(self.disk_bytes, end, generation)
    }
}

/// The extent size for a pool of disks of these sizes.
pub(crate) fn extent_bytes_for(disks: &[u64]) -> u64 {
    let extents = |extent: u64| disks.iter().map(|disk| disk / extent).sum::<u64>();
    let mut extent = EXTENT_BYTES_USUAL;
    while extents(extent) > EXTENTS_MAX && extent < EXTENT_BYTES_MAX {
        extent *= 2;
    }
    while extents(extent) < EXTENTS_WANTED && extent > EXTENT_BYTES_MIN {
        extent /= 2;
    }
    extent
}

/// The size of a metadata slot for a pool of disks of these sizes, or `None` if there would be too many
/// extents.
pub(crate) fn slot_bytes_for(disks: &[u64], extent_bytes: u64) -> Option<u64> {
    let extents: u64 = disks.iter().map(|disk| disk / extent_bytes).sum();
    if extents > EXTENTS_MAX {
        return None;
    }
    let volumes = extents.clamp(SLOT_VOLUMES_MIN, crate::catalog::VOLUMES_MAX as u64);
    let bytes = SLOT_FIXED_BYTES
        + volumes * (SLOT_RECORD_BYTES + SLOT_LU_STATE_BYTES)
        + extents * SLOT_EXTENT_BYTES
        + crate::slot::HEADER_BYTES as u64;
    Some(bytes.next_multiple_of(SUPERBLOCK_BYTES))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(disks: &[u64]) -> Geometry {
        let extent = extent_bytes_for(disks);
        Geometry::new(disks[0], extent, slot_bytes_for(disks, extent).unwrap()).unwrap()
    }

    #[test]
    fn extents_fit_the_pool() {
        assert_eq!(layout(&[16 << 20]).extent_bytes, 256 << 10);
        assert_eq!(layout(&[10 << 30]).extent_bytes, 4 << 20);
        assert_eq!(layout(&[1 << 40]).extent_bytes, 4 << 20);
        assert_eq!(layout(&[10 << 40]).extent_bytes, 64 << 20);
        assert_eq!(layout(&[1 << 40; 64]).extent_bytes, 256 << 20);
    }

    /// Checks the size of the metadata area: 0.005 % of 1 TiB.
    #[test]
    fn slots_stay_small() {
        assert!(layout(&[1 << 40]).slot_bytes < 14 << 20);
        assert!(layout(&[DISK_BYTES_MIN]).slot_bytes < 220 << 10);
    }

    #[test]
    fn nothing_overlaps() {
        for disk in [DISK_BYTES_MIN, (16 << 20) + 512, (1 << 30) + 5000, 1 << 40] {
            let layout = layout(&[disk]);
            let mut parts: Vec<(u64, u64)> = Vec::new();
            for end in End::BOTH {
                for generation in [6, 7] {
                    parts.push((layout.superblock_offset(end, generation), SUPERBLOCK_BYTES));
                    parts.push((layout.slot_offset(end, generation), layout.slot_bytes));
                }
            }
            parts.push((layout.extents_offset(), u64::from(layout.extents) * layout.extent_bytes));
            parts.sort_unstable();
            assert!(parts.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0), "{parts:?}");
            let last = parts.last().unwrap();
            assert!(last.0 + last.1 <= disk);
            assert!(parts.iter().all(|(offset, _)| offset % 4096 == 0));
        }
    }

    #[test]
    fn the_smallest_disk_has_one_extent() {
        for (extent, slot) in [(EXTENT_BYTES_MIN, 212 << 10), (4 << 20, 13 << 20), (1 << 30, 4096)] {
            let smallest = Geometry::bytes_min(extent, slot);
            assert_eq!(Geometry::new(smallest, extent, slot).unwrap().extents, 1);
            assert_eq!(Geometry::new(smallest - 4096, extent, slot), None);
        }
    }

    /// Another bit there would say that the disk is leaving, and the pool could not be opened again.
    #[test]
    fn a_disk_has_no_more_extents_than_the_catalog_can_count() {
        let most = Geometry::bytes_min(EXTENT_BYTES_MIN, 4096) + ((1 << 31) - 2) * EXTENT_BYTES_MIN;
        assert_eq!(Geometry::new(most, EXTENT_BYTES_MIN, 4096).unwrap().extents, (1 << 31) - 1);
        assert_eq!(Geometry::new(most + EXTENT_BYTES_MIN, EXTENT_BYTES_MIN, 4096), None);
    }

    #[test]
    fn nonsense_is_refused() {
        assert_eq!(Geometry::new(1 << 20, EXTENT_BYTES_MIN, u64::MAX - 4095), None);
        assert_eq!(Geometry::new(1 << 20, 12345, 4096), None);
        assert_eq!(Geometry::new(0, EXTENT_BYTES_MIN, 4096), None);
        assert_eq!(slot_bytes_for(&[1 << 60], EXTENT_BYTES_MIN), None);
    }
}
