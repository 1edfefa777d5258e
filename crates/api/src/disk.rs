//! Block devices of a node's machine.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A block device of a node's machine, or a partition of one, and what uses it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BlockDevice {
    /// What names it to a pool: below `/dev/disk/by-id` if it is there, since `/dev/sdb` may be another one after the next start.
    #[schema(example = "/dev/disk/by-id/ata-ST4000_Z3051")]
    pub path: String,
    /// What the kernel calls it at present.
    #[schema(example = "sdb")]
    pub name: String,
    /// In bytes.
    pub size: u64,
    /// What its maker calls it, where the kernel says that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The device that it is a partition of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part_of: Option<String>,
    /// Its partitions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub partitions: Vec<String>,
    /// Where it is mounted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mounted_at: Vec<String>,
    /// Devices that are made of it, as LVM, RAID and encryption do.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub used_by: Vec<String>,
    /// The pool of the node that it is a disk of, open or not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// What it holds, in words, by what is written at its start: `nothing`, `an ext file system`, `a disk of a pool`. Absent: it is in use, or cannot be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holds: Option<String>,
    /// Why it is not known what it holds, or why nothing can be written to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// It holds nothing, and nothing is known to use it: a pool takes it without overwriting anything.
    pub unused: bool,
}
