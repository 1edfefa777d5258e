//! Requests from other nodes: to create, delete and grow copies, and to report things.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use base::{BlockSize, ByteLen, Instant};
use replica::Epoch;
use store::{
    CopyOf, CopyState, EXTENT_BYTES_MIN, Pool, ReadFailure, STRIPE_UNIT, SpacePolicy, VolumeInfo, VolumeSpec,
};

use super::super::change::{Changing, WaitsFor};
use super::super::doing::Doing;
use super::super::read_errors::disk_path;
use super::super::turns::{NOTHING, Thing};
use super::super::volumes::show_when_full;
use super::super::{Control, ControlError, Result};
use crate::copies::{Answer, Ask, NewCopy, NodeEntry, VolumeEntry, node_key, volume_key};
use crate::data::VolumeId;
use crate::member::{ClusterError, Reconciler, json};

/// How long a node that asked for a copy may take to add it to the cluster's record: longer than everything
/// that it waits for.
pub(super) const ASKED_MAX: Duration = Duration::from_secs(120);

impl Control {
    /// Executes a request from another node.
    pub(crate) async fn carry_out_ask(self: Rc<Control>, ask: Ask) -> Result<Answer> {
        let reconciler = self.reconciler()?;
        match ask {
            Ask::MakeCopy(copy) => self.make_copy(copy).await?,
            Ask::DropCopy { id, asker } => self.drop_copy(&id, asker).await?,
            Ask::GrowCopy { id, size } => self.grow_copy(&id, ByteLen(size)).await?,
            Ask::SetSpace { id, space } => self.set_space_of_copy(&id, space.into()).await?,
            Ask::TellUnit { id, epoch } => {
                let told = VolumeId::parse(&id).and_then(|id| reconciler.tell(id, Epoch(epoch)));
                return Ok(Answer::Unit(told.map(Box::new)));
            }
            Ask::InstallUnit { id, epoch, expected, agreed } => {
                let Some(id) = VolumeId::parse(&id) else { return Ok(Answer::Taken(false)) };
                return Ok(Answer::Taken(reconciler.install(id, Epoch(epoch), expected, *agreed).await));
            }
            Ask::HasAddress { address } => return Ok(Answer::Has(self.floating().has(address))),
            Ask::HasVolumes { mut ids } => {
                if self.all_pools_are_open() {
                    ids.retain(|id| VolumeId::parse(id).is_some_and(|id| self.pool_of(id).is_ok()));
                }
                return Ok(Answer::HasVolumes(ids));
            }
            Ask::CarryOut { volume, revision, request } => {
                let done = self.execute_for(&reconciler, volume.as_deref(), revision, request).await;
                return Ok(Answer::CarriedOut(done));
            }
            Ask::Snapshot { number, step } => {
                return Ok(Answer::Snapshot(self.do_snapshot_step(number, step).await?));
            }
            Ask::ReadSnapshot(part) => {
                return Ok(Answer::SnapshotRead(self.read_snapshot_for(&reconciler, part).await));
            }
            Ask::YieldToFork { id, epoch } => self.yield_to_fork(&id, epoch).await?,
            Ask::CanServeFork { id, epoch } => self.can_serve_fork(&id, epoch).await?,
            Ask::Digests { id, slice, offset, len } => {
                // The pool itself is not held while its disks are read: it could not be opened again.
                let (_, info) = self.volume_named(&id)?;
                let path = |disk: u16| {
                    let pool = self.volume_named(&id).map(|(pool, _)| pool);
                    pool.map_or_else(|_| format!("number {disk}"), |pool| disk_path(&pool, disk))
                };
                let found = crate::copies::digests(info.id, slice, offset, len).await;
                let found = found.ok_or_else(|| ControlError::not_found("copy", &info.name))?;
                return Ok(match found {
                    Ok(digests) => Answer::Digests(digests),
                    Err(bad) => Answer::Unreadable {
                        offset: bad.offset.0,
                        disk: match bad.cause {
                            ReadFailure::Lost => None,
                            ReadFailure::Medium | ReadFailure::Map | ReadFailure::Device => {
                                Some((path(bad.disk), bad.disk_offset))
                            }
                        },
                    },
                });
            }
        }
        Ok(Answer::Done { incarnation: reconciler.incarnation().0 })
    }

    async fn make_copy(self: &Rc<Control>, copy: NewCopy) -> Result<()> {
        let (reconciler, asker) = (self.reconciler()?, copy.asker);
        self.copy_requests.borrow_mut().insert(asker);
        let made = self.change(Doing::MakeCopy.of(&copy.name), NOTHING, |control, changing| async move {
            control.make_asked_for(&changing, &reconciler, copy).await
        });
        // The change may continue, but the node that asked hears that it failed, and does not add the copy.
        made.await.inspect_err(|_| {
            self.copy_requests.borrow_mut().remove(&asker);
        })
    }

    /// Creates the copy on this node of a volume that this change creates; returns the life that has done so.
    pub(super) async fn make_copy_here(
        &self,
        changing: &Changing,
        reconciler: &Reconciler,
        copy: NewCopy,
    ) -> Result<u64> {
        self.copy_requests.borrow_mut().insert(copy.asker);
        self.make_asked_for(changing, reconciler, copy).await?;
        Ok(reconciler.incarnation().0)
    }

    /// Creates a copy for a request that is among those that this node carries out.
    async fn make_asked_for(
        &self,
        changing: &Changing,
        reconciler: &Reconciler,
        copy: NewCopy,
    ) -> Result<()> {
        let asker = copy.asker;
        let made = match spec_of(reconciler, &copy) {
            Ok(spec) => self.make_unless_given_up(changing, reconciler, copy, spec).await,
            Err(error) => Err(error),
        };
        self.copy_requests.borrow_mut().remove(&asker);
        made
    }

    /// Creates a copy, unless it exists. If the node that asked gives up meanwhile, the copy is deleted.
    async fn make_unless_given_up(
        &self,
        changing: &Changing,
        reconciler: &Reconciler,
        copy: NewCopy,
        spec: VolumeSpec,
    ) -> Result<()> {
        let Some(id) = spec.id else { return Ok(()) };
        changing.concerns(id);
        let pool = match (&copy.clone_of, copy.pool) {
            (Some(origin), _) => self.pool_of_origin(origin)?,
            (None, Some(pool)) => pool,
            (None, None) => self.only_pool()?.name(),
        };
        let _name = changing.hold(Thing::volume_in(id, pool.clone())).await?;
        let pool = self.pool_named(&pool)?;
        let is_given_up = || !self.copy_requests.borrow().contains(&copy.asker);
        let given_up = ClusterError::Conflict(copy.name.clone());
        if is_given_up() {
            return Err(given_up.into());
        }
        changing.waits_for(WaitsFor::Disks(pool.paths()));
        let is_made = self.has_made_already(changing, reconciler, &pool, &spec).await?;
        self.add_asker(id, copy.asker);
        let created = match &copy.clone_of {
            _ if is_made => Ok(()),
            Some(origin) => self.create_clone_here(reconciler, &pool, spec, origin).await,
            None => {
                let created = pool.create_volume_watched(spec, changing.zeroing()).await;
                created.map(drop).map_err(ControlError::from)
            }
        };
        if let Err(error) = created {
            self.forget_asker(id, copy.asker);
            return Err(error);
        }
        if !is_given_up() {
            return Ok(());
        }
        self.forget_asker(id, copy.asker);
        match is_made {
            // It was created for another request, which may be adding it to the record.
            true => self.delete_unrecorded(changing, &pool, id, true).await?,
            false => pool.delete_volume_watched(id, changing.zeroing()).await?,
        }
        Err(given_up.into())
    }

    /// Whether a matching copy exists already, created for this request, whose answer was lost, or for
    /// another one.
    ///
    /// A blank copy of a different shape that was never used is deleted.
    async fn has_made_already(
        &self,
        changing: &Changing,
        reconciler: &Reconciler,
        pool: &Pool,
        spec: &VolumeSpec,
    ) -> Result<bool> {
        let (Some(id), Some(copy)) = (spec.id, spec.copy) else { return Ok(false) };
        if copy.state != CopyState::Blank {
            return Ok(false);
        }
        if reconciler.volume(id).is_some_and(|volume| volume.entry.copy_on(reconciler.me()).is_some()) {
            return Err(ControlError::HasCopy { volume: spec.name.clone(), node: reconciler.me().0 });
        }
        for (other, info) in self.copies_of(id) {
            if info.copy.is_none_or(|kept| kept.state != CopyState::Blank) {
                return Err(ControlError::OldCopy { volume: info.name, pool: other.name() });
            }
            // The node that asked before may be adding the copy to the record now, and the two requests may
            // come from different states of the record. That is fine: slot and name follow the record, and
            // the copy is grown to the longer of the two sizes.
            let fits = other.id() == pool.id()
                && info.copy.is_some_and(|kept| kept.cluster == copy.cluster)
                && (info.kind, info.block_size, Some(info.stripe.slices()), Some(info.stripe.unit()))
                    == (spec.kind, spec.block_size, spec.slices, spec.stripe_unit);
            if fits {
                if info.capacity < spec.capacity {
                    pool.grow_volume_watched(id, spec.capacity, changing.zeroing()).await?;
                }
                return Ok(true);
            }
            if self.was_asked_for_lately(id) {
                return Err(ClusterError::Conflict(spec.name.clone()).into());
            }
            other.delete_volume(id).await?;
        }
        Ok(false)
    }

    fn add_asker(&self, id: VolumeId, asker: u64) {
        self.being_made.borrow_mut().entry(id).or_default().insert(asker, rt::now());
    }

    /// Whether a node that asked for a copy here may still be adding it to the cluster's record.
    fn was_asked_for_lately(&self, id: VolumeId) -> bool {
        self.being_made.borrow().get(&id).is_some_and(|askers| askers.values().any(is_lately))
    }

    /// The name of a volume that is being created: its only copy is here, and has not been opened yet.
    pub(in crate::control) fn being_created(&self) -> Option<String> {
        let is_it = |info: &VolumeInfo| {
            let is_new = info.copy.is_some_and(|copy| copy.state == CopyState::New);
            is_new && self.was_asked_for_lately(info.id)
        };
        self.open_pools().into_iter().flat_map(|pool| pool.volumes()).find(is_it).map(|info| info.name)
    }

    /// Forgets a request for a copy here that has ended.
    pub(in crate::control) fn forget_asker(&self, id: VolumeId, asker: u64) {
        let mut being_made = self.being_made.borrow_mut();
        if let Some(askers) = being_made.get_mut(&id)
            && askers.remove(&asker).is_some()
            && askers.is_empty()
        {
            being_made.remove(&id);
        }
    }

    /// Deletes the copy here of a volume that was deleted, or one that request `asker` has given up, unless
    /// another request needs it.
    pub(in crate::control) async fn drop_copy(
        self: &Rc<Control>,
        id: &str,
        asker: Option<u64>,
    ) -> Result<()> {
        let Some(volume) = VolumeId::parse(id) else { return Ok(()) };
        // Before its turn: if the copy is still being created, the change that creates it deletes it, however
        // long its disk takes.
        if let Some(asker) = asker {
            self.copy_requests.borrow_mut().remove(&asker);
            self.forget_asker(volume, asker);
        }
        self.change(Doing::DropCopy.of(id), NOTHING, |control, changing| async move {
            control.drop_copy_here(&changing, volume, asker.is_some()).await
        })
        .await
    }

    /// Deletes the copy here of a volume that this change deletes. `given_up`: see
    /// [`Control::delete_unrecorded`].
    pub(super) async fn drop_copy_here(
        &self,
        changing: &Changing,
        volume: VolumeId,
        given_up: bool,
    ) -> Result<()> {
        changing.concerns(volume);
        // Only when earlier changes have ended is it known whether a pool has the copy, and which.
        drop(changing.hold([Thing::Volume(volume)]).await?);
        let found = self.current_of(self.copies_of(volume));
        let Some(pool) = found.map(|(pool, _)| pool.name()) else { return Ok(()) };
        let _volume = changing.hold(Thing::volume_in(volume, pool.clone())).await?;
        let pool = self.pool_named(&pool)?;
        self.delete_unrecorded(changing, &pool, volume, given_up).await
    }

    /// Deletes what a pool has of a volume that has no copy on this node by the record. `given_up`: the
    /// request for the copy has ended, and it is deleted only if no other request needs it. The caller holds
    /// the volume and the volumes of the pool ([`Thing`]).
    async fn delete_unrecorded(
        &self,
        changing: &Changing,
        pool: &Pool,
        id: VolumeId,
        given_up: bool,
    ) -> Result<()> {
        let Some(info) = pool.volume(id) else { return Ok(()) };
        let Some(copy) = info.copy else {
            return Err(ControlError::Internal("refused to delete a volume that no other node has"));
        };
        let reconciler = self.reconciler().ok();
        // An entry that cannot be read may name the copy.
        if let Some(reconciler) = &reconciler {
            reconciler.check_entry(&volume_key(id))?;
        }
        // Only an administrator may give up what was written here alone.
        if reconciler.as_ref().is_some_and(|reconciler| reconciler.has_fork(id)) {
            return Err(ControlError::Forked(info.name));
        }
        // A copy that a node asked for may be in the record already, in a change that this life has not
        // received yet.
        if given_up && !reconciler.as_ref().is_some_and(|reconciler| reconciler.knows_this_life()) {
            return Err(ClusterError::Conflict(info.name).into());
        }
        let known = reconciler.and_then(|reconciler| Some((reconciler.volume(id)?, reconciler.me())));
        let is_recorded = known.as_ref().is_some_and(|(volume, me)| volume.entry.copy_on(*me).is_some());
        if given_up && (is_recorded || self.being_made.borrow().contains_key(&id)) {
            return Ok(());
        }
        // Of a volume that is in use, only a blank copy may be deleted, which has never been part of it.
        if is_recorded || known.is_some() && copy.state != CopyState::Blank {
            return Err(ControlError::Internal("refused to delete a volume that is in use"));
        }
        self.being_made.borrow_mut().remove(&id);
        self.close_volume(changing, pool, id).await;
        changing.waits_for(WaitsFor::Disks(pool.paths()));
        Ok(pool.delete_volume_watched(id, changing.zeroing()).await?)
    }

    /// Blank copies that the record does not name and that no request can add to it any more: the node that
    /// asked for them has crashed, or it gave up and could not say so, or this node has restarted.
    pub(in crate::control) async fn left_blank(
        &self,
        reconciler: &Rc<Reconciler>,
    ) -> Vec<(String, VolumeId)> {
        if !reconciler.knows_this_life() {
            return Vec::new();
        }
        // By their names: a pool cannot be closed while anything refers to it.
        let mut left: Vec<(String, VolumeId)> = Vec::new();
        for pool in self.open_pools() {
            let blank = pool.blank_copies().into_iter().filter(|id| is_left_blank(reconciler, &pool, *id));
            left.extend(blank.map(|id| (pool.name(), id)));
        }
        if left.is_empty() {
            return left;
        }
        if let Err(error) = self.end_old_requests(reconciler, &left).await {
            tracing::debug!(%error, "the cluster's record does not end old requests for copies yet");
        }
        left.retain(|(_, id)| !self.being_made.borrow().contains_key(id));
        left
    }

    /// Ends requests for these copies that are too old to be under way.
    ///
    /// The transaction that adds one may still take effect, for example when the record has a quorum again.
    /// It expects this node's entry to be as it was, so it fails if that entry is written first. If not, this
    /// node has read it by then. The request of an earlier life is ended by the entry of this one.
    async fn end_old_requests(
        &self,
        reconciler: &Reconciler,
        left: &[(String, VolumeId)],
    ) -> Result<(), ClusterError> {
        let may_end = {
            let being_made = self.being_made.borrow();
            let is_asked = left.iter().any(|(_, id)| being_made.contains_key(id));
            // A recent request, for whichever copy, would fail, too.
            is_asked && !being_made.values().flat_map(BTreeMap::values).any(is_lately)
        };
        let key = node_key(reconciler.me());
        let Some((entry, revision)) = reconciler.get::<NodeEntry>(&key).filter(|_| may_end) else {
            return Ok(());
        };
        reconciler
            .commit(Reconciler::transaction().expect(&key, Some(revision)).put(&key, json(&entry)))
            .await?;
        if reconciler.revision_of(&key) == Some(revision) {
            return Ok(());
        }
        let mut being_made = self.being_made.borrow_mut();
        for (_, id) in left {
            if let Some(askers) = being_made.get_mut(id) {
                askers.retain(|_, asked| is_lately(asked));
                if askers.is_empty() {
                    being_made.remove(id);
                }
            }
        }
        Ok(())
    }

    /// Deletes a blank copy, if that is still what it is.
    pub(in crate::control) async fn delete_left_blank(
        self: &Rc<Control>,
        reconciler: &Rc<Reconciler>,
        pool: String,
        id: VolumeId,
    ) -> Result<()> {
        let reconciler = Rc::clone(reconciler);
        let work = Doing::DeleteCopy.of(&id.to_string());
        self.change(work, Thing::volume_in(id, pool.clone()), |control, changing| async move {
            let pool = control.pool_named(&pool)?;
            // A node may have asked for it meanwhile, and have added it.
            if is_left_blank(&reconciler, &pool, id) {
                control.delete_unrecorded(&changing, &pool, id, true).await?;
            }
            Ok(())
        })
        .await
    }

    async fn grow_copy(self: &Rc<Control>, id: &str, size: ByteLen) -> Result<()> {
        let (before, _) = self.volume_and_pool_name(id)?;
        self.change(Doing::GrowCopy.of(&before.name), NOTHING, |control, changing| async move {
            control.grow_copy_here(&changing, &before.id.to_string(), size).await
        })
        .await
    }

    /// Grows this node's copy of a volume to the size that the volume is about to get. Hosts do not see that
    /// yet.
    pub(super) async fn grow_copy_here(&self, changing: &Changing, id: &str, size: ByteLen) -> Result<()> {
        let (before, pool) = self.volume_and_pool_name(id)?;
        changing.concerns(before.id);
        let _volume = changing.hold(Thing::volume_in(before.id, pool)).await?;
        let (pool, before) = self.volume_to_change(&before)?;
        if before.capacity >= size {
            return Ok(());
        }
        changing.waits_for(WaitsFor::Disks(pool.paths()));
        pool.grow_volume_watched(before.id, size, changing.zeroing()).await?;
        changing.waits_for(WaitsFor::Cores);
        self.grow_slices(&pool, before.id).await
    }

    /// Gives this node's copy of a volume a space policy.
    pub(in crate::control) async fn set_space_of_copy(
        self: &Rc<Control>,
        id: &str,
        space: SpacePolicy,
    ) -> Result<()> {
        let (before, _) = self.volume_and_pool_name(id)?;
        if before.space == space {
            return Ok(());
        }
        self.change(Doing::SetSpaceOfCopy.of(&before.name), NOTHING, |control, changing| async move {
            control.set_space_here(&changing, &before.id.to_string(), space).await
        })
        .await
    }

    /// Gives this node's copy of a volume the space policy that the volume is about to have.
    pub(super) async fn set_space_here(
        &self,
        changing: &Changing,
        id: &str,
        space: SpacePolicy,
    ) -> Result<()> {
        let (before, pool) = self.volume_and_pool_name(id)?;
        changing.concerns(before.id);
        let _volume = changing.hold(Thing::volume_in(before.id, pool)).await?;
        let (pool, before) = self.volume_to_change(&before)?;
        if before.space == space {
            return Ok(());
        }
        changing.waits_for(WaitsFor::Disks(pool.paths()));
        pool.set_space(before.id, space).await?;
        changing.waits_for(WaitsFor::Cores);
        show_when_full(before.id, space.when_full).await;
        Ok(())
    }

    /// Gives this node's copy of a volume the compression that the cluster's record has.
    pub(in crate::control) async fn follow_compression(self: &Rc<Control>, id: VolumeId) -> Result<()> {
        let (before, pool) = self.volume_and_pool_name(&id.to_string())?;
        let work = Doing::SetCompressionOfCopy.of(&before.name);
        self.change(work, Thing::volume_in(id, pool), |control, changing| async move {
            let (pool, _) = control.volume_to_change(&before)?;
            // Only now: whoever comes last follows what the record has last.
            let recorded =
                control.reconciler()?.volume(id).and_then(|volume| volume.entry.compression.known());
            let Some(compression) = recorded else { return Ok(()) };
            changing.waits_for(WaitsFor::Disks(pool.paths()));
            Ok(pool.set_compression(id, compression).await.map(drop)?)
        })
        .await
    }
}

/// The stripe unit of this many bytes, if there may be one.
fn stripe_unit(bytes: u32) -> Option<ByteLen> {
    let unit = ByteLen(bytes.into());
    (bytes.is_power_of_two() && (EXTENT_BYTES_MIN..=STRIPE_UNIT.0).contains(&unit.0)).then_some(unit)
}

/// What a pool is to create for this request.
fn spec_of(reconciler: &Reconciler, copy: &NewCopy) -> Result<VolumeSpec> {
    let strange = |field| ControlError::Invalid {
        field,
        reason: "another node sent a request that this node does not know",
    };
    let state = match (copy.blank, copy.sole) {
        (true, _) => CopyState::Blank,
        (false, true) => CopyState::New,
        (false, false) => CopyState::Trusted { epoch: 1 },
    };
    Ok(VolumeSpec {
        name: copy.name.clone(),
        kind: copy.kind,
        block_size: BlockSize::from_bytes(copy.block_bytes).ok_or(strange("block size"))?,
        physical_exponent: copy.physical_exponent,
        capacity: base::ByteLen(copy.size),
        slices: Some(copy.slices),
        stripe_unit: Some(stripe_unit(copy.stripe_unit).ok_or(strange("stripe unit"))?),
        created: copy.created,
        id: Some(VolumeId::parse(&copy.id).ok_or(strange("volume"))?),
        copy: Some(CopyOf { cluster: store::ClusterId(reconciler.cluster().0), slot: copy.slot, state }),
        space: copy.space.into(),
        compression: copy.compression.known().unwrap_or_default(),
        checksums: copy.checksums,
    })
}

/// Whether a node that asked for a copy at that time may still be adding it to the cluster's record.
fn is_lately(asked: &Instant) -> bool {
    rt::now().since(*asked) < ASKED_MAX
}

/// Whether the pool has a blank copy of the volume, and the record, as far as this node has followed it, has
/// no copy of it on this node.
fn is_left_blank(reconciler: &Reconciler, pool: &Pool, id: VolumeId) -> bool {
    let is_blank = |copy: CopyOf| copy.state == CopyState::Blank && copy.cluster.0 == reconciler.cluster().0;
    let key = volume_key(id);
    // An entry that cannot be read may name it.
    let is_named = || match reconciler.get::<VolumeEntry>(&key) {
        Some((entry, _)) => entry.copy_on(reconciler.me()).is_some(),
        None => reconciler.has(id),
    };
    pool.volume(id).and_then(|info| info.copy).is_some_and(is_blank)
        && !reconciler.is_unreadable(&key)
        && !is_named()
}
