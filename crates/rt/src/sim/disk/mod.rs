//! Simulated disks.
//!
//! A drive has a volatile cache: a write that is done can be read, but only a flush, or a write that is
//! itself durable, binds it to the platter. When power is cut, any subset of the unflushed 512-byte sectors
//! is on the platter: the cache may have written back what it liked, in any order. A write that is under way
//! may have reached the platter in part. What a returned flush covers, and a durable write that returned, is
//! there.

mod drive;
mod face;
mod shelf;

pub use drive::{Astray, DiskFaults, DiskLatency};
pub(super) use drive::{Content, Drive, Operation, draw};
pub(super) use face::OpenFile;
pub use face::{Disk, SharedDisk};
pub(super) use shelf::{DiskNumber, DiskOpNumber, Shelf};

/// What power cuts tear at: no disk tears a smaller unit.
pub const SECTOR: u64 = 512;
