//! The numbers by which initiators know a node's ports: target port group, relative target ports, portal
//! group.
//!
//! To an initiator, all nodes of a cluster are one SCSI target device. The nodes with a copy of a volume show
//! it by the same targets, and each node is a target port group and a portal group of its own. Two nodes must
//! never give the same number to two ports, and a port must keep its number as long as a volume has copies on
//! several nodes, since reservations refer to it. So the numbers of ports and of target port groups are
//! derived from the node's number, without asking another node.
//!
//! A node creates a cluster at its first start, and has the first number there. One that joins another gets
//! others. Then its ports get other numbers, in sessions and in the reservations of its sole volumes: see
//! [`Shard::renumber`](crate::shard::Shard::renumber).
//!
//! The portal group stays the same, whichever cluster the node joins or leaves: some initiators store it and
//! refuse to log in again if it has changed. So it derives from the node's identity. Only if another node of
//! the cluster has it, a node that joins gets another one.

use std::collections::BTreeSet;
use std::num::NonZeroU8;
use std::ops::Range;

use proto::iscsi::FLOATING_GROUP_MIN;
use proto::scsi::RelativePort;
use store::HostId;

/// A node's number in its cluster: 1 to 255, never given to another node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeNumber(NonZeroU8);

impl NodeNumber {
    /// The number of the node that creates a cluster.
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

    /// The relative port of the node's target number `target` (see
    /// [`Target::port`](crate::attach::access::Target::port)).
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

/// The portal groups that nodes have. The others are those of floating addresses, and 0.
const PORTAL_GROUPS: Range<u16> = 1..FLOATING_GROUP_MIN;

/// The portal group of a node with this identity, unless it had to take another one: the group of all its
/// portals.
///
/// Connections of one session may use any of these portals, and no other node's.
pub fn portal_group_of(identity: HostId) -> u16 {
    let [high, low, ..] = identity.0;
    PORTAL_GROUPS.start + u16::from_be_bytes([high, low]) % PORTAL_GROUPS.len() as u16
}

/// The portal group that a node gets that has had this one, where others are taken.
pub fn free_portal_group(known: u16, taken: &BTreeSet<u16>) -> Option<u16> {
    let known = known.clamp(PORTAL_GROUPS.start, PORTAL_GROUPS.end - 1);
    let mut round = (known..PORTAL_GROUPS.end).chain(PORTAL_GROUPS.start..known);
    round.find(|group| !taken.contains(group))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_alone_has_the_numbers_of_a_founder() {
        let alone = NodeNumber::FIRST;
        assert_eq!(Some(alone), NodeNumber::new(1));
        assert_eq!(alone.port_group(), 1);
        assert_eq!([1, 255, 256].map(|target| alone.port(target).0), [0x0101, 0x01ff, 0x0100]);
    }

    #[test]
    fn numbers_of_nodes_do_not_meet() {
        let member = |number| NodeNumber::new(number).unwrap();
        assert_eq!(member(2).port_group(), 2);
        assert_eq!([1, 2, 255].map(|target| member(2).port(target).0), [0x0201, 0x0202, 0x02ff]);
        assert_eq!(member(255).port(255).0, 0xffff);
        // Two targets with one port.
        assert_eq!([1, 257].map(|target| member(1).port(target).0), [0x0101, 0x0101]);
        assert_eq!((NodeNumber::new(0), NodeNumber::new(256)), (None, None));
    }

    #[test]
    fn no_portal_group_is_one_of_a_floating_address() {
        let of = |high, low| portal_group_of(HostId([high, low, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9]));
        assert_eq!([of(0, 0), of(0x12, 0x34), of(0xfe, 0xfe)], [1, 0x1235, 0xfeff]);
        assert_eq!([of(0xfe, 0xff), of(0xff, 0xff)], [1, 0x0101]);
    }

    #[test]
    fn a_portal_group_changes_only_if_it_is_taken() {
        let taken = BTreeSet::from([1, 7, 8, 0xfeff]);
        let free = |known| free_portal_group(known, &taken);
        assert_eq!([free(6), free(7), free(0xfeff)], [Some(6), Some(9), Some(2)]);
        assert_eq!([free(0), free(0xff00)], [Some(2), Some(2)], "a node may not have these");
        assert_eq!(free_portal_group(7, &PORTAL_GROUPS.collect()), None);
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
