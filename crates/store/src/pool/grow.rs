//! Growing a pool whose disks have grown, while it is in use.
//!
//! The metadata at the tail of a disk moves to the new end. First the catalog says that the disk is larger,
//! then its superblocks do; after a power cut in between, the catalog counts (`docs/why/pool.md`). The new
//! space, and the place of the old tail, become free extents, which are zeroed before a volume gets them.

use std::path::PathBuf;
use std::rc::Rc;

use base::{Buf, ByteLen};
use rt::DiskError;

use super::Inner;
use super::commit::Superblocks;
use super::create::CLEAR_BYTES;
use super::layout::Layout;
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
    /// Which disks the pool could use more of. Nothing is changed.
    pub(super) fn check_growth(&self) -> Result<Vec<GrownDisk>, StoreError> {
        self.changeable()?;
        let layout = self.layout();
        let larger = self.larger(&layout)?;
        Ok(larger.iter().map(|(index, after)| grown(&layout, *index, after)).collect())
    }

    pub(super) async fn grow(self: Rc<Inner>) -> Result<Vec<GrownDisk>, StoreError> {
        let _change = self.begin_change()?;
        self.growing.acquire(1).await;
        let grown = self.grow_alone().await;
        self.growing.release(1);
        grown
    }

    /// No other growth is under way.
    async fn grow_alone(&self) -> Result<Vec<GrownDisk>, StoreError> {
        self.writable()?;
        let before = self.layout();
        let larger = self.larger(&before)?;
        let sizes: Vec<u64> = larger.iter().map(|(index, _)| disk(&before, *index).size()).collect();
        let prepared = larger
            .iter()
            .map(|(index, after)| prepare(disk(&before, *index), &before.geometry[*index], after));
        let committed = async {
            // This takes its time, and other changes need not wait for it.
            rt::join_all(prepared).await.into_iter().collect::<Result<(), StoreError>>()?;
            self.commit_growth(&larger).await
        };
        let committed = committed.await;
        // Another disk may have got a vacant place meanwhile.
        let now = self.layout();
        let is_as_before = |index: usize| now.geometry[index] == before.geometry[index];
        let are_as_before = larger.iter().all(|(index, _)| is_as_before(*index));
        if committed.is_err() && are_as_before && self.writable().is_ok() {
            // Nobody who makes the disk as small as it was cuts anything off.
            larger.iter().zip(sizes).for_each(|((index, _), size)| disk(&before, *index).set_size(size));
        }
        committed?;
        Ok(larger.iter().map(|(index, geometry)| grown(&before, *index, geometry)).collect())
    }

    async fn commit_growth(&self, larger: &[(usize, Geometry)]) -> Result<(), StoreError> {
        let _turn = self.turn().await;
        // Another disk may have been added meanwhile.
        let before = self.layout();
        let mut after = Layout::clone(&before);
        larger.iter().for_each(|(index, geometry)| after.geometry[*index] = *geometry);
        let catalog = Catalog { disks: after.entries(), ..self.state.borrow().catalog.clone() };
        self.commit_on(Rc::new(after), catalog.clone(), Superblocks::OfAllDisks, 0).await?;
        for (index, geometry) in larger {
            let start = before.geometry[*index].extents;
            let new = ExtentRun { disk: *index as u16, start, count: geometry.extents - start };
            self.put_back(&[new]);
        }
        // The superblocks of the generation before still lead to the old tail, which belongs to volumes from
        // now on.
        self.commit(catalog, Superblocks::OfAllDisks).await
    }

    /// The disks that are large enough for more extents, by index, with their new layouts.
    fn larger(&self, layout: &Layout) -> Result<Vec<(usize, Geometry)>, StoreError> {
        let mut larger = Vec::new();
        for index in layout.places() {
            let (disk, before) = (disk(layout, index), &layout.geometry[index]);
            let path = || disk.path().to_owned();
            let failed = |source| StoreError::Disk { path: path(), source };
            if disk.failure().is_some() {
                return Err(failed(DiskError::Latched));
            }
            let size = disk.present_size().map_err(failed)?;
            let after = Geometry::new(size, self.extent_bytes, self.slot_bytes)
                .ok_or_else(|| StoreError::DiskTooLarge { path: path(), size, extent: self.extent_bytes })?;
            // The new tail must not overlap the old one: a power cut would destroy both.
            let is_apart = after.slot_offset(End::Tail, 0) >= before.disk_bytes;
            if is_apart && after.extents > before.extents {
                if disk.is_reserved() && !disk.has_free(after.disk_bytes - before.disk_bytes) {
                    // Some file systems first use up what is left, which other files need.
                    return Err(failed(DiskError::Full));
                }
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

/// Makes sure that the new part of a disk can be used, and clears the place of its metadata.
async fn prepare(disk: &PoolDisk, before: &Geometry, after: &Geometry) -> Result<(), StoreError> {
    let failed = |source| StoreError::Disk { path: disk.path().to_owned(), source };
    disk.set_size(after.disk_bytes);
    if disk.is_reserved() {
        disk.allocate(before.disk_bytes, after.disk_bytes - before.disk_bytes).await.map_err(failed)?;
    }
    // It may hold what another pool wrote there. A write that fails must not take the disk out of service:
    // nothing depends on its new part yet.
    clear_tail(disk, after).await.map_err(failed)
}

/// Overwrites the tail with zeros, and reads it back.
async fn clear_tail(disk: &PoolDisk, geometry: &Geometry) -> Result<(), DiskError> {
    let zeros = Buf::zeroed(CLEAR_BYTES as usize).share();
    let mut at = geometry.slot_offset(End::Tail, 0);
    while at < geometry.disk_bytes {
        let len = CLEAR_BYTES.min(geometry.disk_bytes - at);
        disk.rewrite(at, zeros.slice(0..len as usize)).await?;
        at += len;
    }
    Ok(())
}

fn disk(layout: &Layout, place: usize) -> &PoolDisk {
    layout.disks.disk(place as u16)
}

fn grown(before: &Layout, index: usize, after: &Geometry) -> GrownDisk {
    let bytes = |geometry: &Geometry| ByteLen(u64::from(geometry.extents) * geometry.extent_bytes);
    GrownDisk {
        path: disk(before, index).path().to_owned(),
        before: bytes(&before.geometry[index]),
        after: bytes(after),
    }
}
