//! Jobs: changes that take time.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::SyncRestraint;

/// A job, in progress or ended recently. Ended jobs are kept for a day, up to a hundred of each kind, until
/// the node that reports them is restarted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Job {
    /// Job ID. Another job on the same copy or volume has the same ID; that of a change is never reused, even
    /// after a restart of its node.
    #[schema(example = "copy.2f1c7f3a9d1b4c55a0e2f6d47b8c9e10.3")]
    pub id: String,
    /// Kind of job.
    pub kind: JobKind,
    /// What it works on: a volume name, a pool name (`free_snapshots`), or the change as text.
    pub subject: String,
    /// State of the job.
    pub state: JobState,
    /// Number of the node that has the copy or the pool, or that runs the verify, scrub, conversion or
    /// change.
    pub node: u16,
    /// Number of the node that a copy moves from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_node: Option<u16>,
    /// Progress from 0 to 1; absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 1)]
    pub progress: Option<f64>,
    /// Bytes done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_done: Option<u64>,
    /// Bytes to do. Writes of hosts add to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_total: Option<u64>,
    /// Bytes per second, averaged over the last five seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<u64>,
    /// Estimated seconds left at this rate; absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eta_s: Option<u64>,
    /// Seconds since it began, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub age_s: Option<u64>,
    /// Why it was started, as text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// What limits the resync, other than disks and network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limited_by: Option<SyncRestraint>,
    /// What it waits for; absent if it makes progress.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<String>,
    /// `DELETE` cancels it.
    pub can_be_cancelled: bool,
    /// `POST .../pause` pauses it.
    #[serde(default)]
    pub can_be_paused: bool,
    /// Who paused it, and when; absent if it is not paused. `POST .../resume` resumes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<SyncPaused>,
    /// When and how it ended; absent: it is in progress.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<JobEnd>,
}

/// When and how a job ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JobEnd {
    /// In seconds since 1970, by the clock of the node that reports it.
    pub at: u64,
    /// Duration in seconds, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub took_s: Option<u64>,
    /// Why the result is not what was requested, or what else to know about it, as text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Result of a verify run, without the places that differ: the volume's last verify run lists them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub found: Option<JobFound>,
}

/// Result of a verify run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JobFound {
    /// Everything was compared, and is equal.
    pub equal: bool,
    /// Bytes that differ.
    pub different_bytes: u64,
    /// Bytes that could not be compared.
    pub unchecked_bytes: u64,
}

/// Who paused a job, and when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SyncPaused {
    /// User or token.
    pub by: String,
    /// Paused since, in seconds since 1970.
    pub since: u64,
}

/// Kind of job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum JobKind {
    /// Resync of a copy.
    Sync,
    /// A new copy receives all data of a volume.
    AddCopy,
    /// A new copy receives all data of a volume; then another copy is removed.
    MoveCopy,
    /// A copy is removed from its node.
    RemoveCopy,
    /// The copies of a volume are compared.
    Verify,
    /// A volume is scrubbed on a node.
    Scrub,
    /// A copy of a volume is converted to another kind by its node.
    Convert,
    /// The space of deleted snapshots is freed in a pool.
    FreeSnapshots,
    /// Another change on a node.
    Change,
}

/// State of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum JobState {
    /// In progress.
    Running,
    /// Waiting for something.
    Waiting,
    /// Paused by a user.
    Paused,
    /// Completed.
    Ended,
    /// Failed.
    Failed,
    /// Cancelled, or the object that it worked on was removed.
    Cancelled,
}
