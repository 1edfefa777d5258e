//! Volumes with copies that are made: on which nodes, there first, and then in the cluster's record.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use base::BlockSize;
use replica::{NodeId, Slot};
use store::VolumeKind;

use super::super::access::MapSpec;
use super::super::change::{Changing, WaitsFor};
use super::super::turns::Thing;
use super::super::volumes::whole_blocks;
use super::super::{Control, ControlError, NewVolume};
use super::{drop_copies, once_heard};
use crate::access::VolumeName;
use crate::copies::{
    Answer, Ask, ClusterError, CopyEntry, Keeper, NewCopy, NodeEntry, RECORD_DEADLINE, StandingEntry,
    VolumeEntry, json, volume_key, volume_name_key,
};
use crate::volume::VolumeId;

/// The key of the number that the next volume with copies gets.
const NEXT_NUMBER: &str = "next-volume-number";

/// How long it is waited for the record to tell of a number that another node has drawn, before the next one is tried.
const DRAWN_WITHIN: Duration = Duration::from_millis(500);

/// The copies that a volume is to have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Placement {
    /// On as many nodes, this one among them if it can.
    Count(u8),
    /// On these nodes, by number.
    Nodes(Vec<u16>),
}

impl Control {
    /// Makes a volume with copies on several nodes. The caller holds its name.
    pub(in crate::control) async fn make_replicated(
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
        changing.concerns(id);
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
    pub(in crate::control) async fn check_placement(
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
