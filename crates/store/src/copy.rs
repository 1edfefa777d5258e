//! A copy of a volume of which other nodes have copies, and what this pool stores about that.
//!
//! Each slice of a copy has a dirty map (`docs/formats/dirty-map.md`): pages that say in which regions
//! another copy may hold other data. This module knows where the pages are, not what the bits mean. The pages
//! lie apart from the slices' own extents, so that a copy's data is laid out like that of any volume. Page
//! `p` of slice `s` of `n` is page `p * n + s` of the map. No slice of a volume is longer than the first one,
//! so a page keeps its place forever, however the volume grows. Page 0 of each slice is its list of lost
//! blocks (`lost.rs`); the pages of its dirty map follow.

use std::sync::Arc;

use base::ByteLen;

use crate::extent::ExtentRun;
use crate::id::ClusterId;

/// How many copies a volume can have.
pub const COPIES_MAX: u8 = 4;

/// Bytes of a page of the map.
///
/// A page is at least a block of any disk, so two cores that write pages never touch the same block.
pub const MAP_PAGE_BYTES: usize = 4096;

/// Bytes of the slice that one bit covers.
pub const MAP_REGION_BYTES: u64 = 64 << 10;

/// Regions that one page covers: four bits each, after a header of 32 bytes.
pub const MAP_PAGE_REGIONS: u64 = 8128;

const _: () =
    assert!(32 + MAP_PAGE_REGIONS * COPIES_MAX as u64 / 8 == MAP_PAGE_BYTES as u64, "a page is full");

/// Which copy of a volume this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyOf {
    /// The cluster whose record names the copies. If a pool is moved to another cluster, its copies belong to
    /// no volume that this cluster knows.
    pub cluster: ClusterId,
    /// The copy's slot in the volume, below [`COPIES_MAX`]. It selects the copy's bit in the other copies'
    /// maps.
    pub slot: u8,
    /// How far its content can be trusted.
    pub state: CopyState,
}

/// How far the content of a copy can be trusted. For a copy in memory, until the process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyState {
    /// Not at all: the disk is new, and neither data nor map mean anything. The copy needs a full resync
    /// before it counts, whatever the cluster's record still says of its slot.
    Blank,
    /// Fully, and there is no map: no configuration of the volume with another copy has ever taken effect.
    /// Hosts may be served from it even if the cluster's record cannot be reached.
    Sole,
    /// Not yet, and there is no map: it was created as the sole copy of a new volume that the cluster's
    /// record may not contain, now or ever.
    New,
    /// Data and map are as this copy last wrote them.
    Trusted {
        /// The epoch of the volume in which the copy was added; 1 if it was created with the volume. It tells
        /// which of several copies that the node had over time is on the disk.
        epoch: u64,
    },
    /// Data and map are as this copy wrote them some time ago: the pool was set back to an older image
    /// ([`crate::PoolMark`]), or a log of it lacks records ([`crate::Pool::volumes_lacking_records`]). The
    /// copy may be used as long as nobody has anything newer; otherwise it counts as blank.
    SetBack {
        /// As in [`CopyState::Trusted`].
        epoch: u64,
    },
}

impl CopyState {
    /// Whether the copy needs a full resync before it counts.
    pub fn is_untrusted(self) -> bool {
        matches!(self, CopyState::Blank | CopyState::SetBack { .. })
    }
}

/// How far a pool has come. It reveals a pool that was set back to an older image.
///
/// The mark grows with [`crate::Pool::set_mark`], each time the pool's node has agreed on the new value with
/// another party that remembers it (the cluster's record).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct PoolMark {
    /// Grows by at least 1 each time; 0: never marked.
    pub count: u64,
    /// When the mark was set, in seconds since 1970, by the clock of the pool's node: for people.
    pub at: u64,
}

/// Where the pages of a volume's dirty map lie.
#[derive(Clone, Debug)]
pub(crate) struct MapPlaces {
    /// The extents of the volume's map, for all slices together.
    pub runs: Vec<ExtentRun>,
    /// How many slices the volume has.
    pub slices: u16,
    pub extent_bytes: u64,
    /// Offset of extent 0 on each disk, by index of the disk.
    pub extents_offset: Arc<[u64]>,
}

impl MapPlaces {
    /// The disk of a page of a slice's map, and the page's offset there. Both stay the same when the volume
    /// grows.
    pub(crate) fn place(&self, slice: u16, page: u64) -> (u16, u64) {
        let mut at = (page * u64::from(self.slices) + u64::from(slice)) * MAP_PAGE_BYTES as u64;
        for run in &self.runs {
            let len = u64::from(run.count) * self.extent_bytes;
            if at < len {
                let start = self.extents_offset[run.disk as usize] + u64::from(run.start) * self.extent_bytes;
                return (run.disk, start + at);
            }
            at -= len;
        }
        panic!("page {page} is beyond the map's extents")
    }

    /// The first byte of the slice that this page covers. The list of lost blocks covers the whole slice, and
    /// a page of the dirty map begins with its first bit.
    pub(crate) fn covered_from(page: u64) -> u64 {
        page.saturating_sub(1) * MAP_PAGE_REGIONS * MAP_REGION_BYTES
    }
}

/// How many pages the dirty map of a slice of `len` has, without its list of lost blocks.
pub(crate) fn map_pages(len: ByteLen) -> u64 {
    len.0.div_ceil(MAP_REGION_BYTES).div_ceil(MAP_PAGE_REGIONS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_for_508_mib() {
        assert_eq!(map_pages(ByteLen(0)), 0);
        assert_eq!(map_pages(ByteLen(1)), 1);
        assert_eq!(map_pages(ByteLen(532_676_608)), 1);
        assert_eq!(map_pages(ByteLen(532_676_609)), 2);
        assert_eq!(map_pages(ByteLen(1 << 40)), 2065);
    }
}
