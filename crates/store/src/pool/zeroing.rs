//! Zeroing the space that a volume gets, or has freed.
//!
//! If the disk cannot zero by itself, zeros are written, which takes as long as writing that much data. So
//! the progress is reported.

use std::cell::Cell;
use std::rc::Rc;

use base::{ByteLen, Instant};

use super::Inner;
use super::commit::{self, Step};
use crate::error::StoreError;
use crate::extent::ExtentRun;

/// How many bytes a disk zeroes at a time.
///
/// Small enough that a slow disk that has to write the zeros does so in some seconds; large enough that a
/// large volume on other disks does not take thousands of requests.
const PIECE_BYTES: u64 = 128 << 20;

/// The progress of the zeroing that belongs to a change of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Zeroing {
    /// The bytes that are zeroed.
    pub done: ByteLen,
    /// The bytes to be zeroed altogether.
    pub total: ByteLen,
    /// The time when the zeroing began.
    pub began: Instant,
    /// The time when `done` last changed.
    pub moved: Instant,
}

/// Reports the progress of a zeroing. Cheap to clone: the change gets one clone, and the observer reads
/// another.
#[derive(Clone, Debug, Default)]
pub struct ZeroingWatch(Rc<Cell<Option<Zeroing>>>);

impl ZeroingWatch {
    /// The present progress; `None` if the zeroing has not begun, or there is nothing to zero.
    pub fn now(&self) -> Option<Zeroing> {
        self.0.get()
    }

    fn begin(&self, total: ByteLen) {
        let now = rt::now();
        let zeroing = Zeroing { done: ByteLen(0), total, began: now, moved: now };
        self.0.set((total.0 > 0).then_some(zeroing));
    }

    fn more(&self, bytes: u64) {
        let more =
            |zeroing: Zeroing| Zeroing { done: ByteLen(zeroing.done.0 + bytes), moved: rt::now(), ..zeroing };
        self.0.set(self.0.get().map(more));
    }
}

impl Inner {
    /// Zeroes extents, durably.
    pub(super) async fn zero(&self, runs: &[ExtentRun], watch: &ZeroingWatch) -> Result<(), StoreError> {
        let layout = self.layout();
        let len_of =
            |run: &ExtentRun| u64::from(run.count) * layout.geometry[usize::from(run.disk)].extent_bytes;
        watch.begin(ByteLen(runs.iter().map(len_of).sum()));
        for run in runs {
            let disk = layout.disks.disk(run.disk);
            let geometry = &layout.geometry[usize::from(run.disk)];
            let mut at = geometry.extents_offset() + u64::from(run.start) * geometry.extent_bytes;
            let end = at + len_of(run);
            while at < end {
                let piece = PIECE_BYTES.min(end - at);
                let zeroed = disk.zero(at, piece).await;
                zeroed.map_err(|source| StoreError::Disk { path: disk.path().to_owned(), source })?;
                watch.more(piece);
                at += piece;
            }
        }
        for disk in layout.disks.all() {
            commit::flush(disk, Step::Zeros).await?;
        }
        Ok(())
    }
}
