//! Simulated disks.
//!
//! A drive has a volatile cache. A completed write can be read, but only a flush, or durability of the write
//! itself, binds it to the platter. After a power cut, any subset of the unflushed 512-byte sectors is on the
//! platter, because the cache may have written back anything in any order. A write that is under way may have
//! reached the platter in part. Everything that a completed flush covers is on the platter, and so is every
//! completed durable write.

mod drive;
mod face;
mod shelf;

pub use drive::{Astray, DiskFaults, DiskLatency};
pub(super) use drive::{Content, Drive, Operation, draw};
pub(super) use face::OpenFile;
pub use face::{Disk, SharedDisk};
pub(super) use shelf::{DiskNumber, DiskOpNumber, Shelf};

/// The unit that power cuts tear at: no disk tears a smaller one.
pub const SECTOR: u64 = 512;
