//! A file system with a single file, `disk`.
//!
//! The kernel's requests arrive on a thread of `fuser`. Each is passed to the core that has the unit, which
//! replies when the unit has responded. The file bypasses the kernel's page cache (`FOPEN_DIRECT_IO`): a host
//! reads what another one has written, and an fsync flushes only the unit's own cache. Writes to different
//! ranges run in parallel.

use std::ffi::OsStr;
use std::future::Future;
use std::io;
use std::rc::Rc;
use std::time::{Duration, SystemTime};

use base::Buf;
use fuser::{
    BsdFileFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo,
    InitFlags, KernelConfig, LockOwner, OpenAccMode, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory,
    ReplyEmpty, ReplyEntry, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, Request, TimeOrNow, WriteFlags,
};
use rt::{CoreId, Handle};
use rustix::fs::{FallocateFlags, OFlags};

use super::disk::{COMMAND_BYTES_MAX, Disk, DiskError};
use super::runtime;

pub(super) const NAME: &str = "disk";

const FILE: INodeNo = INodeNo(2);

/// How long the kernel may cache the size: it sees that the unit has grown after this time.
const ATTRIBUTES_TTL: Duration = Duration::from_secs(1);

/// How many background requests the kernel has in progress at once.
///
/// These are requests that no thread waits for, such as those of a loop device with direct I/O.
const BACKGROUND_MAX: u16 = 128;

/// Values of `whence` (lseek(2)).
const SEEK_DATA: i32 = 3;
const SEEK_HOLE: i32 = 4;

pub(super) struct File {
    core: Handle,
    owner: (u32, u32),
    read_only: bool,
    began: SystemTime,
}

impl File {
    /// A file system for the disk that `core` has ([`runtime::disk`]).
    pub(super) fn new(core: Handle, owner: (u32, u32), read_only: bool) -> File {
        File { core, owner, read_only, began: SystemTime::now() }
    }

    /// Runs `function` with the disk on the core.
    ///
    /// If the core is gone, the request is dropped with its reply, which then fails with EIO.
    fn ask<F: Future<Output = ()> + 'static>(&self, function: impl FnOnce(Rc<Disk>) -> F + Send + 'static) {
        drop(self.core.call(CoreId(0), move || async move {
            if let Some(disk) = runtime::disk() {
                function(disk).await;
            }
        }));
    }

    fn attributes(&self, size: u64, block: u32) -> FileAttr {
        let (kind, perm) = (FileType::RegularFile, if self.read_only { 0o400 } else { 0o600 });
        FileAttr {
            ino: FILE,
            size,
            blocks: size.div_ceil(512),
            blksize: block,
            kind,
            perm,
            nlink: 1,
            ..self.root()
        }
    }

    fn root(&self) -> FileAttr {
        let at = self.began;
        let (uid, gid) = self.owner;
        FileAttr {
            ino: INodeNo::ROOT,
            size: 0,
            blocks: 0,
            atime: at,
            mtime: at,
            ctime: at,
            crtime: at,
            kind: FileType::Directory,
            perm: 0o500,
            nlink: 2,
            uid,
            gid,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        }
    }

    fn copy(&self) -> File {
        File { core: self.core.clone(), ..*self }
    }
}

/// The error number that the file's user receives.
fn errno(doing: &str, error: &DiskError) -> Errno {
    Errno::from_i32(error.told(doing).raw_os_error())
}

/// Replies to a request that returns no data.
fn done(doing: &str, result: Result<(), DiskError>, reply: ReplyEmpty) {
    match result {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(errno(doing, &error)),
    }
}

impl Filesystem for File {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // A feature that an older kernel lacks costs only speed.
        let _ = config.set_max_write(COMMAND_BYTES_MAX);
        let _ = config.set_max_background(BACKGROUND_MAX);
        let _ = config.add_capabilities(InitFlags::FUSE_ASYNC_DIO);
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if parent != INodeNo::ROOT || name != NAME {
            return reply.error(Errno::ENOENT);
        }
        let file = self.copy();
        self.ask(move |disk| async move {
            reply.entry(&ATTRIBUTES_TTL, &file.attributes(disk.size(), disk.block()), Generation(0));
        });
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        if ino == INodeNo::ROOT {
            return reply.attr(&ATTRIBUTES_TTL, &self.root());
        }
        let file = self.copy();
        self.ask(move |disk| async move {
            reply.attr(&ATTRIBUTES_TTL, &file.attributes(disk.size(), disk.block()));
        });
    }

    /// Like a block device, the file cannot be truncated; times are not stored.
    fn setattr(
        &self,
        request: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        _: Option<TimeOrNow>,
        _: Option<TimeOrNow>,
        _: Option<SystemTime>,
        handle: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        if size.is_some() {
            return reply.error(Errno::EINVAL);
        }
        if mode.is_some() || uid.is_some() || gid.is_some() {
            return reply.error(Errno::EPERM);
        }
        self.getattr(request, ino, handle, reply);
    }

    fn open(&self, _: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        if ino != FILE {
            return reply.error(Errno::EISDIR);
        }
        if self.read_only && flags.acc_mode() != OpenAccMode::O_RDONLY {
            return reply.error(Errno::EROFS);
        }
        reply.opened(
            FileHandle(0),
            FopenFlags::FOPEN_DIRECT_IO
                | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES
                | FopenFlags::FOPEN_NOFLUSH,
        );
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        self.ask(move |disk| async move {
            match disk.read(offset, size).await {
                Ok(data) => reply.data(&data),
                Err(error) => reply.error(errno("read", &error)),
            }
        });
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let durable = OFlags::from_bits_retain(flags.0.cast_unsigned()).contains(OFlags::DSYNC);
        let data = Buf::copy_of(data);
        let len = data.len() as u32;
        self.ask(move |disk| async move {
            match disk.write(offset, data, durable).await {
                Ok(()) => reply.written(len),
                Err(error) => reply.error(errno("write", &error)),
            }
        });
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.ask(move |disk| async move { done("flush", disk.flush().await, reply) });
    }

    fn fallocate(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let mode = FallocateFlags::from_bits_retain(mode.cast_unsigned());
        let (kept, zeroed) = (FallocateFlags::KEEP_SIZE, FallocateFlags::ZERO_RANGE);
        let unmap = mode == kept | FallocateFlags::PUNCH_HOLE;
        if !unmap && mode != zeroed && mode != kept | zeroed {
            return reply.error(Errno::EOPNOTSUPP);
        }
        self.ask(move |disk| async move {
            // A hole may reach beyond the unit's end, where there is nothing to zero.
            let length = if unmap { length.min(disk.size().saturating_sub(offset)) } else { length };
            done("zeroing", disk.zero(offset, length, unmap).await, reply);
        });
    }

    fn lseek(&self, _: &Request, _: INodeNo, _: FileHandle, offset: i64, whence: i32, reply: ReplyLseek) {
        let (Ok(offset), SEEK_DATA | SEEK_HOLE) = (u64::try_from(offset), whence) else {
            return reply.error(Errno::EINVAL);
        };
        self.ask(move |disk| async move {
            match disk.seek(offset, whence == SEEK_DATA).await {
                Ok(found) => match found.and_then(|found| i64::try_from(found).ok()) {
                    Some(found) => reply.offset(found),
                    None => reply.error(Errno::ENXIO),
                },
                Err(error) => reply.error(errno("data lookup", &error)),
            }
        });
    }

    fn readdir(&self, _: &Request, _: INodeNo, _: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let entries = [
            (INodeNo::ROOT, FileType::Directory, "."),
            (INodeNo::ROOT, FileType::Directory, ".."),
            (FILE, FileType::RegularFile, NAME),
        ];
        for (next, (ino, kind, name)) in (1..).zip(entries).skip(offset as usize) {
            if reply.add(ino, next, kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        const BLOCK: u32 = 4096;
        self.ask(move |disk| async move {
            reply.statfs(disk.size() / u64::from(BLOCK), 0, 0, 1, 0, BLOCK, 255, BLOCK);
        });
    }
}
