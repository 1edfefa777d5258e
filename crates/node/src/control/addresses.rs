//! Floating portal addresses, as administrators declare them. [`crate::member::floating`] makes nodes hold
//! them.

use std::net::{IpAddr, SocketAddr};

use replica::NodeId;
use serde::{Deserialize, Serialize};

use super::{Control, ControlError, Fault, FaultKind, Result};
use crate::copies::{NodeEntry, node_key};
use crate::member::floating::{
    ADDRESSES, ADDRESSES_MAX, AddressEntry, AddressOn, DeviceTrouble, Here, HolderEntry, LAST_GROUP,
    address_key, free_group, has_holder_up, holder_key,
};
use crate::member::{Reconciler, json};

/// The longest name of a network device: Linux's IFNAMSIZ without the zero.
const DEVICE_BYTES_MAX: usize = 15;

/// A floating address to be declared.
#[derive(Clone, Debug)]
pub struct AddressSpec {
    /// The address.
    pub address: IpAddr,
    /// The length of its network prefix, in bits.
    pub prefix: u8,
    /// The network device that gets it, on each node; `None` for the one that has an address of the same
    /// network.
    pub device: Option<String>,
    /// The nodes that may hold it; empty for all except witnesses.
    pub nodes: Vec<u16>,
    /// The node that holds it whenever it can.
    pub prefer: Option<u16>,
}

/// A floating address as administrators see it.
#[derive(Clone, Debug)]
pub struct AddressStatus {
    /// Its declaration.
    pub spec: AddressSpec,
    /// The portal group of its portals.
    pub group: u16,
    /// The node that holds it, and since when, in seconds since 1970.
    pub holder: Option<(u16, u64)>,
    /// It reaches the holder in a moment: the previous holder does not respond.
    pub waits: bool,
    /// A later version wrote the holder's entry, and this one cannot read it.
    pub is_unreadable: bool,
}

/// The state of an address on a node itself, whatever the record says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddressHere {
    /// The address.
    pub address: IpAddr,
    /// It is on a device there, and hosts can reach it.
    pub is_reached: bool,
    /// Why the node's last attempt to add, remove or release it failed.
    pub trouble: Option<DeviceTrouble>,
}

impl Control {
    /// All floating addresses.
    ///
    /// # Errors
    /// [`ControlError::ClusterFailed`].
    pub fn addresses(&self) -> Result<Vec<AddressStatus>> {
        let reconciler = self.reconciler()?;
        let entries = reconciler.list::<AddressEntry>(ADDRESSES).into_iter();
        let mut all: Vec<AddressStatus> =
            entries.map(|entry| self.address_status(&reconciler, entry)).collect();
        all.sort_by_key(|status| status.spec.address);
        Ok(all)
    }

    /// One floating address.
    ///
    /// # Errors
    /// [`ControlError::ClusterFailed`], [`ControlError::NotFound`], [`ControlError::EntryUnreadable`].
    pub fn address(&self, address: IpAddr) -> Result<AddressStatus> {
        let reconciler = self.reconciler()?;
        let key = address_key(address);
        match (reconciler.get::<AddressEntry>(&key), reconciler.revision_of(&key)) {
            (Some((entry, _)), _) => Ok(self.address_status(&reconciler, entry)),
            (None, Some(_)) => Err(unreadable(address.to_string())),
            (None, None) => Err(ControlError::not_found("address", &address.to_string())),
        }
    }

    /// The addresses that this version cannot read, because a later one wrote them. This node does not hold
    /// or change them.
    ///
    /// # Errors
    /// [`ControlError::ClusterFailed`].
    pub fn unreadable_addresses(&self) -> Result<Vec<String>> {
        Ok(unreadable_in(&*self.reconciler()?))
    }

    /// Declares a floating address; one of the nodes takes it within moments.
    ///
    /// # Errors
    /// The address is invalid or taken, the device or the nodes are invalid, or there are already
    /// [`ADDRESSES_MAX`]; [`ControlError::EntryUnreadable`] if there is an address whose portal group is not
    /// known.
    pub async fn add_address(&self, spec: AddressSpec) -> Result<AddressStatus> {
        let reconciler = self.reconciler()?;
        check_address(&spec)?;
        check_nodes(&reconciler, &spec)?;
        let AddressSpec { address, prefix, device, nodes, prefer } = spec;
        let key = address_key(address);
        if reconciler.revision_of(&key).is_some() {
            return Err(ControlError::Exists { kind: "address", name: address.to_string() });
        }
        if let Some(name) = unreadable_in(&reconciler).pop() {
            return Err(unreadable(name));
        }
        let entries = reconciler.list::<AddressEntry>(ADDRESSES);
        if entries.len() >= ADDRESSES_MAX {
            let reason = "limit reached: at most 32 floating IPs; remove unused ones";
            return Err(ControlError::Invalid { field: "address", reason });
        }
        let last = reconciler.get::<u16>(LAST_GROUP);
        let group = free_group(last.as_ref().map(|(group, _)| *group), &entries);
        let group =
            group.ok_or(ControlError::Internal("fewer floating IPs than portal groups have used them up"))?;
        let entry = AddressEntry { address, prefix, device, nodes, prefer, group };
        let transaction = Reconciler::transaction()
            .expect(&key, None)
            .expect(LAST_GROUP, last.map(|(_, revision)| revision))
            .put(&key, json(&entry))
            .put(LAST_GROUP, json(&group));
        reconciler.commit(transaction).await?;
        Ok(self.address_status(&reconciler, entry))
    }

    /// Removes a floating address from the node that holds it. Sessions through it end.
    ///
    /// # Errors
    /// [`ControlError::ClusterFailed`], [`ControlError::NotFound`], [`ControlError::EntryUnreadable`].
    pub async fn remove_address(&self, address: IpAddr) -> Result<()> {
        let reconciler = self.reconciler()?;
        let key = address_key(address);
        let revision = reconciler.revision_of(&key);
        self.address(address)?;
        // The holder updates its own entry when it has removed the address.
        Ok(reconciler.commit(Reconciler::transaction().expect(&key, revision).delete(&key)).await?)
    }

    /// The state of the addresses on this node itself.
    pub fn addresses_here(&self) -> Vec<AddressHere> {
        let shown = |(address, here): (IpAddr, Here)| AddressHere {
            address,
            is_reached: here.is_reached,
            trouble: here.trouble,
        };
        self.floating().all_here().into_iter().map(shown).collect()
    }

    /// The floating addresses of the cluster that this node is in.
    pub(super) fn own_addresses(&self) -> Vec<AddressEntry> {
        self.shared_entries(ADDRESSES)
    }

    /// An address that was removed from the cluster, and that this machine may still have.
    pub(super) fn address_going(&self) -> Option<IpAddr> {
        let declared = self.own_addresses();
        let mut here = self.floating().all_here().into_keys();
        here.find(|address| declared.iter().all(|entry| entry.address != *address))
    }

    /// The addresses that no node holds.
    pub(super) fn lost_addresses(&self) -> Vec<Fault> {
        let Ok(reconciler) = self.reconciler() else { return Vec::new() };
        let now = rt::now();
        let fault = |(address, here): (IpAddr, Here)| {
            let since = here.lost_since?;
            let (entry, _) = reconciler.get::<AddressEntry>(&address_key(address))?;
            let holders_up = has_holder_up(&reconciler, &entry);
            Some(FaultKind::FloatingIpLost { address, holders_up }.lasting(now.since(since)))
        };
        self.floating().all_here().into_iter().filter_map(fault).collect()
    }

    /// The addresses that are on this machine now, and their devices: the watcher removes them when this
    /// process is dead.
    pub(super) fn addresses_on(&self) -> Vec<AddressOn> {
        let Ok(reconciler) = self.reconciler() else { return Vec::new() };
        let on = |address: IpAddr| {
            let (entry, _) = reconciler.get::<AddressEntry>(&address_key(address))?;
            Some(AddressOn { address, prefix: entry.prefix, device: entry.device })
        };
        self.floating().all_on().into_iter().filter_map(on).collect()
    }

    fn address_status(&self, reconciler: &Reconciler, entry: AddressEntry) -> AddressStatus {
        let AddressEntry { address, prefix, device, nodes, prefer, group } = entry;
        let key = holder_key(address);
        let holder = reconciler.get::<HolderEntry>(&key).map(|(holder, _)| holder);
        AddressStatus {
            spec: AddressSpec { address, prefix, device, nodes, prefer },
            group,
            holder: holder.as_ref().map(|holder| (holder.node, holder.since)),
            is_unreadable: holder.is_none() && reconciler.revision_of(&key).is_some(),
            waits: holder.is_some_and(|holder| holder.unsure),
        }
    }
}

/// The addresses that this version cannot read.
fn unreadable_in(reconciler: &Reconciler) -> Vec<String> {
    let keys = reconciler.unreadable::<AddressEntry>(ADDRESSES).into_iter();
    keys.filter_map(|key| key.strip_prefix(ADDRESSES).map(str::to_owned)).collect()
}

fn unreadable(name: String) -> ControlError {
    ControlError::EntryUnreadable { kind: "address", name }
}

/// Checks whether an address, prefix and device are valid.
fn check_address(spec: &AddressSpec) -> Result<()> {
    let AddressSpec { address, prefix, device, .. } = spec;
    let invalid = |field, reason| Err(ControlError::Invalid { field, reason });
    let is_mapped = matches!(address, IpAddr::V6(six) if six.to_ipv4_mapped().is_some());
    if address.is_unspecified() || address.is_multicast() || is_mapped {
        return invalid("address", "write a host address with its prefix length, such as 192.0.2.10/24");
    }
    if matches!(address, IpAddr::V6(six) if six.is_unicast_link_local()) {
        return invalid(
            "address",
            "a link-local address is valid on one link only: choose an address of your network",
        );
    }
    let bits = if address.is_ipv4() { 32 } else { 128 };
    if !(1..=bits).contains(prefix) {
        return invalid("address", "the prefix length is 1 to 32, for IPv6 1 to 128");
    }
    if *prefix == bits && device.is_none() {
        // No other address of the machine can be in that network, so no device can be derived from it.
        return invalid(
            "address",
            "add the prefix length, as in 192.0.2.10/24, or name the device (--device)",
        );
    }
    let is_device = |name: &String| {
        (1..=DEVICE_BYTES_MAX).contains(&name.len())
            && !name.starts_with(['-', '.'])
            && name.chars().all(|c| c.is_ascii_graphic() && c != '/' && c != ':')
    };
    if device.as_ref().is_some_and(|name| !is_device(name)) {
        return invalid(
            "device",
            "a network device as shown by `ip link`, such as eth0: up to 15 characters",
        );
    }
    Ok(())
}

/// Checks that the nodes in the declaration exist, and that the address is not a node's own one.
fn check_nodes(reconciler: &Reconciler, spec: &AddressSpec) -> Result<()> {
    let invalid = |field, reason| Err(ControlError::Invalid { field, reason });
    for number in spec.nodes.iter().chain(&spec.prefer) {
        let known = reconciler.get::<NodeEntry>(&node_key(NodeId(*number)));
        let (entry, _) = known.ok_or_else(|| ControlError::not_found("node", &number.to_string()))?;
        if entry.witness {
            return invalid("nodes", "a witness has no volumes: choose nodes that have");
        }
    }
    if spec.prefer.is_some_and(|node| !spec.nodes.is_empty() && !spec.nodes.contains(&node)) {
        return invalid(
            "prefer",
            "the preferred node is not among the nodes that may hold the address: add it there, too",
        );
    }
    let has = |addresses: &[SocketAddr]| addresses.iter().any(|own| own.ip() == spec.address);
    if reconciler.nodes().iter().any(|(node, _)| has(&node.addresses) || has(&node.portals)) {
        return invalid(
            "address",
            "this is a node's own address (`ursa node list`): choose an unused address",
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_of_one_host_can_float() {
        let refused = |text: &str, device: Option<&str>| {
            let (address, prefix) = text.split_once('/').unwrap();
            let (address, prefix) = (address.parse().unwrap(), prefix.parse().unwrap());
            let device = device.map(str::to_owned);
            let spec = AddressSpec { address, prefix, device, nodes: Vec::new(), prefer: None };
            match check_address(&spec) {
                Ok(()) => None,
                Err(ControlError::Invalid { field, .. }) => Some(field),
                Err(other) => panic!("{other:?}"),
            }
        };
        for text in ["192.0.2.10/24", "192.0.2.10/32", "127.0.0.9/8", "fd00::10/64"] {
            assert_eq!(refused(text, Some("eth0.12")), None, "{text}");
        }
        for text in ["192.0.2.10/32", "fd00::10/128"] {
            assert_eq!(refused(text, None), Some("address"), "{text}: no device is of its network");
        }
        for text in ["0.0.0.0/8", "224.0.0.1/4", "192.0.2.10/0", "192.0.2.10/33", "fd00::1/129", "fe80::1/64"]
        {
            assert_eq!(refused(text, None), Some("address"), "{text}");
        }
        assert_eq!(refused("::ffff:192.0.2.10/128", None), Some("address"));
        for device in ["", "-j", "a/b", "eth 0", "a-name-that-is-too-long", ".."] {
            assert_eq!(refused("192.0.2.10/24", Some(device)), Some("device"), "{device}");
        }
    }
}
