//! A copy: a volume that other nodes have as well, and what this pool keeps of that.
//!
//! A copy's slices have a dirty map each (`docs/formats/dirty-map.md`): pages that say in which regions
//! another copy may hold something else. What the bits mean is not known here, only where the pages are:
//! apart from the slices' own extents, so that a copy's bytes lie as those of any volume, and page `p` of
//! slice `s` of `n` is page `p * n + s` of the map. All slices of a volume are as long as the first or
//! shorter, so pages have their places for ever, however the volume grows. Page 0 of each slice is its list
//! of lost blocks (`lost.rs`), and the pages of its dirty map follow.

use std::sync::Arc;

use base::ByteLen;

use crate::extent::ExtentRun;
use crate::id::ClusterId;

/// Copies that a volume can have.
pub const COPIES_MAX: u8 = 4;

/// Bytes of a page of the map: a block of any disk, so that two cores that write pages never touch one block.
pub const MAP_PAGE_BYTES: usize = 4096;

/// Bytes of the slice that a bit stands for.
pub const MAP_REGION_BYTES: u64 = 64 << 10;

/// Regions of a page: four bits each, behind a header of 32 bytes.
pub const MAP_PAGE_REGIONS: u64 = 8128;

const _: () =
    assert!(32 + MAP_PAGE_REGIONS * COPIES_MAX as u64 / 8 == MAP_PAGE_BYTES as u64, "a page is full");

/// Which copy of a volume this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyOf {
    /// The cluster whose record names the copies. A pool that was moved to another cluster has copies of
    /// nothing that this one knows.
    pub cluster: ClusterId,
    /// The copy's place among the volume's, below [`COPIES_MAX`]: whose bit is whose in the others' maps.
    pub slot: u8,
    /// What its content is worth.
    pub state: CopyState,
}

/// What a copy's content is worth. For a copy in memory that is what it is worth until the process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyState {
    /// Nothing: the disk is new, and neither the bytes nor the map say anything. All of it is to be copied
    /// from another before the copy counts, whatever the cluster's record still says of the slot.
    Blank,
    /// Everything, and it has no map: no configuration of the volume that names another copy has ever taken
    /// effect. Hosts may be served from it whether the cluster's record can be asked or not.
    Sole,
    /// Nothing yet, and it has no map: it was made to be the sole copy of a new volume, and the cluster's
    /// record may not have that, nor ever get it.
    New,
    /// The bytes and the map are what the copy made of them.
    Trusted {
        /// The epoch of the volume in which the copy was added; 1 with the volume itself. Which of several
        /// copies that its node had in the course of time a disk has, is told by this.
        epoch: u64,
    },
    /// They are what the copy made of them on an earlier day: the pool was set back to an older image
    /// ([`crate::PoolMark`]). It is what it was as long as nobody has anything newer, and as good as blank
    /// once somebody has.
    SetBack {
        /// As of one that is trusted.
        epoch: u64,
    },
}

impl CopyState {
    /// Whether all of the content is to be copied from another copy before this one counts.
    pub fn is_untrusted(self) -> bool {
        matches!(self, CopyState::Blank | CopyState::SetBack { .. })
    }
}

/// How far a pool has come, for whoever has to tell whether it was set back to an older image: grows with
/// [`crate::Pool::set_mark`], whenever its node has agreed on that with somebody else who remembers it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct PoolMark {
    /// Grows by one at least; 0: never marked.
    pub count: u64,
    /// When it was set, in seconds since 1970, by the clock of the pool's node: for people.
    pub at: u64,
}

/// Where the pages of a volume's dirty map lie.
#[derive(Clone, Debug)]
pub(crate) struct MapPlaces {
    /// Of the volume's map: that of all slices.
    pub runs: Vec<ExtentRun>,
    /// Of the volume.
    pub slices: u16,
    pub extent_bytes: u64,
    /// Where the extents begin, by disk.
    pub extents_offset: Arc<[u64]>,
}

impl MapPlaces {
    /// The disk of a page of a slice's map, and where it begins there. It stays there when the volume grows.
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

    /// The first byte of a slice that this page is about: all of it for the list of lost blocks, and then
    /// that whose bit is the page's first.
    pub(crate) fn covered_from(page: u64) -> u64 {
        page.saturating_sub(1) * MAP_PAGE_REGIONS * MAP_REGION_BYTES
    }
}

/// The pages that the dirty map of a slice of `len` takes, without its list of lost blocks.
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
