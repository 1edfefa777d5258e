//! Volumes with copies on several nodes: found, grown, renamed and deleted; and targets and hosts, which all
//! nodes of a cluster share.
//!
//! How they are made: [`creation`]; of one that a node has alone: [`adoption`]. What nodes ask each other for
//! on the way: [`asked`]. How the copy that is here is opened: [`opening`].

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
use store::{Pool, VolumeInfo};

pub(crate) use self::adoption::ServedAs;
pub(super) use self::adoption::forget_sole;
pub use self::creation::{Placement, Ranking};
pub use self::opening::CopyOpening;
pub(super) use self::opening::Worth;
use super::access::{HOSTS, TARGETS, announce};
use super::members::{NEXT_NODE, told_portals};
use super::volumes::{has_empty_slices, whole_blocks};
use super::{Control, ControlError};
use crate::Paths;
use crate::access::{AccessChange, HostName, TargetName};
use crate::copies::{
    Ask, Cause, ClusterError, DeletedVolume, Keeper, NodeEntry, VolumeEntry, deleted_key, differing_key,
    json, node_key, split_key, strategy_key, verification_key, volume_key, volume_name_key,
};
use crate::port_numbers::NodeNumber;
use crate::shard::Shard;
use crate::volume::VolumeId;

/// How often a volume is grown anew because copies were added meanwhile.
const GROW_TRIES_MAX: usize = 4;

/// How long a node that is to get a copy may not be heard of, and how often that is looked at.
pub(super) const HEARD_WITHIN: Duration = Duration::from_secs(3);
const HEARD_EVERY: Duration = Duration::from_millis(50);

impl Control {
    /// The keeper of the node's copies, if the node is in a cluster.
    pub fn keeper(&self) -> Option<Rc<Keeper>> {
        Shard::current().copies()?.keeper()
    }

    pub(super) fn keeper_or_why_not(&self) -> Result<Rc<Keeper>, ControlError> {
        self.check_cluster()?;
        self.keeper().ok_or(ControlError::NoCluster)
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

    /// Makes a volume with copies larger: first each copy, then, in one step, the volume. Begun again, it
    /// goes on where it was.
    pub(super) async fn grow_replicated(&self, info: &VolumeInfo, size: ByteLen) -> Result<(), ControlError> {
        let keeper = self.keeper_or_why_not()?;
        keeper.check_entry(&volume_key(info.id))?;
        let capacity = whole_blocks(size, info.block_size)?;
        let mut grown: BTreeSet<(u16, u64)> = BTreeSet::new();
        for _ in 0..GROW_TRIES_MAX {
            let entry = keeper.volume(info.id).map(|volume| volume.entry);
            let entry = entry.ok_or_else(|| ControlError::not_found("volume", &info.name))?;
            let from = ByteLen(entry.size);
            if capacity < from {
                return Err(ControlError::WouldShrink { volume: entry.name, from, to: capacity });
            }
            if !entry.sole && has_empty_slices(&info.stripe, from) {
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
                next.reason = Cause::VolumeResized;
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

    /// Whether what is here of a volume is one copy of several: the cluster's record has it, or is about to.
    /// One that was deleted while this node was away is not.
    pub(super) async fn is_recorded(&self, id: VolumeId) -> Result<bool, ControlError> {
        let Some(keeper) = self.keeper() else {
            // Whether it is one cannot be known while the node takes no part in its cluster.
            self.check_cluster()?;
            return Ok(false);
        };
        if self.being_made.borrow().contains_key(&id) || keeper.volume(id).is_some() {
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
        let mut transaction = without_volume(&keeper, &entry, id, revision);
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
        // It is deleted, whatever becomes of this. Each node that is written down looks by itself and then
        // says so: it knows whether a pool that is not open may have something, too.
        drop_copies(&keeper, &nodes, id, None).await;
        Ok(())
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

    /// The node's portals, its version, its cores, and since when this life of it is there, as the cluster's
    /// record should have it.
    pub(crate) async fn announce_node(
        self: &Rc<Control>,
        keeper: &Rc<Keeper>,
        name: &str,
        portals: Vec<SocketAddr>,
        authority: bool,
    ) -> Result<(), ControlError> {
        let key = node_key(keeper.me());
        let known = keeper.get::<NodeEntry>(&key);
        if let Some((node, _)) = known.as_ref().filter(|(node, _)| !Control::is_own_life(keeper, node)) {
            return self.give_life_up(keeper, node.incarnation).await;
        }
        let entry = NodeEntry {
            id: keeper.me().0,
            name: name.to_owned(),
            addresses: keeper.addresses(),
            portals: told_portals(&portals, &keeper.addresses()),
            witness: known.as_ref().is_some_and(|(node, _)| node.witness),
            incarnation: keeper.incarnation().0,
            version: Some(env!("CARGO_PKG_VERSION").to_owned()),
            authority,
            cores: u16::try_from(rt::cores()).ok(),
            started: self.started,
            start: keeper.start_number(),
        };
        if known.as_ref().is_some_and(|(node, _)| *node == entry) {
            return Ok(());
        }
        let revision = known.map(|(_, revision)| revision);
        let transaction = Keeper::transaction().expect(&key, revision).put(&key, json(&entry));
        // Whom another one has let in was written down by that. Only who made the cluster says so itself,
        // before there are others: who is not there any more was removed.
        let transaction = if revision.is_none() { transaction.expect(NEXT_NODE, None) } else { transaction };
        Ok(keeper.commit(transaction).await?)
    }
}

/// Takes all that the record has of a volume out of it.
fn without_volume(
    keeper: &Keeper,
    entry: &VolumeEntry,
    id: VolumeId,
    revision: cluster::Revision,
) -> Transaction {
    let (key, name_key) = (volume_key(id), volume_name_key(&entry.name));
    let transaction = Keeper::transaction()
        .expect(&key, Some(revision))
        .expect(&name_key, keeper.revision_of(&name_key))
        .delete(&key)
        .delete(&name_key);
    let also = [strategy_key(id), split_key(id), verification_key(id), differing_key(id)];
    also.into_iter().fold(transaction, |transaction, also| match keeper.revision_of(&also) {
        Some(revision) => transaction.expect(&also, Some(revision)).delete(&also),
        None => transaction,
    })
}

fn access_change(keeper: &Keeper, key: &str) -> Option<AccessChange> {
    // What cannot be read is not gone.
    if keeper.is_unreadable(key) {
        return None;
    }
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

/// What is found when the nodes that take copies are heard of: one that has just started or joined is in a
/// moment, and one on a busy machine may be late.
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

/// Deletes copies of a volume that is not in the record; gives the nodes that have done so. One that cannot
/// be reached keeps its own, and shows it, until [`Control::tidy_deleted`] there.
pub(super) async fn drop_copies(
    keeper: &Rc<Keeper>,
    nodes: &[NodeId],
    id: VolumeId,
    asker: Option<u64>,
) -> Vec<NodeId> {
    let mut dropped = Vec::new();
    for node in nodes {
        match keeper.ask(*node, Ask::DropCopy { id: id.to_string(), asker }).await {
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
