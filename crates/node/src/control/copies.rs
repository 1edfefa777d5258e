//! Volumes with copies on several nodes: made, opened, deleted; and targets and hosts, which all nodes of a cluster share.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use base::{BlockSize, ByteLen};
use replica::{Epoch, Incarnation, NodeId, Slot};
use store::{CopyOf, CopyState, Pool, Stripe, VolumeInfo, VolumeKind, VolumeSpec};

use super::access::{HOSTS, MapSpec, TARGETS, announce};
use super::change::{Changing, WaitsFor, Work};
use super::members::{NEXT_NODE, told_portals};
use super::passing::carry_out_here;
use super::turns::Thing;
use super::volumes::{has_empty_slices, open_on_all_cores, whole_blocks};
use super::{Control, ControlError, NewVolume};
use crate::Paths;
use crate::access::{AccessChange, HostName, TargetName, VolumeName};
use crate::copies::{
    Address, Answer, Ask, ClusterError, Copies, CopyEntry, DeletedVolume, Keeper, NewCopy, NodeEntry,
    RECORD_DEADLINE, SliceCopy, StandingEntry, VolumeEntry, deleted_key, json, node_key, split_key,
    strategy_key, volume_key, volume_name_key,
};
use crate::port_numbers::NodeNumber;
use crate::shard::{Shard, on_all_cores};
use crate::volume::VolumeId;

/// The key of the number that the next volume with copies gets.
const NEXT_NUMBER: &str = "next-volume-number";

/// How long it is waited for the record to tell of a number that another node has drawn, before the next one is tried.
const DRAWN_WITHIN: Duration = Duration::from_millis(500);

/// How often a volume is grown anew because copies were added meanwhile.
const GROW_TRIES_MAX: usize = 4;

/// How often it is looked whether the map of a new copy is on its disk.
const MAP_WRITTEN_EVERY: Duration = Duration::from_millis(100);

/// The copies that a volume is to have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Placement {
    /// On as many nodes, this one among them if it can.
    Count(u8),
    /// On these nodes, by number.
    Nodes(Vec<u16>),
}

/// How a copy on this node is to be opened.
#[derive(Clone, Copy, Debug)]
pub struct CopyOpening {
    /// The volume's number in the cluster.
    pub number: u32,
    /// Which copy this is.
    pub me: Slot,
    /// Since when: [`CopyEntry::made`].
    pub made: u64,
    /// The volume's capacity.
    pub size: ByteLen,
    /// This life of the node.
    pub incarnation: Incarnation,
    /// The copy is in sync in this very life: it was made in it.
    pub new: bool,
}

impl CopyOpening {
    /// How a slice of it is to be opened.
    pub(super) fn of_slice(
        &self,
        slice: u16,
        block_size: BlockSize,
        stripe: Stripe,
        worth: Worth,
    ) -> crate::copies::Opening {
        crate::copies::Opening {
            address: Address { volume: self.number, slice },
            me: self.me,
            incarnation: self.incarnation,
            block_bytes: block_size.bytes(),
            stripe,
            size: self.size,
            blank: worth.blank,
            untrusted: worth.untrusted,
        }
    }
}

/// What the content of a copy is worth when it is opened.
#[derive(Clone, Copy, Debug)]
pub(super) struct Worth {
    /// Nothing: all of it is to be copied.
    pub blank: bool,
    /// And its pool is to be told first that from now on its map says so.
    pub untrusted: bool,
}

/// How long a node that is to get a copy may not be heard of, and how often that is looked at.
pub(super) const HEARD_WITHIN: Duration = Duration::from_secs(3);
const HEARD_EVERY: Duration = Duration::from_millis(50);

impl Control {
    /// The keeper of the node's copies, if the node is in a cluster.
    pub fn keeper(&self) -> Option<Rc<Keeper>> {
        Shard::current().copies()?.keeper()
    }

    pub(super) fn keeper_or_why_not(&self) -> Result<Rc<Keeper>, ControlError> {
        self.keeper().ok_or(ControlError::NoCluster)
    }

    /// Makes a volume with copies on several nodes. The caller holds its name.
    pub(super) async fn make_replicated(
        &self,
        changing: &Changing,
        new: NewVolume,
        placement: &Placement,
    ) -> Result<VolumeId, ControlError> {
        let keeper = self.keeper_or_why_not()?;
        let name: VolumeName = new.name.parse()?;
        if let Some(map) = &new.map {
            // What can be known to fail does so before anything is made.
            self.place_for_new(map)?;
        }
        let nodes = once_heard(&keeper, || choose_nodes(&keeper, placement)).await?;
        if keeper.revision_of(&volume_name_key(name.as_str())).is_some() {
            return Err(ControlError::Exists { kind: "volume", name: name.into() });
        }
        let id = VolumeId::random();
        let copy = |slot: usize| NewCopy {
            id: id.to_string(),
            slot: slot as u8,
            name: name.to_string(),
            pool: new.pool.clone(),
            ram: new.kind == VolumeKind::Ram,
            size: 0,
            block_bytes: new.block_size.bytes(),
            physical_exponent: if new.block_size == BlockSize::B512 && !new.native_512 { 3 } else { 0 },
            slices: new.slices_on_nodes(),
            created: new.created,
            blank: false,
        };
        let size = whole_blocks(new.size, new.block_size)?.0;
        changing.waits_for(WaitsFor::Nodes(nodes.iter().map(|node| node.0).collect()));
        let mut lives = Vec::new();
        for (slot, node) in nodes.iter().enumerate() {
            let made = keeper.ask(*node, Ask::MakeCopy(NewCopy { size, ..copy(slot) })).await;
            match made {
                Ok(Answer::Done { incarnation }) => lives.push(incarnation),
                other => {
                    drop_copies(&keeper, &nodes[..slot], id).await;
                    return Err(other
                        .err()
                        .map_or(ControlError::Internal("a strange answer"), ControlError::from));
                }
            }
        }
        let copies = nodes.iter().zip(&lives).enumerate().map(|(slot, (node, life))| CopyEntry {
            slot: slot as u8,
            node: node.0,
            standing: StandingEntry::InSync,
            incarnation: *life,
            made: 1,
            leaves: None,
        });
        let copies: Vec<CopyEntry> = copies.collect();
        let recorded = record_volume(&keeper, id, name.as_str(), size, copies).await;
        if let Err(error) = recorded {
            drop_copies(&keeper, &nodes, id).await;
            return Err(error);
        }
        if let Some(map) = &new.map
            && let Err(error) = self.map_new(changing, id, map).await
        {
            if let Err(undo) = self.delete_replicated(id, name.as_str()).await {
                tracing::error!(volume = %name, error = %undo, "a volume that could not be mapped was left");
            }
            return Err(error);
        }
        // Whoever is told of it may use it at once.
        keeper.until_serves(id).await;
        Ok(id)
    }

    async fn map_new(&self, changing: &Changing, id: VolumeId, map: &MapSpec) -> Result<(), ControlError> {
        let _record = changing.hold([Thing::Record]).await?;
        let place = self.place_for_new(map)?;
        self.change_access(changing, vec![place.taken_by(id)]).await
    }

    /// The nodes that would get the copies of a new volume.
    pub(super) async fn check_placement(
        &self,
        name: VolumeName,
        placement: &Placement,
    ) -> Result<Vec<u16>, ControlError> {
        let keeper = self.keeper_or_why_not()?;
        let nodes = once_heard(&keeper, || choose_nodes(&keeper, placement)).await?;
        if keeper.revision_of(&volume_name_key(name.as_str())).is_some() {
            return Err(ControlError::Exists { kind: "volume", name: name.into() });
        }
        Ok(nodes.into_iter().map(|node| node.0).collect())
    }

    /// Does what another node asks for.
    pub(crate) async fn carry_out_ask(self: Rc<Control>, ask: Ask) -> Result<Answer, ControlError> {
        let keeper = self.keeper_or_why_not()?;
        match ask {
            Ask::MakeCopy(copy) => self.make_copy(copy).await?,
            Ask::DropCopy { id } => self.drop_copy(&id).await?,
            Ask::GrowCopy { id, size } => self.grow_copy(&id, ByteLen(size)).await?,
            Ask::TellUnit { id, epoch } => {
                let told = VolumeId::parse(&id).and_then(|id| keeper.tell(id, Epoch(epoch)));
                return Ok(Answer::Unit(told.map(Box::new)));
            }
            Ask::InstallUnit { id, epoch, expected, agreed } => {
                let Some(id) = VolumeId::parse(&id) else { return Ok(Answer::Taken(false)) };
                return Ok(Answer::Taken(keeper.install(id, Epoch(epoch), expected, *agreed).await));
            }
            Ask::HasAddress { address } => return Ok(Answer::Has(self.floating().has(address))),
            Ask::Show { what } => {
                let show = Shard::current().config().show.clone();
                return Ok(Answer::Shown(show.show(self, what).await));
            }
            Ask::CarryOut { volume, revision, request } => {
                let done = self.carry_out_for(&keeper, &volume, revision, request).await;
                return Ok(Answer::CarriedOut(done));
            }
            Ask::CarryOutHere { revision, request } => {
                return Ok(Answer::CarriedOut(carry_out_here(&keeper, revision, request).await));
            }
            Ask::KnowsForks => {}
            Ask::YieldToFork { id, epoch } => self.yield_to_fork(&id, epoch).await?,
            Ask::CanServeFork { id, epoch } => self.can_serve_fork(&id, epoch).await?,
            Ask::Digests { id, slice, offset, len } => {
                let (_, info) = self.volume_named(&id)?;
                let found = crate::copies::digests(info.id, slice, offset, len).await;
                let found = found.ok_or(ControlError::Internal("the copy cannot be read"))?;
                return Ok(Answer::Digests(found));
            }
        }
        Ok(Answer::Done { incarnation: keeper.incarnation().0 })
    }

    async fn make_copy(self: &Rc<Control>, copy: NewCopy) -> Result<(), ControlError> {
        let strange = |field| ControlError::Invalid {
            field,
            reason: "another node asked for what this one does not know",
        };
        let keeper = self.keeper_or_why_not()?;
        let id = VolumeId::parse(&copy.id).ok_or(strange("volume"))?;
        let state = if copy.blank { CopyState::Blank } else { CopyState::Trusted { epoch: 1 } };
        let spec = VolumeSpec {
            name: copy.name.clone(),
            kind: if copy.ram { VolumeKind::Ram } else { VolumeKind::Thick },
            block_size: BlockSize::from_bytes(copy.block_bytes).ok_or(strange("block size"))?,
            physical_exponent: copy.physical_exponent,
            capacity: base::ByteLen(copy.size),
            slices: Some(copy.slices),
            created: copy.created,
            id: Some(id),
            copy: Some(CopyOf { cluster: store::ClusterId(keeper.cluster().0), slot: copy.slot, state }),
        };
        let control = Rc::clone(self);
        self.change(Work::new("making a copy of volume", &copy.name), |changing| async move {
            let pool = match copy.pool {
                Some(pool) => pool,
                None => control.only_pool()?.name(),
            };
            let _name = changing.hold([Thing::Volume(id), Thing::VolumesOf(pool.clone())]).await?;
            let pool = control.pool_named(&pool)?;
            changing.waits_for(WaitsFor::Disks(pool.paths()));
            if control.has_made_already(&keeper, &pool, &spec).await? {
                return Ok(());
            }
            control.being_made.borrow_mut().insert(id);
            let made = pool.create_volume(spec).await;
            if made.is_err() {
                control.being_made.borrow_mut().remove(&id);
            }
            Ok(made.map(drop)?)
        })
        .await
    }

    /// Whether this very copy was made before, and the answer was lost; one that was made otherwise in vain is deleted.
    async fn has_made_already(
        &self,
        keeper: &Keeper,
        pool: &Pool,
        spec: &VolumeSpec,
    ) -> Result<bool, ControlError> {
        let (Some(id), Some(copy)) = (spec.id, spec.copy) else { return Ok(false) };
        if copy.state != CopyState::Blank {
            return Ok(false);
        }
        if keeper.volume(id).is_some_and(|volume| volume.entry.copy_on(keeper.me()).is_some()) {
            return Err(ControlError::HasCopy { volume: spec.name.clone(), node: keeper.me().0 });
        }
        for (other, info) in self.copies_of(id) {
            if info.copy.is_none_or(|kept| kept.state != CopyState::Blank) {
                return Err(ControlError::OldCopy { volume: info.name, pool: other.name() });
            }
            let same = other.id() == pool.id()
                && info.copy == spec.copy
                && (info.name.as_str(), info.kind, info.capacity, info.stripe.slices())
                    == (spec.name.as_str(), spec.kind, spec.capacity, spec.slices.unwrap_or_default());
            if same {
                self.being_made.borrow_mut().insert(id);
                return Ok(true);
            }
            other.delete_volume(id).await?;
        }
        Ok(false)
    }

    /// What the open pools have of a volume: one at most, unless a pool came back that had been given up.
    pub(super) fn copies_of(&self, id: VolumeId) -> Vec<(Pool, VolumeInfo)> {
        let pools = self.open_pools().into_iter();
        pools.filter_map(|pool| pool.volume(id).map(|info| (pool, info))).collect()
    }

    /// How many slices with blocks the copy here has; 0: no open pool has one.
    pub(crate) fn slices_of_copy(&self, id: VolumeId) -> usize {
        let copies = self.copies_of(id);
        let Some((_, info)) = copies.first() else { return 0 };
        (0..info.stripe.slices()).filter(|index| info.stripe.slice_len(*index, info.capacity).0 > 0).count()
    }

    pub(super) async fn drop_copy(self: &Rc<Control>, id: &str) -> Result<(), ControlError> {
        let (control, id) = (Rc::clone(self), id.to_owned());
        self.change(Work::new("deleting a copy of volume", &id), |changing| async move {
            let Ok((pool, info)) = control.volume_named(&id) else { return Ok(()) };
            let _volume = changing.hold([Thing::Volume(info.id), Thing::VolumesOf(pool.name())]).await?;
            let Some(copy) = info.copy else {
                return Err(ControlError::Internal("a volume that no other node has was to be deleted"));
            };
            // What was written here alone is somebody's to give up.
            if control.keeper().is_some_and(|keeper| keeper.has_fork(info.id)) {
                return Err(ControlError::Forked(info.name));
            }
            let known = control.keeper().and_then(|keeper| Some((keeper.volume(info.id)?, keeper.me())));
            // Of a volume that is in use only what was to be a copy of it and has never been one.
            if known.is_some_and(|(volume, me)| {
                volume.entry.copy_on(me).is_some() || copy.state != CopyState::Blank
            }) {
                return Err(ControlError::Internal("a volume that is in use was to be deleted"));
            }
            control.being_made.borrow_mut().remove(&info.id);
            control.close_volume(&changing, &pool, info.id).await;
            changing.waits_for(WaitsFor::Disks(pool.paths()));
            Ok(pool.delete_volume(info.id).await?)
        })
        .await
    }

    /// Makes this node's copy of a volume as large as the volume is about to be. Nobody sees it yet.
    async fn grow_copy(self: &Rc<Control>, id: &str, size: ByteLen) -> Result<(), ControlError> {
        let (control, (pool, before)) = (Rc::clone(self), self.volume_named(id)?);
        self.change(Work::new("growing the copy of volume", &before.name), |changing| async move {
            let _volume = changing.hold([Thing::Volume(before.id), Thing::VolumesOf(pool.name())]).await?;
            let (pool, before) = control.volume_still(&before)?;
            if before.capacity >= size {
                return Ok(());
            }
            changing.waits_for(WaitsFor::Disks(pool.paths()));
            pool.grow_volume(before.id, size).await?;
            changing.waits_for(WaitsFor::Cores);
            control.grow_slices(&pool, before.id).await
        })
        .await
    }

    /// Makes a volume with copies larger: first each copy, then, in one step, the volume. Begun again, it goes on where it was.
    pub(super) async fn grow_replicated(&self, info: &VolumeInfo, size: ByteLen) -> Result<(), ControlError> {
        let keeper = self.keeper_or_why_not()?;
        let capacity = whole_blocks(size, info.block_size)?;
        let mut grown: BTreeSet<(u16, u64)> = BTreeSet::new();
        for _ in 0..GROW_TRIES_MAX {
            let entry = keeper.volume(info.id).map(|volume| volume.entry);
            let entry = entry.ok_or_else(|| ControlError::not_found("volume", &info.name))?;
            let from = ByteLen(entry.size);
            if capacity < from {
                return Err(ControlError::WouldShrink { volume: entry.name, from, to: capacity });
            }
            if has_empty_slices(&info.stripe, from) {
                return Err(ControlError::TooSmallToGrow(entry.name));
            }
            for copy in entry.copies.iter().filter(|copy| !grown.contains(&(copy.node, copy.made))) {
                let ask = Ask::GrowCopy { id: entry.id.clone(), size: capacity.0 };
                keeper.ask(NodeId(copy.node), ask).await?;
            }
            grown.extend(entry.copies.iter().map(|copy| (copy.node, copy.made)));
            let made = self.change_entry(&keeper, info.id, None, |entry| {
                if entry.copies.iter().any(|copy| !grown.contains(&(copy.node, copy.made))) {
                    return Err(ControlError::Cluster(ClusterError::Conflict(entry.name.clone())));
                }
                let mut next = entry.clone();
                (next.size, next.epoch) = (capacity.0.max(entry.size), entry.epoch + 1);
                next.reason = "the volume was made larger".into();
                Ok((next, None))
            });
            match made.await {
                // A copy was added meanwhile, as large as the volume was.
                Err(ControlError::Cluster(ClusterError::Conflict(_))) => {}
                result => return result.map(drop),
            }
        }
        Err(ClusterError::Conflict(info.name.clone()).into())
    }

    /// Gives a volume with copies another name. Its nodes' pools follow by themselves.
    pub(super) async fn rename_replicated(&self, info: &VolumeInfo, name: &str) -> Result<(), ControlError> {
        let keeper = self.keeper_or_why_not()?;
        if keeper.revision_of(&volume_name_key(name)).is_some() {
            return Err(ControlError::Exists { kind: "volume", name: name.to_owned() });
        }
        let key = volume_key(info.id);
        let known = keeper.get::<VolumeEntry>(&key);
        let (entry, revision) = known.ok_or_else(|| ControlError::not_found("volume", &info.name))?;
        let before = volume_name_key(&entry.name);
        let transaction = Keeper::transaction()
            .expect(&key, Some(revision))
            .expect(&before, keeper.revision_of(&before))
            .expect(&volume_name_key(name), None)
            .put(&key, json(&VolumeEntry { name: name.to_owned(), ..entry }))
            .delete(&before)
            .put(&volume_name_key(name), json(&info.id.to_string()));
        Ok(keeper.commit(transaction).await?)
    }

    /// Whether what is here of a volume is one copy of several: the cluster's record has it, or is about to. One that was deleted while this node
    /// was away is not.
    pub(super) async fn is_recorded(&self, id: VolumeId) -> Result<bool, ControlError> {
        let Some(keeper) = self.keeper() else { return Ok(false) };
        if self.being_made.borrow().contains(&id) || keeper.volume(id).is_some() {
            return Ok(true);
        }
        let found = keeper.store().get(&volume_key(id), super::forks::ASK_RECORD).await;
        Ok(found.map_err(ClusterError::from)?.is_some())
    }

    /// Deletes a volume with copies. The caller holds it, and it is in no map.
    pub(super) async fn delete_replicated(&self, id: VolumeId, name: &str) -> Result<(), ControlError> {
        let keeper = self.keeper_or_why_not()?;
        let key = volume_key(id);
        let (entry, revision) =
            keeper.get::<VolumeEntry>(&key).ok_or_else(|| ControlError::not_found("volume", name))?;
        if keeper.fork_of(&entry).is_some() {
            return Err(ControlError::Forked(entry.name));
        }
        let name_key = volume_name_key(&entry.name);
        let name_revision = keeper.revision_of(&name_key);
        let mut transaction = Keeper::transaction()
            .expect(&key, Some(revision))
            .expect(&name_key, name_revision)
            .delete(&key)
            .delete(&name_key);
        for also in [strategy_key(id), split_key(id)] {
            if let Some(revision) = keeper.revision_of(&also) {
                transaction = transaction.expect(&also, Some(revision)).delete(&also);
            }
        }
        let mut nodes: Vec<NodeId> = entry.copies.iter().map(|copy| NodeId(copy.node)).collect();
        // Those that were taken off and are not deleted yet go with it.
        nodes.extend(entry.dropped.iter().map(|dropped| NodeId(dropped.node)));
        nodes.sort_unstable();
        nodes.dedup();
        if keeper.remembers_deleted() {
            let deleted = DeletedVolume {
                id: entry.id,
                name: entry.name,
                nodes: nodes.iter().map(|node| node.0).collect(),
            };
            transaction = transaction.expect(&deleted_key(id), None).put(&deleted_key(id), json(&deleted));
        }
        keeper.commit(transaction).await?;
        // It is deleted, whatever becomes of this. Each node that is written down looks by itself and then says so: it knows whether a pool that is not open may have
        // something, too.
        drop_copies(&keeper, &nodes, id).await;
        Ok(())
    }

    /// Opens this node's copy of a volume, if its pool is open. Says whether what its disk holds is to be trusted no more.
    pub(crate) async fn open_copy(self: &Rc<Control>, id: VolumeId, copy: CopyOpening) -> Option<bool> {
        let keeper = self.keeper()?;
        let entry = keeper.volume(id)?.entry;
        let (_, known) = entry.copy_on(keeper.me())?;
        let mut kept = self.copies_of(id);
        kept.retain(|(_, info)| info.copy.is_some_and(|kept| known.is_kept_as(&kept)));
        // One that is blank may be an older one.
        kept.sort_by_key(|(_, info)| info.copy.is_some_and(|kept| kept.state == CopyState::Blank));
        let (pool, kept) = kept.into_iter().next()?;
        // It may have been made larger before the volume was.
        let info = VolumeInfo { capacity: copy.size.min(kept.capacity), ..kept };
        self.being_made.borrow_mut().remove(&id);
        let untrusted = info.copy.as_ref()?.state == CopyState::Blank;
        let blank = untrusted || !copy.new && info.kind == VolumeKind::Ram;
        match self.opening(&pool, &info, Some((copy, Worth { blank, untrusted }))) {
            Ok(opening) => {
                self.unserved.borrow_mut().remove(&id);
                open_on_all_cores(vec![opening]).await;
                if self.is_set_aside(id) {
                    self.stop_expecting(BTreeSet::from([id])).await;
                }
                self.shown_paths.borrow_mut().remove(&id);
                self.announce_volumes().await;
                if untrusted {
                    rt::spawn(Rc::clone(self).trust_copy(pool, id, copy)).detach();
                }
                Some(blank)
            }
            Err(error) => {
                let cause = &error as &dyn std::error::Error;
                tracing::error!(volume = info.name, error = cause, "a copy is not served");
                self.unserved.borrow_mut().insert(id, error);
                None
            }
        }
    }

    /// Once the disk has all of a blank copy's map, which says that all is to be copied, the map may be trusted; and only then is anything copied:
    /// a copy in sync must never be blank after a restart.
    async fn trust_copy(self: Rc<Control>, pool: Pool, id: VolumeId, copy: CopyOpening) {
        let number = copy.number;
        loop {
            let written = on_all_cores(move || async move {
                let slices = Copies::current().slices_of(number);
                (slices.len(), slices.iter().all(|slice| slice.map_is_written()))
            })
            .await;
            let slices: usize = written.iter().map(|(count, _)| count).sum();
            if slices == 0 {
                return;
            }
            if written.iter().all(|(_, written)| *written) {
                break;
            }
            rt::sleep(MAP_WRITTEN_EVERY).await;
        }
        if let Err(error) = pool.set_copy(id, CopyState::Trusted { epoch: copy.made }).await {
            let error = &error as &dyn std::error::Error;
            tracing::error!(volume = %id, error, "a new copy cannot be begun: its pool does not take changes");
            return;
        }
        on_all_cores(move || async move {
            Copies::current().slices_of(number).iter().for_each(SliceCopy::trust);
        })
        .await;
    }

    /// This node has no copy of the volume any more: it is not served.
    pub(crate) async fn close_copy(self: &Rc<Control>, id: VolumeId) {
        let control = Rc::clone(self);
        let closed =
            self.change(Work::new("closing the copy of volume", &id.to_string()), |changing| async move {
                if let Ok((pool, _)) = control.volume_named(&id.to_string()) {
                    control.close_volume(&changing, &pool, id).await;
                }
                control.shown_paths.borrow_mut().remove(&id);
                if let Some(keeper) = control.keeper() {
                    keeper.closed(id).await;
                }
                Ok(())
            });
        if let Err(error) = closed.await {
            tracing::warn!(volume = %id, %error, "a copy could not be closed");
        }
    }

    /// Targets or hosts of the cluster have changed at these keys.
    pub(crate) async fn act_by_cluster(&self, keys: &BTreeSet<String>) {
        let Some(keeper) = self.keeper() else { return };
        let changes: Vec<AccessChange> = keys.iter().filter_map(|key| access_change(&keeper, key)).collect();
        if changes.is_empty() {
            return;
        }
        let (access, concerned) = self.access().with(&changes);
        announce(access, concerned).await;
    }

    /// The node's portals, and that this life of it is there, as the cluster's record should have it.
    pub(crate) async fn announce_node(
        &self,
        keeper: &Keeper,
        name: &str,
        portals: Vec<SocketAddr>,
    ) -> Result<(), ControlError> {
        let key = node_key(keeper.me());
        let known = keeper.get::<NodeEntry>(&key);
        let entry = NodeEntry {
            id: keeper.me().0,
            name: name.to_owned(),
            addresses: keeper.addresses(),
            portals: told_portals(&portals, &keeper.addresses()),
            witness: known.as_ref().is_some_and(|(node, _)| node.witness),
            incarnation: keeper.incarnation().0,
        };
        if known.as_ref().is_some_and(|(node, _)| *node == entry) {
            return Ok(());
        }
        let revision = known.map(|(_, revision)| revision);
        let transaction = Keeper::transaction().expect(&key, revision).put(&key, json(&entry));
        // Whom another one has let in was written down by that. Only who made the cluster says so itself, before there are others: who is not there any more was removed.
        let transaction = if revision.is_none() { transaction.expect(NEXT_NODE, None) } else { transaction };
        Ok(keeper.commit(transaction).await?)
    }
}

fn access_change(keeper: &Keeper, key: &str) -> Option<AccessChange> {
    if let Some(name) = key.strip_prefix(TARGETS) {
        let name: TargetName = name.parse().ok()?;
        Some(
            keeper
                .get(key)
                .map_or(AccessChange::DeleteTarget(name), |(target, _)| AccessChange::SetTarget(target)),
        )
    } else if let Some(name) = key.strip_prefix(HOSTS) {
        let name: HostName = name.parse().ok()?;
        Some(keeper.get(key).map_or(AccessChange::DeleteHost(name), |(host, _)| AccessChange::SetHost(host)))
    } else {
        None
    }
}

/// Waits a moment for the node to be heard of: the two may just have found each other again.
pub(super) async fn until_heard(keeper: &Keeper, node: NodeId) {
    let until = rt::now() + HEARD_WITHIN;
    while !keeper.hears(node) && rt::now() < until {
        rt::sleep(HEARD_EVERY).await;
    }
}

/// What is found when the nodes that take copies are heard of: one that has just started or joined is in a moment, and one on a busy machine may be late.
pub(super) async fn once_heard<T>(
    keeper: &Keeper,
    look: impl Fn() -> Result<T, ControlError>,
) -> Result<T, ControlError> {
    let until = rt::now() + HEARD_WITHIN;
    loop {
        let found = look();
        let is_missed = matches!(found, Err(ControlError::NodeNotThere(_) | ControlError::Copies { .. }));
        let takes_copies = |node: &NodeEntry| !node.witness && !keeper.is_in_maintenance(NodeId(node.id));
        let may_come = || keeper.nodes().iter().any(|(node, alive)| !alive && takes_copies(node));
        if !is_missed || rt::now() >= until || !may_come() {
            return found;
        }
        rt::sleep(HEARD_EVERY).await;
    }
}

fn choose_nodes(keeper: &Keeper, placement: &Placement) -> Result<Vec<NodeId>, ControlError> {
    let there: Vec<NodeEntry> = keeper
        .nodes()
        .into_iter()
        .filter(|(node, alive)| *alive && !node.witness && !keeper.is_in_maintenance(NodeId(node.id)))
        .map(|(node, _)| node)
        .collect();
    let chosen: Vec<NodeId> = match placement {
        Placement::Nodes(nodes) => {
            if let Some(missing) = nodes.iter().find(|id| !there.iter().any(|node| node.id == **id)) {
                return Err(ControlError::NodeNotThere(*missing));
            }
            nodes.iter().map(|id| NodeId(*id)).collect()
        }
        Placement::Count(count) => {
            let volumes = keeper.volumes();
            let used = |node: &NodeEntry| {
                volumes
                    .iter()
                    .flat_map(|volume| &volume.entry.copies)
                    .filter(|copy| copy.node == node.id)
                    .count()
            };
            let mut ranked: Vec<(bool, usize, u16)> =
                there.iter().map(|node| (NodeId(node.id) != keeper.me(), used(node), node.id)).collect();
            ranked.sort_unstable();
            ranked.into_iter().take(usize::from(*count)).map(|(_, _, id)| NodeId(id)).collect()
        }
    };
    let wanted = match placement {
        Placement::Nodes(nodes) => nodes.len(),
        Placement::Count(count) => usize::from(*count),
    };
    let distinct: BTreeSet<NodeId> = chosen.iter().copied().collect();
    if !(1..=Slot::MAX).contains(&wanted) || distinct.len() != wanted {
        return Err(ControlError::Copies { wanted, there: there.len() });
    }
    Ok(chosen)
}

/// Commits the new volume; all of its copies are in sync, since all are empty.
///
/// Nodes that make volumes at the same time draw their numbers from one key: who comes second draws again.
async fn record_volume(
    keeper: &Keeper,
    id: VolumeId,
    name: &str,
    size: u64,
    copies: Vec<CopyEntry>,
) -> Result<(), ControlError> {
    let until = rt::now() + RECORD_DEADLINE;
    loop {
        let drawn = keeper.revision_of(NEXT_NUMBER);
        match record_once(keeper, id, name, size, copies.clone()).await {
            Err(ControlError::Cluster(ClusterError::Conflict(key)))
                if key == NEXT_NUMBER && rt::now() < until =>
            {
                keeper.until(DRAWN_WITHIN, || keeper.revision_of(NEXT_NUMBER) != drawn).await;
            }
            result => return result,
        }
    }
}

async fn record_once(
    keeper: &Keeper,
    id: VolumeId,
    name: &str,
    size: u64,
    copies: Vec<CopyEntry>,
) -> Result<(), ControlError> {
    let next = keeper.get::<u32>(NEXT_NUMBER);
    let number = next.as_ref().map_or(1, |(number, _)| *number);
    let entry = VolumeEntry {
        id: id.to_string(),
        number,
        name: name.to_owned(),
        size,
        epoch: 1,
        copies,
        reason: "the volume was made".into(),
        dropped: Vec::new(),
        missed: BTreeMap::new(),
        paused: BTreeMap::new(),
    };
    let transaction = Keeper::transaction()
        .expect(NEXT_NUMBER, next.map(|(_, revision)| revision))
        .expect(&volume_key(id), None)
        .expect(&volume_name_key(name), None)
        .put(NEXT_NUMBER, json(&(number + 1)))
        .put(&volume_key(id), json(&entry))
        .put(&volume_name_key(name), json(&id.to_string()));
    Ok(keeper.commit(transaction).await?)
}

/// Deletes copies of a volume that is not in the record; gives the nodes that have done so. One that cannot be reached keeps its own, and shows it, until
/// [`Control::tidy_deleted`] there.
pub(super) async fn drop_copies(keeper: &Rc<Keeper>, nodes: &[NodeId], id: VolumeId) -> Vec<NodeId> {
    let mut dropped = Vec::new();
    for node in nodes {
        match keeper.ask(*node, Ask::DropCopy { id: id.to_string() }).await {
            Ok(_) => dropped.push(*node),
            Err(error) => {
                tracing::warn!(volume = %id, node = node.0, %error, "a copy was left on a node for now");
            }
        }
    }
    dropped
}

impl Control {
    /// Tells all units of copies how the nodes reach them, and initiators where the other nodes listen.
    pub(crate) async fn show_paths_of_copies(&self) {
        let Some(keeper) = self.keeper() else { return };
        let mut after = None;
        loop {
            let (some, next) = keeper.some_paths(after);
            let is_shown = |id: &VolumeId, paths: &Paths| self.shown_paths.borrow().get(id) == Some(paths);
            for (id, _) in some.into_iter().filter(|(id, paths)| !is_shown(id, paths)) {
                // As it is now: another task may have shown it anew while this one waited for the cores.
                let Some(paths) = keeper.paths_of(id).filter(|paths| !is_shown(&id, paths)) else { continue };
                self.shown_paths.borrow_mut().insert(id, paths.clone());
                self.set_paths(id, paths).await;
            }
            if next.is_none() {
                break;
            }
            after = next;
            rt::next_turn().await;
        }
        let others =
            keeper.nodes().into_iter().filter(|(node, _)| NodeId(node.id) != keeper.me() && !node.witness);
        let portals: BTreeMap<NodeNumber, Vec<SocketAddr>> =
            others.filter_map(|(node, _)| Some((NodeNumber::new(node.id.into())?, node.portals))).collect();
        if *self.shown_portals.borrow() != portals {
            self.shown_portals.replace(portals.clone());
            self.set_peer_portals(portals).await;
        }
    }
}
