//! What a node has counted of a volume.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What has gone through a node to a volume since the node serves it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct VolumeCounters {
    /// The number of the node that has counted; absent without a cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<u16>,
    /// Reads.
    pub read: FlowCounters,
    /// Writes.
    pub write: FlowCounters,
}

/// Reads or writes so far.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FlowCounters {
    /// How many.
    pub operations: u64,
    /// How long they took altogether, in seconds: each from the arrival of all its data to the answer.
    pub seconds: f64,
    /// Bytes of the blocks that they were about.
    pub bytes: u64,
    /// How many took no longer than what, the shortest first.
    pub latencies: Vec<LatencyBucket>,
}

/// Operations that took no longer than some time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LatencyBucket {
    /// That time, in seconds; absent in the last one, which has all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound: Option<f64>,
    /// How many took no longer.
    pub operations: u64,
}
