//! Files opened with O_DIRECT, and block devices.

use std::io;
use std::path::{Path, PathBuf};

use base::{Buf, Chain, Instant, SharedBuf};

use crate::worlds::{Of, either};
use crate::{sim, uring};

/// When a write counts as done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// When the disk has accepted it; a later flush makes it durable.
    Cached,
    /// When it survives a power cut (FUA).
    Durable,
}

/// How to open a disk.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenOptions {
    /// Creates a file of this many bytes, which must not exist. `None`: the file must exist.
    pub create: Option<u64>,
    /// With `create`: reserves the space in the file system now instead of on first use. It is an error if
    /// the file system does not have it.
    pub reserve: bool,
    /// Refuses writes.
    pub read_only: bool,
}

/// Why a disk could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process, or another part of this one, has the disk open.
    #[error("{0} is in use by another process: stop that process or choose another disk")]
    InUse(PathBuf),
    /// The file system cannot bypass the page cache.
    #[error(
        "{0} cannot be opened with O_DIRECT: its file system does not support it; use ext4, XFS or a block device"
    )]
    NoDirect(PathBuf),
    /// Neither a regular file nor a block device.
    #[error("{0} is neither a file nor a block device")]
    NotADisk(PathBuf),
    /// Any other error of the system.
    #[error("cannot open {path}")]
    System {
        /// The path to open.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
}

/// Why an operation on a disk failed.
#[derive(Debug, thiserror::Error)]
pub enum DiskError {
    /// The range is outside the disk, or not aligned to its blocks.
    #[error("{len} bytes at {offset} are outside the disk or not aligned to its blocks")]
    Range {
        /// The offset in bytes.
        offset: u64,
        /// The length in bytes.
        len: u64,
    },
    /// The file system under the file is full.
    #[error("the file system under the disk is full")]
    Full,
    /// The disk could not read or write this range (EIO and similar errors).
    #[error("the disk failed")]
    Media(#[source] io::Error),
    /// An earlier write or flush failed, so it is unknown what is durable: the disk must be reopened and
    /// recovered.
    #[error("the disk is out of service: an earlier write or flush failed; reopen it")]
    Latched,
    /// The disk was opened read-only.
    #[error("the disk was opened read-only")]
    ReadOnly,
}

impl DiskError {
    /// The number of the system's error, or of the one that means the same.
    pub fn errno(&self) -> i32 {
        match self {
            DiskError::Media(error) => crate::errno(error),
            DiskError::Range { .. } => libc::EINVAL,
            DiskError::Full => libc::ENOSPC,
            DiskError::Latched => libc::EIO,
            DiskError::ReadOnly => libc::EROFS,
        }
    }

    /// Whether the medium is at fault: these blocks, and maybe no others. Otherwise the device is: it is
    /// missing or does not respond.
    pub fn is_medium(&self) -> bool {
        const DEVICE: [i32; 5] = [libc::ENODEV, libc::ENXIO, libc::ENOMEDIUM, libc::ENOLINK, libc::ETIMEDOUT];
        matches!(self, DiskError::Media(error) if !error.raw_os_error().is_some_and(|code| DEVICE.contains(&code)))
    }
}

/// The space of the file system for a file that takes its space as it is written; see [`Disk::room`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// The file system: the same number for all files in it.
    pub file_system: u64,
    /// Its free bytes.
    pub free: u64,
    /// Its size in bytes.
    pub total: u64,
    /// Bytes of the file that have no space yet.
    pub promised: u64,
}

/// The failure that put a disk out of service; see [`DiskError::Latched`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskFailure {
    /// When it happened.
    pub at: Instant,
    /// The system's error number.
    pub error: i32,
}

/// An open disk, used by the core that opened it. [`Disk::share`] opens it for another core.
pub struct Disk(Of<uring::Disk, sim::Disk>);

impl Disk {
    /// Opens `path`, and locks it against all other openers except [`Disk::share`].
    pub async fn open(path: &Path, options: OpenOptions) -> Result<Disk, OpenError> {
        if sim::is_current() {
            sim::Disk::open(path, options).await.map(Of::Sim).map(Disk)
        } else {
            uring::Disk::open(path, options).await.map(Of::Uring).map(Disk)
        }
    }

    /// Checks whether a file of `size` bytes could be created at `path` ([`OpenOptions::create`]), as far as
    /// possible without creating it.
    pub fn check_new(path: &Path, size: u64, reserve: bool) -> Result<(), OpenError> {
        if sim::is_current() {
            sim::Disk::check_new(path, size, reserve)
        } else {
            uring::Disk::check_new(path, size, reserve)
        }
    }

    /// The same open disk for other cores: send the function there and call it. A failure latches the disk on
    /// all cores.
    pub fn share(&self) -> Box<dyn Fn() -> Disk + Send + Sync> {
        match &self.0 {
            Of::Uring(disk) => {
                let shared = disk.share();
                Box::new(move || Disk(Of::Uring(shared.open())))
            }
            Of::Sim(disk) => {
                let shared = disk.share();
                Box::new(move || Disk(Of::Sim(shared.open())))
            }
        }
    }

    /// Removes a file that was created for this disk.
    ///
    /// Its name is gone at once, and its space when nobody has it open any more. If `path` is another file by
    /// now, that file stays.
    pub fn remove(self, path: &Path) -> io::Result<()> {
        either!(self.0, disk => disk.remove(path))
    }

    /// The size in bytes.
    pub fn size(&self) -> u64 {
        either!(&self.0, disk => disk.size())
    }

    /// The size in bytes that the file or block device has now.
    ///
    /// It may differ from [`Disk::size`], which stays as it was when the disk was opened.
    pub fn present_size(&self) -> io::Result<u64> {
        match &self.0 {
            Of::Uring(disk) => disk.present_size(),
            Of::Sim(disk) => Ok(disk.present_size()),
        }
    }

    /// Lets operations on all cores that use the disk reach up to `size` bytes from now on.
    pub fn set_size(&self, size: u64) {
        either!(&self.0, disk => disk.set_size(size))
    }

    /// Whether its file system has `bytes` left for it, as far as the system says; always true for a block
    /// device.
    pub fn has_free(&self, bytes: u64) -> bool {
        match &self.0 {
            Of::Uring(disk) => disk.has_free(bytes),
            Of::Sim(_) => true,
        }
    }

    /// The unit of offsets and lengths in bytes: the logical block size under O_DIRECT.
    pub fn block(&self) -> u32 {
        either!(&self.0, disk => disk.block())
    }

    /// The failure that put the disk out of service, on any core.
    pub fn failure(&self) -> Option<DiskFailure> {
        either!(&self.0, disk => disk.failure())
    }

    /// Reads `buf.len()` bytes at `offset`.
    ///
    /// # Errors
    /// [`DiskError::Range`], [`DiskError::Media`].
    pub async fn read(&self, offset: u64, buf: Buf) -> Result<Buf, DiskError> {
        either!(&self.0, disk => disk.read(offset, buf).await)
    }

    /// Writes `data` at `offset` as one write of the disk, regardless of the number of parts.
    ///
    /// Data is copied first if a part is not aligned in memory, or does not consist of whole blocks.
    ///
    /// # Errors
    /// All of [`DiskError`]. [`DiskError::Media`] latches the disk, [`DiskError::Full`] does not.
    pub async fn write(
        &self,
        offset: u64,
        data: impl Into<Chain>,
        durability: Durability,
    ) -> Result<(), DiskError> {
        let data = data.into();
        either!(&self.0, disk => disk.write(offset, data, durability).await)
    }

    /// Writes unreadable blocks again with their old content: the disk may store them elsewhere.
    ///
    /// The write is durable with the next flush. A failure latches nothing, because other blocks are
    /// unchanged, and nobody was told anything about these blocks that they do not hold.
    pub async fn rewrite(&self, offset: u64, data: SharedBuf) -> Result<(), DiskError> {
        either!(&self.0, disk => disk.rewrite(offset, data).await)
    }

    /// Makes all writes that have completed durable.
    ///
    /// # Errors
    /// [`DiskError::Media`] (which latches the disk: a flush is never retried), [`DiskError::Latched`].
    pub async fn flush(&self) -> Result<(), DiskError> {
        either!(&self.0, disk => disk.flush().await)
    }

    /// Whether zeroing keeps the space.
    ///
    /// It does for a file that was created with [`OpenOptions::reserve`], and for one that had all of its
    /// space when it was opened. The latter is a guess, because a file that was written everywhere looks the
    /// same; a caller that knows better uses [`Disk::set_reserved`].
    pub fn is_reserved(&self) -> bool {
        either!(&self.0, disk => disk.is_reserved())
    }

    /// Sets whether zeroing keeps the space from now on, on all cores. A block device always gives back what
    /// it can.
    pub fn set_reserved(&self, reserved: bool) {
        either!(&self.0, disk => disk.set_reserved(reserved))
    }

    /// Makes the range read as zeros.
    ///
    /// It gives the space back if the disk can (hole punch, discard) and is not
    /// [reserved](Disk::is_reserved).
    ///
    /// # Errors
    /// As for [`Disk::write`].
    pub async fn zero(&self, offset: u64, len: u64) -> Result<(), DiskError> {
        either!(&self.0, disk => disk.zero(offset, len).await)
    }

    /// The allocated parts of the range, as (offset, length) in order, at most `max` of them.
    ///
    /// It returns the whole range if the disk cannot tell, or [may be wrong](Disk::knows_holes). Whatever is
    /// not listed before the last part reads as zeros; if there are fewer than `max`, so does the rest.
    ///
    /// # Errors
    /// [`DiskError::Range`], [`DiskError::Media`].
    pub async fn allocated(&self, offset: u64, len: u64, max: usize) -> Result<Vec<(u64, u64)>, DiskError> {
        either!(&self.0, disk => disk.allocated(offset, len, max).await)
    }

    /// Whether [`Disk::allocated`] finds holes: only in a file whose file system reports them reliably.
    pub fn knows_holes(&self) -> bool {
        either!(&self.0, disk => disk.knows_holes())
    }

    /// Reserves space for the range now, so that a write to it does not fail with [`DiskError::Full`]. The
    /// content stays.
    ///
    /// A block device needs nothing. A file system that cannot guarantee this (one that copies on write) is
    /// accepted as it is.
    ///
    /// # Errors
    /// [`DiskError::Full`], [`DiskError::Range`], [`DiskError::ReadOnly`], [`DiskError::Latched`];
    /// [`DiskError::Media`], which does not latch the disk.
    pub async fn allocate(&self, offset: u64, len: u64) -> Result<(), DiskError> {
        either!(&self.0, disk => disk.allocate(offset, len).await)
    }

    /// The space of the disk's file system. `None` for a block device, for a file that [keeps its
    /// space](Disk::is_reserved), and if the system does not say.
    pub fn room(&self) -> Option<Room> {
        either!(&self.0, disk => disk.room())
    }
}
