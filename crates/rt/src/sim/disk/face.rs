//! The disk as a task sees it.

use std::io;
use std::marker::PhantomData;
use std::path::Path;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use base::{Buf, Chain, Instant, SharedBuf};

use super::drive::{Content, Operation};
use super::shelf::DiskNumber;
use crate::sim::universe;
use crate::sync::{Sender, oneshot};
use crate::{DiskError, DiskFailure, Durability, OpenError, OpenOptions, Room};

/// An opening of a disk. While it exists, nothing else can open the disk.
pub(in crate::sim) struct OpenFile {
    pub(in crate::sim) disk: DiskNumber,
    size: AtomicU64,
    block: u32,
    read_only: bool,
    /// Not used: how a simulated file was created decides what it gives back.
    reserved: AtomicBool,
    latched: AtomicBool,
    /// When a task learned of the failure, by its node's clock.
    heard: OnceLock<Instant>,
}

impl OpenFile {
    pub(super) fn latch(&self) {
        self.latched.store(true, Ordering::Relaxed);
    }
}

/// An open simulated disk.
pub struct Disk {
    file: Arc<OpenFile>,
    /// As in production, it stays on its core.
    stays: PhantomData<Rc<()>>,
}

/// Opens the disk again, for another core.
pub struct SharedDisk(Arc<OpenFile>);

impl SharedDisk {
    /// The disk for the current core.
    pub fn open(&self) -> Disk {
        Disk { file: Arc::clone(&self.0), stays: PhantomData }
    }
}

impl Disk {
    /// See [`crate::Disk::open`].
    ///
    /// # Errors
    /// `InUse`; `System` with the codes that Linux uses, as `NotFound` and `AlreadyExists`.
    pub async fn open(path: &Path, options: OpenOptions) -> Result<Disk, OpenError> {
        let (universe, node) = universe::current();
        let read_only = options.read_only;
        let file = universe.open_disk(node, path, options, |disk, drive| OpenFile {
            disk,
            size: drive.content().size().into(),
            block: drive.content().block(),
            read_only,
            reserved: AtomicBool::new(drive.has_all_its_space()),
            latched: AtomicBool::new(false),
            heard: OnceLock::new(),
        })?;
        let disk = Disk { file, stays: PhantomData };
        if options.create.is_some() {
            // The name and the size are made durable, which takes time.
            let failed = |error| OpenError::System { path: path.to_owned(), source: io::Error::other(error) };
            disk.flush().await.map_err(failed)?;
        }
        Ok(disk)
    }

    /// See [`crate::Disk::check_new`].
    pub fn check_new(path: &Path, size: u64, reserve: bool) -> Result<(), OpenError> {
        let (universe, node) = universe::current();
        universe.shelf.borrow().check_new(node, path, size, reserve)
    }

    /// See [`crate::Disk::share`].
    pub fn share(&self) -> SharedDisk {
        SharedDisk(Arc::clone(&self.file))
    }

    /// See [`crate::Disk::remove`].
    pub fn remove(self, path: &Path) -> io::Result<()> {
        let (universe, node) = universe::current();
        universe.shelf.borrow_mut().remove_if(node, path, self.file.disk);
        Ok(())
    }

    /// The size in bytes.
    pub fn size(&self) -> u64 {
        self.file.size.load(Ordering::Relaxed)
    }

    /// See [`crate::Disk::present_size`].
    pub fn present_size(&self) -> u64 {
        universe::current().0.shelf.borrow().size(self.file.disk)
    }

    /// See [`crate::Disk::set_size`].
    pub fn set_size(&self, size: u64) {
        self.file.size.store(size, Ordering::Relaxed);
    }

    /// The logical block size in bytes.
    pub fn block(&self) -> u32 {
        self.file.block
    }

    /// See [`crate::Disk::failure`].
    pub fn failure(&self) -> Option<DiskFailure> {
        let latched = self.file.latched.load(Ordering::Relaxed);
        latched.then(|| DiskFailure { at: *self.file.heard.get_or_init(crate::now), error: libc::EIO })
    }

    /// See [`crate::Disk::is_reserved`].
    pub fn is_reserved(&self) -> bool {
        self.file.reserved.load(Ordering::Relaxed)
    }

    /// See [`crate::Disk::set_reserved`].
    pub fn set_reserved(&self, reserved: bool) {
        self.file.reserved.store(reserved, Ordering::Relaxed);
    }

    /// See [`crate::Disk::read`].
    pub async fn read(&self, offset: u64, buf: Buf) -> Result<Buf, DiskError> {
        self.check_range(offset, buf.len() as u64)?;
        self.operate(|reply| Operation::Read { offset, buf, early: false, reply }).await
    }

    /// See [`crate::Disk::write`].
    pub async fn write(&self, offset: u64, data: Chain, durability: Durability) -> Result<(), DiskError> {
        self.change(offset, Content::Data(data.contiguous()), durability, true).await
    }

    /// See [`crate::Disk::rewrite`].
    pub async fn rewrite(&self, offset: u64, data: SharedBuf) -> Result<(), DiskError> {
        self.change(offset, Content::Data(data), Durability::Cached, false).await
    }

    /// See [`crate::Disk::flush`].
    pub async fn flush(&self) -> Result<(), DiskError> {
        self.check_latch()?;
        // The shelf fills in what the flush covers.
        self.operate(|reply| Operation::Flush { below: 0, reply }).await?;
        // Another core's write may have failed meanwhile, with data that this flush was to cover.
        self.check_latch()
    }

    /// See [`crate::Disk::zero`].
    pub async fn zero(&self, offset: u64, len: u64) -> Result<(), DiskError> {
        self.change(offset, Content::Zeros(len), Durability::Cached, true).await
    }

    /// See [`crate::Disk::allocated`].
    pub async fn allocated(&self, offset: u64, len: u64, max: usize) -> Result<Vec<(u64, u64)>, DiskError> {
        self.check_range(offset, len)?;
        let (universe, _) = universe::current();
        let mut parts = universe.shelf.borrow().allocated(self.file.disk, offset, len).ok_or_else(gone)?;
        parts.truncate(max);
        Ok(parts)
    }

    /// See [`crate::Disk::knows_holes`].
    pub fn knows_holes(&self) -> bool {
        universe::current().0.shelf.borrow().is_file(self.file.disk)
    }

    /// See [`crate::Disk::allocate`].
    pub async fn allocate(&self, offset: u64, len: u64) -> Result<(), DiskError> {
        self.check_range(offset, len)?;
        if self.file.read_only {
            return Err(DiskError::ReadOnly);
        }
        self.check_latch()?;
        let (universe, node) = universe::current();
        let time = universe.shelf.borrow_mut().time_to_allocate(self.file.disk);
        if !time.is_zero() {
            crate::sleep(time).await;
        }
        universe.allocate(node, self.file.disk, offset, len)
    }

    /// See [`crate::Disk::room`].
    pub fn room(&self) -> Option<Room> {
        let (universe, node) = universe::current();
        universe.shelf.borrow().room(node, self.file.disk).filter(|_| !self.is_reserved())
    }

    async fn change(
        &self,
        offset: u64,
        content: Content,
        durability: Durability,
        latches: bool,
    ) -> Result<(), DiskError> {
        self.check_range(offset, content.len())?;
        if self.file.read_only {
            return Err(DiskError::ReadOnly);
        }
        self.check_latch()?;
        if content.len() == 0 {
            return Ok(());
        }
        let seen = Default::default();
        self.operate(|reply| Operation::Write { offset, content, durability, latches, seen, reply }).await
    }

    async fn operate<T>(
        &self,
        operation: impl FnOnce(Sender<Result<T, DiskError>>) -> Operation,
    ) -> Result<T, DiskError> {
        let (reply, result) = oneshot();
        universe::current().0.begin_disk_operation(&self.file, operation(reply));
        let result = result.await.unwrap_or_else(|_| Err(gone()));
        if result.is_err() && self.file.latched.load(Ordering::Relaxed) {
            self.file.heard.get_or_init(crate::now);
        }
        result
    }

    fn check_range(&self, offset: u64, len: u64) -> Result<(), DiskError> {
        let block = u64::from(self.file.block);
        let aligned = offset.is_multiple_of(block) && len.is_multiple_of(block);
        let inside = offset.checked_add(len).is_some_and(|end| end <= self.size());
        if aligned && inside { Ok(()) } else { Err(DiskError::Range { offset, len }) }
    }

    fn check_latch(&self) -> Result<(), DiskError> {
        if self.file.latched.load(Ordering::Relaxed) { Err(DiskError::Latched) } else { Ok(()) }
    }
}

/// The error if the disk was removed while it was open.
fn gone() -> DiskError {
    DiskError::Media(io::Error::from_raw_os_error(libc::ENXIO))
}
