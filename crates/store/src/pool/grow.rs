//! Growing a pool whose disks have grown, while it is in use.
//!
//! The metadata at the tail of a disk moves to the new end. First the catalog says that the disk is larger,
//! then its superblocks do; after a power cut in between, the catalog counts (`docs/why/pool.md`). The new
//! space, and the place of the old tail, become free extents, which are zeroed before a volume gets them.

use std::path::PathBuf;
use std::rc::Rc;

use base::ByteLen;

use super::commit::Superblocks;
use super::create::clear_tail;
use super::layout::Layout;
use super::{Inner, MetadataState};
use crate::catalog::Catalog;
use crate::disks::PoolDisk;
use crate::error::StoreError;
use crate::extent::ExtentRun;
use crate::geometry::{End, Geometry};

/// A disk that is larger than its pool knew.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrownDisk {
    /// The path on this node.
    pub path: PathBuf,
    /// The space for volumes on it before.
    pub before: ByteLen,
    /// The space for volumes on it now.
    pub after: ByteLen,
}

impl Inner {
    /// The disks of which the pool could use more. Nothing is written.
    pub(super) fn check_growth(&self) -> Result<Vec<GrownDisk>, StoreError> {
        self.writable()?;
        let layout = self.layout();
        Ok(self.larger(&layout)?.into_iter().map(|(index, after)| grown(&layout, index, &after)).collect())
    }

    pub(super) async fn grow(self: Rc<Inner>) -> Result<Vec<GrownDisk>, StoreError> {
        let _change = self.begin_change()?;
        let _turn = self.turn().await;
        self.writable()?;
        let before = self.layout();
        let larger = self.larger(&before)?;
        for (index, geometry) in &larger {
            let disk = &before.disks.all()[*index];
            set_space_aside(disk, before.geometry[*index].disk_bytes..geometry.disk_bytes).await?;
            // Perhaps it holds what another pool wrote there.
            clear_tail(disk, geometry).await?;
        }
        let mut after = Layout::clone(&before);
        larger.iter().for_each(|(index, geometry)| after.geometry[*index] = *geometry);
        let catalog = Catalog { disks: after.entries(), ..self.state.borrow().catalog.clone() };
        self.commit_on(Rc::new(after), catalog.clone(), Superblocks::OfAllDisks, 0).await?;
        for (index, geometry) in &larger {
            let start = before.geometry[*index].extents;
            let new = ExtentRun { disk: *index as u16, start, count: geometry.extents - start };
            self.state.borrow_mut().allocator.put(new);
        }
        // So far the new tails hold one generation only, and they need two. If this second commit fails, the
        // pool has grown nevertheless, and its metadata state shows the failure.
        if let Err(error) = self.commit(catalog, Superblocks::OfAllDisks).await
            && self.state.borrow().metadata == MetadataState::Failed
        {
            return Err(error);
        }
        Ok(larger.iter().map(|(index, geometry)| grown(&before, *index, geometry)).collect())
    }

    /// The disks that are large enough for more extents, by index, with their new layouts.
    fn larger(&self, layout: &Layout) -> Result<Vec<(usize, Geometry)>, StoreError> {
        let mut larger = Vec::new();
        for (index, (disk, before)) in layout.disks.all().iter().zip(&layout.geometry).enumerate() {
            let path = || disk.path().to_owned();
            let size =
                disk.look_for_growth().map_err(|error| StoreError::Disk { path: path(), source: error })?;
            let after = Geometry::new(size, self.extent_bytes, self.slot_bytes)
                .ok_or_else(|| StoreError::DiskTooLarge { path: path(), size, extent: self.extent_bytes })?;
            // The new tail must not overlap the old one: a power cut would destroy both.
            let is_apart = after.slot_offset(End::Tail, 0) >= before.disk_bytes;
            if is_apart && after.extents > before.extents {
                larger.push((index, after));
            }
        }
        match larger.is_empty() {
            true => Err(StoreError::NotGrown { needed: self.growth_min() }),
            false => Ok(larger),
        }
    }

    /// By how many bytes a disk must grow at least so that the pool grows in any case.
    fn growth_min(&self) -> u64 {
        Geometry::tail_bytes(self.slot_bytes).max(self.extent_bytes)
    }
}

/// Allocates the new part of a file whose space is reserved.
async fn set_space_aside(disk: &PoolDisk, new: std::ops::Range<u64>) -> Result<(), StoreError> {
    if !disk.is_reserved() {
        return Ok(());
    }
    let failed = |source| StoreError::Disk { path: disk.path().to_owned(), source };
    disk.allocate(new.start, new.end - new.start).await.map_err(failed)
}

fn grown(before: &Layout, index: usize, after: &Geometry) -> GrownDisk {
    let bytes = |geometry: &Geometry| ByteLen(u64::from(geometry.extents) * geometry.extent_bytes);
    GrownDisk {
        path: before.disks.all()[index].path().to_owned(),
        before: bytes(&before.geometry[index]),
        after: bytes(after),
    }
}
