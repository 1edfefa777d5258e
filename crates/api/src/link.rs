//! The links between the nodes of a cluster.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The links of a node with another one, as the first sees them. The other one may see them otherwise.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Link {
    /// The number of the node that says so.
    pub node: u16,
    /// Its name.
    pub node_name: String,
    /// The number of the other node.
    pub peer: u16,
    /// Its name.
    pub peer_name: String,
    /// How they are, all together.
    pub state: LinkState,
    /// The one for heartbeats, leases and the cluster's record.
    pub control: RoleLinks,
    /// Those for the data of volumes.
    pub replication: RoleLinks,
    /// They are encrypted, and both sides prove who they are.
    pub encrypted: bool,
    /// Why the last attempt to make one failed, if none has succeeded since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
    /// Cores of `node` that have not said within a second how their links are: some may be up that are not counted in `replication` and `state`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub silent_cores: Vec<u16>,
}

/// How the links with another node are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum LinkState {
    /// All that there are to be are up.
    Up,
    /// Some are up.
    Partly,
    /// None is up.
    Down,
}

/// The links of one role with another node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RoleLinks {
    /// How many are up.
    pub up: u64,
    /// How many there are to be: one control link, and as many for data as the node with more cores has cores; 0: none was up since the node that says so has
    /// started, and it does not know.
    pub of: u64,
    /// Where the other ends of those are that are up: by which networks they go.
    #[schema(example = json!(["10.0.0.2"]))]
    pub addresses: Vec<String>,
    /// For how many seconds all that are up have been; absent: none is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub age: Option<u64>,
    /// Seconds since anything was received by one of them, be it down by now; absent: never since the node that says so has started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub silence: Option<u64>,
}
