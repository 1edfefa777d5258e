//! Files opened with O_DIRECT, and block devices, on the ring.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use base::{Buf, Chain, SharedBuf};
use io_uring::{opcode, squeue, types};

use super::driver::{self, Driver, Kept};
use super::open;
use crate::{DiskError, DiskFailure, Durability, OpenError, OpenOptions, Room};

/// Bytes of one request. The kernel accepts a little less than 2 GiB; a power of two keeps the rest aligned.
const REQUEST_MAX: usize = 1 << 30;

/// Parts of one request: `UIO_MAXIOV`.
const PARTS_MAX: usize = 1024;

/// Bytes of zeros per write if the disk cannot zero on its own.
const ZEROS_MAX: usize = 1 << 20;

/// Extents that are looked up before other tasks of the core get a turn. Each lookup is a system call of
/// about a microsecond, more if the file system must read its map.
const LOOKUPS_MAX: usize = 64;

/// An open file, shared by the cores that use it.
pub(super) struct OpenFile {
    pub(super) file: File,
    /// In bytes, a multiple of `block`. It grows when a check finds growth, and never shrinks.
    pub(super) size: AtomicU64,
    /// The unit of offsets and lengths.
    pub(super) block: u32,
    /// The alignment of addresses in memory.
    pub(super) memory_alignment: usize,
    pub(super) is_device: bool,
    /// Its file system reliably reports which parts have no data.
    pub(super) knows_holes: bool,
    pub(super) read_only: bool,
    /// A write or a flush has failed: it is unknown what is durable.
    pub(super) latched: OnceLock<DiskFailure>,
    /// Zeroing keeps the space.
    pub(super) reserved: AtomicBool,
    /// The best [`Method`] of zeroing that has not been refused yet.
    pub(super) zeroing: AtomicU8,
}

impl OpenFile {
    /// See [`crate::Disk::set_reserved`].
    pub(super) fn set_reserved(&self, reserved: bool) {
        if self.is_device {
            return;
        }
        self.reserved.store(reserved, Ordering::Relaxed);
        self.zeroing.store(Method::first(reserved) as u8, Ordering::Relaxed);
    }
}

/// The methods to make a range read as zeros, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Method {
    /// Gives the space back. On a block device the kernel discards if that yields zeros, otherwise it fails.
    PunchHole,
    /// The disk writes zeros on its own, and a file keeps the space: used for reserved files.
    ZeroRange,
    /// We write zeros.
    Write,
}

impl Method {
    /// The method to try first.
    pub(super) fn first(reserved: bool) -> Method {
        if reserved { Method::ZeroRange } else { Method::PunchHole }
    }

    fn load(from: &AtomicU8) -> Method {
        match from.load(Ordering::Relaxed) {
            0 => Method::PunchHole,
            1 => Method::ZeroRange,
            _ => Method::Write,
        }
    }

    fn next(self) -> Method {
        match self {
            Method::PunchHole => Method::ZeroRange,
            Method::ZeroRange | Method::Write => Method::Write,
        }
    }
}

/// An open disk; see [`crate::Disk`].
pub struct Disk {
    driver: Rc<Driver>,
    file: Arc<OpenFile>,
}

/// An open disk on its way to another core.
pub struct SharedDisk(Arc<OpenFile>);

impl SharedDisk {
    /// The disk for the current core.
    pub fn open(&self) -> Disk {
        Disk { driver: driver::current(), file: Arc::clone(&self.0) }
    }
}

impl Disk {
    /// See [`crate::Disk::open`].
    pub async fn open(path: &Path, options: OpenOptions) -> Result<Disk, OpenError> {
        let file = open::open(path, options).await?;
        Ok(Disk { driver: driver::current(), file })
    }

    /// See [`crate::Disk::check_new`].
    pub fn check_new(path: &Path, size: u64, reserve: bool) -> Result<(), OpenError> {
        open::check_new(path, size, reserve)
    }

    /// See [`crate::Disk::share`].
    pub fn share(&self) -> SharedDisk {
        SharedDisk(Arc::clone(&self.file))
    }

    /// See [`crate::Disk::remove`].
    pub fn remove(self, path: &Path) -> io::Result<()> {
        let (ours, there) = (self.file.file.metadata()?, std::fs::symlink_metadata(path)?);
        if (ours.dev(), ours.ino()) == (there.dev(), there.ino()) {
            std::fs::remove_file(path)
        } else {
            Ok(())
        }
    }

    /// The size in bytes.
    pub fn size(&self) -> u64 {
        self.file.size.load(Ordering::Relaxed)
    }

    /// See [`crate::Disk::present_size`].
    pub fn present_size(&self) -> io::Result<u64> {
        Ok(open::whole_blocks(open::size_of(&self.file.file, self.file.is_device)?, self.file.block))
    }

    /// See [`crate::Disk::set_size`].
    pub fn set_size(&self, size: u64) {
        self.file.size.store(size, Ordering::Relaxed);
    }

    /// See [`crate::Disk::has_free`].
    pub fn has_free(&self, bytes: u64) -> bool {
        self.file.is_device || open::file_system(&self.file.file).is_ok_and(|space| space.free >= bytes)
    }

    /// The unit of offsets and lengths.
    pub fn block(&self) -> u32 {
        self.file.block
    }

    /// See [`crate::Disk::failure`].
    pub fn failure(&self) -> Option<DiskFailure> {
        self.file.latched.get().copied()
    }

    /// See [`crate::Disk::is_reserved`].
    pub fn is_reserved(&self) -> bool {
        self.file.reserved.load(Ordering::Relaxed)
    }

    /// See [`crate::Disk::set_reserved`].
    pub fn set_reserved(&self, reserved: bool) {
        self.file.set_reserved(reserved);
    }

    /// See [`crate::Disk::read`].
    pub async fn read(&self, offset: u64, mut buf: Buf) -> Result<Buf, DiskError> {
        self.check_range(offset, buf.len() as u64)?;
        let mut done = 0;
        while done < buf.len() {
            let rest = &mut buf[done..];
            let len = rest.len().min(REQUEST_MAX) as u32;
            let entry = opcode::Read::new(self.file.fd(), rest.as_mut_ptr(), len)
                .offset(offset + done as u64)
                .build();
            let kept = Kept::Read { file: Arc::clone(&self.file), buf };
            // SAFETY: the request writes into the buffer and uses the file, both of which are kept.
            let (result, Kept::Read { buf: back, .. }) = unsafe { self.driver.start(entry, kept) }.await
            else {
                unreachable!("an operation gives back what it was given");
            };
            buf = back;
            match result {
                count if count >= 0 => match self.whole_blocks(count) {
                    // Something else has truncated the file, possibly inside a block.
                    0 => return Err(self.latch(CUT_SHORT)),
                    whole => done += whole,
                },
                _ if is_transient(-result) => {}
                _ => return Err(DiskError::Media(io::Error::from_raw_os_error(-result))),
            }
        }
        Ok(buf)
    }

    /// See [`crate::Disk::write`].
    pub async fn write(&self, offset: u64, data: Chain, durability: Durability) -> Result<(), DiskError> {
        self.write_or(offset, data, durability, |number| self.failed(number)).await
    }

    /// See [`crate::Disk::rewrite`].
    pub async fn rewrite(&self, offset: u64, data: SharedBuf) -> Result<(), DiskError> {
        let failed = |number| {
            if is_full(number) {
                DiskError::Full
            } else {
                DiskError::Media(io::Error::from_raw_os_error(number))
            }
        };
        self.write_or(offset, data.into(), Durability::Cached, failed).await
    }

    /// Writes; `failed` converts the system's error number into an error.
    async fn write_or(
        &self,
        offset: u64,
        data: Chain,
        durability: Durability,
        failed: impl Fn(i32) -> DiskError,
    ) -> Result<(), DiskError> {
        self.check_range(offset, data.len() as u64)?;
        self.check_writable()?;
        self.check_whole()?;
        let mut flags = match durability {
            Durability::Cached => 0,
            Durability::Durable => libc::RWF_DSYNC,
        };
        let (mut at, mut rest) = (offset, self.aligned(data));
        let mut was_synced = true;
        while !rest.is_empty() {
            let result;
            (result, rest) = self.write_some(at, rest, flags).await;
            match result {
                count if count >= 0 => match self.whole_blocks(count) {
                    // Less than a block, for example at a limit of the file's size: another attempt would
                    // write no more.
                    0 => return Err(failed(libc::EIO)),
                    whole => (at, rest) = (at + whole as u64, rest.slice(whole..rest.len())),
                },
                _ if is_transient(-result) => {}
                // Either this data has no room, or data that was written before has none and is lost (a file
                // system may keep it in memory, whatever we request), which the system reports only once.
                // Without the sync, the result tells which.
                _ if is_full(-result) && flags != 0 => (flags, was_synced) = (0, false),
                _ => return Err(failed(-result)),
            }
        }
        if was_synced { Ok(()) } else { Err(self.latch(libc::ENOSPC)) }
    }

    /// Writes as much as one request takes; returns the kernel's result, and the data.
    async fn write_some(&self, offset: u64, data: Chain, flags: i32) -> (i32, Chain) {
        let mut pieces = Vec::new();
        let entry = match data.parts() {
            [only] => {
                let count = only.len().min(REQUEST_MAX) as u32;
                opcode::Write::new(self.file.fd(), only.as_ptr(), count)
                    .offset(offset)
                    .rw_flags(flags)
                    .build()
            }
            // If there is more than one request takes, the kernel writes whole pages.
            several => {
                pieces.extend(several.iter().map(|part| libc::iovec {
                    iov_base: part.as_ptr().cast_mut().cast(),
                    iov_len: part.len(),
                }));
                let count = pieces.len() as u32;
                opcode::Writev::new(self.file.fd(), pieces.as_ptr(), count)
                    .offset(offset)
                    .rw_flags(flags)
                    .build()
            }
        };
        let kept = Kept::Write { file: Arc::clone(&self.file), data, pieces };
        // SAFETY: the request reads the data and the list of its pieces, and uses the file, all of which are
        // kept; the list does not move when its vector does.
        let (result, Kept::Write { data, .. }) = unsafe { self.driver.start(entry, kept) }.await else {
            unreachable!("an operation gives back what it was given");
        };
        (result, data)
    }

    /// The data in parts that can be written without copying.
    fn aligned(&self, data: Chain) -> Chain {
        let is_aligned = |part: &SharedBuf| {
            (part.as_ptr() as usize).is_multiple_of(self.file.memory_alignment)
                && part.len().is_multiple_of(self.file.block as usize)
        };
        if data.parts().len() <= PARTS_MAX && data.parts().iter().all(is_aligned) {
            return data;
        }
        let mut copy = Buf::uncleared(data.len());
        data.copy_to(&mut copy);
        copy.into()
    }

    /// See [`crate::Disk::flush`].
    pub async fn flush(&self) -> Result<(), DiskError> {
        if self.failure().is_some() {
            return Err(DiskError::Latched);
        }
        let entry = opcode::Fsync::new(self.file.fd()).flags(types::FsyncFlags::DATASYNC).build();
        match self.run(entry).await {
            // Full or not: what a flush could not write is lost, so every failure of it latches the disk.
            error if error < 0 => Err(self.latch(-error)),
            // Another core's write may have failed meanwhile, with data that this flush was to cover.
            _ if self.failure().is_some() => Err(DiskError::Latched),
            _ => Ok(()),
        }
    }

    /// See [`crate::Disk::zero`].
    pub async fn zero(&self, offset: u64, len: u64) -> Result<(), DiskError> {
        self.check_range(offset, len)?;
        self.check_writable()?;
        self.check_whole()?;
        if len == 0 {
            return Ok(());
        }
        loop {
            let method = Method::load(&self.file.zeroing);
            let mode = match method {
                Method::PunchHole => libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE,
                Method::ZeroRange => libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE,
                Method::Write => return self.write_zeros(offset, len).await,
            };
            let entry = opcode::Fallocate::new(self.file.fd(), len).offset(offset).mode(mode).build();
            match self.run(entry).await {
                result if result >= 0 => return Ok(()),
                result if is_transient(-result) => {}
                result if matches!(-result, libc::EOPNOTSUPP | libc::ENOSYS | libc::ENODEV) => {
                    self.file.zeroing.store(method.next() as u8, Ordering::Relaxed);
                }
                result => return Err(self.failed(-result)),
            }
        }
    }

    async fn write_zeros(&self, offset: u64, len: u64) -> Result<(), DiskError> {
        let zeros = Buf::zeroed(len.min(ZEROS_MAX as u64) as usize).share();
        let end = offset + len;
        for at in (offset..end).step_by(ZEROS_MAX) {
            let count = (end - at).min(ZEROS_MAX as u64) as usize;
            self.write(at, zeros.slice(0..count).into(), Durability::Cached).await?;
        }
        Ok(())
    }

    /// See [`crate::Disk::allocated`].
    pub async fn allocated(&self, offset: u64, len: u64, max: usize) -> Result<Vec<(u64, u64)>, DiskError> {
        self.check_range(offset, len)?;
        let end = offset + len;
        // A truncated part is not a hole.
        self.check_whole()?;
        if !self.file.knows_holes {
            return Ok(if len == 0 || max == 0 { Vec::new() } else { vec![(offset, len)] });
        }
        let mut extents = Vec::new();
        let mut at = offset;
        while at < end && extents.len() < max {
            let Some(data) = self.seek(at, libc::SEEK_DATA)?.filter(|data| *data < end) else { break };
            // Every file has a hole at its end.
            let hole = self.seek(data, libc::SEEK_HOLE)?.unwrap_or(end).min(end);
            extents.push((data, hole - data));
            at = hole;
            if extents.len().is_multiple_of(LOOKUPS_MAX) {
                crate::next_turn().await;
            }
        }
        Ok(extents)
    }

    /// See [`crate::Disk::knows_holes`].
    pub fn knows_holes(&self) -> bool {
        self.file.knows_holes
    }

    /// See [`crate::Disk::allocate`].
    pub async fn allocate(&self, offset: u64, len: u64) -> Result<(), DiskError> {
        self.check_range(offset, len)?;
        self.check_writable()?;
        if self.file.is_device || len == 0 {
            return Ok(());
        }
        loop {
            let mode = libc::FALLOC_FL_KEEP_SIZE;
            let entry = opcode::Fallocate::new(self.file.fd(), len).offset(offset).mode(mode).build();
            match self.run(entry).await {
                result if result >= 0 => return Ok(()),
                result if is_transient(-result) => {}
                result if is_full(-result) => return Err(DiskError::Full),
                result if matches!(-result, libc::EOPNOTSUPP | libc::ENOSYS | libc::ENODEV) => return Ok(()),
                result => return Err(DiskError::Media(io::Error::from_raw_os_error(-result))),
            }
        }
    }

    /// See [`crate::Disk::room`].
    pub fn room(&self) -> Option<Room> {
        if self.file.is_device || self.is_reserved() {
            return None;
        }
        let space = open::file_system(&self.file.file).ok()?;
        let metadata = self.file.file.metadata().ok()?;
        let promised = self.size().saturating_sub(metadata.blocks() * open::STAT_BLOCK_BYTES);
        Some(Room { file_system: metadata.dev(), free: space.free, total: space.total, promised })
    }

    /// The start of the next data or hole at or after `from`, or the end of the file; `None` if there is
    /// none.
    ///
    /// It also changes the file's position, which nothing uses.
    fn seek(&self, from: u64, what: libc::c_int) -> Result<Option<u64>, DiskError> {
        let from = i64::try_from(from).expect("a file is smaller than 2^63 bytes");
        // SAFETY: no memory is passed.
        let found = unsafe { libc::lseek64(self.file.file.as_raw_fd(), from, what) };
        match u64::try_from(found) {
            Ok(found) => Ok(Some(found)),
            Err(_) => match io::Error::last_os_error() {
                error if error.raw_os_error() == Some(libc::ENXIO) => Ok(None),
                error => Err(DiskError::Media(error)),
            },
        }
    }

    fn check_range(&self, offset: u64, len: u64) -> Result<(), DiskError> {
        let block = u64::from(self.file.block);
        let inside = offset.checked_add(len).is_some_and(|end| end <= self.size());
        if inside && offset.is_multiple_of(block) && len.is_multiple_of(block) {
            Ok(())
        } else {
            Err(DiskError::Range { offset, len })
        }
    }

    /// Fails if something else has truncated the file. A write must not extend it again: the missing part
    /// before the write would read as zeros.
    fn check_whole(&self) -> Result<(), DiskError> {
        if self.file.is_device {
            return Ok(());
        }
        match self.seek(0, libc::SEEK_END)? {
            Some(end) if end >= self.size() => Ok(()),
            _ => Err(self.latch(CUT_SHORT)),
        }
    }

    fn check_writable(&self) -> Result<(), DiskError> {
        if self.file.read_only {
            Err(DiskError::ReadOnly)
        } else if self.failure().is_some() {
            Err(DiskError::Latched)
        } else {
            Ok(())
        }
    }

    /// The error of a failed write: latches the disk, unless it was only full.
    fn failed(&self, number: i32) -> DiskError {
        if is_full(number) {
            return DiskError::Full;
        }
        self.latch(number)
    }

    fn latch(&self, number: i32) -> DiskError {
        // The first failure is the one to report.
        let _ = self.file.latched.set(DiskFailure { at: crate::now(), error: number });
        DiskError::Media(io::Error::from_raw_os_error(number))
    }

    /// How much of a short transfer counts: a partial block is transferred again.
    fn whole_blocks(&self, count: i32) -> usize {
        let count = count as usize;
        count - count % self.file.block as usize
    }

    /// Runs a request that uses no memory.
    async fn run(&self, entry: squeue::Entry) -> i32 {
        // SAFETY: the callers' requests touch no memory and use this file, which is kept.
        unsafe { self.driver.start(entry, Kept::File(Arc::clone(&self.file))) }.await.0
    }
}

/// The failure of a file that has become shorter than it was when it was opened.
const CUT_SHORT: i32 = libc::ENODATA;

/// Errors of a full file system, which are temporary.
fn is_full(number: i32) -> bool {
    matches!(number, libc::ENOSPC | libc::EDQUOT)
}

/// Errors after which the same request is simply repeated.
fn is_transient(number: i32) -> bool {
    matches!(number, libc::EINTR | libc::EAGAIN)
}
