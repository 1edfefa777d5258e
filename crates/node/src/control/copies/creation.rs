//! Creation of volumes: the copies on their nodes first, then the entry in the cluster's record.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use base::BlockSize;
use cluster::Transaction;
use replica::{NodeId, Slot};
use store::{Compression, STRIPE_UNIT, SpacePolicy};

use super::super::access::MapSpec;
use super::super::change::{Changing, WaitsFor};
use super::super::turns::Thing;
use super::super::volumes::whole_blocks;
use super::super::{Control, ControlError, NewVolume, Result};
use super::{drop_new, once_heard};
use crate::attach::access::VolumeName;
use crate::copies::{
    Answer, Ask, Cause, CloneOfEntry, CopyEntry, DroppedCopy, NewCopy, NodeEntry, Origin, ShapeEntry,
    SnapshotCopy, StandingEntry, VolumeEntry, volume_key, volume_name_key,
};
use crate::data::VolumeId;
use crate::member::{ClusterError, RECORD_DEADLINE, Reconciler, json};

/// The key of the number that the next volume with copies gets.
pub(crate) const NEXT_NUMBER: &str = "next-volume-number";

/// How long to wait for the record's update after another node has drawn the same number, before the next
/// attempt.
const DRAWN_WITHIN: Duration = Duration::from_millis(500);

/// The pause before the record is asked again whether it has a volume.
const ASK_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// How many copies a volume of a cluster gets by default: two, so that the loss of one node or pool loses no
/// data.
const DEFAULT_COPIES: u8 = 2;

/// Where the copies of a volume go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Placement {
    /// [`DEFAULT_COPIES`] in a cluster of several nodes; otherwise one on this node.
    Default,
    /// On this many nodes, including this one if possible.
    Count(u8),
    /// On these nodes, by number.
    Nodes(Vec<u16>),
}

/// The nodes that could get the copies of a new volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ranking {
    /// How many copies are wanted.
    pub wanted: usize,
    /// Nodes by number, best first: the first `wanted` that can take a copy get one.
    pub nodes: Vec<u16>,
    /// The caller named these nodes; no others are used.
    pub named: bool,
}

impl Control {
    /// Where a new volume's copies go. Without `asked`, it gets one on this node.
    pub fn placement(&self, asked: Option<&Placement>) -> Placement {
        let here = || Placement::Nodes(vec![self.number()]);
        match asked {
            None => return here(),
            Some(Placement::Default) => {}
            Some(asked) => return asked.clone(),
        }
        // A cluster whose nodes are not known yet does not count as a single node: in a cluster, a volume
        // must never get a single copy by default.
        let may_have_copies =
            |reconciler: &Reconciler| reconciler.nodes().iter().filter(|(node, _)| !node.witness).count();
        let is_alone = self
            .reconciler()
            .is_ok_and(|reconciler| reconciler.acts_by().0 > 0 && may_have_copies(&reconciler) < 2);
        if is_alone { here() } else { Placement::Count(DEFAULT_COPIES) }
    }

    /// Creates a volume: first its copies, then its entry in the cluster's record. The caller holds its name.
    pub(in crate::control) async fn make_replicated(
        &self,
        changing: &Changing,
        new: NewVolume,
        placement: &Placement,
    ) -> Result<VolumeId> {
        let reconciler = self.reconciler()?;
        let name: VolumeName = new.name.parse()?;
        if let Some(map) = &new.map {
            // Detect a bad map before anything is created.
            self.place_for_new(map)?;
        }
        let ranking = once_heard(&reconciler, || rank_nodes(&reconciler, placement)).await?;
        if reconciler.revision_of(&volume_name_key(name.as_str())).is_some() {
            return Err(ControlError::Exists { kind: "volume", name: name.into() });
        }
        let id = VolumeId::random();
        changing.concerns(id);
        let asker = rt::random();
        let shape = ShapeEntry {
            kind: new.kind,
            block_bytes: new.block_size.bytes(),
            physical_exponent: if new.block_size == BlockSize::B512 && !new.native_512 { 3 } else { 0 },
            slices: new.slices_on_nodes(),
            created: new.created,
        };
        // Only a log volume is created with it. Another one is compressed when it becomes a log volume.
        let compression = match new.kind.is_compressible() {
            true => new.compression,
            false => Compression::default(),
        };
        // The pools of other nodes may have other extents.
        let pool = new.pool.as_ref().map_or_else(|| self.only_pool(), |pool| self.pool_named(pool));
        let stripe_unit = pool.map_or(STRIPE_UNIT, |pool| pool.stripe_unit(new.kind)).0 as u32;
        let copy = |slot: usize| NewCopy {
            id: id.to_string(),
            slot: slot as u8,
            name: name.to_string(),
            pool: new.pool.clone(),
            kind: shape.kind,
            compression: compression.into(),
            checksums: new.checksums,
            size: 0,
            block_bytes: shape.block_bytes,
            physical_exponent: shape.physical_exponent,
            slices: shape.slices,
            stripe_unit,
            created: shape.created,
            blank: false,
            sole: ranking.wanted == 1,
            asker,
            space: new.space.into(),
            clone_of: None,
        };
        let size = whole_blocks(new.size, new.block_size)?.0;
        let make = |slot: usize, node: NodeId| {
            let (reconciler, copy) = (&reconciler, NewCopy { size, ..copy(slot) });
            async move {
                if node == reconciler.me() {
                    return self.make_copy_here(changing, reconciler, copy).await;
                }
                changing.waits_for(WaitsFor::Nodes(vec![node.0]));
                match reconciler.ask(node, Ask::MakeCopy(copy)).await? {
                    Answer::Done { incarnation } => Ok(incarnation),
                    _ => Err(ClusterError::Strange(node).into()),
                }
            }
        };
        let made = make_copies(&ranking, make).await;
        let touched: Vec<NodeId> = made.all_nodes().collect();
        if made.copies.len() < ranking.wanted {
            drop_new(&reconciler, &touched, id, &name, asker).await;
            return Err(made.why_too_few(&ranking, reconciler.me()));
        }
        changing.waits_for(WaitsFor::ClusterRecord);
        let entry = NewEntry {
            id,
            name: name.as_str(),
            size,
            shape,
            space: new.space,
            compression,
            reason: Cause::VolumeCreated,
            clone_of: None,
            made: &made,
        };
        if let Err(error) = record_volume(&reconciler, &entry).await {
            // If it is not known whether the volume was recorded, its copies stay: otherwise it could be a
            // volume without data.
            if !matches!(&error, ControlError::Cluster(error) if error.may_be_committed()) {
                drop_new(&reconciler, &touched, id, &name, asker).await;
            }
            return Err(error);
        }
        if let Some(map) = &new.map
            && let Err(error) = self.map_new(changing, id, map).await
        {
            if let Err(undo) = self.delete_replicated(changing, id, name.as_str()).await {
                tracing::error!(volume = %name, error = %undo, "a volume that could not be mapped was left behind");
            }
            return Err(error);
        }
        // The caller may use the volume at once.
        reconciler.until_serves(id).await;
        Ok(id)
    }

    async fn map_new(&self, changing: &Changing, id: VolumeId, map: &MapSpec) -> Result<()> {
        let _record = changing.hold([Thing::Record]).await?;
        let place = self.place_for_new(map)?;
        self.change_access(changing, vec![place.taken_by(id)]).await
    }

    /// The nodes that could get the copies of a new volume.
    pub(in crate::control) async fn check_placement(
        &self,
        name: VolumeName,
        placement: &Placement,
    ) -> Result<Ranking> {
        let reconciler = self.reconciler()?;
        let ranking = once_heard(&reconciler, || rank_nodes(&reconciler, placement)).await?;
        if reconciler.revision_of(&volume_name_key(name.as_str())).is_some() {
            return Err(ControlError::Exists { kind: "volume", name: name.into() });
        }
        Ok(ranking)
    }
}

/// The nodes that may take copies, best first: this one, then those with the fewest copies.
fn rank_nodes(reconciler: &Reconciler, placement: &Placement) -> Result<Ranking> {
    let there: Vec<NodeEntry> = reconciler
        .nodes()
        .into_iter()
        .filter(|(node, alive)| *alive && !node.witness && !reconciler.is_in_maintenance(NodeId(node.id)))
        .map(|(node, _)| node)
        .collect();
    let (wanted, nodes) = match placement {
        Placement::Nodes(nodes) => {
            if let Some(missing) = nodes.iter().find(|id| !there.iter().any(|node| node.id == **id)) {
                return Err(ControlError::NodeNotThere(*missing));
            }
            (nodes.len(), nodes.clone())
        }
        Placement::Default | Placement::Count(_) => {
            let volumes = reconciler.volumes();
            let used = |node: &NodeEntry| {
                volumes
                    .iter()
                    .flat_map(|volume| &volume.entry.copies)
                    .filter(|copy| copy.node == node.id)
                    .count()
            };
            let mut ranked: Vec<(bool, usize, u16)> =
                there.iter().map(|node| (NodeId(node.id) != reconciler.me(), used(node), node.id)).collect();
            ranked.sort_unstable();
            let count = if let Placement::Count(count) = placement { *count } else { DEFAULT_COPIES };
            (usize::from(count), ranked.into_iter().map(|(_, _, id)| id).collect())
        }
    };
    let distinct: BTreeSet<u16> = nodes.iter().copied().collect();
    let named = matches!(placement, Placement::Nodes(_));
    if !(1..=Slot::MAX).contains(&wanted) || distinct.len() < wanted {
        return Err(ControlError::Copies { wanted, there: there.len(), refused: Vec::new() });
    }
    Ok(Ranking { wanted, nodes, named })
}

/// The result of asking nodes for the copies of a new volume.
#[derive(Debug, Default)]
pub(in crate::control) struct Made {
    /// The nodes that have created a copy, by slot, with the life in which they did.
    copies: Vec<(NodeId, u64)>,
    /// Why the other nodes have not.
    refused: Vec<ControlError>,
    /// Nodes that may have created a copy, or may still do so.
    uncertain: Vec<NodeId>,
}

impl Made {
    /// These copies, by slot, with the lives in which they were created.
    pub fn on(copies: Vec<(NodeId, u64)>) -> Made {
        Made { copies, ..Made::default() }
    }

    /// One copy on this node, created in this life.
    pub fn here(reconciler: &Reconciler) -> Made {
        Made::on(vec![(reconciler.me(), reconciler.incarnation().0)])
    }

    /// All nodes that have a copy, or may have one.
    fn all_nodes(&self) -> impl Iterator<Item = NodeId> {
        let copies = self.copies.iter().map(|(node, _)| *node);
        copies.chain(self.uncertain.iter().copied())
    }

    fn why_too_few(mut self, ranking: &Ranking, me: NodeId) -> ControlError {
        // The named node has given the reason.
        if ranking.named && self.refused.len() == 1 {
            return self.refused.remove(0);
        }
        let by_node = |error: ControlError| match error {
            ControlError::Cluster(error) => error,
            own => ClusterError::Refused { node: me, reason: own.into() },
        };
        ControlError::Copies {
            wanted: ranking.wanted,
            there: self.copies.len(),
            refused: self.refused.into_iter().map(by_node).collect(),
        }
    }
}

/// Asks nodes for a copy, best first, until there are enough. A node that refuses is skipped, unless the
/// caller named it.
async fn make_copies<F>(ranking: &Ranking, make: impl Fn(usize, NodeId) -> F) -> Made
where
    F: Future<Output = Result<u64>>,
{
    let mut made = Made::default();
    for node in ranking.nodes.iter().map(|node| NodeId(*node)) {
        if made.copies.len() == ranking.wanted || ranking.named && !made.refused.is_empty() {
            break;
        }
        match make(made.copies.len(), node).await {
            Ok(incarnation) => made.copies.push((node, incarnation)),
            Err(error) => {
                let is_certain = match &error {
                    ControlError::Cluster(error) => matches!(error, ClusterError::Refused { .. }),
                    // Of this node.
                    _ => true,
                };
                if !is_certain {
                    made.uncertain.push(node);
                }
                made.refused.push(error);
            }
        }
    }
    made
}

/// A volume to be added to the record. All of its copies are in sync: they are empty, or there is only one.
pub(in crate::control) struct NewEntry<'a> {
    pub id: VolumeId,
    pub name: &'a str,
    pub size: u64,
    pub shape: ShapeEntry,
    pub space: SpacePolicy,
    pub compression: Compression,
    pub reason: Cause,
    /// The snapshot of which its copies are clones.
    pub clone_of: Option<Origin>,
    pub made: &'a Made,
}

/// Adds a new volume to the record.
///
/// Nodes that create volumes at the same time draw their numbers from one key: the second one draws again.
pub(super) async fn record_volume(reconciler: &Reconciler, new: &NewEntry<'_>) -> Result<()> {
    let until = rt::now() + RECORD_DEADLINE;
    loop {
        let drawn = Drawn::now(reconciler);
        match reconciler.commit(new_volume(&drawn, new)).await {
            Err(ClusterError::Conflict(key)) if key == NEXT_NUMBER && rt::now() < until => {
                reconciler.until_changed(DRAWN_WITHIN, NEXT_NUMBER, drawn.revision).await;
            }
            Err(error) if error.may_be_committed() => {
                return match is_committed_after_all(reconciler, new.id, &drawn).await {
                    Some(true) => Ok(()),
                    Some(false) => Err(ClusterError::Record(cluster::Error::NoLeader).into()),
                    None => Err(error.into()),
                };
            }
            result => return Ok(result?),
        }
    }
}

/// The number that a new volume gets.
struct Drawn {
    number: u32,
    /// The revision of the key that the number is drawn from. Whoever draws the number changes it.
    revision: Option<cluster::Revision>,
}

impl Drawn {
    fn now(reconciler: &Reconciler) -> Drawn {
        let next = reconciler.get::<u32>(NEXT_NUMBER);
        Drawn { number: next.map_or(1, |(number, _)| number), revision: next.map(|(_, revision)| revision) }
    }

    /// Draws the number: only one of several transactions with the same number is committed.
    fn transaction(&self) -> Transaction {
        Reconciler::transaction()
            .expect(NEXT_NUMBER, self.revision)
            .put(NEXT_NUMBER, json(&(self.number + 1)))
    }
}

/// Whether a new volume is in the record if its transaction got no response; `None` if the node stops before
/// that is known.
///
/// A transaction that draws the same number settles it: either the volume is in the record, or it never will
/// be.
async fn is_committed_after_all(reconciler: &Reconciler, id: VolumeId, drawn: &Drawn) -> Option<bool> {
    let is_there = async || {
        let found = reconciler.store().get(&volume_key(id), RECORD_DEADLINE).await;
        found.ok().map(|found| found.is_some())
    };
    while !reconciler.is_stopping() {
        if is_there().await == Some(true) {
            return Some(true);
        }
        match reconciler.commit(drawn.transaction()).await {
            Ok(()) => return Some(false),
            // The number is drawn: by the new volume, or by another one, and then the new volume can no
            // longer be committed.
            Err(ClusterError::Conflict(_)) => {
                if let Some(is_there) = is_there().await {
                    return Some(is_there);
                }
            }
            Err(error) => {
                tracing::warn!(volume = %id, %error, "it is not yet known whether a volume was created")
            }
        }
        rt::sleep(ASK_AGAIN_AFTER).await;
    }
    None
}

impl NewEntry<'_> {
    /// The entry of the volume, which gets this number.
    pub fn numbered(&self, number: u32) -> VolumeEntry {
        let NewEntry { id, name, size, shape, space, compression, reason, clone_of, made } = self;
        let copies = made.copies.iter().enumerate().map(|(slot, (node, life))| CopyEntry {
            slot: slot as u8,
            node: node.0,
            standing: StandingEntry::InSync,
            incarnation: *life,
            made: 1,
            asker: 0,
            leaves: None,
        });
        let copies: Vec<CopyEntry> = copies.collect();
        let clone_of = clone_of.as_ref().map(|of| CloneOfEntry {
            of: of.clone(),
            copies: copies.iter().map(|copy| SnapshotCopy { node: copy.node, made: copy.made }).collect(),
        });
        // A copy that a node may have created after all is one too many, so its node deletes it.
        let dropped = made.uncertain.iter().map(|node| DroppedCopy { node: node.0, made: 1, asker: 0 });
        VolumeEntry {
            id: id.to_string(),
            number,
            name: (*name).to_owned(),
            size: *size,
            shape: *shape,
            epoch: 1,
            copies,
            sole: made.copies.len() == 1,
            reason: reason.clone(),
            dropped: dropped.collect(),
            missed: BTreeMap::new(),
            unread: BTreeMap::new(),
            paused: BTreeMap::new(),
            space: (*space).into(),
            compression: (*compression).into(),
            restoring: None,
            restored: None,
            snapshots_above: None,
            clone_of,
        }
    }
}

fn new_volume(drawn: &Drawn, new: &NewEntry<'_>) -> Transaction {
    let (key, name_key) = (volume_key(new.id), volume_name_key(new.name));
    drawn
        .transaction()
        .expect(&key, None)
        .expect(&name_key, None)
        .put(&key, json(&new.numbered(drawn.number)))
        .put(&name_key, json(&new.id.to_string()))
}
