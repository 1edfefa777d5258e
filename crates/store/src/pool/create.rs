//! Making a pool.

use std::path::PathBuf;

use base::ByteLen;

use super::Pool;
use crate::budget::RamBudget;
use crate::catalog::Host;
use crate::error::StoreError;

/// A disk for a new pool.
#[derive(Clone, Debug)]
pub struct NewDisk {
    /// Where it is.
    pub path: PathBuf,
    /// Make a file of this size, which must not exist. `None`: it exists (a file or a block device).
    pub create: Option<ByteLen>,
    /// With `create`: reserve the space in the file system now, so that it cannot run out later.
    pub reserve: bool,
}

/// How to make a pool.
#[derive(Clone, Debug)]
pub struct CreateOptions {
    /// What it is called; a name like a volume's.
    pub name: String,
    /// Who makes it, and has it open then.
    pub host: Host,
    /// The size of extents, `None` for one that fits the pool. Each slice of a volume takes whole extents.
    pub extent: Option<ByteLen>,
    /// Overwrite what the disks hold.
    pub wipe: bool,
    /// The memory for RAM volumes, shared with the node's other pools.
    pub ram: RamBudget,
}

pub(super) async fn create(disks: Vec<NewDisk>, options: CreateOptions) -> Result<Pool, StoreError> {
    todo!()
}
