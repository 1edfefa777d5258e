//! Which nodes can reach each other, and how fast.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::ops::Range;
use std::time::Duration;

use crate::sim::node::NodeId;

/// How the network behaves.
#[derive(Clone, Debug)]
pub struct NetProfile {
    /// The time that a packet takes from one side to the other.
    pub delay: Range<Duration>,
    /// One packet in this many is lost and sent again; 0: none.
    pub spike_one_in: u64,
    /// The additional time of a packet that was sent again.
    pub spike: Range<Duration>,
    /// Bytes per second of one connection in one direction; 0: no limit.
    pub bandwidth: u64,
    /// Bytes that a connection accepts before they are received, drawn for each direction of a connection.
    pub window: Range<u64>,
    /// One packet in this many finds its connection broken; 0: none.
    pub break_one_in: u64,
    /// How long sent bytes may stay unacknowledged before the connection gives up.
    pub user_timeout: Duration,
    /// The longest time until an idle connection notices that the other side is gone.
    pub keep_alive: Duration,
}

impl Default for NetProfile {
    /// A local network between machines with Linux's settings.
    ///
    /// A tcp_retries2 of 15 gives up after 924 s; keep-alive asks after two hours, and then 9 times at
    /// intervals of 75 s. Code that needs to know sooner must ask the other side itself.
    fn default() -> NetProfile {
        let us = Duration::from_micros;
        NetProfile {
            delay: us(20)..us(120),
            spike_one_in: 2_000,
            spike: us(5_000)..us(300_000),
            bandwidth: 1_250_000_000,
            window: 16 << 10..1 << 20,
            break_one_in: 0,
            user_timeout: Duration::from_secs(924),
            keep_alive: Duration::from_secs(7200 + 9 * 75),
        }
    }
}

/// A place on the network: an address, and the node that has it, if any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) node: Option<NodeId>,
    pub(super) address: IpAddr,
}

/// The machines, their addresses, and the cuts between them.
#[derive(Default)]
pub(super) struct Links {
    addresses: BTreeMap<IpAddr, NodeId>,
    off: BTreeSet<NodeId>,
    cuts: BTreeSet<(NodeId, NodeId)>,
    address_cuts: BTreeSet<(IpAddr, IpAddr)>,
}

impl Links {
    pub(super) fn add_address(&mut self, node: NodeId, address: IpAddr) {
        let previous = self.addresses.insert(address, node);
        assert!(previous.is_none(), "{address} is taken");
    }

    pub(super) fn has_address(&self, node: NodeId, address: IpAddr) -> bool {
        address.is_loopback() || address.is_unspecified() || self.addresses.get(&address) == Some(&node)
    }

    pub(super) fn place(&self, node: NodeId, address: IpAddr) -> Place {
        let node = if address.is_loopback() { Some(node) } else { self.addresses.get(&address).copied() };
        Place { node, address }
    }

    /// The address that `node` uses to reach `to`: one in the same network if it has one.
    pub(super) fn source(&self, node: NodeId, to: IpAddr) -> Option<IpAddr> {
        if to.is_loopback() || self.addresses.get(&to) == Some(&node) {
            return Some(to);
        }
        let mine = || {
            let own = self.addresses.iter().filter(|(_, owner)| **owner == node);
            own.map(|(address, _)| *address).filter(|address| address.is_ipv4() == to.is_ipv4())
        };
        mine().find(|address| same_network(*address, to)).or_else(|| mine().next())
    }

    pub(super) fn set_power(&mut self, node: NodeId, on: bool) {
        if on {
            self.off.remove(&node);
        } else {
            self.off.insert(node);
        }
    }

    pub(super) fn set_cut(&mut self, from: NodeId, to: NodeId, cut: bool) {
        if cut {
            self.cuts.insert((from, to));
        } else {
            self.cuts.remove(&(from, to));
        }
    }

    pub(super) fn set_address_cut(&mut self, from: IpAddr, to: IpAddr, cut: bool) {
        if cut {
            self.address_cuts.insert((from, to));
        } else {
            self.address_cuts.remove(&(from, to));
        }
    }

    pub(super) fn heal_all(&mut self) {
        self.cuts.clear();
        self.address_cuts.clear();
    }

    /// Whether packets from `from` cannot reach `to` now.
    pub(super) fn is_blocked(&self, from: Place, to: Place) -> bool {
        let (Some(from_node), Some(to_node)) = (from.node, to.node) else { return true };
        self.off.contains(&to_node)
            || from_node != to_node
                && (self.cuts.contains(&(from_node, to_node))
                    || self.address_cuts.contains(&(from.address, to.address)))
    }
}

/// Whether two addresses share a /24 or a /64.
fn same_network(a: IpAddr, b: IpAddr) -> bool {
    match (a, b) {
        (IpAddr::V4(a), IpAddr::V4(b)) => a.octets()[..3] == b.octets()[..3],
        (IpAddr::V6(a), IpAddr::V6(b)) => a.segments()[..4] == b.segments()[..4],
        _ => false,
    }
}
