//! The numbers by which initiators know a node's ports: target port group, portal group, relative target
//! ports.
//!
//! To an initiator, all nodes of a cluster are one SCSI target device. The nodes with a copy of a volume show
//! it by the same targets, and each node is a target port group and a portal group of its own. Two nodes must
//! never give the same number to two ports, and a port must keep its number as long as a volume has copies on
//! several nodes, since reservations refer to it. So all numbers are derived from the node's number, without
//! asking another node.
//!
//! A node that is in no cluster has the numbers of the node that founds one. One that joins a cluster gets
//! others. Then all names of its ports change, in sessions and in the reservations of its sole volumes: see
//! [`Shard::renumber`](crate::shard::Shard::renumber).

use std::num::NonZeroU8;

use proto::scsi::RelativePort;

/// A node's number in its cluster: 1 to 255, never given to another node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeNumber(NonZeroU8);

impl NodeNumber {
    /// The number of a node that is in no cluster, and of the node that founds one.
    pub const FIRST: NodeNumber = NodeNumber(NonZeroU8::MIN);

    /// The node of this number; `None` if the number is out of range.
    pub fn new(number: u64) -> Option<NodeNumber> {
        u8::try_from(number).ok().and_then(NonZeroU8::new).map(NodeNumber)
    }

    /// The number.
    pub fn get(self) -> u8 {
        self.0.get()
    }

    /// The target port group that all ports of the node are in.
    pub fn port_group(self) -> u16 {
        self.get().into()
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
    /// Two targets may have the same port if their numbers are 256 apart: two such targets never lead to the
    /// same volume.
    pub fn port(self, target: u16) -> RelativePort {
        RelativePort(u16::from_be_bytes([self.get(), NodeNumber::in_port(target)]))
    }

    /// What ports have of the number of their target. Targets that lead to one volume must differ in it.
    pub fn in_port(target: u16) -> u8 {
        target.to_be_bytes()[1]
    }

    /// The port of this node for the target of `port`, which may be a port of another node.
    pub fn same_port(self, port: RelativePort) -> RelativePort {
        self.port(port.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_alone_has_the_numbers_of_a_founder() {
        let alone = NodeNumber::FIRST;
        assert_eq!(Some(alone), NodeNumber::new(1));
        assert_eq!((alone.port_group(), alone.portal_group()), (1, 1));
        assert_eq!([1, 255, 256].map(|target| alone.port(target).0), [0x0101, 0x01ff, 0x0100]);
    }

    #[test]
    fn numbers_of_nodes_do_not_meet() {
        let member = |number| NodeNumber::new(number).unwrap();
        assert_eq!((member(2).port_group(), member(2).portal_group()), (2, 2));
        assert_eq!([1, 2, 255].map(|target| member(2).port(target).0), [0x0201, 0x0202, 0x02ff]);
        assert_eq!(member(255).port(255).0, 0xffff);
        // Two targets with one port.
        assert_eq!([1, 257].map(|target| member(1).port(target).0), [0x0101, 0x0101]);
        assert_eq!((NodeNumber::new(0), NodeNumber::new(256)), (None, None));
    }

    #[test]
    fn a_port_keeps_its_target_when_its_node_gets_another_number() {
        let [first, third] = [1, 3].map(|number| NodeNumber::new(number).unwrap());
        for target in [1, 255, 256, 257] {
            assert_eq!(third.same_port(first.port(target)), third.port(target));
            assert_eq!(third.same_port(third.port(target)), third.port(target));
        }
    }
}
