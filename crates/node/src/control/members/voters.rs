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
            .filter_map(|(node, up)| {
                Some(Candidate {
                    node: cluster::NodeId::new(node.id)?,
                    witness: node.witness,
                    votes: status.voters.contains(&u64::from(node.id)),
                    up: *up,
                    stalled: reconciler.stall_of(replica::NodeId(node.id)).is_some(),
                })
            })
            .collect();
        let id = |number: &u64| u16::try_from(*number).ok().and_then(cluster::NodeId::new);
        let now: BTreeSet<cluster::NodeId> = status.voters.iter().filter_map(id).collect();
        match next_change(&now, &wanted_voters(reconciler, &candidates), &candidates) {
            Some(change) => Ok(reconciler.change_members(change, MEMBERS_DEADLINE).await?),
            None => Ok(()),
        }
    }
}

/// The next change on the way from the voters that there are `now` to those that are `wanted`.
///
/// A voter is added before another one is removed, so that the set is never empty, but only if its vote would
/// be there. A stalled voter is removed first: fewer votes are a majority without it, whereas with one voter
/// more, the cluster could lose none of those that are well.
fn next_change(
    now: &BTreeSet<cluster::NodeId>,
    wanted: &BTreeSet<cluster::NodeId>,
    candidates: &[Candidate],
) -> Option<MemberChange> {
    let is = |node: cluster::NodeId, what: fn(&Candidate) -> bool| {
        candidates.iter().find(|it| it.node == node).is_some_and(what)
    };
    let mut surplus = now.difference(wanted).copied();
    let mut missing = wanted.difference(now).copied().peekable();
    if let Some(node) = surplus.clone().find(|node| is(*node, |it| it.stalled)) {
        return Some(MemberChange::Demote(node));
    }
    match missing.peek() {
        Some(_) => missing.find(|node| is(*node, Candidate::is_ready)).map(MemberChange::Promote),
        None => surplus.next().map(MemberChange::Demote),
    }
}

/// The nodes that should vote.
///
/// Of two nodes without a witness only one does: if both did, both would have to be up, and neither could be
/// lost.
fn wanted_voters(reconciler: &Reconciler, candidates: &[Candidate]) -> BTreeSet<cluster::NodeId> {
    let hosts: Vec<&Candidate> = candidates.iter().filter(|node| !node.witness).collect();
    let preferred = reconciler.get::<u16>(PREFERRED).map(|(node, _)| node);
    match (hosts.len(), candidates.len()) {
        (2, 2) => {
            let named = hosts.iter().find(|node| Some(node.node.get()) == preferred);
            let first = hosts.iter().min_by_key(|node| (!node.votes, node.node));
            named.or(first).map(|node| node.node).into_iter().collect()
        }
        _ => voters_for(candidates),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(number: u16) -> cluster::NodeId {
        cluster::NodeId::new(number).unwrap()
    }

    fn voter(number: u16) -> Candidate {
        Candidate { node: node(number), witness: false, votes: true, up: true, stalled: false }
    }

    fn other(number: u16) -> Candidate {
        Candidate { votes: false, ..voter(number) }
    }

    fn stalled(it: Candidate) -> Candidate {
        Candidate { stalled: true, ..it }
    }

    fn down(it: Candidate) -> Candidate {
        Candidate { up: false, ..it }
    }

    fn voting(candidates: &[Candidate]) -> BTreeSet<cluster::NodeId> {
        candidates.iter().filter(|it| it.votes).map(|it| it.node).collect()
    }

    /// The next change of these, if they should be what [`voters_for`] says.
    fn next(candidates: &[Candidate]) -> Option<MemberChange> {
        next_change(&voting(candidates), &voters_for(candidates), candidates)
    }

    #[test]
    fn a_stalled_voter_leaves_before_another_one_is_added() {
        let mut nodes = [voter(1), voter(2), stalled(voter(3)), other(4)];
        assert_eq!(next(&nodes), Some(MemberChange::Demote(node(3))));
        nodes[2].votes = false;
        assert_eq!(next(&nodes), Some(MemberChange::Promote(node(4))));
        nodes[3].votes = true;
        assert_eq!(next(&nodes), None);
        nodes[2].stalled = false;
        assert_eq!(next(&nodes), None, "node 3 is well again, and does not push node 4 out");
    }

    #[test]
    fn other_voters_leave_after_one_was_added() {
        let wanted = [node(1), node(3)].into();
        let change = |now: &[u16]| {
            let now = now.iter().map(|number| node(*number)).collect();
            next_change(&now, &wanted, &[voter(1), voter(2), other(3)])
        };
        assert_eq!(change(&[1, 2]), Some(MemberChange::Promote(node(3))));
        assert_eq!(change(&[1, 2, 3]), Some(MemberChange::Demote(node(2))));
        assert_eq!(change(&[1, 3]), None);
    }

    #[test]
    fn no_node_is_added_whose_vote_would_be_missing() {
        // Node 1 is the preferred node of two.
        for one in [stalled(other(1)), down(other(1))] {
            assert_eq!(next_change(&[node(2)].into(), &[node(1)].into(), &[one, voter(2)]), None, "{one:?}");
        }
        assert_eq!(next(&[voter(1), down(other(2)), other(3)]), Some(MemberChange::Promote(node(3))));
    }

    /// Six nodes, each in each state: whatever votes are there, they stay a majority at each step, and in the
    /// end none is missing that another node could give.
    #[test]
    fn no_change_costs_the_majority() {
        let states =
            [voter(1), down(voter(1)), stalled(voter(1)), other(1), down(other(1)), stalled(other(1))];
        let is_majority = |nodes: &[Candidate]| {
            let voters = nodes.iter().filter(|it| it.votes);
            2 * voters.clone().filter(|it| it.is_ready()).count() > voters.count()
        };
        let mut replaced = 0;
        for number in 0..states.len().pow(6) {
            let state = |at: u16| states[number / states.len().pow(at.into()) % states.len()];
            let mut nodes: [Candidate; 6] =
                [0, 1, 2, 3, 4, 5].map(|at| Candidate { node: node(at + 1), ..state(at) });
            if !is_majority(&nodes) {
                continue;
            }
            let mut changes = 0;
            while let Some(change) = next(&nodes) {
                let changed = nodes.iter_mut().find(|it| it.node == change.node()).unwrap();
                replaced += usize::from(changed.votes && changed.stalled);
                changed.votes = matches!(change, MemberChange::Promote(_));
                assert!(is_majority(&nodes), "{change:?} of {nodes:?}");
                changes += 1;
                assert!(changes <= 2 * nodes.len(), "no end: {nodes:?}");
            }
            let could_vote = nodes.iter().any(|it| !it.votes && it.is_ready());
            assert!(!could_vote || !nodes.iter().any(|it| it.votes && it.stalled), "{nodes:?}");
        }
        assert!(replaced > 300, "{replaced} stalled voters were replaced");
    }
}
