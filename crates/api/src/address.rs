//! Floating portal addresses.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// An address that is on one node of the cluster at a time: initiators that connect to it find whichever that is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FloatingAddress {
    /// The address and the length of its network.
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
    /// The portal group of its portals, the same on each node.
    pub portal_group: u16,
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
    /// Why the node that is asked could not put it on a device or take it off when it last tried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
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
