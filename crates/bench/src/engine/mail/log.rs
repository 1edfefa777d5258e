//! The log of a database, written cyclically; each write is on stable storage before it is answered. Tasks
//! that commit while a write is under way share the next one, as in databases (group commit).

use std::cell::{Cell, RefCell};

use base::Rng;
use rt::sync::{Notify, Sender, oneshot};

use super::super::Plan;
use super::volume::{Stopped, Volume};
use crate::content::Filler;
use crate::mail::Part;
use crate::sequence::Region;

/// The most bytes of one write: the size of a log file, which no write crosses.
const WRITE_BYTES_MAX: u64 = 1 << 20;
/// Writes are multiples of this.
const ALIGN: u64 = 4096;

pub(super) struct Log {
    volume: Volume,
    filler: RefCell<Filler>,
    /// The most bytes of one write.
    write_max: u64,
    /// Where the next write goes, from the start of the log.
    end: Cell<u64>,
    /// Tasks that wait, and the bytes that each commits.
    waiting: RefCell<Vec<(u64, Sender<()>)>>,
    work: Notify,
    closed: Cell<bool>,
}

/// Divides the volume of the logs in two.
pub(super) fn halves(part: &Part) -> [Part; 2] {
    let Region { start, len } = part.region;
    let half = len / 2 - len / 2 % WRITE_BYTES_MAX;
    [start, start + half].map(|start| Part { region: Region { start, len: half }, ..*part })
}

impl Log {
    pub(super) fn new(volume: Volume, plan: &Plan, rng: Rng) -> Log {
        let write_max = WRITE_BYTES_MAX.min(volume.request_max() - volume.request_max() % ALIGN);
        let filler = Filler::new(plan.workload.content, write_max as usize, rng);
        Log {
            volume,
            filler: RefCell::new(filler),
            write_max,
            end: Cell::new(0),
            waiting: RefCell::default(),
            work: Notify::new(),
            closed: Cell::new(false),
        }
    }

    /// Returns when this many bytes are in the log.
    pub(super) async fn commit(&self, bytes: u32) -> Result<(), Stopped> {
        let (done, wait) = oneshot();
        self.waiting.borrow_mut().push((bytes.into(), done));
        self.work.notify();
        wait.await.map_err(|_| Stopped)
    }

    /// Writes what tasks commit, until the log is closed or fails.
    pub(super) async fn write_all(&self) {
        while !self.closed.get() {
            let commits = self.waiting.take();
            if commits.is_empty() {
                self.work.notified().await;
                continue;
            }
            let bytes = commits.iter().map(|(bytes, _)| bytes).sum();
            if self.write(bytes).await.is_err() {
                // The waiting tasks see that their senders are gone.
                return;
            }
            commits.into_iter().for_each(|(_, done)| done.send(()));
        }
    }

    /// Appends to the log, in as many writes as necessary.
    async fn write(&self, bytes: u64) -> Result<(), Stopped> {
        let mut left = bytes.next_multiple_of(ALIGN);
        let region = self.volume.part.region;
        while left > 0 {
            if self.end.get() == region.len {
                self.end.set(0);
            }
            let len = left.min(self.write_max).min(region.len - self.end.get());
            let data = self.filler.borrow_mut().next();
            self.volume.write(region.start + self.end.get(), data.slice(0..len as usize), true).await?;
            self.filler.borrow_mut().give_back(data);
            self.end.set(self.end.get() + len);
            left -= len;
        }
        Ok(())
    }

    /// Stops writing, except for what is under way.
    pub(super) fn close(&self) {
        self.closed.set(true);
        self.work.notify();
    }
}
