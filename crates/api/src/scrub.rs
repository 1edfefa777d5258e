//! Scrubs: a node reads what its volumes have in use from its own disks.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Progress or result of scrubbing a volume on a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Scrub {
    /// State of the scrub.
    pub state: ScrubState,
    /// Size of the volume in bytes.
    pub total_bytes: u64,
    /// Bytes processed, including those that are not in use.
    pub done_bytes: u64,
    /// Bad blocks found: 4,096 bytes each, or a part of a log volume's block map.
    pub bad_blocks: u64,
    /// Those of them that were repaired from another copy, or from memory.
    pub repaired_blocks: u64,
    /// Those of them that cannot be read.
    pub unrepaired_blocks: u64,
    /// LBA of the first block that cannot be read; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_unrepaired: Option<u64>,
    /// Why it was interrupted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// Seconds since it began, or was resumed.
    pub age_s: u64,
    /// Duration in seconds since then.
    pub took_s: u64,
}

/// State of a scrub.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ScrubState {
    /// It is running.
    Running,
    /// Everything in use was read.
    Done,
    /// It was stopped.
    Stopped,
    /// It cannot continue now, and will automatically.
    Interrupted,
}

/// Last and next scrub of a volume on a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VolumeScrub {
    /// End of the last scrub, in seconds since 1970; absent: it was never scrubbed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<u64>,
    /// It was stopped before its end.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stopped: bool,
    /// Bad blocks that it found.
    #[serde(default)]
    pub bad_blocks: u64,
    /// Those of them that were not repaired.
    #[serde(default)]
    pub unrepaired_blocks: u64,
    /// Bytes processed so far by the scrub that is running or interrupted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub done_bytes: Option<u64>,
    /// When the next scrub is due, in seconds since 1970.
    pub next: u64,
    /// A scrub has been due for two weeks.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub overdue: bool,
}

/// Last scrubs of the volumes of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PoolScrub {
    /// The earliest end of a volume's last scrub, in seconds since 1970; absent: no volume was scrubbed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest: Option<u64>,
    /// Bad blocks that the last scrubs found and that were not repaired.
    #[serde(default)]
    pub unrepaired_blocks: u64,
    /// How many volumes have a scrub that is running, waiting or interrupted.
    #[serde(default)]
    pub unfinished: usize,
}
