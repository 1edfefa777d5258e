//! What becomes of a volume of two nodes that do not hear of each other.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What a node does about a volume when it hears of nobody and cannot reach the cluster's record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Strategy {
    /// It waits: of two nodes without a witness only the one that decides goes on.
    Prefer,
    /// It goes on alone after about six seconds, though the other one may, too.
    Heartbeat,
}

/// What was chosen for a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VolumeStrategy {
    /// What.
    pub strategy: Strategy,
    /// Who has, as they called themselves.
    pub by: String,
    /// When, in seconds since 1970.
    pub at: u64,
}

/// A choice for a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StrategyChoice {
    /// What.
    pub strategy: Strategy,
    /// For `heartbeat`: that both nodes may go on, and data of one of them be given up then.
    #[serde(default)]
    pub accept_split_brain: bool,
    /// Who chooses, for whoever asks later.
    #[serde(default)]
    pub by: String,
}

/// What was chosen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StrategyChosen {
    /// A node is known by one address only: when that network is lost, both nodes go on.
    pub one_way: bool,
}

/// A node has gone on alone with a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VolumeFork {
    /// The node.
    pub node: u16,
    /// Since when, in seconds since 1970, by its clock.
    pub since: u64,
    /// The other one has, too: each has data that the other has not, until somebody decides whose is kept.
    pub split: bool,
}

/// Whose data is kept of a volume with which nodes have gone on alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ForkResolution {
    /// The node whose data is kept.
    pub keep: u16,
    /// That what the other node alone has written is given up.
    pub discard_other: bool,
}
