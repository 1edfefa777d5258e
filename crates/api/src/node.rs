//! The node as a whole.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::cluster::{ClusterRecord, RecordPlace};
use crate::since::Since;

/// Whether the node serves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Health {
    /// `ok`; a node that starts or stops answers with status 503 instead.
    #[schema(example = "ok")]
    pub status: String,
    /// The program's version.
    pub version: String,
}

/// A node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Node {
    /// Its name, for people.
    pub name: String,
    /// The program's version.
    pub version: String,
    /// How many cores it runs on.
    pub cores: usize,
    /// Where it listens for iSCSI.
    #[schema(example = json!(["0.0.0.0:3260"]))]
    pub portals: Vec<String>,
    /// Seconds since it began to serve.
    pub uptime: u64,
    /// The changes under way, the oldest first.
    pub changes: Vec<Change>,
    /// What somebody should look after now, in sentences; empty if all is well.
    #[serde(default)]
    pub problems: Vec<String>,
    /// The record of its cluster; absent without one, or if that does not say how it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub record: Option<ClusterRecord>,
    /// Where a cluster has its record that it is in, makes or joins: its settings say so.
    #[serde(default)]
    pub record_place: RecordPlace,
    /// Whether the other nodes confirm its reads of volumes with two or more copies.
    #[serde(default)]
    pub read_confirm: ReadConfirm,
}

/// Whether reads of volumes with two or more copies wait until the other nodes have confirmed them: one round trip, shared
/// by all reads that arrive meanwhile. Without it, a node whose clock stood still, as that of a virtual machine does while
/// it is paused, may answer reads with data that has been overwritten through another node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReadConfirm {
    /// The node's setting.
    pub setting: ReadConfirmSetting,
    /// Reads are confirmed.
    pub on: bool,
    /// What shows that the machine is virtual; absent: nothing does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hypervisor: Option<HypervisorSign>,
    /// The machine's vendor and product by its firmware; absent: not known.
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

/// What shows that a machine is virtual.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum HypervisorSign {
    /// The processor reports a hypervisor.
    Cpu,
    /// The firmware names a hypervisor.
    Firmware,
    /// There is a device that only hypervisors have.
    Device,
}

/// Something that somebody should look after.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeProblem {
    /// What is the matter and what to do, in a sentence.
    pub text: String,
    /// What kind of thing it is: the code of its event, if it has one. It stays the same when the words change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "pool_closed")]
    pub code: Option<String>,
    /// What it is about, if not the node itself: a pool by its name, a disk by its path, another node by its number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "default")]
    pub subject: Option<String>,
    /// Since when; absent: that is not known yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Since>,
    /// The number of the node that says so; absent without a cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<u16>,
    /// The name of that node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_name: Option<String>,
}

/// A change under way. One that waits for a disk goes on when the disk answers, and holds up no change of anything else.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Change {
    /// What it does.
    #[schema(example = "deleting volume \"db\"")]
    pub what: String,
    /// How long it has been under way, in seconds.
    pub age: u64,
    /// What it waits for.
    #[schema(example = "an answer from /dev/sdb")]
    pub waits_for: String,
}
