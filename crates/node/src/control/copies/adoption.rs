//! Sole copies: how they get into the cluster's record and get other copies, while hosts use the volume.
//!
//! A volume is *sole* if no configuration has ever named another copy. Its pool and the record both say so.
//! The node serves it from its pool alone as soon as the pool is open, whether or not the record can be
//! reached. Its slices are not copies yet, so nothing is asked of any other node.
//!
//! This ends when the volume is to get another copy. First the pool durably marks it as one of several copies
//! and gives it a dirty map. Then its slices become copies, each once the hosts' commands there have ended.
//! Only then does the record get a configuration with the other copy, and the volume is no longer sole. A
//! node that crashes in between opens the copy like any other one, when the record says that it is the only
//! one in sync.
//!
//! So if a pool has a sole copy but the record knows others, the pool was set back to the time before; so was
//! a pool that has no copy at all. What it holds is treated as a copy that was set back, and is not served
//! (`docs/why/replication.md`, *Copies that were set back*). The pool's mark usually shows this, too, but not
//! if it was compared before the pool had this copy. If another pool of the node has the copy that the record
//! means, the one that was set back is only an old one.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use proto::scsi::LuState;
use store::{ClusterId, CopyOf, CopyState, Pool, PoolId, StoreError, VolumeInfo};

use super::super::change::WaitsFor;
use super::super::doing::Doing;
use super::super::members::NEXT_NODE;
use super::super::snapshots::is_being_cloned;
use super::super::tidying::TIDY_EVERY;
use super::super::turns::Thing;
use super::super::volumes::compression_in_logs;
use super::super::{Beat, Control, ControlError, Fault, FaultKind, Result, VolumeStatus};
use super::asked::ASKED_MAX;
use super::creation::{Made, NewEntry, record_volume};
use super::without_volume;
use crate::copies::{Cause, ShapeEntry, VolumeEntry, volume_key, volume_name_key};
use crate::data::VolumeId;
use crate::member::{ClusterError, Reconciler, json};
use crate::shard::{Shard, on_all_cores};
use crate::yielding::ITEMS_PER_TURN;

/// Copies are added in epoch 1 or later: no configuration means a copy of this one.
const OF_NO_CONFIGURATION: u64 = 0;

/// How long an import or export of a pool waits for the record.
const RECORD_NOW_MAX: Duration = Duration::from_secs(2);

/// How this node serves its data of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServedAs {
    /// From its pool alone.
    Sole,
    /// As one of several copies, as the record says.
    Copy,
}

impl Control {
    /// Makes a sole volume ready for copies on other nodes; returns when it is served as a copy.
    ///
    /// The volume gets into the cluster's record, and its slices become copies.
    ///
    /// # Errors
    /// [`ControlError::Exists`]: another volume of the cluster has its name.
    /// [`ControlError::InSeveralPools`]. No space for its dirty map; errors of the cluster's record.
    pub(in crate::control) async fn make_ready_for_copies(
        self: &Rc<Control>,
        reconciler: &Rc<Reconciler>,
        name: &str,
    ) -> Result<()> {
        let reconciler = Rc::clone(reconciler);
        let (before, pool) = self.volume_and_pool_name(name)?;
        let work = Doing::AdoptVolume.of(&before.name);
        self.change(work, Thing::volume_in(before.id, pool), |control, changing| async move {
            let (pool, volume) = control.volume_still(&before)?;
            control.check_adoption(&reconciler, &pool, &volume)?;
            if !reconciler.has(volume.id) {
                changing.waits_for(WaitsFor::Disks(pool.paths()));
                control.note_sole(&reconciler, &pool, &volume).await?;
                changing.waits_for(WaitsFor::ClusterRecord);
                control.record_sole(&reconciler, &volume).await?;
            }
            changing.waits_for(WaitsFor::Disks(pool.paths()));
            if control.adopt_what_is_recorded(&reconciler, volume.id).await? == ServedAs::Sole {
                control.end_sole(&reconciler, &pool, volume.id).await?;
            }
            reconciler.open_volumes_soon();
            changing.waits_for(WaitsFor::Cores);
            reconciler.until_serves(volume.id).await;
            Ok(())
        })
        .await
    }

    /// Keeps the cluster's record complete as to the volumes on this node.
    ///
    /// It adds volumes that the node had before it was in the cluster, those of pools that come from
    /// elsewhere, and those that were being created when the node crashed. It removes volumes that have left
    /// with their pools.
    pub(in crate::control) async fn keep_recorded(self: Rc<Control>, reconciler: Rc<Reconciler>) {
        let began = rt::now();
        while !reconciler.is_stopping() {
            Beat::Recording.wait(TIDY_EVERY).await;
            // Another node may have asked an earlier life for it, and add it yet.
            let is_alone = reconciler.revision_of(NEXT_NODE).is_none();
            let with_new = is_alone || rt::now().since(began) > ASKED_MAX;
            self.record_what_is_here(&reconciler, with_new).await;
            // Retries volumes that could not be opened when the record announced them.
            reconciler.open_volumes_soon();
        }
    }

    /// Brings the record up to date with a pool that has come or gone, so that the caller sees its volumes
    /// listed, or no longer listed. What takes too long is left to [`Control::keep_recorded`].
    pub(in crate::control) async fn record_pools_now(self: &Rc<Control>) {
        let Ok(reconciler) = self.reconciler() else { return };
        let _late = rt::timeout(RECORD_NOW_MAX, self.record_what_is_here(&reconciler, false)).await;
    }

    /// Does nothing while the node may not change the record. `with_new`: also volumes whose creation has not
    /// got further than their pool.
    async fn record_what_is_here(self: &Rc<Control>, reconciler: &Rc<Reconciler>, with_new: bool) {
        if !reconciler.knows_this_life() || reconciler.expelled().is_some() {
            return;
        }
        self.forget_what_is_gone(reconciler).await;
        // Pools are looked up again after each wait: one that somebody holds could not be opened again.
        let found = |pool: Pool| {
            let new = if with_new { self.left_new(reconciler, &pool) } else { Vec::new() };
            pool.sole_volumes().into_iter().chain(new).map(move |id| (pool.id(), id))
        };
        let found: Vec<(PoolId, VolumeId)> = self.open_pools().into_iter().flat_map(found).collect();
        let mut failed: Option<PoolId> = None;
        for (number, (pool, id)) in found.into_iter().enumerate() {
            if number > 0 && number.is_multiple_of(ITEMS_PER_TURN) {
                rt::next_turn().await;
            }
            if failed == Some(pool) || !self.is_unknown(reconciler, pool, id) {
                continue;
            }
            if let Err(error) = self.record_found(reconciler, pool, id).await {
                tracing::debug!(volume = %id, %error, "a volume of this node is not in the cluster's record yet");
                match error {
                    // Without a quorum, the same is true of all of them.
                    ControlError::Cluster(_) => return,
                    // The same may be true of the others in this pool: a disk of it fails, or hangs.
                    _ => failed = Some(pool),
                }
            }
        }
    }

    /// New copies of a pool whose volumes the record does not list, although nobody is creating them: the
    /// node crashed in between. Nobody has used them, and nobody was told that they exist.
    fn left_new(&self, reconciler: &Reconciler, pool: &Pool) -> Vec<VolumeId> {
        let mut new = pool.new_copies();
        // The volume itself may be in a pool that is not open.
        let are_all_here = new.is_empty() || self.all_pools_are_open();
        let is_of_this = |id: VolumeId| {
            let copy = pool.volume(id).and_then(|info| info.copy);
            copy.is_some_and(|copy| copy.cluster.0 == reconciler.cluster().0)
        };
        new.retain(|id| are_all_here && is_of_this(*id) && self.copies_of(*id).len() == 1);
        new
    }

    async fn record_found(
        self: &Rc<Control>,
        reconciler: &Rc<Reconciler>,
        pool: PoolId,
        id: VolumeId,
    ) -> Result<()> {
        let Some(info) = self.volume_in(pool, id) else { return Ok(()) };
        let reconciler = Rc::clone(reconciler);
        self.change(Doing::AdoptVolume.of(&info.name), [Thing::Volume(id)], |control, changing| async move {
            let Some(volume) = control.volume_in(pool, id).filter(|_| !reconciler.has(id)) else {
                return Ok(());
            };
            let disks = control.pool_with(pool).map(|pool| pool.paths()).unwrap_or_default();
            changing.waits_for(WaitsFor::Disks(disks.clone()));
            if let Some(pool) = control.pool_with(pool) {
                control.note_sole(&reconciler, &pool, &volume).await?;
            }
            changing.waits_for(WaitsFor::ClusterRecord);
            control.record_sole(&reconciler, &volume).await?;
            control.compare_snapshots_soon();
            changing.waits_for(WaitsFor::Disks(disks));
            control.adopt_what_is_recorded(&reconciler, id).await.map(drop)
        })
        .await
    }

    fn volume_in(&self, pool: PoolId, id: VolumeId) -> Option<VolumeInfo> {
        self.pool_with(pool)?.volume(id)
    }

    /// Removes from the record sole volumes of this node that no pool has any more, because theirs was
    /// exported or forgotten. They are added again where the pool is imported.
    async fn forget_what_is_gone(&self, reconciler: &Reconciler) {
        if !self.all_pools_are_open() {
            return;
        }
        for id in reconciler.sole_here() {
            if self.copies_of(id).is_empty()
                && !self.being_made.borrow().contains_key(&id)
                && let Err(error) = forget_sole(reconciler, id).await
            {
                tracing::debug!(volume = %id, %error, "a volume that has left with its pool is still in the cluster's record");
            }
        }
    }

    /// Whether a volume that the record does not list can be added: it is neither being created for it nor
    /// deleted.
    fn is_unknown(&self, reconciler: &Reconciler, pool: PoolId, id: VolumeId) -> bool {
        let is_made = self.being_made.borrow().contains_key(&id);
        let Some(pool) = self.pool_with(pool) else { return false };
        !reconciler.has(id)
            && !is_made
            && !reconciler.is_deleted(id)
            && !is_being_cloned(reconciler, id)
            && self.name_taken(reconciler, &pool, id).is_none()
    }

    /// The name of a volume here if the cluster's record has another volume of that name, so that this one
    /// cannot be added.
    fn name_taken(&self, reconciler: &Reconciler, pool: &Pool, id: VolumeId) -> Option<String> {
        let name = pool.volume(id)?.name;
        let named = reconciler.get::<String>(&volume_name_key(&name));
        named.is_some_and(|(other, _)| other != id.to_string()).then_some(name)
    }

    /// Volumes here that are not in the cluster's record because it has others of the same names.
    pub(in crate::control) fn unrecorded(&self) -> Vec<Fault> {
        let Ok(reconciler) = self.reconciler() else { return Vec::new() };
        let fault = |pool: &Pool, id: VolumeId| {
            let volume = self.name_taken(&reconciler, pool, id).filter(|_| !reconciler.has(id))?;
            Some(FaultKind::VolumeNameTaken { pool: pool.name(), id: id.to_string(), volume }.into())
        };
        let of_pool = |pool: Pool| {
            pool.sole_volumes().into_iter().filter_map(move |id| fault(&pool, id)).collect::<Vec<_>>()
        };
        self.open_pools().into_iter().flat_map(of_pool).collect()
    }

    /// Lets the pool know that a volume is the cluster's, before the record lists it.
    ///
    /// A node that is down when the volume is deleted recognizes by that what it has to delete. Otherwise it
    /// would add the volume again.
    async fn note_sole(&self, reconciler: &Reconciler, pool: &Pool, volume: &VolumeInfo) -> Result<()> {
        let kept = first_copy(reconciler, CopyState::Sole);
        // Of several, nobody can tell which one is current.
        let is_only = self.copies_of(volume.id).len() == 1;
        let has_map = !has_no_map(volume);
        if !is_only || has_map || volume.copy == Some(kept) {
            return Ok(());
        }
        pool.make_copy(volume.id, kept).await?;
        self.unvouched.notify();
        Ok(())
    }

    /// Adds a volume to the record that it does not list.
    async fn record_sole(&self, reconciler: &Reconciler, volume: &VolumeInfo) -> Result<()> {
        let made = Made::here(reconciler);
        let new = NewEntry {
            id: volume.id,
            name: &volume.name,
            size: volume.capacity.0,
            shape: ShapeEntry::of(volume),
            space: volume.space,
            compression: compression_in_logs(volume).unwrap_or_default(),
            reason: Cause::VolumeAdopted,
            clone_of: self.origin_in_pool(volume.id),
            made: &made,
        };
        record_volume(reconciler, &new).await?;
        reconciler.until_known(&volume_key(volume.id)).await;
        Ok(())
    }

    /// Allows other nodes to get copies from now on. The caller holds the volume, and opens it as a copy
    /// afterwards.
    async fn end_sole(&self, reconciler: &Reconciler, pool: &Pool, id: VolumeId) -> Result<()> {
        let key = volume_key(id);
        let gone = || ControlError::not_found("volume", &id.to_string());
        let (entry, revision) = reconciler.get::<VolumeEntry>(&key).ok_or_else(gone)?;
        let (_, copy) = entry.copy_on(reconciler.me()).ok_or_else(gone)?;
        let kept =
            CopyOf { slot: copy.slot, ..first_copy(reconciler, CopyState::Trusted { epoch: copy.made }) };
        self.store_port_numbers(pool, id).await?;
        pool.make_copy(id, kept).await?;
        // The record may list it from an earlier life. In this life it is already served, and has been in
        // sync from the beginning.
        let mut next = VolumeEntry { sole: false, epoch: entry.epoch + 1, ..entry };
        next.copies.iter_mut().for_each(|copy| copy.incarnation = reconciler.incarnation().0);
        let transaction = Reconciler::transaction().expect(&key, Some(revision)).put(&key, json(&next));
        reconciler.commit(transaction).await?;
        if reconciler.get::<VolumeEntry>(&key).is_none_or(|(entry, _)| entry.epoch < next.epoch) {
            return Err(ClusterError::Conflict(next.name).into());
        }
        reconciler.end_sole(id);
        self.unvouched.notify();
        Ok(())
    }

    /// Stores the state of a volume's unit with the present numbers of this node's ports.
    ///
    /// The pool may have them as they were before the node joined, or on another node. That means nothing
    /// while the volume is sole ([`Unit::up_to_date`](crate::attach::unit::Unit::up_to_date)). In a copy, a
    /// number is that of a port of one node, and may be another one's.
    async fn store_port_numbers(&self, pool: &Pool, id: VolumeId) -> Result<()> {
        let shard = Shard::current();
        // Otherwise this state could overwrite that of a change which is being stored.
        let _turn = shard.changes(id).await;
        let stored = pool.lu_state(id)?;
        let number = shard.number();
        let state = match shard.unit(id) {
            Some(unit) => unit.brain().borrow().state().to_durable(),
            None => LuState::from_durable(&stored)
                .map(|state| state.renumbered(|port| number.same_port(port)).to_durable())
                .ok_or_else(|| ControlError::LuStateUnreadable(id.to_string()))?,
        };
        // After a change that could not be stored, a disk may have it all the same, with other numbers.
        if state == stored && !self.has_unsettled_state(id) {
            return Ok(());
        }
        self.store_lu_state(id, state).await
    }

    /// Whether only this node has a volume, and its slices are not copies yet.
    pub(in crate::control) fn is_sole_here(&self, reconciler: &Reconciler, name: &str) -> bool {
        match reconciler.entry_named(name) {
            Some((id, _)) => self.has_sole(id),
            None => self.volume_named(name).is_ok_and(|(_, info)| info.is_sole()),
        }
    }

    /// Checks whether a sole volume could get into the record, and get a dirty map.
    ///
    /// # Errors
    /// As [`Control::make_ready_for_copies`], except those of the record.
    fn check_adoption(&self, reconciler: &Reconciler, pool: &Pool, volume: &VolumeInfo) -> Result<()> {
        let mut found = self.copies_of(volume.id);
        // Beside another one, a copy that no host has used yet is not the current one.
        found.retain(|(_, info)| !is_new(info));
        let pools: Vec<String> = found.iter().map(|(pool, _)| pool.name()).collect();
        if pools.len() > 1 {
            // Any of them may have been set back. The volume would not be served any more.
            return Err(ControlError::InSeveralPools {
                volume: volume.name.clone(),
                pools: pools.join(", "),
            });
        }
        let named = reconciler.get::<String>(&volume_name_key(&volume.name));
        if named.is_some_and(|(id, _)| id != volume.id.to_string()) {
            return Err(ControlError::Exists { kind: "volume", name: volume.name.clone() });
        }
        match volume.is_sole() {
            false => Ok(()),
            true => Ok(pool.check_make_copy(volume.id, first_copy(reconciler, CopyState::Blank))?),
        }
    }

    /// Checks whether a sole volume could get a copy on another node.
    ///
    /// # Errors
    /// As [`Control::make_ready_for_copies`], except those of the record; a copy that is to move from another
    /// node.
    pub(in crate::control) fn check_first_copy(
        &self,
        reconciler: &Reconciler,
        volume: &str,
        instead_of: Option<u16>,
    ) -> Result<VolumeStatus> {
        let (pool, info) = self.volume_named(volume)?;
        self.check_adoption(reconciler, &pool, &info)?;
        match instead_of.filter(|node| *node != reconciler.me().0) {
            Some(node) => Err(ControlError::HasNoCopy { volume: info.name, node }),
            None => Ok(self.volume_status(info, &pool.name())),
        }
    }

    /// Lets the pool know that the record has a copy of a volume here, if it does not yet; returns how it is
    /// served.
    ///
    /// # Errors
    /// Errors of the pool or of the record.
    pub(crate) async fn adopt_what_is_recorded(
        &self,
        reconciler: &Reconciler,
        id: VolumeId,
    ) -> Result<ServedAs> {
        if let Some((pool, info)) = self.older_here(reconciler, id) {
            self.note_older(pool, info);
            // This may take long. What the record says counts afterwards.
            self.serve_no_more(id).await;
        }
        let Some((entry, revision)) = reconciler.get::<VolumeEntry>(&volume_key(id)) else {
            return Ok(ServedAs::Copy);
        };
        let Some((_, copy)) = entry.copy_on(reconciler.me()) else { return Ok(ServedAs::Copy) };
        let found = self.copies_of(id);
        // Several pools have it if one of them had been forgotten and came back.
        let has_map = has_one_with_map(reconciler, &entry, &found);
        let (is_sole, is_only) = (entry.sole && !has_map, found.len() == 1);
        let is_being_made = self.being_made.borrow().contains_key(&id);
        let mut served = ServedAs::Copy;
        for (pool, info) in found.iter().filter(|(_, info)| has_no_map(info)) {
            if is_sole {
                served = ServedAs::Sole;
            }
            let state = match is_sole {
                // Which one is current may be unknown. The one that is served stays so: none would be worse.
                true if !is_only => continue,
                // No host has used it, unless it is being created now. The one in use may be in a pool that
                // is not open yet.
                true if is_new(info) && !is_being_made && !self.all_pools_are_open() => {
                    return Err(ControlError::OldCopy { volume: info.name.clone(), pool: pool.name() });
                }
                true => CopyState::Sole,
                // The other one is current. From now on this pool says so, too, whatever else is open.
                false if has_map => CopyState::SetBack { epoch: OF_NO_CONFIGURATION },
                // The current one may be in a pool that is not open yet.
                false if !self.all_pools_are_open() => {
                    return Err(ControlError::OldCopy { volume: info.name.clone(), pool: pool.name() });
                }
                false => CopyState::SetBack { epoch: copy.made },
            };
            let kept = CopyOf { slot: copy.slot, ..first_copy(reconciler, state) };
            if info.copy != Some(kept) {
                match pool.make_copy(id, kept).await {
                    // Both the change that makes it ready for copies and the one that opens recorded volumes
                    // do this.
                    Ok(_) | Err(StoreError::AlreadyACopy(_)) => {}
                    Err(error) if has_map => {
                        tracing::warn!(volume = %id, pool = pool.name(), %error, "a pool could not record that its copy of a volume is outdated");
                    }
                    Err(error) => return Err(error.into()),
                }
                self.unvouched.notify();
            }
        }
        let capacity = found.iter().map(|(_, info)| info.capacity.0).max().unwrap_or_default();
        let is_here = !found.is_empty();
        // The pools may be closed and opened again while the record is waited for.
        drop(found);
        let next = match served {
            // It was grown, and its node crashed before the record knew. Hosts have seen that size.
            ServedAs::Sole if is_only && capacity > entry.size => {
                VolumeEntry { size: capacity, epoch: entry.epoch + 1, reason: Cause::VolumeResized, ..entry }
            }
            // It was about to get another copy.
            ServedAs::Copy if entry.sole && is_here => {
                VolumeEntry { sole: false, epoch: entry.epoch + 1, ..entry }
            }
            _ => return Ok(served),
        };
        let transaction = Reconciler::transaction()
            .expect(&volume_key(id), Some(revision))
            .put(&volume_key(id), json(&next));
        reconciler.commit(transaction).await?;
        Ok(served)
    }

    /// Serves the sole copy of a volume from its pool, unless it is already served. Returns whether it is
    /// served.
    pub(crate) async fn serve_sole(self: &Rc<Control>, id: VolumeId) -> bool {
        if Shard::current().unit(id).is_some() {
            return true;
        }
        let found = self.current_of(self.copies_of(id)).filter(|(pool, _)| !self.is_closing(pool));
        let Some((pool, info)) = found else { return false };
        self.being_made.borrow_mut().remove(&id);
        match self.open_new_volume(&pool, &info).await {
            Ok(()) => {
                self.unserved.borrow_mut().remove(&id);
                if self.is_set_aside(id) {
                    self.stop_expecting(BTreeSet::from([id])).await;
                }
                self.announce_volumes().await;
                true
            }
            Err(error) => {
                let cause = &error as &dyn std::error::Error;
                tracing::error!(volume = info.name, error = cause, "a volume is not served");
                self.unserved.borrow_mut().insert(id, error.into());
                false
            }
        }
    }

    /// Whether a pool of this node has the sole copy of the volume.
    pub(crate) fn has_sole(&self, id: VolumeId) -> bool {
        self.current_of(self.copies_of(id)).is_some_and(|(_, info)| info.is_sole())
    }

    /// Handles a volume that has no copy here by the record.
    ///
    /// If a pool here has a sole copy of it, that is from the time before there were others; or the volume
    /// has moved to another node with its pool.
    pub(crate) async fn note_no_copy(&self, id: VolumeId) {
        let older = self.copies_of(id).into_iter().find(|(_, info)| info.is_sole());
        // The pool itself is not held: it may be closed and opened again while commands end.
        let older = older.map(|(pool, info)| (pool.name(), info));
        let Some((pool, info)) = older.filter(|_| !self.being_made.borrow().contains_key(&id)) else {
            return;
        };
        let recorded = self
            .reconciler()
            .ok()
            .and_then(|reconciler| Some((reconciler.volume(id)?.entry, reconciler.me())));
        if recorded.as_ref().is_some_and(|(entry, me)| entry.copy_on(*me).is_some()) {
            // The record has given the volume a copy here since; its opening handles what is here.
            return;
        }
        self.note_older(pool, info);
        if recorded.is_some_and(|(entry, _)| entry.sole) {
            // This may be the volume itself, on its way back to this node.
            self.unserved.borrow_mut().remove(&id);
        }
        self.serve_no_more(id).await;
    }

    /// A sole copy here, with its pool's name, if the record says that this node has a copy of the volume but
    /// that it is not the only one.
    fn older_here(&self, reconciler: &Reconciler, id: VolumeId) -> Option<(String, VolumeInfo)> {
        let (entry, _) = reconciler.get::<VolumeEntry>(&volume_key(id))?;
        entry.copy_on(reconciler.me())?;
        let found = self.copies_of(id);
        let has_map = has_one_with_map(reconciler, &entry, &found);
        if entry.sole && !has_map {
            return None;
        }
        // A new one beside the present copy is not what is served.
        let may_be_served = |info: &VolumeInfo| !has_map || !is_new(info);
        let older = found.into_iter().find(|(_, info)| has_no_map(info) && may_be_served(info));
        older.map(|(pool, info)| (pool.name(), info))
    }

    /// Notes why a volume is not served, before the wait for its last commands: by the end of that, it may be
    /// served again.
    fn note_older(&self, pool: String, VolumeInfo { id, name: volume, .. }: VolumeInfo) {
        let mut unserved = self.unserved.borrow_mut();
        if !matches!(unserved.get(&id).map(|error| &**error), Some(ControlError::OldCopy { .. })) {
            tracing::error!(
                volume,
                pool,
                "a pool holds a volume as it was before other nodes got copies: it is not served"
            );
        }
        unserved.insert(id, ControlError::OldCopy { volume, pool }.into());
    }

    /// Stops serving a volume. When this returns, none of its commands is at a disk any more: a late write
    /// would overwrite what a resync has copied.
    async fn serve_no_more(&self, id: VolumeId) {
        on_all_cores(move || async move { Shard::current().remove_unit(id).await }).await;
    }

    /// Whether the record decides if and when a volume of an open pool is served.
    pub(in crate::control) fn is_served_by_record(&self, info: &VolumeInfo) -> bool {
        let is_recorded = |reconciler: Rc<Reconciler>| {
            let entry = reconciler.volume(info.id).map(|volume| volume.entry);
            entry.is_some_and(|entry| !entry.sole || entry.copy_on(reconciler.me()).is_none())
        };
        !info.is_sole() || self.reconciler().is_ok_and(is_recorded)
    }
}

/// Removes from the record a volume that has never had a second copy. Its data stays where it is.
pub(in crate::control) async fn forget_sole(reconciler: &Reconciler, id: VolumeId) -> Result<()> {
    let key = volume_key(id);
    let Some((entry, revision)) = reconciler.get::<VolumeEntry>(&key).filter(|(entry, _)| entry.sole) else {
        return Ok(());
    };
    reconciler.commit(without_volume(reconciler, &entry, id, revision)).await?;
    tracing::info!(
        volume = entry.name,
        "the volume has left the cluster's record, with its pool or its node"
    );
    Ok(())
}

/// Whether one of these has a dirty map and is the copy that the record means: then those without a map are
/// from an earlier time.
fn has_one_with_map(reconciler: &Reconciler, entry: &VolumeEntry, found: &[(Pool, VolumeInfo)]) -> bool {
    let is_it = |copy: &CopyOf| copy.state != CopyState::Blank && entry.is_copy_on(reconciler.me(), copy);
    found.iter().any(|(_, info)| !has_no_map(info) && info.copy.as_ref().is_some_and(is_it))
}

/// Whether the pool calls this copy the only one of its volume, so that it has no dirty map.
fn has_no_map(info: &VolumeInfo) -> bool {
    info.is_sole() || is_new(info)
}

/// Whether the copy was created for a volume that the record may not contain, and never used.
fn is_new(info: &VolumeInfo) -> bool {
    info.copy.is_some_and(|copy| copy.state == CopyState::New)
}

/// The description of a volume's first copy.
fn first_copy(reconciler: &Reconciler, state: CopyState) -> CopyOf {
    CopyOf { cluster: ClusterId(reconciler.cluster().0), slot: 0, state }
}
