//! Live measurements.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What the queried node did in the last second.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LiveSample {
    /// End of the interval, in seconds since 1970.
    pub at: u64,
    /// Length of the interval, in seconds.
    pub seconds: f64,
    /// Node number.
    pub node: u16,
    /// Reads of all volumes.
    pub read: LiveFlow,
    /// Writes of all volumes.
    pub write: LiveFlow,
    /// The node's cores, by number.
    pub cores: Vec<LiveCore>,
    /// Volumes that hosts read or wrote through this node in the interval. Idle volumes are left out.
    pub volumes: Vec<LiveVolume>,
}

/// Reads or writes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LiveFlow {
    /// Operations per second.
    pub operations: f64,
    /// Bytes per second.
    pub bytes: f64,
    /// Mean latency in microseconds, from the arrival of all data to the response; absent if there were no
    /// operations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mean_us: Option<f64>,
    /// 99th percentile latency in microseconds, rounded up to the next power of two times 4 µs; absent if
    /// there were no operations, or it was more than 4.2 s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99_us: Option<f64>,
}

/// A core of the node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LiveCore {
    /// Share of a processor that it used, from 0 to 1.
    pub cpu: f64,
    /// Part of that spent polling for work.
    pub polling: f64,
}

/// A volume.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LiveVolume {
    /// Volume ID.
    pub id: String,
    /// Volume name.
    pub name: String,
    /// Reads through this node.
    pub read: LiveFlow,
    /// Writes through this node.
    pub write: LiveFlow,
}
