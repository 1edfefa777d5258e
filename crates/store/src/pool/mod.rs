//! A pool: disks that together hold volumes, and describe themselves.
//!
//! What must never happen: an acknowledged change is lost, a volume shows another's data, two servers write
//! one pool. How the three are kept is in `docs/why/pool.md`.
//!
//! A pool lives on one core. Its changes are made one after the other, each as a new generation of the
//! catalogue ([`commit`]); the data path does not wait for them.

mod add_disk;
mod commit;
mod create;
mod grow;
mod layout;
mod logs;
mod open;
mod room;
#[cfg(test)]
mod tests;
mod volumes;
mod zeroing;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use base::ByteLen;
use rt::sync::Notify;
use rt::{DiskFailure, Room};

use crate::allocator::Allocator;
use crate::budget::{RamBudget, RamGrant};
use crate::catalog::{Catalog, is_name};
use crate::copy::PoolMark;
use crate::disks::SharedDisks;
use crate::error::StoreError;
use crate::geometry::Geometry;
use crate::id::{DiskId, PoolId, VolumeId};
use crate::log::{Lender, LogHandle, LogMemory, LogTuning};

use commit::Superblocks;
pub use create::{CreateOptions, LookedAt, NewDisk};
pub use grow::GrownDisk;
use layout::Layout;
pub use logs::LogSpace;
pub use open::{FoundPool, OpenPool, Probe, ProbedContents, probe};
pub use volumes::{VolumeInfo, VolumeSpec};
pub use zeroing::{Zeroing, ZeroingWatch};

/// Disks of a pool that have a copy of the metadata, both ends each: the first ones. Three, so that two may
/// be damaged, and not all, so that a change does not become slower with each disk.
const METADATA_DISKS: usize = 3;

/// Memory of the logs of a pool that shares none with other pools.
const LOG_MEMORY: ByteLen = ByteLen(1 << 30);

/// An open pool. Cheap to clone; used by the core that opened it.
///
/// A change, once begun, goes on to its end even if its future is dropped.
#[derive(Clone)]
pub struct Pool(Rc<Inner>);

struct Inner {
    id: PoolId,
    /// Of all its disks alike.
    extent_bytes: u64,
    slot_bytes: u64,
    /// Its disks; replaced when one is added, or has become larger.
    layout: RefCell<Rc<Layout>>,
    ram: RamBudget,
    /// One permit: generations are written one after the other.
    turns: rt::sync::Semaphore,
    /// Changes that are under way, the zeroing that belongs to them included.
    changes: Cell<usize>,
    change_ended: Notify,
    /// An export has begun, which waits for the changes under way and lets no other begin.
    closing: Cell<bool>,
    /// Whoever remembers how far the pool has come has agreed to what it is, since it was opened: see
    /// [`Pool::is_vouched_for`].
    vouched_for: Cell<bool>,
    /// Disks that were set back, as seen when the pool was opened.
    older_disks: Vec<PathBuf>,
    /// Of logs that are made or opened from now on.
    log_tuning: Cell<LogTuning>,
    log_memory: RefCell<LogMemory>,
    /// Brings what logs ask to this core.
    lender: Arc<Lender>,
    /// A task answers that.
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
    /// Of the catalogue.
    generation: u64,
    /// The superblocks of all disks are of this generation at least, since the pool was opened; what the
    /// catalogue says of that while nothing was written.
    sealed: u64,
    /// What is durable.
    catalog: Catalog,
    metadata: MetadataState,
    /// Free extents. Taken ones belong to volumes of the catalogue, to one that is being made or grown, or to
    /// one whose space is being zeroed after it was deleted.
    allocator: Allocator,
    /// What lives as long as a volume is in the catalogue.
    volumes: BTreeMap<VolumeId, Live>,
    /// Those of the catalogue whose slices were opened.
    logs: BTreeMap<u16, Arc<LogHandle>>,
}

/// A volume's part outside the catalogue.
#[derive(Default)]
struct Live {
    /// Cloned into each slice.
    in_use: Arc<()>,
    /// The memory of a RAM volume.
    grants: Vec<Arc<RamGrant>>,
}

/// Whether a pool's volumes can be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetadataState {
    /// They can.
    Writable,
    /// Writing the metadata failed: nobody knows what is on the disks, so nothing more is written until the
    /// pool has been reopened. Volumes go on.
    Failed,
    /// The pool was exported: whoever still has it must not write.
    Exported,
}

/// How full a pool is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Usage {
    /// What volumes can take altogether.
    pub total: ByteLen,
    /// What is left.
    pub free: ByteLen,
    /// What a volume's slices take in multiples of.
    pub extent: ByteLen,
    /// By disk, in the pool's order.
    pub disks: Vec<DiskUsage>,
}

/// How full a disk of a pool is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskUsage {
    /// Which.
    pub id: DiskId,
    /// Where it is here.
    pub path: PathBuf,
    /// What volumes can take of it.
    pub total: ByteLen,
    /// What is left.
    pub free: ByteLen,
    /// What took it out of service: nothing is written to it until the pool has been reopened.
    pub failure: Option<DiskFailure>,
}

impl Pool {
    /// Makes a pool of `disks`, and opens it.
    ///
    /// # Errors
    /// A disk that cannot be opened, is too small, or holds something ([`StoreError::NotEmpty`]); options
    /// that cannot be.
    pub async fn create(disks: Vec<NewDisk>, options: CreateOptions) -> Result<Pool, StoreError> {
        create::create(disks, options).await
    }

    /// Whether [`Pool::create`] could make a pool so, as far as that is seen without doing it, and what it
    /// would overwrite. Nothing is written.
    ///
    /// # Errors
    /// As [`Pool::create`].
    pub async fn check_create(
        disks: &[NewDisk],
        name: &str,
        wipe: bool,
    ) -> Result<Vec<LookedAt>, StoreError> {
        create::check(disks, name, wipe).await
    }

    /// Whether [`Pool::open`] could open the pool of these disks, and what it is. Nothing is written.
    ///
    /// # Errors
    /// As [`Pool::open`].
    pub async fn check_open(paths: &[PathBuf], options: &OpenPool) -> Result<FoundPool, StoreError> {
        open::check(paths, options).await
    }

    /// Opens the pool of all these disks, in any order.
    ///
    /// # Errors
    /// With the reason and what to do: a disk is missing, damaged, foreign, of another version or pool;
    /// another server uses the pool.
    pub async fn open(paths: &[PathBuf], options: OpenPool) -> Result<Pool, StoreError> {
        open::open(paths, options).await
    }

    /// Who it is.
    pub fn id(&self) -> PoolId {
        self.0.id
    }

    /// What it is, as [`Pool::check_open`] says it of one that is not open.
    pub fn as_found(&self) -> FoundPool {
        let catalog = self.0.state.borrow().catalog.clone();
        let contents = ProbedContents::of(catalog, self.0.extent_bytes);
        FoundPool { id: self.id(), paths: self.paths(), contents }
    }

    /// What it is called.
    pub fn name(&self) -> String {
        self.0.state.borrow().catalog.name.clone()
    }

    /// How far it has come.
    pub fn mark(&self) -> PoolMark {
        self.0.state.borrow().catalog.mark
    }

    /// Sets how far the pool has come: durable when done. With `set_back` the pool was found to be older than
    /// somebody remembers, and what its copies hold is `CopyState::SetBack` in the same change.
    ///
    /// # Errors
    /// What writing the metadata met.
    pub async fn set_mark(&self, mark: PoolMark, set_back: bool) -> Result<(), StoreError> {
        let inner = Rc::clone(&self.0);
        to_the_end(async move { inner.set_mark(mark, set_back).await }).await
    }

    /// Whether [`Pool::vouch_for`] was called since the pool was opened.
    pub fn is_vouched_for(&self) -> bool {
        self.0.vouched_for.get()
    }

    /// Its copies may be used: whoever remembers how far the pool had come has been asked, and knows how far
    /// it is now.
    pub fn vouch_for(&self) {
        self.0.vouched_for.set(true);
    }

    /// Disks that held less than the others when the pool was opened: they were set back, and its copies are
    /// `CopyState::SetBack`.
    pub fn older_disks(&self) -> &[PathBuf] {
        &self.0.older_disks
    }

    /// Where its disks are here, in the pool's order.
    pub fn paths(&self) -> Vec<PathBuf> {
        self.0.layout().paths()
    }

    /// Whether volumes can be changed.
    pub fn metadata_state(&self) -> MetadataState {
        self.0.state.borrow().metadata
    }

    /// The disks for another core (or this one): attach them there once, and open slices with them.
    pub fn share_disks(&self) -> SharedDisks {
        self.0.layout().disks.share()
    }

    /// Gives the pool another name.
    ///
    /// # Errors
    /// [`StoreError::NameInvalid`], or what writing the metadata met.
    pub async fn rename(&self, name: &str) -> Result<(), StoreError> {
        let (inner, name) = (Rc::clone(&self.0), name.to_owned());
        to_the_end(async move { inner.rename(name).await }).await
    }

    /// Adds a disk to the pool, while it is in use. Then give the cores the new disk
    /// ([`SharedDisks::attach_added`]). Volumes stay where they are; new ones, and what volumes grow by, go
    /// where most is left.
    ///
    /// # Errors
    /// A disk that cannot be opened, is too small, or holds something ([`StoreError::NotEmpty`]); the pool
    /// has as many as it can; or what writing met.
    pub async fn add_disk(&self, disk: NewDisk, wipe: bool) -> Result<(), StoreError> {
        let inner = Rc::clone(&self.0);
        to_the_end(async move { inner.add_disk(disk, wipe).await }).await
    }

    /// Whether [`Pool::add_disk`] could add a disk, as far as that is seen without doing it, and what it
    /// would overwrite. Nothing is written.
    ///
    /// # Errors
    /// As [`Pool::add_disk`].
    pub async fn check_disk(&self, disk: NewDisk, wipe: bool) -> Result<LookedAt, StoreError> {
        self.0.check_disk(disk, wipe).await
    }

    /// Takes what is new of disks that have become larger, while the pool is in use, and says which those are.
    ///
    /// # Errors
    /// [`StoreError::NotGrown`]; or what writing met.
    pub async fn grow(&self) -> Result<Vec<GrownDisk>, StoreError> {
        let inner = Rc::clone(&self.0);
        to_the_end(async move { inner.grow().await }).await
    }

    /// Whether [`Pool::grow`] would find more, and what. Nothing is written.
    ///
    /// # Errors
    /// As [`Pool::grow`].
    pub fn check_growth(&self) -> Result<Vec<GrownDisk>, StoreError> {
        self.0.check_growth()
    }

    /// How full it is.
    pub fn usage(&self) -> Usage {
        self.0.usage()
    }

    /// What the file systems have for its files that take space as they are written; see [`rt::Disk::room`].
    pub fn rooms(&self) -> Vec<Room> {
        self.0.layout().disks.all().iter().filter_map(|disk| disk.room()).collect()
    }

    /// Closes the pool so that any server may open it. All slices must have been closed and flushed.
    ///
    /// # Errors
    /// [`StoreError::VolumeOpen`], or what writing the metadata met.
    pub async fn export(&self) -> Result<(), StoreError> {
        let inner = Rc::clone(&self.0);
        to_the_end(async move { inner.export().await }).await
    }
}

/// Runs `change` to its end, even if the caller stops waiting for it: half a change would leave I/O under way
/// to places that the next change believes to be free.
async fn to_the_end<T: 'static>(change: impl Future<Output = T> + 'static) -> T {
    let (ended, result) = rt::sync::oneshot();
    rt::spawn(async move { ended.send(change.await) }).detach();
    match result.await {
        Ok(result) => result,
        // The core is being torn down; so is the caller.
        Err(rt::sync::Closed) => std::future::pending().await,
    }
}

/// While it lives, a change is under way.
struct Change(Rc<Inner>);

impl Drop for Change {
    fn drop(&mut self) {
        self.0.changes.set(self.0.changes.get() - 1);
        self.0.change_ended.notify();
    }
}

/// While it lives, its owner alone may commit.
struct Turn<'a>(&'a Inner);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.turns.release(1);
    }
}

impl Inner {
    /// The part of an open pool that does not depend on where it comes from.
    fn new(parts: Parts) -> Inner {
        let Parts { id, layout, ram, generation, catalog, older_disks } = parts;
        let mut allocator = Allocator::new(layout.geometry.iter().map(|geometry| geometry.extents));
        let mut volumes = BTreeMap::new();
        for (id, volume) in &catalog.volumes {
            volume.runs().for_each(|run| allocator.take(run));
            volumes.insert(*id, Live::default());
        }
        catalog.logs.runs().for_each(|run| allocator.take(run));
        let metadata = MetadataState::Writable;
        Inner {
            id,
            extent_bytes: layout.geometry[0].extent_bytes,
            slot_bytes: layout.geometry[0].slot_bytes,
            layout: RefCell::new(Rc::new(layout)),
            ram,
            turns: rt::sync::Semaphore::new(1),
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

    /// The disks of the moment.
    fn layout(&self) -> Rc<Layout> {
        Rc::clone(&self.layout.borrow())
    }

    /// Begins a change, if changes are possible.
    fn begin_change(self: &Rc<Inner>) -> Result<Change, StoreError> {
        self.writable()?;
        if self.closing.get() {
            return Err(StoreError::Exported(self.id));
        }
        self.changes.set(self.changes.get() + 1);
        Ok(Change(Rc::clone(self)))
    }

    /// Waits for one's turn to commit.
    async fn turn(&self) -> Turn<'_> {
        self.turns.acquire(1).await;
        Turn(self)
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
        self.change_ended.until(|| self.changes.get() == 0).await;
        self.logs_ended().await;
        let _turn = self.turn().await;
        let catalog = Catalog { exported: true, ..self.state.borrow().catalog.clone() };
        let committed = self.commit(catalog, Superblocks::OfAllDisks).await;
        // Who has it goes on.
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
        let disk = |(index, geometry): (usize, &Geometry)| DiskUsage {
            id: layout.ids[index],
            path: layout.disks.all()[index].path().to_owned(),
            total: ByteLen(u64::from(geometry.extents) * extent),
            free: ByteLen(state.allocator.free_on(index) * extent),
            failure: layout.disks.all()[index].failure(),
        };
        let disks: Vec<DiskUsage> = layout.geometry.iter().enumerate().map(disk).collect();
        Usage {
            total: ByteLen(disks.iter().map(|disk| disk.total.0).sum()),
            free: ByteLen(state.allocator.free() * extent),
            extent: ByteLen(extent),
            disks,
        }
    }
}

/// What an open pool is made of.
struct Parts {
    id: PoolId,
    layout: Layout,
    ram: RamBudget,
    /// Of `catalog`: the next commit is the one after it.
    generation: u64,
    catalog: Catalog,
    /// Disks that were set back.
    older_disks: Vec<PathBuf>,
}

impl Live {
    /// Whether a slice, or the specification of one, exists.
    fn is_open(&self) -> bool {
        Arc::strong_count(&self.in_use) > 1
    }
}
