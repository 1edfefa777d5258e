//! The progress of resyncs, in words.

use api::{CopySync, SyncRestraint};
use terms::clock::utc;

use super::table::{age, size};

/// What limits a resync's rate; `None` if it is paused, which another text reports with name and time.
pub(super) fn restraint(restraint: SyncRestraint) -> Option<&'static str> {
    Some(match restraint {
        SyncRestraint::Hosts => "slowed down by host writes",
        SyncRestraint::NodeLimit => "limited by its source node (resync-bytes-per-second-max)",
        SyncRestraint::ClusterLimit => "limited by the cluster's resync limit (ursa node resync-limit)",
        SyncRestraint::Turn => "queued behind other volumes",
        SyncRestraint::Paused => return None,
    })
}

/// The progress in one line.
pub(super) fn sync_line(sync: &CopySync) -> String {
    let mut text = format!("{} of {} left to copy", size(sync.left_bytes), size(sync.total_bytes));
    if sync.bytes_per_second > 0 {
        text += &format!(", {}/s", size(sync.bytes_per_second));
    }
    if let Some(seconds) = sync.seconds_left {
        text += &format!(", {} to go", age(seconds));
    }
    text += &format!("; cause: {}", sync.cause);
    if let Some(words) = sync.limited_by.and_then(restraint) {
        text += &format!("; {words}");
    }
    if let Some(paused) = &sync.paused {
        let (by, since) = (paused.by.escape_debug(), utc(paused.since));
        text += &format!("; PAUSED by {by} since {since} (ursa job list, ursa job resume)");
    } else if let Some(what) = &sync.waits_for {
        text += &format!("; WAITING for {what}");
    }
    text
}

#[cfg(test)]
mod tests {
    use api::SyncPaused;

    use super::*;

    #[test]
    fn a_sync_is_one_line() {
        let sync = CopySync {
            total_bytes: 10 << 30,
            left_bytes: 3 << 30,
            copied_bytes: 7 << 30,
            bytes_per_second: 64 << 20,
            seconds_left: Some(48),
            cause: "its node restarted".into(),
            since: None,
            limited_by: None,
            waits_for: None,
            paused: None,
        };
        let paused = SyncPaused { by: "eva".into(), since: 1_795_348_984 };
        let waits_for = Some("an administrator to resume it".into());
        let stopped = CopySync { paused: Some(paused), waits_for, ..sync.clone() };
        assert!(sync_line(&stopped).ends_with(
            "; cause: its node restarted; PAUSED by eva since 2026-11-22 12:03:04Z (ursa job list, ursa job resume)"
        ));
        assert_eq!(sync_line(&sync), "3G of 10G left to copy, 64M/s, 48s to go; cause: its node restarted");
        let limited = CopySync { limited_by: Some(SyncRestraint::ClusterLimit), ..sync.clone() };
        assert_eq!(
            sync_line(&limited),
            "3G of 10G left to copy, 64M/s, 48s to go; cause: its node restarted; limited by the cluster's resync limit (ursa node resync-limit)"
        );
        let waits_for = Some("node 3 to be reachable again (heartbeat timeout)".into());
        let still = CopySync { bytes_per_second: 0, seconds_left: None, waits_for, ..sync };
        assert_eq!(
            sync_line(&still),
            "3G of 10G left to copy; cause: its node restarted; WAITING for node 3 to be reachable again (heartbeat timeout)"
        );
    }
}
