//! The cluster as this node sees it.

use node::control::NodeStatus;

use super::snapshot::Members;
use super::text::{Kind, Text};

pub(super) fn write(text: &mut Text, Members { nodes, answers }: &Members) {
    let help = "Whether this node reaches a leader of the cluster's record, or etcd: if not, nothing in the cluster can be changed.";
    text.family("ursa_cluster_record_up", Kind::Gauge, help).sample(&[], u8::from(*answers));
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
    gauge("ursa_node_up", "Whether this node has reached the node within the last half second.", |node| {
        node.up.into()
    });
    gauge("ursa_node_votes", "Whether the node is a voter.", |node| node.votes.into());
    let help = "Whether the node reports that it can write its copy of the cluster's record: if not, its vote is missing.";
    gauge("ursa_node_record_up", help, |node| node.stalled.is_none().into());
    let help =
        "Whether the node is in maintenance: none of its copies is in sync, so that it can be stopped.";
    gauge("ursa_node_maintenance", help, |node| node.maintenance.into());
    gauge("ursa_node_copies", "Number of copies of volumes on the node.", |node| node.copies as u64);
    gauge("ursa_node_copies_in_sync", "Number of copies on the node that are in sync.", |node| {
        node.in_sync as u64
    });
}
