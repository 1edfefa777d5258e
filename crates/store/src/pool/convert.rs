//! Converting a thick volume to a log volume, or the other way round: what the catalog says of it.
//!
//! The copying is done by the open slices ([`Slice::convert_some`](crate::Slice::convert_some)). Why it is
//! done like this: `docs/why/pool.md`, *Converting a volume*.

use std::rc::Rc;

use super::volumes::{Space, info};
use super::{Inner, Pool, Superblocks, VolumeInfo, ZeroingWatch, to_the_end};
use crate::catalog::{Compression, OtherLayout, SpacePolicy, VolumeEntry, VolumeKind};
use crate::error::StoreError;
use crate::extent::ExtentRun;
use crate::id::VolumeId;

impl Pool {
    /// Gives a volume the space of another kind, so that it can be copied there; reports the zeroing of that
    /// space to `watch`. `compression` is that of a log volume, and `checksums` says whether a thick one gets
    /// some.
    ///
    /// Afterwards the caller tells the open slices
    /// ([`Slice::begin_conversion`](crate::Slice::begin_conversion)). Slices that are opened later know.
    ///
    /// A clone that is converted does not need what it was made of any more.
    ///
    /// # Errors
    /// [`StoreError::NotConvertible`]; [`StoreError::BeingConverted`]; [`StoreError::HasClones`];
    /// [`StoreError::DiskIsLeaving`]; [`StoreError::SpaceInvalid`]: it has a reserve or a policy for a full
    /// pool, which thick volumes do not have; not enough space; or any failure to write the metadata.
    pub async fn begin_conversion(
        &self,
        id: VolumeId,
        kind: VolumeKind,
        compression: Compression,
        checksums: bool,
        watch: ZeroingWatch,
    ) -> Result<VolumeInfo, StoreError> {
        to_the_end(Rc::clone(&self.0).begin_conversion(id, kind, compression, checksums, watch)).await
    }

    /// The volumes that are being converted.
    pub fn volumes_to_convert(&self) -> Vec<VolumeId> {
        self.0.ids_of(|volume| volume.next.is_some())
    }

    /// Checks whether [`Pool::begin_conversion`] would find space now. A log volume takes the rest as it is
    /// copied.
    ///
    /// # Errors
    /// As there, except failures to write the metadata.
    pub fn check_conversion(
        &self,
        id: VolumeId,
        kind: VolumeKind,
        checksums: bool,
    ) -> Result<(), StoreError> {
        let volume = self.0.entry(id)?;
        check(id, &volume, kind)?;
        self.0.check_no_clones(&self.0.state.borrow().catalog, id, &volume)?;
        self.0.check_no_disk_leaves(id)?;
        if let Some(space) = self.0.take_other(&volume, kind, checksums)? {
            self.0.put_back(&space.runs());
        }
        Ok(())
    }

    /// Makes the layout that a volume was converted to the only one that counts. Durable when it returns.
    ///
    /// All slices must be equal in both ([`Slice::become_equal`](crate::Slice::become_equal)). Afterwards
    /// they turn to it ([`Slice::end_conversion`](crate::Slice::end_conversion)), and then
    /// [`Pool::leave_layouts`] and [`Pool::free_left_layouts`] free the space of the former one.
    ///
    /// # Errors
    /// [`StoreError::NotBeingConverted`], or any failure to write the metadata. If changes are still possible
    /// then ([`Pool::metadata_state`]), the volume was not switched.
    pub async fn switch_volume(&self, id: VolumeId) -> Result<VolumeInfo, StoreError> {
        to_the_end(Rc::clone(&self.0).end_conversion(id, true)).await
    }

    /// Gives up the layout that a volume is being converted to.
    ///
    /// Its slices have left it already ([`Slice::end_conversion`](crate::Slice::end_conversion)).
    /// [`Pool::leave_layouts`] and [`Pool::free_left_layouts`] free its space.
    ///
    /// # Errors
    /// As for [`Pool::switch_volume`].
    pub async fn cancel_conversion(&self, id: VolumeId) -> Result<VolumeInfo, StoreError> {
        to_the_end(Rc::clone(&self.0).end_conversion(id, false)).await
    }

    /// Notes that no slice of the volume uses a layout that the catalog does not name any more.
    pub fn leave_layouts(&self, id: VolumeId) {
        if let Some(live) = self.0.state.borrow_mut().volumes.get_mut(&id) {
            let left = std::mem::take(&mut live.left);
            live.unused.extend(left);
        }
    }

    /// Frees the space of the layouts that the volume has left ([`Pool::leave_layouts`]). The volume may be
    /// converted again meanwhile.
    ///
    /// # Errors
    /// Any failure to write the metadata. The rest is free when the pool is opened again.
    pub async fn free_left_layouts(&self, id: VolumeId, watch: ZeroingWatch) -> Result<(), StoreError> {
        to_the_end(Rc::clone(&self.0).free_left_layouts(id, watch)).await
    }
}

/// Whether a volume can be converted to a kind now.
fn check(id: VolumeId, volume: &VolumeEntry, kind: VolumeKind) -> Result<(), StoreError> {
    if volume.kind.other() != Some(kind) {
        return Err(StoreError::NotConvertible(id));
    }
    if volume.next.is_some() {
        return Err(StoreError::BeingConverted(id));
    }
    if !volume.space.suits(kind, volume.capacity) {
        return Err(StoreError::SpaceInvalid);
    }
    Ok(())
}

impl Inner {
    /// A part of the volume may be moving from it.
    fn check_no_disk_leaves(&self, volume: VolumeId) -> Result<(), StoreError> {
        let layout = self.layout();
        let Some(place) = layout.leaving else { return Ok(()) };
        let path = layout.disks.disk(place as u16).path().to_owned();
        Err(StoreError::DiskIsLeaving { volume, path })
    }

    /// Takes the extents that a volume needs in another kind; `None` if it takes them later.
    fn take_other(
        &self,
        volume: &VolumeEntry,
        kind: VolumeKind,
        checksums: bool,
    ) -> Result<Option<Space>, StoreError> {
        if kind != VolumeKind::Thick {
            return Ok(None);
        }
        // Its map stays where it is.
        let (space, checksums) = (SpacePolicy::default(), checksums.then(Vec::new));
        let as_thick = VolumeEntry { kind, space, checksums, ..volume.clone() };
        self.take_space(volume, &as_thick).map(Some)
    }

    async fn begin_conversion(
        self: Rc<Inner>,
        id: VolumeId,
        kind: VolumeKind,
        compression: Compression,
        checksums: bool,
        watch: ZeroingWatch,
    ) -> Result<VolumeInfo, StoreError> {
        let _change = self.begin_change()?;
        let before = self.entry(id)?;
        check(id, &before, kind)?;
        self.check_no_clones(&self.state.borrow().catalog, id, &before)?;
        self.check_no_disk_leaves(id)?;
        let space = self.take_other(&before, kind, checksums)?;
        let mut runs = space.as_ref().map(Space::runs).unwrap_or_default();
        let prepared = async {
            self.zero(&runs, &watch).await?;
            self.allocate(space.as_ref().map_or(&[][..], |space| &space.checksums[..])).await
        };
        prepared.await.inspect_err(|_| self.put_back(&runs))?;
        let _turn = self.turn().await;
        let mut catalog = self.state.borrow().catalog.clone();
        let mut now = self.entry_in(&catalog, id).inspect_err(|_| self.put_back(&runs))?;
        // Another change may have been faster.
        let allowed = match now.capacity == before.capacity {
            true => check(id, &now, kind)
                .and(self.check_no_clones(&catalog, id, &now))
                .and(self.check_no_disk_leaves(id)),
            false => Err(StoreError::BeingConverted(id)),
        };
        allowed.inspect_err(|_| self.put_back(&runs))?;
        let slices = now.stripe.slices();
        let (of_slices, of_checksums) = match space {
            Some(space) => (space.slices, checksums.then_some(space.checksums)),
            None => (vec![Vec::new(); slices.into()], None),
        };
        let mut next = OtherLayout {
            kind,
            slices: of_slices,
            checksums: of_checksums,
            branch: 0,
            origin: None,
            compression: Compression::Off,
        };
        if kind == VolumeKind::Log {
            let logs = self.add_logs(&mut catalog, slices).await;
            let logs = logs.inspect_err(|_| self.put_back(&runs))?;
            runs.extend(logs);
            next.branch = catalog.logs.next_branch;
            next.compression = compression;
            catalog.logs.next_branch += 1;
        }
        let volume = Rc::make_mut(&mut now);
        volume.next = Some(next);
        let info = info(id, volume, self.extent_bytes);
        catalog.volumes.insert(id, now);
        self.commit_or_put_back(catalog, &runs).await?;
        let entry = self.entry(id)?;
        self.tell_logs(&entry);
        Ok(self.with_used(info))
    }

    async fn end_conversion(self: Rc<Inner>, id: VolumeId, switched: bool) -> Result<VolumeInfo, StoreError> {
        let _change = self.begin_change()?;
        let _turn = self.turn().await;
        let mut catalog = self.state.borrow().catalog.clone();
        let mut entry = catalog.volumes.get(&id).cloned().ok_or(StoreError::NoSuchVolume(id))?;
        let volume = Rc::make_mut(&mut entry);
        let mut left = volume.next.take().ok_or(StoreError::NotBeingConverted(id))?;
        if switched {
            std::mem::swap(&mut volume.kind, &mut left.kind);
            std::mem::swap(&mut volume.slices, &mut left.slices);
            std::mem::swap(&mut volume.checksums, &mut left.checksums);
            std::mem::swap(&mut volume.branch, &mut left.branch);
            std::mem::swap(&mut volume.origin, &mut left.origin);
            std::mem::swap(&mut volume.compression, &mut left.compression);
        }
        let info = info(id, volume, self.extent_bytes);
        catalog.volumes.insert(id, entry);
        self.commit(catalog, Superblocks::OfMetadataDisks).await?;
        if let Some(live) = self.state.borrow_mut().volumes.get_mut(&id) {
            live.left.push(left);
        }
        Ok(self.with_used(info))
    }

    async fn free_left_layouts(self: Rc<Inner>, id: VolumeId, watch: ZeroingWatch) -> Result<(), StoreError> {
        let _change = self.begin_change()?;
        let turn = self.turn().await;
        let left = {
            let mut state = self.state.borrow_mut();
            let live = state.volumes.get_mut(&id).ok_or(StoreError::NoSuchVolume(id))?;
            std::mem::take(&mut live.unused)
        };
        if left.is_empty() {
            return Ok(());
        }
        let mut runs: Vec<ExtentRun> = left.iter().flat_map(OtherLayout::runs).collect();
        let branches = left.iter().filter(|layout| layout.kind == VolumeKind::Log);
        let branches: Vec<u32> = branches.map(|layout| layout.branch).collect();
        let mut committed = Ok(());
        if !branches.is_empty() {
            let mut catalog = self.state.borrow().catalog.clone();
            let before = catalog.logs.logs.len();
            let of_logs = self.drop_logs(&mut catalog).await;
            let logs = catalog.logs.logs.len();
            if logs < before {
                committed = self.commit(catalog, Superblocks::OfMetadataDisks).await;
            }
            let mut state = self.state.borrow_mut();
            if committed.is_ok() {
                state.logs.retain(|number, _| usize::from(*number) < logs);
                runs.extend(of_logs);
            }
            for branch in branches {
                state.logs.values().for_each(|log| log.remove_branch(branch));
            }
        }
        drop(turn);
        // As when a volume is deleted.
        if let Err(error) = self.zero(&runs, &watch).await {
            tracing::warn!(volume = %id, %error, "the space of a converted volume could not be released on the disk");
        }
        self.put_back(&runs);
        committed
    }
}
