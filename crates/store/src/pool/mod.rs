//! A pool: disks that together hold volumes, and carry their own description.
//!
//! What must never happen: an acknowledged change is lost, a volume shows another volume's data, or two
//! servers write to the same pool. `docs/why/pool.md` explains how each is prevented.
//!
//! A pool lives on one core. Changes are made one after the other, each as a new generation of the catalog
//! ([`commit`]); the data path does not wait for them.

mod add_disk;
mod clones;
mod commit;
mod convert;
mod create;
mod grow;
mod layout;
mod leaving;
mod logs;
mod open;
mod remove_disk;
mod room;
#[cfg(test)]
mod tests;
mod volumes;
mod zeroing;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use base::ByteLen;
use rt::sync::Notify;
use rt::{DiskFailure, Room, to_the_end};

use crate::allocator::Allocator;
use crate::budget::{RamBudget, RamGrant};
use crate::catalog::{Catalog, OtherLayout, is_name};
use crate::copy::PoolMark;
use crate::disks::SharedDisks;
use crate::error::StoreError;
use crate::id::{DiskId, PoolId, VolumeId};
use crate::log::{Lender, LogHandle, LogMemory, LogTuning};

pub use clones::{CloneOf, CloneSpec};
use commit::Superblocks;
pub use create::{CreateOptions, LookedAt, NewDisk};
pub use grow::GrownDisk;
use layout::Layout;
pub use leaving::{LeavingDisk, Moved, Moving};
pub use logs::LogSpace;
pub use open::{FoundPool, OpenPool, Probe, ProbedContents, probe};
pub use remove_disk::RemovableDisk;
pub use volumes::{InLogs, VolumeInfo, VolumeSpec};
pub use zeroing::{Zeroing, ZeroingWatch};

/// How many disks, the first ones of the pool, have a copy of the metadata at each end.
///
/// Three, so that two may be damaged; not all, so that changes do not become slower with each disk.
const METADATA_DISKS: usize = 3;

/// Memory for the logs of a pool that shares no log memory with other pools.
const LOG_MEMORY: ByteLen = ByteLen(1 << 30);

/// An open pool. It is cheap to clone, and used by the core that opened it.
///
/// A change, once begun, runs to completion even if its future is dropped.
#[derive(Clone)]
pub struct Pool(Rc<Inner>);

struct Inner {
    id: PoolId,
    /// The same on all disks.
    extent_bytes: u64,
    slot_bytes: u64,
    /// The pool's disks. Replaced when a disk is added or removed, or has grown.
    layout: RefCell<Rc<Layout>>,
    ram: RamBudget,
    /// One permit, so that generations are written one after the other.
    turns: rt::sync::Semaphore,
    /// One permit: disks grow or are removed one time after the other.
    growing: rt::sync::Semaphore,
    /// How many changes are under way, including the zeroing that belongs to them.
    changes: Cell<usize>,
    change_ended: Notify,
    /// An export has begun: it waits for the changes under way, and no other change may begin.
    closing: Cell<bool>,
    /// Since the pool was opened, its mark has been compared with the mark that the cluster's record (or
    /// another party) remembers: see [`Pool::is_vouched_for`].
    vouched_for: Cell<bool>,
    /// The disks that were found to be set back when the pool was opened.
    older_disks: Vec<PathBuf>,
    /// Bounds of logs that are created or opened from now on.
    log_tuning: Cell<LogTuning>,
    log_memory: RefCell<LogMemory>,
    /// Brings the logs' requests to this core.
    lender: Arc<Lender>,
    /// A task answers those requests.
    lending: Cell<bool>,
    state: RefCell<State>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.lender.close();
        self.state.borrow().logs.values().for_each(|log| log.forget_disks());
    }
}

struct State {
    /// The generation of the catalog.
    generation: u64,
    /// The superblocks of all disks have at least this generation. As written since the pool was opened;
    /// before the first such write, as the catalog says.
    sealed: u64,
    /// The durable catalog.
    catalog: Catalog,
    metadata: MetadataState,
    /// The free extents. The others belong to volumes of the catalog, to a volume that is being created or
    /// grown, or to a deleted volume whose space is still being zeroed.
    allocator: Allocator,
    /// What exists as long as a volume is in the catalog.
    volumes: BTreeMap<VolumeId, Live>,
    /// The logs of the catalog whose slices have been opened.
    logs: BTreeMap<u16, Arc<LogHandle>>,
}

/// The part of a volume's state that is not in the catalog.
#[derive(Default)]
struct Live {
    /// How often parts of the volume were moved to another disk. Each slice holds a clone.
    in_use: Arc<AtomicU64>,
    /// The memory reserved for a RAM volume.
    grants: Vec<Arc<RamGrant>>,
    /// Layouts that the volume had, or was being converted to, and that are not in the catalog any more.
    /// Slices may still use them.
    left: Vec<OtherLayout>,
    /// Those of them that no slice uses any more.
    unused: Vec<OtherLayout>,
}

/// Whether a pool's volumes can be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetadataState {
    /// Changes are possible.
    Writable,
    /// Writing the metadata failed. It is unknown what the disks hold, so no metadata is written until the
    /// pool has been reopened. Volumes continue.
    Failed,
    /// The pool was exported: nothing may be written to it any more.
    Exported,
}

/// How full a pool is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Usage {
    /// The space for volumes. What is free on a disk that leaves the pool is not part of it.
    pub total: ByteLen,
    /// The free part of it.
    pub free: ByteLen,
    /// The size of an extent. The slices of volumes take whole extents.
    pub extent: ByteLen,
    /// Usage of each disk, in the pool's order.
    pub disks: Vec<DiskUsage>,
}

/// How full a disk of a pool is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskUsage {
    /// The disk's identity.
    pub id: DiskId,
    /// The disk's path on this node.
    pub path: PathBuf,
    /// The space for volumes on the disk.
    pub total: ByteLen,
    /// The free part of it.
    pub free: ByteLen,
    /// It is leaving the pool: what lies on it moves to other disks, and it takes nothing new.
    pub leaving: bool,
    /// The failure that took the disk out of service: nothing is written to it until the pool has been
    /// reopened.
    pub failure: Option<DiskFailure>,
}

impl Pool {
    /// Creates a pool of `disks` and opens it.
    ///
    /// # Errors
    /// A disk cannot be opened, is too small, or holds data ([`StoreError::NotEmpty`]); or an option is not
    /// valid.
    pub async fn create(disks: Vec<NewDisk>, options: CreateOptions) -> Result<Pool, StoreError> {
        create::create(disks, options).await
    }

    /// Checks whether [`Pool::create`] could create such a pool, and returns what it would overwrite.
    ///
    /// Finds what can be found without doing it; nothing is written.
    pub async fn check_create(
        disks: &[NewDisk],
        name: &str,
        wipe: bool,
    ) -> Result<Vec<LookedAt>, StoreError> {
        create::check(disks, name, wipe).await
    }

    /// Checks whether [`Pool::open`] could open the pool of these disks, and describes it. Nothing is
    /// written.
    pub async fn check_open(paths: &[PathBuf], options: &OpenPool) -> Result<FoundPool, StoreError> {
        open::check(paths, options).await
    }

    /// Opens the pool that consists of these disks, given in any order.
    ///
    /// # Errors
    /// With the reason and what to do: a disk is missing, damaged, foreign, or of another version or pool; or
    /// another server uses the pool.
    pub async fn open(paths: &[PathBuf], options: OpenPool) -> Result<Pool, StoreError> {
        open::open(paths, options).await
    }

    /// The pool's identity.
    pub fn id(&self) -> PoolId {
        self.0.id
    }

    /// Describes the pool, as [`Pool::check_open`] does for one that is not open.
    pub fn as_found(&self) -> FoundPool {
        let catalog = self.0.state.borrow().catalog.clone();
        let contents = ProbedContents::of(catalog, self.0.extent_bytes);
        FoundPool { id: self.id(), paths: self.paths(), contents }
    }

    /// The pool's name.
    pub fn name(&self) -> String {
        self.0.state.borrow().catalog.name.clone()
    }

    /// The pool's mark: how far it has come.
    pub fn mark(&self) -> PoolMark {
        self.0.state.borrow().catalog.mark
    }

    /// Sets the mark, how far the pool has come. Durable when it returns.
    ///
    /// With `set_back`, the pool was found to be older than the remembered mark: the same change sets its
    /// copies to `CopyState::SetBack`.
    ///
    /// # Errors
    /// Any failure to write the metadata.
    pub async fn set_mark(&self, mark: PoolMark, set_back: bool) -> Result<(), StoreError> {
        to_the_end(Rc::clone(&self.0).set_mark(mark, set_back)).await
    }

    /// Whether [`Pool::vouch_for`] was called since the pool was opened, and since [`Pool::doubt`].
    pub fn is_vouched_for(&self) -> bool {
        self.0.vouched_for.get()
    }

    /// Allows the pool's copies to be used.
    ///
    /// The caller has compared the pool's mark with the one that the cluster's record (or another party)
    /// remembers, and that party knows the pool's present mark.
    pub fn vouch_for(&self) {
        self.0.vouched_for.set(true);
    }

    /// Forbids that until somebody vouches for the pool again: another party is to be asked from now on.
    pub fn doubt(&self) {
        self.0.vouched_for.set(false);
    }

    /// The disks that were older than the others when the pool was opened.
    ///
    /// They were set back, so the pool's copies are `CopyState::SetBack`.
    pub fn older_disks(&self) -> &[PathBuf] {
        &self.0.older_disks
    }

    /// The path of the disk with this place in the pool ([`BadBlock::disk`](crate::BadBlock)).
    ///
    /// `None` if it was removed.
    pub fn path_at(&self, place: u16) -> Option<PathBuf> {
        Some(self.0.layout().disks.get(place.into())?.path().to_owned())
    }

    /// The place in the pool of the disk with this path on this node.
    pub fn place_of(&self, path: &Path) -> Option<u16> {
        self.0.layout().place_of(path).map(|place| place as u16)
    }

    /// The paths of the pool's disks on this node, in the pool's order.
    pub fn paths(&self) -> Vec<PathBuf> {
        self.0.layout().paths()
    }

    /// Whether volumes can be changed.
    pub fn metadata_state(&self) -> MetadataState {
        self.0.state.borrow().metadata
    }

    /// The disks, to be sent to any core: attach them there once, and open slices with them.
    pub fn share_disks(&self) -> SharedDisks {
        self.0.layout().disks.share()
    }

    /// Renames the pool.
    ///
    /// # Errors
    /// [`StoreError::NameInvalid`], or any failure to write the metadata.
    pub async fn rename(&self, name: &str) -> Result<(), StoreError> {
        to_the_end(Rc::clone(&self.0).rename(name.to_owned())).await
    }

    /// Adds a disk to the pool while it is in use.
    ///
    /// Afterwards the caller gives the cores the new disk ([`SharedDisks::attach_added`]). Volumes stay where
    /// they are; new ones, and the space by which volumes grow, go where most space is left.
    ///
    /// # Errors
    /// The disk cannot be opened, is too small, or holds data ([`StoreError::NotEmpty`]); the pool has the
    /// maximum number of disks; or a write failed.
    pub async fn add_disk(&self, disk: NewDisk, wipe: bool) -> Result<(), StoreError> {
        to_the_end(Rc::clone(&self.0).add_disk(disk, wipe)).await
    }

    /// What [`Pool::add_disk`] would overwrite on a disk. Nothing is written.
    ///
    /// The disk may hang. So this holds no pool; [`Pool::check_disk`] then checks whether a pool could add
    /// it.
    ///
    /// # Errors
    /// As for [`Pool::add_disk`], except those of the pool.
    pub async fn look_at_disk(disk: &NewDisk, wipe: bool) -> Result<LookedAt, StoreError> {
        create::look_at(std::slice::from_ref(disk), wipe).await?.pop().ok_or(StoreError::NoDisks)
    }

    /// Checks whether [`Pool::add_disk`] could add a disk of this size; `None`: whether it could add any.
    ///
    /// # Errors
    /// As for [`Pool::add_disk`], except those of the disk.
    pub fn check_disk(&self, disk: &NewDisk, size: Option<ByteLen>) -> Result<(), StoreError> {
        self.0.check_disk(disk, size)
    }

    /// Removes a disk, on which nothing may lie, from the pool while the pool is in use, and wipes its
    /// metadata.
    ///
    /// The other disks keep their places. Afterwards the caller has the cores let go of the disk
    /// ([`SharedDisks::attach_added`], [`Slice::grow`](crate::Slice::grow)).
    ///
    /// # Errors
    /// [`StoreError::NoSuchDisk`], [`StoreError::OnlyDisk`], [`StoreError::DiskInUse`], or any failure to
    /// write the metadata. That the disk could not be wiped is no error: it is not part of the pool any more.
    pub async fn remove_disk(&self, path: &Path) -> Result<(), StoreError> {
        to_the_end(Rc::clone(&self.0).remove_disk(path.to_owned())).await
    }

    /// Checks whether [`Pool::remove_disk`] could remove a disk. Nothing is written.
    ///
    /// # Errors
    /// As for [`Pool::remove_disk`], except failures to write.
    pub fn check_removal(&self, path: &Path) -> Result<RemovableDisk, StoreError> {
        self.0.check_removal(path)
    }

    /// Takes the additional space of disks that have grown, while the pool is in use. Returns these disks.
    ///
    /// # Errors
    /// [`StoreError::NotGrown`], or any failure to write.
    pub async fn grow(&self) -> Result<Vec<GrownDisk>, StoreError> {
        to_the_end(Rc::clone(&self.0).grow()).await
    }

    /// Checks whether [`Pool::grow`] would find additional space, and where. Nothing is written.
    pub fn check_growth(&self) -> Result<Vec<GrownDisk>, StoreError> {
        self.0.check_growth()
    }

    /// How full the pool is.
    pub fn usage(&self) -> Usage {
        self.0.usage()
    }

    /// The free space in the file systems under the pool's sparse files; see [`rt::Disk::room`].
    pub fn rooms(&self) -> Vec<Room> {
        self.0.layout().disks.all().filter_map(|disk| disk.room()).collect()
    }

    /// Closes the pool so that any server may open it. All slices must have been closed and flushed.
    ///
    /// # Errors
    /// [`StoreError::VolumeOpen`], or any failure to write the metadata.
    pub async fn export(&self) -> Result<(), StoreError> {
        to_the_end(Rc::clone(&self.0).export()).await
    }

    /// Waits until no change is under way.
    ///
    /// To be called before the pool is dropped, so that its disks can be opened again: a change holds them.
    pub async fn changes_ended(&self) {
        self.0.changes_ended().await;
    }
}

/// A change is under way while this exists.
///
/// All of them run [`to_the_end`]: half a change would leave I/O under way to places that the next change
/// believes to be free.
struct Change(Rc<Inner>);

impl Drop for Change {
    fn drop(&mut self) {
        self.0.changes.set(self.0.changes.get() - 1);
        self.0.change_ended.notify();
    }
}

/// Only the owner of this may commit.
struct Turn<'a>(&'a Inner);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.turns.release(1);
    }
}

impl Inner {
    /// Builds the in-memory state, which is the same for a pool that was created and one that was opened.
    fn new(parts: Parts) -> Inner {
        let Parts { id, layout, ram, generation, catalog, older_disks } = parts;
        let mut allocator = Allocator::new(layout.geometry.iter().map(|geometry| geometry.extents));
        let mut volumes = BTreeMap::new();
        for (id, volume) in &catalog.volumes {
            volume.runs().for_each(|run| allocator.take(run));
            volumes.insert(*id, Live::default());
        }
        catalog.logs.runs().for_each(|run| allocator.take(run));
        layout.leaving.into_iter().for_each(|place| allocator.set_open(place, false));
        let metadata = MetadataState::Writable;
        Inner {
            id,
            extent_bytes: layout.geometry[0].extent_bytes,
            slot_bytes: layout.geometry[0].slot_bytes,
            layout: RefCell::new(Rc::new(layout)),
            ram,
            turns: rt::sync::Semaphore::new(1),
            growing: rt::sync::Semaphore::new(1),
            changes: Cell::new(0),
            change_ended: Notify::default(),
            closing: Cell::new(false),
            vouched_for: Cell::new(false),
            older_disks,
            log_tuning: Cell::default(),
            log_memory: RefCell::new(LogMemory::new(LOG_MEMORY)),
            lender: Arc::default(),
            lending: Cell::new(false),
            state: RefCell::new(State {
                generation,
                sealed: catalog.sealed,
                catalog,
                metadata,
                allocator,
                volumes,
                logs: BTreeMap::new(),
            }),
        }
    }

    /// The present disks.
    fn layout(&self) -> Rc<Layout> {
        Rc::clone(&self.layout.borrow())
    }

    /// Checks whether a change could begin now.
    fn changeable(&self) -> Result<(), StoreError> {
        self.writable()?;
        if self.closing.get() { Err(StoreError::Exported(self.id)) } else { Ok(()) }
    }

    /// Begins a change, if the pool accepts changes.
    fn begin_change(self: &Rc<Inner>) -> Result<Change, StoreError> {
        self.changeable()?;
        self.changes.set(self.changes.get() + 1);
        Ok(Change(Rc::clone(self)))
    }

    /// Waits until the caller may commit.
    async fn turn(&self) -> Turn<'_> {
        self.turns.acquire(1).await;
        Turn(self)
    }

    async fn changes_ended(&self) {
        self.change_ended.until(|| self.changes.get() == 0).await;
    }

    async fn rename(self: Rc<Inner>, name: String) -> Result<(), StoreError> {
        if !is_name(&name) {
            return Err(StoreError::NameInvalid(name));
        }
        let _change = self.begin_change()?;
        let _turn = self.turn().await;
        let catalog = Catalog { name, ..self.state.borrow().catalog.clone() };
        self.commit(catalog, Superblocks::OfMetadataDisks).await
    }

    async fn export(self: Rc<Inner>) -> Result<(), StoreError> {
        self.writable()?;
        let open = self.state.borrow().volumes.iter().find(|(_, live)| live.is_open()).map(|(id, _)| *id);
        if let Some(id) = open {
            return Err(StoreError::VolumeOpen(id));
        }
        self.closing.set(true);
        self.changes_ended().await;
        self.logs_ended().await;
        let _turn = self.turn().await;
        let catalog = Catalog { exported: true, ..self.state.borrow().catalog.clone() };
        let committed = self.commit(catalog, Superblocks::OfAllDisks).await;
        // If the export failed, the pool stays in use.
        self.closing.set(committed.is_ok());
        committed?;
        self.state.borrow_mut().metadata = MetadataState::Exported;
        Ok(())
    }

    async fn set_mark(self: Rc<Inner>, mark: PoolMark, set_back: bool) -> Result<(), StoreError> {
        let _change = self.begin_change()?;
        let _turn = self.turn().await;
        let mut catalog = Catalog { mark, ..self.state.borrow().catalog.clone() };
        if set_back {
            catalog.distrust_copies();
        }
        self.commit(catalog, Superblocks::OfAllDisks).await
    }

    fn usage(&self) -> Usage {
        let (state, layout) = (self.state.borrow(), self.layout());
        let extent = self.extent_bytes;
        let disk = |place: usize| DiskUsage {
            id: layout.ids[place],
            path: layout.disks.disk(place as u16).path().to_owned(),
            total: ByteLen(u64::from(layout.geometry[place].extents) * extent),
            free: ByteLen(state.allocator.free_on(place) * extent),
            leaving: layout.leaving == Some(place),
            failure: layout.disks.disk(place as u16).failure(),
        };
        let disks: Vec<DiskUsage> = layout.places().map(disk).collect();
        let used: u64 = disks.iter().map(|disk| disk.total.0.saturating_sub(disk.free.0)).sum();
        let free = state.allocator.free() * extent;
        Usage { total: ByteLen(used + free), free: ByteLen(free), extent: ByteLen(extent), disks }
    }
}

/// The parts of an open pool.
struct Parts {
    id: PoolId,
    layout: Layout,
    ram: RamBudget,
    /// The generation of `catalog`; the next commit writes the one after it.
    generation: u64,
    catalog: Catalog,
    /// The disks that were set back.
    older_disks: Vec<PathBuf>,
}

impl Live {
    /// All layouts that are not in the catalog any more.
    fn former(&self) -> impl Iterator<Item = &OtherLayout> {
        self.left.iter().chain(&self.unused)
    }

    /// Whether a slice, or the specification of one, exists.
    fn is_open(&self) -> bool {
        Arc::strong_count(&self.in_use) > 1
    }
}
