//! What is known about ranges of a volume, page by page as the node returns it.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use api::{SnapshotDiff, SnapshotDiffQuery};
use nbd::Extent;

use super::source::Unread;

/// How many ranges are requested at a time: the most that a node returns.
const PAGE_RANGES: usize = 4096;
/// How many pages are kept: of at most 64 KiB each, 4 MiB.
const PAGES_MAX: usize = 64;
/// Ranges are whole blocks of this length.
const BLOCK: u64 = 4096;

/// A map of a volume, of which parts are known.
///
/// What a client asks about is requested then, in pages from there on: the map of a large volume may take the
/// node minutes, and no client may want to know it.
pub(super) struct Map {
    /// For all pages, but for their offset.
    query: SnapshotDiffQuery,
    /// The size of the volume.
    size: u64,
    /// Whether ranges of zeros count as others do.
    has_zeros: bool,
    /// The newest one is the last.
    pages: Mutex<VecDeque<Page>>,
    /// Locked while a page is requested: others may want the same one, and the node has more to do.
    requests: Mutex<()>,
}

impl Map {
    /// What the volume has in a snapshot; or what has changed, if there is an earlier one.
    pub(super) fn new(volume: String, snapshot: String, since: Option<String>, size: u64) -> Map {
        let has_zeros = since.is_some();
        let query = SnapshotDiffQuery { volume, since, snapshot, offset: 0, limit: PAGE_RANGES };
        Map { query, size, has_zeros, pages: Mutex::default(), requests: Mutex::default() }
    }

    /// What is known already about a range from its begin on; `None`: nothing.
    pub(super) fn known(&self, offset: u64, len: u64) -> Option<Vec<Extent>> {
        let pages = lock(&self.pages);
        let page = pages.iter().rev().find(|page| (page.start..page.end).contains(&offset))?;
        Some(page.extents(offset, len))
    }

    /// What is known about a range from its begin on, after at most one request.
    pub(super) fn extents(
        &self,
        (offset, len): (u64, u64),
        request: impl FnOnce(&SnapshotDiffQuery) -> Result<SnapshotDiff, Unread>,
    ) -> Result<Vec<Extent>, Unread> {
        if let Some(known) = self.known(offset, len) {
            return Ok(known);
        }
        let _requesting = lock(&self.requests);
        // Another thread may have got it meanwhile.
        if let Some(known) = self.known(offset, len) {
            return Ok(known);
        }
        let query = SnapshotDiffQuery { offset: offset - offset % BLOCK, ..self.query.clone() };
        let page = Page::new(query.offset, &request(&query)?, self.size, self.has_zeros)?;
        // A page that ends in the block in which it begins is not possible, but would not have the offset.
        if offset >= page.end {
            return Err(Unread::Unexpected("the next page"));
        }
        let extents = page.extents(offset, len);
        let mut pages = lock(&self.pages);
        if pages.len() == PAGES_MAX {
            pages.pop_front();
        }
        pages.push_back(page);
        Ok(extents)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A part of a volume of which everything is known.
#[derive(Debug)]
struct Page {
    start: u64,
    end: u64,
    /// What is set in it, in order and apart from each other.
    set: Vec<Range<u64>>,
}

impl Page {
    /// The page that a node has returned for this offset.
    fn new(start: u64, diff: &SnapshotDiff, size: u64, has_zeros: bool) -> Result<Page, Unread> {
        if diff.size != size {
            return Err(Unread::Unexpected("the size of the volume"));
        }
        let end = diff.next.unwrap_or(size);
        if end <= start || end > size {
            return Err(Unread::Unexpected("the next page"));
        }
        let (mut at, mut set) = (start, Vec::<Range<u64>>::new());
        for range in &diff.ranges {
            let behind = range.offset.checked_add(range.len).filter(|behind| *behind <= end);
            let Some(behind) = behind.filter(|_| range.offset >= at && range.len > 0) else {
                return Err(Unread::Unexpected("a range"));
            };
            at = behind;
            if has_zeros || !range.zeroed {
                match set.last_mut() {
                    Some(last) if last.end == range.offset => last.end = behind,
                    _ => set.push(range.offset..behind),
                }
            }
        }
        Ok(Page { start, end, set })
    }

    /// Extents of the page from an offset in it on, at most for this length.
    fn extents(&self, offset: u64, len: u64) -> Vec<Extent> {
        let end = self.end.min(offset.saturating_add(len));
        let mut extents = Vec::new();
        let mut at = offset;
        let mut add = |until: u64, is_set| {
            let until = until.min(end);
            if until > at {
                extents.push(Extent { len: until - at, is_set });
                at = until;
            }
        };
        let first = self.set.partition_point(|range| range.end <= offset);
        for range in self.set[first..].iter().take_while(|range| range.start < end) {
            add(range.start, false);
            add(range.end, true);
        }
        add(end, false);
        extents
    }
}

#[cfg(test)]
mod tests {
    use api::ChangedRange;

    use super::*;

    const SIZE: u64 = 100 * BLOCK + 512;

    fn extent(blocks: u64, is_set: bool) -> Extent {
        Extent { len: blocks * BLOCK, is_set }
    }

    /// Ranges in blocks.
    fn diff(ranges: &[(u64, u64, bool)], next: Option<u64>) -> SnapshotDiff {
        let range = |&(offset, len, zeroed): &(u64, u64, bool)| ChangedRange {
            offset: offset * BLOCK,
            len: len * BLOCK,
            zeroed,
        };
        SnapshotDiff {
            volume: "db".into(),
            since: None,
            snapshot: "b".into(),
            size: SIZE,
            ranges: ranges.iter().map(range).collect(),
            next: next.map(|next| next * BLOCK),
        }
    }

    fn map(since: Option<&str>) -> Map {
        Map::new("db".into(), "b".into(), since.map(str::to_owned), SIZE)
    }

    #[test]
    fn a_page_is_requested_once_and_tells_about_all_that_it_covers() {
        let map = map(None);
        assert_eq!(map.known(0, 1), None);
        let ranges = [(12, 2, false), (20, 1, true), (30, 10, false)];
        let got = map.extents((10 * BLOCK + 5, SIZE), |query| {
            assert_eq!((query.offset, query.limit, query.since.as_deref()), (10 * BLOCK, 4096, None));
            Ok(diff(&ranges, Some(40)))
        });
        let first = Extent { len: 2 * BLOCK - 5, is_set: false };
        // Zeros are as where nothing is.
        let expected = vec![first, extent(2, true), extent(16, false), extent(10, true)];
        assert_eq!(got.unwrap(), expected);
        let again =
            |offset, len| map.extents((offset * BLOCK, len * BLOCK), |_| panic!("it is known")).unwrap();
        assert_eq!(again(13, 8), [extent(1, true), extent(7, false)]);
        assert_eq!(again(30, 1), [extent(1, true)]);
        assert_eq!(again(39, 9), [extent(1, true)], "the page ends");
        assert_eq!(map.known(40 * BLOCK, 1), None);
        assert_eq!(map.known(10 * BLOCK - 1, 1), None);
        let last = map.extents((40 * BLOCK, SIZE), |query| {
            assert_eq!(query.offset, 40 * BLOCK);
            Ok(diff(&[], None))
        });
        assert_eq!(last.unwrap(), [Extent { len: 60 * BLOCK + 512, is_set: false }]);
    }

    #[test]
    fn what_became_zeros_has_changed() {
        let map = map(Some("a"));
        let got = map.extents((0, SIZE), |query| {
            assert_eq!(query.since.as_deref(), Some("a"));
            Ok(diff(&[(0, 1, false), (1, 2, true), (4, 1, true)], Some(6)))
        });
        assert_eq!(got.unwrap(), [extent(3, true), extent(1, false), extent(1, true), extent(1, false)]);
    }

    #[test]
    fn a_page_that_cannot_be_is_refused() {
        for wrong in [
            diff(&[], Some(10)),
            diff(&[], Some(102)),
            diff(&[(9, 1, false)], None),
            diff(&[(50, 1, false)], Some(50)),
            diff(&[(20, 5, false), (24, 1, false)], None),
            diff(&[(20, 0, false)], None),
            diff(&[(100, 1, false)], None),
            SnapshotDiff { size: SIZE + 1, ..diff(&[], None) },
        ] {
            let map = map(None);
            let refused = map.extents((10 * BLOCK, 1), |_| Ok(wrong.clone()));
            assert!(matches!(refused, Err(Unread::Unexpected(_))), "{wrong:?}");
            assert_eq!(map.known(10 * BLOCK, 1), None);
        }
    }

    #[test]
    fn only_the_newest_pages_are_kept() {
        let map = map(None);
        for block in 0..80 {
            map.extents((block * BLOCK, 1), |_| Ok(diff(&[], Some(block + 1)))).unwrap();
        }
        assert_eq!(map.known(15 * BLOCK, 1), None);
        assert!(map.known(16 * BLOCK, 1).is_some());
        assert_eq!(lock(&map.pages).len(), PAGES_MAX);
    }
}
