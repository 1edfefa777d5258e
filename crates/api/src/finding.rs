//! Findings: what is wrong now, and what to do about it.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{Severity, Since};

/// A finding: something that is wrong now in the cluster, as the queried node sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Finding {
    /// What is wrong, for programs. It stays the same when the wording changes.
    pub code: FindingCode,
    /// Severity.
    pub severity: Severity,
    /// What it concerns.
    pub subject: Subject,
    /// Since when; absent: unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Since>,
    /// What is wrong, as text.
    pub cause: String,
    /// Recommended action, as text. Absent: none is needed, the finding clears automatically.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
    /// The command that does it, or shows more.
    pub command: String,
    /// Numbers of the nodes that report it about themselves; absent: the queried node concludes it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub seen_by: Vec<u16>,
}

/// What a finding concerns.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
pub struct Subject {
    /// What kind of thing it is.
    pub kind: SubjectKind,
    /// Name of the volume, pool, node or schedule, path of the disk, or address; absent for the cluster, and
    /// where a finding concerns several things of that kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// ID of the volume: it stays the same when the volume is renamed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Number of the node, or of the node that has the subject; absent for subjects of the whole cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<u16>,
}

/// Kinds of subjects of findings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum SubjectKind {
    /// The cluster and its record.
    Cluster,
    /// A node.
    Node,
    /// A volume.
    Volume,
    /// A copy of a volume on a node.
    Copy,
    /// A pool.
    Pool,
    /// A disk of a pool.
    Disk,
    /// A floating IP, or an address of a node.
    Address,
    /// A change in progress.
    Change,
    /// A schedule of snapshots.
    Schedule,
}

/// Codes of findings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum FindingCode {
    /// Two nodes have served a volume independently, and its copies have diverged.
    SplitBrain,
    /// No node serves the volume, or its hosts are stopped for a restore that does not end.
    VolumeUnavailable,
    /// A node continues alone with a volume, by its split-brain policy.
    ContinuedAlone,
    /// A snapshot is overdue by its schedule.
    SnapshotScheduleMissed,
    /// Snapshots are older than 30 days, and nothing deletes them automatically.
    SnapshotsOld,
    /// Copies that are in sync differ.
    CopiesMismatch,
    /// A copy lacks blocks that no copy in sync could read.
    BlocksLost,
    /// The last scrub of a volume found blocks that cannot be read.
    ScrubUnrepaired,
    /// A volume has not been scrubbed for a long time.
    ScrubOverdue,
    /// A volume is not in the cluster's record, which has another one of its name.
    VolumeNameTaken,
    /// Copies are out of sync, and no node reports a resync.
    CopyOutOfSync,
    /// Copies are out of sync and resyncing.
    ResyncRunning,
    /// Copies are out of sync, and their resync waits for something.
    ResyncWaiting,
    /// Copies are out of sync, and somebody has paused their resync.
    ResyncPaused,
    /// A node is down.
    NodeDown,
    /// Other nodes reach the node, and the reporting node does not.
    NodeCutOff,
    /// A node is in maintenance.
    NodeMaintenance,
    /// A node is up, and does not report its state.
    NodeSilent,
    /// A node was set back to an earlier state, or runs twice.
    NodeSetBack,
    /// A node was removed from the cluster, or left behind by it.
    NodeRemoved,
    /// A node cannot take part in its cluster.
    ClusterFailed,
    /// An address at which other nodes reach the node is missing.
    LinkAddressMissing,
    /// No node holds a floating IP.
    FloatingIpLost,
    /// A node refuses logins: its access rules may be outdated.
    LoginsRefused,
    /// A majority of the voters is down.
    NoQuorum,
    /// Two nodes have no witness.
    NoWitness,
    /// The cluster's record, or the etcd that holds it, does not answer.
    RecordLost,
    /// A node's copy of the cluster's record accepts no changes.
    RecordStalled,
    /// A node cannot read entries of the cluster's record.
    RecordEntriesUnreadable,
    /// One of the two copies of a node's own record was lost.
    RecordFault,
    /// A node's own record accepts no changes.
    RecordLatched,
    /// A disk is out of service.
    DiskFailed,
    /// A disk failed to read blocks.
    ReadFailed,
    /// A pool is not open.
    PoolClosed,
    /// A pool accepts no changes.
    PoolReadOnly,
    /// A pool was reverted to an older state.
    PoolSetBack,
    /// The file system below a pool has less free space than the pools there may still need.
    PoolOvercommitted,
    /// Snapshots hold more than half of a pool.
    SnapshotSpace,
    /// Little of a pool is free.
    PoolNearlyFull,
    /// A pool is forecast to be full within 30 days.
    PoolFullSoon,
    /// A change has been in progress for more than five minutes.
    ChangeStuck,
    /// A node's audit log cannot be written.
    AuditUnavailable,
    /// A node has no certificate for its API.
    CertificateUnavailable,
}
