//! Snapshots of volumes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A snapshot of one or several volumes, all at one point in time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Snapshot {
    /// Its number, which is never used again.
    pub number: u32,
    /// Name.
    #[schema(example = "before-upgrade")]
    pub name: String,
    /// Whether it exists.
    pub state: SnapshotState,
    /// When it was taken, in seconds since 1970.
    pub created: u64,
    /// For how long hosts had to wait while it was taken, in microseconds. Absent while it is being taken, or
    /// if it was not taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause_us: Option<u64>,
    /// On hold: it cannot be deleted, and is not when it expires.
    pub held: bool,
    /// When it is deleted automatically, in seconds since 1970. Absent: never, unless its schedule does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<u64>,
    /// Its labels, by key.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Name of the schedule that has taken it. Absent: no schedule has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<String>,
    /// Its volumes.
    pub volumes: Vec<SnapshotVolume>,
}

/// Whether a snapshot exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum SnapshotState {
    /// It is being taken. It may still be refused.
    Preparing,
    /// Volumes are being restored to another snapshot. This one has what they were before.
    Restoring,
    /// It exists.
    Complete,
    /// It was deleted, or could not be taken. Copies of nodes that are down may still have it.
    Deleting,
}

/// What a snapshot has of one volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SnapshotVolume {
    /// Present name of the volume, or its last one if it was deleted.
    pub volume: String,
    /// ID of the volume.
    pub volume_id: String,
    /// Size of the volume when the snapshot was taken, in bytes.
    pub size: u64,
    /// The volume's copies.
    pub copies: Vec<SnapshotCopy>,
}

/// A copy of a volume, and whether it has a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SnapshotCopy {
    /// Node number.
    pub node: u16,
    /// Node name.
    pub node_name: String,
    /// Whether it has the snapshot.
    pub state: SnapshotCopyState,
    /// How many bytes of the pool are free once the snapshot is deleted, at most; what was overwritten in the
    /// last seconds is not counted yet. Absent: unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frees: Option<u64>,
    /// Deleting the snapshot frees exactly `frees`. If false, an older snapshot keeps some of it.
    pub frees_is_exact: bool,
}

/// Whether a copy has a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum SnapshotCopyState {
    /// It has the snapshot.
    Present,
    /// It should have the snapshot, but its pool does not: the pool was set back, for example.
    Missing,
    /// It has the snapshot according to the cluster's record; its node did not answer.
    Unknown,
    /// It does not have the snapshot: it was not in sync when the snapshot was taken, or was added later.
    Absent,
}

/// A snapshot to be taken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SnapshotCreate {
    /// The volumes, by name or ID: 1 to 128 log volumes.
    pub volumes: Vec<String>,
    /// Name: 1 to 63 letters, digits, '-', '_' and '.', not only digits. No other snapshot has it.
    #[schema(example = "before-upgrade")]
    pub name: String,
    /// After how many seconds it is deleted automatically, unless it is on hold then. Absent: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 60, maximum = 315_619_200)]
    pub expires_after: Option<u64>,
    /// Labels: at most 8. Keys and values are 1 to 63 letters, digits and characters of `-_./:@+`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

/// A restore of volumes to a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SnapshotRestore {
    /// The volumes, by name or ID, at most 48; empty: all that the snapshot has.
    #[serde(default)]
    pub volumes: Vec<String>,
    /// Do not keep what the volumes are now. Otherwise it is kept as a snapshot.
    #[serde(default)]
    pub discard: bool,
    /// Restore even if hosts that see the volumes are logged in, or if a node does not answer which ones are.
    #[serde(default)]
    pub force: bool,
}

/// Volumes that were restored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SnapshotRestored {
    /// Name of the snapshot that they were restored to.
    pub snapshot: String,
    /// Their names.
    pub volumes: Vec<String>,
    /// The snapshot that has what they were before. Absent: it was discarded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<Snapshot>,
    /// For how long hosts had to wait, in microseconds.
    pub pause_us: u64,
}

/// Clones of a snapshot to be created.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SnapshotClone {
    /// Name of the clone, as of any volume. With `count`, they are called `NAME-1`, `NAME-2`, ….
    #[schema(example = "test")]
    pub name: String,
    /// The volume to clone, by name or ID. Absent: the only one that the snapshot has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume: Option<String>,
    /// How many clones. Absent: one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 1000)]
    pub count: Option<u16>,
    /// Number of copies, on nodes whose copies have the snapshot. If `copies` and `nodes` are both absent:
    /// one on each of these nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 4)]
    pub copies: Option<u8>,
    /// Numbers of the nodes that get a copy; not together with `copies`. Their copies must have the snapshot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<Vec<u16>>,
}

/// Clones that were created.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SnapshotCloned {
    /// Name of the snapshot.
    pub snapshot: String,
    /// Name of the volume that was cloned.
    pub volume: String,
    /// The clones.
    pub clones: Vec<ClonedVolume>,
    /// How long it took, in microseconds.
    pub took_us: u64,
    /// Bytes that their blocks take in the pool of the queried node. Absent: it has no copies of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used: Option<u64>,
}

/// A clone that was created.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClonedVolume {
    /// Volume name.
    pub name: String,
    /// Volume ID.
    pub id: String,
}

/// A page of what differs between two snapshots of a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SnapshotDiff {
    /// Volume name.
    pub volume: String,
    /// Name of the snapshot to compare with. Absent: a volume of zeros.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// Name of the snapshot whose content is described.
    pub snapshot: String,
    /// Size of the volume in `snapshot`, in bytes. If the volume was smaller in `since`, the rest counts as
    /// zeros there.
    pub size: u64,
    /// What differs, by offset, in whole blocks of 4 KiB. A range may continue on the next page.
    pub ranges: Vec<ChangedRange>,
    /// The `offset` of the next page. Absent: this is the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<u64>,
}

/// Bytes of a volume that differ between two snapshots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ChangedRange {
    /// Offset in the volume, in bytes.
    pub offset: u64,
    /// Length in bytes.
    pub len: u64,
    /// They are zeros in `snapshot`. Otherwise there is data in each block.
    pub zeroed: bool,
}

/// Which snapshots of a volume to compare, and which page is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotDiffQuery {
    /// The volume, by name or ID.
    pub volume: String,
    /// The snapshot to compare with, by name or number. `None`: a volume of zeros.
    pub since: Option<String>,
    /// The snapshot whose content is described.
    pub snapshot: String,
    /// Only ranges from here on, in bytes.
    pub offset: u64,
    /// Maximum number of ranges.
    pub limit: usize,
}

/// The most bytes of a snapshot that one call reads.
pub const SNAPSHOT_READ_BYTES_MAX: u64 = 4 << 20;

/// Which bytes of a snapshot are wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotDataQuery {
    /// The volume, by name or ID.
    pub volume: String,
    /// The snapshot, by name or number.
    pub snapshot: String,
    /// Where they begin in the volume.
    pub offset: u64,
    /// How many, at most [`SNAPSHOT_READ_BYTES_MAX`].
    pub len: u64,
}

/// A change of a snapshot. What is absent stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SnapshotChange {
    /// Put it on hold, so that it cannot be deleted, or release it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<bool>,
    /// After how many seconds from now it is deleted automatically, at least 60, unless it is on hold then;
    /// 0: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 315_619_200)]
    pub expires_after: Option<u64>,
    /// Labels that it gets, or whose values change; others stay.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// The keys of labels that it loses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remove_labels: Vec<String>,
}
