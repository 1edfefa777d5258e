//! Opens and creates disks: O_DIRECT, an exclusive lock, size and block size.
//!
//! The system calls here block the core for a moment; only operations that may take long (reserving space,
//! making the new file durable) use the ring.

use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use base::Buf;
use io_uring::types::Fd;
use io_uring::{opcode, squeue};

use super::disk::{Method, OpenFile};
use super::driver::{self, Kept};
use crate::{OpenError, OpenOptions};

/// Block sizes to try, smallest first, if the kernel does not report one.
const BLOCKS: [u32; 2] = [512, 4096];

/// How long to retry a block device that is open exclusively elsewhere. Unlike a lock, such a claim cannot be
/// released explicitly: it ends when the kernel drops its last reference to the file, and a worker thread of
/// the kernel may do so a moment after it has reported the end of its request (a flush). That is a few
/// microseconds, or as long as a busy machine does not schedule that thread.
const CLAIM_WAIT: Duration = Duration::from_millis(500);
const CLAIM_RETRY: Duration = Duration::from_millis(5);

/// The unit of stat(2).
pub(super) const STAT_BLOCK_BYTES: u64 = 512;

/// Opens or creates a disk as [`crate::Disk::open`] requests.
pub(super) async fn open(path: &Path, options: OpenOptions) -> Result<Arc<OpenFile>, OpenError> {
    let Some(size) = options.create else {
        return open_existing(path, options.read_only).await;
    };
    let mut how = File::options();
    how.read(true).write(true).create_new(true).mode(0o600).custom_flags(libc::O_DIRECT);
    let file = how.open(path).inspect_err(|error| {
        // A file system without O_DIRECT creates the file first and then refuses; a file that existed fails
        // with another error.
        if error.raw_os_error() == Some(libc::EINVAL) {
            drop(Created(path));
        }
    });
    let file = file.map_err(|error| refused(path, error))?;
    let created = Created(path);
    let file = lock(path, file)?;
    file.set_len(size).map_err(|error| system(path, error))?;
    let file = Arc::new(describe(path, file, false)?);
    if options.reserve && size > 0 {
        // If too much is requested, some file systems first use up all their space, which other files need.
        let free = free_space(&file.file).map_err(|error| system(path, error))?;
        if free < size {
            return Err(system(path, io::Error::from_raw_os_error(libc::ENOSPC)));
        }
        let entry = opcode::Fallocate::new(file.fd(), size).build();
        run(&file, entry).await.map_err(|error| system(path, error))?;
        file.set_reserved(true);
    }
    run(&file, opcode::Fsync::new(file.fd()).build()).await.map_err(|error| system(path, error))?;
    // The name is durable only when its directory is.
    File::open(parent(path))
        .and_then(|directory| directory.sync_all())
        .map_err(|error| system(path, error))?;
    std::mem::forget(created);
    Ok(file)
}

/// Checks whether [`open`] could create a file there.
pub(super) fn check_new(path: &Path, size: u64, reserve: bool) -> Result<(), OpenError> {
    let failed = |code| Err(system(path, io::Error::from_raw_os_error(code)));
    // A dangling link is in the way, too.
    if path.symlink_metadata().is_ok() {
        return failed(libc::EEXIST);
    }
    let directory = File::open(parent(path)).map_err(|error| system(path, error))?;
    if !directory.metadata().map_err(|error| system(path, error))?.is_dir() {
        return failed(libc::ENOTDIR);
    }
    let free = free_space(&directory).map_err(|error| system(path, error))?;
    if reserve && free < size { failed(libc::ENOSPC) } else { Ok(()) }
}

/// The directory of a file.
fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

async fn open_existing(path: &Path, read_only: bool) -> Result<Arc<OpenFile>, OpenError> {
    let kind = std::fs::metadata(path).map_err(|error| system(path, error))?.file_type();
    if !kind.is_file() && !kind.is_block_device() {
        return Err(OpenError::NotADisk(path.to_owned()));
    }
    // On a block device O_EXCL, without O_CREAT, excludes mounts and all others that use it.
    let exclusive = if kind.is_block_device() { libc::O_EXCL } else { 0 };
    let mut how = File::options();
    how.read(true).write(!read_only).custom_flags(libc::O_DIRECT | exclusive);
    let until = crate::now() + CLAIM_WAIT;
    let file = loop {
        match how.open(path) {
            Err(error) if exclusive != 0 && is_busy(&error) && crate::now() < until => {
                crate::sleep(CLAIM_RETRY).await;
            }
            opened => break opened.map_err(|error| refused(path, error))?,
        }
    };
    let file = lock(path, file)?;
    describe(path, file, read_only).map(Arc::new)
}

/// Removes a file that could not be completed.
struct Created<'a>(&'a Path);

impl Drop for Created<'_> {
    fn drop(&mut self) {
        // An error is already being reported. If the file stays, the next attempt fails and reports that.
        let _ = std::fs::remove_file(self.0);
    }
}

fn system(path: &Path, source: io::Error) -> OpenError {
    OpenError::System { path: path.to_owned(), source }
}

fn refused(path: &Path, error: io::Error) -> OpenError {
    let path = PathBuf::from(path);
    match error.raw_os_error() {
        Some(libc::EBUSY) => OpenError::InUse(path),
        Some(libc::EINVAL) => OpenError::NoDirect(path),
        Some(libc::EISDIR) => OpenError::NotADisk(path),
        _ => OpenError::System { path, source: error },
    }
}

fn is_busy(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EBUSY)
}

/// Locks the file against all others that lock it, even in this process: the lock belongs to this opening.
///
/// [`OpenFile`]'s drop releases it. For a killed process, the kernel keeps it until the last request has
/// ended, so that data on its way to the disk cannot overwrite what the next opener writes.
fn lock(path: &Path, file: File) -> Result<File, OpenError> {
    // SAFETY: no memory is passed.
    if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } == 0 {
        return Ok(file);
    }
    match io::Error::last_os_error() {
        error if error.raw_os_error() == Some(libc::EWOULDBLOCK) => Err(OpenError::InUse(path.to_owned())),
        error => Err(system(path, error)),
    }
}

/// Determines size, kind and alignment.
fn describe(path: &Path, file: File, read_only: bool) -> Result<OpenFile, OpenError> {
    let metadata = file.metadata().map_err(|error| system(path, error))?;
    let is_device = metadata.file_type().is_block_device();
    let size = size_of(&file, is_device).map_err(|error| system(path, error))?;
    let alignment = if is_device {
        device_alignment(&file).map_err(|error| system(path, error))?
    } else {
        match direct_alignment(&file) {
            Some(alignment) => alignment.ok_or_else(|| OpenError::NoDirect(path.to_owned()))?,
            None => probe(&file).ok_or_else(|| OpenError::NoDirect(path.to_owned()))?,
        }
    };
    // A file that has all of its space keeps it, unless its user knows better: it may have been reserved.
    let is_reserved =
        !is_device && metadata.len() > 0 && metadata.blocks() >= metadata.len() / STAT_BLOCK_BYTES;
    let knows_holes = !is_device && magic(&file).is_ok_and(knows_holes);
    Ok(OpenFile {
        file,
        size: AtomicU64::new(whole_blocks(size, alignment.offset)),
        block: alignment.offset,
        memory_alignment: alignment.memory,
        is_device,
        knows_holes,
        read_only,
        latched: OnceLock::new(),
        reserved: AtomicBool::new(is_reserved),
        zeroing: AtomicU8::new(Method::first(is_reserved) as u8),
    })
}

/// The alignment that O_DIRECT requires, in bytes.
struct Alignment {
    offset: u32,
    memory: usize,
}

/// The current size of a file or block device, in bytes.
pub(super) fn size_of(file: &File, is_device: bool) -> io::Result<u64> {
    if !is_device {
        return Ok(file.metadata()?.len());
    }
    let mut size: u64 = 0;
    // SAFETY: BLKGETSIZE64 writes a u64.
    if unsafe { libc::ioctl(file.as_raw_fd(), BLKGETSIZE64, &raw mut size) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(size)
}

/// The size in whole blocks: O_DIRECT cannot reach a last piece smaller than a block.
pub(super) fn whole_blocks(size: u64, block: u32) -> u64 {
    size - size % u64::from(block)
}

fn device_alignment(file: &File) -> io::Result<Alignment> {
    let mut sector: libc::c_int = 0;
    // SAFETY: BLKSSZGET writes an int.
    if unsafe { libc::ioctl(file.as_raw_fd(), libc::BLKSSZGET, &raw mut sector) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let sector = u32::try_from(sector).unwrap_or(4096).max(512);
    Ok(Alignment { offset: sector, memory: sector as usize })
}

/// `_IOR(0x12, 114, size_t)` of linux/fs.h, which the libc crate lacks.
const BLKGETSIZE64: libc::Ioctl = 0x8008_1272;

/// What the kernel (6.1 and newer) reports about O_DIRECT on a file. `None`: nothing; `Some(None)`: it is not
/// possible.
fn direct_alignment(file: &File) -> Option<Option<Alignment>> {
    let mut status = MaybeUninit::<libc::statx>::zeroed();
    // SAFETY: the path is empty and terminated, and `status` is valid for writing.
    let result = unsafe {
        libc::statx(
            file.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            libc::STATX_DIOALIGN,
            status.as_mut_ptr(),
        )
    };
    // SAFETY: zeros are a valid statx.
    let status = unsafe { status.assume_init() };
    if result != 0 || status.stx_mask & libc::STATX_DIOALIGN == 0 {
        return None;
    }
    let alignment = Alignment {
        offset: status.stx_dio_offset_align.max(512),
        memory: status.stx_dio_mem_align.max(1) as usize,
    };
    Some((status.stx_dio_offset_align != 0).then_some(alignment))
}

/// Finds the smallest block that can be read, if the kernel does not report it.
fn probe(file: &File) -> Option<Alignment> {
    let mut buf = Buf::uncleared(4096);
    BLOCKS.into_iter().find_map(|block| {
        // SAFETY: the buffer has room for every block size that is tried.
        let result = unsafe { libc::pread(file.as_raw_fd(), buf.as_mut_ptr().cast(), block as usize, 0) };
        (result >= 0).then_some(Alignment { offset: block, memory: block as usize })
    })
}

/// The free and total size of a file system, in bytes.
pub(super) struct Space {
    pub(super) free: u64,
    pub(super) total: u64,
}

pub(super) fn file_system(file: &File) -> io::Result<Space> {
    let mut status = MaybeUninit::<libc::statvfs>::zeroed();
    // SAFETY: `status` is valid for writing.
    if unsafe { libc::fstatvfs(file.as_raw_fd(), status.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: zeros are a valid statvfs.
    let status = unsafe { status.assume_init() };
    let bytes = |blocks: u64| blocks.saturating_mul(status.f_frsize);
    Ok(Space { free: bytes(status.f_bavail), total: bytes(status.f_blocks) })
}

fn free_space(file: &File) -> io::Result<u64> {
    file_system(file).map(|space| space.free)
}

/// The kind of the file system of `file`, as a number of statfs(2).
fn magic(file: &File) -> io::Result<i64> {
    let mut status = MaybeUninit::<libc::statfs>::zeroed();
    // SAFETY: `status` is valid for writing.
    if unsafe { libc::fstatfs(file.as_raw_fd(), status.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: zeros are a valid statfs.
    Ok(unsafe { status.assume_init() }.f_type)
}

/// Whether SEEK_DATA in a file system of this kind never skips written data.
///
/// What it skips counts as zeros, and a resync sends such a range to another copy as zeros. So the file
/// system must also be right about data that is not on its disk yet. ZFS (2.1.4 to 2.2.1) and btrfs have
/// skipped such data, and others may. Files in file systems that are not in this list are read completely.
fn knows_holes(magic: i64) -> bool {
    /// ext2, ext3 and ext4.
    const EXT: i64 = 0xef53;
    const XFS: i64 = 0x5846_5342;
    matches!(magic, EXT | XFS)
}

/// Runs one request on the whole file through the ring.
async fn run(file: &Arc<OpenFile>, entry: squeue::Entry) -> io::Result<()> {
    // SAFETY: the callers' requests touch no memory and use this file, which is kept.
    let (result, _) = unsafe { driver::current().start(entry, Kept::File(Arc::clone(file))) }.await;
    if result < 0 { Err(io::Error::from_raw_os_error(-result)) } else { Ok(()) }
}

impl Drop for OpenFile {
    /// Releases the lock.
    ///
    /// Closing the descriptor would release it with the last reference to the file, which a worker thread of
    /// the kernel may hold for a moment after it has reported the end of its request. An opener that follows
    /// immediately would find the disk in use. Nothing is in flight here: each request keeps its file until
    /// its end.
    fn drop(&mut self) {
        // SAFETY: no memory is passed.
        unsafe { libc::flock(self.file.as_raw_fd(), libc::LOCK_UN) };
    }
}

impl OpenFile {
    /// The descriptor for a request.
    pub(super) fn fd(&self) -> Fd {
        Fd(self.file.as_raw_fd())
    }
}

#[cfg(test)]
mod tests {
    use super::knows_holes;

    /// The numbers are those of statfs(2).
    #[test]
    fn holes_are_believed_of_ext4_and_xfs_alone() {
        assert!(knows_holes(0xef53), "ext4");
        assert!(knows_holes(0x5846_5342), "XFS");
        for (magic, name) in [
            (0x9123_683e, "btrfs"),
            (0x2fc1_2fc1, "ZFS"),
            (0x0102_1994, "tmpfs"),
            (0x6969, "NFS"),
            (0x794c_7630, "overlayfs"),
            (0x6573_5546, "FUSE"),
            (0xf2f5_2010, "F2FS"),
            (0xca45_1a4e, "bcachefs"),
            (0, "what does not say"),
        ] {
            assert!(!knows_holes(magic), "{name}");
        }
    }
}
