//! Split brain: what a node does with a volume when it reaches no other node, and the result.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Split-brain policy: what a node does with a volume when no other node and no quorum is reachable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum SplitBrainPolicy {
    /// Wait for quorum. Of two nodes without a witness, only the preferred node continues.
    Prefer,
    /// Continue alone after about six seconds. The other node may do the same (split brain).
    Heartbeat,
}

/// The split-brain policy of a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ChosenPolicy {
    /// The policy.
    pub policy: SplitBrainPolicy,
    /// Who chose it, as they named themselves.
    pub by: String,
    /// When it was chosen, in seconds since 1970.
    pub at: u64,
}

/// A split-brain policy to set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PolicyChoice {
    /// The policy.
    pub policy: SplitBrainPolicy,
    /// Required for `heartbeat`: accept that both nodes may continue, and that the data of one of them is
    /// then discarded.
    #[serde(default)]
    pub accept_split_brain: bool,
    /// Who chooses it, for the record.
    #[serde(default)]
    pub by: String,
}

/// Result of setting the split-brain policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PolicyChosen {
    /// One of the nodes has a single address: if that network is lost, both nodes continue alone.
    pub one_way: bool,
}

/// A node has continued alone with a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VolumeFork {
    /// Node number.
    pub node: u16,
    /// Since when, in seconds since 1970, by the clock of that node.
    pub since: u64,
    /// Split brain: the other node has continued, too. The copies have diverged until an administrator
    /// chooses which one to keep.
    pub split: bool,
}

/// Which data to keep after nodes have continued alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ForkResolution {
    /// Number of the node whose data is kept.
    pub keep: u16,
    /// Confirms that writes made only on the other node are discarded.
    pub discard_other: bool,
}
