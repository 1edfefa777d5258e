//! What the loss of a node would do to a volume now, for the API. The command line and the console only show
//! it.

use api::{
    ClusterNode, ClusterRecord, CopyState, Loss, LossOutcome, RecordPlace, SplitBrainPolicy, Volume,
    VolumeCopy, VolumeKind,
};

/// The cluster that decides what happens after a loss.
#[derive(Clone, Copy, Debug)]
pub struct Cluster<'a> {
    /// The nodes; empty if unknown.
    pub nodes: &'a [ClusterNode],
    /// The record, as far as it is known.
    pub record: Option<&'a ClusterRecord>,
}

/// The loss of each node that has a copy; empty if the nodes are unknown.
pub fn losses(volume: &Volume, cluster: Cluster<'_>) -> Vec<Loss> {
    match cluster.nodes {
        [] => Vec::new(),
        _ => volume.copies.iter().map(|copy| loss(volume, copy, cluster)).collect(),
    }
}

fn loss(volume: &Volume, copy: &VolumeCopy, cluster: Cluster<'_>) -> Loss {
    let (outcome, text) = outcome(volume, copy, cluster).unwrap_or((LossOutcome::Down, "down now"));
    Loss { node: copy.node, outcome, text: text.to_owned() }
}

/// What the loss of a copy's node would do; `None` if it is lost already.
fn outcome(volume: &Volume, copy: &VolumeCopy, cluster: Cluster<'_>) -> Option<(LossOutcome, &'static str)> {
    use LossOutcome::{Continues, DataLost, Nothing, SplitBrainRisk, Unavailable};
    let node = copy.node;
    let Cluster { nodes, record } = cluster;
    let etcd = record.filter(|record| record.place == RecordPlace::Etcd);
    let up = |id: u16| nodes.iter().any(|node| node.id == id && node.up);
    if !up(node) {
        return None;
    }
    let serves = |other: &&VolumeCopy| other.state == CopyState::InSync && up(other.node);
    let others = volume.copies.iter().filter(|other| other.node != node).filter(serves).count();
    Some(match (copy.state, others) {
        (CopyState::OutOfSync, _) => (Nothing, "no effect (its copy is out of sync)"),
        (CopyState::InSync, 0) if !volume.kind.is_durable() => {
            (DataLost, "DATA LOST (the only copy in sync is in memory)")
        }
        (CopyState::InSync, 0) => (Unavailable, "unavailable until the node returns (only copy in sync)"),
        _ if etcd.is_some_and(|etcd| etcd.answers) => (Continues, CONTINUES),
        _ if etcd.is_some() => (
            Unavailable,
            "unavailable until the node returns or etcd is available again (without etcd no node can be declared lost)",
        ),
        _ if !outvoted(node, nodes) && is_of_two(nodes) && continues_alone(volume) => (
            SplitBrainRisk,
            "the other node continues alone after about six seconds; SPLIT BRAIN IF ONLY THE LINK IS LOST: both continue, and one side's writes are discarded later",
        ),
        _ if !outvoted(node, nodes) && is_of_two(nodes) => (
            Unavailable,
            "unavailable until the node returns (preferred node, and the cluster has no witness: `ursa node prefer`)",
        ),
        _ if !outvoted(node, nodes) => {
            (Unavailable, "unavailable until the node returns (no quorum without it)")
        }
        _ => (Continues, CONTINUES),
    })
}

const CONTINUES: &str = "still available, after a pause of about a second";

/// What a single copy on `node` (as in "node 1 (san1)") means for the volume.
pub fn single_copy(kind: VolumeKind, node: &str) -> String {
    match kind.is_durable() {
        true => format!(
            "a single copy: the volume is unavailable while {node} is down, and ITS DATA IS LOST if the pool there is lost"
        ),
        false => {
            format!("a single copy, in memory: ITS DATA IS LOST whenever {node} restarts")
        }
    }
}

/// Whether the split-brain policy lets a node continue alone with the volume.
pub fn continues_alone(volume: &Volume) -> bool {
    volume.split_brain_policy.as_ref().is_some_and(|chosen| chosen.policy == SplitBrainPolicy::Heartbeat)
}

/// Whether the cluster has two nodes, of which only one votes.
fn is_of_two(nodes: &[ClusterNode]) -> bool {
    nodes.len() == 2 && nodes.iter().filter(|node| node.votes).count() == 1
}

/// Whether the voters that are up without this node are a majority.
fn outvoted(lost: u16, nodes: &[ClusterNode]) -> bool {
    let voters = nodes.iter().filter(|node| node.votes);
    let left = voters.clone().filter(|node| node.can_vote() && node.id != lost).count();
    2 * left > voters.count()
}

#[cfg(test)]
mod tests {
    use api::{ChosenPolicy, RecordStall};

    use super::*;
    use crate::samples;

    fn volume(kind: VolumeKind, copies: &[(u16, CopyState)]) -> Volume {
        let copy = |(at, (node, state)): (usize, &(u16, CopyState))| VolumeCopy {
            here: at == 0,
            ..samples::copy(at, *node, *state)
        };
        Volume { kind, ..samples::volume("db", copies.iter().enumerate().map(copy).collect()) }
    }

    /// Nodes in the order of their numbers: whether each is up, and whether it votes.
    fn nodes(nodes: &[(bool, bool)]) -> Vec<ClusterNode> {
        let node = |(at, (up, votes)): (usize, &(bool, bool))| ClusterNode {
            up: *up,
            votes: *votes,
            copies: 1,
            in_sync: 1,
            ..samples::node(at as u16 + 1)
        };
        nodes.iter().enumerate().map(node).collect()
    }

    use CopyState::{CatchingUp, InSync, OutOfSync};

    /// A cluster that keeps its record in its nodes.
    fn of(nodes: &[ClusterNode]) -> Cluster<'_> {
        Cluster { nodes, record: None }
    }

    fn losses(volume: &Volume, nodes: &[ClusterNode]) -> Vec<String> {
        super::losses(volume, of(nodes)).into_iter().map(|loss| loss.text).collect()
    }

    const CONTINUES: &str = "still available, after a pause of about a second";

    #[test]
    fn with_etcd_each_of_two_nodes_can_be_lost_while_it_answers() {
        let two = nodes(&[(true, false); 2]);
        let volume = volume(VolumeKind::Thick, &[(1, InSync), (2, InSync)]);
        let said = |answers: bool| {
            let record = ClusterRecord { place: RecordPlace::Etcd, answers, endpoints: Vec::new() };
            let lost = super::losses(&volume, Cluster { nodes: &two, record: Some(&record) });
            lost.into_iter().map(|loss| loss.text).collect::<Vec<_>>()
        };
        assert_eq!(said(true), [CONTINUES; 2]);
        let stops = "unavailable until the node returns or etcd is available again (without etcd no node can be declared lost)";
        assert_eq!(said(false), [stops; 2]);
    }

    #[test]
    fn losses_are_reported_to_programs_too() {
        let one = nodes(&[(true, true), (false, true), (true, true)]);
        let copies = [(1, InSync), (2, InSync), (3, OutOfSync)];
        let told = super::losses(&volume(VolumeKind::Ram, &copies), of(&one));
        let told: Vec<(u16, LossOutcome)> = told.into_iter().map(|loss| (loss.node, loss.outcome)).collect();
        use LossOutcome::{DataLost, Down, Nothing};
        assert_eq!(told, [(1, DataLost), (2, Down), (3, Nothing)]);
        assert!(super::losses(&volume(VolumeKind::Ram, &copies), of(&[])).is_empty(), "nobody knows");
    }

    #[test]
    fn any_of_three_nodes_can_be_lost() {
        let three = nodes(&[(true, true); 3]);
        let volume = volume(VolumeKind::Thick, &[(1, InSync), (2, InSync)]);
        assert_eq!(losses(&volume, &three), [CONTINUES; 2]);
    }

    #[test]
    fn the_only_copy_in_sync_cannot() {
        let three = nodes(&[(true, true), (true, true), (false, true)]);
        let copies = [(1, InSync), (2, CatchingUp), (3, InSync)];
        let said = losses(&volume(VolumeKind::Thick, &copies), &three);
        assert_eq!(said[0], "unavailable until the node returns (only copy in sync)");
        // Two of three voters are up: without node 2, there is no quorum.
        assert_eq!(said[1], "unavailable until the node returns (no quorum without it)");
        assert_eq!(said[2], "down now");
        let said = losses(&volume(VolumeKind::Ram, &copies), &three);
        assert_eq!(said[0], "DATA LOST (the only copy in sync is in memory)");
    }

    #[test]
    fn a_voter_that_cannot_write_its_record_is_not_counted() {
        let mut three = nodes(&[(true, true); 3]);
        three[2].record_stalled = Some(RecordStall::NoSpace);
        let said = losses(&volume(VolumeKind::Thick, &[(1, InSync), (2, InSync)]), &three);
        assert_eq!(said[1], "unavailable until the node returns (no quorum without it)");
    }

    #[test]
    fn one_of_two_nodes_decides() {
        let two = nodes(&[(true, true), (true, false)]);
        let said = losses(&volume(VolumeKind::Thick, &[(1, InSync), (2, InSync)]), &two);
        assert_eq!(
            said[0],
            "unavailable until the node returns (preferred node, and the cluster has no witness: `ursa node prefer`)"
        );
        assert_eq!(said[1], CONTINUES);
    }

    #[test]
    fn the_other_of_two_nodes_may_continue_alone() {
        let two = nodes(&[(true, true), (true, false)]);
        let chosen = ChosenPolicy { policy: SplitBrainPolicy::Heartbeat, by: "me".into(), at: 0 };
        let volume = Volume {
            split_brain_policy: Some(chosen),
            ..volume(VolumeKind::Thick, &[(1, InSync), (2, InSync)])
        };
        let said = losses(&volume, &two);
        assert_eq!(
            said[0],
            "the other node continues alone after about six seconds; SPLIT BRAIN IF ONLY THE LINK IS LOST: both continue, and one side's writes are discarded later"
        );
        assert_eq!(said[1], CONTINUES);
    }

    #[test]
    fn a_single_copy_is_reported_as_the_only_one() {
        let said = single_copy(VolumeKind::Thick, "node 1 (san1)");
        assert!(said.contains("while node 1 (san1) is down") && said.contains("DATA IS LOST"), "{said}");
        assert!(single_copy(VolumeKind::Ram, "this node").contains("whenever this node restarts"));
    }

    #[test]
    fn losing_a_copy_out_of_sync_has_no_effect() {
        let three = nodes(&[(true, true); 3]);
        let said = losses(&volume(VolumeKind::Thick, &[(1, InSync), (2, OutOfSync)]), &three);
        assert_eq!(said[1], "no effect (its copy is out of sync)");
    }
}
