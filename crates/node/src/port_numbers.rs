//! The numbers by which initiators know a node's ports: target port group, portal group, relative target
//! ports.
//!
//! To an initiator, all nodes of a cluster are one SCSI target device. The nodes with a copy of a volume show
//! it by the same targets, and each node is a target port group and a portal group of its own. Two nodes must
//! never give the same number to two ports, and a port must keep its number forever, since reservations
//! refer to it. So all numbers are derived from the node's number, without asking another node.

use std::num::NonZeroU8;

use proto::scsi::RelativePort;

/// A node's number in its cluster: 1 to 255, never given to another node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeNumber(NonZeroU8);

impl NodeNumber {
    /// The node of this number; `None` if the number is out of range.
    pub fn new(number: u64) -> Option<NodeNumber> {
        u8::try_from(number).ok().and_then(NonZeroU8::new).map(NodeNumber)
    }

    /// The number.
    pub fn get(self) -> u8 {
        self.0.get()
    }
}

/// What the numbers of a node's ports are derived from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortNumbers {
    /// The node belongs to no cluster. Its target ports have the numbers of their targets.
    Alone,
    /// The node is a member of a cluster.
    Member(NodeNumber),
}

/// The group of a node without a cluster.
const GROUP_ALONE: u16 = 1;

impl PortNumbers {
    /// The numbers of the node with this number; `None`: without a cluster.
    pub fn of(node: Option<NodeNumber>) -> PortNumbers {
        node.map_or(PortNumbers::Alone, PortNumbers::Member)
    }

    /// The target port group that all ports of the node are in.
    pub fn port_group(self) -> u16 {
        match self {
            PortNumbers::Alone => GROUP_ALONE,
            PortNumbers::Member(node) => node.get().into(),
        }
    }

    /// The portal group of all portals of the node.
    ///
    /// Connections of one session may use any of these portals, and no other node's.
    pub fn portal_group(self) -> u16 {
        self.port_group()
    }

    /// The relative port of the node's target number `target` (see
    /// [`Target::port`](crate::access::Target::port)).
    ///
    /// In a cluster, two targets may have the same port if their numbers are 256 apart: two such targets
    /// never lead to the same volume.
    pub fn port(self, target: u16) -> RelativePort {
        match self {
            PortNumbers::Alone => RelativePort(target),
            PortNumbers::Member(node) => {
                RelativePort(u16::from_be_bytes([node.get(), PortNumbers::in_cluster(target)]))
            }
        }
    }

    /// What the ports of a target in a cluster have of its number. Targets that lead to one volume must
    /// differ in it, also on a node without a cluster, which may join one with all its targets.
    pub fn in_cluster(target: u16) -> u8 {
        target.to_be_bytes()[1]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_alone_has_the_numbers_of_its_targets() {
        let alone = PortNumbers::of(None);
        assert_eq!((alone.port_group(), alone.portal_group()), (1, 1));
        assert_eq!([1, 255, 256, 65_535].map(|target| alone.port(target).0), [1, 255, 256, 65_535]);
    }

    #[test]
    fn numbers_of_nodes_do_not_meet() {
        let member = |number| PortNumbers::of(NodeNumber::new(number));
        assert_eq!((member(2).port_group(), member(2).portal_group()), (2, 2));
        assert_eq!([1, 2, 255].map(|target| member(2).port(target).0), [0x0201, 0x0202, 0x02ff]);
        assert_eq!(member(255).port(255).0, 0xffff);
        // Two targets with one port.
        assert_eq!([1, 257].map(|target| member(1).port(target).0), [0x0101, 0x0101]);
        assert_eq!((NodeNumber::new(0), NodeNumber::new(256)), (None, None));
    }
}
