//! A pool: disks that together hold volumes, and describe themselves.
//!
//! What must never happen: an acknowledged change is lost, a volume shows another's data, two servers write one
//! pool. How the three are kept is in `docs/why/pool.md`.
//!
//! A pool lives on one core. Its changes are made one after the other, each as a new generation of the catalogue
//! ([`commit`]); the data path does not wait for them.

mod commit;
mod create;
mod open;
mod volumes;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use base::{BlockSize, ByteLen};

use crate::allocator::Allocator;
use crate::budget::{RamBudget, RamGrant};
use crate::catalog::{Catalog, Host, VolumeKind};
use crate::disks::{CoreDisks, SharedDisks};
use crate::error::StoreError;
use crate::geometry::Geometry;
use crate::id::{DiskId, PoolId, VolumeId};
use crate::stripe::Stripe;

pub use create::{CreateOptions, NewDisk};
pub use open::{OpenPool, Probe, ProbedContents, probe};
pub use volumes::{VolumeInfo, VolumeSpec};

/// Disks of a pool that have a copy of the metadata, both ends each: the first ones. Three, so that two may be
/// damaged, and not all, so that a change does not become slower with each disk.
const METADATA_DISKS: usize = 3;

/// An open pool. Cheap to clone; used by the core that opened it.
///
/// A change, once begun, goes on to its end even if its future is dropped.
#[derive(Clone)]
pub struct Pool(Rc<Inner>);

struct Inner {
    id: PoolId,
    disks: CoreDisks,
    disk_ids: Vec<DiskId>,
    geometry: Vec<Geometry>,
    ram: RamBudget,
    /// One permit: changes are made one after the other.
    changing: rt::sync::Semaphore,
    state: RefCell<State>,
}

struct State {
    /// Of the catalogue.
    generation: u64,
    /// What is durable.
    catalog: Catalog,
    metadata: MetadataState,
    /// Free extents. Taken ones belong to volumes of the catalogue, to one that is being made or grown, or to one
    /// whose space is being zeroed after it was deleted.
    allocator: Allocator,
    /// What lives as long as a volume is in the catalogue.
    volumes: BTreeMap<VolumeId, Live>,
}

/// A volume's part outside the catalogue.
#[derive(Default)]
struct Live {
    /// Cloned into each slice.
    in_use: Arc<()>,
    /// The memory of a RAM volume.
    grants: Vec<Arc<RamGrant>>,
}

/// Whether a pool's volumes can be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetadataState {
    /// They can.
    Writable,
    /// Writing the metadata failed: nobody knows what is on the disks, so nothing more is written until the pool
    /// has been reopened. Volumes go on.
    Failed,
    /// The pool was exported: whoever still has it must not write.
    Exported,
}

/// How full a pool is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Usage {
    /// What volumes can take altogether.
    pub total: ByteLen,
    /// What is left.
    pub free: ByteLen,
    /// What a volume's slices take in multiples of.
    pub extent: ByteLen,
    /// By disk, in the pool's order.
    pub disks: Vec<DiskUsage>,
}

/// How full a disk of a pool is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskUsage {
    /// Which.
    pub id: DiskId,
    /// Where it is here.
    pub path: PathBuf,
    /// What volumes can take of it.
    pub total: ByteLen,
    /// What is left.
    pub free: ByteLen,
}

impl Pool {
    /// Makes a pool of `disks`, and opens it.
    ///
    /// # Errors
    /// A disk that cannot be opened, is too small, or holds something ([`StoreError::NotEmpty`]); options that
    /// cannot be.
    pub async fn create(disks: Vec<NewDisk>, options: CreateOptions) -> Result<Pool, StoreError> {
        create::create(disks, options).await
    }

    /// Opens the pool of all these disks, in any order.
    ///
    /// # Errors
    /// With the reason and what to do: a disk is missing, damaged, foreign, of another version or pool; another
    /// server uses the pool.
    pub async fn open(paths: &[PathBuf], options: OpenPool) -> Result<Pool, StoreError> {
        open::open(paths, options).await
    }

    /// Who it is.
    pub fn id(&self) -> PoolId {
        self.0.id
    }

    /// What it is called.
    pub fn name(&self) -> String {
        self.0.state.borrow().catalog.name.clone()
    }

    /// Whether volumes can be changed.
    pub fn metadata_state(&self) -> MetadataState {
        self.0.state.borrow().metadata
    }

    /// The disks for another core (or this one): attach them there once, and open slices with them.
    pub fn share_disks(&self) -> SharedDisks {
        self.0.disks.share()
    }

    /// How full it is.
    pub fn usage(&self) -> Usage {
        self.0.usage()
    }

    /// Closes the pool so that any server may open it. All slices must have been closed and flushed.
    ///
    /// # Errors
    /// [`StoreError::VolumeOpen`], or what writing the metadata met.
    pub async fn export(&self) -> Result<(), StoreError> {
        self.0.clone().export().await
    }
}
