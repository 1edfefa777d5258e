//! How far copies are that are not in sync, in words.

use api::{CopySync, SyncRestraint};

use super::table::{age, size};
use crate::clock::utc;

/// What keeps a sync from going faster, if that is not said otherwise: who has paused it, and since when.
pub(super) fn restraint(restraint: SyncRestraint) -> Option<&'static str> {
    Some(match restraint {
        SyncRestraint::Hosts => "held back by hosts' writes",
        SyncRestraint::NodeLimit => "held back by what its source may give (sync-bytes-per-second-max)",
        SyncRestraint::ClusterLimit => "held back by the cluster's limit (ursa node sync-limit)",
        SyncRestraint::Turn => "its turn is after other volumes",
        SyncRestraint::Paused => return None,
    })
}

/// In one line.
pub(super) fn sync_line(sync: &CopySync) -> String {
    let mut text = format!("{} of {} left to copy", size(sync.left_bytes), size(sync.total_bytes));
    if sync.bytes_per_second > 0 {
        text += &format!(", {} a second", size(sync.bytes_per_second));
    }
    if let Some(seconds) = sync.seconds_left {
        text += &format!(", {} to go", age(seconds));
    }
    text += &format!("; why: {}", sync.cause);
    if let Some(words) = sync.held_back_by.and_then(restraint) {
        text += &format!("; {words}");
    }
    if let Some(paused) = &sync.paused {
        let (by, since) = (paused.by.escape_debug(), utc(paused.since));
        text += &format!("; PAUSED by {by} since {since} (ursa job list, ursa job resume)");
    } else if let Some(what) = &sync.waits_for {
        text += &format!("; IT WAITS for {what}");
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
            cause: "its node was restarted".into(),
            since: None,
            held_back_by: None,
            waits_for: None,
            paused: None,
        };
        let paused = SyncPaused { by: "eva".into(), since: 1_795_348_984 };
        let waits_for = Some("somebody to resume it".into());
        let stopped = CopySync { paused: Some(paused), waits_for, ..sync.clone() };
        assert!(sync_line(&stopped).ends_with(
            "; why: its node was restarted; PAUSED by eva since 2026-11-22 12:03:04Z (ursa job list, ursa job resume)"
        ));
        assert_eq!(
            sync_line(&sync),
            "3G of 10G left to copy, 64M a second, 48s to go; why: its node was restarted"
        );
        let limited = CopySync { held_back_by: Some(SyncRestraint::ClusterLimit), ..sync.clone() };
        assert_eq!(
            sync_line(&limited),
            "3G of 10G left to copy, 64M a second, 48s to go; why: its node was restarted; held back by the cluster's limit (ursa node sync-limit)"
        );
        let waits_for = Some("the link to node 3, of which nothing is heard".into());
        let still = CopySync { bytes_per_second: 0, seconds_left: None, waits_for, ..sync };
        assert_eq!(
            sync_line(&still),
            "3G of 10G left to copy; why: its node was restarted; IT WAITS for the link to node 3, of which nothing is heard"
        );
    }
}
