//! The cluster as this node sees it.

use node::control::NodeStatus;

use super::snapshot::Members;
use super::text::{Kind, Text};

pub(super) fn write(text: &mut Text, members: &Members) {
    let (nodes, answers) = match members {
        Members::NoCluster => return,
        Members::Unknown => (&[][..], false),
        Members::Known { nodes, answers } => (nodes.as_slice(), *answers),
    };
    let help = "Whether the cluster's record has a leader that is heard of, or etcd answers: without it nothing of the cluster can be changed.";
    text.family("ursa_cluster_record_up", Kind::Gauge, help).sample(&[], u8::from(answers));
    if nodes.is_empty() {
        return;
    }
    let mut gauge = |name, help, value: fn(&NodeStatus) -> u64| {
        let mut family = text.family(name, Kind::Gauge, help);
        for node in nodes {
            let labels = [("node", &*node.entry.id.to_string()), ("name", &*node.entry.name)];
            family.sample(&labels, value(node));
        }
    };
    gauge("ursa_node_up", "Whether the node was heard of within the last half second.", |node| {
        node.up.into()
    });
    gauge("ursa_node_votes", "Whether its word counts in the cluster's record.", |node| node.votes.into());
    let help = "Whether its copy of the cluster's record can be written, as it says: without that its vote is missing.";
    gauge("ursa_node_record_up", help, |node| node.stalled.is_none().into());
    let help = "Whether it is in maintenance: no copy of it is in sync, so that it can be stopped.";
    gauge("ursa_node_maintenance", help, |node| node.maintenance.into());
    gauge("ursa_node_copies", "How many copies of volumes it has.", |node| node.copies as u64);
    gauge("ursa_node_copies_in_sync", "How many of them are in sync.", |node| node.in_sync as u64);
}
