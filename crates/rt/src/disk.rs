//! Files opened with O_DIRECT, and block devices.

use std::io;
use std::path::{Path, PathBuf};

use base::{Buf, Chain, Instant, SharedBuf};

use crate::{sim, uring};

/// When a write counts as done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// When the disk has taken it; a later flush makes it durable.
    Cached,
    /// When it survives a power cut (FUA).
    Durable,
}

/// How to open a disk.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenOptions {
    /// Make a file of this many bytes; it must not exist. `None`: it must exist.
    pub create: Option<u64>,
    /// With `create`: reserve the space in the file system now (an error if it does not have it), not on
    /// first use.
    pub reserve: bool,
    /// Refuse writes.
    pub read_only: bool,
}

/// A disk could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process, or another part of this one, has it open.
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
    /// Everything else the system said.
    #[error("cannot open {path}")]
    System {
        /// What was to be opened.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

/// An operation on a disk failed.
#[derive(Debug, thiserror::Error)]
pub enum DiskError {
    /// The range is not inside the disk, or not aligned to its blocks.
    #[error("{len} bytes at {offset} are outside the disk or not aligned to its blocks")]
    Range {
        /// Where, in bytes.
        offset: u64,
        /// How many bytes.
        len: u64,
    },
    /// The file system under the file is full.
    #[error("the file system under the disk is full")]
    Full,
    /// The disk could not read or write this range (EIO and relatives).
    #[error("the disk failed")]
    Media(#[source] io::Error),
    /// An earlier write or flush failed, so that nobody knows what is durable: the disk must be reopened and
    /// recovered.
    #[error("the disk is out of service: an earlier write or flush failed; reopen it")]
    Latched,
    /// It was opened read-only.
    #[error("the disk was opened read-only")]
    ReadOnly,
}

impl DiskError {
    /// Whether the medium is at fault: these blocks, and maybe no others. Else the device is, which is gone
    /// or does not answer.
    pub fn is_medium(&self) -> bool {
        const DEVICE: [i32; 5] = [libc::ENODEV, libc::ENXIO, libc::ENOMEDIUM, libc::ENOLINK, libc::ETIMEDOUT];
        matches!(self, DiskError::Media(error) if !error.raw_os_error().is_some_and(|code| DEVICE.contains(&code)))
    }
}

/// What a file system has for a file that takes its space as it is written; see [`Disk::room`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Which file system: the same number for all files in it.
    pub file_system: u64,
    /// Bytes that it has left.
    pub free: u64,
    /// Its size in bytes.
    pub total: u64,
    /// Bytes of the file that have no space yet.
    pub promised: u64,
}

/// What took a disk out of service; see [`DiskError::Latched`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskFailure {
    /// When that was.
    pub at: Instant,
    /// The system's number of the error.
    pub error: i32,
}

/// An open disk. It is used by the core that opened it; [`Disk::share`] opens it for another core.
pub struct Disk(Inner);

enum Inner {
    Uring(uring::Disk),
    Sim(sim::Disk),
}

impl Disk {
    /// Opens `path`, and locks it against every other opener but [`Disk::share`].
    ///
    /// # Errors
    /// See [`OpenError`].
    pub async fn open(path: &Path, options: OpenOptions) -> Result<Disk, OpenError> {
        if sim::is_current() {
            sim::Disk::open(path, options).await.map(Inner::Sim).map(Disk)
        } else {
            uring::Disk::open(path, options).await.map(Inner::Uring).map(Disk)
        }
    }

    /// Whether a file of `size` bytes could be made at `path` ([`OpenOptions::create`]), as far as that is
    /// seen without making it.
    ///
    /// # Errors
    /// As [`Disk::open`].
    pub fn check_new(path: &Path, size: u64, reserve: bool) -> Result<(), OpenError> {
        if sim::is_current() {
            sim::Disk::check_new(path, size, reserve)
        } else {
            uring::Disk::check_new(path, size, reserve)
        }
    }

    /// The same open disk for use on other cores: send the function there and call it. A failure latches all
    /// of them.
    pub fn share(&self) -> Box<dyn Fn() -> Disk + Send + Sync> {
        match &self.0 {
            Inner::Uring(disk) => {
                let shared = disk.share();
                Box::new(move || Disk(Inner::Uring(shared.open())))
            }
            Inner::Sim(disk) => {
                let shared = disk.share();
                Box::new(move || Disk(Inner::Sim(shared.open())))
            }
        }
    }

    /// Takes a file away again that was made for this disk: the name is gone at once, and the space when
    /// nobody has it open any more. What is at `path` stays if it is something else by now.
    ///
    /// # Errors
    /// What the system says.
    pub fn remove(self, path: &Path) -> io::Result<()> {
        match self.0 {
            Inner::Uring(disk) => disk.remove(path),
            Inner::Sim(disk) => disk.remove(path),
        }
    }

    /// The size in bytes.
    pub fn size(&self) -> u64 {
        match &self.0 {
            Inner::Uring(disk) => disk.size(),
            Inner::Sim(disk) => disk.size(),
        }
    }

    /// Looks whether the file or block device has become larger, on all cores that use it, and says its size
    /// in bytes. One that has become smaller is taken for as large as it was: its reads and writes fail there.
    ///
    /// # Errors
    /// What the system says.
    pub fn look_for_growth(&self) -> io::Result<u64> {
        match &self.0 {
            Inner::Uring(disk) => disk.look_for_growth(),
            Inner::Sim(disk) => Ok(disk.look_for_growth()),
        }
    }

    /// What offsets and lengths must be multiples of, in bytes: the logical block size under O_DIRECT.
    pub fn block(&self) -> u32 {
        match &self.0 {
            Inner::Uring(disk) => disk.block(),
            Inner::Sim(disk) => disk.block(),
        }
    }

    /// What took it out of service, on whichever core that was.
    pub fn failure(&self) -> Option<DiskFailure> {
        match &self.0 {
            Inner::Uring(disk) => disk.failure(),
            Inner::Sim(disk) => disk.failure(),
        }
    }

    /// Reads `buf.len()` bytes at `offset`.
    ///
    /// # Errors
    /// [`DiskError::Range`], [`DiskError::Media`].
    pub async fn read(&self, offset: u64, buf: Buf) -> Result<Buf, DiskError> {
        match &self.0 {
            Inner::Uring(disk) => disk.read(offset, buf).await,
            Inner::Sim(disk) => disk.read(offset, buf).await,
        }
    }

    /// Writes `data` at `offset`, as one write of the disk, whatever number of parts it is in. Data is copied
    /// first if a part is not aligned in memory, or is not whole blocks.
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
        match &self.0 {
            Inner::Uring(disk) => disk.write(offset, data, durability).await,
            Inner::Sim(disk) => disk.write(offset, data, durability).await,
        }
    }

    /// Writes blocks that cannot be read once more, with what they held: a disk may put them elsewhere.
    /// Durable with the next flush. If that fails nothing is latched, since nobody has been told anything of
    /// these blocks that they do not hold, and other blocks are as they were.
    ///
    /// # Errors
    /// All of [`DiskError`].
    pub async fn rewrite(&self, offset: u64, data: SharedBuf) -> Result<(), DiskError> {
        match &self.0 {
            Inner::Uring(disk) => disk.rewrite(offset, data).await,
            Inner::Sim(disk) => disk.rewrite(offset, data).await,
        }
    }

    /// Makes all writes that have completed durable.
    ///
    /// # Errors
    /// [`DiskError::Media`] (which latches the disk: a flush is never retried), [`DiskError::Latched`].
    pub async fn flush(&self) -> Result<(), DiskError> {
        match &self.0 {
            Inner::Uring(disk) => disk.flush().await,
            Inner::Sim(disk) => disk.flush().await,
        }
    }

    /// Whether zeroing keeps the space: of a file that was made with [`OpenOptions::reserve`]; also of one
    /// that existed and had all of its space when it was opened. That is a guess, since one that was written
    /// everywhere looks the same: who knows better says so by [`Disk::set_reserved`].
    pub fn is_reserved(&self) -> bool {
        match &self.0 {
            Inner::Uring(disk) => disk.is_reserved(),
            Inner::Sim(disk) => disk.is_reserved(),
        }
    }

    /// From now on zeroing keeps the space, or gives it back, on all cores. A block device gives back what it
    /// can anyhow.
    pub fn set_reserved(&self, reserved: bool) {
        match &self.0 {
            Inner::Uring(disk) => disk.set_reserved(reserved),
            Inner::Sim(disk) => disk.set_reserved(reserved),
        }
    }

    /// Makes the range read as zeros and gives its space back where the disk can (hole punch, discard) and it
    /// is not [reserved](Disk::is_reserved).
    ///
    /// # Errors
    /// As for [`Disk::write`].
    pub async fn zero(&self, offset: u64, len: u64) -> Result<(), DiskError> {
        match &self.0 {
            Inner::Uring(disk) => disk.zero(offset, len).await,
            Inner::Sim(disk) => disk.zero(offset, len).await,
        }
    }

    /// The allocated parts of the range, as (offset, length) in order, `max` of them at most; all of it where
    /// the disk cannot tell, or [may be wrong](Disk::knows_holes). What is not listed before the last one
    /// reads as zeros; so does what comes after it, if there are fewer than `max`.
    ///
    /// # Errors
    /// [`DiskError::Range`], [`DiskError::Media`].
    pub async fn allocated(&self, offset: u64, len: u64, max: usize) -> Result<Vec<(u64, u64)>, DiskError> {
        match &self.0 {
            Inner::Uring(disk) => disk.allocated(offset, len, max).await,
            Inner::Sim(disk) => disk.allocated(offset, len, max).await,
        }
    }

    /// Whether [`Disk::allocated`] tells parts from the whole: of a file in a file system whose word on holes
    /// is good.
    pub fn knows_holes(&self) -> bool {
        match &self.0 {
            Inner::Uring(disk) => disk.knows_holes(),
            Inner::Sim(disk) => disk.knows_holes(),
        }
    }

    /// Sets space aside for the range now, so that a write to it does not meet [`DiskError::Full`]. What it
    /// holds stays. Nothing has to be done on a block device; and a file system that makes no such promise
    /// (one that copies on write) is taken as it is.
    ///
    /// # Errors
    /// [`DiskError::Full`], [`DiskError::Range`], [`DiskError::ReadOnly`], [`DiskError::Latched`];
    /// [`DiskError::Media`], which does not latch the disk.
    pub async fn allocate(&self, offset: u64, len: u64) -> Result<(), DiskError> {
        match &self.0 {
            Inner::Uring(disk) => disk.allocate(offset, len).await,
            Inner::Sim(disk) => disk.allocate(offset, len).await,
        }
    }

    /// What its file system has left for it. `None` of a block device, of a file that [keeps its
    /// space](Disk::is_reserved), and where the system does not say.
    pub fn room(&self) -> Option<Room> {
        match &self.0 {
            Inner::Uring(disk) => disk.room(),
            Inner::Sim(disk) => disk.room(),
        }
    }
}
