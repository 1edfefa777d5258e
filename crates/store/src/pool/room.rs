//! Space that is allocated in advance in the file systems under a pool, because writes to it must never fail.
//!
//! It is the space of the pool's own metadata (otherwise a full file system would fail every change, even a
//! host's reservation), of the dirty maps of copies (a copy that cannot note what another copy misses is
//! lost), of checksums (a write must not fail where the volume has space), and of logs (a checkpoint must not
//! fail for lack of space).

use super::Inner;
use crate::catalog::Catalog;
use crate::disks::PoolDisk;
use crate::error::StoreError;
use crate::extent::ExtentRun;
use crate::geometry::End;

impl Inner {
    /// Allocates the space of extents.
    pub(super) async fn allocate(&self, runs: &[ExtentRun]) -> Result<(), StoreError> {
        let layout = self.layout();
        for run in runs {
            let disk = layout.disks.disk(run.disk);
            let geometry = &layout.geometry[usize::from(run.disk)];
            let at = geometry.extents_offset() + u64::from(run.start) * geometry.extent_bytes;
            allocate(disk, at, u64::from(run.count) * geometry.extent_bytes).await?;
        }
        Ok(())
    }

    /// Allocates again all space that was allocated in advance.
    ///
    /// It is missing if a file of the pool was copied without its zeros. If there is no room, the pool is
    /// opened nevertheless: its data can be read.
    pub(super) async fn allocate_again(&self, catalog: &Catalog) {
        if let Err(error) = self.try_allocate_again(catalog).await {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(pool = %self.id, error, "no space can be reserved for the metadata of a pool: free space in its file system");
        }
    }

    async fn try_allocate_again(&self, catalog: &Catalog) -> Result<(), StoreError> {
        let layout = self.layout();
        for place in layout.places() {
            let (disk, geometry) = (layout.disks.disk(place as u16), &layout.geometry[place]);
            let tail = geometry.slot_offset(End::Tail, 0);
            allocate(disk, 0, geometry.extents_offset()).await?;
            allocate(disk, tail, geometry.disk_bytes - tail).await?;
        }
        for volume in catalog.volumes.values() {
            self.allocate(&volume.map).await?;
            self.allocate(volume.checksums.as_deref().unwrap_or_default()).await?;
        }
        let of_logs: Vec<ExtentRun> = catalog.logs.runs().collect();
        self.allocate(&of_logs).await?;
        Ok(())
    }
}

async fn allocate(disk: &PoolDisk, offset: u64, len: u64) -> Result<(), StoreError> {
    let allocated = disk.allocate(offset, len).await;
    allocated.map_err(|source| StoreError::Disk { path: disk.path().to_owned(), source })
}
