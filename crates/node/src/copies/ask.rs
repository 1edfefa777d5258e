//! What one node asks another for.

use serde::{Deserialize, Serialize};

use super::entry::NewCopy;

/// A question.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ask {
    /// Make a copy of a volume. It is not served before the record says so.
    MakeCopy(NewCopy),
    /// Delete the copy of a volume that could not be made or added, or is no more.
    DropCopy {
        /// The volume's identity.
        id: String,
    },
    /// Make the copy of a volume as large as the volume is about to be.
    GrowCopy {
        /// The volume's identity.
        id: String,
        /// The capacity in bytes.
        size: u64,
    },
    /// The checksums of a volume's copy, region by region.
    Checksum {
        /// The volume's identity.
        id: String,
    },
}

/// Its answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// It is done, in this life of the node.
    Done {
        /// The life.
        incarnation: u64,
    },
    /// One CRC32C over all of the copy's blocks, slice by slice.
    Checksum(Vec<u32>),
}
