//! The events about floating addresses.

use std::net::IpAddr;

use replica::NodeId;

use super::{ABSENT_LENGTH, AddressEntry, HolderEntry};
use crate::copies::NodeEntry;
use crate::events::Event;
use crate::events::code::{
    FLOATING_IP_ADDED, FLOATING_IP_LOST, FLOATING_IP_MOVED, FLOATING_IP_REMOVED, FLOATING_IP_RESTORED,
};
use crate::member::Reconciler;

/// Reports that an address was added or removed.
pub(crate) fn tell_address(
    (before, now): (Option<AddressEntry>, Option<AddressEntry>),
    tell: &dyn Fn(Event),
) {
    let (code, address, what) = match (before, now) {
        (None, Some(now)) => (FLOATING_IP_ADDED, now.address, "added"),
        (Some(before), None) => (FLOATING_IP_REMOVED, before.address, "removed"),
        _ => return,
    };
    tell(Event::new(code, address.to_string(), format!("floating IP {address} {what}")));
}

/// Reports that another node, or another life of a node, holds an address.
pub(crate) fn tell_holder(
    (before, now): (Option<HolderEntry>, Option<HolderEntry>),
    named: &dyn Fn(u16) -> String,
    tell: &dyn Fn(Event),
) {
    let life = |holder: &HolderEntry| (holder.node, holder.incarnation);
    let Some(now) = now.filter(|now| before.as_ref().map(life) != Some(life(now))) else { return };
    let (address, name) = (now.address, named(now.node));
    let (cause, text) = match before {
        Some(before) if now.unsure => (
            "silent",
            format!(
                "{name} is about to take over floating IP {address}: {} is down (heartbeat timeout)",
                named(before.node)
            ),
        ),
        Some(before) if before.node != now.node => {
            ("moved", format!("floating IP {address} moved to {name} from {}", named(before.node)))
        }
        _ => ("taken", format!("{name} holds floating IP {address}")),
    };
    tell(Event::new(FLOATING_IP_MOVED, address.to_string(), text).because(cause).of_node(now.node));
}

/// The event that no node has had an address for long. All nodes use the same words.
pub(super) fn absence_event(reconciler: &Reconciler, entry: &AddressEntry) -> Event {
    let (cause, why) = why_nobody(reconciler, entry);
    let (address, seconds) = (entry.address, ABSENT_LENGTH.as_secs());
    let text = format!("no node has held floating IP {address} for {seconds} seconds: {why}");
    Event::new(FLOATING_IP_LOST, address.to_string(), text).because(cause)
}

/// The cause, for programs and in words.
fn why_nobody(reconciler: &Reconciler, entry: &AddressEntry) -> (&'static str, &'static str) {
    match has_holder_up(reconciler, entry) {
        true => ("failed", "nodes that may hold it are up, but none has it on a network device"),
        false => ("no_node", "no node that may hold it is up and out of maintenance"),
    }
}

/// Whether a node that may hold an address is up.
pub(crate) fn has_holder_up(reconciler: &Reconciler, entry: &AddressEntry) -> bool {
    let may = |node: &NodeEntry| {
        let is_named = entry.nodes.is_empty() || entry.nodes.contains(&node.id);
        is_named && !node.witness && !reconciler.is_in_maintenance(NodeId(node.id))
    };
    reconciler.nodes().iter().any(|(node, is_heard)| *is_heard && may(node))
}

/// The event that a node has the address again.
pub(super) fn return_event(address: IpAddr, name: &str) -> Event {
    let text = format!("floating IP {address} is back: {name} holds it");
    Event::new(FLOATING_IP_RESTORED, address.to_string(), text)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn events_name_the_holder_and_the_reason() {
        let holder = |node, incarnation, unsure| HolderEntry {
            address: "192.0.2.10".parse().unwrap(),
            node,
            incarnation,
            since: 0,
            unsure,
            asked_by: None,
        };
        let told = |before, now| {
            let told = RefCell::new(Vec::new());
            let tell = |event: Event| told.borrow_mut().push((event.cause, event.node, event.text));
            tell_holder((before, now), &|node| format!("san{node}"), &tell);
            told.into_inner().pop()
        };
        let taken = told(None, Some(holder(1, 4, false))).unwrap();
        assert_eq!(taken, (Some("taken"), Some(1), "san1 holds floating IP 192.0.2.10".into()));
        let moved = told(Some(holder(1, 4, false)), Some(holder(2, 7, false))).unwrap();
        assert_eq!((moved.0, moved.1), (Some("moved"), Some(2)));
        let silent = told(Some(holder(1, 4, false)), Some(holder(2, 7, true))).unwrap();
        assert_eq!((silent.0, silent.1), (Some("silent"), Some(2)));
        assert_eq!(told(Some(holder(2, 7, true)), Some(holder(2, 7, false))), None, "that is no news");
        assert_eq!(told(Some(holder(2, 7, false)), None), None);
    }
}
