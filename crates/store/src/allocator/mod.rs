//! Which extents are free, and which ones a volume gets.
//!
//! A request specifies how many extents each slice needs. Each slice takes them from the disk with the most
//! free space, in long runs. If there are more disks than slices, a slice takes from several, so that a
//! volume spreads over as many disks as it can. A single run that fits is preferred to several, and the
//! lowest run to others.

use std::collections::BTreeMap;

use crate::extent::{ExtentRun, append};

/// The free extents of all disks.
#[derive(Clone, Debug, Default)]
pub(crate) struct Allocator {
    disks: Vec<FreeRuns>,
}

/// The free extents of one disk: length by start. Runs are never adjacent.
#[derive(Clone, Debug, Default)]
struct FreeRuns {
    runs: BTreeMap<u32, u32>,
    free: u64,
    /// Volumes and logs may get its extents.
    open: bool,
}

impl Allocator {
    /// An allocator for disks with these numbers of extents, all free. A place without a disk has none.
    pub(crate) fn new(extents: impl IntoIterator<Item = u32>) -> Allocator {
        let mut allocator = Allocator::default();
        for (place, extents) in extents.into_iter().enumerate() {
            allocator.set_disk(place, extents);
        }
        allocator
    }

    /// Puts a disk with this many extents, all free, at a place that has none, or removes the one that is
    /// there (0).
    pub(crate) fn set_disk(&mut self, place: usize, extents: u32) {
        let mut disk = FreeRuns { open: extents > 0, ..FreeRuns::default() };
        if extents > 0 {
            disk.put(0, extents);
        }
        self.disks.resize(self.disks.len().max(place + 1), FreeRuns::default());
        self.disks[place] = disk;
    }

    /// Sets whether volumes and logs may get extents of a disk.
    pub(crate) fn set_open(&mut self, disk: usize, open: bool) {
        self.disks[disk].open = open;
    }

    /// How many extents are free on a disk.
    pub(crate) fn free_on(&self, disk: usize) -> u64 {
        self.disks[disk].free
    }

    /// How many extents are free for volumes and logs.
    pub(crate) fn free(&self) -> u64 {
        self.open_disks().map(|disk| self.disks[disk].free).sum()
    }

    fn open_disks(&self) -> impl Iterator<Item = usize> {
        (0..self.disks.len()).filter(move |disk| self.disks[*disk].open)
    }

    /// Takes `run`, all of which is free: for a catalog that was read and checked.
    ///
    /// # Panics
    /// If some of it is not free.
    pub(crate) fn take(&mut self, run: ExtentRun) {
        self.disks[run.disk as usize].take(run.start, run.count);
    }

    /// Frees `run`.
    ///
    /// # Panics
    /// If some of it is free already.
    pub(crate) fn put(&mut self, run: ExtentRun) {
        self.disks[run.disk as usize].put(run.start, run.count);
    }

    /// Takes as many extents as each slice needs. If there are too few, returns `None` and takes nothing.
    pub(crate) fn allocate(&mut self, wanted: &[u64]) -> Option<Vec<Vec<ExtentRun>>> {
        if wanted.iter().sum::<u64>() > self.free() {
            return None;
        }
        // The number of slices times shares is at least the number of disks.
        let shares = self.open_disks().count().div_ceil(wanted.len().max(1)).max(1) as u64;
        Some(wanted.iter().map(|count| self.allocate_slice(*count, shares)).collect())
    }

    /// Takes `count` consecutive extents from the disk with the most free extents that has them.
    pub(crate) fn allocate_run(&mut self, count: u64) -> Option<ExtentRun> {
        self.allocate_run_apart(count, &[])
    }

    /// The same, from one of these disks only if no other one has them.
    pub(crate) fn allocate_run_apart(&mut self, count: u64, apart: &[u16]) -> Option<ExtentRun> {
        let count = u32::try_from(count).ok().filter(|count| *count > 0)?;
        let has = |disk: &usize| self.disks[*disk].runs.values().any(|len| *len >= count);
        let disks = self.open_disks().filter(has);
        let worth = |disk: usize| {
            let is_apart = !apart.contains(&(disk as u16));
            (is_apart, self.disks[disk].free, std::cmp::Reverse(disk))
        };
        let disk = disks.max_by_key(|disk| worth(*disk))?;
        let (start, count) = self.disks[disk].take_best(count)?;
        Some(ExtentRun { disk: disk as u16, start, count })
    }

    /// Takes `count` extents in about `shares` runs on different disks. The caller has checked that there are
    /// enough.
    fn allocate_slice(&mut self, count: u64, shares: u64) -> Vec<ExtentRun> {
        let mut runs = Vec::new();
        let share = count.div_ceil(shares).max(1);
        let mut left = count;
        while left > 0 {
            let disk = self.emptiest();
            let wanted = u32::try_from(share.min(left)).unwrap_or(u32::MAX);
            let (start, count) = self.disks[disk].take_best(wanted).expect("the caller has counted");
            append(&mut runs, ExtentRun { disk: disk as u16, start, count });
            left -= u64::from(count);
        }
        runs
    }

    /// The disk with the most free extents; the first of several.
    fn emptiest(&self) -> usize {
        let free = |index: &usize| (self.disks[*index].free, std::cmp::Reverse(*index));
        self.open_disks().max_by_key(free).expect("the caller has counted")
    }
}

impl FreeRuns {
    /// Takes up to `wanted` consecutive extents: from the first run that is long enough, otherwise all of the
    /// longest one.
    fn take_best(&mut self, wanted: u32) -> Option<(u32, u32)> {
        let fits = self.runs.iter().find(|(_, len)| **len >= wanted);
        let longest = || self.runs.iter().max_by_key(|(start, len)| (**len, std::cmp::Reverse(**start)));
        let (start, len) = fits.or_else(longest).map(|(start, len)| (*start, (*len).min(wanted)))?;
        self.take(start, len);
        Some((start, len))
    }

    fn take(&mut self, start: u32, count: u32) {
        let (run_start, run_len) =
            self.runs.range(..=start).next_back().map(|(start, len)| (*start, *len)).expect("a free run");
        assert!(start + count <= run_start + run_len, "{count} extents from {start} are not free");
        self.runs.remove(&run_start);
        if run_start < start {
            self.runs.insert(run_start, start - run_start);
        }
        if start + count < run_start + run_len {
            self.runs.insert(start + count, run_start + run_len - start - count);
        }
        self.free -= u64::from(count);
    }

    fn put(&mut self, mut start: u32, count: u32) {
        let mut end = start + count;
        if let Some((before, len)) = self.runs.range(..start).next_back().map(|(before, len)| (*before, *len))
        {
            assert!(before + len <= start, "extent {start} is free already");
            if before + len == start {
                self.runs.remove(&before);
                start = before;
            }
        }
        if let Some((after, len)) = self.runs.range(start..).next().map(|(after, len)| (*after, *len)) {
            assert!(end <= after, "extent {after} is free already");
            if end == after {
                self.runs.remove(&after);
                end += len;
            }
        }
        self.runs.insert(start, end - start);
        self.free += u64::from(count);
    }
}

#[cfg(test)]
mod tests;
