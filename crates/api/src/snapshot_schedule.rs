//! Schedules of snapshots.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A schedule: at which times snapshots of volumes are taken, and which of them are kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SnapshotSchedule {
    /// Name. The snapshots are called `NAME-2026-11-29T21.50.45Z`, after the time at which they are taken.
    #[schema(example = "hourly")]
    pub name: String,
    /// Names of the volumes. Each snapshot has all of them.
    pub volumes: Vec<String>,
    /// Interval in seconds. Snapshots are due at its multiples: full hours, days from 00:00 UTC, weeks from
    /// Monday.
    pub every: u64,
    /// How many of the latest snapshots are kept.
    pub keep: u32,
    /// The last snapshot of each day is kept for this number of days (UTC) that have one.
    pub daily: u32,
    /// The same for weeks, which begin on Mondays.
    pub weekly: u32,
    /// The same for months.
    pub monthly: u32,
    /// Paused: no snapshots are taken or deleted.
    pub paused: bool,
    /// When it was created, in seconds since 1970.
    pub created: u64,
    /// When the next snapshot is due, in seconds since 1970; in the past if it is late. Absent: paused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<u64>,
    /// How many snapshots it has.
    pub snapshots: u64,
    /// Name of the last snapshot that it has taken. It may have been deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_snapshot: Option<String>,
    /// When that was taken, in seconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_success: Option<u64>,
    /// When the snapshot was due that is missing now, in seconds since 1970. Absent: none is overdue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missed_since: Option<u64>,
    /// Why the last attempt failed, as text. It is repeated every minute. Absent: it succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// A schedule to be created. At least one of `keep`, `daily`, `weekly` and `monthly` is more than 0; they are
/// 900 at most together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SnapshotScheduleCreate {
    /// Name: 1 to 42 letters, digits, '-', '_' and '.', not only digits. No other schedule has it.
    #[schema(example = "hourly")]
    pub name: String,
    /// The volumes, by name or ID: 1 to 128 log volumes.
    pub volumes: Vec<String>,
    /// Interval in seconds: whole minutes, at most 366 days.
    #[schema(minimum = 60, maximum = 31_622_400)]
    pub every: u64,
    /// How many of the latest snapshots are kept.
    #[serde(default)]
    pub keep: u32,
    /// For how many days the last snapshot of each is kept.
    #[serde(default)]
    pub daily: u32,
    /// The same for weeks.
    #[serde(default)]
    pub weekly: u32,
    /// The same for months.
    #[serde(default)]
    pub monthly: u32,
}

/// A change of a schedule. What is absent stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SnapshotScheduleChange {
    /// The volumes, by name or ID: 1 to 128 log volumes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volumes: Option<Vec<String>>,
    /// Interval in seconds: whole minutes, at most 366 days.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 60, maximum = 31_622_400)]
    pub every: Option<u64>,
    /// How many of the latest snapshots are kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep: Option<u32>,
    /// For how many days the last snapshot of each is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub daily: Option<u32>,
    /// The same for weeks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weekly: Option<u32>,
    /// The same for months.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub monthly: Option<u32>,
    /// Pause it, or resume it. Snapshots that were due while it was paused are not taken later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,
}
