//! The properties of a node.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::cluster::{ClusterRecord, RecordPlace};

/// Whether the node serves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Health {
    /// `ok`; a node that is starting or stopping responds with status 503 instead.
    #[schema(example = "ok")]
    pub status: String,
    /// Version of Ursa.
    pub version: String,
}

/// A node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Node {
    /// Node name.
    pub name: String,
    /// Version of Ursa.
    pub version: String,
    /// Number of cores that it runs on.
    pub cores: usize,
    /// Its iSCSI portals.
    #[schema(example = json!(["0.0.0.0:3260"]))]
    pub portals: Vec<String>,
    /// Seconds since it began to serve.
    pub uptime: u64,
    /// Memory of the block maps of its log volumes.
    pub map_memory: MapMemory,
    /// Changes in progress, oldest first.
    pub changes: Vec<Change>,
    /// State of its cluster's record; absent if the node does not take part in its cluster, or if the state
    /// is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub record: Option<ClusterRecord>,
    /// Where its cluster keeps its record; before other nodes can join it: where the node's settings place
    /// it.
    #[serde(default)]
    pub record_place: RecordPlace,
    /// Whether other nodes confirm its reads of volumes with two or more copies.
    #[serde(default)]
    pub read_confirm: ReadConfirm,
}

/// The memory that the block maps of all log volumes of a node share. What they cannot do without may exceed
/// the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MapMemory {
    /// Bytes in use.
    pub used: u64,
    /// Limit in bytes: the setting `map-max`.
    pub limit: u64,
}

/// Whether reads of volumes with two or more copies wait until other nodes have confirmed them: one round
/// trip, shared by all reads that arrive meanwhile. Without it, a node whose clock stopped, as in a virtual
/// machine that was paused, may answer reads with data that has since been overwritten through another node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReadConfirm {
    /// The node's setting.
    pub setting: ReadConfirmSetting,
    /// Reads are confirmed.
    pub on: bool,
    /// Evidence that the machine is virtual; absent: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hypervisor: Option<HypervisorSign>,
    /// Vendor and product of the machine as reported by its firmware; absent: unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "QEMU Standard PC (Q35 + ICH9, 2009)")]
    pub machine: Option<String>,
}

/// When reads are confirmed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ReadConfirmSetting {
    /// On virtual machines.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// Evidence that a machine is virtual.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum HypervisorSign {
    /// The processor reports a hypervisor.
    Cpu,
    /// The firmware names a hypervisor.
    Firmware,
    /// There is a device that only hypervisors provide.
    Device,
}

/// A change in progress. A change that waits for a disk continues when the disk responds, and does not block
/// changes of other objects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Change {
    /// What it does.
    #[schema(example = "deleting volume \"db\"")]
    pub what: String,
    /// Seconds since it began.
    pub age: u64,
    /// What it waits for.
    #[schema(example = "a response from /dev/sdb")]
    pub waits_for: String,
}
