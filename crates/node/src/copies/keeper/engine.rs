//! What keeps the cluster's record on a node.

use cluster::embedded::Embedded;
use replica::NodeId;

/// What keeps the cluster's record on this node.
pub enum Engine {
    /// Raft, with the other nodes.
    Embedded(Embedded),
    /// All nodes share one, in a simulated world.
    Shared,
}

impl Engine {
    pub(super) fn deliver(&self, from: NodeId, bytes: Vec<u8>) {
        if let (Engine::Embedded(embedded), Some(from)) = (self, cluster::NodeId::new(from.0)) {
            embedded.deliver(from, bytes);
        }
    }

    pub(super) fn died(&self, node: NodeId) {
        if let (Engine::Embedded(embedded), Some(node)) = (self, cluster::NodeId::new(node.0)) {
            embedded.died(node);
        }
    }

    pub(super) fn unreachable(&self, node: NodeId) {
        if let (Engine::Embedded(embedded), Some(node)) = (self, cluster::NodeId::new(node.0)) {
            embedded.unreachable(node);
        }
    }
}
