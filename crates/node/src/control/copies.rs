//! Volumes with copies on several nodes: made, opened, deleted; and targets and hosts, which all nodes of a cluster share.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::rc::Rc;

use base::BlockSize;
use replica::{Incarnation, NodeId, Slot};
use store::{CopyOf, CopyState, VolumeInfo, VolumeKind, VolumeSpec};

use super::access::{HOSTS, TARGETS, announce};
use super::change::{Changing, WaitsFor, Work};
use super::members::told_portals;
use super::turns::Thing;
use super::volumes::{open_on_all_cores, whole_blocks};
use super::{Control, ControlError, NewVolume, VolumeStatus};
use crate::access::{AccessChange, HostName, TargetName, VolumeName};
use crate::copies::{
    Address, Answer, Ask, CopyEntry, Keeper, NewCopy, NodeEntry, StandingEntry, VolumeEntry, json, node_key,
    volume_key, volume_name_key,
};
use crate::port_numbers::NodeNumber;
use crate::shard::Shard;
use crate::volume::VolumeId;

/// The key of the number that the next volume with copies gets.
const NEXT_NUMBER: &str = "next-volume-number";

/// The copies that a volume is to have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Placement {
    /// On as many nodes, this one among them if it can.
    Count(u8),
    /// On these nodes, by number.
    Nodes(Vec<u16>),
}

/// What was found in a copy of a volume.
#[derive(Clone, Debug)]
pub struct CheckedCopy {
    /// The copy.
    pub copy: CopyEntry,
    /// The checksums of its slices, in order.
    pub found: Result<Vec<u32>, String>,
}

/// How a copy on this node is to be opened.
#[derive(Clone, Copy, Debug)]
pub struct CopyOpening {
    /// The volume's number in the cluster.
    pub number: u32,
    /// Which copy this is.
    pub me: Slot,
    /// This life of the node.
    pub incarnation: Incarnation,
    /// The copy is in sync in this very life: it was made in it.
    pub new: bool,
}

impl CopyOpening {
    /// How a slice of it is to be opened.
    pub(super) fn of_slice(&self, slice: u16, block_size: BlockSize, blank: bool) -> crate::copies::Opening {
        crate::copies::Opening {
            address: Address { volume: self.number, slice },
            me: self.me,
            incarnation: self.incarnation,
            block_bytes: block_size.bytes(),
            blank,
        }
    }
}

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
    ) -> Result<VolumeStatus, ControlError> {
        let keeper = self.keeper_or_why_not()?;
        let name: VolumeName = new.name.parse()?;
        let nodes = choose_nodes(&keeper, placement)?;
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
            // The same on all nodes, whatever their cores.
            slices: new.slices.unwrap_or_else(|| rt::cores().next_power_of_two().min(64) as u16),
            created: new.created,
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
        });
        let copies: Vec<CopyEntry> = copies.collect();
        let recorded = record_volume(&keeper, id, name.as_str(), size, copies).await;
        if let Err(error) = recorded {
            drop_copies(&keeper, &nodes, id).await;
            return Err(error);
        }
        if let Some(map) = &new.map {
            let _record = changing.hold([Thing::Record]).await?;
            let place = self.place_for_new(map)?;
            self.change_access(changing, vec![place.taken_by(id)]).await?;
        }
        self.volume(name.as_str())
    }

    /// Does what another node asks for.
    pub(crate) async fn carry_out_ask(self: Rc<Control>, ask: Ask) -> Result<Answer, ControlError> {
        let keeper = self.keeper_or_why_not()?;
        match ask {
            Ask::MakeCopy(copy) => self.make_copy(copy).await?,
            Ask::DropCopy { id } => self.drop_copy(&id).await?,
            Ask::Checksum { id } => return Ok(Answer::Checksum(self.checksum_of_copy(&id).await?)),
        }
        Ok(Answer::Done { incarnation: keeper.incarnation().0 })
    }

    async fn make_copy(self: &Rc<Control>, copy: NewCopy) -> Result<(), ControlError> {
        let strange = |field| ControlError::Invalid {
            field,
            reason: "another node asked for what this one does not know",
        };
        let cluster = store::ClusterId(self.keeper_or_why_not()?.cluster().0);
        let spec = VolumeSpec {
            name: copy.name.clone(),
            kind: if copy.ram { VolumeKind::Ram } else { VolumeKind::Thick },
            block_size: BlockSize::from_bytes(copy.block_bytes).ok_or(strange("block size"))?,
            physical_exponent: copy.physical_exponent,
            capacity: base::ByteLen(copy.size),
            slices: Some(copy.slices),
            created: copy.created,
            id: Some(VolumeId::parse(&copy.id).ok_or(strange("volume"))?),
            copy: Some(CopyOf { cluster, slot: copy.slot, state: CopyState::Trusted { epoch: 1 } }),
        };
        let control = Rc::clone(self);
        self.change(Work::new("making a copy of volume", &copy.name), |changing| async move {
            let pool = match copy.pool {
                Some(pool) => pool,
                None => control.only_pool()?.name(),
            };
            let _name = changing.hold([Thing::VolumesOf(pool.clone())]).await?;
            let pool = control.pool_named(&pool)?;
            changing.waits_for(WaitsFor::Disks(pool.paths()));
            Ok(pool.create_volume(spec).await.map(drop)?)
        })
        .await
    }

    async fn drop_copy(self: &Rc<Control>, id: &str) -> Result<(), ControlError> {
        let (control, id) = (Rc::clone(self), id.to_owned());
        self.change(Work::new("deleting a copy of volume", &id), |changing| async move {
            let Ok((pool, info)) = control.volume_named(&id) else { return Ok(()) };
            let _volume = changing.hold([Thing::Volume(info.id), Thing::VolumesOf(pool.name())]).await?;
            let still_there =
                control.keeper().is_some_and(|keeper| keeper.revision_of(&volume_key(info.id)).is_some());
            if info.copy.is_none() || still_there {
                return Err(ControlError::Internal("a volume that is in use was to be deleted"));
            }
            control.close_volume(&changing, &pool, info.id).await;
            changing.waits_for(WaitsFor::Disks(pool.paths()));
            Ok(pool.delete_volume(info.id).await?)
        })
        .await
    }

    /// Deletes a volume with copies. The caller holds it, and it is in no map.
    pub(super) async fn delete_replicated(&self, info: &VolumeInfo) -> Result<(), ControlError> {
        let keeper = self.keeper_or_why_not()?;
        let key = volume_key(info.id);
        let (entry, revision) =
            keeper.get::<VolumeEntry>(&key).ok_or_else(|| ControlError::not_found("volume", &info.name))?;
        let name_key = volume_name_key(&entry.name);
        let name_revision = keeper.revision_of(&name_key);
        let transaction = Keeper::transaction()
            .expect(&key, Some(revision))
            .expect(&name_key, name_revision)
            .delete(&key)
            .delete(&name_key);
        keeper.commit(transaction).await?;
        let nodes: Vec<NodeId> = entry.copies.iter().map(|copy| NodeId(copy.node)).collect();
        drop_copies(&keeper, &nodes, info.id).await;
        Ok(())
    }

    /// Opens this node's copy of a volume, if its pool is open. Says whether what its disk holds is to be trusted no more.
    pub(crate) async fn open_copy(&self, id: VolumeId, copy: CopyOpening) -> Option<bool> {
        let (pool, info) = self.volume_named(&id.to_string()).ok()?;
        let state = info.copy.as_ref()?.state;
        let blank = !copy.new && (info.kind == VolumeKind::Ram || state == CopyState::Blank);
        match self.opening(&pool, &info, Some((copy, blank))) {
            Ok(opening) => {
                self.unserved.borrow_mut().remove(&id);
                open_on_all_cores(vec![opening]).await;
                self.shown_paths.borrow_mut().remove(&id);
                self.announce_volumes().await;
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

    /// This node has no copy of the volume any more: it is not served.
    pub(crate) async fn close_copy(self: &Rc<Control>, id: VolumeId) {
        let control = Rc::clone(self);
        let closed =
            self.change(Work::new("closing the copy of volume", &id.to_string()), |changing| async move {
                let Ok((pool, _)) = control.volume_named(&id.to_string()) else { return Ok(()) };
                control.close_volume(&changing, &pool, id).await;
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
        let transaction =
            Keeper::transaction().expect(&key, known.map(|(_, revision)| revision)).put(&key, json(&entry));
        Ok(keeper.commit(transaction).await?)
    }

    /// Has all nodes that have a copy of the volume read it: one checksum a slice, or why there is none.
    ///
    /// # Errors
    /// A volume that does not exist, or is on this node alone.
    pub async fn verify_copies(&self, name: &str) -> Result<Vec<CheckedCopy>, ControlError> {
        let VolumeStatus { info, copies, .. } = self.volume(name)?;
        let Some(copies) = copies else { return Err(ControlError::NotReplicated(info.name)) };
        let keeper = self.keeper_or_why_not()?;
        let ask = |copy: CopyEntry| {
            let (keeper, id) = (Rc::clone(&keeper), info.id.to_string());
            async move {
                let found = match keeper.ask(NodeId(copy.node), Ask::Checksum { id }).await {
                    Ok(Answer::Checksum(found)) => Ok(found),
                    Ok(Answer::Done { .. }) => Err("it gave a strange answer".to_owned()),
                    Err(error) => Err(error.to_string()),
                };
                CheckedCopy { copy, found }
            }
        };
        // At once: the less is written in between, the more an inequality says.
        Ok(rt::join_all(copies.entry.copies.into_iter().map(ask)).await)
    }

    /// One checksum for each slice of this node's copy, in order.
    async fn checksum_of_copy(&self, id: &str) -> Result<Vec<u32>, ControlError> {
        let (_, info) = self.volume_named(id)?;
        crate::copies::checksum(info.id, info.stripe.slices())
            .await
            .ok_or(ControlError::Internal("the copy cannot be read"))
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

fn choose_nodes(keeper: &Keeper, placement: &Placement) -> Result<Vec<NodeId>, ControlError> {
    let there: Vec<NodeEntry> = keeper
        .nodes()
        .into_iter()
        .filter(|(node, alive)| *alive && !node.witness)
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
async fn record_volume(
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

/// Deletes copies of a volume that is not in the record. One that cannot be reached keeps its own, and shows it.
async fn drop_copies(keeper: &Rc<Keeper>, nodes: &[NodeId], id: VolumeId) {
    for node in nodes {
        if let Err(error) = keeper.ask(*node, Ask::DropCopy { id: id.to_string() }).await {
            tracing::warn!(volume = %id, node = node.0, %error, "a copy was left on a node: delete it there");
        }
    }
}

impl Control {
    /// Tells all units of copies how the nodes reach them, and initiators where the other nodes listen.
    pub(crate) async fn show_paths_of_copies(&self) {
        let Some(keeper) = self.keeper() else { return };
        for (id, paths) in keeper.paths() {
            if self.shown_paths.borrow().get(&id) != Some(&paths) {
                self.shown_paths.borrow_mut().insert(id, paths.clone());
                self.set_paths(id, paths).await;
            }
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
