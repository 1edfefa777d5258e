//! Clones: volumes that begin as a snapshot of another one of the pool.
//!
//! What must never happen: a clone exists, and what it was made of is gone.
//!
//! The catalog says which volumes are clones, and of what. So a clone is there, whole, with one commit, and
//! gone with one. The logs learn it from the pool, and keep its snapshot from then on.

use std::rc::Rc;

use rt::to_the_end;

use super::{Inner, Pool, VolumeInfo, VolumeSpec, ZeroingWatch};
use crate::catalog::{CLONE_DEPTH_MAX, Catalog, Compression, SpacePolicy, VolumeEntry, VolumeKind};
use crate::copy::CopyOf;
use crate::error::StoreError;
use crate::id::VolumeId;
use crate::log::marks::Origin;

/// What a clone was made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CloneOf {
    /// The volume.
    pub volume: VolumeId,
    /// The number of its snapshot ([`SnapshotInfo::id`](crate::SnapshotInfo::id)).
    pub snapshot: u64,
}

/// The specification of a clone. All else is as in the other volume: size, blocks, and how the volume maps to
/// slices.
#[derive(Clone, Debug)]
pub struct CloneSpec {
    /// What it is made of.
    pub of: CloneOf,
    /// As [`VolumeSpec::name`].
    pub name: String,
    /// As [`VolumeSpec::created`].
    pub created: u64,
    /// As [`VolumeSpec::id`].
    pub id: Option<VolumeId>,
    /// As [`VolumeSpec::copy`].
    pub copy: Option<CopyOf>,
    /// As [`VolumeSpec::space`].
    pub space: SpacePolicy,
    /// As [`VolumeSpec::compression`].
    pub compression: Compression,
}

impl Pool {
    /// Creates a volume that reads as a snapshot of another one did, and can be written. It takes as long for
    /// a large volume as for a small one, and no space but for what is written to it.
    ///
    /// All slices of the other volume must hold the snapshot
    /// ([`Slice::hold_snapshot`](crate::Slice::hold_snapshot)) until this has ended, also if the future is
    /// dropped, because the clone may be created all the same. From then on neither the snapshot nor the
    /// volume can be deleted before the clone is.
    ///
    /// # Errors
    /// [`StoreError::NotCloneable`]; [`StoreError::CloneTooDeep`]; [`StoreError::BeingConverted`]; and those
    /// of [`Pool::create_volume`].
    pub async fn create_clone(&self, spec: CloneSpec) -> Result<VolumeInfo, StoreError> {
        to_the_end(Rc::clone(&self.0).create_clone(spec)).await
    }

    /// What a volume is a clone of; `None` if it is none.
    pub fn clone_of(&self, id: VolumeId) -> Option<CloneOf> {
        let state = self.0.state.borrow();
        let origin = state.catalog.volumes.get(&id)?.origin?;
        let (volume, _) = state.catalog.of_branch(origin.branch)?;
        Some(CloneOf { volume, snapshot: origin.snapshot })
    }

    /// The clones of a volume's snapshots.
    pub fn clones_of(&self, id: VolumeId) -> Vec<VolumeId> {
        let Ok(of) = self.0.entry(id) else { return Vec::new() };
        let is_of_it = |origin: Origin| of.kind == VolumeKind::Log && origin.branch == of.branch;
        self.0.ids_of(|volume| volume.origin.is_some_and(is_of_it))
    }
}

/// How the logs know what a clone is made of.
pub(super) fn origin_in(catalog: &Catalog, of: CloneOf) -> Result<Origin, StoreError> {
    let CloneOf { volume, snapshot } = of;
    let entry = catalog.volumes.get(&volume).ok_or(StoreError::NoSuchVolume(volume))?;
    if entry.kind != VolumeKind::Log {
        return Err(StoreError::NotCloneable(volume));
    }
    if entry.next.is_some() {
        return Err(StoreError::BeingConverted(volume));
    }
    if catalog.clone_depth(entry).is_none_or(|depth| depth >= CLONE_DEPTH_MAX) {
        return Err(StoreError::CloneTooDeep(volume));
    }
    Ok(Origin { branch: entry.branch, snapshot })
}

impl Inner {
    async fn create_clone(self: Rc<Inner>, spec: CloneSpec) -> Result<VolumeInfo, StoreError> {
        let CloneSpec { of, name, created, id, copy, space, compression } = spec;
        let entry = self.entry(of.volume)?;
        origin_in(&self.state.borrow().catalog, of)?;
        let volume = VolumeSpec {
            name,
            kind: entry.kind,
            block_size: entry.block_size,
            physical_exponent: entry.physical_exponent,
            capacity: entry.capacity,
            slices: Some(entry.stripe.slices()),
            stripe_unit: Some(entry.stripe.unit()),
            created,
            id,
            copy,
            space,
            compression,
            checksums: false,
        };
        self.create_volume(volume, Some(of), ZeroingWatch::default()).await
    }

    /// Checks that no volume is a clone of one that is about to be deleted or converted, nor uses a layout in
    /// which it was.
    pub(super) fn check_no_clones(
        &self,
        catalog: &Catalog,
        id: VolumeId,
        volume: &VolumeEntry,
    ) -> Result<(), StoreError> {
        let state = self.state.borrow();
        let present = catalog.volumes.values().filter_map(|volume| volume.origin);
        let former = state.volumes.values().flat_map(|live| live.former()).filter_map(|layout| layout.origin);
        let is_of_it = |origin: Origin| volume.branches().any(|(branch, _)| branch == origin.branch);
        if present.chain(former).any(is_of_it) { Err(StoreError::HasClones(id)) } else { Ok(()) }
    }
}
