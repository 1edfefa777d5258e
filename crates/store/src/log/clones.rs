//! Clones of snapshots, as a log knows them.
//!
//! What must never happen: what a clone has not written reads as something else than in its snapshot, because
//! that was freed, or because the log does not know yet that the branch is a clone.
//!
//! The pool's catalog says which branches are clones, and tells the log. Whoever creates one holds the
//! snapshot meanwhile. How clones are read: see [`super::marks`].

use std::rc::Rc;

use super::leaf::Era;
use super::snapshots::SnapshotError;
use super::{Inner, Log, Phase};
use crate::slice::{Layout, Slice};

/// Keeps a snapshot of a slice from being deleted until it is dropped. It keeps the slice's log open.
#[must_use = "it can be deleted as soon as this is dropped"]
pub struct HeldSnapshot {
    log: Rc<Log>,
    era: Era,
}

impl Drop for HeldSnapshot {
    fn drop(&mut self) {
        // A clone that was created meanwhile holds it from now on.
        self.log.inner.take_origins();
        self.log.inner.state.borrow_mut().marks.let_go(self.era);
    }
}

impl Inner {
    /// Takes over which branches are clones, if the log serves. An opening does that when it has replayed the
    /// records of snapshots, and once more at its end.
    pub(super) fn take_origins(&self) {
        if self.phase.get() != Phase::Open {
            return;
        }
        let clones = self.handle.origins();
        let mut state = self.state.borrow_mut();
        if !state.marks.knows_clones(&clones) {
            state.marks.set_origins(&clones);
        }
    }

    /// Reports clones whose snapshots the log does not have. Nothing of them can be read.
    pub(super) fn report_orphans(&self) {
        let log = self.handle.number;
        for branch in self.state.borrow().marks.orphans() {
            tracing::error!(
                log,
                branch,
                "a log lacks the snapshot that a clone was made of: the clone is offline"
            );
        }
    }
}

impl Slice {
    /// Keeps a snapshot from being deleted until the result is dropped, so that a clone can be made of it
    /// ([`Pool::create_clone`](crate::Pool::create_clone)): all slices of the volume must hold it until that
    /// has ended.
    ///
    /// # Errors
    /// [`SnapshotError::NotLog`], [`SnapshotError::Converting`], [`SnapshotError::Unknown`],
    /// [`SnapshotError::Slice`] ([`SliceError::Offline`](crate::SliceError::Offline) only).
    pub async fn hold_snapshot(&self, id: u64) -> Result<HeldSnapshot, SnapshotError> {
        self.ready().await?;
        if self.is_converting() {
            return Err(SnapshotError::Converting);
        }
        let layout = self.layout();
        let Layout::Log(slice) = &*layout else { return Err(SnapshotError::NotLog) };
        let era = Era::new(slice.branch(), slice.era_of(id)?);
        let log = Rc::clone(slice.log());
        log.inner.state.borrow_mut().marks.hold(era);
        Ok(HeldSnapshot { log, era })
    }
}
