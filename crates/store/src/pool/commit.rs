//! Making a change durable. No other code writes a pool's metadata.
//!
//! A new generation of the catalog is written to the slots of the generation before the last, on both ends of
//! the metadata disks, and flushed. Then superblocks that promise it are written and flushed. Wherever a
//! power cut interrupts this: the slots of the last generation are not touched, and no superblock promises a
//! generation that is not durable.

use std::rc::Rc;

use base::{Buf, SharedBuf};
use rt::Durability;

use super::layout::Layout;
use super::{Inner, METADATA_DISKS, MetadataState};
use crate::catalog::Catalog;
use crate::disks::PoolDisk;
use crate::error::StoreError;
use crate::geometry::{End, SUPERBLOCK_BYTES};
use crate::slot;
use crate::superblock::{DiskRole, Superblock};

/// Which disks get a new superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Superblocks {
    /// Those of the disks that have metadata: for an ordinary change.
    OfMetadataDisks,
    /// Those of all disks: when the pool is created, opened or exported, which also repairs damaged ones.
    OfAllDisks,
}

impl Inner {
    /// Makes `catalog` the pool's catalog. The caller has its turn to commit.
    ///
    /// If this fails and [`MetadataState`] is still `Writable`, nothing was written.
    pub(super) async fn commit(&self, catalog: Catalog, superblocks: Superblocks) -> Result<(), StoreError> {
        self.commit_on(self.layout(), catalog, superblocks, 0).await
    }

    /// Like [`Inner::commit`], and makes `layout` the pool's disks: the present ones, possibly with one more,
    /// or one fewer.
    ///
    /// At least `room` bytes must be left in the metadata area.
    pub(super) async fn commit_on(
        &self,
        layout: Rc<Layout>,
        catalog: Catalog,
        superblocks: Superblocks,
        room: u64,
    ) -> Result<(), StoreError> {
        self.writable()?;
        let catalog = Catalog { sealed: self.state.borrow().sealed, ..catalog };
        let generation = self.state.borrow().generation + 1;
        let slot = self.encode_slot(generation, &catalog, room)?;
        self.write(&layout, generation, slot, superblocks).await?;
        self.lender.set_relied_on(catalog.logs_relied_on());
        self.state.borrow_mut().catalog = catalog;
        self.layout.replace(layout);
        Ok(())
    }

    /// Checks that the pool accepts changes.
    pub(super) fn writable(&self) -> Result<(), StoreError> {
        match self.state.borrow().metadata {
            MetadataState::Writable => Ok(()),
            MetadataState::Failed => Err(StoreError::MetadataReadOnly(self.id)),
            MetadataState::Exported => Err(StoreError::Exported(self.id)),
        }
    }

    /// The bytes of a slot, padded to whole blocks.
    fn encode_slot(&self, generation: u64, catalog: &Catalog, room: u64) -> Result<SharedBuf, StoreError> {
        let bytes = slot::encode(self.id, generation, &catalog.encode());
        let padded = (bytes.len() as u64).next_multiple_of(SUPERBLOCK_BYTES);
        let (wanted, available) = ((bytes.len() as u64 + room).max(padded), self.slot_bytes);
        if wanted > available {
            return Err(StoreError::MetadataFull { wanted, available });
        }
        let mut slot = Buf::zeroed(padded as usize);
        slot[..bytes.len()].copy_from_slice(&bytes);
        Ok(slot.share())
    }

    /// Writes a generation. After a failure it is unknown what the disks hold, unless changes are still
    /// possible.
    async fn write(
        &self,
        layout: &Layout,
        generation: u64,
        slot: SharedBuf,
        superblocks: Superblocks,
    ) -> Result<(), StoreError> {
        let written = match self.write_slots(layout, generation, slot).await {
            // No superblock promises this generation.
            Err(full) if is_full(&full) => match self.withdraw(layout, generation).await {
                Ok(()) => {
                    tracing::warn!(pool = %self.id, "the file system under the pool is full: a metadata change was not made");
                    return Err(full);
                }
                Err(error) => Err(error),
            },
            Err(error) => Err(error),
            Ok(()) => self.write_superblocks(layout, generation, superblocks).await,
        };
        let mut state = self.state.borrow_mut();
        match &written {
            Ok(()) => {
                state.generation = generation;
                if superblocks == Superblocks::OfAllDisks {
                    state.sealed = generation;
                }
            }
            Err(error) => {
                state.metadata = MetadataState::Failed;
                tracing::error!(pool = %self.id, %error, "a metadata write failed: the pool is locked until it is reopened");
            }
        }
        written
    }

    async fn write_slots(&self, layout: &Layout, generation: u64, slot: SharedBuf) -> Result<(), StoreError> {
        let slots = |disk: usize| -> Vec<(u64, SharedBuf)> {
            End::BOTH.map(|end| (layout.geometry[disk].slot_offset(end, generation), slot.clone())).into()
        };
        write_disks(layout, layout.metadata_places().map(|disk| (disk, slots(disk))), Step::Slots).await
    }

    /// Makes all slots of a generation that was not written everywhere invalid, durably.
    ///
    /// One that is whole would count when the pool is opened: a change that was refused would come true, such
    /// as the deletion of a volume that hosts have gone on using. Nothing is written where this generation
    /// was not: there may be no space.
    async fn withdraw(&self, layout: &Layout, generation: u64) -> Result<(), StoreError> {
        for place in layout.metadata_places() {
            let (disk, geometry) = (layout.disks.disk(place as u16), &layout.geometry[place]);
            let mut headers = Vec::new();
            for end in End::BOTH {
                let offset = geometry.slot_offset(end, generation);
                let failed = |source| StoreError::Disk { path: disk.path().to_owned(), source };
                let read = disk.read(offset, Buf::uncleared(SUPERBLOCK_BYTES as usize)).await;
                let header = slot::decode_header(self.id, &read.map_err(failed)?);
                if header.is_some_and(|header| header.generation == generation) {
                    headers.push((offset, Buf::zeroed(SUPERBLOCK_BYTES as usize).share()));
                }
            }
            write_and_flush(disk, headers, Step::Slots).await?;
        }
        Ok(())
    }

    async fn write_superblocks(
        &self,
        layout: &Layout,
        generation: u64,
        superblocks: Superblocks,
    ) -> Result<(), StoreError> {
        let count = match superblocks {
            Superblocks::OfMetadataDisks => METADATA_DISKS,
            Superblocks::OfAllDisks => layout.len(),
        };
        let promise = |disk: usize| -> Vec<(u64, SharedBuf)> {
            let bytes = Buf::copy_of(&self.superblock(layout, disk, generation).encode()).share();
            End::BOTH
                .map(|end| (layout.geometry[disk].superblock_offset(end, generation), bytes.clone()))
                .into()
        };
        let places = layout.places().take(count);
        write_disks(layout, places.map(|disk| (disk, promise(disk))), Step::Superblocks).await
    }

    pub(super) fn superblock(&self, layout: &Layout, disk: usize, generation: u64) -> Superblock {
        Superblock {
            pool: self.id,
            disk: layout.ids[disk],
            index: disk as u16,
            count: layout.len() as u16,
            generation,
            geometry: layout.geometry[disk],
            reserved: layout.disks.disk(disk as u16).is_reserved(),
            role: DiskRole::Data,
        }
    }
}

/// Whether a write failed only for lack of space.
fn is_full(error: &StoreError) -> bool {
    matches!(error, StoreError::Disk { source: rt::DiskError::Full, .. })
}

/// Writes to several disks concurrently, and flushes them. Returns when all have ended.
async fn write_disks(
    layout: &Layout,
    writes: impl Iterator<Item = (usize, Vec<(u64, SharedBuf)>)>,
    step: Step,
) -> Result<(), StoreError> {
    let start = |(disk, writes): (usize, Vec<(u64, SharedBuf)>)| {
        let disk = Rc::clone(layout.disks.disk(disk as u16));
        rt::spawn(async move { write_and_flush(&disk, writes, step).await })
    };
    let tasks: Vec<_> = writes.map(start).collect();
    let mut result = Ok(());
    for task in tasks {
        result = result.and(task.await);
    }
    result
}

/// The steps of a commit: a canary can leave out the flush of one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Slots,
    Superblocks,
    Zeros,
    /// The superblocks of a disk that is being added.
    Joining,
    /// What was moved from a disk that is leaving.
    Moved,
}

/// Whether a canary leaves out the flush of this step.
fn skips(step: Step) -> bool {
    #[cfg(test)]
    return canary::SKIPPED.get() == Some(step);
    #[cfg(not(test))]
    {
        let _ = step;
        false
    }
}

pub(super) async fn write_and_flush(
    disk: &PoolDisk,
    writes: Vec<(u64, SharedBuf)>,
    step: Step,
) -> Result<(), StoreError> {
    let failed = |source| StoreError::Disk { path: disk.path().to_owned(), source };
    for (offset, data) in writes {
        disk.write(offset, data, Durability::Cached).await.map_err(failed)?;
    }
    flush(disk, step).await
}

/// Makes earlier writes to `disk` durable.
pub(super) async fn flush(disk: &PoolDisk, step: Step) -> Result<(), StoreError> {
    if skips(step) {
        return Ok(());
    }
    disk.flush().await.map_err(|source| StoreError::Disk { path: disk.path().to_owned(), source })
}

/// Breaks the code on purpose, to show that the tests notice.
#[cfg(test)]
pub(super) mod canary {
    use super::Step;
    use std::cell::Cell;

    thread_local! {
        /// The step whose flush is left out.
        pub(crate) static SKIPPED: Cell<Option<Step>> = const { Cell::new(None) };
    }
}
