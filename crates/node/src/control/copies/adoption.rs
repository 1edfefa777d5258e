//! A volume that this node has alone gets into the cluster's record, as one with a single copy, while hosts use
//! it.
//!
//! The record comes first: from then on the volume is the cluster's. Then its pool calls it a copy and gives it
//! a dirty map, and then its slices become copies, each when what hosts do there has ended. Until then it is
//! served as before, and may be: a copy is added elsewhere only when the pool here calls its own a copy. A node
//! that crashes in between opens the volume alone, and completes this when it opens what the record names
//! ([`Control::adopt_what_is_recorded`]).
//!
//! A pool without a copy where the record has had one for longer was set back to the time before. What it holds
//! is taken for such a copy, and not served (`docs/why/replication.md`, *Copies that were set back*). The pool's
//! mark shows that, too, but not where it was compared before the pool had this copy: for the sake of others.

use std::rc::Rc;

use store::{ClusterId, CopyOf, CopyState, Pool, StoreError, VolumeInfo};

use super::super::change::{WaitsFor, Work};
use super::super::doing::Doing;
use super::super::turns::Thing;
use super::super::{Control, ControlError, VolumeStatus};
use super::creation::{Made, NewEntry, record_volume};
use crate::copies::{Cause, CopyEntry, Keeper, VolumeEntry, json, volume_key, volume_name_key};
use crate::shard::{Shard, on_all_cores};
use crate::volume::VolumeId;

impl Control {
    /// Gives the cluster's record a volume that this node has alone; returns when it serves as a copy.
    ///
    /// # Errors
    /// [`ControlError::Exists`]: another volume of the cluster has its name. No space for its dirty map; what the
    /// cluster's record says.
    pub(in crate::control) async fn adopt_volume(
        self: &Rc<Control>,
        keeper: &Rc<Keeper>,
        name: &str,
    ) -> Result<(), ControlError> {
        let (control, keeper, (pool, before)) =
            (Rc::clone(self), Rc::clone(keeper), self.volume_named(name)?);
        self.change(Work::new(Doing::AdoptVolume, &before.name), |changing| async move {
            changing.concerns(before.id);
            let _volume = changing.hold([Thing::Volume(before.id), Thing::VolumesOf(pool.name())]).await?;
            let (pool, volume) = control.volume_still(&before)?;
            control.check_adoption(&keeper, &pool, &volume)?;
            if !keeper.has(volume.id) {
                changing.waits_for(WaitsFor::ClusterRecord);
                let made = Made::here(&keeper);
                let new = NewEntry {
                    id: volume.id,
                    name: &volume.name,
                    size: volume.capacity.0,
                    reason: Cause::VolumeAdopted,
                    made: &made,
                };
                record_volume(&keeper, &new).await?;
                keeper.until_known(&volume_key(volume.id)).await;
            }
            changing.waits_for(WaitsFor::Disks(pool.paths()));
            control.adopt_what_is_recorded(&keeper, volume.id).await?;
            keeper.open_volumes_soon();
            changing.waits_for(WaitsFor::Cores);
            keeper.until_serves(volume.id).await;
            Ok(())
        })
        .await
    }

    /// Whether this node has a volume alone, or its pool does not call it a copy yet.
    pub(in crate::control) fn is_alone(&self, keeper: &Keeper, name: &str) -> bool {
        match keeper.entry_named(name) {
            Some((id, _)) => self.copies_of(id).iter().any(|(_, info)| info.copy.is_none()),
            None => self.volume_named(name).is_ok_and(|(_, info)| info.copy.is_none()),
        }
    }

    /// Whether the record could get a volume that this node has alone.
    ///
    /// # Errors
    /// As [`Control::adopt_volume`], but for what the record says.
    fn check_adoption(&self, keeper: &Keeper, pool: &Pool, volume: &VolumeInfo) -> Result<(), ControlError> {
        let named = keeper.get::<String>(&volume_name_key(&volume.name));
        if named.is_some_and(|(id, _)| id != volume.id.to_string()) {
            return Err(ControlError::Exists { kind: "volume", name: volume.name.clone() });
        }
        match volume.copy {
            Some(_) => Ok(()),
            None => Ok(pool.check_make_copy(volume.id, first_copy(keeper, CopyState::Blank))?),
        }
    }

    /// Whether a volume that this node has alone could get a copy elsewhere.
    ///
    /// # Errors
    /// As [`Control::adopt_volume`], but for what the record says; a copy that is to move from another node.
    pub(in crate::control) fn check_first_copy(
        &self,
        keeper: &Keeper,
        volume: &str,
        instead_of: Option<u16>,
    ) -> Result<VolumeStatus, ControlError> {
        let (pool, info) = self.volume_named(volume)?;
        self.check_adoption(keeper, &pool, &info)?;
        match instead_of.filter(|node| *node != keeper.me().0) {
            Some(node) => Err(ControlError::HasNoCopy { volume: info.name, node }),
            None => Ok(self.volume_status(info, &pool.name())),
        }
    }

    /// The record has a copy of a volume here: has its pool call it one, too, if it does not yet.
    ///
    /// # Errors
    /// What the pool says.
    pub(crate) async fn adopt_what_is_recorded(
        &self,
        keeper: &Keeper,
        id: VolumeId,
    ) -> Result<(), ControlError> {
        let found = self.copies_of(id);
        let [(pool, info)] = found.as_slice() else { return Ok(()) };
        if info.copy.is_some() {
            return Ok(());
        }
        let Some((entry, revision)) = keeper.get::<VolumeEntry>(&volume_key(id)) else { return Ok(()) };
        let Some((_, copy)) = entry.copy_on(keeper.me()) else { return Ok(()) };
        if entry.is_being_adopted() && copy.incarnation != keeper.incarnation().0 {
            // It was recorded in an earlier life. In this one it is served already, and is in sync from the beginning.
            let mut next = VolumeEntry { epoch: entry.epoch + 1, ..entry.clone() };
            next.copies.iter_mut().for_each(|copy| copy.incarnation = keeper.incarnation().0);
            let transaction = Keeper::transaction()
                .expect(&volume_key(id), Some(revision))
                .put(&volume_key(id), json(&next));
            return Ok(keeper.commit(transaction).await?);
        }
        let state = state_of(&entry, copy);
        if matches!(state, CopyState::SetBack { .. }) {
            self.serve_no_more(pool, info).await;
        }
        let kept = CopyOf { slot: copy.slot, ..first_copy(keeper, state) };
        match pool.make_copy(id, kept).await {
            // Who has recorded it and who opens what is recorded both do this.
            Ok(_) | Err(StoreError::AlreadyACopy(_)) => {}
            Err(error) => return Err(error.into()),
        }
        self.unvouched.notify();
        Ok(())
    }

    /// A volume of the cluster has no copy here, as the record says. What a pool here has of it, that does not call it a
    /// copy, is from the time before it was the cluster's.
    pub(crate) async fn note_no_copy(&self, id: VolumeId) {
        let older = self.copies_of(id).into_iter().find(|(_, info)| info.copy.is_none());
        if let Some((pool, info)) = older {
            self.serve_no_more(&pool, &info).await;
        }
    }

    async fn serve_no_more(&self, pool: &Pool, info: &VolumeInfo) {
        let (id, volume, pool) = (info.id, info.name.clone(), pool.name());
        tracing::error!(
            volume,
            pool,
            "a pool holds a volume as it was before other nodes got copies: it is not served"
        );
        on_all_cores(move || async move { Shard::current().remove_unit(id).await }).await;
        self.unserved.borrow_mut().insert(id, ControlError::OldCopy { volume, pool });
    }

    /// Whether the record decides when, and whether, a volume of an open pool is served.
    pub(in crate::control) fn is_served_by_record(&self, info: &VolumeInfo) -> bool {
        let is_recorded = |keeper: Rc<Keeper>| {
            let entry = keeper.volume(info.id).map(|volume| volume.entry);
            entry.is_some_and(|entry| !entry.is_being_adopted() || entry.copy_on(keeper.me()).is_none())
        };
        info.copy.is_some() || self.keeper().is_some_and(is_recorded)
    }

    /// Whether a volume that no pool here calls a copy may be changed as one that this node has alone.
    ///
    /// # Errors
    /// It is getting into the cluster's record, or is older than what that has.
    pub(in crate::control) fn check_alone(&self, pool: &Pool, info: &VolumeInfo) -> Result<(), ControlError> {
        let recorded = self.keeper().and_then(|keeper| Some((keeper.volume(info.id)?.entry, keeper.me())));
        let volume = info.name.clone();
        match recorded {
            None => Ok(()),
            Some((entry, me)) if entry.copy_on(me).is_some() => Err(ControlError::BeingAdopted(volume)),
            Some(_) => Err(ControlError::OldCopy { volume, pool: pool.name() }),
        }
    }
}

/// The first copy of a volume.
fn first_copy(keeper: &Keeper, state: CopyState) -> CopyOf {
    CopyOf { cluster: ClusterId(keeper.cluster().0), slot: 0, state }
}

/// What a volume is worth that its pool does not call a copy.
fn state_of(entry: &VolumeEntry, copy: &CopyEntry) -> CopyState {
    let epoch = copy.made;
    if entry.is_being_adopted() { CopyState::Trusted { epoch } } else { CopyState::SetBack { epoch } }
}
