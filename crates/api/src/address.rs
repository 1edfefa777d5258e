//! Floating portal addresses.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// An address that is on one node of the cluster at a time: initiators that connect to it find whichever that is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FloatingAddress {
    /// The address and the length of its network; the address alone where nothing else of it can be read (`state`).
    #[schema(example = "192.0.2.10/24")]
    pub address: String,
    /// The network device that gets it, on each node; absent: the one that has an address of the same network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// The numbers of the nodes that may have it; empty: all but witnesses.
    pub nodes: Vec<u16>,
    /// The node that has it back when it has been up for a minute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefer: Option<u16>,
    /// The portal group of its portals, the same on each node; absent: it cannot be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub portal_group: Option<u16>,
    /// The number of the node that has it, by the cluster's record; absent: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<u16>,
    /// That node's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder_name: Option<String>,
    /// Since when, in seconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<u64>,
    /// The holder waits until the node that had it before, which is silent, has taken it off.
    pub waits: bool,
    /// Whether the holder says that it has it.
    #[serde(default)]
    #[schema(required = true)]
    pub state: AddressState,
    /// Which nodes could not put it on a device, take it off or give it up when they last tried, and why. Of nodes that do not answer nothing is known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub troubles: Vec<AddressTrouble>,
}

/// Whether a node has an address: the cluster's record says which is to have it, and that node whether it is on a network device there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum AddressState {
    /// It is on a device of the holder, and hosts can come by it.
    Held,
    /// The holder has it not on a device: not yet, or not any more.
    Taking,
    /// No node holds it.
    Nobody,
    /// The holder does not answer, or its version does not say it.
    #[default]
    Unknown,
    /// A later version has written into the record what it is, or who holds it, and the node that is asked cannot read that: it leaves it as it is.
    Unreadable,
}

/// Why a node cannot have an address, or not give it up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AddressTrouble {
    /// The node.
    pub node: u16,
    /// Its name.
    pub node_name: String,
    /// Why, and what to do.
    pub text: String,
}

/// A floating address to be declared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FloatingAddressAdd {
    /// An address that no machine has, and the length of its network; without it of one address alone.
    #[schema(example = "192.0.2.10/24")]
    pub address: String,
    /// The network device that gets it, on each node; absent: the one that has an address of the same network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// The numbers of the nodes that may have it; none: all but witnesses.
    #[serde(default)]
    pub nodes: Vec<u16>,
    /// The node that is to have it when it can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefer: Option<u16>,
}
