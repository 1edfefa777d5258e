//! Schedules of snapshots: what the cluster's record has of them. Why it is so: `docs/why/snapshots.md`,
//! *Schedules*.

use serde::{Deserialize, Serialize};

use super::snapshot::SnapshotObstacle;

/// The prefix of the keys of schedules.
pub const SNAPSHOT_SCHEDULES: &str = "snapshot-schedule/";
/// The key of the turn: which node takes a snapshot by schedule. There is one turn in the cluster.
pub const SNAPSHOT_TURN: &str = "snapshot-turn";

/// How many schedules a cluster has at most. With the most volumes and the longest names, their entries take
/// 2 MiB of the record's 64.
pub const SNAPSHOT_SCHEDULES_MAX: usize = 128;

/// The key of a schedule.
pub fn snapshot_schedule_key(name: &str) -> String {
    format!("{SNAPSHOT_SCHEDULES}{name}")
}

/// A schedule: at which times snapshots of a set of volumes are taken, and which of them are kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScheduleEntry {
    /// Its name.
    pub name: String,
    /// A random number. Another schedule that gets the same name later has another one, and does not delete
    /// the snapshots of this one.
    pub id: u64,
    /// The volumes of the set.
    pub volumes: Vec<ScheduledVolume>,
    /// The interval in seconds.
    pub every: u64,
    /// Which snapshots are kept.
    pub retention: Retention,
    /// No snapshots are taken or deleted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub paused: bool,
    /// When it was created, in seconds since 1970.
    pub created: u64,
    /// From when on snapshots are due: when it was created or resumed, or its interval was changed last. In
    /// seconds since 1970.
    pub since: u64,
    /// The last snapshot that it has taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<ScheduledSnapshot>,
    /// Why the last attempt failed; absent if it succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<FailedAttempt>,
}

/// A volume of a schedule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScheduledVolume {
    /// Its identity.
    pub id: String,
    /// The name that it had when it was added to the schedule.
    pub name: String,
}

/// How many snapshots a schedule keeps. A snapshot is kept if one of these rules keeps it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retention {
    /// The latest ones.
    #[serde(default)]
    pub keep: u32,
    /// The last one of each of the latest days that have one, by UTC.
    #[serde(default)]
    pub daily: u32,
    /// The same for weeks, which begin on Mondays.
    #[serde(default)]
    pub weekly: u32,
    /// The same for months.
    #[serde(default)]
    pub monthly: u32,
}

/// A snapshot that a schedule has taken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScheduledSnapshot {
    /// Its name.
    pub name: String,
    /// When it was due, in seconds since 1970. It was taken instead of all that were due before.
    pub due: u64,
    /// When it was taken, as in its entry.
    pub at: u64,
}

/// An attempt to take a snapshot that failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedAttempt {
    /// When, in seconds since 1970.
    pub at: u64,
    /// Why.
    pub obstacle: ScheduleObstacle,
}

/// By which schedule a snapshot was taken, and for which time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OfSchedule {
    /// The schedule's name.
    pub name: String,
    /// [`ScheduleEntry::id`].
    pub id: u64,
    /// When it was due, in seconds since 1970. A schedule takes one for each time at most.
    pub due: u64,
}

impl OfSchedule {
    /// Whether a schedule has taken it.
    pub fn is_of(&self, schedule: &ScheduleEntry) -> bool {
        self.id == schedule.id && self.name == schedule.name
    }
}

/// The node that has the turn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotTurn {
    /// Its number.
    pub node: u16,
    /// The life of this node.
    pub life: u64,
    /// When it took the turn, in seconds since 1970.
    pub at: u64,
}

/// Why a schedule could not take a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs)] // The messages say it.
pub enum ScheduleObstacle {
    #[error("volume {volume} was deleted: remove it from the schedule")]
    VolumeDeleted { volume: String },
    #[error("volume {volume} is not a log volume: convert it, or remove it from the schedule")]
    NotLog { volume: String },
    #[error("a node has continued alone with volume {volume}: resolve that first")]
    Forked { volume: String },
    #[error("volume {volume}{}: {obstacle}", on(*node))]
    NotTaken { volume: String, node: Option<u16>, obstacle: SnapshotObstacle },
    #[error("commands of hosts would have been held for too long: disks or links are too busy")]
    TooSlow,
    #[error("the cluster has as many snapshots as it can have: delete some")]
    TooMany,
    #[error("node {node} does not respond")]
    NodeUnreachable { node: u16 },
    #[error("the cluster's record does not respond")]
    RecordSilent,
    #[error("see the log of node {node}")]
    Other { node: u16 },
}

fn on(node: Option<u16>) -> String {
    node.map(|node| format!(" on node {node}")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_obstacle_names_the_volume_and_the_node() {
        let of = |node| {
            let obstacle = SnapshotObstacle::Failed;
            ScheduleObstacle::NotTaken { volume: "db".into(), node, obstacle }.to_string()
        };
        assert_eq!(of(Some(2)), "volume db on node 2: a disk failed");
        assert_eq!(of(None), "volume db: a disk failed");
    }
}
