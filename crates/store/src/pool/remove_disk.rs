//! Removing a disk from a pool while it is in use.
//!
//! Nothing may lie on the disk. First the catalog stops naming it, on the other disks; then its metadata is
//! wiped. After a power cut in between, the disk still claims to belong to the pool, and the catalog decides.
//! See `docs/why/pool.md`.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use base::ByteLen;

use super::Inner;
use super::commit::Superblocks;
use super::create::clear_metadata;
use super::layout::Layout;
use crate::catalog::Catalog;
use crate::error::StoreError;
use crate::extent::ExtentRun;

/// A disk that could be removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemovableDisk {
    /// The path on this node.
    pub path: PathBuf,
    /// The space for volumes that the pool loses.
    pub total: ByteLen,
    /// The space for volumes that is then left in the pool.
    pub left: ByteLen,
    /// How much must move to other disks first.
    pub moves: ByteLen,
}

impl Inner {
    /// Checks whether a disk could be removed. Nothing is changed.
    pub(super) fn check_removal(&self, path: &Path) -> Result<RemovableDisk, StoreError> {
        self.changeable()?;
        let layout = self.layout();
        let place = self.removable(&layout, path)?;
        Ok(self.removable_disk(&layout, place))
    }

    pub(super) fn removable_disk(&self, layout: &Layout, place: usize) -> RemovableDisk {
        let bytes = |place: usize| u64::from(layout.geometry[place].extents) * self.extent_bytes;
        let all: u64 = layout.places().map(bytes).sum();
        let total = bytes(place);
        RemovableDisk {
            path: layout.disks.disk(place as u16).path().to_owned(),
            total: ByteLen(total),
            left: ByteLen(all - total),
            moves: self.used_on(layout, place),
        }
    }

    pub(super) async fn remove_disk(self: Rc<Inner>, path: PathBuf) -> Result<(), StoreError> {
        let _change = self.begin_change()?;
        // A growth that is under way would bring the disk back.
        self.growing.acquire(1).await;
        let removed = self.remove_alone(&path).await;
        self.growing.release(1);
        removed
    }

    /// No disk is growing.
    async fn remove_alone(&self, path: &Path) -> Result<(), StoreError> {
        let turn = self.turn().await;
        self.writable()?;
        let before = self.layout();
        let place = self.removable(&before, path)?;
        // Volumes take their extents before it is their turn to commit: from here on, none of this disk.
        self.state.borrow_mut().allocator.set_open(place, false);
        let after = Rc::new(before.without(place));
        let catalog = Catalog { disks: after.entries(), ..self.state.borrow().catalog.clone() };
        let committed = self.commit_on(Rc::clone(&after), catalog, Superblocks::OfAllDisks, 0).await;
        if committed.is_err() && self.writable().is_ok() {
            self.state.borrow_mut().allocator.set_open(place, before.leaving != Some(place));
        }
        committed?;
        {
            let mut state = self.state.borrow_mut();
            state.allocator.set_disk(place, 0);
            for log in state.logs.values() {
                log.set_disks(after.disks.share());
                // Another disk may get the place.
                log.set_leaving(after.leaving.map(|place| place as u16));
            }
        }
        drop(turn);
        // The pool is durable without the disk. If this fails, the disk still claims to belong to the pool,
        // which does not name it.
        if let Err(error) = clear_metadata(before.disks.disk(place as u16), &before.geometry[place]).await {
            tracing::warn!(disk = %path.display(), %error, "the metadata of a removed disk could not be wiped");
        }
        Ok(())
    }

    /// The place of the disk with this path, if the pool can do without the disk.
    fn removable(&self, layout: &Layout, path: &Path) -> Result<usize, StoreError> {
        let place = layout.place_of(path).ok_or_else(|| StoreError::NoSuchDisk { path: path.to_owned() })?;
        if layout.places().count() == 1 {
            return Err(StoreError::OnlyDisk { path: path.to_owned() });
        }
        match self.used_on(layout, place) {
            ByteLen(0) => Ok(place),
            used => Err(StoreError::DiskInUse { path: path.to_owned(), used, by: self.users_of(place) }),
        }
    }

    /// What lies on a disk, for people.
    fn users_of(&self, place: usize) -> Vec<String> {
        let state = self.state.borrow();
        let is_there = |run: ExtentRun| usize::from(run.disk) == place;
        let volumes = state.catalog.volumes.values().filter(|volume| volume.runs().any(is_there));
        let mut users: Vec<String> = volumes.map(|volume| format!("volume {}", volume.name)).collect();
        if state.catalog.logs.runs().any(is_there) {
            users.push("the log of the log-structured volumes".into());
        }
        if users.is_empty() {
            users.push("a volume that is being created, grown or deleted".into());
        }
        users
    }
}
