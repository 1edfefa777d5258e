//! The floating IPs of a joining node become the cluster's.
//!
//! What must never happen: two machines have an address. The joining node has its addresses until it follows
//! the cluster's record, and keeps them if the answer of the member is lost. So an address is added together
//! with the node, and names only this node: no other one takes it. That is what it was before, when the node
//! was alone, and until its volumes have copies elsewhere no other node could serve them.
//!
//! Its portal group stays if it is free. All clusters begin with the same one, and nobody can rename it, so
//! two addresses with one group do not collide: the new one gets another group, and an event says so.

use std::collections::BTreeSet;
use std::net::IpAddr;

use cluster::Transaction;

use super::super::collision::{Collision, Counted};
use super::Joiner;
use crate::control::{ControlError, Result};
use crate::events::code::PORTAL_GROUP_CHANGED;
use crate::events::{Event, tell};
use crate::member::floating::{ADDRESSES, ADDRESSES_MAX, AddressEntry, LAST_GROUP, address_key, free_group};
use crate::member::{ClusterError, Reconciler, json};

/// The addresses of a joining node in the cluster's record.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::control::members) struct Moved {
    entries: Vec<AddressEntry>,
    /// The portal group that was given last; `None` without addresses.
    last_group: Option<u16>,
}

/// What keeps these addresses of a joining node from becoming the cluster's.
///
/// # Errors
/// The cluster has an address that this version cannot read, so its portal group is not known.
pub(super) fn check(
    reconciler: &Reconciler,
    theirs: &[AddressEntry],
    joiner: &Joiner,
) -> Result<Vec<Collision>> {
    if theirs.is_empty() {
        return Ok(Vec::new());
    }
    if let Some(key) = reconciler.unreadable::<AddressEntry>(ADDRESSES).pop() {
        return Err(ClusterError::Unreadable(key).into());
    }
    let mut nodes = reconciler.nodes();
    nodes.retain(|(node, _)| !joiner.former.contains(&node.id));
    let is_of_node = |address: IpAddr| {
        let own = nodes.iter().flat_map(|(node, _)| node.addresses.iter().chain(&node.portals));
        own.map(|own| own.ip()).any(|own| own == address)
    };
    let ours = reconciler.list::<AddressEntry>(ADDRESSES);
    Ok(collisions(theirs, &ours, joiner, is_of_node))
}

fn collisions(
    theirs: &[AddressEntry],
    ours: &[AddressEntry],
    joiner: &Joiner,
    is_of_node: impl Fn(IpAddr) -> bool,
) -> Vec<Collision> {
    let kept = ours.iter().filter(|entry| !is_left_over(entry, joiner));
    let taken: BTreeSet<IpAddr> = kept.map(|entry| entry.address).collect();
    let collision = |entry: &AddressEntry| {
        let address = entry.address;
        match joiner.witness {
            true => Some(Collision::Witness { address }),
            false if taken.contains(&address) || is_of_node(address) => {
                Some(Collision::FloatingIp { address })
            }
            false => None,
        }
    };
    let mut all: Vec<Collision> = theirs.iter().filter_map(collision).collect();
    let both: BTreeSet<IpAddr> = ours.iter().chain(theirs).map(|entry| entry.address).collect();
    if both.len() > ADDRESSES_MAX {
        all.push(Collision::TooMany { what: Counted::FloatingIps, most: ADDRESSES_MAX });
    }
    all
}

/// Whether an attempt to join that ended halfway has left the address: only this node may hold it, under a
/// number that it does not use.
fn is_left_over(entry: &AddressEntry, joiner: &Joiner) -> bool {
    !entry.nodes.is_empty() && entry.nodes.iter().all(|node| joiner.former.contains(node))
}

/// These addresses of a joining node as the cluster gets them, now that the node has a number there.
///
/// # Errors
/// Somebody has changed the cluster's addresses since they were checked, or one cannot be read.
pub(in crate::control::members) fn moved(
    reconciler: &Reconciler,
    theirs: &[AddressEntry],
    joiner: &Joiner,
    number: u16,
) -> Result<Moved> {
    if !check(reconciler, theirs, joiner)?.is_empty() {
        return Err(ClusterError::Conflict("a floating IP".into()).into());
    }
    let ours = reconciler.list::<AddressEntry>(ADDRESSES);
    let last = reconciler.get::<u16>(LAST_GROUP).map(|(group, _)| group);
    let moved = with_groups(theirs, &ours, last, number);
    moved.ok_or(ControlError::Internal("fewer floating IPs than portal groups have used them up"))
}

/// `None`: there are more addresses than portal groups.
fn with_groups(
    theirs: &[AddressEntry],
    ours: &[AddressEntry],
    mut last: Option<u16>,
    number: u16,
) -> Option<Moved> {
    let is_new = |entry: &&AddressEntry| theirs.iter().any(|own| own.address == entry.address);
    let others: Vec<AddressEntry> = ours.iter().filter(|entry| !is_new(entry)).cloned().collect();
    // No address gets the group of one that keeps it.
    let mut known: Vec<AddressEntry> = others.iter().chain(theirs).cloned().collect();
    let mut entries = Vec::new();
    for entry in theirs {
        let mut group = entry.group;
        if others.iter().any(|other| other.group == group) {
            group = free_group(last, &known)?;
            last = Some(group);
        }
        let entry = AddressEntry { nodes: vec![number], prefer: None, group, ..entry.clone() };
        known.push(entry.clone());
        entries.push(entry);
    }
    let last_group = last.or_else(|| entries.iter().map(|entry| entry.group).max());
    Some(Moved { entries, last_group })
}

impl Moved {
    /// Adds the addresses to the transaction that adds their node. It fails if another address is added at
    /// the same time, which could get the same portal group.
    pub(in crate::control::members) fn add_to(
        &self,
        reconciler: &Reconciler,
        transaction: Transaction,
    ) -> Transaction {
        let Some(last_group) = self.last_group.filter(|_| !self.entries.is_empty()) else {
            return transaction;
        };
        let transaction = transaction
            .expect(LAST_GROUP, reconciler.revision_of(LAST_GROUP))
            .put(LAST_GROUP, json(&last_group));
        self.entries.iter().fold(transaction, |transaction, entry| {
            let key = address_key(entry.address);
            transaction.expect(&key, reconciler.revision_of(&key)).put(&key, json(entry))
        })
    }

    /// Reports the addresses that have another portal group than before.
    pub(in crate::control::members) fn tell_groups(&self, before: &[AddressEntry]) {
        for (now, before) in self.entries.iter().zip(before).filter(|(now, before)| now.group != before.group)
        {
            let AddressEntry { address, group, .. } = now;
            let text = format!(
                "floating IP {address} now has portal group {group}, because another one of the cluster has {}: hosts with open-iscsi cannot log in to it again until they have repeated discovery",
                before.group
            );
            tell(Event::new(PORTAL_GROUP_CHANGED, address.to_string(), text));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(last_byte: u8, group: u16, nodes: &[u16]) -> AddressEntry {
        AddressEntry {
            address: [192, 0, 2, last_byte].into(),
            prefix: 24,
            device: Some("eth1".into()),
            nodes: nodes.to_vec(),
            prefer: nodes.first().copied(),
            group,
        }
    }

    fn joiner(witness: bool) -> Joiner {
        Joiner { witness, former: [2, 3].into() }
    }

    #[test]
    fn an_address_stays_on_its_node_and_keeps_its_group_if_that_is_free() {
        let ours = [entry(1, 0xff00, &[]), entry(2, 0xff02, &[1])];
        let theirs = [entry(10, 0xff00, &[]), entry(11, 0xff01, &[1]), entry(12, 0xff02, &[1])];
        let moved = with_groups(&theirs, &ours, Some(0xff02), 4).unwrap();
        let groups: Vec<u16> = moved.entries.iter().map(|entry| entry.group).collect();
        assert_eq!(groups, [0xff03, 0xff01, 0xff04], "recently given ones come last");
        assert_eq!(moved.last_group, Some(0xff04));
        for (moved, known) in moved.entries.iter().zip(&theirs) {
            assert_eq!((&*moved.nodes, moved.prefer), (&[4][..], None));
            assert_eq!((moved.address, &moved.device), (known.address, &known.device));
        }
        let first = with_groups(&theirs, &[], None, 4).unwrap();
        assert_eq!(first.last_group, Some(0xff02), "the next one that is added gets another group");
        let groups: Vec<u16> = first.entries.iter().map(|entry| entry.group).collect();
        assert_eq!(groups, [0xff00, 0xff01, 0xff02]);
        let none = with_groups(&[], &ours, None, 4).unwrap();
        assert_eq!(none, Moved { entries: Vec::new(), last_group: None });
    }

    #[test]
    fn an_address_that_the_cluster_uses_collides() {
        let theirs = [entry(1, 0xff00, &[]), entry(2, 0xff01, &[])];
        let found = |ours: &[AddressEntry]| collisions(&theirs, ours, &joiner(false), |_| false);
        let first = Collision::FloatingIp { address: theirs[0].address };
        assert_eq!(found(&[]), []);
        assert_eq!(found(&[entry(1, 0xff00, &[])]), std::slice::from_ref(&first));
        assert_eq!(found(&[entry(1, 0xff00, &[1, 2])]), std::slice::from_ref(&first));
        assert_eq!(found(&[entry(1, 0xff00, &[3])]), [], "an earlier attempt to join has left it");
        let is_of_node = |address| address == theirs[0].address;
        assert_eq!(collisions(&theirs, &[], &joiner(false), is_of_node), [first]);
        let witness = collisions(&theirs, &[], &joiner(true), |_| false);
        let addresses = theirs.each_ref().map(|entry| entry.address);
        assert_eq!(witness, addresses.map(|address| Collision::Witness { address }));
    }

    #[test]
    fn both_sides_together_keep_to_the_limit() {
        let of = |from: u8| (from..from + 20).map(|byte| entry(byte, 0xff00, &[3])).collect::<Vec<_>>();
        let found = |ours: u8, theirs: u8| collisions(&of(theirs), &of(ours), &joiner(false), |_| false);
        assert_eq!(found(1, 13), []);
        let most = ADDRESSES_MAX;
        assert_eq!(found(1, 14), [Collision::TooMany { what: Counted::FloatingIps, most }]);
    }
}
