//! Counters of a volume on a node.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// I/O to a volume through one node, since the node began to serve it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct VolumeCounters {
    /// Number of the node that counted.
    pub node: u16,
    /// Reads.
    pub read: FlowCounters,
    /// Writes.
    pub write: FlowCounters,
}

/// Total reads or writes so far.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FlowCounters {
    /// Number of operations.
    pub operations: u64,
    /// Total time in seconds; each operation counts from the arrival of all its data to the response.
    pub seconds: f64,
    /// Bytes read or written.
    pub bytes: u64,
    /// Cumulative latency histogram, shortest bound first.
    pub latencies: Vec<LatencyBucket>,
}

/// Operations that took no longer than a bound.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LatencyBucket {
    /// The bound in seconds; absent in the last bucket, which counts all operations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound: Option<f64>,
    /// Number of operations that took no longer.
    pub operations: u64,
}
