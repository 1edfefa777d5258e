use std::num::NonZeroU16;

/// The number of a node in its cluster.
///
/// It is never given to another node, nor to the same node after it has lost its disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(NonZeroU16);

impl NodeId {
    /// Node `number`; there is no node 0.
    pub const fn new(number: u16) -> Option<NodeId> {
        match NonZeroU16::new(number) {
            Some(number) => Some(NodeId(number)),
            None => None,
        }
    }

    /// The node's number.
    pub const fn get(self) -> u16 {
        self.0.get()
    }

    /// raft-rs's ID of the node.
    pub(crate) fn raft(self) -> u64 {
        u64::from(self.get())
    }

    /// The node with this ID of raft-rs, where 0 means no node.
    pub(crate) fn of_raft(id: u64) -> Option<NodeId> {
        NodeId::new(u16::try_from(id).ok()?)
    }
}

base::shows!(Display for NodeId, |it| "node {}", it.0);
