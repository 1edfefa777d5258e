//! Errors: what went wrong, and what to do about it.

use std::path::PathBuf;

use base::{ByteLen, ByteOffset};
use rt::{DiskError, OpenError};

use crate::catalog::{CAPACITY_MAX, Host, LU_STATE_BYTES_MAX, NAME_BYTES_MAX, SLICES_MAX, VOLUMES_MAX};
use crate::copy::COPIES_MAX;
use crate::geometry::{DISKS_MAX, EXTENT_BYTES_MAX, EXTENT_BYTES_MIN};
use crate::id::{DiskId, PoolId, VolumeId};
use crate::signature::Content;

/// A slice could not carry out an operation.
///
/// Offsets are bytes within the slice and name the first block concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SliceError {
    /// A disk could not read this block, or the block is lost.
    #[error("the block at byte {} of the slice cannot be read", .0.offset.0)]
    Unreadable(BadBlock),
    /// The disk could not write, or could not make writes durable. The operating system does not say which
    /// block failed.
    #[error("the pool's disk could not write")]
    Unwritable,
    /// The file system under the disk is full.
    #[error("the file system under the pool's disk is full")]
    Full,
    /// The disk is out of service until the pool is reopened.
    #[error("a disk of the pool is out of service")]
    Offline,
    /// This copy cannot serve now; another one may. Copies of a volume return this, layouts do not.
    #[error("this copy of the volume is unavailable now")]
    Unavailable,
    /// The write may be on the disks, or may still get there. Copies of a volume return this, layouts do not.
    #[error("it is unknown whether the write happened: other copies of the volume were lost meanwhile")]
    Unknown,
}

/// A block that could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadBlock {
    /// Offset of the block in the slice.
    pub offset: ByteOffset,
    /// The disk's place in the pool: see [`Pool::path_at`](crate::Pool::path_at).
    pub disk: u16,
    /// Offset of the block on that disk, in bytes.
    pub disk_offset: u64,
    /// Why it could not be read.
    pub cause: ReadFailure,
}

/// Why a block could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReadFailure {
    /// The medium cannot read these blocks (EIO, ENODATA and the like), or a file ends before them.
    Medium,
    /// The device does not respond, is missing, or rejects commands.
    Device,
    /// The map of a log does not say where the block is: the disk cannot read that part of the map, or could
    /// not when it was merged. All blocks of the same [`MAP_UNIT`](crate::MAP_UNIT) that were not written
    /// since fail with it. [`BadBlock::disk_offset`] is where the map lies, 0 if that is not known any more.
    Map,
    /// No disk was asked, because the block is lost ([`crate::Slice::lose`]). [`BadBlock::disk`] means
    /// nothing.
    Lost,
}

impl ReadFailure {
    pub(crate) fn of(error: &DiskError) -> ReadFailure {
        if error.is_medium() { ReadFailure::Medium } else { ReadFailure::Device }
    }
}

/// A pool could not be created, opened or changed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A disk could not be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A disk failed.
    #[error("{path} failed")]
    Disk {
        /// The disk.
        path: PathBuf,
        /// The failure.
        #[source]
        source: DiskError,
    },
    /// No disk was specified.
    #[error("a pool needs at least one disk: name a file or a block device")]
    NoDisks,
    /// A pool cannot have this many disks.
    #[error("a pool has at most {DISKS_MAX} disks: create a second pool")]
    TooManyDisks,
    /// A disk is too small to hold the metadata and at least one extent.
    #[error("{path} is too small for the pool: it has {}, and at least {} is needed", ByteLen(*size), ByteLen(*needed))]
    DiskTooSmall {
        /// The disk.
        path: PathBuf,
        /// Its size in bytes.
        size: u64,
        /// The size needed, in bytes.
        needed: u64,
    },
    /// A disk has more extents than a pool can count.
    #[error(
        "{path} is too large for a pool with extents of {}: it has {}; create another pool on it",
        ByteLen(*extent),
        ByteLen(*size)
    )]
    DiskTooLarge {
        /// The disk.
        path: PathBuf,
        /// Its size in bytes.
        size: u64,
        /// The size of the pool's extents in bytes.
        extent: u64,
    },
    /// The pool cannot grow: no disk is larger than the pool already knows.
    #[error(
        "no disk of the pool has grown by {} or more: enlarge a disk or file first (for example with `lvextend` or `truncate`), then try again",
        ByteLen(*needed)
    )]
    NotGrown {
        /// By how many bytes at least one disk must have grown.
        needed: u64,
    },
    /// The pool has no such disk.
    #[error("{path} is not a disk of the pool: `ursa pool show` lists its disks")]
    NoSuchDisk {
        /// The path.
        path: PathBuf,
    },
    /// The pool would be left without disks.
    #[error(
        "{path} is the only disk of the pool and cannot be removed: add another disk first, or export the pool"
    )]
    OnlyDisk {
        /// The disk.
        path: PathBuf,
    },
    /// The disk is not leaving the pool.
    #[error("{path} is not leaving the pool: there is nothing to cancel")]
    NotLeaving {
        /// The disk.
        path: PathBuf,
    },
    /// Only one disk leaves a pool at a time.
    #[error(
        "{path} cannot be removed now, because {other} is leaving the pool: wait until that is complete, or cancel it"
    )]
    OtherDiskLeaving {
        /// The disk.
        path: PathBuf,
        /// The disk that is leaving.
        other: PathBuf,
    },
    /// A disk that is leaving holds a change up.
    #[error(
        "volume {volume} cannot be converted now, because {path} is leaving the pool: wait until that is complete, or cancel it"
    )]
    DiskIsLeaving {
        /// The volume.
        volume: VolumeId,
        /// The disk's path.
        path: PathBuf,
    },
    /// Something lies on a disk that was to be removed.
    #[error("{path} cannot be removed, because {used} of it are in use by {}", .by.join(", "))]
    DiskInUse {
        /// The disk.
        path: PathBuf,
        /// How much of it is in use.
        used: ByteLen,
        /// What uses it.
        by: Vec<String>,
    },
    /// The disk's block size is not supported.
    #[error("{path} has a block size of {block} bytes, and at most 4096 is supported: choose another disk")]
    DiskBlock {
        /// The disk.
        path: PathBuf,
        /// The disk's block size in bytes.
        block: u32,
    },
    /// The requested extent size is not valid.
    #[error(
        "{0} bytes is not a valid extent size: choose a power of two from {EXTENT_BYTES_MIN} to {EXTENT_BYTES_MAX} that the pool's size allows"
    )]
    ExtentSize(u64),
    /// Creating the pool would overwrite existing data.
    #[error(
        "{path} is not empty, it holds {found}: choose another disk, or wipe it if nobody needs the data"
    )]
    NotEmpty {
        /// The disk.
        path: PathBuf,
        /// What it holds.
        found: Content,
    },
    /// The disk has no superblock at either end.
    #[error("{path} is not a disk of a pool, it holds {found}: check the path")]
    NotAPool {
        /// The disk.
        path: PathBuf,
        /// What it holds.
        found: Content,
    },
    /// The disk has superblocks, and all of them are damaged.
    #[error(
        "{path} was a disk of a pool, but every copy of its superblock is damaged: restore the disk from a copy"
    )]
    SuperblockDamaged {
        /// The disk.
        path: PathBuf,
    },
    /// The disk was written by a version of Ursa whose format this one does not know.
    #[error(
        "{path} has format version {found}, and this version of Ursa knows version {known}: use a newer version"
    )]
    Version {
        /// The disk.
        path: PathBuf,
        /// The format version on the disk.
        found: u16,
        /// The format version that this program knows.
        known: u16,
    },
    /// The file or device is shorter than when it was added to the pool.
    #[error("{path} had {} and now has {}: it was truncated; restore it from a copy", ByteLen(*expected), ByteLen(*found))]
    DiskShrunk {
        /// The disk.
        path: PathBuf,
        /// The size in bytes that the pool knows.
        expected: u64,
        /// The size in bytes that it has now.
        found: u64,
    },
    /// Not all disks of the pool were specified.
    #[error("pool {pool} has {count} disks, and these are missing: {}; name all of them", list(.missing))]
    DisksMissing {
        /// The pool.
        pool: PoolId,
        /// How many disks the pool has.
        count: u16,
        /// The missing disks.
        missing: Vec<MissingDisk>,
    },
    /// The specified disks belong to different pools.
    #[error("{path} belongs to pool {found}, the others to pool {expected}: open one pool at a time")]
    OtherPool {
        /// The disk that does not belong with the others.
        path: PathBuf,
        /// The pool of the first disk.
        expected: PoolId,
        /// The pool of the disk at `path`.
        found: PoolId,
    },
    /// Two of the disks claim the same identity: one is a copy of the other.
    #[error("{first} and {second} are the same disk of the pool: one is a copy; leave one out")]
    DuplicateDisk {
        /// One of them.
        first: PathBuf,
        /// The other.
        second: PathBuf,
    },
    /// A disk of this pool whose place another disk has taken.
    #[error(
        "{path} is not disk {index} of the pool according to the metadata: it was replaced; name the right disk"
    )]
    ReplacedDisk {
        /// The disk.
        path: PathBuf,
        /// The index in the pool that it claims.
        index: u16,
    },
    /// A disk that claims to belong to the pool, but adding it was interrupted, or it was removed.
    #[error(
        "{path} is not in use in the pool, because it was removed or adding it was interrupted: leave it out, or wipe it and add it again"
    )]
    NotInPool {
        /// The disk.
        path: PathBuf,
    },
    /// Metadata that was acknowledged can no longer be read.
    #[error(
        "the metadata of pool {pool} is damaged: generation {expected} was acknowledged, the newest readable is {found:?}; restore a disk from a copy"
    )]
    MetadataDamaged {
        /// The pool.
        pool: PoolId,
        /// The generation that the superblocks promise.
        expected: u64,
        /// The newest generation that is intact.
        found: Option<u64>,
    },
    /// The metadata is intact (its checksum is right), but its content is impossible.
    #[error(
        "the metadata of pool {pool} is inconsistent ({reason}): this is a bug in Ursa, please report it"
    )]
    MetadataInvalid {
        /// The pool.
        pool: PoolId,
        /// What is impossible.
        reason: crate::catalog::Malformed,
    },
    /// Another server may be using the pool.
    #[error(
        "pool {pool} was last used by {host} and was not exported there: export it there, or force the import if that server is definitely off; two servers using one pool destroy it"
    )]
    UsedElsewhere {
        /// The pool.
        pool: PoolId,
        /// The host that used it last.
        host: Host,
    },
    /// An earlier change of the metadata failed.
    #[error(
        "pool {0} is locked: a metadata write failed. I/O continues; repair the disk and reopen the pool"
    )]
    MetadataReadOnly(PoolId),
    /// The pool was exported.
    #[error("pool {0} was exported")]
    Exported(PoolId),
    /// The pool has too few free extents.
    #[error("not enough space: {wanted} requested, {free} free; delete something or add a pool")]
    NoSpace {
        /// The requested space, in whole extents.
        wanted: ByteLen,
        /// The free space.
        free: ByteLen,
    },
    /// The memory that is reserved for RAM volumes is used up.
    #[error(
        "not enough memory for RAM volumes: {wanted} requested, {free} left; raise the limit or delete a RAM volume"
    )]
    NoMemory {
        /// The requested memory.
        wanted: ByteLen,
        /// The memory that is left.
        free: ByteLen,
    },
    /// The pool has no volume with this identity.
    #[error("volume {0} not found in the pool")]
    NoSuchVolume(VolumeId),
    /// A volume with this identity is in the pool already.
    #[error("volume {0} is already in the pool: a pool holds one copy of a volume")]
    VolumeExists(VolumeId),
    /// The volume has no dirty map: it is not a copy of a cluster's volume.
    #[error("volume {0} is not a copy of a cluster's volume")]
    NotACopy(VolumeId),
    /// The volume already is a copy of a cluster's volume.
    #[error("volume {0} is already a copy of a cluster's volume")]
    AlreadyACopy(VolumeId),
    /// The copy slot is out of range.
    #[error("{0} is not a valid copy slot: a volume has at most {COPIES_MAX} copies, counted from 0")]
    SlotInvalid(u8),
    /// Another volume has this name.
    #[error("volume {0:?} already exists: choose another name")]
    NameTaken(String),
    /// The name is not valid.
    #[error("{0:?} is not a valid name: use 1 to {NAME_BYTES_MAX} letters, digits, '.', '_' or '-'")]
    NameInvalid(String),
    /// The capacity is zero, not a multiple of the block size, or too large.
    #[error("{} bytes is not a valid volume size: it must be a multiple of the block size, not zero, at most {}", .0.0, CAPACITY_MAX)]
    CapacityInvalid(ByteLen),
    /// Volumes do not shrink.
    #[error("the volume has {from} and cannot shrink to {to}: create a new one and copy the data")]
    Shrink {
        /// The present capacity.
        from: ByteLen,
        /// The requested capacity.
        to: ByteLen,
    },
    /// The number of slices is not a power of two, or is too large.
    #[error("{0} is not a valid number of slices: choose a power of two up to {SLICES_MAX}")]
    SlicesInvalid(u16),
    /// The reserve exceeds the capacity, or the volume is not a log volume.
    #[error("only log volumes have a policy for a full pool, and a reserve of at most their size")]
    SpaceInvalid,
    /// The pool has the maximum number of volumes.
    #[error(
        "limit reached: the pool has {0} volumes (at most {VOLUMES_MAX}; in a small pool one per extent)"
    )]
    TooManyVolumes(usize),
    /// The opaque state of a logical unit is too large.
    #[error("the state of a logical unit has {0} bytes, and {LU_STATE_BYTES_MAX} is the limit")]
    LuStateTooLarge(usize),
    /// All logical unit states and tables together do not fit into the metadata area.
    #[error(
        "the pool's metadata area is full: {} needed, {} available; remove reservations or volumes",
        ByteLen(*wanted), ByteLen(*available)
    )]
    MetadataFull {
        /// Bytes needed.
        wanted: u64,
        /// Bytes available.
        available: u64,
    },
    /// A part of a volume cannot be moved now.
    #[error(
        "volume {0} cannot be moved to another disk now, because it is not served, is being opened or closed, or its disks respond too slowly"
    )]
    VolumeNotHeld(VolumeId),
    /// Data of log volumes on a disk that is leaving its pool cannot be read, so it stays there.
    #[error(
        "data of log volumes on {path} cannot be read, so it stays there: scrub the pool's log volumes, or rebuild their copies"
    )]
    LogUnreadable {
        /// The disk.
        path: PathBuf,
    },
    /// The volume is being converted, and so cannot grow, or be converted to something else, and no disk can
    /// leave its pool.
    #[error("volume {0} is being converted to another kind: wait until that is done, or cancel it")]
    BeingConverted(VolumeId),
    /// No conversion of the volume is under way.
    #[error("volume {0} is not being converted")]
    NotBeingConverted(VolumeId),
    /// The volume cannot be converted to this kind.
    #[error(
        "volume {0} cannot be converted: only thick volumes become log volumes, and log volumes thick ones"
    )]
    NotConvertible(VolumeId),
    /// A slice of the volume is still open on some core.
    #[error("volume {0} is in use: close its slices first")]
    VolumeOpen(VolumeId),
}

/// A disk of a pool that was not specified when opening it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MissingDisk {
    /// Its index in the pool.
    pub index: u16,
    /// Its identity, if the metadata could be read.
    pub disk: Option<DiskId>,
}

fn list(missing: &[MissingDisk]) -> String {
    let name = |disk: &MissingDisk| match disk.disk {
        Some(id) => format!("disk {} ({id})", disk.index),
        None => format!("disk {}", disk.index),
    };
    missing.iter().map(name).collect::<Vec<_>>().join(", ")
}
