//! Extents: a disk's space is given to slices in pieces of one size, counted from the start of the extent
//! area.

/// Consecutive extents of one disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ExtentRun {
    /// The index of the disk in the pool.
    pub disk: u16,
    /// The first extent.
    pub start: u32,
    /// How many; never zero.
    pub count: u32,
}

impl ExtentRun {
    /// The first extent after the run.
    pub(crate) fn end(self) -> u32 {
        self.start + self.count
    }
}

/// Appends `run` to `runs`, merging it with the last one if it continues it.
pub(crate) fn append(runs: &mut Vec<ExtentRun>, run: ExtentRun) {
    match runs.last_mut() {
        Some(last) if last.disk == run.disk && last.end() == run.start => last.count += run.count,
        _ => runs.push(run),
    }
}
