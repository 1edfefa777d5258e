//! Which nodes vote in the cluster's record, if the nodes keep it. The leader adjusts this; with two nodes,
//! an administrator may choose the preferred one.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use cluster::{Candidate, MemberChange, voters_for};

use super::super::{Beat, Control, ControlError, NeedsVotes, Result};
use super::{MEMBERS_DEADLINE, PREFERRED, node_entry};
use crate::member::{ClusterError, Reconciler, json};

/// How often the leader of the record checks whether the right nodes vote.
const VOTERS_EVERY: Duration = Duration::from_secs(2);

impl Control {
    /// Sets the node that decides alone while the cluster has two nodes; `None` for the present one.
    ///
    /// # Errors
    /// The node does not exist, or is a witness.
    pub async fn prefer_node(&self, node: Option<u16>) -> Result<()> {
        let reconciler = self.reconciler()?;
        if node.is_some() && !reconciler.nodes_vote() {
            return Err(ControlError::RecordInEtcd(NeedsVotes::PreferredNode));
        }
        let revision = reconciler.revision_of(PREFERRED);
        let transaction = Reconciler::transaction().expect(PREFERRED, revision);
        let transaction = match node {
            Some(number) => {
                let entry = node_entry(&reconciler, number)?;
                if entry.witness {
                    return Err(ControlError::Invalid {
                        field: "node",
                        reason: "a witness has no volumes: choose a node that has",
                    });
                }
                transaction.put(PREFERRED, json(&number))
            }
            None if revision.is_none() => return Ok(()),
            None => transaction.delete(PREFERRED),
        };
        Ok(reconciler.commit(transaction).await?)
    }

    /// Adjusts the set of voters whenever this node leads the record.
    pub(in crate::control) async fn keep_voters(self: Rc<Control>, reconciler: Rc<Reconciler>) {
        while !reconciler.is_stopping() {
            Beat::Voters.wait(VOTERS_EVERY).await;
            if let Err(error) = self.correct_voters(&reconciler).await {
                tracing::debug!(%error, "the voters of the cluster's record could not be changed");
            }
        }
    }

    async fn correct_voters(&self, reconciler: &Reconciler) -> Result<()> {
        let status = reconciler.store().status(MEMBERS_DEADLINE).await.map_err(ClusterError::from)?;
        if status.forgotten {
            self.note_forgotten_record(reconciler).await;
            return Ok(());
        }
        if status.leader != Some(u64::from(reconciler.me().0)) {
            return Ok(());
        }
        let follows: BTreeSet<u64> = status.voters.iter().chain(&status.learners).copied().collect();
        let candidates: Vec<Candidate> = reconciler
            .nodes()
            .iter()
            // A node that has never started cannot vote.
            .filter(|(node, _)| node.incarnation > 0)
            // A node that the record's members do not include belongs to an abandoned cluster; its number is
            // never used again.
            .filter(|(node, _)| follows.contains(&u64::from(node.id)))
            .filter_map(|(node, _)| {
                let votes = status.voters.contains(&u64::from(node.id));
                Some(Candidate { node: cluster::NodeId::new(node.id)?, witness: node.witness, votes })
            })
            .collect();
        let wanted: BTreeSet<u64> = wanted_voters(reconciler, &candidates);
        let now: BTreeSet<u64> = status.voters.iter().copied().collect();
        let id = |number: &u64| u16::try_from(*number).ok().and_then(cluster::NodeId::new);
        // Promote before demoting, so that the set of voters is never empty.
        let promote = wanted.difference(&now).find_map(id).map(MemberChange::Promote);
        let demote = now.difference(&wanted).find_map(id).map(MemberChange::Demote);
        match promote.or(demote) {
            Some(change) => Ok(reconciler.change_members(change, MEMBERS_DEADLINE).await?),
            None => Ok(()),
        }
    }
}

/// The nodes that should vote.
///
/// Of two nodes without a witness only one does: if both did, both would have to be up, and neither could be
/// lost.
fn wanted_voters(reconciler: &Reconciler, candidates: &[Candidate]) -> BTreeSet<u64> {
    let hosts: Vec<&Candidate> = candidates.iter().filter(|node| !node.witness).collect();
    let preferred = reconciler.get::<u16>(PREFERRED).map(|(node, _)| node);
    let voters: BTreeSet<cluster::NodeId> = match (hosts.len(), candidates.len()) {
        (2, 2) => {
            let named = hosts.iter().find(|node| Some(node.node.get()) == preferred);
            let first = hosts.iter().min_by_key(|node| (!node.votes, node.node));
            named.or(first).map(|node| node.node).into_iter().collect()
        }
        _ => voters_for(candidates),
    };
    voters.into_iter().map(|node| u64::from(node.get())).collect()
}
