//! What goes on now.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What the node that was asked has done in the last second.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LiveSample {
    /// When it ended, in seconds since 1970.
    pub at: u64,
    /// How long it was, in seconds.
    pub seconds: f64,
    /// The number of the node; absent without a cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<u16>,
    /// Reads of all volumes.
    pub read: LiveFlow,
    /// Writes of all volumes.
    pub write: LiveFlow,
    /// The node's cores, by number.
    pub cores: Vec<LiveCore>,
    /// Volumes that hosts have read or written through this node; the others have not.
    pub volumes: Vec<LiveVolume>,
}

/// Reads or writes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LiveFlow {
    /// Operations a second.
    pub operations: f64,
    /// Bytes a second.
    pub bytes: f64,
    /// How long one took on average, in microseconds, from the arrival of all its data to the answer; absent if there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mean_us: Option<f64>,
    /// 99 of 100 took no longer, in microseconds: the next power of two times 4 µs above; absent if there was none, or it was more than 4.2 s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99_us: Option<f64>,
}

/// A core of the node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LiveCore {
    /// How much of a processor it has used, from 0 to 1.
    pub cpu: f64,
    /// Of it, for looking whether there is work.
    pub polling: f64,
}

/// A volume.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LiveVolume {
    /// Its identity.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Reads through this node.
    pub read: LiveFlow,
    /// Writes through this node.
    pub write: LiveFlow,
}
