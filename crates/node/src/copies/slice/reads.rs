//! Reads that are under way: which blocks are written meanwhile is remembered until they end (R15 in
//! `docs/why/replication.md`).

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use replica::ReadMark;

/// The reads of a slice's copy that are under way: how many began at each mark.
#[derive(Default)]
pub(super) struct Reads(RefCell<BTreeMap<ReadMark, usize>>);

/// One of them, until this is dropped.
pub(super) struct Reading<'a> {
    reads: &'a Reads,
    /// The state to compare with when the data has come.
    pub(super) mark: ReadMark,
}

impl Reads {
    /// Begins a read.
    pub(super) fn begin(&self, mark: ReadMark) -> Reading<'_> {
        *self.0.borrow_mut().entry(mark).or_default() += 1;
        Reading { reads: self, mark }
    }

    /// The mark of the oldest read.
    pub(super) fn oldest(&self) -> Option<ReadMark> {
        self.0.borrow().keys().next().copied()
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        let mut reads = self.reads.0.borrow_mut();
        if let Entry::Occupied(mut count) = reads.entry(self.mark) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }
}
