//! Restores this copy to a snapshot while hosts are not served (`docs/why/snapshots.md`, *Restoring*).

use std::rc::Rc;
use std::time::Duration;

use base::{ByteOffset, Instant};
use replica::{DiskFault, Replica};
use store::{SliceError, SnapshotError};

use super::SliceCopy;
use super::lost::lost_units;
use crate::copies::snapshot::SnapshotObstacle;

/// How often a copy checks whether what was under way has ended, where nothing wakes it.
const STILL_EVERY: Duration = Duration::from_millis(5);

/// How long the disk may take to note what copies that are not in sync miss: one bit for each 64 KiB.
const NOTED_WITHIN: Duration = Duration::from_secs(20);

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
        while !is_still() && rt::now() < until {
            let _ = rt::timeout(STILL_EVERY, self.happened.notified()).await;
        }
        is_still()
    }

    /// Restores the copy to a snapshot, unless `restore` is the number of its last restore; and notes, in any
    /// case, that copies which are not in sync miss everything. Nothing is under way on any copy in sync.
    ///
    /// # Errors
    /// The copy is as before, or as the snapshot. If its disk has failed, it leaves, unless it is the only
    /// one in sync.
    pub async fn restore(self: &Rc<Self>, snapshot: u64, restore: u64) -> Result<(), SnapshotObstacle> {
        {
            // Repairs that were handed out before end first, and what is handed out meanwhile waits.
            let _all = self.applies.exclusive(0..self.layout.len().0).await;
            if !self.restoring.get() || !self.replica.borrow().is_still() {
                return Err(SnapshotObstacle::Changed);
            }
            self.tell(Replica::begin_restore);
            if let Err(error) = self.layout.restore_snapshot(snapshot, restore).await {
                tracing::error!(copy = %self.address, %error, "a copy could not be restored");
                // A file system that is full has room again one day.
                if !matches!(error, SnapshotError::Slice(SliceError::Full)) {
                    self.give_up_disk(DiskFault::Write);
                }
                return Err(error.into());
            }
            let lost = lost_units(&self.layout.lost());
            self.tell(|replica| replica.handle_restored(lost));
        }
        let until = rt::now() + NOTED_WITHIN;
        while !self.replica.borrow().has_noted_absent() {
            if self.has_failed() || rt::now() >= until {
                return Err(SnapshotObstacle::Failed);
            }
            let _ = rt::timeout(STILL_EVERY, self.happened.notified()).await;
        }
        Ok(())
    }
}
