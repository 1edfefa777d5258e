//! Adding a disk to a pool while it is in use.
//!
//! The new disk claims to belong to the pool before the catalog names it. So after a power cut at any point,
//! the newest catalog decides whether it does, and all disks that it names can be opened. See
//! `docs/why/pool.md`.

use std::rc::Rc;

use base::{Buf, ByteLen};

use super::commit::{Step, Superblocks, write_and_flush};
use super::create::{MadeFiles, clear_metadata, open_new};
use super::layout::Layout;
use super::{Inner, MetadataState, NewDisk};
use crate::catalog::Catalog;
use crate::disks::PoolDisk;
use crate::error::StoreError;
use crate::geometry::{DISKS_MAX, End, Geometry};
use crate::id::DiskId;

impl Inner {
    pub(super) async fn add_disk(self: Rc<Inner>, new: NewDisk, wipe: bool) -> Result<(), StoreError> {
        let mut made = MadeFiles::default();
        let added = Rc::clone(&self).add_disk_of(new, wipe, &mut made).await;
        // If writing the metadata failed, the catalog on the disks may already name the file.
        if added.is_err() && self.state.borrow().metadata != MetadataState::Failed {
            made.remove();
        }
        added
    }

    /// Checks whether a disk, of this size if it is known, could be added.
    pub(super) fn check_disk(&self, new: &NewDisk, size: Option<ByteLen>) -> Result<(), StoreError> {
        self.changeable()?;
        self.room_for_a_disk()?;
        size.map_or(Ok(()), |size| self.lay_out(new, size.0).map(drop))
    }

    async fn add_disk_of(
        self: Rc<Inner>,
        new: NewDisk,
        wipe: bool,
        made: &mut MadeFiles,
    ) -> Result<(), StoreError> {
        let _change = self.begin_change()?;
        self.room_for_a_disk()?;
        let disk = open_new(&new, wipe, made).await?;
        let geometry = self.lay_out(&new, disk.size())?;
        let disk = Rc::new(PoolDisk::new(disk, new.path));
        // The disk is not in the pool yet, so no other change has to wait for this.
        clear_metadata(&disk, &geometry).await?;
        let _turn = self.turn().await;
        self.writable()?;
        self.room_for_a_disk()?;
        let before = self.layout();
        let layout = before.with(Rc::clone(&disk), DiskId::random(), geometry);
        let added = self.take_in(layout, before.next_place()).await;
        if added.is_err() && self.writable().is_ok() {
            // The catalog does not name the disk: clear it, so that it can be added again. The caller gets
            // the original error.
            let _ = clear_metadata(&disk, &geometry).await;
        }
        added
    }

    /// Commits the catalog that names the new disk. The caller has its turn to commit.
    async fn take_in(&self, layout: Layout, place: usize) -> Result<(), StoreError> {
        let generation = self.state.borrow().generation;
        let (disk, geometry) = (layout.disks.disk(place as u16), layout.geometry[place]);
        let superblock = Buf::copy_of(&self.superblock(&layout, place, generation).encode()).share();
        let copies = End::BOTH.map(|end| (geometry.superblock_offset(end, generation), superblock.clone()));
        write_and_flush(disk, copies.into(), Step::Joining).await?;
        let catalog = Catalog { disks: layout.entries(), ..self.state.borrow().catalog.clone() };
        self.commit_on(Rc::new(layout), catalog, Superblocks::OfAllDisks, 0).await?;
        self.state.borrow_mut().allocator.set_disk(place, geometry.extents);
        self.lender.note_freed();
        Ok(())
    }

    fn room_for_a_disk(&self) -> Result<(), StoreError> {
        if self.layout().next_place() < DISKS_MAX { Ok(()) } else { Err(StoreError::TooManyDisks) }
    }

    /// The layout of a disk of `size` bytes in this pool.
    fn lay_out(&self, new: &NewDisk, size: u64) -> Result<Geometry, StoreError> {
        let needed = Geometry::bytes_min(self.extent_bytes, self.slot_bytes);
        Geometry::new(size, self.extent_bytes, self.slot_bytes).ok_or_else(|| {
            let path = new.path.clone();
            match size < needed {
                true => StoreError::DiskTooSmall { path, size, needed },
                false => StoreError::DiskTooLarge { path, size, extent: self.extent_bytes },
            }
        })
    }
}
