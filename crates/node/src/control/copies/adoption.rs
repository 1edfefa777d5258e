//! Volumes with a single copy, which hosts use without asking anybody: they get into the cluster's record,
//! and get other copies, while hosts use them.
//!
//! Such a volume is *sole*: no configuration has ever named another copy. Its pool and the record both say
//! so. It is served from its pool alone, from the moment that the pool is open, whether the record can be
//! asked or not; its slices are no copies yet, and writes cost what they cost on a node without a cluster.
//!
//! That ends when it is to get another copy. First its pool says durably that it is one of several from now
//! on, and gives it a dirty map; then its slices become copies, each when what hosts do there has ended; and
//! only then does the record get a configuration with the other one, which by that is not sole any more. A
//! node that crashes in between opens it like any copy, when the record says that it is the only one in sync.
//!
//! So a pool that has a sole copy where the record knows of others was set back to the time before, and so
//! was one that has no copy at all. What it holds is taken for such a copy, and not served
//! (`docs/why/replication.md`, *Copies that were set back*). The pool's mark shows that, too, but not where
//! it was compared before the pool had this copy.

use std::rc::Rc;

use store::{ClusterId, CopyOf, CopyState, Pool, StoreError, VolumeInfo};

use super::super::change::{WaitsFor, Work};
use super::super::doing::Doing;
use super::super::relocation::TIDY_EVERY;
use super::super::turns::Thing;
use super::super::{Control, ControlError, Fault, FaultKind, VolumeStatus};
use super::creation::{Made, NewEntry, record_volume};
use super::without_volume;
use crate::copies::{Cause, Keeper, VolumeEntry, json, volume_key, volume_name_key};
use crate::parts::A_TURN;
use crate::shard::{Shard, on_all_cores};
use crate::volume::VolumeId;

/// How what is here of a volume is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServedAs {
    /// From its pool alone.
    Sole,
    /// As one of several copies, as the record says.
    Copy,
}

impl Control {
    /// Makes a volume that this node alone has ready for copies elsewhere: it gets into the cluster's record,
    /// and its slices become copies. Returns when it serves as one.
    ///
    /// # Errors
    /// [`ControlError::Exists`]: another volume of the cluster has its name. No space for its dirty map; what
    /// the cluster's record says.
    pub(in crate::control) async fn make_ready_for_copies(
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
                control.record_sole(&keeper, &volume).await?;
            }
            changing.waits_for(WaitsFor::Disks(pool.paths()));
            if control.adopt_what_is_recorded(&keeper, volume.id).await? == ServedAs::Sole {
                control.end_sole(&keeper, &pool, volume.id).await?;
            }
            keeper.open_volumes_soon();
            changing.waits_for(WaitsFor::Cores);
            keeper.until_serves(volume.id).await;
            Ok(())
        })
        .await
    }

    /// Has the cluster's record know all volumes that are here: those that the node had before it was in the
    /// cluster, and those of pools that come from elsewhere; and not those that have left with their pools.
    pub(in crate::control) async fn keep_recorded(self: Rc<Control>, keeper: Rc<Keeper>) {
        while !keeper.is_stopping() {
            rt::sleep(TIDY_EVERY).await;
            if keeper.knows_this_life() && keeper.expelled().is_none() {
                self.record_what_is_here(&keeper).await;
            }
            // What could not be opened when it was heard of.
            keeper.open_volumes_soon();
        }
    }

    async fn record_what_is_here(self: &Rc<Control>, keeper: &Rc<Keeper>) {
        self.forget_what_is_gone(keeper).await;
        for pool in self.open_pools() {
            for (number, id) in pool.sole_volumes().into_iter().enumerate() {
                if number > 0 && number.is_multiple_of(A_TURN) {
                    rt::next_turn().await;
                }
                if self.is_unknown(keeper, &pool, id)
                    && let Err(error) = self.record_found(keeper, &pool, id).await
                {
                    // Without a quorum that is so of all of them.
                    return tracing::debug!(volume = %id, %error, "a volume of this node is not in the cluster's record yet");
                }
            }
        }
    }

    async fn record_found(
        self: &Rc<Control>,
        keeper: &Rc<Keeper>,
        pool: &Pool,
        id: VolumeId,
    ) -> Result<(), ControlError> {
        let Some(info) = pool.volume(id) else { return Ok(()) };
        let (control, keeper, pool) = (Rc::clone(self), Rc::clone(keeper), pool.clone());
        self.change(Work::new(Doing::AdoptVolume, &info.name), |changing| async move {
            changing.concerns(id);
            let _volume = changing.hold([Thing::Volume(id)]).await?;
            let Some(volume) = pool.volume(id).filter(|_| !keeper.has(id)) else { return Ok(()) };
            changing.waits_for(WaitsFor::ClusterRecord);
            control.record_sole(&keeper, &volume).await?;
            changing.waits_for(WaitsFor::Disks(pool.paths()));
            control.adopt_what_is_recorded(&keeper, id).await.map(drop)
        })
        .await
    }

    /// Volumes that are here alone, as the record says, and that no pool has any more, for it was exported or
    /// forgotten, leave the record. They get into it again where the pool is imported.
    async fn forget_what_is_gone(&self, keeper: &Keeper) {
        if !self.all_pools_are_open() {
            return;
        }
        for id in keeper.sole_here() {
            if self.copies_of(id).is_empty()
                && !self.being_made.borrow().contains_key(&id)
                && let Err(error) = forget_sole(keeper, id).await
            {
                tracing::debug!(volume = %id, %error, "a volume that has left with its pool is still in the cluster's record");
            }
        }
    }

    /// Whether the record can get a volume that it does not have: one that is neither being made for it nor
    /// deleted.
    fn is_unknown(&self, keeper: &Keeper, pool: &Pool, id: VolumeId) -> bool {
        let is_made = self.being_made.borrow().contains_key(&id);
        !keeper.has(id) && !is_made && !keeper.is_deleted(id) && self.name_taken(keeper, pool, id).is_none()
    }

    /// What a volume here is called, if the cluster's record has another one of that name: it cannot get into
    /// the record.
    fn name_taken(&self, keeper: &Keeper, pool: &Pool, id: VolumeId) -> Option<String> {
        let name = pool.volume(id)?.name;
        let named = keeper.get::<String>(&volume_name_key(&name));
        named.is_some_and(|(other, _)| other != id.to_string()).then_some(name)
    }

    /// Volumes here of which the cluster does not know, since it has others of their names.
    pub(in crate::control) fn unrecorded(&self) -> Vec<Fault> {
        let Some(keeper) = self.keeper() else { return Vec::new() };
        let fault = |pool: &Pool, id: VolumeId| {
            let volume = self.name_taken(&keeper, pool, id).filter(|_| !keeper.has(id))?;
            Some(FaultKind::VolumeNameTaken { pool: pool.name(), id: id.to_string(), volume }.into())
        };
        let of_pool = |pool: Pool| {
            pool.sole_volumes().into_iter().filter_map(move |id| fault(&pool, id)).collect::<Vec<_>>()
        };
        self.open_pools().into_iter().flat_map(of_pool).collect()
    }

    /// Gives the record a volume that it does not have.
    async fn record_sole(&self, keeper: &Keeper, volume: &VolumeInfo) -> Result<(), ControlError> {
        let made = Made::here(keeper);
        let new = NewEntry {
            id: volume.id,
            name: &volume.name,
            size: volume.capacity.0,
            reason: Cause::VolumeAdopted,
            made: &made,
        };
        record_volume(keeper, &new).await?;
        keeper.until_known(&volume_key(volume.id)).await;
        Ok(())
    }

    /// Other nodes may get copies from now on. The caller holds the volume, and has it opened as a copy.
    async fn end_sole(&self, keeper: &Keeper, pool: &Pool, id: VolumeId) -> Result<(), ControlError> {
        let key = volume_key(id);
        let gone = || ControlError::not_found("volume", &id.to_string());
        let (entry, revision) = keeper.get::<VolumeEntry>(&key).ok_or_else(gone)?;
        let (_, copy) = entry.copy_on(keeper.me()).ok_or_else(gone)?;
        let kept = CopyOf { slot: copy.slot, ..first_copy(keeper, CopyState::Trusted { epoch: copy.made }) };
        pool.make_copy(id, kept).await?;
        // The record may have it from an earlier life. In this one it is served already, and in sync from the
        // beginning.
        let mut next = VolumeEntry { sole: false, epoch: entry.epoch + 1, ..entry };
        next.copies.iter_mut().for_each(|copy| copy.incarnation = keeper.incarnation().0);
        let transaction = Keeper::transaction().expect(&key, Some(revision)).put(&key, json(&next));
        keeper.commit(transaction).await?;
        if keeper.get::<VolumeEntry>(&key).is_none_or(|(entry, _)| entry.epoch < next.epoch) {
            return Err(ControlError::BeingAdopted(next.name));
        }
        keeper.end_sole(id);
        self.unvouched.notify();
        Ok(())
    }

    /// Whether this node alone has a volume, and its slices are no copies yet.
    pub(in crate::control) fn is_sole_here(&self, keeper: &Keeper, name: &str) -> bool {
        match keeper.entry_named(name) {
            Some((id, _)) => self.has_sole(id),
            None => self.volume_named(name).is_ok_and(|(_, info)| info.is_sole()),
        }
    }

    /// Whether a volume that this node alone has could get into the record, and a dirty map.
    ///
    /// # Errors
    /// As [`Control::make_ready_for_copies`], but for what the record says.
    fn check_adoption(&self, keeper: &Keeper, pool: &Pool, volume: &VolumeInfo) -> Result<(), ControlError> {
        let named = keeper.get::<String>(&volume_name_key(&volume.name));
        if named.is_some_and(|(id, _)| id != volume.id.to_string()) {
            return Err(ControlError::Exists { kind: "volume", name: volume.name.clone() });
        }
        match volume.is_sole() {
            false => Ok(()),
            true => Ok(pool.check_make_copy(volume.id, first_copy(keeper, CopyState::Blank))?),
        }
    }

    /// Whether a volume that this node alone has could get a copy elsewhere.
    ///
    /// # Errors
    /// As [`Control::make_ready_for_copies`], but for what the record says; a copy that is to move from
    /// another node.
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

    /// The record has a copy of a volume here: has its pool know that, if it does not yet, and says how it is
    /// served.
    ///
    /// # Errors
    /// What the pool or the record says.
    pub(crate) async fn adopt_what_is_recorded(
        &self,
        keeper: &Keeper,
        id: VolumeId,
    ) -> Result<ServedAs, ControlError> {
        let Some((entry, revision)) = keeper.get::<VolumeEntry>(&volume_key(id)) else {
            return Ok(ServedAs::Copy);
        };
        let Some((_, copy)) = entry.copy_on(keeper.me()) else { return Ok(ServedAs::Copy) };
        let found = self.copies_of(id);
        // Two pools have it if one had been given up, and is back.
        let is_sole = entry.sole && found.len() == 1;
        let mut served = ServedAs::Copy;
        for (pool, info) in &found {
            let is_new = info.copy.is_some_and(|copy| copy.state == CopyState::New);
            if !info.is_sole() && !is_new {
                continue;
            }
            let state = match is_sole {
                true => CopyState::Sole,
                false => CopyState::SetBack { epoch: copy.made },
            };
            if !is_sole {
                self.serve_no_more(pool, info).await;
            }
            let kept = CopyOf { slot: copy.slot, ..first_copy(keeper, state) };
            if info.copy != Some(kept) {
                match pool.make_copy(id, kept).await {
                    // Who makes it ready for copies and who opens what is recorded both do this.
                    Ok(_) | Err(StoreError::AlreadyACopy(_)) => {}
                    Err(error) => return Err(error.into()),
                }
                self.unvouched.notify();
            }
            if is_sole {
                served = ServedAs::Sole;
            }
        }
        let capacity = found.iter().map(|(_, info)| info.capacity.0).max().unwrap_or_default();
        let next = match served {
            // It was made larger, and its node crashed before the record knew. Hosts have seen that size.
            ServedAs::Sole if capacity > entry.size => {
                VolumeEntry { size: capacity, epoch: entry.epoch + 1, reason: Cause::VolumeResized, ..entry }
            }
            // It was about to get another copy.
            ServedAs::Copy if entry.sole && !found.is_empty() => {
                VolumeEntry { sole: false, epoch: entry.epoch + 1, ..entry }
            }
            _ => return Ok(served),
        };
        let transaction =
            Keeper::transaction().expect(&volume_key(id), Some(revision)).put(&volume_key(id), json(&next));
        keeper.commit(transaction).await?;
        Ok(served)
    }

    /// Serves the sole copy of a volume from its pool, if that is open and it is not served yet. Says whether
    /// it is.
    pub(crate) async fn serve_sole(self: &Rc<Control>, id: VolumeId) -> bool {
        if Shard::current().unit(id).is_some() {
            return true;
        }
        let Some((pool, info)) = self.current_of(self.copies_of(id)) else { return false };
        self.being_made.borrow_mut().remove(&id);
        match self.open_new_volume(&pool, &info).await {
            Ok(()) => {
                self.unserved.borrow_mut().remove(&id);
                self.announce_volumes().await;
                true
            }
            Err(error) => {
                let cause = &error as &dyn std::error::Error;
                tracing::error!(volume = info.name, error = cause, "a volume is not served");
                self.unserved.borrow_mut().insert(id, error);
                false
            }
        }
    }

    /// Whether a pool here has the sole copy of the volume.
    pub(crate) fn has_sole(&self, id: VolumeId) -> bool {
        self.copies_of(id).iter().any(|(_, info)| info.is_sole())
    }

    /// A volume of the cluster has no copy here, as the record says. What a pool here has of it, that does
    /// not know of others, is from the time before it had any; or the volume has gone to another node with
    /// its pool.
    pub(crate) async fn note_no_copy(&self, id: VolumeId) {
        let older = self.copies_of(id).into_iter().find(|(_, info)| info.is_sole());
        let Some((pool, info)) = older.filter(|_| !self.being_made.borrow().contains_key(&id)) else {
            return;
        };
        self.serve_no_more(&pool, &info).await;
        if self.keeper().and_then(|keeper| keeper.volume(id)).is_some_and(|volume| volume.entry.sole) {
            // It may be the volume, which is on its way here.
            self.unserved.borrow_mut().remove(&id);
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
            entry.is_some_and(|entry| !entry.sole || entry.copy_on(keeper.me()).is_none())
        };
        !info.is_sole() || self.keeper().is_some_and(is_recorded)
    }

    /// Whether changes of a volume here go through the cluster's record. Not those of a volume that the
    /// record does not have: its name is taken there, or the node has left its cluster.
    pub(in crate::control) fn is_the_clusters(&self, info: &VolumeInfo) -> bool {
        let is_recorded = || match self.keeper() {
            Some(keeper) => keeper.has(info.id),
            None => self.place().is_some(),
        };
        info.copy.is_some() && (!info.is_sole() || is_recorded())
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

/// Takes a volume that has never had another copy than the one that it has out of the record, with its data
/// left where it is.
///
/// # Errors
/// What the record says.
pub(in crate::control) async fn forget_sole(keeper: &Keeper, id: VolumeId) -> Result<(), ControlError> {
    let key = volume_key(id);
    let Some((entry, revision)) = keeper.get::<VolumeEntry>(&key).filter(|(entry, _)| entry.sole) else {
        return Ok(());
    };
    keeper.commit(without_volume(keeper, &entry, id, revision)).await?;
    tracing::info!(
        volume = entry.name,
        "the volume has left the cluster's record, with its pool or its node"
    );
    Ok(())
}

/// The first copy of a volume.
fn first_copy(keeper: &Keeper, state: CopyState) -> CopyOf {
    CopyOf { cluster: ClusterId(keeper.cluster().0), slot: 0, state }
}
