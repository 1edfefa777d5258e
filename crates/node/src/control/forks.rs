//! Volumes with which one of two nodes may continue without the cluster's record: the policy, and the
//! decision after a split brain.

use std::rc::Rc;
use std::time::Duration;

use cluster::Transaction;
use replica::{Epoch, Incarnation, NodeId, Revision};

use super::copies::until_heard;
use super::doing::Doing;
use super::turns::Thing;
use super::{Control, ControlError, NeedsVotes, Result};
use crate::copies::{
    Answer, Ask, Cause, ForkRecord, NodeEntry, PolicyEntry, SplitBrainPolicy, SplitEntry, StandingEntry,
    VolumeEntry, alone, node_key, policy_key, split_key, volume_key,
};
use crate::data::VolumeId;
use crate::member::{ClusterError, ForkShown, ForkState, Reconciler, json};
use crate::record::{delete, set};
use crate::shard::Shard;

/// The key prefix in the node's own record of the volumes with which it has continued alone.
const FORKS: &str = "fork/";

/// How long the record may take to respond.
pub(super) const ASK_RECORD: Duration = Duration::from_secs(5);

/// What an administrator should know about the chosen policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyChange {
    /// A node has only one address: one broken cable, and both nodes continue alone.
    pub one_way: bool,
    /// The record is in etcd, which decides whatever the policy.
    pub etcd_decides: bool,
}

/// What a decision about a split brain would do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForkDecision {
    /// The volume's name.
    pub volume: String,
    /// The other nodes that have copies. Data that only they have is discarded.
    pub given_up: Vec<u16>,
    /// The node among them that serves the volume now and must stop first.
    pub stops: Option<u16>,
}

/// A volume with which a node has continued alone, and for which a decision is possible.
struct Decidable {
    id: VolumeId,
    entry: VolumeEntry,
    fork: ForkShown,
}

impl Control {
    /// The forks of earlier lives of this node.
    pub(super) fn forks(&self) -> Vec<ForkRecord> {
        self.record.borrow().list(FORKS)
    }

    /// Records that this node continues alone with a volume.
    ///
    /// # Errors
    /// Those of the node's record. The node then does not continue alone.
    pub(crate) async fn keep_fork(self: &Rc<Control>, fork: &ForkRecord) -> Result<()> {
        let change = set(format!("{FORKS}{}", fork.volume), fork);
        self.change_fork(&fork.volume, change).await
    }

    /// Removes the record that this node continues alone with a volume.
    ///
    /// # Errors
    /// Those of the node's record.
    pub(crate) async fn drop_fork(self: &Rc<Control>, id: VolumeId) -> Result<()> {
        self.change_fork(&id.to_string(), delete(format!("{FORKS}{id}"))).await
    }

    async fn change_fork(self: &Rc<Control>, volume: &str, change: crate::record::Change) -> Result<()> {
        self.change(Doing::WriteFork.of(volume), [Thing::Record], |control, changing| async move {
            // Written twice, into both slots: if one is damaged, the other must not say that there is no
            // fork.
            control.commit(&changing, vec![change.clone()]).await?;
            control.commit(&changing, vec![change]).await
        })
        .await
    }

    /// Sets what a node does with a volume when it has lost the other node and cannot reach the record.
    ///
    /// # Errors
    /// The cluster does not have two nodes, or the volume not a copy on each; the volume has no copies; the
    /// other node does not respond, or does not support this.
    pub async fn set_split_brain_policy(
        &self,
        volume: &str,
        policy: SplitBrainPolicy,
        by: &str,
    ) -> Result<PolicyChange> {
        let reconciler = self.reconciler()?;
        let change = self.check_split_brain_policy(volume, policy).await?;
        let (id, entry) = self.replicated(&reconciler, volume)?;
        let key = policy_key(id);
        let now = (Shard::current().config().unix_now)();
        let nodes_of_it = entry.copies.iter().map(|copy| copy.node).collect();
        let chosen = PolicyEntry { policy, by: by.to_owned(), at: now, nodes: nodes_of_it };
        let volume_key = volume_key(id);
        let transaction = Reconciler::transaction()
            .expect(&volume_key, reconciler.revision_of(&volume_key))
            .expect(&key, reconciler.revision_of(&key))
            .put(&key, json(&chosen));
        reconciler.commit(transaction).await?;
        tracing::warn!(volume = entry.name, ?policy, by, "the split-brain policy of a volume was set");
        Ok(change)
    }

    /// Checks whether this split-brain policy could be set; returns what an administrator should know about
    /// it.
    ///
    /// # Errors
    /// As [`Control::set_split_brain_policy`], except those of the record.
    pub async fn check_split_brain_policy(
        &self,
        volume: &str,
        policy: SplitBrainPolicy,
    ) -> Result<PolicyChange> {
        let reconciler = self.reconciler()?;
        let (_, entry) = self.replicated(&reconciler, volume)?;
        let nodes: Vec<NodeEntry> = reconciler.nodes().into_iter().map(|(node, _)| node).collect();
        if policy == SplitBrainPolicy::Heartbeat {
            if !reconciler.nodes_vote() {
                return Err(ControlError::RecordInEtcd(NeedsVotes::ContinuingAlone));
            }
            let two = nodes.len() == 2 && !nodes.iter().any(|node| node.witness) && entry.copies.len() == 2;
            if !two {
                return Err(ControlError::NotOfTwo {
                    volume: entry.name,
                    nodes: nodes.len(),
                    copies: entry.copies.len(),
                });
            }
            // The other node must learn about it while it can be reached.
            for node in nodes.iter().map(|node| NodeId(node.id)).filter(|node| *node != reconciler.me()) {
                must_answer(&reconciler, node, &entry).await?;
            }
        }
        Ok(PolicyChange {
            one_way: nodes.iter().any(|node| node.addresses.len() < 2),
            etcd_decides: !reconciler.nodes_vote(),
        })
    }

    /// Decides whose data of a volume is kept after a node has continued alone. The data that only the other
    /// node has is discarded.
    ///
    /// # Errors
    /// There is nothing to decide, or not yet; the volume has no copies; the node has no copy, or cannot
    /// serve it; errors of the record.
    pub async fn resolve_fork(&self, volume: &str, keep: u16) -> Result<()> {
        let reconciler = self.reconciler()?;
        let named = self.replicated(&reconciler, volume)?;
        let Decidable { id, entry, fork } = decidable(&reconciler, named, keep)?;
        if keep != fork.node {
            return Ok(reconciler.commit(for_record(&reconciler, id, &fork, keep)?).await?);
        }
        // The node that serves must stop before the record declares the other one the serving node: with a
        // single copy in sync, that one needs no lease from anybody.
        let serves = only_other(&entry, keep)?;
        if keep == reconciler.me().0 && !follows_record(&reconciler, serves).await? {
            return self.keep_what_is_here(&reconciler, id).await;
        }
        until_heard(&reconciler, serves).await;
        match reconciler.ask(serves, Ask::YieldToFork { id: entry.id.clone(), epoch: entry.epoch }).await? {
            Answer::Done { .. } => Ok(()),
            _ => Err(ControlError::Internal("an unexpected answer")),
        }
    }

    /// Checks whether this decision about a split brain is possible; returns what it would do.
    ///
    /// # Errors
    /// As [`Control::resolve_fork`], except those of the record.
    pub async fn check_fork(&self, volume: &str, keep: u16) -> Result<ForkDecision> {
        let reconciler = self.reconciler()?;
        let named = self.replicated(&reconciler, volume)?;
        let Decidable { id, entry, fork } = decidable(&reconciler, named, keep)?;
        let others = entry.copies.iter().map(|copy| copy.node).filter(|node| *node != keep).collect();
        let decision = ForkDecision { volume: entry.name.clone(), given_up: others, stops: None };
        if keep != fork.node {
            for_record(&reconciler, id, &fork, keep).map(drop)?;
            return Ok(decision);
        }
        let serves = only_other(&entry, keep)?;
        let follows = keep != reconciler.me().0 || follows_record(&reconciler, serves).await?;
        if follows {
            until_heard(&reconciler, serves).await;
            must_answer(&reconciler, serves, &entry).await?;
        }
        let of_record = Decision::about(&reconciler, id).await?;
        if follows && !of_record.is_served_by(serves, entry.epoch) {
            return Err(ClusterError::Conflict(entry.name).into());
        }
        of_record.for_fork().map(drop)?;
        let epoch = of_record.split.epoch;
        if follows {
            until_heard(&reconciler, NodeId(keep)).await;
            reconciler.ask(NodeId(keep), Ask::CanServeFork { id: entry.id, epoch }).await?;
        } else {
            self.can_serve_fork(&entry.id, epoch).await?;
        }
        Ok(ForkDecision { stops: follows.then_some(serves.0), ..decision })
    }

    /// Keeps what this node has written alone. The other node was abandoned with its cluster, so nothing has
    /// to stop first.
    async fn keep_what_is_here(&self, reconciler: &Rc<Reconciler>, id: VolumeId) -> Result<()> {
        let decision = Decision::about(reconciler, id).await?;
        self.can_serve_fork(&id.to_string(), decision.split.epoch).await?;
        Ok(reconciler.commit(decision.for_fork()?).await?)
    }

    /// Checks that this node has all that it has written alone, and could serve it.
    pub(super) async fn can_serve_fork(&self, id: &str, epoch: u64) -> Result<()> {
        let reconciler = self.reconciler()?;
        let known = VolumeId::parse(id).ok_or_else(|| ControlError::not_found("volume", id))?;
        if reconciler.can_serve_fork(known, epoch).await {
            return Ok(());
        }
        let name = reconciler.volume(known).map_or_else(|| id.to_owned(), |volume| volume.entry.name);
        Err(ControlError::ForkUnwell { volume: name, node: reconciler.me().0 })
    }

    /// Stops serving a volume for good, because the data of the other node is kept, and then records the
    /// decision.
    pub(super) async fn yield_to_fork(&self, id: &str, epoch: u64) -> Result<()> {
        let reconciler = self.reconciler()?;
        let id = VolumeId::parse(id).ok_or_else(|| ControlError::not_found("volume", id))?;
        let decision = Decision::about(&reconciler, id).await?;
        let (entry, split) = (&decision.entry, &decision.split);
        if !decision.is_served_by(reconciler.me(), epoch) {
            return Err(ClusterError::Conflict(entry.name.clone()).into());
        }
        // Otherwise no node would serve the volume.
        let well = Ask::CanServeFork { id: entry.id.clone(), epoch: split.epoch };
        until_heard(&reconciler, NodeId(split.node)).await;
        Box::pin(reconciler.ask(NodeId(split.node), well)).await?;
        let transaction = decision.for_fork()?;
        reconciler.stop_serving(id).await;
        match reconciler.commit(transaction).await {
            Ok(()) => Ok(()),
            Err(ClusterError::Conflict(key)) => {
                // Another decision may have been faster, and this node may not have followed it yet.
                if !is_kept(&reconciler, id, decision.split.node).await {
                    reconciler.go_on_serving(id).await;
                }
                Err(ClusterError::Conflict(key).into())
            }
            // The transaction may still take effect. If the caller asks again, the decision either has been
            // made or is made then; if the other side is kept, this node serves again.
            Err(error) => Err(error.into()),
        }
    }
}

/// Whether the record says, or may say, that the data of `node` is kept.
async fn is_kept(reconciler: &Reconciler, id: VolumeId, node: u16) -> bool {
    let Ok(found) = reconciler.store().get(&split_key(id), ASK_RECORD).await else { return true };
    let split = found.map(|found| serde_json::from_slice::<SplitEntry>(&found.value));
    split.is_none_or(|split| split.map_or(true, |split| split.keep == Some(node)))
}

/// A pending decision, as the record has it.
struct Decision {
    id: VolumeId,
    entry: VolumeEntry,
    revision: cluster::Revision,
    split: SplitEntry,
    split_revision: cluster::Revision,
    /// The life of the node that has continued without the record.
    life: Incarnation,
}

impl Decision {
    async fn about(reconciler: &Reconciler, id: VolumeId) -> Result<Decision> {
        let not_found = || ControlError::not_found("volume", &id.to_string());
        let (split, split_revision) = reconciler
            .get::<SplitEntry>(&split_key(id))
            .filter(|(split, _)| split.keep.is_none())
            .ok_or_else(|| ControlError::NoFork(id.to_string()))?;
        let found = reconciler.store().get(&volume_key(id), ASK_RECORD).await.map_err(ClusterError::from)?;
        let found = found.ok_or_else(not_found)?;
        let entry: VolumeEntry = serde_json::from_slice(&found.value).map_err(|_| not_found())?;
        let life = reconciler.get::<NodeEntry>(&node_key(NodeId(split.node)));
        let life = life.map(|(node, _)| Incarnation(node.incarnation)).ok_or_else(not_found)?;
        Ok(Decision { id, entry, revision: found.revision, split, split_revision, life })
    }

    /// Whether, by the record, `node` alone serves the volume in this epoch and is not the one that continued
    /// without it.
    fn is_served_by(&self, node: NodeId, epoch: u64) -> bool {
        let Decision { entry, split, .. } = self;
        let alone = entry
            .copies
            .iter()
            .all(|copy| (copy.standing == StandingEntry::Outside) == (copy.node != node.0));
        entry.epoch == epoch && alone && split.node != node.0
    }

    /// The transaction that keeps what was written without the record.
    fn for_fork(&self) -> Result<Transaction> {
        let Decision { id, entry, split, .. } = self;
        let next = only(entry, split.node, self.life, entry.epoch.max(split.epoch) + 1)
            .ok_or(ControlError::Internal("a volume with a split brain has a copy on both nodes"))?;
        let decided = SplitEntry { keep: Some(split.node), ..split.clone() };
        Ok(Reconciler::transaction()
            .expect(&volume_key(*id), Some(self.revision))
            .expect(&split_key(*id), Some(self.split_revision))
            .put(&volume_key(*id), json(&next))
            .put(&split_key(*id), json(&decided)))
    }
}

/// Fails unless the node responds.
async fn must_answer(
    reconciler: &Rc<Reconciler>,
    node: NodeId,
    volume: &VolumeEntry,
) -> Result<(), ClusterError> {
    reconciler.ask(node, Ask::HasVolumes { ids: vec![volume.id.clone()] }).await.map(drop)
}

/// Whether the node receives the record. A node that was abandoned with its cluster does not (`ursa node
/// force-new-cluster`).
async fn follows_record(reconciler: &Reconciler, node: NodeId) -> Result<bool, ClusterError> {
    if !reconciler.nodes_vote() {
        return Ok(true);
    }
    let status = reconciler.store().status(ASK_RECORD).await?;
    Ok(status.voters.iter().chain(&status.learners).any(|id| *id == u64::from(node.0)))
}

/// The volume, if it can be decided to keep this node's data of it.
fn decidable(reconciler: &Reconciler, (id, entry): (VolumeId, VolumeEntry), keep: u16) -> Result<Decidable> {
    let fork = reconciler.fork_of(&entry).ok_or_else(|| ControlError::NoFork(entry.name.clone()))?;
    if entry.copy_on(NodeId(keep)).is_none() {
        return Err(ControlError::HasNoCopy { volume: entry.name, node: keep });
    }
    if fork.state == ForkState::Alone && [keep, reconciler.me().0].contains(&fork.node) {
        return Err(ControlError::NotSplitYet { volume: entry.name, node: fork.node });
    }
    Ok(Decidable { id, entry, fork })
}

/// The node that has the other of two copies.
fn only_other(entry: &VolumeEntry, node: u16) -> Result<NodeId> {
    let others = entry.copies.iter().map(|copy| copy.node).filter(|other| *other != node);
    match others.collect::<Vec<_>>()[..] {
        [other] => Ok(NodeId(other)),
        _ => Err(ControlError::SplitAmongMore { volume: entry.name.clone(), node }),
    }
}

/// The transaction that keeps the data of the record's side and gives up what the other node has written
/// alone.
fn for_record(
    reconciler: &Reconciler,
    id: VolumeId,
    fork: &ForkShown,
    keep: u16,
) -> Result<Transaction, ClusterError> {
    let (entry, revision) = reconciler
        .get::<VolumeEntry>(&volume_key(id))
        .ok_or_else(|| ClusterError::Conflict(volume_key(id)))?;
    let known = reconciler.get::<SplitEntry>(&split_key(id));
    let said = reconciler.said_of(&entry, fork.node);
    let of_record = known.as_ref().map(|(split, _)| split.clone()).filter(|split| split.keep.is_none());
    let split = of_record.or(said).ok_or_else(|| ClusterError::Conflict(entry.name.clone()))?;
    let decided = SplitEntry { keep: Some(keep), ..split };
    let mut transaction = Reconciler::transaction()
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

/// The entry with only this node's copy in sync.
fn only(entry: &VolumeEntry, node: u16, life: Incarnation, epoch: u64) -> Option<VolumeEntry> {
    let (slot, _) = entry.copy_on(NodeId(node))?;
    let config = alone(&entry.config(Revision(0))?, slot, life, Epoch(epoch), Revision(0));
    Some(entry.with_config(&config, Cause::SplitBrainResolved))
}
