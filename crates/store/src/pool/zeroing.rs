//! Space that a volume gets, or has left, is made to read as zeros. Where the disk cannot do that by itself
//! the zeros are written, which takes as long as that much data: whoever waits is told how far it is.

use std::cell::Cell;
use std::rc::Rc;

use base::{ByteLen, Instant};

use super::Inner;
use super::commit::{self, Step};
use crate::error::StoreError;
use crate::extent::ExtentRun;

/// What a disk is asked for at a time, in bytes: a slow one that has to write the zeros does that in some
/// seconds, and a large volume on one that need not is not thousands of requests.
const PIECE_BYTES: u64 = 128 << 20;

/// How far the zeroing is that belongs to a change of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Zeroing {
    /// What reads as zeros.
    pub done: ByteLen,
    /// What shall.
    pub total: ByteLen,
    /// When it began.
    pub began: Instant,
    /// When `done` became what it is.
    pub moved: Instant,
}

/// Where it is told how far the zeroing is. Cheap to clone: one clone goes with the change, another one is
/// looked at.
#[derive(Clone, Debug, Default)]
pub struct ZeroingWatch(Rc<Cell<Option<Zeroing>>>);

impl ZeroingWatch {
    /// As it is; `None`: it has not begun, or there is nothing to be zeroed.
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
    /// Makes extents read as zeros, durably.
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
