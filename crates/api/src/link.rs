//! The links between the nodes of a cluster.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The links between a node and a peer, as the node sees them. The peer may see them differently.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Link {
    /// Number of the reporting node.
    pub node: u16,
    /// Name of the reporting node.
    pub node_name: String,
    /// Number of the peer.
    pub peer: u16,
    /// Name of the peer.
    pub peer_name: String,
    /// Overall state.
    pub state: LinkState,
    /// The control link: heartbeats, leases and the cluster's record.
    pub control: RoleLinks,
    /// The links for the data of volumes.
    pub replication: RoleLinks,
    /// The links are encrypted and mutually authenticated.
    pub encrypted: bool,
    /// Why the last connection attempt failed, if none has succeeded since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
    /// Cores of `node` that did not report their links within a second: `replication` and `state` may miss
    /// links that are up.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub silent_cores: Vec<u16>,
}

/// State of the links with a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum LinkState {
    /// All expected links are up.
    Up,
    /// Some are up.
    Partly,
    /// None is up.
    Down,
}

/// The links of one role with a peer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RoleLinks {
    /// Number of links that are up.
    pub up: u64,
    /// Number of expected links: one for control; for data, as many as the larger of the two nodes has cores.
    /// 0: unknown, because none has been up since the reporting node started.
    pub of: u64,
    /// Peer addresses of the links that are up: they show which networks are used.
    #[schema(example = json!(["10.0.0.2"]))]
    pub addresses: Vec<String>,
    /// Seconds for which all links that are up have been up; absent: none is up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub age: Option<u64>,
    /// Seconds since anything was received on any of them, even if it is down by now; absent: never since the
    /// reporting node started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub silence: Option<u64>,
}
