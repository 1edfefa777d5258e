//! Pools.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A pool: disks that hold volumes together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Pool {
    /// Its name, unique in the node.
    pub name: String,
    /// Its identity; absent while it is not open.
    pub id: Option<String>,
    /// Whether it can be used.
    pub state: PoolState,
    /// Why it is not open, or what is wrong with it.
    pub reason: Option<String>,
    /// What volumes can take altogether, in bytes.
    pub total: u64,
    /// What is left, in bytes.
    pub free: u64,
    /// What volumes take in multiples of, in bytes.
    pub extent: u64,
    /// How many volumes it has.
    pub volumes: usize,
    /// Its disks.
    pub disks: Vec<PoolDisk>,
    /// What its files may still take of their file systems, in bytes: they take space as they are written.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub promised: u64,
    /// Its file system has less free than its files, and those of other pools of the node, may still take.
    /// Absent if it has enough.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overcommit: Option<Overcommit>,
    /// The number of the node that has it; absent without a cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<u16>,
    /// The name of that node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_name: Option<String>,
}

fn is_zero(bytes: &u64) -> bool {
    *bytes == 0
}

/// What a file system lacks for pools in files that take space as they are written: when it is full, writes
/// that need new space fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Overcommit {
    /// What all pools of the node in it may still take, in bytes.
    pub promised: u64,
    /// What it has free, in bytes.
    pub free: u64,
}

/// Whether a pool can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum PoolState {
    /// All is well.
    Online,
    /// Writing its metadata failed: volumes go on, none can be made or changed until the pool has been reopened.
    ReadOnly,
    /// A disk is out of service since a write or a flush failed: what needs it fails until the pool has been reopened.
    DiskFailed,
    /// It was given away.
    Exported,
    /// It could not be opened; `reason` says why.
    Unavailable,
}

/// A disk of a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PoolDisk {
    /// The file or block device.
    pub path: String,
    /// Its identity; absent while the pool is not open.
    pub id: Option<String>,
    /// What volumes can take of it, in bytes.
    pub total: u64,
    /// What is left of it, in bytes.
    pub free: u64,
    /// Why it is out of service; absent if it is in service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<DiskFailure>,
}

/// Why a disk is out of service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DiskFailure {
    /// What the system said to a write or a flush.
    #[schema(example = "Input/output error (os error 5)")]
    pub error: String,
    /// When, in seconds since 1970.
    pub since: u64,
}

/// A pool to be made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PoolCreate {
    /// Its name: 1 to 63 letters, digits, `-`, `_` and `.`.
    #[schema(pattern = "^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")]
    pub name: String,
    /// Its disks.
    #[schema(min_items = 1)]
    pub disks: Vec<NewDisk>,
    /// Overwrite what the disks hold.
    #[serde(default)]
    pub wipe: bool,
}

/// A disk for a new pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewDisk {
    /// The file or block device, as an absolute path on the node.
    pub path: String,
    /// Make a file of this size in bytes, which must not exist. Absent: the file or block device exists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// With `size`: reserve the space in the file system now, so that it cannot run out later.
    #[serde(default)]
    pub reserve: bool,
}

/// A disk to be added to a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PoolAddDisk {
    /// The file or block device, as an absolute path on the node.
    pub path: String,
    /// Make a file of this size in bytes, which must not exist. Absent: the file or block device exists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// With `size`: reserve the space in the file system now, so that it cannot run out later.
    #[serde(default)]
    pub reserve: bool,
    /// Overwrite what the disk holds.
    #[serde(default)]
    pub wipe: bool,
}

/// A pool to be opened that was made elsewhere or earlier.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PoolImport {
    /// All of its disks, as absolute paths on the node.
    #[schema(min_items = 1)]
    pub paths: Vec<String>,
    /// What it is to be called from now on. Absent: as it is called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Take it though another server has not given it away: that server must certainly be off.
    #[serde(default)]
    pub force: bool,
}

/// What forgetting a pool that cannot be used would leave behind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PoolRemains {
    /// Its disks.
    pub disks: Vec<RemainingDisk>,
    /// Its volumes, by name; absent if none of the disks can tell.
    pub volumes: Option<Vec<RemainingVolume>>,
    /// LUN maps that lead to them. If none of the disks can tell: those to volumes that no open pool has.
    pub maps: Vec<RemainingMap>,
}

/// A disk of a pool that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RemainingDisk {
    /// The file or block device.
    pub path: String,
    /// Why it does not tell what is on it.
    pub problem: Option<String>,
}

/// A volume of a pool that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RemainingVolume {
    /// Its identity.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Its size in bytes.
    pub size: u64,
}

/// A LUN map that leads to a volume of a pool that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RemainingMap {
    /// The target's iSCSI name.
    pub target: String,
    /// The logical unit number there.
    pub lun: u16,
    /// The host group.
    pub host: String,
    /// The volume's identity.
    pub volume_id: String,
}

/// How to forget a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PoolForget {
    /// Delete the LUN maps of its volumes, too. Otherwise they stay, and work again when the pool has been imported.
    #[serde(default)]
    pub unmap: bool,
}
