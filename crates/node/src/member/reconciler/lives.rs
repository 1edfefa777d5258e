//! Which lives of other nodes have ended, as far as this node knows.

use replica::{Incarnation, NodeId};

use super::Reconciler;

impl Reconciler {
    /// Notes that the process that was this life of a node is certainly dead.
    pub(super) fn note_end_of(&self, node: NodeId, life: Incarnation) {
        let mut peers = self.peers.borrow_mut();
        let peer = peers.entry(node).or_default();
        peer.dead = peer.dead.max(Some(life));
    }

    /// Whether the process that was this life of a node is known to be dead.
    pub fn is_dead(&self, node: NodeId, life: Incarnation) -> bool {
        self.peers.borrow().get(&node).is_some_and(|peer| peer.dead >= Some(life))
    }

    /// The life of a node that was last heard.
    pub fn life_heard_of(&self, node: NodeId) -> Option<Incarnation> {
        self.peers.borrow().get(&node).and_then(|peer| peer.life)
    }
}
