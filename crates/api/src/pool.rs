//! Pools.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::PoolScrub;

/// A pool: disks of one node, managed together, that volumes take their space from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Pool {
    /// Pool name, unique on the node.
    pub name: String,
    /// Pool ID; absent while the pool is not open.
    pub id: Option<String>,
    /// State of the pool.
    pub state: PoolState,
    /// Why it is not open, or what is wrong with it.
    pub reason: Option<String>,
    /// Capacity for volumes, in bytes.
    pub total: u64,
    /// Space that no volume has reserved and no log has borrowed, in bytes.
    pub free: u64,
    /// Space that volumes take, in bytes: what is reserved for them, and what log volumes use beyond that.
    pub used: u64,
    /// Its space for log volumes. Absent if it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub logs: Option<PoolLogs>,
    /// Allocation unit, in bytes.
    pub extent: u64,
    /// Number of volumes.
    pub volumes: usize,
    /// Its disks.
    pub disks: Vec<PoolDisk>,
    /// Bytes that its sparse files may still take from their file systems.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub promised: u64,
    /// Its file system has less free space than the sparse files of this and other pools of the node may
    /// still take. Absent if the space suffices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overcommit: Option<Overcommit>,
    /// Last scrubs of its volumes; absent while the pool is not open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scrub: Option<PoolScrub>,
    /// Number of the node that has the pool.
    pub node: u16,
    /// Name of that node.
    pub node_name: String,
}

fn is_zero(bytes: &u64) -> bool {
    *bytes == 0
}

/// Space of a pool for its log volumes, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PoolLogs {
    /// Space that the pool has lent to its logs.
    pub lent: u64,
    /// Part of the lent space that volumes use.
    pub used: u64,
    /// Space that is kept for the unused reserves of volumes.
    #[serde(default)]
    pub reserved: u64,
    /// Part of the used space that only snapshots need. What was overwritten in the last seconds is not
    /// counted yet, nor is anything that a restored volume may still read of its snapshots.
    #[serde(default)]
    pub snapshots: u64,
    /// Part of the used space that deleted snapshots still hold, at most. It is freed in the background.
    #[serde(default)]
    pub freeing: u64,
    /// Space that all log volumes can still take, from the lent space and from the free space of the pool.
    pub room: u64,
    /// How full the pool is, in percent: writes that need space fail at 100.
    pub percent: u8,
    /// The highest warning level that the pool has reached: 80, 90 or 95 percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub level: Option<u8>,
}

/// An overcommitted file system: it has less free space than the sparse files of pools may still take. When
/// it is full, writes that need new space fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Overcommit {
    /// Bytes that the sparse files of all pools of the node may still take from it.
    pub promised: u64,
    /// Free space of the file system, in bytes.
    pub free: u64,
}

/// State of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum PoolState {
    /// The pool works.
    Online,
    /// A metadata write failed. I/O continues, but volumes cannot be created or changed until the pool is
    /// reopened.
    ReadOnly,
    /// A disk is out of service after a failed write or flush. I/O that needs it fails until the pool is
    /// reopened.
    DiskFailed,
    /// It was exported, to be imported elsewhere.
    Exported,
    /// It could not be opened; `reason` says why.
    Unavailable,
}

/// A disk of a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PoolDisk {
    /// Path of the file or block device.
    pub path: String,
    /// Disk ID; absent while the pool is not open.
    pub id: Option<String>,
    /// Capacity for volumes, in bytes.
    pub total: u64,
    /// Free space, in bytes.
    pub free: u64,
    /// Why it is out of service; absent if it is in service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<DiskFailure>,
    /// Set while the disk is leaving the pool: what lies on it moves to the other disks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leaving: Option<DiskLeaving>,
}

/// The progress of a disk that is leaving its pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DiskLeaving {
    /// Bytes that are still to be moved.
    pub left: u64,
    /// Why it makes no progress; the node tries again every 30 seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// Why a disk is out of service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DiskFailure {
    /// The error that the system returned for the write or flush.
    #[schema(example = "Input/output error (os error 5)")]
    pub error: String,
    /// Time of the failure, in seconds since 1970.
    pub since: u64,
}

/// A pool to create.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PoolCreate {
    /// Name: 1 to 63 letters, digits, `-`, `_` and `.`.
    #[schema(pattern = "^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")]
    pub name: String,
    /// Its disks.
    #[schema(min_items = 1)]
    pub disks: Vec<NewDisk>,
    /// Overwrite what is on the disks.
    #[serde(default)]
    pub wipe: bool,
}

/// A disk for a new pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewDisk {
    /// Absolute path of the file or block device on the node.
    pub path: String,
    /// Create a file of this size in bytes; it must not exist yet. Absent: the file or block device exists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// With `size`: preallocate the space in the file system, so that it cannot run out later.
    #[serde(default)]
    pub preallocate: bool,
}

/// A disk to add to a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PoolAddDisk {
    /// Absolute path of the file or block device on the node.
    pub path: String,
    /// Create a file of this size in bytes; it must not exist yet. Absent: the file or block device exists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// With `size`: preallocate the space in the file system, so that it cannot run out later.
    #[serde(default)]
    pub preallocate: bool,
    /// Overwrite what is on the disk.
    #[serde(default)]
    pub wipe: bool,
}

/// A disk to remove from a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PoolRemoveDisk {
    /// Absolute path of the file or block device on the node, as the pool shows it.
    pub path: String,
    /// Keep the disk, which is leaving. Data that was moved stays where it is.
    #[serde(default)]
    pub cancel: bool,
}

/// A pool to import that was created elsewhere or earlier.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PoolImport {
    /// All disks of the pool, as absolute paths on the node.
    #[schema(min_items = 1)]
    pub paths: Vec<String>,
    /// New name of the pool. Absent: it keeps its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Import it even though another server has not exported it. Make sure that the other server is off.
    #[serde(default)]
    pub force: bool,
}

/// What would remain if a pool that cannot be opened is forgotten.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PoolRemains {
    /// Its disks.
    pub disks: Vec<RemainingDisk>,
    /// Its volumes, by name; absent if no disk can be read.
    pub volumes: Option<Vec<RemainingVolume>>,
    /// LUN maps of these volumes. If no disk can be read: the LUN maps of volumes that are in no open pool.
    pub maps: Vec<RemainingMap>,
}

/// A disk of a pool that cannot be opened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RemainingDisk {
    /// Path of the file or block device.
    pub path: String,
    /// Why its content cannot be read.
    pub problem: Option<String>,
}

/// A volume of a pool that cannot be opened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RemainingVolume {
    /// Volume ID.
    pub id: String,
    /// Volume name.
    pub name: String,
    /// Its size in bytes.
    pub size: u64,
}

/// A LUN map of a volume in a pool that cannot be opened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RemainingMap {
    /// The target's iSCSI name.
    pub target: String,
    /// LUN.
    pub lun: u16,
    /// The host group.
    pub host: String,
    /// Volume ID.
    pub volume_id: String,
}

/// Options for forgetting a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PoolForget {
    /// Delete the LUN maps of its volumes, too. Otherwise they stay, and work again after the pool is
    /// imported.
    #[serde(default)]
    pub unmap: bool,
}
