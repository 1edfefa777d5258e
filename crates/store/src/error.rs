//! What can go wrong, and what to do then.

use std::path::PathBuf;

use base::{ByteLen, ByteOffset};
use rt::{DiskError, OpenError};

use crate::catalog::{CAPACITY_MAX, Host, LU_STATE_BYTES_MAX, NAME_BYTES_MAX, SLICES_MAX, VOLUMES_MAX};
use crate::copy::COPIES_MAX;
use crate::geometry::{DISKS_MAX, EXTENT_BYTES_MAX, EXTENT_BYTES_MIN};
use crate::id::{DiskId, PoolId, VolumeId};
use crate::signature::Content;

/// A slice could not carry out an operation. Offsets are bytes within the slice, at the first block
/// concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SliceError {
    /// A disk could not read this block, or it is lost.
    #[error("the block at byte {} of the slice cannot be read", .0.offset.0)]
    Unreadable(BadBlock),
    /// The disk could not write, or could not make durable what was written. The system does not say which
    /// block it was.
    #[error("the pool's disk could not write")]
    Unwritable,
    /// The file system under the disk is full.
    #[error("the file system under the pool's disk is full")]
    Full,
    /// The disk is out of service until the pool is reopened.
    #[error("a disk of the pool is out of service")]
    Offline,
    /// Said by copies of a volume, not by layouts: this one does not serve now, another may.
    #[error("this copy of the volume is unavailable now")]
    Unavailable,
    /// Said by copies of a volume, too: the write may be on the disks, or come there yet.
    #[error("it is unknown whether the write happened: other copies of the volume were lost meanwhile")]
    Unknown,
}

/// A block that a disk did not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadBlock {
    /// Where it begins in the slice.
    pub offset: ByteOffset,
    /// The disk's place in the pool, as in [`Pool::paths`](crate::Pool::paths).
    pub disk: u16,
    /// Where it begins on that disk, in bytes.
    pub disk_offset: u64,
    /// What the disk said.
    pub cause: ReadFailure,
}

/// What a disk said when it did not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReadFailure {
    /// The medium does not give these blocks (EIO, ENODATA and the like), or a file ends before them.
    Medium,
    /// The device does not answer, is gone, or takes no commands.
    Device,
    /// No disk was asked: the block is lost ([`crate::Slice::lose`]). [`BadBlock::disk`] says nothing.
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
        /// Which.
        path: PathBuf,
        /// How.
        #[source]
        source: DiskError,
    },
    /// No disk was named.
    #[error("a pool needs at least one disk: name a file or a block device")]
    NoDisks,
    /// More disks than a pool can have.
    #[error("a pool has at most {DISKS_MAX} disks: create a second pool")]
    TooManyDisks,
    /// A disk is too small to hold metadata and anything else.
    #[error("{path} is too small for the pool: it has {}, and at least {} is needed", ByteLen(*size), ByteLen(*needed))]
    DiskTooSmall {
        /// Which.
        path: PathBuf,
        /// Its size in bytes.
        size: u64,
        /// What it would need.
        needed: u64,
    },
    /// A disk has more extents than can be counted.
    #[error(
        "{path} is too large for a pool with extents of {}: it has {}; create another pool on it",
        ByteLen(*extent),
        ByteLen(*size)
    )]
    DiskTooLarge {
        /// Which.
        path: PathBuf,
        /// Its size in bytes.
        size: u64,
        /// The pool's extents.
        extent: u64,
    },
    /// No disk of a pool that is to grow is larger than the pool knows.
    #[error(
        "no disk of the pool has grown by {} or more: enlarge a disk or file first (for example with `lvextend` or `truncate`), then try again",
        ByteLen(*needed)
    )]
    NotGrown {
        /// By how many bytes one must have grown at least.
        needed: u64,
    },
    /// Its blocks are larger than anything we can work with.
    #[error("{path} has a block size of {block} bytes, and at most 4096 is supported: choose another disk")]
    DiskBlock {
        /// Which.
        path: PathBuf,
        /// Its block in bytes.
        block: u32,
    },
    /// The extent size asked for is not one.
    #[error(
        "{0} bytes is not a valid extent size: choose a power of two from {EXTENT_BYTES_MIN} to {EXTENT_BYTES_MAX} that the pool's size allows"
    )]
    ExtentSize(u64),
    /// A new pool was to overwrite something.
    #[error(
        "{path} is not empty, it holds {found}: choose another disk, or wipe it if nobody needs the data"
    )]
    NotEmpty {
        /// Which disk.
        path: PathBuf,
        /// What is there.
        found: Content,
    },
    /// No superblock at either end.
    #[error("{path} is not a disk of a pool, it holds {found}: check the path")]
    NotAPool {
        /// Which disk.
        path: PathBuf,
        /// What is there.
        found: Content,
    },
    /// Superblocks are there, and all of them are damaged.
    #[error(
        "{path} was a disk of a pool, but every copy of its superblock is damaged: restore the disk from a copy"
    )]
    SuperblockDamaged {
        /// Which disk.
        path: PathBuf,
    },
    /// Written by a version that we do not know.
    #[error(
        "{path} has format version {found}, and this version of Ursa knows version {known}: use a newer version"
    )]
    Version {
        /// Which disk.
        path: PathBuf,
        /// The version that is there.
        found: u16,
        /// The version that we know.
        known: u16,
    },
    /// The file or device is shorter than it was.
    #[error("{path} had {} and now has {}: it was truncated; restore it from a copy", ByteLen(*expected), ByteLen(*found))]
    DiskShrunk {
        /// Which disk.
        path: PathBuf,
        /// The size it was given to the pool with.
        expected: u64,
        /// The size it has.
        found: u64,
    },
    /// Not all disks of a pool were named.
    #[error("pool {pool} has {count} disks and these are missing: {}; name all of them", list(.missing))]
    DisksMissing {
        /// Which pool.
        pool: PoolId,
        /// How many disks it has.
        count: u16,
        /// Index, and identity where the metadata could be read, of those that are missing.
        missing: Vec<MissingDisk>,
    },
    /// The disks named belong to several pools.
    #[error("{path} belongs to pool {found}, the others to pool {expected}: open one pool at a time")]
    OtherPool {
        /// The disk that does not fit.
        path: PathBuf,
        /// The pool of the first disk.
        expected: PoolId,
        /// Its pool.
        found: PoolId,
    },
    /// Two of the disks say that they are the same: one was copied.
    #[error("{first} and {second} are the same disk of the pool: one is a copy; leave one out")]
    DuplicateDisk {
        /// One.
        first: PathBuf,
        /// The other.
        second: PathBuf,
    },
    /// A disk of this pool's that another has replaced.
    #[error(
        "{path} is not disk {index} of the pool according to the metadata: it was replaced; name the right disk"
    )]
    ReplacedDisk {
        /// Which.
        path: PathBuf,
        /// The place it claims.
        index: u16,
    },
    /// A disk that was to be added to the pool, and was not.
    #[error(
        "{path} is not in use in the pool, because adding it was interrupted: leave it out, or wipe it and add it again"
    )]
    NotAdded {
        /// Which.
        path: PathBuf,
    },
    /// Acknowledged metadata cannot be read any more.
    #[error(
        "the metadata of pool {pool} is damaged: generation {expected} was acknowledged, the newest readable is {found:?}; restore a disk from a copy"
    )]
    MetadataDamaged {
        /// Which pool.
        pool: PoolId,
        /// The generation that the superblocks promise.
        expected: u64,
        /// The newest one that is whole.
        found: Option<u64>,
    },
    /// The metadata is whole (its checksum fits) and says what cannot be.
    #[error(
        "the metadata of pool {pool} is inconsistent ({reason}): this is a bug in Ursa, please report it"
    )]
    MetadataInvalid {
        /// Which pool.
        pool: PoolId,
        /// In which respect.
        reason: crate::catalog::Malformed,
    },
    /// Another server may be using it.
    #[error(
        "pool {pool} was last used by {host} and was not exported there: export it there, or force the import if that server is certainly off; two servers using one pool destroy it"
    )]
    UsedElsewhere {
        /// Which pool.
        pool: PoolId,
        /// Who.
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
    /// Not enough free extents.
    #[error("not enough space: {wanted} requested, {free} free; delete something or add a pool")]
    NoSpace {
        /// What was wanted, in whole extents.
        wanted: ByteLen,
        /// What is free.
        free: ByteLen,
    },
    /// The memory set aside for RAM volumes is used up.
    #[error(
        "not enough memory for RAM volumes: {wanted} requested, {free} left; raise the limit or delete a RAM volume"
    )]
    NoMemory {
        /// What was wanted.
        wanted: ByteLen,
        /// What is left.
        free: ByteLen,
    },
    /// No volume has this identity.
    #[error("volume {0} not found in the pool")]
    NoSuchVolume(VolumeId),
    /// A volume with this identity is in the pool already.
    #[error("volume {0} is already in the pool: a pool holds one copy of a volume")]
    VolumeExists(VolumeId),
    /// It has no other copies.
    #[error("volume {0} is not a copy of a cluster's volume")]
    NotACopy(VolumeId),
    /// It is one of several copies.
    #[error("volume {0} is already a copy of a cluster's volume")]
    AlreadyACopy(VolumeId),
    /// No copy can have this place.
    #[error("{0} is not a valid copy slot: a volume has at most {COPIES_MAX} copies, counted from 0")]
    SlotInvalid(u8),
    /// Another volume has this name.
    #[error("volume {0:?} already exists: choose another name")]
    NameTaken(String),
    /// Not a name.
    #[error("{0:?} is not a valid name: use 1 to {NAME_BYTES_MAX} letters, digits, '.', '_' or '-'")]
    NameInvalid(String),
    /// Zero, not a multiple of the block, or too large.
    #[error("{} bytes is not a valid volume size: it must be a multiple of the block size, not zero, at most {}", .0.0, CAPACITY_MAX)]
    CapacityInvalid(ByteLen),
    /// Volumes do not shrink.
    #[error("the volume has {from} and cannot shrink to {to}: create a new one and copy the data")]
    Shrink {
        /// What it has.
        from: ByteLen,
        /// What was asked for.
        to: ByteLen,
    },
    /// Not a power of two, or too many.
    #[error("{0} is not a valid number of slices: choose a power of two up to {SLICES_MAX}")]
    SlicesInvalid(u16),
    /// More volumes than a pool can have.
    #[error(
        "limit reached: the pool has {0} volumes (at most {VOLUMES_MAX}; in a small pool one per extent)"
    )]
    TooManyVolumes(usize),
    /// The opaque state of a logical unit is too large.
    #[error("the state of a logical unit has {0} bytes, and {LU_STATE_BYTES_MAX} is the limit")]
    LuStateTooLarge(usize),
    /// All states and tables together are too large for the metadata area.
    #[error(
        "the pool's metadata area is full: {wanted} of {available} bytes; remove reservations or volumes"
    )]
    MetadataFull {
        /// What it would take.
        wanted: u64,
        /// What there is.
        available: u64,
    },
    /// A slice of it is still open on some core.
    #[error("volume {0} is in use: close its slices first")]
    VolumeOpen(VolumeId),
}

/// A disk that was not named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MissingDisk {
    /// Its place in the pool.
    pub index: u16,
    /// Its identity, where the metadata could be read.
    pub disk: Option<DiskId>,
}

fn list(missing: &[MissingDisk]) -> String {
    let name = |disk: &MissingDisk| match disk.disk {
        Some(id) => format!("disk {} ({id})", disk.index),
        None => format!("disk {}", disk.index),
    };
    missing.iter().map(name).collect::<Vec<_>>().join(", ")
}
