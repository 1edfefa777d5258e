//! Schedules of snapshots, as the cluster's record has them.

use super::snapshot::Snapshot;
use super::text::{Kind, Text};

pub(super) fn write(text: &mut Text, snapshot: &Snapshot) {
    if snapshot.schedules.is_empty() {
        return;
    }
    let help = "When the schedule has last taken a snapshot, in seconds since 1970; absent if it never has.";
    let mut family = text.family("ursa_snapshot_schedule_last_timestamp_seconds", Kind::Gauge, help);
    for (schedule, last) in &snapshot.schedules {
        family.sample(&[("schedule", schedule)], last);
    }
}
