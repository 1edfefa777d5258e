//! Floating portal addresses: each is on one node of the cluster at a time, and moves to another node when
//! that one is lost or stops.
//!
//! The cluster's record says which node, in which of its lives, holds an address. A node keeps the address on
//! a device only while the record has recently confirmed that this life holds it ([`HOLD_LENGTH`]), and
//! removes it before it lets the record say otherwise. Another node takes over when the holder is known to be
//! dead, or has been silent for [`SILENCE_LENGTH`]. In the second case it waits ([`PREDECESSOR_LENGTH`])
//! until the silent holder has removed the address on its own. [`watch`] keeps what a node learns over time,
//! and [`decision`] decides its next step by that; [`holding`] asks and executes.
//!
//! No data depends on this: the node with the address serves a volume by the leases of its copies, as through
//! any other portal. Why: `docs/why/addresses.md`.

mod absence;
mod decision;
mod devices;
mod emit_events;
mod here;
mod holding;
mod watch;

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use proto::iscsi::FLOATING_GROUP_MIN;
use serde::{Deserialize, Serialize};

pub use self::devices::{AddressOn, AddressWork, DeviceTrouble, Devices, DevicesAnswer, IpFault};
pub(crate) use self::emit_events::{has_holder_up, tell_address, tell_holder};
pub(crate) use self::here::{Floating, Here};

/// The prefix of floating addresses in the cluster's record.
pub(crate) const ADDRESSES: &str = "address/";
/// The prefix of their holders there.
pub(crate) const HOLDERS: &str = "address-holder/";
/// The key of the portal group that was assigned last.
///
/// If two addresses are added at once, the second one sees the first one's group.
pub(crate) const LAST_GROUP: &str = "last-address-group";

/// The most addresses of a cluster: each costs its holder two short processes per second.
pub const ADDRESSES_MAX: usize = 32;

/// How long an address stays on a device after the record has last confirmed its holder.
pub const HOLD_LENGTH: Duration = Duration::from_secs(4);

/// How often the record is asked, and the lifetime on the device renewed.
const CONFIRM_EVERY: Duration = Duration::from_secs(1);

/// How often to ask a reachable holder whether it has the address, and how often in a row it must say no
/// before another node claims its place: it may not reach the record. A node that has just become the holder
/// says no at most once.
const ASK_HOLDER_EVERY: Duration = Duration::from_secs(2);
const LET_GO_MIN: u32 = 3;

/// How long the holder must be silent before another node claims its place. That cuts off the sessions
/// through the holder, so a short delay in the network is no reason.
const SILENCE_LENGTH: Duration = Duration::from_secs(2);

/// After which silence of the holder a node starts to check whether it reaches the record itself.
///
/// It must have reached the record for [`REACHED_MIN`], without a break, before it considers the holder
/// silent: a node that is cut off hears from no other node.
const DOUBT_AFTER: Duration = Duration::from_millis(500);
const REACHED_MIN: Duration = Duration::from_millis(1_500);

/// How long a node that takes over from a silent holder waits until that node or its kernel has removed the
/// address. Kernels count the lifetime of addresses in whole seconds, and may be almost one second late.
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

/// How long the preferred node must have been up before it asks the holder for an address. So a node that
/// restarts again and again does not move the address each time.
const PREFERRED_AFTER: Duration = Duration::from_secs(60);

/// How long an address without a holder is left to the preferred node, if that is up.
const LEFT_FIRST: Duration = Duration::from_secs(3);

/// How long a node that could not set an address leaves it to others.
const AFTER_FAILURE: Duration = Duration::from_secs(60);

/// How long a node that has lost the address because of its own silence does not claim it because of the new
/// holder's silence, unless it has heard that node since. Possibly only the network between the two is cut.
const AFTER_LOSS: Duration = Duration::from_secs(60);

/// How long no node has had an address before that is reported: twice as long as the longest move to another
/// node takes, where the holder does not reach the record.
const ABSENT_LENGTH: Duration = Duration::from_secs(30);

/// How long a node must have an address before its return is reported. A node that tries to set it and cannot
/// seems to have it for less.
const RETURNED_LENGTH: Duration = Duration::from_secs(10);

/// How long a node that stops waits until its addresses are removed and the record says so.
pub(crate) const GIVE_UP_DEADLINE: Duration = Duration::from_secs(3);

/// A floating address in the cluster's record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AddressEntry {
    /// The address.
    pub(crate) address: IpAddr,
    /// The length of its network prefix, in bits.
    pub(crate) prefix: u8,
    /// The network device for it, on each node; `None`: the device that has an address of the same network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) device: Option<String>,
    /// The nodes that may hold it; empty: all but witnesses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) nodes: Vec<u16>,
    /// The preferred node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) prefer: Option<u16>,
    /// The portal group of its portals. It is the same on every node, since initiators refuse to log in if it
    /// differs from the one that they know.
    pub(crate) group: u16,
}

/// The holder of an address in the cluster's record.
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
    /// The holder has taken over from a silent node, and has not set the address yet.
    pub(crate) unsure: bool,
    /// The life of the preferred node that asks for the address.
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

/// A portal group that none of these addresses has.
///
/// Recently assigned groups come last, since initiators may remember them.
pub(crate) fn free_group(last: Option<u16>, entries: &[AddressEntry]) -> Option<u16> {
    let after = last.and_then(|last| last.checked_add(1)).unwrap_or(FLOATING_GROUP_MIN);
    let mut round = (after..=u16::MAX).chain(FLOATING_GROUP_MIN..after);
    round.find(|group| entries.iter().all(|entry| entry.group != *group))
}

/// The key of an address.
pub(crate) fn address_key(address: IpAddr) -> String {
    format!("{ADDRESSES}{address}")
}

/// The key of an address's holder.
pub(crate) fn holder_key(address: IpAddr) -> String {
    format!("{HOLDERS}{address}")
}

/// The portals of an address on a node that listens at `own`, one for each port; and those of them that need
/// a listener of their own, or may need one ([`may_have`]).
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

/// Whether a node that listens at `own` may already accept connections at this IPv4 portal, through a portal
/// on all IPv6 addresses.
///
/// It does, unless the system is configured otherwise (`net.ipv6.bindv6only`). If it does, it cannot listen
/// at the IPv4 portal as well.
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
