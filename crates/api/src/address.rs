//! Floating IPs.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A floating IP: one node of the cluster holds it at a time, and another node takes it over on failure.
/// Initiators can always connect to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FloatingAddress {
    /// Address and prefix length; the address alone if the rest of the entry cannot be read (`state`).
    #[schema(example = "192.0.2.10/24")]
    pub address: String,
    /// The network device on each node; absent: the one that has an address in the same network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// Numbers of the nodes that may hold it; empty: all but witnesses.
    pub nodes: Vec<u16>,
    /// The preferred node: it takes the address back after it has been up for a minute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefer: Option<u16>,
    /// Portal group of its portals, the same on each node; absent: it cannot be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub portal_group: Option<u16>,
    /// Number of the node that holds it, according to the cluster's record; absent: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<u16>,
    /// Name of that node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder_name: Option<String>,
    /// Held since, in seconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<u64>,
    /// The holder waits until the previous holder, which is unreachable, must have released the address.
    pub waits: bool,
    /// Whether the holder confirms that the address is configured.
    #[serde(default)]
    #[schema(required = true)]
    pub state: AddressState,
    /// Nodes whose last attempt to configure or release the address failed, and why. Nodes that do not answer
    /// are not listed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub troubles: Vec<AddressTrouble>,
}

/// State of a floating IP. The cluster's record says which node holds it; that node reports whether it is
/// configured on a network device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum AddressState {
    /// Configured on a device of the holder: hosts can connect to it.
    Held,
    /// Not configured on the holder: not yet, or not any more.
    Taking,
    /// No node holds it.
    Nobody,
    /// The holder does not answer, or its version does not report the state.
    #[default]
    Unknown,
    /// The entry, or its holder, was written by a later version that the queried node cannot read. The node
    /// leaves it unchanged.
    Unreadable,
}

/// Why a node cannot hold or release a floating IP.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AddressTrouble {
    /// Node number.
    pub node: u16,
    /// Node name.
    pub node_name: String,
    /// The reason, and what to do.
    pub text: String,
}

/// A floating IP to add.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FloatingAddressAdd {
    /// An address that no machine uses, with its prefix length. Without prefix length: a single address (/32
    /// or /128).
    #[schema(example = "192.0.2.10/24")]
    pub address: String,
    /// The network device on each node; absent: the one that has an address in the same network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// Numbers of the nodes that may hold it; empty: all but witnesses.
    #[serde(default)]
    pub nodes: Vec<u16>,
    /// The preferred node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefer: Option<u16>,
}
