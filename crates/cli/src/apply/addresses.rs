//! Floating addresses: which to add, which conflict, and which the file does not name.

use std::collections::BTreeSet;

use api::{AddressState, FloatingAddress, FloatingAddressAdd};
use node::access::AddressRange;

use super::Present;
use super::declared::AddressDeclared;
use super::step::{Step, numbers};

#[derive(Debug, Default)]
pub(super) struct Compared {
    pub(super) added: Vec<Step>,
    /// Steps that remove the addresses that the file does not name.
    pub(super) surplus: Vec<Step>,
    /// Differences that cannot be changed.
    pub(super) conflicts: Vec<String>,
}

/// Compares the file's addresses with the present ones.
pub(super) fn compare(declared: &[AddressDeclared], present: &Present) -> Compared {
    let mut compared = Compared::default();
    let mut named = BTreeSet::new();
    for address in declared {
        let wanted = match address.parsed() {
            Ok(wanted) => wanted,
            Err(reason) => {
                compared.conflicts.push(reason);
                continue;
            }
        };
        named.insert(wanted.address());
        let is_it =
            |other: &&FloatingAddress| parsed(other).is_some_and(|range| range.address() == wanted.address());
        match present.addresses.iter().find(is_it) {
            Some(other) if is_unreadable(other) => compared.conflicts.push(format!(
                "address {}: not readable by this node, because a newer version of ursa wrote it: use a node with that version (--api)",
                other.address
            )),
            Some(other) => compared.conflicts.extend(differences(address, wanted, other)),
            None => compared.add(address, present),
        }
    }
    for other in &present.addresses {
        // An address that this node cannot read stays.
        let readable = parsed(other).filter(|_| !is_unreadable(other));
        if let Some(range) = readable.filter(|range| !named.contains(&range.address())) {
            let step =
                Step::RemoveAddress { address: range.address().to_string(), shown: other.address.clone() };
            compared.surplus.push(step);
        }
    }
    compared
}

impl Compared {
    fn add(&mut self, new: &AddressDeclared, present: &Present) {
        let AddressDeclared { address, device, nodes, prefer } = new.clone();
        let is_unknown = |id: &u16| present.nodes.iter().all(|node| node.id != *id);
        let unknown: Vec<u16> = nodes.iter().chain(&prefer).copied().filter(is_unknown).collect();
        if !unknown.is_empty() {
            self.conflicts.push(format!("address {address}: the cluster has no node {}", numbers(&unknown)));
            return;
        }
        self.added.push(Step::AddAddress(FloatingAddressAdd { address, device, nodes, prefer }));
    }
}

/// The differences of an address, none of which can be changed. The order of nodes does not matter.
fn differences(shall: &AddressDeclared, wanted: AddressRange, is: &FloatingAddress) -> Vec<String> {
    let length = |range: Option<AddressRange>| range.map(|range| range.prefix().to_string());
    let nodes = |nodes: &[u16]| {
        let nodes: Vec<u16> = nodes.iter().copied().collect::<BTreeSet<u16>>().into_iter().collect();
        (!nodes.is_empty()).then(|| numbers(&nodes))
    };
    let preferred = |node: Option<u16>| node.map(|node| node.to_string());
    let what = [
        ("prefix length", "none", length(parsed(is)), length(Some(wanted))),
        ("device", "that of its network", is.device.clone(), shall.device.clone()),
        ("list of nodes", "all", nodes(&is.nodes), nodes(&shall.nodes)),
        ("preferred node", "none", preferred(is.prefer), preferred(shall.prefer)),
    ];
    let differs = what.into_iter().filter(|(_, _, is, shall)| is != shall);
    differs
        .map(|(what, without, before, after)| {
            let [before, after] = [&before, &after].map(|value| value.as_deref().unwrap_or(without));
            format!(
                "address {}: its {what} is {before}, and cannot be changed to {after}: remove the address and add it again; hosts must then discover it again",
                is.address
            )
        })
        .collect()
}

/// Whether the node can only read the address itself, because a later version has written the rest.
pub(super) fn is_unreadable(address: &FloatingAddress) -> bool {
    address.state == AddressState::Unreadable && address.portal_group.is_none()
}

fn parsed(address: &FloatingAddress) -> Option<AddressRange> {
    address.address.parse().ok()
}
