//! The disks of a pool as one core sees them.

use std::cell::Cell;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use base::{Buf, Chain, Instant, SharedBuf};
use rt::sync::Notify;
use rt::{Disk, DiskError, DiskFailure, Durability, Room};

/// With more free space than this in its file system, a write is not checked for room: it is more than all
/// cores write in [`ROOM_LOOK`].
const AMPLE_BYTES: u64 = 1 << 30;
/// How long the result of that check is used.
const ROOM_LOOK: Duration = Duration::from_millis(100);

/// A disk of a pool on one core. All slices of the core share it and its flushes.
pub(crate) struct PoolDisk {
    disk: Disk,
    path: PathBuf,
    /// The same on all cores, and another one for each disk that a pool opens.
    identity: Arc<()>,
    /// Counts cached writes of this core that have completed.
    written: Cell<u64>,
    /// How many of them are durable.
    durable: Cell<u64>,
    /// A flush is under way.
    flushing: Cell<bool>,
    flushed: Notify,
    /// It has been logged that the disk is out of service.
    told: Cell<bool>,
    /// Until this time, the disk's file system is known to have ample room.
    ample_until: Cell<Option<Instant>>,
}

impl PoolDisk {
    pub(crate) fn new(disk: Disk, path: PathBuf) -> PoolDisk {
        PoolDisk::known_as(Arc::default(), disk, path)
    }

    fn known_as(identity: Arc<()>, disk: Disk, path: PathBuf) -> PoolDisk {
        PoolDisk {
            disk,
            path,
            identity,
            written: Cell::new(0),
            durable: Cell::new(0),
            flushing: Cell::new(false),
            flushed: Notify::default(),
            told: Cell::new(false),
            ample_until: Cell::new(None),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The alignment of offsets and lengths.
    pub(crate) fn block(&self) -> u64 {
        u64::from(self.disk.block())
    }

    /// See [`Disk::is_reserved`].
    pub(crate) fn is_reserved(&self) -> bool {
        self.disk.is_reserved()
    }

    /// The failure that took the disk out of service, on whichever core that was.
    pub(crate) fn failure(&self) -> Option<DiskFailure> {
        self.disk.failure()
    }

    /// Logs, once per core, that the disk is out of service.
    fn look<T>(&self, result: Result<T, DiskError>) -> Result<T, DiskError> {
        if let (Err(DiskError::Media(error)), Some(_), false) = (&result, self.failure(), self.told.get()) {
            self.told.set(true);
            tracing::error!(disk = %self.path.display(), %error, "a disk is out of service: a write or flush failed; check it, then run `ursa pool reopen`");
        }
        result
    }

    pub(crate) async fn read(&self, offset: u64, buf: Buf) -> Result<Buf, DiskError> {
        self.disk.read(offset, buf).await
    }

    pub(crate) async fn write(
        &self,
        offset: u64,
        data: impl Into<Chain>,
        durability: Durability,
    ) -> Result<(), DiskError> {
        let result = self.look(self.disk.write(offset, data, durability).await);
        if durability == Durability::Cached {
            self.mark_written();
        }
        result
    }

    /// Repairs blocks that cannot be read: writes them again, makes them durable, and reads them back.
    ///
    /// A flush that fails takes the disk out of service; any other failure concerns only these blocks.
    pub(crate) async fn rewrite(&self, offset: u64, data: SharedBuf) -> Result<(), DiskError> {
        let written = self.disk.rewrite(offset, data.clone()).await;
        self.mark_written();
        written?;
        self.flush().await?;
        let found = self.disk.read(offset, Buf::uncleared(data.len())).await?;
        if found[..] == data[..] { Ok(()) } else { Err(DiskError::Media(io::ErrorKind::InvalidData.into())) }
    }

    pub(crate) async fn zero(&self, offset: u64, len: u64) -> Result<(), DiskError> {
        let result = self.look(self.disk.zero(offset, len).await);
        self.mark_written();
        result
    }

    /// See [`Disk::allocate`].
    pub(crate) async fn allocate(&self, offset: u64, len: u64) -> Result<(), DiskError> {
        self.disk.allocate(offset, len).await
    }

    /// See [`Disk::size`].
    pub(crate) fn size(&self) -> u64 {
        self.disk.size()
    }

    pub(crate) fn present_size(&self) -> Result<u64, DiskError> {
        self.disk.present_size().map_err(DiskError::Media)
    }

    pub(crate) fn set_size(&self, size: u64) {
        self.disk.set_size(size);
    }

    /// See [`Disk::has_free`].
    pub(crate) fn has_free(&self, bytes: u64) -> bool {
        self.disk.has_free(bytes)
    }

    /// See [`Disk::room`].
    pub(crate) fn room(&self) -> Option<Room> {
        self.disk.room()
    }

    /// Whether a write need not [allocate](Disk::allocate) its space first: there is ample room, or the space
    /// is allocated already.
    pub(crate) fn has_ample_room(&self) -> bool {
        let now = rt::now();
        if self.ample_until.get().is_some_and(|until| now < until) {
            return true;
        }
        let ample = self.disk.room().is_none_or(|room| room.free >= AMPLE_BYTES);
        self.ample_until.set(ample.then(|| now + ROOM_LOOK));
        ample
    }

    pub(crate) async fn allocated(
        &self,
        offset: u64,
        len: u64,
        max: usize,
    ) -> Result<Vec<(u64, u64)>, DiskError> {
        self.disk.allocated(offset, len, max).await
    }

    /// Ensures that the next flush reaches the disk, because data may have been written to it on another core
    /// that must be flushed here.
    pub(crate) fn mark_written(&self) {
        self.written.set(self.written.get() + 1);
    }

    /// Makes the writes of this core durable.
    ///
    /// Callers that come while a flush is under way share the next one. If nothing was written, there is no
    /// flush.
    pub(crate) async fn flush(&self) -> Result<(), DiskError> {
        let wanted = self.written.get();
        loop {
            if self.durable.get() >= wanted {
                return Ok(());
            }
            if self.flushing.get() {
                self.flushed.until(|| !self.flushing.get()).await;
                continue;
            }
            let _flushing = Flushing::begin(self);
            let covered = self.written.get();
            self.look(self.disk.flush().await)?;
            self.durable.set(covered);
        }
    }
}

/// A flush is under way while this exists.
struct Flushing<'a>(&'a PoolDisk);

impl Flushing<'_> {
    fn begin(disk: &PoolDisk) -> Flushing<'_> {
        disk.flushing.set(true);
        Flushing(disk)
    }
}

impl Drop for Flushing<'_> {
    fn drop(&mut self) {
        self.0.flushing.set(false);
        self.0.flushed.notify();
    }
}

/// The disks of a pool on one core, by their places in the pool. Cheap to clone; slices of that core are
/// opened with it.
#[derive(Clone)]
pub struct CoreDisks(Rc<Places>);

struct Places {
    /// Grows each time a disk is added or removed.
    version: u64,
    /// `None`: the disk that had this place was removed.
    disks: Vec<Option<Rc<PoolDisk>>>,
    /// How many pages of checksums this core has in memory for the pool's slices.
    checksum_pages: Rc<Cell<usize>>,
}

impl CoreDisks {
    pub(crate) fn new(disks: Vec<Option<Rc<PoolDisk>>>) -> CoreDisks {
        CoreDisks(Rc::new(Places { version: 0, disks, checksum_pages: Rc::default() }))
    }

    /// How many pages of checksums this core has in memory for the pool's slices, which count them here.
    pub(crate) fn checksum_pages(&self) -> &Rc<Cell<usize>> {
        &self.0.checksum_pages
    }

    /// The disks, in the pool's order.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Rc<PoolDisk>> {
        self.0.disks.iter().flatten()
    }

    /// The disk with this place; `None` if it was removed.
    pub(crate) fn get(&self, place: usize) -> Option<&Rc<PoolDisk>> {
        self.0.disks.get(place)?.as_ref()
    }

    /// The disk with this place, on which something lies.
    pub(crate) fn disk(&self, place: u16) -> &Rc<PoolDisk> {
        self.get(place.into()).expect("the catalog was checked: nothing lies on a place without a disk")
    }

    /// Whether these are the pool's disks at a later time than `other`.
    pub(crate) fn is_newer_than(&self, other: &CoreDisks) -> bool {
        self.0.version > other.0.version
    }

    /// The same disks, except for this place, which may be the one behind the others.
    pub(crate) fn with(&self, place: usize, disk: Option<Rc<PoolDisk>>) -> CoreDisks {
        let mut disks = self.0.disks.clone();
        disks.resize(disks.len().max(place + 1), None);
        disks[place] = disk;
        let checksum_pages = Rc::clone(self.checksum_pages());
        CoreDisks(Rc::new(Places { version: self.0.version + 1, disks, checksum_pages }))
    }

    pub(crate) fn share(&self) -> SharedDisks {
        let share = |disk: &Rc<PoolDisk>| SharedDisk {
            path: disk.path.clone(),
            identity: Arc::clone(&disk.identity),
            open: disk.disk.share(),
        };
        let disks = self.0.disks.iter().map(|disk| disk.as_ref().map(share)).collect();
        SharedDisks(Arc::new(SharedPlaces { version: self.0.version, disks }))
    }
}

/// The disks of a pool, in a form that can be sent to another core.
#[derive(Clone)]
pub struct SharedDisks(Arc<SharedPlaces>);

struct SharedPlaces {
    version: u64,
    disks: Vec<Option<SharedDisk>>,
}

struct SharedDisk {
    path: PathBuf,
    identity: Arc<()>,
    open: Box<dyn Fn() -> Disk + Send + Sync>,
}

impl SharedDisks {
    /// Attaches the disks to the current core. Once per core is enough: all its slices use the same ones.
    pub fn attach(&self) -> CoreDisks {
        self.attached(|_| None, Rc::default())
    }

    /// Brings `known`, which was attached to the current core, up to date: attaches the disks that were added
    /// since, and leaves out those that were removed. The others stay the same.
    pub fn attach_added(&self, known: &CoreDisks) -> CoreDisks {
        if self.0.version <= known.0.version {
            return known.clone();
        }
        self.attached(|place| known.get(place), Rc::clone(known.checksum_pages()))
    }

    fn attached<'a>(
        &self,
        known: impl Fn(usize) -> Option<&'a Rc<PoolDisk>>,
        checksum_pages: Rc<Cell<usize>>,
    ) -> CoreDisks {
        let attach = |(place, shared): (usize, &Option<SharedDisk>)| {
            let shared = shared.as_ref()?;
            // Another disk may have got the place meanwhile.
            let same = known(place).filter(|disk| Arc::ptr_eq(&disk.identity, &shared.identity));
            let attach = || {
                let identity = Arc::clone(&shared.identity);
                Rc::new(PoolDisk::known_as(identity, (shared.open)(), shared.path.clone()))
            };
            Some(same.map_or_else(attach, Rc::clone))
        };
        let disks = self.0.disks.iter().enumerate().map(attach).collect();
        CoreDisks(Rc::new(Places { version: self.0.version, disks, checksum_pages }))
    }
}
