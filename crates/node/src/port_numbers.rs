//! By which numbers initiators know a node's ports: target port group, portal group, relative target ports.
//!
//! All nodes of a cluster are one SCSI target device to an initiator: the nodes with a copy of a volume show
//! it by the same targets, and each is a target port group and a portal group of its own. No two nodes may
//! give one number to two ports, and a port must have its number for ever, since reservations are kept by it.
//! So all numbers come from the number of the node, and a node needs to ask nobody.

use std::num::NonZeroU8;

use proto::scsi::RelativePort;

/// A node among those of its cluster: 1 to 255, never given to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeNumber(NonZeroU8);

impl NodeNumber {
    /// The node of this number; `None` if none can have it.
    pub fn new(number: u64) -> Option<NodeNumber> {
        u8::try_from(number).ok().and_then(NonZeroU8::new).map(NodeNumber)
    }

    /// The number.
    pub fn get(self) -> u8 {
        self.0.get()
    }
}

/// What a node's ports are numbered by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortNumbers {
    /// The node belongs to no cluster. Its target ports have the numbers of their targets.
    Alone,
    /// It is one of several.
    Member(NodeNumber),
}

/// The group of a node alone.
const GROUP_ALONE: u16 = 1;

impl PortNumbers {
    /// Of the node that has this number, or none.
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

    /// The portal group of all portals of the node: connections of one session may come through any of them,
    /// and through no other node's.
    pub fn portal_group(self) -> u16 {
        self.port_group()
    }

    /// The port by which the node's target of the number `target` (see
    /// [`Target::port`](crate::access::Target::port)) is reached. In a cluster two targets may have one port
    /// if their numbers are 256 apart: such two do not lead to one volume.
    pub fn port(self, target: u16) -> RelativePort {
        match self {
            PortNumbers::Alone => RelativePort(target),
            PortNumbers::Member(node) => {
                RelativePort(u16::from_be_bytes([node.get(), target.to_be_bytes()[1]]))
            }
        }
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
        // Two targets of one port.
        assert_eq!([1, 257].map(|target| member(1).port(target).0), [0x0101, 0x0101]);
        assert_eq!((NodeNumber::new(0), NodeNumber::new(256)), (None, None));
    }
}
