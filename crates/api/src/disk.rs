//! Block devices of a node's machine.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A block device or partition of a node's machine, and what uses it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BlockDevice {
    /// The path to use for a pool: under `/dev/disk/by-id` where possible, since `/dev/sdb` may be another
    /// device after a reboot.
    #[schema(example = "/dev/disk/by-id/ata-ST4000_Z3051")]
    pub path: String,
    /// Current kernel name.
    #[schema(example = "sdb")]
    pub name: String,
    /// Size in bytes.
    pub size: u64,
    /// Model, if the kernel reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The device that this is a partition of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part_of: Option<String>,
    /// Its partitions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub partitions: Vec<String>,
    /// Where it is mounted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mounted_at: Vec<String>,
    /// Devices on top of it, such as LVM, RAID and encryption.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub used_by: Vec<String>,
    /// The pool of the node that the disk belongs to, open or not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// What it holds, judged by what is at its start: `nothing`, `an ext file system`, `a disk of a pool`.
    /// Absent: it is in use, or cannot be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holds: Option<String>,
    /// It holds a disk of a pool, and no pool of the node uses it: it can be imported.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub importable: bool,
    /// Why its content is unknown, or why it cannot be written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// It holds nothing and is not in use: it can join a pool without overwriting anything.
    pub unused: bool,
}
