//! Floating portal addresses: each is on one node of the cluster at a time, and moves to another one when
//! that is lost or stops.
//!
//! The cluster's record says who holds an address: a node in one of its lives. A node has the address on a
//! device of its machine only while the record has confirmed lately that this life holds it
//! ([`HOLD_LENGTH`]), and takes it off before it has the record say otherwise. Another one takes its place
//! when the holder is known to be dead, or has been silent for [`SILENCE_LENGTH`]; in the second case it
//! waits ([`PREDECESSOR_LENGTH`]) until the silent one has taken the address off by itself. What a node does
//! next is decided in [`decision`]; [`holding`] does it.
//!
//! No data depend on it: whoever has the address serves a volume by the leases of its copies, as through any
//! other portal. Why: `docs/why/addresses.md`.

mod absence;
mod decision;
mod devices;
mod here;
mod holding;
mod telling;

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use proto::iscsi::FLOATING_GROUP_MIN;
use serde::{Deserialize, Serialize};

pub use self::devices::{AddressOn, AddressWork, Devices, DevicesAnswer};
pub(crate) use self::here::{Floating, Here};
pub(crate) use self::telling::{has_holder_up, tell_address, tell_holder};

/// Where the cluster's record has floating addresses.
pub(crate) const ADDRESSES: &str = "address/";
/// Where it has who holds them.
pub(crate) const HOLDERS: &str = "address-holder/";
/// Where it has the portal group that an address was given last: of two addresses that are added at once, the
/// second one sees it.
pub(crate) const LAST_GROUP: &str = "last-address-group";

/// Addresses of a cluster: each costs its holder two short processes a second.
pub const ADDRESSES_MAX: usize = 32;

/// How long an address stays after the record has last confirmed who holds it.
pub const HOLD_LENGTH: Duration = Duration::from_secs(4);

/// How often the record is asked, and the device told.
const CONFIRM_EVERY: Duration = Duration::from_secs(1);

/// How often a holder that is heard is asked whether it has the address, and how often it must say no before
/// another node asks the record for its place: it may be that it does not reach the record. One that has just
/// got the place says no once, at most.
const ASK_HOLDER_EVERY: Duration = Duration::from_secs(2);
const LET_GO_MIN: u32 = 3;

/// How long nothing is heard of the holder before another node asks the record for its place: that cuts off
/// the sessions through it, so a network that hesitates is no reason.
const SILENCE_LENGTH: Duration = Duration::from_secs(2);

/// After so long without a word of the holder it is looked whether this node reaches the record; for so long
/// it must have, without a break, before it takes the other one for silent: one that was cut off itself has
/// heard of nobody.
const DOUBT_AFTER: Duration = Duration::from_millis(500);
const REACHED_MIN: Duration = Duration::from_millis(1_500);

/// How long whoever takes the place of a silent holder waits until that one has taken the address off, or its
/// kernel has. Kernels keep the time of addresses in whole seconds and may be most of one late.
const PREDECESSOR_LENGTH: Duration = Duration::from_millis(5_500);

const _: () = {
    assert!(
        DOUBT_AFTER.as_millis() + REACHED_MIN.as_millis() <= SILENCE_LENGTH.as_millis(),
        "a look at the record makes nobody wait"
    );
    assert!(
        HOLD_LENGTH.as_millis() + 1_500 <= PREDECESSOR_LENGTH.as_millis(),
        "a silent holder has taken the address off, however late its kernel is and though its clock goes slower by a hundredth"
    );
    assert!(
        3 * CONFIRM_EVERY.as_millis() < HOLD_LENGTH.as_millis(),
        "a record that hesitates, as in an election, does not cost the address"
    );
};

/// How long the preferred node must have been up before it asks for an address that another one has: one that
/// is started again and again does not move it each time.
const PREFERRED_AFTER: Duration = Duration::from_secs(60);

/// How long an address that nobody holds is left to the preferred node, if that is there.
const LEFT_FIRST: Duration = Duration::from_secs(3);

/// How long a node that could not put an address on leaves it to others.
const AFTER_FAILURE: Duration = Duration::from_secs(60);

/// How long a node whose place another one has taken, because it was silent to that, does not take it back
/// because that is silent, if it has not heard of it since: the network between the two alone may be cut.
const AFTER_LOSS: Duration = Duration::from_secs(60);

/// How long nobody has an address until that is told: twice as long as it takes to come to another node at
/// the longest, where the holder does not reach the record.
const ABSENT_LENGTH: Duration = Duration::from_secs(30);

/// How long a node has it until it is told that it is there again: one that tries to put it on, and cannot,
/// seems to have it for less.
const RETURNED_LENGTH: Duration = Duration::from_secs(10);

/// How long a node that stops waits until its addresses are off and the record says so.
pub(crate) const GIVE_UP_DEADLINE: Duration = Duration::from_secs(3);

/// A floating address, as the cluster's record has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AddressEntry {
    /// The address.
    pub(crate) address: IpAddr,
    /// How many bits of it are its network's.
    pub(crate) prefix: u8,
    /// The network device that gets it, on each node; `None`: the one that has an address of the same
    /// network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) device: Option<String>,
    /// The nodes that may have it; empty: all but witnesses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) nodes: Vec<u16>,
    /// The node that is to have it when it can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) prefer: Option<u16>,
    /// The portal group of its portals: the same wherever it is, since initiators refuse to log in where they
    /// find another one than they know.
    pub(crate) group: u16,
}

/// Who holds an address, as the cluster's record has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HolderEntry {
    /// The address.
    pub(crate) address: IpAddr,
    /// The node.
    pub(crate) node: u16,
    /// Its life.
    pub(crate) incarnation: u64,
    /// Since when, in seconds since 1970.
    pub(crate) since: u64,
    /// It has taken the place of one that was silent, and has not put the address on yet.
    pub(crate) unsure: bool,
    /// The preferred node in this life wants it back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) asked_by: Option<Life>,
}

/// A node in one of its lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Life {
    /// The node.
    pub(crate) node: u16,
    /// Its life.
    pub(crate) incarnation: u64,
}

/// A portal group that none of these addresses has: one that was given lately comes last, since initiators
/// may remember it.
pub(crate) fn free_group(last: Option<u16>, entries: &[AddressEntry]) -> Option<u16> {
    let after = last.and_then(|last| last.checked_add(1)).unwrap_or(FLOATING_GROUP_MIN);
    let mut round = (after..=u16::MAX).chain(FLOATING_GROUP_MIN..after);
    round.find(|group| entries.iter().all(|entry| entry.group != *group))
}

/// The key of an address.
pub(crate) fn address_key(address: IpAddr) -> String {
    format!("{ADDRESSES}{address}")
}

/// The key of who holds an address.
pub(crate) fn holder_key(address: IpAddr) -> String {
    format!("{HOLDERS}{address}")
}

/// A portal of a floating address that is on this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FloatingPortal {
    /// Where initiators connect.
    pub(crate) portal: SocketAddr,
    /// Its portal group.
    pub(crate) group: u16,
}

impl FloatingPortal {
    /// Its TargetAddress (RFC 7143 13.8).
    pub(crate) fn target_address(&self) -> String {
        format!("{},{}", self.portal, self.group)
    }
}

/// The portals of an address on a node that listens at `own`: at each port once; and those of them at which
/// it must listen besides, or try to ([`may_have`]).
pub(crate) fn portals_of(address: IpAddr, own: &[SocketAddr]) -> (Vec<SocketAddr>, Vec<SocketAddr>) {
    let mut ports: Vec<u16> = own.iter().map(SocketAddr::port).collect();
    ports.sort_unstable();
    ports.dedup();
    let covered = |port: u16| {
        let mut there = own.iter().filter(|portal| portal.port() == port).map(SocketAddr::ip);
        there.any(|ip| ip.is_unspecified() && ip.is_ipv4() == address.is_ipv4() || ip == address)
    };
    let portal = |port: &u16| SocketAddr::new(address, *port);
    let more = ports.iter().filter(|port| !covered(**port)).map(portal).collect();
    (ports.iter().map(portal).collect(), more)
}

/// Whether a node that listens at `own` may have a portal of IPv4 by one on all addresses of IPv6: it has,
/// unless the system is set otherwise (`net.ipv6.bindv6only`). Then it cannot listen there besides.
pub(crate) fn may_have(portal: SocketAddr, own: &[SocketAddr]) -> bool {
    portal.is_ipv4() && own.contains(&SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), portal.port()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_go_round() {
        let entry = |group| AddressEntry {
            address: "192.0.2.10".parse().unwrap(),
            prefix: 24,
            device: None,
            nodes: Vec::new(),
            prefer: None,
            group,
        };
        assert_eq!(free_group(None, &[]), Some(0xff00));
        assert_eq!(free_group(Some(0xff00), &[]), Some(0xff01), "it was given lately");
        assert_eq!(free_group(Some(0xffff), &[entry(0xff00)]), Some(0xff01));
        let all: Vec<AddressEntry> = (0xff00..=0xffff).map(entry).collect();
        assert_eq!(free_group(Some(0xff80), &all), None);
    }

    #[test]
    fn a_portal_on_all_addresses_has_a_new_one_too() {
        let portals = |own: &[&str], address: &str| {
            let own: Vec<SocketAddr> = own.iter().map(|text| text.parse().unwrap()).collect();
            let (all, more) = portals_of(address.parse().unwrap(), &own);
            let texts = |portals: Vec<SocketAddr>| -> Vec<String> {
                portals.iter().map(ToString::to_string).collect()
            };
            (texts(all), texts(more))
        };
        let one = || vec!["192.0.2.10:3260".to_owned()];
        assert_eq!(portals(&["0.0.0.0:3260"], "192.0.2.10"), (one(), vec![]));
        assert_eq!(portals(&["[::]:3260"], "192.0.2.10"), (one(), one()));
        assert_eq!(portals(&["[::]:3260", "0.0.0.0:3260"], "192.0.2.10"), (one(), vec![]));
        let by_six = |portal: &str| may_have(portal.parse().unwrap(), &["[::]:3260".parse().unwrap()]);
        assert_eq!(
            ["192.0.2.10:3260", "192.0.2.10:3261", "[fd00::9]:3260"].map(by_six),
            [true, false, false]
        );
        assert_eq!(portals(&["192.0.2.1:3260", "192.0.3.1:3260"], "192.0.2.10"), (one(), one()));
        let six = vec!["[fd00::9]:3260".to_owned()];
        assert_eq!(portals(&["0.0.0.0:3260"], "fd00::9"), (six.clone(), six));
        let (all, more) = portals(&["0.0.0.0:3260", "192.0.2.1:3261"], "192.0.2.10");
        assert_eq!((all.len(), more), (2, vec!["192.0.2.10:3261".to_owned()]));
    }
}
