//! A part of a disk that cannot be read.

use serde::{Deserialize, Serialize};

/// Bytes that a disk could not read, and the volume's blocks that they hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskRange {
    /// The number of the node that has the disk.
    pub node: u16,
    /// The name of the disk's pool.
    pub pool: String,
    /// The disk's path.
    pub disk: String,
    /// Where the range begins on the disk, in bytes.
    pub offset: u64,
    /// Its length in bytes.
    pub len: u64,
    /// The first block of the volume in the range.
    pub lba: u64,
    /// How many blocks of the volume it touches.
    pub blocks: u64,
}
