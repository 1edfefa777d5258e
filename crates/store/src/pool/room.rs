//! Space that is set aside in the file systems under a pool: for what must find room whenever it is written.
//!
//! That is the pool's own metadata (else a full file system fails each change, a reservation of a host among
//! them), the dirty maps of copies (a copy that cannot note what another one misses is lost), and what logs
//! have (a checkpoint must not fail for want of space).

use super::Inner;
use crate::catalog::Catalog;
use crate::disks::PoolDisk;
use crate::error::StoreError;
use crate::extent::ExtentRun;
use crate::geometry::End;

impl Inner {
    /// Sets space aside for extents.
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

    /// Sets space aside for all that has had it since the pool was made, and has lost it if its file was
    /// copied without what is zero. A pool that finds none is opened nevertheless: what it holds can be read.
    pub(super) async fn allocate_again(&self, catalog: &Catalog) {
        if let Err(error) = self.try_allocate_again(catalog).await {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(pool = %self.id, error, "no space can be reserved for the metadata of a pool: free space in its file system");
        }
    }

    async fn try_allocate_again(&self, catalog: &Catalog) -> Result<(), StoreError> {
        let layout = self.layout();
        for (disk, geometry) in layout.disks.all().iter().zip(&layout.geometry) {
            let tail = geometry.slot_offset(End::Tail, 0);
            allocate(disk, 0, geometry.extents_offset()).await?;
            allocate(disk, tail, geometry.disk_bytes - tail).await?;
        }
        for volume in catalog.volumes.values() {
            self.allocate(&volume.map).await?;
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
