//! Restoring a slice: its present becomes what one of its snapshots has.
//!
//! What a restore guarantees: after a power cut, the slice reads as before it began, or as the snapshot does,
//! and never as something between them; once it has ended, only the latter. It costs a record, whatever the
//! size of the volume, and changes no snapshot. How it is stored: see [`super::marks`].

use std::rc::Rc;

use base::ByteOffset;
use rt::sync::oneshot;

use super::LogSlice;
use super::queue::Item;
use super::record::What;
use super::snapshots::SnapshotError;
use crate::error::SliceError;
use crate::slice::{Layout, Slice};

impl LogSlice {
    /// Restores the slice. Returns whether it was not yet.
    async fn restore(&self, snapshot: u64, restore: u64) -> Result<bool, SnapshotError> {
        let (inner, branch) = (Rc::clone(&self.log().inner), self.branch());
        // No write is under way from here on, and none begins. What is left of writes whose callers have gone
        // away belongs to what the slice was before.
        let _locked = self.lock_all().await;
        let is_queued = || inner.state.borrow().append.has_of(branch);
        inner.changed.until(|| !is_queued() || !inner.goes_on()).await;
        let below = inner.state.borrow().append.next;
        let oldest = || inner.state.borrow().append.in_flight.first().copied();
        inner.changed.until(|| oldest().is_none_or(|oldest| oldest >= below) || !inner.goes_on()).await;
        if !inner.goes_on() {
            return Err(SliceError::Offline.into());
        }
        let item = {
            let marks = &mut inner.state.borrow_mut().marks;
            if marks.restores_of(branch).iter().any(|known| known.id == restore) {
                return Ok(false);
            }
            let to = marks.kept(branch, snapshot).map(|mark| mark.era).ok_or(SnapshotError::Unknown)?;
            let (era, what) = (marks.begin_restore(branch, to), What::Restored { restore });
            Item::Snapshot { era, time: to.into(), what }
        };
        let written = inner.append(branch, vec![item], true).await;
        if written.is_err() {
            // What the disk has of the record must not be found after a crash: by then, hosts have written.
            let _ = inner.merge_all().await;
        }
        inner.state.borrow_mut().marks.not_restored(branch);
        inner.sweep();
        inner.tend();
        written?;
        Ok(true)
    }
}

impl Slice {
    /// Restores the slice: from now on it reads as it did when the snapshot `id` was taken. It takes the time
    /// of a durable write, whatever the size of the volume.
    ///
    /// All snapshots keep their content, also those that are newer. What the slice was before is gone, except
    /// for what they have: to keep it, take a snapshot first, while no write is under way. What the volume
    /// has grown by since the snapshot reads as zeros: it does not become smaller. Space that nobody needs
    /// any more is freed in the background, in steps.
    ///
    /// Writes to the slice that are under way end before, and what begins meanwhile waits, and counts after.
    /// A read that is under way may return some blocks of before and some of after. So the restore of several
    /// slices is of one instant if the caller holds back all operations of the volume from before the first
    /// one begins until the last one has ended. A power cut in between leaves some slices restored, and some
    /// not: before anybody writes, whoever has begun it looks for that ([`Slice::last_restore`]), and
    /// restores the others. As long as that may happen, the snapshot must not be deleted.
    ///
    /// `restore` is any number that no earlier restore of the volume had. If the slice's last restore has
    /// that number, nothing happens: so what was interrupted can be repeated. No conversion may begin
    /// meanwhile.
    ///
    /// If the future is dropped, the slice may be restored all the same.
    ///
    /// # Errors
    /// [`SnapshotError::NotLog`], [`SnapshotError::Converting`], [`SnapshotError::Unknown`];
    /// [`SnapshotError::Slice`]: the slice is as before. (If it is offline, it may be restored when the pool
    /// has been reopened.)
    pub async fn restore_snapshot(&self, id: u64, restore: u64) -> Result<(), SnapshotError> {
        self.ready().await?;
        self.know_lost().await?;
        if self.is_converting() {
            return Err(SnapshotError::Converting);
        }
        let layout = self.layout();
        if !matches!(&*layout, Layout::Log(_)) {
            return Err(SnapshotError::NotLog);
        }
        // What other copies have lost will not be here any more.
        self.end_hold(ByteOffset(0), self.len()).await?;
        let (reply, result) = oneshot();
        rt::spawn(async move {
            if let Layout::Log(slice) = &*layout {
                reply.send(slice.restore(id, restore).await);
            }
        })
        .detach();
        let is_new = result.await.unwrap_or(Err(SliceError::Offline.into()))?;
        // The snapshot has no lost blocks. After a power cut in between, some count as lost until they are
        // written.
        if is_new && self.has_lost() {
            self.end_loss(ByteOffset(0), self.len()).await?;
        }
        Ok(())
    }

    /// Whether a restore of the slice had this number, as far as the slice knows: of those before the last
    /// one it forgets what it no longer needs.
    ///
    /// # Errors
    /// As [`Slice::last_restore`].
    pub async fn was_restored_by(&self, restore: u64) -> Result<bool, SnapshotError> {
        self.ready().await?;
        match &*self.layout() {
            Layout::Log(slice) => {
                let state = slice.log().inner.state.borrow();
                Ok(state.marks.restores_of(slice.branch()).iter().any(|known| known.id == restore))
            }
            Layout::Thick(_) | Layout::Ram(_) => Ok(false),
        }
    }

    /// The number of the slice's last restore.
    ///
    /// # Errors
    /// [`SnapshotError::Slice`]; [`SliceError::Offline`] only.
    pub async fn last_restore(&self) -> Result<Option<u64>, SnapshotError> {
        self.ready().await?;
        match &*self.layout() {
            Layout::Log(slice) => {
                let state = slice.log().inner.state.borrow();
                Ok(state.marks.restores_of(slice.branch()).last().map(|restore| restore.id))
            }
            Layout::Thick(_) | Layout::Ram(_) => Ok(None),
        }
    }
}
