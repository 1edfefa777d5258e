//! Whether the other nodes still know this one as a member of the cluster.

use link::{PeerState, Refusal};

use super::Reconciler;

/// Why this node no longer belongs to its cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expelled {
    /// An administrator has removed it.
    Removed,
    /// A surviving node became a new cluster, and abandoned this node.
    GivenUp,
}

impl Reconciler {
    /// Whether this node was removed or abandoned, according to the other nodes.
    pub fn expelled(&self) -> Option<Expelled> {
        judge(&self.links().peers(), self.links().is_outdated())
    }
}

/// Judges by what the other nodes say; `outdated`: some are of a later generation of the cluster.
///
/// More nodes must refuse this one than have links with it: one of them may not have heard yet that this node
/// has joined, and others may have been removed together with it.
fn judge(peers: &[PeerState], outdated: bool) -> Option<Expelled> {
    let says = |peer: &&PeerState| match peer.refusal {
        Some(Refusal::Membership) => true,
        // Nodes of an earlier generation say this to a survivor, too.
        Some(Refusal::Generation) => outdated,
        _ => false,
    };
    let linked = peers.iter().filter(|peer| peer.links > 0).count();
    let refusals: Vec<&PeerState> = peers.iter().filter(|peer| peer.links == 0).filter(says).collect();
    if refusals.len() <= linked {
        return None;
    }
    match refusals.iter().any(|peer| peer.refusal == Some(Refusal::Generation)) {
        true => Some(Expelled::GivenUp),
        false => Some(Expelled::Removed),
    }
}

#[cfg(test)]
mod tests {
    use replica::NodeId;

    use super::*;

    fn peer(id: u16, links: usize, refusal: Option<Refusal>) -> PeerState {
        PeerState { id: NodeId(id), incarnation: None, links, trouble: None, refusal }
    }

    #[test]
    fn a_node_refused_by_a_majority_was_removed() {
        let (membership, generation) = (Some(Refusal::Membership), Some(Refusal::Generation));
        assert_eq!(judge(&[], false), None);
        assert_eq!(judge(&[peer(2, 0, None)], false), None, "it is down");
        assert_eq!(judge(&[peer(2, 0, membership), peer(3, 0, None)], false), Some(Expelled::Removed));
        // One node has not heard yet that this one has joined.
        assert_eq!(judge(&[peer(2, 0, membership), peer(3, 2, None)], false), None);
        // Another node was removed with this one.
        let others = [peer(1, 0, membership), peer(2, 0, membership), peer(3, 2, None)];
        assert_eq!(judge(&others, false), Some(Expelled::Removed));
        assert_eq!(judge(&[peer(1, 0, generation)], true), Some(Expelled::GivenUp));
        assert_eq!(judge(&[peer(2, 0, generation)], false), None, "this is the survivor");
        assert_eq!(judge(&[peer(2, 0, Some(Refusal::Version))], false), None);
    }
}
