//! Storage: pools of disks, thick and log-structured volumes in them, and volumes in memory.
//!
//! What this crate guarantees:
//!
//! - Data that was acknowledged as durable survives a power cut at any point.
//! - A block that was never written, or was unmapped, reads as zeros, whatever the disk held before.
//! - A pool that is damaged, foreign or in use by another server is refused with the reason.
//!
//! A [`Pool`] lives on one core and knows where each volume lies. The data path does not ask the pool: a
//! volume is striped ([`Stripe`]) over slices, each slice is opened on the core that serves it
//! ([`SliceSpec::open`]), and an open slice ([`Slice`]) accesses the disks directly. The reasons are in
//! `docs/why/pool.md`, the format on disk is in `docs/formats/pool.md`.

mod allocator;
mod budget;
pub mod canary;
mod catalog;
mod copy;
mod cursor;
mod disks;
mod error;
mod extent;
#[doc(hidden)]
pub mod fuzzing;
mod gate;
mod geometry;
#[cfg(test)]
mod golden;
mod id;
mod log;
mod lost;
mod pool;
mod ram;
mod range_lock;
mod signature;
mod slice;
mod slot;
mod stripe;
mod superblock;
mod thick;

pub use budget::{RamBudget, RamGrant};
pub use catalog::{
    CAPACITY_MAX, CLONE_DEPTH_MAX, Compression, Host, LU_STATE_BYTES_MAX, Malformed, NAME_BYTES_MAX,
    SLICES_MAX, SpacePolicy, VOLUMES_MAX, VolumeKind, WhenFull,
};
pub use copy::{COPIES_MAX, CopyOf, CopyState, MAP_PAGE_BYTES, MAP_PAGE_REGIONS, MAP_REGION_BYTES, PoolMark};
pub use disks::{CoreDisks, SharedDisks};
pub use error::{BadBlock, MissingDisk, ReadFailure, SliceError, StoreError};
pub use geometry::{DISK_BYTES_MIN, DISKS_MAX, EXTENT_BYTES_MAX, EXTENT_BYTES_MIN, EXTENTS_MAX};
pub use id::{ClusterId, DiskId, HostId, PoolId, VolumeId};
pub use log::{
    BadVersion, ChangedRange, ChangedRanges, DiffLimits, FoundBad, HeldSnapshot, LogFigures, LogMemory,
    LogTuning, MAP_UNIT, NewSnapshot, PastCursor, SnapshotError, SnapshotInfo, SnapshotsChecked,
};
pub use lost::{LOST_UNIT, LOST_UNITS_MAX};
pub use pool::{
    CloneOf, CloneSpec, CreateOptions, DiskUsage, FoundPool, GrownDisk, InLogs, LeavingDisk, LogSpace,
    LookedAt, MetadataState, Moved, Moving, NewDisk, OpenPool, Pool, Probe, ProbedContents, RemovableDisk,
    Usage, VolumeInfo, VolumeSpec, Zeroing, ZeroingWatch, probe,
};
pub use signature::Content;
pub use slice::{MovedPart, Slice, SliceSpec};
pub use stripe::{Piece, Pieces, STRIPE_UNIT, Stripe};
