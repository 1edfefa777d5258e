//! The engine that keeps the cluster's record on a node.

use cluster::embedded::{Embedded, Simulated};
use cluster::etcd::Etcd;
use replica::NodeId;

/// The engine that keeps the cluster's record on this node.
pub enum Engine {
    /// Raft, together with the other nodes.
    Embedded(Embedded),
    /// A site's etcd, which does not know the nodes.
    Etcd(Etcd),
    /// Raft in a simulated world.
    Simulated(Simulated),
    /// One record that all nodes share, in a simulated world.
    Shared,
}

impl Engine {
    pub(super) fn deliver(&self, from: NodeId, bytes: Vec<u8>) {
        let Some(from) = cluster::NodeId::new(from.0) else { return };
        match self {
            Engine::Embedded(embedded) => embedded.deliver(from, bytes),
            Engine::Simulated(simulated) => simulated.deliver(from, bytes),
            Engine::Etcd(_) | Engine::Shared => {}
        }
    }

    pub(super) fn died(&self, node: NodeId) {
        let Some(node) = cluster::NodeId::new(node.0) else { return };
        match self {
            Engine::Embedded(embedded) => embedded.died(node),
            Engine::Simulated(simulated) => simulated.died(node),
            Engine::Etcd(_) | Engine::Shared => {}
        }
    }

    pub(super) fn unreachable(&self, node: NodeId) {
        let Some(node) = cluster::NodeId::new(node.0) else { return };
        match self {
            Engine::Embedded(embedded) => embedded.unreachable(node),
            Engine::Simulated(simulated) => simulated.unreachable(node),
            Engine::Etcd(_) | Engine::Shared => {}
        }
    }
}
