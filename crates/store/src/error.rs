//! Errors: what went wrong, and what to do about it.

use std::path::PathBuf;

use base::{ByteLen, ByteOffset};
use rt::{DiskError, OpenError};

use crate::catalog::{
    CAPACITY_MAX, CLONE_DEPTH_MAX, Host, LU_STATE_BYTES_MAX, NAME_BYTES_MAX, SLICES_MAX, VOLUMES_MAX,
};
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
#[allow(missing_docs)] // The messages say it.
pub enum StoreError {
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error("{path} failed")]
    Disk {
        path: PathBuf,
        #[source]
        source: DiskError,
    },
    #[error("a pool needs at least one disk: name a file or a block device")]
    NoDisks,
    #[error("a pool has at most {DISKS_MAX} disks: create a second pool")]
    TooManyDisks,
    #[error("{path} is too small for the pool: it has {}, and at least {} is needed", ByteLen(*size), ByteLen(*needed))]
    DiskTooSmall { path: PathBuf, size: u64, needed: u64 },
    /// A disk has more extents than a pool can count.
    #[error(
        "{path} is too large for a pool with extents of {}: it has {}; create another pool on it",
        ByteLen(*extent),
        ByteLen(*size)
    )]
    DiskTooLarge { path: PathBuf, size: u64, extent: u64 },
    #[error(
        "no disk of the pool has grown by {} or more: enlarge a disk or file first (for example with `lvextend` or `truncate`), then try again",
        ByteLen(*needed)
    )]
    NotGrown { needed: u64 },
    #[error("{path} is not a disk of the pool: `ursa pool show` lists its disks")]
    NoSuchDisk { path: PathBuf },
    #[error(
        "{path} is the only disk of the pool and cannot be removed: add another disk first, or export the pool"
    )]
    OnlyDisk { path: PathBuf },
    #[error("{path} is not leaving the pool: there is nothing to cancel")]
    NotLeaving { path: PathBuf },
    #[error(
        "{path} cannot be removed now, because {other} is leaving the pool: wait until that is complete, or cancel it"
    )]
    OtherDiskLeaving { path: PathBuf, other: PathBuf },
    #[error(
        "volume {volume} cannot be converted now, because {path} is leaving the pool: wait until that is complete, or cancel it"
    )]
    DiskIsLeaving { volume: VolumeId, path: PathBuf },
    #[error("{path} cannot be removed, because {used} of it are in use by {}", .by.join(", "))]
    DiskInUse { path: PathBuf, used: ByteLen, by: Vec<String> },
    #[error("{path} has a block size of {block} bytes, and at most 4096 is supported: choose another disk")]
    DiskBlock { path: PathBuf, block: u32 },
    #[error(
        "{0} bytes is not a valid extent size: choose a power of two from {EXTENT_BYTES_MIN} to {EXTENT_BYTES_MAX} that the pool's size allows"
    )]
    ExtentSize(u64),
    #[error(
        "{path} is not empty, it holds {found}: choose another disk, or wipe it if nobody needs the data"
    )]
    NotEmpty { path: PathBuf, found: Content },
    /// The disk has no superblock at either end.
    #[error("{path} is not a disk of a pool, it holds {found}: check the path")]
    NotAPool { path: PathBuf, found: Content },
    #[error(
        "{path} was a disk of a pool, but every copy of its superblock is damaged: restore the disk from a copy"
    )]
    SuperblockDamaged { path: PathBuf },
    #[error(
        "{path} has format version {found}, and this version of Ursa knows version {known}: use a newer version"
    )]
    Version { path: PathBuf, found: u16, known: u16 },
    #[error(
        "{path} has the role {role} in its pool, which this version of Ursa does not know: use the version that gave the disk this role"
    )]
    DiskRole { path: PathBuf, role: u8 },
    #[error("{path} had {} and now has {}: it was truncated; restore it from a copy", ByteLen(*expected), ByteLen(*found))]
    DiskShrunk { path: PathBuf, expected: u64, found: u64 },
    #[error("pool {pool} has {count} disks, and these are missing: {}; name all of them", list(.missing))]
    DisksMissing { pool: PoolId, count: u16, missing: Vec<MissingDisk> },
    #[error("{path} belongs to pool {found}, the others to pool {expected}: open one pool at a time")]
    OtherPool { path: PathBuf, expected: PoolId, found: PoolId },
    #[error("{first} and {second} are the same disk of the pool: one is a copy; leave one out")]
    DuplicateDisk { first: PathBuf, second: PathBuf },
    #[error(
        "{path} is not disk {index} of the pool according to the metadata: it was replaced; name the right disk"
    )]
    ReplacedDisk { path: PathBuf, index: u16 },
    #[error(
        "{path} is not in use in the pool, because it was removed or adding it was interrupted: leave it out, or wipe it and add it again"
    )]
    NotInPool { path: PathBuf },
    #[error(
        "the metadata of pool {pool} is damaged: generation {expected} was acknowledged, the newest readable is {found:?}; restore a disk from a copy"
    )]
    MetadataDamaged { pool: PoolId, expected: u64, found: Option<u64> },
    /// The metadata is intact (its checksum is right), but its content is impossible.
    #[error(
        "the metadata of pool {pool} is inconsistent ({reason}): this is a bug in Ursa, please report it"
    )]
    MetadataInvalid { pool: PoolId, reason: crate::catalog::Malformed },
    #[error(
        "pool {pool} was last used by {host} and was not exported there: export it there, or force the import if that server is definitely off; two servers using one pool destroy it"
    )]
    UsedElsewhere { pool: PoolId, host: Host },
    #[error(
        "pool {0} is locked: a metadata write failed. I/O continues; repair the disk and reopen the pool"
    )]
    MetadataReadOnly(PoolId),
    #[error("pool {0} was exported")]
    Exported(PoolId),
    #[error("not enough space: {wanted} requested, {free} free; delete something or add a pool")]
    NoSpace { wanted: ByteLen, free: ByteLen },
    #[error(
        "not enough memory for RAM volumes: {wanted} requested, {free} left; raise the limit or delete a RAM volume"
    )]
    NoMemory { wanted: ByteLen, free: ByteLen },
    #[error("volume {0} not found in the pool")]
    NoSuchVolume(VolumeId),
    #[error("volume {0} is already in the pool: a pool holds one copy of a volume")]
    VolumeExists(VolumeId),
    /// The volume has no dirty map: it is not a copy of a cluster's volume.
    #[error("volume {0} is not a copy of a cluster's volume")]
    NotACopy(VolumeId),
    #[error("volume {0} is already a copy of a cluster's volume")]
    AlreadyACopy(VolumeId),
    #[error("{0} is not a valid copy slot: a volume has at most {COPIES_MAX} copies, counted from 0")]
    SlotInvalid(u8),
    #[error("volume {0:?} already exists: choose another name")]
    NameTaken(String),
    #[error("{0:?} is not a valid name: use 1 to {NAME_BYTES_MAX} letters, digits, '.', '_' or '-'")]
    NameInvalid(String),
    #[error("{} bytes is not a valid volume size: it must be a multiple of the block size, not zero, at most {}", .0.0, CAPACITY_MAX)]
    CapacityInvalid(ByteLen),
    #[error("the volume has {from} and cannot shrink to {to}: create a new one and copy the data")]
    Shrink { from: ByteLen, to: ByteLen },
    #[error("{0} is not a valid number of slices: choose a power of two up to {SLICES_MAX}")]
    SlicesInvalid(u16),
    #[error("only log volumes have a policy for a full pool, and a reserve of at most their size")]
    SpaceInvalid,
    #[error(
        "limit reached: the pool has {0} volumes (at most {VOLUMES_MAX}; in a small pool one per extent)"
    )]
    TooManyVolumes(usize),
    #[error("the state of a logical unit has {0} bytes, and {LU_STATE_BYTES_MAX} is the limit")]
    LuStateTooLarge(usize),
    #[error(
        "the pool's metadata area is full: {} needed, {} available; remove reservations or volumes",
        ByteLen(*wanted), ByteLen(*available)
    )]
    MetadataFull { wanted: u64, available: u64 },
    #[error(
        "volume {0} cannot be moved to another disk now, because it is not served, is being opened or closed, or its disks respond too slowly"
    )]
    VolumeNotHeld(VolumeId),
    #[error(
        "data of log volumes on {path} cannot be read, so it stays there: scrub the pool's log volumes, or rebuild their copies"
    )]
    LogUnreadable { path: PathBuf },
    /// The volume is being converted, and so cannot grow, or be converted to something else, and no disk can
    /// leave its pool.
    #[error("volume {0} is being converted to another kind: wait until that is done, or cancel it")]
    BeingConverted(VolumeId),
    #[error("volume {0} is not being converted")]
    NotBeingConverted(VolumeId),
    #[error(
        "volume {0} cannot be converted: only thick volumes become log volumes, and log volumes thick ones"
    )]
    NotConvertible(VolumeId),
    #[error("volume {0} is not log-structured: only log volumes have snapshots, and clones of them")]
    NotCloneable(VolumeId),
    #[error(
        "volume {0} is a clone of a clone, {CLONE_DEPTH_MAX} deep, which is the limit: copy the data to a new volume"
    )]
    CloneTooDeep(VolumeId),
    #[error("clones of snapshots of volume {0} exist: delete them first")]
    HasClones(VolumeId),
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
