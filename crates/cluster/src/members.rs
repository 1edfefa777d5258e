//! Which nodes are in the cluster, and which of them vote.

use std::collections::BTreeSet;

use thiserror::Error;

use crate::codec::{Malformed, Reader, Writer};
use crate::node_id::NodeId;

/// The nodes that follow the record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Members {
    /// More than half of them make a quorum.
    pub voters: BTreeSet<NodeId>,
    /// They follow, but do not vote.
    pub learners: BTreeSet<NodeId>,
    /// Former members. Their numbers are never used again.
    pub gone: BTreeSet<NodeId>,
}

/// One change of the members; only one node changes at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberChange {
    /// A new node becomes a learner.
    Add(NodeId),
    /// A learner becomes a voter, as soon as it has caught up.
    Promote(NodeId),
    /// A voter becomes a learner.
    Demote(NodeId),
    /// A node leaves for good.
    Remove(NodeId),
}

/// Why a change of members was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[allow(missing_docs)] // The messages say it.
pub enum Refusal {
    #[error("{0} was removed, and a node number is never used again: give the node a new one")]
    Gone(NodeId),
    #[error("{0} is not a member")]
    Unknown(NodeId),
    #[error("{0} is the only voter")]
    LastVoter(NodeId),
}

impl MemberChange {
    /// The node that changes.
    pub fn node(self) -> NodeId {
        match self {
            MemberChange::Add(node)
            | MemberChange::Promote(node)
            | MemberChange::Demote(node)
            | MemberChange::Remove(node) => node,
        }
    }

    /// Whether the change ends the node's vote.
    pub(crate) fn ends_vote(self) -> bool {
        matches!(self, MemberChange::Demote(_) | MemberChange::Remove(_))
    }
}

impl Members {
    /// The only member of a cluster of one.
    pub fn only(node: NodeId) -> Members {
        Members { voters: [node].into(), ..Members::default() }
    }

    /// Whether `node` is a member.
    pub fn has(&self, node: NodeId) -> bool {
        self.voters.contains(&node) || self.learners.contains(&node)
    }

    /// The members after `change`. A change that is already in effect is not an error.
    pub fn after(&self, change: MemberChange) -> Result<Members, Refusal> {
        let mut after = self.clone();
        let node = change.node();
        if self.gone.contains(&node) {
            return if change == MemberChange::Remove(node) { Ok(after) } else { Err(Refusal::Gone(node)) };
        }
        if change.ends_vote() && self.voters.len() == 1 && self.voters.contains(&node) {
            return Err(Refusal::LastVoter(node));
        }
        match change {
            MemberChange::Add(_) if self.has(node) => {}
            MemberChange::Add(_) => {
                after.learners.insert(node);
            }
            _ if !self.has(node) => return Err(Refusal::Unknown(node)),
            MemberChange::Promote(_) => {
                after.learners.remove(&node);
                after.voters.insert(node);
            }
            MemberChange::Demote(_) => {
                after.voters.remove(&node);
                after.learners.insert(node);
            }
            MemberChange::Remove(_) => {
                after.voters.remove(&node);
                after.learners.remove(&node);
                after.gone.insert(node);
            }
        }
        Ok(after)
    }

    pub(crate) fn encode(&self, to: &mut Writer) {
        for nodes in [&self.voters, &self.learners, &self.gone] {
            to.count(nodes.len());
            nodes.iter().for_each(|node| to.u16(node.get()));
        }
    }

    pub(crate) fn decode(from: &mut Reader<'_>) -> Result<Members, Malformed> {
        let mut nodes = || {
            let mut nodes = BTreeSet::new();
            for _ in 0..from.count(2)? {
                let node = NodeId::new(from.u16()?).ok_or(Malformed)?;
                if nodes.last().is_some_and(|last| *last >= node) {
                    return Err(Malformed);
                }
                nodes.insert(node);
            }
            Ok(nodes)
        };
        Ok(Members { voters: nodes()?, learners: nodes()?, gone: nodes()? })
    }
}

/// A node that could become a voter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The node.
    pub node: NodeId,
    /// It has no volumes.
    pub witness: bool,
    /// It is a voter already; voters are not replaced without need.
    pub votes: bool,
    /// Its heartbeats arrive.
    pub up: bool,
    /// Its copy of the record accepts no changes, so its vote is missing.
    pub stalled: bool,
}

impl Candidate {
    /// Whether its vote would be there, if it became a voter now.
    pub fn is_ready(&self) -> bool {
        self.up && !self.stalled
    }

    /// What is chosen first. A stalled voter loses its vote only to a node that is ready. A voter that is
    /// down keeps its vote: most such nodes are restarting.
    fn rank(&self) -> (u8, NodeId) {
        let rank = match (self.votes, self.stalled) {
            (true, false) => 0,
            (false, _) if self.is_ready() => 1,
            (true, true) => 2,
            (false, _) => 3,
        };
        (rank, self.node)
    }
}

/// The nodes that should vote.
///
/// Up to three nodes with volumes all vote; of four, three do; of five or more, five do. Two nodes get the
/// witness as a third voter.
pub fn voters_for(nodes: &[Candidate]) -> BTreeSet<NodeId> {
    let (witnesses, mut hosts): (Vec<&Candidate>, Vec<&Candidate>) = nodes.iter().partition(|it| it.witness);
    hosts.sort_by_key(|it| it.rank());
    let count = match hosts.len() {
        0..=3 => hosts.len(),
        4 => 3,
        _ => 5,
    };
    let mut voters: BTreeSet<NodeId> = hosts.iter().take(count).map(|it| it.node).collect();
    if hosts.len() == 2 {
        voters.extend(witnesses.iter().min_by_key(|it| it.rank()).map(|it| it.node));
    }
    voters
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(number: u16) -> NodeId {
        NodeId::new(number).unwrap()
    }

    #[test]
    fn a_number_is_never_given_away_again() {
        let one = Members::only(node(1));
        let two = one.after(MemberChange::Add(node(2))).unwrap();
        assert_eq!(two.after(MemberChange::Add(node(2))), Ok(two.clone()));
        let voting = two.after(MemberChange::Promote(node(2))).unwrap();
        assert_eq!(voting.voters, [node(1), node(2)].into());
        let gone = voting.after(MemberChange::Remove(node(2))).unwrap();
        assert_eq!(gone.voters, [node(1)].into());
        assert_eq!(gone.after(MemberChange::Remove(node(2))), Ok(gone.clone()));
        for change in [MemberChange::Add(node(2)), MemberChange::Promote(node(2))] {
            assert_eq!(gone.after(change), Err(Refusal::Gone(node(2))));
        }
        assert_eq!(gone.after(MemberChange::Remove(node(1))), Err(Refusal::LastVoter(node(1))));
        assert_eq!(gone.after(MemberChange::Demote(node(3))), Err(Refusal::Unknown(node(3))));
        assert_eq!(voting.after(MemberChange::Demote(node(1))).unwrap().learners, [node(1)].into());
    }

    fn host(number: u16) -> Candidate {
        Candidate { node: node(number), witness: false, votes: false, up: true, stalled: false }
    }

    fn votes(number: u16) -> Candidate {
        Candidate { votes: true, ..host(number) }
    }

    fn stalled(it: Candidate) -> Candidate {
        Candidate { stalled: true, ..it }
    }

    fn down(it: Candidate) -> Candidate {
        Candidate { up: false, ..it }
    }

    fn voters(nodes: &[Candidate]) -> Vec<u16> {
        voters_for(nodes).iter().map(|it| it.get()).collect()
    }

    #[test]
    fn voters_by_rule() {
        let witness = |number| Candidate { witness: true, ..host(number) };
        assert_eq!(voters(&[host(1)]), [1]);
        assert_eq!(voters(&[host(1), witness(2)]), [1], "two voters are worse than one");
        assert_eq!(voters(&[host(1), host(2)]), [1, 2]);
        assert_eq!(voters(&[host(1), witness(2), host(3)]), [1, 2, 3]);
        assert_eq!(voters(&[host(1), witness(2), host(3), host(4)]), [1, 3, 4]);
        assert_eq!(voters(&[host(1), votes(2), votes(3), votes(4)]), [2, 3, 4]);
        assert_eq!(voters(&[1, 2, 3, 4, 5, 6, 7].map(host)), [1, 2, 3, 4, 5]);
        assert_eq!(voters(&[host(1), host(2), host(3), host(4), host(5), votes(6)]), [1, 2, 3, 4, 6]);
    }

    #[test]
    fn a_stalled_voter_is_replaced_by_a_node_that_is_ready() {
        assert_eq!(voters(&[votes(1), votes(2), stalled(votes(3)), host(4)]), [1, 2, 4]);
        let six = [votes(1), stalled(votes(2)), votes(3), votes(4), votes(5), host(6)];
        assert_eq!(voters(&six), [1, 3, 4, 5, 6]);
        let witness = |it: Candidate| Candidate { witness: true, ..it };
        assert_eq!(voters(&[votes(1), votes(2), witness(stalled(votes(3))), witness(host(4))]), [1, 2, 4]);
        // No other node is better.
        assert_eq!(voters(&[votes(1), votes(2), stalled(votes(3))]), [1, 2, 3]);
        for other in [stalled(host(4)), down(host(4))] {
            assert_eq!(voters(&[votes(1), votes(2), stalled(votes(3)), other]), [1, 2, 3], "{other:?}");
        }
        let seven = [votes(1), votes(2), votes(3), votes(4), stalled(votes(5)), down(host(6)), host(7)];
        assert_eq!(voters(&seven), [1, 2, 3, 4, 7]);
    }

    #[test]
    fn voters_are_not_replaced_without_need() {
        assert_eq!(voters(&[votes(1), votes(2), host(3), votes(4)]), [1, 2, 4], "node 3 is well again");
        assert_eq!(voters(&[votes(1), votes(2), down(votes(3)), host(4)]), [1, 2, 3], "node 3 restarts");
    }
}
