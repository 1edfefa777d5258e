//! The portals at which a host logs in, so that the loss of one node costs it no volume.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use api::{ClusterNode, FloatingAddress, Volume};

const ISCSI_PORT: u16 = 3260;

/// What is known of the nodes.
#[derive(Clone, Copy, Debug)]
pub struct Nodes<'a> {
    /// The nodes of the cluster; empty if they are not known.
    pub cluster: &'a [ClusterNode],
    /// The cluster's floating addresses.
    pub floating: &'a [FloatingAddress],
    /// The portals of this node, which are used if the nodes are not known.
    pub here: &'a [String],
}

/// The portals of all nodes that have one of these volumes, or of all nodes without a volume.
///
/// They are in the order of the nodes; the floating addresses that such a node may hold follow.
pub fn portals<'a>(volumes: impl IntoIterator<Item = &'a Volume>, nodes: Nodes<'_>) -> Vec<String> {
    if nodes.cluster.is_empty() {
        return nodes.here.to_vec();
    }
    let mut having: BTreeSet<u16> = BTreeSet::new();
    for volume in volumes {
        having.extend(volume.copies.iter().filter(|copy| !copy.leaves).map(|copy| copy.node));
    }
    let has = |node: &&ClusterNode| !node.witness && (having.is_empty() || having.contains(&node.id));
    let mut all: Vec<String> =
        nodes.cluster.iter().filter(has).flat_map(|node| node.portals.iter().cloned()).collect();
    let port = all
        .iter()
        .find_map(|portal| portal.parse().ok())
        .map_or(ISCSI_PORT, |portal: SocketAddr| portal.port());
    let may_have = |floating: &&FloatingAddress| {
        floating.nodes.is_empty()
            || having.is_empty()
            || floating.nodes.iter().any(|node| having.contains(node))
    };
    let address = |floating: &FloatingAddress| {
        let address = floating.address.split('/').next()?.parse::<IpAddr>().ok()?;
        Some(SocketAddr::new(address, port).to_string())
    };
    all.extend(nodes.floating.iter().filter(may_have).filter_map(address));
    let mut seen = BTreeSet::new();
    all.retain(|portal| seen.insert(portal.clone()));
    all
}

#[cfg(test)]
mod tests {
    use api::{AddressState, CopyState};

    use super::*;
    use crate::samples;

    fn node(id: u16, portals: &[&str]) -> ClusterNode {
        ClusterNode {
            portals: portals.iter().map(|&portal| portal.to_owned()).collect(),
            ..samples::node(id)
        }
    }

    fn floating(address: &str, nodes: &[u16]) -> FloatingAddress {
        FloatingAddress {
            address: address.into(),
            device: None,
            nodes: nodes.to_vec(),
            prefer: None,
            portal_group: Some(1),
            holder: None,
            holder_name: None,
            since: None,
            waits: false,
            state: AddressState::Nobody,
            troubles: Vec::new(),
        }
    }

    #[test]
    fn a_host_logs_in_to_every_node_with_a_copy_and_by_floating_addresses() {
        let cluster = [
            node(1, &["10.0.0.1:3261", "10.1.0.1:3261"]),
            node(2, &["10.0.0.2:3261"]),
            node(3, &["10.0.0.3:3261"]),
            ClusterNode { witness: true, ..node(4, &[]) },
        ];
        let addresses =
            [floating("10.0.0.9/24", &[]), floating("fd00::9/64", &[2]), floating("10.0.0.8/24", &[3])];
        let nodes = Nodes { cluster: &cluster, floating: &addresses, here: &[] };
        let copies = [1, 2].map(|node| samples::copy(usize::from(node), node, CopyState::InSync));
        let volume = samples::volume("db", copies.to_vec());
        let found = portals([&volume], nodes);
        assert_eq!(
            found,
            ["10.0.0.1:3261", "10.1.0.1:3261", "10.0.0.2:3261", "10.0.0.9:3261", "[fd00::9]:3261"]
        );
        let sole = samples::volume("own", vec![samples::copy(0, 3, CopyState::InSync)]);
        assert_eq!(portals([&sole], nodes), ["10.0.0.3:3261", "10.0.0.9:3261", "10.0.0.8:3261"]);
        assert_eq!(portals([], nodes).len(), 7);
        let here = ["0.0.0.0:3260".to_owned()];
        assert_eq!(portals([&volume], Nodes { cluster: &[], floating: &[], here: &here }), here);
    }
}
