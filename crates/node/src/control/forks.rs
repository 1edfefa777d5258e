//! Volumes of two nodes that may go on without the cluster's record: who has agreed to that, and what becomes
//! of those with which both have gone on.

use std::rc::Rc;
use std::time::Duration;

use cluster::Transaction;
use replica::{Epoch, Incarnation, NodeId, Revision};

use super::change::Work;
use super::copies::until_heard;
use super::doing::Doing;
use super::members::ETCD_VOTES;
use super::turns::Thing;
use super::{Control, ControlError};
use crate::copies::{
    Answer, Ask, Cause, ClusterError, ForkRecord, ForkShown, ForkState, Keeper, NodeEntry, SplitEntry,
    StandingEntry, Strategy, StrategyEntry, VolumeEntry, alone, json, node_key, split_key, strategy_key,
    volume_key,
};
use crate::record::{delete, set};
use crate::shard::Shard;
use crate::volume::VolumeId;

/// Where the node's own record has the volumes with which it has gone on alone.
const FORKS: &str = "fork/";

/// How long the record may take to say what it has.
pub(super) const ASK_RECORD: Duration = Duration::from_secs(5);

/// What somebody chose for a volume, and what they should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StrategyChange {
    /// The nodes know only one address of each other: one cable, and both go on alone.
    pub one_way: bool,
    /// The record is in etcd, which decides whatever is chosen.
    pub etcd_decides: bool,
}

/// What deciding whose data of a volume is kept would do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForkDecision {
    /// The volume's name.
    pub volume: String,
    /// The nodes that have copies besides the one whose data is kept: what they alone have written is given
    /// up.
    pub given_up: Vec<u16>,
    /// The one of them that serves the volume now, and is to stop first.
    pub stops: Option<u16>,
}

/// A volume with which a node has gone on alone, of which it can be decided whose data is kept.
struct Decidable {
    id: VolumeId,
    entry: VolumeEntry,
    fork: ForkShown,
}

impl Control {
    /// Forks of earlier lives of this node.
    pub(super) fn forks(&self) -> Vec<ForkRecord> {
        self.record.borrow().list(FORKS)
    }

    /// Writes down that this node goes on alone with a volume.
    ///
    /// # Errors
    /// What the node's record says: it does not go on then.
    pub(crate) async fn keep_fork(self: &Rc<Control>, fork: &ForkRecord) -> Result<(), ControlError> {
        let change = set(format!("{FORKS}{}", fork.volume), fork);
        self.change_fork(&fork.volume, change).await
    }

    /// Forgets that it did.
    ///
    /// # Errors
    /// What the node's record says.
    pub(crate) async fn drop_fork(self: &Rc<Control>, id: VolumeId) -> Result<(), ControlError> {
        self.change_fork(&id.to_string(), delete(format!("{FORKS}{id}"))).await
    }

    async fn change_fork(
        self: &Rc<Control>,
        volume: &str,
        change: crate::record::Change,
    ) -> Result<(), ControlError> {
        let control = Rc::clone(self);
        self.change(Work::new(Doing::WriteFork, volume), |changing| async move {
            let _record = changing.hold([Thing::Record]).await?;
            // Into both slots: should one of them be damaged, the other does not say that there is no fork.
            control.commit(&changing, vec![change.clone()]).await?;
            control.commit(&changing, vec![change]).await
        })
        .await
    }

    /// Chooses what a node does about a volume when it hears of nobody and cannot reach the record.
    ///
    /// # Errors
    /// A cluster or a volume that is not of two nodes; a volume without copies; a node that is not there, or
    /// does not know of this.
    pub async fn set_strategy(
        &self,
        volume: &str,
        strategy: Strategy,
        by: &str,
    ) -> Result<StrategyChange, ControlError> {
        let keeper = self.keeper_or_why_not()?;
        let change = self.check_strategy(volume, strategy).await?;
        let (id, entry) = self.replicated(&keeper, volume)?;
        let key = strategy_key(id);
        let now = (Shard::current().config().unix_now)();
        let nodes_of_it = entry.copies.iter().map(|copy| copy.node).collect();
        let chosen = StrategyEntry { strategy, by: by.to_owned(), at: now, nodes: nodes_of_it };
        let volume_key = volume_key(id);
        let transaction = Keeper::transaction()
            .expect(&volume_key, keeper.revision_of(&volume_key))
            .expect(&key, keeper.revision_of(&key))
            .put(&key, json(&chosen));
        keeper.commit(transaction).await?;
        tracing::warn!(volume = entry.name, ?strategy, by, "the split-brain policy of a volume was set");
        Ok(change)
    }

    /// Whether a node's behaviour about a volume could be chosen so, and what should be known then.
    ///
    /// # Errors
    /// As [`Control::set_strategy`], but for what the record says.
    pub async fn check_strategy(
        &self,
        volume: &str,
        strategy: Strategy,
    ) -> Result<StrategyChange, ControlError> {
        let keeper = self.keeper_or_why_not()?;
        let (_, entry) = self.replicated(&keeper, volume)?;
        let nodes: Vec<NodeEntry> = keeper.nodes().into_iter().map(|(node, _)| node).collect();
        if strategy == Strategy::Heartbeat {
            if !keeper.nodes_vote() {
                return Err(ControlError::RecordInEtcd {
                    what: "no node continues alone",
                    instead: ETCD_VOTES,
                });
            }
            let two = nodes.len() == 2 && !nodes.iter().any(|node| node.witness) && entry.copies.len() == 2;
            if !two {
                return Err(ControlError::NotOfTwo {
                    volume: entry.name,
                    nodes: nodes.len(),
                    copies: entry.copies.len(),
                });
            }
            // The other node must learn of it while it can be reached.
            for node in nodes.iter().map(|node| NodeId(node.id)).filter(|node| *node != keeper.me()) {
                must_answer(&keeper, node, &entry).await?;
            }
        }
        Ok(StrategyChange {
            one_way: nodes.iter().any(|node| node.addresses.len() < 2),
            etcd_decides: !keeper.nodes_vote(),
        })
    }

    /// Decides whose data is kept of a volume with which a node has gone on alone, and cannot be settled
    /// without somebody's word. What the other node alone has is given up.
    ///
    /// # Errors
    /// There is nothing to decide, or not yet; a volume without copies; a node without a copy, or that could
    /// not serve it; what the record says.
    pub async fn resolve_fork(&self, volume: &str, keep: u16) -> Result<(), ControlError> {
        let keeper = self.keeper_or_why_not()?;
        let named = self.replicated(&keeper, volume)?;
        let Decidable { id, entry, fork } = decidable(&keeper, named, keep)?;
        if keep != fork.node {
            return Ok(keeper.commit(for_record(&keeper, id, &fork, keep)?).await?);
        }
        // Who serves must stop before the record says that the other one does: it needs nobody's lease.
        let serves = only_other(&entry, keep)?;
        if keep == keeper.me().0 && !follows_record(&keeper, serves).await? {
            return self.keep_what_is_here(&keeper, id).await;
        }
        until_heard(&keeper, serves).await;
        match keeper.ask(serves, Ask::YieldToFork { id: entry.id.clone(), epoch: entry.epoch }).await? {
            Answer::Done { .. } => Ok(()),
            _ => Err(ControlError::Internal("an unexpected answer")),
        }
    }

    /// Whether it could be decided so whose data of a volume is kept, and what that would do.
    ///
    /// # Errors
    /// As [`Control::resolve_fork`], but for what the record says.
    pub async fn check_fork(&self, volume: &str, keep: u16) -> Result<ForkDecision, ControlError> {
        let keeper = self.keeper_or_why_not()?;
        let named = self.replicated(&keeper, volume)?;
        let Decidable { id, entry, fork } = decidable(&keeper, named, keep)?;
        let others = entry.copies.iter().map(|copy| copy.node).filter(|node| *node != keep).collect();
        let decision = ForkDecision { volume: entry.name.clone(), given_up: others, stops: None };
        if keep != fork.node {
            for_record(&keeper, id, &fork, keep).map(drop)?;
            return Ok(decision);
        }
        let serves = only_other(&entry, keep)?;
        let follows = keep != keeper.me().0 || follows_record(&keeper, serves).await?;
        if follows {
            until_heard(&keeper, serves).await;
            must_answer(&keeper, serves, &entry).await?;
        }
        let of_record = Decision::about(&keeper, id).await?;
        if follows && !of_record.is_served_by(serves, entry.epoch) {
            return Err(ClusterError::Conflict(entry.name).into());
        }
        of_record.for_fork().map(drop)?;
        let epoch = of_record.split.epoch;
        if follows {
            until_heard(&keeper, NodeId(keep)).await;
            keeper.ask(NodeId(keep), Ask::CanServeFork { id: entry.id, epoch }).await?;
        } else {
            self.can_serve_fork(&entry.id, epoch).await?;
        }
        Ok(ForkDecision { stops: follows.then_some(serves.0), ..decision })
    }

    /// Keeps what this node has written alone: the other one was given up with its cluster, and there is
    /// nobody to be asked to stop.
    async fn keep_what_is_here(&self, keeper: &Rc<Keeper>, id: VolumeId) -> Result<(), ControlError> {
        let decision = Decision::about(keeper, id).await?;
        self.can_serve_fork(&id.to_string(), decision.split.epoch).await?;
        Ok(keeper.commit(decision.for_fork()?).await?)
    }

    /// Whether this node has all that it has written alone, and could serve it.
    pub(super) async fn can_serve_fork(&self, id: &str, epoch: u64) -> Result<(), ControlError> {
        let keeper = self.keeper_or_why_not()?;
        let known = VolumeId::parse(id).ok_or_else(|| ControlError::not_found("volume", id))?;
        if keeper.can_serve_fork(known, epoch).await {
            return Ok(());
        }
        let name = keeper.volume(known).map_or_else(|| id.to_owned(), |volume| volume.entry.name);
        Err(ControlError::ForkUnwell { volume: name, node: keeper.me().0 })
    }

    /// Stops serving a volume for good, since what the other node has written alone is kept: then has the
    /// record say so.
    pub(super) async fn yield_to_fork(&self, id: &str, epoch: u64) -> Result<(), ControlError> {
        let keeper = self.keeper_or_why_not()?;
        let id = VolumeId::parse(id).ok_or_else(|| ControlError::not_found("volume", id))?;
        let decision = Decision::about(&keeper, id).await?;
        let (entry, split) = (&decision.entry, &decision.split);
        if !decision.is_served_by(keeper.me(), epoch) {
            return Err(ClusterError::Conflict(entry.name.clone()).into());
        }
        // Else nobody would serve it.
        let well = Ask::CanServeFork { id: entry.id.clone(), epoch: split.epoch };
        until_heard(&keeper, NodeId(split.node)).await;
        Box::pin(keeper.ask(NodeId(split.node), well)).await?;
        let transaction = decision.for_fork()?;
        keeper.stop_serving(id).await;
        match keeper.commit(transaction).await {
            Ok(()) => Ok(()),
            Err(ClusterError::Conflict(key)) => {
                // Another decision may have been quicker, and this node not have followed it yet.
                if !is_kept(&keeper, id, decision.split.node).await {
                    keeper.go_on_serving(id).await;
                }
                Err(ClusterError::Conflict(key).into())
            }
            // It may take effect yet: asked again, it either has or does; and if the other side is kept, this
            // node serves again.
            Err(error) => Err(error.into()),
        }
    }
}

/// Whether the record says, or may say, that what this node has written is what counts.
async fn is_kept(keeper: &Keeper, id: VolumeId, node: u16) -> bool {
    let Ok(found) = keeper.store().get(&split_key(id), ASK_RECORD).await else { return true };
    let split = found.map(|found| serde_json::from_slice::<SplitEntry>(&found.value));
    split.is_none_or(|split| split.map_or(true, |split| split.keep == Some(node)))
}

/// What is to be decided, as the record has it.
struct Decision {
    id: VolumeId,
    entry: VolumeEntry,
    revision: cluster::Revision,
    split: SplitEntry,
    split_revision: cluster::Revision,
    /// The life of the node that has gone on without the record.
    life: Incarnation,
}

impl Decision {
    async fn about(keeper: &Keeper, id: VolumeId) -> Result<Decision, ControlError> {
        let not_found = || ControlError::not_found("volume", &id.to_string());
        let (split, split_revision) = keeper
            .get::<SplitEntry>(&split_key(id))
            .filter(|(split, _)| split.keep.is_none())
            .ok_or_else(|| ControlError::NoFork(id.to_string()))?;
        let found = keeper.store().get(&volume_key(id), ASK_RECORD).await.map_err(ClusterError::from)?;
        let found = found.ok_or_else(not_found)?;
        let entry: VolumeEntry = serde_json::from_slice(&found.value).map_err(|_| not_found())?;
        let life = keeper.get::<NodeEntry>(&node_key(NodeId(split.node)));
        let life = life.map(|(node, _)| Incarnation(node.incarnation)).ok_or_else(not_found)?;
        Ok(Decision { id, entry, revision: found.revision, split, split_revision, life })
    }

    /// Whether this node alone serves the volume, in this epoch, as the record has it, and is not the one
    /// that has gone on without the record.
    fn is_served_by(&self, node: NodeId, epoch: u64) -> bool {
        let Decision { entry, split, .. } = self;
        let alone = entry
            .copies
            .iter()
            .all(|copy| (copy.standing == StandingEntry::Outside) == (copy.node != node.0));
        entry.epoch == epoch && alone && split.node != node.0
    }

    /// The change of the record after which what was written without it is what counts.
    fn for_fork(&self) -> Result<Transaction, ControlError> {
        let Decision { id, entry, split, .. } = self;
        let next = only(entry, split.node, self.life, entry.epoch.max(split.epoch) + 1)
            .ok_or(ControlError::Internal("a volume with a split brain has a copy on both nodes"))?;
        let decided = SplitEntry { keep: Some(split.node), ..split.clone() };
        Ok(Keeper::transaction()
            .expect(&volume_key(*id), Some(self.revision))
            .expect(&split_key(*id), Some(self.split_revision))
            .put(&volume_key(*id), json(&next))
            .put(&split_key(*id), json(&decided)))
    }
}

/// Fails unless the node answers.
async fn must_answer(keeper: &Rc<Keeper>, node: NodeId, volume: &VolumeEntry) -> Result<(), ClusterError> {
    keeper.ask(node, Ask::HasVolumes { ids: vec![volume.id.clone()] }).await.map(drop)
}

/// Whether the record is told to the node. It is not to one that was given up with its cluster
/// (`ursa node force-new-cluster`).
async fn follows_record(keeper: &Keeper, node: NodeId) -> Result<bool, ClusterError> {
    if !keeper.nodes_vote() {
        return Ok(true);
    }
    let status = keeper.store().status(ASK_RECORD).await?;
    Ok(status.voters.iter().chain(&status.learners).any(|id| *id == u64::from(node.0)))
}

/// The volume, if it can be decided that this node's data of it is kept.
fn decidable(
    keeper: &Keeper,
    (id, entry): (VolumeId, VolumeEntry),
    keep: u16,
) -> Result<Decidable, ControlError> {
    let fork = keeper.fork_of(&entry).ok_or_else(|| ControlError::NoFork(entry.name.clone()))?;
    if entry.copy_on(NodeId(keep)).is_none() {
        return Err(ControlError::HasNoCopy { volume: entry.name, node: keep });
    }
    if fork.state == ForkState::Alone && [keep, keeper.me().0].contains(&fork.node) {
        return Err(ControlError::NotSplitYet { volume: entry.name, node: fork.node });
    }
    Ok(Decidable { id, entry, fork })
}

/// The node that has the other one of two copies.
fn only_other(entry: &VolumeEntry, node: u16) -> Result<NodeId, ControlError> {
    let others = entry.copies.iter().map(|copy| copy.node).filter(|other| *other != node);
    match others.collect::<Vec<_>>()[..] {
        [other] => Ok(NodeId(other)),
        _ => Err(ControlError::SplitAmongMore { volume: entry.name.clone(), node }),
    }
}

/// The change of the record that keeps what its side has: what the other node has written alone is given up.
fn for_record(
    keeper: &Keeper,
    id: VolumeId,
    fork: &ForkShown,
    keep: u16,
) -> Result<Transaction, ClusterError> {
    let (entry, revision) =
        keeper.get::<VolumeEntry>(&volume_key(id)).ok_or_else(|| ClusterError::Conflict(volume_key(id)))?;
    let known = keeper.get::<SplitEntry>(&split_key(id));
    let said = keeper.said_of(&entry, fork.node);
    let of_record = known.as_ref().map(|(split, _)| split.clone()).filter(|split| split.keep.is_none());
    let split = of_record.or(said).ok_or_else(|| ClusterError::Conflict(entry.name.clone()))?;
    let decided = SplitEntry { keep: Some(keep), ..split };
    let mut transaction = Keeper::transaction()
        .expect(&volume_key(id), Some(revision))
        .expect(&split_key(id), known.map(|(_, revision)| revision))
        .put(&split_key(id), json(&decided));
    let kept = entry.copy_on(NodeId(keep)).map(|(_, copy)| *copy);
    let kept = kept.filter(|copy| copy.standing == StandingEntry::InSync);
    let kept = kept.ok_or_else(|| ClusterError::Conflict(entry.name.clone()))?;
    let other_in_sync =
        entry.copies.iter().any(|copy| copy.node != keep && copy.standing != StandingEntry::Outside);
    if other_in_sync {
        let next = only(&entry, keep, Incarnation(kept.incarnation), entry.epoch + 1);
        let next = next.ok_or_else(|| ClusterError::Conflict(entry.name.clone()))?;
        transaction = transaction.put(&volume_key(id), json(&next));
    }
    Ok(transaction)
}

/// The entry with the node's copy alone in sync.
fn only(entry: &VolumeEntry, node: u16, life: Incarnation, epoch: u64) -> Option<VolumeEntry> {
    let (slot, _) = entry.copy_on(NodeId(node))?;
    let config = alone(&entry.config(Revision(0))?, slot, life, Epoch(epoch), Revision(0));
    Some(entry.with_config(&config, Cause::SplitBrainResolved))
}
