//! Restores this copy to a snapshot while hosts are not served (`docs/why/snapshots.md`, *Restoring*).

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use base::{ByteOffset, Instant};
use replica::{DiskFault, PAGE_REGIONS, Replica};
use store::{SliceError, SnapshotError};

use super::SliceCopy;
use super::lost::lost_units;
use crate::canary::{Canary, makes};
use crate::copies::snapshot::SnapshotObstacle;

/// How long the disk may take to note what copies that are not in sync miss: one bit for each 64 KiB.
const NOTED_WITHIN: Duration = Duration::from_secs(20);
/// How many regions are noted at once: 64 pages of the map, which say so of 32 GiB.
const NOTED_AT_ONCE: u64 = 64 * PAGE_REGIONS;

impl SliceCopy {
    /// Sets whether the volume is being restored.
    pub(in crate::copies) fn set_restoring(&self, restoring: bool) {
        if self.restoring.replace(restoring) != restoring {
            self.happened.notify();
        }
    }

    /// Whether hosts are not served, even if the protocol allows it.
    pub(super) fn is_stopped(&self) -> bool {
        self.frozen.get() || self.restoring.get()
    }

    /// Waits until hosts are stopped here, and nothing is under way any more; `false`: not in time.
    pub async fn stands_still(self: &Rc<Self>, until: Instant) -> bool {
        let all = self.blocks(ByteOffset(0), self.len());
        self.ask_validation(all);
        let is_still = || self.restoring.get() && self.replica.borrow().is_still();
        rt::timeout_at(until, self.happened.until(is_still)).await.is_ok()
    }

    /// Waits until this copy is in sync and acts in this epoch; `false`: not in time.
    pub async fn until_acts_in(&self, epoch: u64, until: Instant) -> bool {
        rt::timeout_at(until, self.happened.until(|| self.acts_in(epoch))).await.is_ok()
    }

    /// Restores the copy to a snapshot, unless `restore` is the number of its last restore; and notes, in any
    /// case, that copies which are not in sync miss everything. Nothing is under way on any copy in sync.
    ///
    /// # Errors
    /// The copy is as before, or as the snapshot. If its disk has failed, or it lacks the snapshot,
    /// it leaves, unless it is the only one in sync. [`SnapshotObstacle::Changed`]: it does not act in
    /// `epoch`, or hosts are not stopped here.
    pub async fn restore(
        self: &Rc<Self>,
        epoch: u64,
        snapshot: u64,
        restore: u64,
    ) -> Result<(), SnapshotObstacle> {
        {
            // Repairs that were handed out before end first, and what is handed out meanwhile waits.
            let _all = self.applies.exclusive(0..self.layout.len().0).await;
            // In the step in which it begins. When the epoch is over, this restore may be, too: hosts may
            // have written since.
            if !self.acts_in(epoch) || !self.restoring.get() || !self.replica.borrow().is_still() {
                return Err(SnapshotObstacle::Changed);
            }
            if self.has_failed() {
                return Err(SnapshotObstacle::Failed);
            }
            self.tell(Replica::begin_restore);
            if !makes(Canary::RestoreSkipped)
                && let Err(error) = self.layout.restore_snapshot(snapshot, restore).await
            {
                self.leave_unrestored(error);
                return Err(error.into());
            }
            let lost = lost_units(&self.layout.lost());
            self.tell(|replica| replica.handle_restored(lost));
        }
        if makes(Canary::RestoreUnnoted) {
            return Ok(());
        }
        self.note_absent().await
    }

    /// Whether the copy was restored by a restore with this number, or its disk does not say. After the
    /// record was set back, a number may be used again.
    pub async fn may_have_restored(&self, restore: u64) -> bool {
        self.layout.was_restored_by(restore).await.unwrap_or(true)
    }

    /// Whether this copy is in sync and acts in this epoch.
    pub fn acts_in(&self, epoch: u64) -> bool {
        self.in_sync_config().is_some_and(|config| config.epoch.0 == epoch)
    }

    fn leave_unrestored(self: &Rc<Self>, error: SnapshotError) {
        // A file system that is full has room again one day.
        if !matches!(error, SnapshotError::Slice(SliceError::Full)) {
            self.give_up_disk(DiskFault::Write);
        }
        if self.has_failed() {
            tracing::error!(copy = %self.address, %error, "a copy could not be restored: other copies continue without it");
        } else {
            tracing::debug!(copy = %self.address, %error, "the only copy in sync could not be restored yet");
        }
    }

    /// Has the disk note that copies which are not in sync miss everything, part by part: the map of a large
    /// slice has thousands of pages.
    async fn note_absent(self: &Rc<Self>) -> Result<(), SnapshotObstacle> {
        let (regions, until) = (self.geometry.get().regions(), rt::now() + NOTED_WITHIN);
        let mut start = 0;
        while start < regions {
            let part = start..(start + NOTED_AT_ONCE).min(regions);
            start = part.end;
            self.tell(|replica| replica.note_absent(part.clone()));
            // Page by page, each until it is noted: something happens with every page that is written.
            let next = Cell::new(part.start);
            let is_noted = || {
                let replica = self.replica.borrow();
                while next.get() < part.end {
                    let page = next.get()..(next.get() + PAGE_REGIONS).min(part.end);
                    if !replica.has_noted_absent(page.clone()) {
                        return false;
                    }
                    next.set(page.end);
                }
                true
            };
            let is_over = || self.has_failed() || is_noted();
            let noted = rt::timeout_at(until, self.happened.until(is_over)).await;
            if noted.is_err() || self.has_failed() {
                return Err(SnapshotObstacle::Failed);
            }
        }
        Ok(())
    }
}
