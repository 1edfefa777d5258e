//! Work that takes its time.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::SyncRestraint;

/// Work under way, or that has ended lately. What has ended is kept for a day, a hundred jobs of each kind, until the node that tells of it is restarted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Job {
    /// What it is found by. A copy or a volume that is worked on again has the same; that of a change is never another one's, also after a restart of its node.
    #[schema(example = "copy.2f1c7f3a9d1b4c55a0e2f6d47b8c9e10.3")]
    pub id: String,
    /// What is done.
    pub kind: JobKind,
    /// To what: a volume's name, or in words what is changed.
    pub subject: String,
    /// Whether it gets on, or how it has ended.
    pub state: JobState,
    /// The number of the node whose copy it is about, or that compares or changes something; absent: one in no cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<u16>,
    /// The number of the node that a copy moves from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_node: Option<u16>,
    /// How much of it is done, from 0 to 1; absent where that cannot be said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 1)]
    pub progress: Option<f64>,
    /// Bytes that are done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_done: Option<u64>,
    /// Bytes that there are to do; what hosts write meanwhile adds to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_total: Option<u64>,
    /// Bytes a second, over the last five seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<u64>,
    /// Seconds to go if it goes on like that; absent if nobody can say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eta_s: Option<u64>,
    /// For how many seconds it has been under way, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub age_s: Option<u64>,
    /// Why it is done, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// What keeps a sync from going faster, if not the disks and the network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_back_by: Option<SyncRestraint>,
    /// What it waits for; absent if it gets on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<String>,
    /// `DELETE` takes it back.
    pub can_be_cancelled: bool,
    /// `POST .../pause` has it stand still.
    #[serde(default)]
    pub can_be_paused: bool,
    /// Who has paused it, and when; absent if nobody has. `POST .../resume` ends that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<SyncPaused>,
    /// When and how it has ended; absent: it is under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<JobEnd>,
}

/// When and how a job has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JobEnd {
    /// In seconds since 1970, by the clock of the node that tells of it.
    pub at: u64,
    /// How many seconds it has taken, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub took_s: Option<u64>,
    /// Why it is not what was asked for, or what somebody should know of it, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What was found by a comparison, without where copies differ: the volume's last comparison says that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub found: Option<JobFound>,
}

/// What a comparison of copies has found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JobFound {
    /// Everything was compared, and is equal.
    pub equal: bool,
    /// Bytes that differ.
    pub different_bytes: u64,
    /// Bytes that could not be compared.
    pub unchecked_bytes: u64,
}

/// Who has paused a sync, and when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SyncPaused {
    /// The user or token.
    pub by: String,
    /// In seconds since 1970.
    pub since: u64,
}

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum JobKind {
    /// A copy is given what it missed.
    Sync,
    /// A new copy is given all of a volume.
    AddCopy,
    /// The same, and then another one is taken away.
    MoveCopy,
    /// A copy is taken off its node.
    RemoveCopy,
    /// Copies of a volume are compared.
    Verify,
    /// Another change of a node.
    Change,
}

impl fmt::Display for JobKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            JobKind::Sync => "sync",
            JobKind::AddCopy => "add_copy",
            JobKind::MoveCopy => "move_copy",
            JobKind::RemoveCopy => "remove_copy",
            JobKind::Verify => "verify",
            JobKind::Change => "change",
        })
    }
}

/// Whether work gets on, or how it has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum JobState {
    /// It does.
    Running,
    /// It waits for something.
    Waiting,
    /// Somebody has paused it.
    Paused,
    /// It was done to its end.
    Ended,
    /// It could not be done.
    Failed,
    /// It was taken back, or what it was about was taken away.
    Cancelled,
}

impl fmt::Display for JobState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            JobState::Running => "running",
            JobState::Waiting => "waiting",
            JobState::Paused => "paused",
            JobState::Ended => "ended",
            JobState::Failed => "failed",
            JobState::Cancelled => "cancelled",
        })
    }
}
