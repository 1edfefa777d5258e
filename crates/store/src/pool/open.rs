//! Opening a pool: which disks there are, which generation counts, and whether we may.

use std::path::{Path, PathBuf};

use base::ByteLen;

use super::{Pool, VolumeInfo};
use crate::budget::RamBudget;
use crate::catalog::Host;
use crate::error::StoreError;
use crate::id::{DiskId, PoolId};

/// How to open a pool.
#[derive(Clone, Debug)]
pub struct OpenPool {
    /// Who opens it.
    pub host: Host,
    /// Open it although another server may be using it: an administrator has said that it does not.
    pub force: bool,
    /// The memory for RAM volumes, shared with the node's other pools.
    pub ram: RamBudget,
}

/// What a disk tells about its pool.
#[derive(Clone, Debug)]
pub struct Probe {
    /// The pool.
    pub pool: PoolId,
    /// The disk.
    pub disk: DiskId,
    /// The disk's place in the pool, from 0.
    pub index: u16,
    /// How many disks the pool has.
    pub count: u16,
    /// The part of the disk that the pool uses.
    pub size: ByteLen,
    /// What the metadata on this disk says, if it has some that is whole.
    pub contents: Option<ProbedContents>,
}

/// What the metadata on a disk says.
#[derive(Clone, Debug)]
pub struct ProbedContents {
    /// The pool's name.
    pub name: String,
    /// Who used it last.
    pub host: Host,
    /// That host closed it, and any other may open it.
    pub exported: bool,
    /// Its volumes, by name.
    pub volumes: Vec<VolumeInfo>,
}

/// Looks at a disk without changing it.
///
/// # Errors
/// As for [`Pool::open`], as far as one disk can tell.
pub async fn probe(path: &Path) -> Result<Probe, StoreError> {
    todo!()
}

pub(super) async fn open(paths: &[PathBuf], options: OpenPool) -> Result<Pool, StoreError> {
    todo!()
}
