//! All disks of a world, by the node they are plugged into and their path there.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use base::{Rng, crc32c};

use super::drive::{Content, Drive, Kind, Operation, Reply, draw};
use super::face::OpenFile;
use crate::sim::fault::FaultCounts;
use crate::sim::image::DiskImage;
use crate::sim::log;
use crate::sim::node::NodeId;
use crate::{DiskError, Durability, OpenError, OpenOptions, Room};

/// The block size of files that `Disk::open` creates: that of most disks.
const FILE_BLOCK: u32 = 512;

/// The number of a disk in its world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(in crate::sim) struct DiskNumber(u32);

/// An operation on a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(in crate::sim) struct DiskOpNumber(pub(in crate::sim) DiskNumber, pub(in crate::sim) u64);

/// A completed operation: `send` its reply when nothing is borrowed.
pub(in crate::sim) struct Completed {
    reply: Reply,
    pub(in crate::sim) ok: bool,
    /// A checksum of the data that was read.
    pub(in crate::sim) sum: u32,
}

impl Completed {
    pub(in crate::sim) fn send(self) {
        match self.reply {
            Reply::Read(reply, result) => reply.send(result),
            Reply::Done(reply, result) => reply.send(result),
        }
    }
}

pub(in crate::sim) struct Shelf {
    drives: BTreeMap<DiskNumber, Drive>,
    paths: BTreeMap<(NodeId, PathBuf), DiskNumber>,
    /// The sizes of the nodes' file systems that are limited.
    space: BTreeMap<NodeId, u64>,
    rng: Rng,
    next_disk: u32,
    next_op: u64,
}

impl Shelf {
    pub(in crate::sim) fn new(rng: Rng) -> Shelf {
        Shelf {
            drives: BTreeMap::new(),
            paths: BTreeMap::new(),
            space: BTreeMap::new(),
            rng,
            next_disk: 0,
            next_op: 0,
        }
    }

    fn put(&mut self, node: NodeId, path: &Path, kind: Kind, image: DiskImage) -> DiskNumber {
        let disk = DiskNumber(self.next_disk);
        self.next_disk += 1;
        self.drives.insert(disk, Drive::new(kind, image));
        let previous = self.paths.insert((node, path.to_owned()), disk);
        assert!(previous.is_none(), "{node} has a disk at {} already", path.display());
        disk
    }

    /// Plugs in a block device.
    pub(in crate::sim) fn put_device(&mut self, node: NodeId, path: &Path, image: DiskImage) {
        self.put(node, path, Kind::Device, image);
    }

    /// Creates a file.
    pub(in crate::sim) fn put_file(&mut self, node: NodeId, path: &Path, image: DiskImage) {
        self.put(node, path, Kind::File { reserved: false }, image);
    }

    /// Unplugs a disk, with the content of its cache.
    pub(in crate::sim) fn take(&mut self, node: NodeId, path: &Path) -> TakenDisk {
        let number = self.number(node, path);
        self.paths.remove(&(node, path.to_owned()));
        let mut drive = self.drives.remove(&number).expect("a path leads to a drive");
        drive.open = Weak::new();
        TakenDisk(number, drive)
    }

    /// Plugs in a disk that was unplugged elsewhere.
    pub(in crate::sim) fn plug(&mut self, node: NodeId, path: &Path, disk: TakenDisk) {
        let previous = self.paths.insert((node, path.to_owned()), disk.0);
        assert!(previous.is_none(), "{node} has a disk at {} already", path.display());
        self.drives.insert(disk.0, disk.1);
    }

    fn number(&self, node: NodeId, path: &Path) -> DiskNumber {
        match self.paths.get(&(node, path.to_owned())) {
            Some(disk) => *disk,
            None => panic!("{node} has no disk at {}", path.display()),
        }
    }

    /// The drive at `path`, for a scenario to change, and random numbers for that.
    pub(in crate::sim) fn drive(&mut self, node: NodeId, path: &Path) -> (&mut Drive, &mut Rng) {
        let number = self.number(node, path);
        (self.drives.get_mut(&number).expect("a path leads to a drive"), &mut self.rng)
    }

    pub(in crate::sim) fn exists(&self, node: NodeId, path: &Path) -> bool {
        self.paths.contains_key(&(node, path.to_owned()))
    }

    pub(in crate::sim) fn remove(&mut self, node: NodeId, path: &Path) {
        drop(self.take(node, path));
    }

    pub(in crate::sim) fn remove_if(&mut self, node: NodeId, path: &Path, disk: DiskNumber) {
        if self.paths.get(&(node, path.to_owned())) == Some(&disk) {
            self.remove(node, path);
        }
    }

    /// The size, or 0 if the disk is gone.
    pub(in crate::sim) fn size(&self, disk: DiskNumber) -> u64 {
        self.drives.get(&disk).map_or(0, |drive| drive.content().size())
    }

    pub(in crate::sim) fn set_space(&mut self, node: NodeId, bytes: Option<u64>) {
        match bytes {
            Some(bytes) => self.space.insert(node, bytes),
            None => self.space.remove(&node),
        };
    }

    /// The free bytes of the file system of `node`; `None`: unlimited.
    fn free(&self, node: NodeId) -> Option<u64> {
        let size = self.space.get(&node)?;
        Some(size.saturating_sub(self.used(node)))
    }

    /// The bytes that the files of `node` take.
    pub(in crate::sim) fn used(&self, node: NodeId) -> u64 {
        let mine = self.paths.range((node, PathBuf::new())..).take_while(|((owner, _), _)| *owner == node);
        mine.map(|(_, disk)| self.drives[disk].space()).sum()
    }

    /// Checks whether a file could be created at `path`.
    pub(in crate::sim) fn check_new(
        &self,
        node: NodeId,
        path: &Path,
        size: u64,
        reserve: bool,
    ) -> Result<(), OpenError> {
        let code = match () {
            () if self.paths.contains_key(&(node, path.to_owned())) => libc::EEXIST,
            () if !size.is_multiple_of(u64::from(FILE_BLOCK)) => libc::EINVAL,
            () if reserve && self.free(node).is_some_and(|free| free < size) => libc::ENOSPC,
            () => return Ok(()),
        };
        Err(OpenError::System { path: path.to_owned(), source: io::Error::from_raw_os_error(code) })
    }

    pub(in crate::sim) fn open(
        &mut self,
        node: NodeId,
        path: &Path,
        options: OpenOptions,
        counts: &mut FaultCounts,
        make: impl FnOnce(DiskNumber, &Drive) -> OpenFile,
    ) -> Result<Arc<OpenFile>, OpenError> {
        let system =
            |code| OpenError::System { path: path.to_owned(), source: io::Error::from_raw_os_error(code) };
        let number = match (self.paths.get(&(node, path.to_owned())), options.create) {
            (Some(_), Some(_)) => return Err(system(libc::EEXIST)),
            (None, None) => return Err(system(libc::ENOENT)),
            (Some(number), None) => *number,
            (None, Some(size)) => {
                if !size.is_multiple_of(u64::from(FILE_BLOCK)) {
                    return Err(system(libc::EINVAL));
                }
                if options.reserve && self.free(node).is_some_and(|free| free < size) {
                    counts.add(crate::sim::fault::Fault::DiskFull);
                    return Err(system(libc::ENOSPC));
                }
                let kind = Kind::File { reserved: options.reserve };
                self.put(node, path, kind, DiskImage::new(size, FILE_BLOCK))
            }
        };
        let drive = self.drives.get_mut(&number).expect("a path leads to a drive");
        if drive.dead {
            counts.add(crate::sim::fault::Fault::DeadDisk);
            return Err(system(libc::ENXIO));
        }
        // As on Linux, operations of a killed process keep its disk open and locked.
        if drive.open.strong_count() > 0 || drive.is_busy() {
            return Err(OpenError::InUse(path.to_owned()));
        }
        drive.settle_after_failure(&mut self.rng, counts);
        let file = Arc::new(make(number, drive));
        drive.open = Arc::downgrade(&file);
        Ok(file)
    }

    /// Starts an operation; returns its number and how long it will take. `None`: the disk is gone, or no
    /// longer belongs to this opener.
    pub(in crate::sim) fn begin(
        &mut self,
        file: &Arc<OpenFile>,
        mut operation: Operation,
        counts: &mut FaultCounts,
    ) -> Option<(DiskOpNumber, u64, log::Event)> {
        let drive = self.drives.get_mut(&file.disk)?;
        if !std::ptr::eq(drive.open.as_ptr(), Arc::as_ptr(file)) {
            return None;
        }
        let op = self.next_op;
        self.next_op += 1;
        let (what, offset, len) = match &mut operation {
            Operation::Read { offset, buf, .. } => (log::DiskOp::Read, *offset, buf.len() as u64),
            Operation::Write { offset, content, durability, .. } => {
                let what = match (&content, durability) {
                    (Content::Zeros(_), _) => log::DiskOp::Zero,
                    (Content::Data(_), Durability::Cached) => log::DiskOp::Write,
                    (Content::Data(_), Durability::Durable) => log::DiskOp::DurableWrite,
                };
                (what, *offset, content.len())
            }
            Operation::Flush { below, .. } => {
                *below = drive.next_change();
                (log::DiskOp::Flush, 0, 0)
            }
        };
        let event = log::Event::DiskOp { disk: file.disk, op, what, offset, len };
        let time = drive.begin(op, operation, &mut self.rng, counts);
        Some((DiskOpNumber(file.disk, op), time, event))
    }

    /// Completes an operation whose time has come; `None`: power was cut meanwhile.
    pub(in crate::sim) fn complete(
        &mut self,
        number: DiskOpNumber,
        counts: &mut FaultCounts,
    ) -> Option<Completed> {
        let DiskOpNumber(disk, op) = number;
        let owner = match self.space.is_empty() {
            true => None,
            false => self.paths.iter().find(|(_, number)| **number == disk).map(|((node, _), _)| *node),
        };
        let free = owner.and_then(|node| self.free(node));
        let reply = self.drives.get_mut(&disk)?.complete(op, free, &mut self.rng, counts)?;
        let (ok, sum) = match &reply {
            Reply::Read(_, Ok(buf)) => (true, crc32c(buf)),
            Reply::Read(_, Err(_)) => (false, 0),
            Reply::Done(_, result) => (result.is_ok(), 0),
        };
        Some(Completed { reply, ok, sum })
    }

    pub(in crate::sim) fn allocated(
        &self,
        disk: DiskNumber,
        offset: u64,
        len: u64,
    ) -> Option<Vec<(u64, u64)>> {
        let drive = self.drives.get(&disk)?;
        Some(match drive.kind {
            Kind::Device if len == 0 => Vec::new(),
            Kind::Device => vec![(offset, len)],
            Kind::File { .. } => drive.content().allocated(offset, len),
        })
    }

    pub(in crate::sim) fn is_file(&self, disk: DiskNumber) -> bool {
        self.drives.get(&disk).is_some_and(|drive| matches!(drive.kind, Kind::File { .. }))
    }

    /// How long it takes to reserve space on the disk.
    pub(in crate::sim) fn time_to_allocate(&mut self, disk: DiskNumber) -> Duration {
        // Without a duration nothing is drawn, so that old seeds keep their meaning.
        match self.drives.get(&disk) {
            Some(drive) if !drive.latency.allocate.is_empty() => {
                Duration::from_nanos(draw(&mut self.rng, &drive.latency.allocate))
            }
            _ => Duration::ZERO,
        }
    }

    /// Reserves space for a range of a file: at once, and durably.
    pub(in crate::sim) fn allocate(
        &mut self,
        node: NodeId,
        disk: DiskNumber,
        offset: u64,
        len: u64,
        counts: &mut FaultCounts,
    ) -> Result<(), DiskError> {
        let free = self.free(node);
        let Some(drive) = self.drives.get_mut(&disk) else { return Ok(()) };
        if drive.kind == (Kind::File { reserved: false }) && !drive.allocate(offset, len, free) {
            counts.add(crate::sim::fault::Fault::DiskFull);
            return Err(DiskError::Full);
        }
        Ok(())
    }

    /// The space of a limited file system for a file.
    pub(in crate::sim) fn room(&self, node: NodeId, disk: DiskNumber) -> Option<Room> {
        let (free, total) = (self.free(node)?, *self.space.get(&node)?);
        let drive = self.drives.get(&disk).filter(|drive| matches!(drive.kind, Kind::File { .. }))?;
        let promised = drive.content().size().saturating_sub(drive.space());
        Some(Room { file_system: 0, free, total, promised })
    }

    /// Closes all disks of a process that has ended. Its operations under way continue.
    pub(in crate::sim) fn close_all(&mut self, node: NodeId) {
        for number in self.numbers_of(node) {
            self.drives.get_mut(&number).expect("a path leads to a drive").open = Weak::new();
        }
    }

    /// Cuts the power of all disks of `node`.
    pub(in crate::sim) fn power_cut(&mut self, node: NodeId, counts: &mut FaultCounts) {
        for number in self.numbers_of(node) {
            let drive = self.drives.get_mut(&number).expect("a path leads to a drive");
            drive.power_cut(&mut self.rng, counts);
        }
    }

    fn numbers_of(&self, node: NodeId) -> Vec<DiskNumber> {
        self.paths.iter().filter(|((owner, _), _)| *owner == node).map(|(_, disk)| *disk).collect()
    }
}

/// A disk on its way from one node to another.
pub(in crate::sim) struct TakenDisk(DiskNumber, Drive);
