//! Volumes in the cluster's record: found, grown, renamed and deleted; and the cluster's targets and hosts.
//!
//! [`creation`] creates such volumes, and [`adoption`] turns a node's sole copy into one of several.
//! [`asked`] handles what nodes ask each other for on the way, and [`opening`] opens this node's copy.

mod adoption;
mod asked;
mod creation;
mod opening;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use base::ByteLen;
use cluster::Transaction;
use replica::NodeId;
use store::{Compression, Pool, PoolId, SpacePolicy, VolumeInfo};

pub(crate) use self::adoption::ServedAs;
pub(super) use self::adoption::forget_sole;
pub(crate) use self::creation::NEXT_NUMBER;
pub(super) use self::creation::{Made, NewEntry};
pub use self::creation::{Placement, Ranking};
pub use self::opening::CopyOpening;
pub(super) use self::opening::Worth;
use super::access::{HOSTS, TARGETS, announce};
use super::change::{Changing, WaitsFor};
use super::members::{NEXT_NODE, told_portals};
use super::relocation::TRIES_MAX;
use super::snapshots::{check_none_preparing, no_new_snapshot};
use super::tidying::TIDY_EVERY;
use super::volumes::{
    SpaceChange, check_compressible, check_space, has_empty_slices, show_capacity, whole_blocks,
};
use super::{ClusterFault, Control, ControlError, Result};
use crate::Paths;
use crate::attach::access::{AccessChange, HostName, TargetName, VolumeName};
use crate::attach::port_numbers::NodeNumber;
use crate::copies::{
    Ask, Cause, CopyEntry, DeletedVolume, NodeEntry, VolumeEntry, deleted_key, differing_key, node_key,
    policy_key, split_key, verification_key, volume_key, volume_name_key,
};
use crate::data::VolumeId;
use crate::member::{ClusterError, Reconciler, json};
use crate::shard::{NodePortals, Shard};

/// How many times growing a volume is repeated because copies were added meanwhile.
const GROW_TRIES_MAX: usize = 4;

/// How long to wait for heartbeats of a node that is to get a copy.
pub(super) const HEARD_WITHIN: Duration = Duration::from_secs(3);

impl Control {
    /// The reconciler of the node's copies.
    ///
    /// # Errors
    /// Why the node has none: [`ControlError::ClusterFailed`].
    pub fn reconciler(&self) -> Result<Rc<Reconciler>> {
        let reconciler = Shard::current().copies().and_then(|copies| copies.reconciler());
        reconciler.ok_or_else(|| self.why_no_part())
    }

    /// Why the node does not take part in its cluster.
    pub(super) fn why_no_part(&self) -> ControlError {
        let why = self.cluster_failure().map(|failure| failure.why);
        ControlError::ClusterFailed(why.unwrap_or(ClusterFault::Starting))
    }

    /// What the open pools hold of a volume: at most one copy, unless a pool that had been forgotten came
    /// back.
    pub(super) fn copies_of(&self, id: VolumeId) -> Vec<(Pool, VolumeInfo)> {
        let pools = self.open_pools().into_iter();
        pools.filter_map(|pool| pool.volume(id).map(|info| (pool, info))).collect()
    }

    /// The pool that has this node's copy of a volume; `None` if no open pool does.
    pub(crate) fn pool_of_copy(&self, id: VolumeId) -> Option<PoolId> {
        self.pool_of(id).ok().map(|pool| pool.id())
    }

    /// The number of slices with blocks of this node's copy; 0 if no open pool has a copy.
    pub(crate) fn slices_of_copy(&self, id: VolumeId) -> usize {
        let Some((_, info)) = self.current_of(self.copies_of(id)) else { return 0 };
        (0..info.stripe.slices()).filter(|index| info.stripe.slice_len(*index, info.capacity).0 > 0).count()
    }

    /// The reconciler, for a change of this volume in the record.
    ///
    /// # Errors
    /// [`ControlError::NotReplicated`]: the record does not list the volume.
    /// [`ClusterError::Unreadable`].
    fn recording(&self, info: &VolumeInfo) -> Result<Rc<Reconciler>> {
        let reconciler = self.reconciler()?;
        reconciler.check_entry(&volume_key(info.id))?;
        match info.is_sole() && !reconciler.has(info.id) {
            true => Err(ControlError::NotReplicated(info.name.clone())),
            false => Ok(reconciler),
        }
    }

    /// Grows a volume: first each copy, then, in one step, the volume. If repeated, it continues where it
    /// stopped.
    pub(super) async fn grow_replicated(
        &self,
        changing: &Changing,
        info: &VolumeInfo,
        size: ByteLen,
    ) -> Result<()> {
        let reconciler = self.recording(info)?;
        let capacity = whole_blocks(size, info.block_size)?;
        let mut grown: BTreeSet<(u16, u64)> = BTreeSet::new();
        for _ in 0..GROW_TRIES_MAX {
            let entry = reconciler.volume(info.id).map(|volume| volume.entry);
            let entry = entry.ok_or_else(|| ControlError::not_found("volume", &info.name))?;
            let from = ByteLen(entry.size);
            if capacity < from {
                return Err(ControlError::WouldShrink { volume: entry.name, from, to: capacity });
            }
            if capacity == from {
                return Ok(());
            }
            if !entry.sole && has_empty_slices(&info.stripe, from) {
                return Err(ControlError::TooSmallToGrow(entry.name));
            }
            for copy in entry.copies.iter().filter(|copy| !grown.contains(&(copy.node, copy.made))) {
                if NodeId(copy.node) == reconciler.me() {
                    self.grow_copy_here(changing, &entry.id, capacity).await?;
                    continue;
                }
                changing.waits_for(WaitsFor::Nodes(vec![copy.node]));
                let ask = Ask::GrowCopy { id: entry.id.clone(), size: capacity.0 };
                reconciler.ask(NodeId(copy.node), ask).await?;
            }
            grown.extend(entry.copies.iter().map(|copy| (copy.node, copy.made)));
            changing.waits_for(WaitsFor::ClusterRecord);
            let made = self.change_entry(&reconciler, info.id, None, |entry| {
                if entry.copies.iter().any(|copy| !grown.contains(&(copy.node, copy.made))) {
                    return Err(ControlError::Cluster(ClusterError::Conflict(entry.name.clone())));
                }
                // It has the size that the volume had before. Hosts must not have written behind that.
                check_none_preparing(&reconciler, &entry.id)?;
                let mut next = entry.clone();
                (next.size, next.epoch) = (capacity.0.max(entry.size), entry.epoch + 1);
                next.reason = Cause::VolumeResized;
                Ok((next, vec![no_new_snapshot(&reconciler)]))
            });
            match made.await {
                // A copy was added meanwhile, with the volume's old size.
                Err(ControlError::Cluster(ClusterError::Conflict(_))) => {}
                // Hosts know when the caller does.
                Ok(entry) if entry.sole => {
                    show_capacity(info.id, ByteLen(entry.size)).await;
                    return Ok(());
                }
                result => return result.map(drop),
            }
        }
        Err(ClusterError::Conflict(info.name.clone()).into())
    }

    /// Changes how a volume shares the space of its pools.
    ///
    /// A larger reserve is set in the pool of each copy first, so all of their nodes must be up. Otherwise
    /// the nodes' pools follow automatically, as they do if a part of this fails.
    pub(super) async fn set_space_replicated(
        &self,
        changing: &Changing,
        info: &VolumeInfo,
        change: SpaceChange,
    ) -> Result<()> {
        let reconciler = self.recording(info)?;
        let mut given: BTreeSet<(u16, u64)> = BTreeSet::new();
        for _ in 0..GROW_TRIES_MAX {
            let entry = reconciler.volume(info.id).map(|volume| volume.entry);
            let entry = entry.ok_or_else(|| ControlError::not_found("volume", &info.name))?;
            let before = SpacePolicy::from(entry.space);
            let space = change.of(before);
            check_space(space, info.kind, ByteLen(entry.size))?;
            let grows = space.reserve > before.reserve;
            for copy in &entry.copies {
                if !grows || given.contains(&(copy.node, copy.made)) {
                    continue;
                }
                if NodeId(copy.node) == reconciler.me() {
                    self.set_space_here(changing, &entry.id, space).await?;
                } else {
                    changing.waits_for(WaitsFor::Nodes(vec![copy.node]));
                    let ask = Ask::SetSpace { id: entry.id.clone(), space: space.into() };
                    reconciler.ask(NodeId(copy.node), ask).await?;
                }
                given.insert((copy.node, copy.made));
            }
            changing.waits_for(WaitsFor::ClusterRecord);
            let made = self.change_entry(&reconciler, info.id, None, |now| {
                let is_given = |copy: &CopyEntry| given.contains(&(copy.node, copy.made));
                if now.space != entry.space || grows && !now.copies.iter().all(is_given) {
                    return Err(ControlError::Cluster(ClusterError::Conflict(now.name.clone())));
                }
                Ok((VolumeEntry { space: space.into(), ..now.clone() }, Vec::new()))
            });
            let made = made.await;
            match made {
                // A copy was added meanwhile, or another change was faster.
                Err(ControlError::Cluster(ClusterError::Conflict(_))) => given.clear(),
                Err(error) => return Err(error),
                Ok(_) => {
                    // So that it holds here at once. If this fails, the pool follows later.
                    let _followed = self.set_space_here(changing, &info.id.to_string(), space).await;
                    return Ok(());
                }
            }
        }
        Err(ClusterError::Conflict(info.name.clone()).into())
    }

    /// Changes whether the blocks of a volume are compressed that are written from now on. Its nodes' pools
    /// follow automatically, also those of nodes that are down.
    pub(super) async fn set_compression_replicated(
        self: &Rc<Control>,
        info: &VolumeInfo,
        compression: Compression,
    ) -> Result<()> {
        let reconciler = self.recording(info)?;
        self.change_entry(&reconciler, info.id, None, |entry| {
            check_compressible(entry.shape.kind.is_compressible())?;
            Ok((VolumeEntry { compression: compression.into(), ..entry.clone() }, Vec::new()))
        })
        .await?;
        // So that it holds here at once. If this fails, the pool follows later.
        let _followed = self.follow_compression(info.id).await;
        Ok(())
    }

    /// Renames a volume of the record. Its nodes' pools follow automatically.
    pub(super) async fn rename_replicated(&self, info: &VolumeInfo, name: &str) -> Result<()> {
        let reconciler = self.reconciler()?;
        if reconciler.revision_of(&volume_name_key(name)).is_some() {
            return Err(ControlError::Exists { kind: "volume", name: name.to_owned() });
        }
        let key = volume_key(info.id);
        let known = reconciler.get::<VolumeEntry>(&key);
        let (entry, revision) = known.ok_or_else(|| ControlError::not_found("volume", &info.name))?;
        let before = volume_name_key(&entry.name);
        let transaction = Reconciler::transaction()
            .expect(&key, Some(revision))
            .expect(&before, reconciler.revision_of(&before))
            .expect(&volume_name_key(name), None)
            .put(&key, json(&VolumeEntry { name: name.to_owned(), ..entry }))
            .delete(&before)
            .put(&volume_name_key(name), json(&info.id.to_string()));
        Ok(reconciler.commit(transaction).await?)
    }

    /// Whether this node's data of a volume is one of its copies: the cluster's record lists the volume, or
    /// is about to.
    ///
    /// If the volume was deleted while this node was down, it is not.
    pub(super) async fn is_recorded(&self, id: VolumeId) -> Result<bool> {
        // Unknown while the node does not take part in its cluster.
        let reconciler = self.reconciler()?;
        if self.being_made.borrow().contains_key(&id) || reconciler.volume(id).is_some() {
            return Ok(true);
        }
        let found = reconciler.store().get(&volume_key(id), super::forks::ASK_RECORD).await;
        Ok(found.map_err(ClusterError::from)?.is_some())
    }

    /// Deletes a volume of the record. The caller has unmapped it.
    pub(super) async fn delete_replicated(
        &self,
        changing: &Changing,
        id: VolumeId,
        name: &str,
    ) -> Result<()> {
        changing.waits_for(WaitsFor::ClusterRecord);
        let reconciler = self.reconciler()?;
        let key = volume_key(id);
        let mut tries = 0;
        let mut nodes = loop {
            tries += 1;
            let (entry, revision) =
                reconciler.get::<VolumeEntry>(&key).ok_or_else(|| ControlError::not_found("volume", name))?;
            if reconciler.fork_of(&entry).is_some() {
                return Err(ControlError::Forked(entry.name));
            }
            self.check_no_snapshots(id, &entry.name)?;
            let (last, begun) = no_new_snapshot(&reconciler);
            let mut transaction = without_volume(&reconciler, &entry, id, revision).expect(&last, begun);
            let mut nodes: Vec<NodeId> = entry.copies.iter().map(|copy| NodeId(copy.node)).collect();
            // Copies that were removed but not yet deleted go with it.
            nodes.extend(entry.dropped.iter().map(|dropped| NodeId(dropped.node)));
            nodes.sort_unstable();
            nodes.dedup();
            if reconciler.remembers_deleted() {
                let deleted = DeletedVolume {
                    id: entry.id,
                    name: entry.name,
                    nodes: nodes.iter().map(|node| node.0).collect(),
                };
                transaction =
                    transaction.expect(&deleted_key(id), None).put(&deleted_key(id), json(&deleted));
            }
            match reconciler.commit(transaction).await {
                // A snapshot was begun, perhaps of this volume, and would be lost with it.
                Err(ClusterError::Conflict(conflict)) if conflict == last && tries < TRIES_MAX => {
                    reconciler.until_changed(TIDY_EVERY, &last, begun).await;
                }
                result => {
                    result?;
                    break nodes;
                }
            }
        };
        // The volume is deleted now, even if this fails. Each node that the entry lists then cleans up and
        // confirms it, because only that node knows whether one of its closed pools may still hold something.
        let is_here = nodes.contains(&reconciler.me());
        nodes.retain(|node| *node != reconciler.me());
        if !nodes.is_empty() {
            changing.waits_for(WaitsFor::Nodes(nodes.iter().map(|node| node.0).collect()));
            drop_copies(&reconciler, &nodes, id, None).await;
        }
        if is_here && let Err(error) = self.drop_copy_here(changing, id, false).await {
            tracing::warn!(volume = %id, %error, "a copy of a deleted volume was left on this node for now");
        }
        Ok(())
    }

    /// Applies changes of the cluster's targets or hosts at these keys.
    pub(crate) async fn act_by_cluster(&self, keys: &BTreeSet<String>) {
        let Ok(reconciler) = self.reconciler() else { return };
        let changes: Vec<AccessChange> =
            keys.iter().filter_map(|key| access_change(&reconciler, key)).collect();
        if changes.is_empty() {
            return;
        }
        let (access, concerned) = self.access().with(&changes);
        announce(access, concerned).await;
    }

    /// Updates this node's entry in the cluster's record: portals, version, cores, and when this life began.
    pub(crate) async fn announce_node(
        self: &Rc<Control>,
        reconciler: &Rc<Reconciler>,
        name: &str,
        portals: Vec<SocketAddr>,
        authority: bool,
    ) -> Result<()> {
        let key = node_key(reconciler.me());
        let known = reconciler.get::<NodeEntry>(&key);
        if let Some((node, _)) = known.as_ref().filter(|(node, _)| !Control::is_own_life(reconciler, node)) {
            return self.give_life_up(reconciler, node.incarnation).await;
        }
        let entry = NodeEntry {
            id: reconciler.me().0,
            name: name.to_owned(),
            addresses: reconciler.addresses(),
            portals: told_portals(&portals, &reconciler.addresses()),
            portal_group: self.portal_group(),
            identity: self.host.id.to_string(),
            witness: known.as_ref().is_some_and(|(node, _)| node.witness),
            incarnation: reconciler.incarnation().0,
            version: Some(env!("CARGO_PKG_VERSION").to_owned()),
            authority,
            cores: u16::try_from(rt::cores()).ok(),
            started: self.started,
            start: reconciler.start_number(),
        };
        if known.as_ref().is_some_and(|(node, _)| *node == entry) {
            return Ok(());
        }
        let revision = known.map(|(_, revision)| revision);
        let transaction = Reconciler::transaction().expect(&key, revision).put(&key, json(&entry));
        // A node that another one let join already has an entry. Only the node that created the cluster adds
        // its own, before there are others. Any other node without an entry was removed.
        let transaction = if revision.is_none() { transaction.expect(NEXT_NODE, None) } else { transaction };
        Ok(reconciler.commit(transaction).await?)
    }
}

/// A transaction that removes everything that the record has of a volume.
fn without_volume(
    reconciler: &Reconciler,
    entry: &VolumeEntry,
    id: VolumeId,
    revision: cluster::Revision,
) -> Transaction {
    let (key, name_key) = (volume_key(id), volume_name_key(&entry.name));
    let transaction = Reconciler::transaction()
        .expect(&key, Some(revision))
        .expect(&name_key, reconciler.revision_of(&name_key))
        .delete(&key)
        .delete(&name_key);
    let also = [policy_key(id), split_key(id), verification_key(id), differing_key(id)];
    also.into_iter().fold(transaction, |transaction, also| match reconciler.revision_of(&also) {
        Some(revision) => transaction.expect(&also, Some(revision)).delete(&also),
        None => transaction,
    })
}

fn access_change(reconciler: &Reconciler, key: &str) -> Option<AccessChange> {
    // An entry that cannot be read was not deleted.
    if reconciler.is_unreadable(key) {
        return None;
    }
    if let Some(name) = key.strip_prefix(TARGETS) {
        let name: TargetName = name.parse().ok()?;
        Some(
            reconciler
                .get(key)
                .map_or(AccessChange::DeleteTarget(name), |(target, _)| AccessChange::SetTarget(target)),
        )
    } else if let Some(name) = key.strip_prefix(HOSTS) {
        let name: HostName = name.parse().ok()?;
        Some(
            reconciler
                .get(key)
                .map_or(AccessChange::DeleteHost(name), |(host, _)| AccessChange::SetHost(host)),
        )
    } else {
        None
    }
}

/// Waits a moment for the node's heartbeats: the two nodes may only just have connected again.
pub(super) async fn until_heard(reconciler: &Reconciler, node: NodeId) {
    reconciler.until(HEARD_WITHIN, || reconciler.hears(node)).await;
}

/// Repeats `look` until it finds nodes that can take copies, or for a few seconds.
///
/// Whether it finds them must depend only on which nodes take copies and are heard: it may go through all
/// volumes, so it is not repeated before that changes. A node that has just started or joined is up in a
/// moment, and one on a busy machine may be late.
pub(super) async fn once_heard<T>(reconciler: &Reconciler, look: impl Fn() -> Result<T>) -> Result<T> {
    // The nodes that take copies, and whether each is heard.
    let takers = || -> Vec<(u16, bool)> {
        let takes_copies = |node: &NodeEntry| !node.witness && !reconciler.is_in_maintenance(NodeId(node.id));
        let takers = reconciler.nodes().into_iter().filter(|(node, _)| takes_copies(node));
        takers.map(|(node, heard)| (node.id, heard)).collect()
    };
    let until = rt::now() + HEARD_WITHIN;
    loop {
        let found = look();
        if !matches!(found, Err(ControlError::NodeNotThere(_) | ControlError::Copies { .. })) {
            return found;
        }
        let (now, before) = (rt::now(), takers());
        if now >= until || before.iter().all(|(_, heard)| *heard) {
            return found;
        }
        reconciler.until(until.since(now), || takers() != before).await;
    }
}

/// Deletes copies of a volume that is not in the record; returns the nodes that have done so.
///
/// A node that cannot be reached keeps its copy, and shows it, until it finds the volume among the record's
/// deleted ones ([`Control::tidy_copies`]).
pub(super) async fn drop_copies(
    reconciler: &Rc<Reconciler>,
    nodes: &[NodeId],
    id: VolumeId,
    asker: Option<u64>,
) -> Vec<NodeId> {
    let mut dropped = Vec::new();
    for node in nodes {
        match reconciler.ask(*node, Ask::DropCopy { id: id.to_string(), asker }).await {
            Ok(_) => dropped.push(*node),
            Err(error) => {
                tracing::warn!(volume = %id, node = node.0, %error, "a copy was left on a node for now");
            }
        }
    }
    dropped
}

/// Deletes the copies of a new volume that was not added to the record, and never will be.
///
/// The nodes that could not be reached find the volume among the record's deleted ones: no other volume ever
/// gets its identity.
async fn drop_new(
    reconciler: &Rc<Reconciler>,
    nodes: &[NodeId],
    id: VolumeId,
    name: &VolumeName,
    asker: u64,
) {
    let dropped = drop_copies(reconciler, nodes, id, Some(asker)).await;
    let left: Vec<u16> = nodes.iter().filter(|node| !dropped.contains(node)).map(|node| node.0).collect();
    if left.is_empty() || !reconciler.remembers_deleted() {
        return;
    }
    let deleted = DeletedVolume { id: id.to_string(), name: name.to_string(), nodes: left };
    let key = deleted_key(id);
    let transaction =
        Reconciler::transaction().expect(&volume_key(id), None).expect(&key, None).put(&key, json(&deleted));
    if let Err(error) = reconciler.commit(transaction).await {
        tracing::warn!(volume = %name, %error, "the cluster's record could not be updated: copies of a volume that was not created stay on some nodes");
    }
}

impl Control {
    /// Updates the paths to copies in all units, and the portals of the other nodes that initiators are
    /// shown.
    pub(crate) async fn show_paths_of_copies(&self) {
        let Ok(reconciler) = self.reconciler() else { return };
        // First the nodes, which the paths name.
        let others = reconciler
            .nodes()
            .into_iter()
            .filter(|(node, _)| NodeId(node.id) != reconciler.me() && !node.witness);
        let portals = others.filter_map(|(node, _)| {
            let portals = NodePortals { addresses: node.portals, group: node.portal_group };
            Some((NodeNumber::new(node.id.into())?, portals))
        });
        let portals: BTreeMap<NodeNumber, NodePortals> = portals.collect();
        if *self.shown_portals.borrow() != portals {
            self.shown_portals.replace(portals.clone());
            self.set_peer_portals(portals).await;
        }
        let mut after = None;
        loop {
            let (some, next) = reconciler.some_paths(after);
            let is_shown = |id: &VolumeId, paths: &Paths| self.shown_paths.borrow().get(id) == Some(paths);
            for (id, _) in some.into_iter().filter(|(id, paths)| !is_shown(id, paths)) {
                // The current paths: another task may have updated them while this one waited for the cores.
                let Some(paths) = reconciler.paths_of(id).filter(|paths| !is_shown(&id, paths)) else {
                    continue;
                };
                self.shown_paths.borrow_mut().insert(id, paths.clone());
                self.set_paths(id, paths).await;
            }
            if next.is_none() {
                break;
            }
            after = next;
            rt::next_turn().await;
        }
    }
}
