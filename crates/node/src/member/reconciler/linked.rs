//! The state of the control links with other nodes.

use replica::NodeId;

use super::Reconciler;
use crate::copies::Linked;

impl Reconciler {
    /// The state of the control link with another node.
    pub fn linked(&self, node: NodeId) -> Linked {
        let (now, peers) = (rt::now(), self.peers.borrow());
        let mut linked = Linked { of: 1, ..Linked::default() };
        let Some(peer) = peers.get(&node) else { return linked };
        if let Some(link) = &peer.link {
            linked.add(now, link);
        }
        if let Some(heard) = peer.heard {
            linked.hear(now.since(heard));
        }
        linked
    }

    /// How many replication links there should be with another node; `None`: its control link is not up.
    pub fn replication_links(&self, node: NodeId) -> Option<u16> {
        let peers = self.peers.borrow();
        let link = peers.get(&node)?.link.as_ref()?;
        Some(link.peer_cores().max(rt::cores() as u16))
    }
}
