//! Volumes.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Volume {
    /// Its identity for ever: also its SCSI serial number.
    pub id: String,
    /// Its name, unique in the node.
    pub name: String,
    /// Its pool.
    pub pool: String,
    /// Where its blocks are.
    pub kind: VolumeKind,
    /// Its size in bytes.
    pub size: u64,
    /// Its logical block in bytes: 512 or 4096.
    pub block_size: u32,
    /// Its physical block in bytes.
    pub physical_block_size: u32,
    /// Over how many slices, and so cores, it is striped.
    pub slices: u16,
    /// What it takes of the pool (thick) or of memory at most (RAM), in bytes.
    pub reserved: u64,
    /// When it was made, in seconds since 1970.
    pub created: u64,
    /// Its NAA name in hexadecimal: `/dev/disk/by-id/wwn-0x...` on Linux hosts.
    pub naa: String,
    /// Where it is mapped.
    pub maps: Vec<VolumeMap>,
    /// Why it is not served, and what to do; absent if it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// Where a volume's blocks are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum VolumeKind {
    /// In place on the pool's disks, all space taken at creation.
    #[default]
    Thick,
    /// In memory: empty after each start of the node.
    Ram,
}

/// A LUN map as its volume shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VolumeMap {
    /// The target's iSCSI name.
    pub target: String,
    /// The logical unit number there.
    pub lun: u16,
    /// The host group that sees it.
    pub host: String,
}

/// A volume to be made, and the map that makes it usable. All of it is done or nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct VolumeCreate {
    /// Its name: 1 to 63 letters, digits, `-`, `_` and `.`.
    pub name: String,
    /// Its size in bytes; it is rounded up to whole blocks.
    #[schema(minimum = 1)]
    pub size: u64,
    /// The pool; absent: the only one, or the one named `default`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// Where its blocks are.
    #[serde(default)]
    pub kind: VolumeKind,
    /// The logical block: 512 or 4096.
    #[serde(default = "default_block_size")]
    #[schema(default = 512)]
    pub block_size: u32,
    /// Say that the physical block has 512 bytes, too; otherwise a volume with 512-byte blocks is a 512e one.
    #[serde(default)]
    pub native_512: bool,
    /// Over how many slices it is striped, a power of two; absent: one a core.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slices: Option<u16>,
    /// Make it a LUN of a target at once.
    #[serde(default = "yes")]
    #[schema(default = true)]
    pub map: bool,
    /// The target, made if it does not exist; absent: `iqn.2026-11.io.ursa:NAME`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// The host group to map it for; absent: `local`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// The logical unit number; absent: the lowest that is free.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 255)]
    pub lun: Option<u16>,
}

impl VolumeCreate {
    /// A thick volume with everything else as it is by default.
    pub fn new(name: impl Into<String>, size: u64) -> VolumeCreate {
        VolumeCreate {
            name: name.into(),
            size,
            pool: None,
            kind: VolumeKind::default(),
            block_size: default_block_size(),
            native_512: false,
            slices: None,
            map: true,
            target: None,
            host: None,
            lun: None,
        }
    }
}

/// What to change of a volume; what is absent stays.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct VolumeChange {
    /// Its new size in bytes, larger than it is; it is rounded up to whole blocks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// Its new name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

fn default_block_size() -> u32 {
    512
}

fn yes() -> bool {
    true
}
