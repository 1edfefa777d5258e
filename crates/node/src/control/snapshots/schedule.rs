//! When a schedule's snapshots are due.
//!
//! This is the decision, without I/O. Times in seconds since 1970 and the entry of the cluster's record go
//! in, and comes out whether a snapshot is due, and whether one was missed.
//!
//! Snapshots are due at the multiples of the interval. Only the latest of these times matters: if several
//! have passed without a snapshot, one is taken instead of all of them.

use super::calendar::DAY;
use crate::copies::ScheduleEntry;

/// The shortest interval. Intervals are whole multiples of it.
pub(super) const EVERY_MIN: u64 = 60;
/// The longest interval.
pub(super) const EVERY_MAX: u64 = 366 * DAY;
/// How long after a failed attempt the next one comes.
const RETRY_AFTER: u64 = 60;
/// How late a snapshot is when it counts as missed.
pub(super) const MISSED_AFTER: u64 = 300;
/// A Monday, 00:00 UTC. Multiples of intervals are counted from here: days begin at midnight, and weeks on
/// Mondays.
const MONDAY: u64 = 4 * DAY;
/// How much nodes' clocks may differ. If a snapshot was due later than that in the future, the clock that
/// noted it was wrong.
const CLOCKS_DIFFER_MAX: u64 = DAY;

/// What this node has last done for a schedule, by its own clock, in seconds since 1970.
///
/// The record has what was done last by any node's clock. If clocks differ too much, nodes do not go by what
/// others have noted, and would otherwise take snapshots in turn without end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Own {
    /// For which time it has taken a snapshot.
    pub(super) due: Option<u64>,
    /// When an attempt of it failed.
    pub(super) failed: Option<u64>,
}

/// The time for which this node must take a snapshot now.
pub(super) fn due(schedule: &ScheduleEntry, own: Own, now: u64) -> Option<u64> {
    (next_look(schedule, own, now) <= now).then(|| time_before(now, schedule.every))
}

/// When this node must look at the schedule next, if it does not change; not after `now` if one is due.
pub(super) fn next_look(schedule: &ScheduleEntry, own: Own, now: u64) -> u64 {
    if schedule.paused {
        return u64::MAX;
    }
    let first = first_owed(schedule, own.due, now);
    let Some(failed) = schedule.failed.as_ref().filter(|_| first <= now) else { return first };
    // The clock of the node that has tried may be ahead, and this one may have been set back.
    let failed = Some(failed.at).filter(|at| *at <= now.saturating_add(RETRY_AFTER));
    let failed = failed.max(own.failed.filter(|at| *at <= now));
    failed.map_or(first, |at| at.saturating_add(RETRY_AFTER))
}

/// When the next snapshot is due; in the past if it is late.
pub(super) fn next(schedule: &ScheduleEntry, now: u64) -> Option<u64> {
    (!schedule.paused).then(|| first_owed(schedule, None, now))
}

/// Since when a snapshot has been due that was not taken, if it is so late that it counts as missed.
pub(super) fn missed_since(schedule: &ScheduleEntry, now: u64) -> Option<u64> {
    next(schedule, now).filter(|first| first.saturating_add(MISSED_AFTER) <= now)
}

/// The first time for which there is no snapshot yet, by the record and by what this node has taken itself
/// (`own`); in the past if one is owed.
fn first_owed(schedule: &ScheduleEntry, own: Option<u64>, now: u64) -> u64 {
    let last = schedule.last.as_ref().map(|last| last.due);
    let settled = last.into_iter().chain(own).chain([schedule.since]);
    match settled.filter(|at| *at <= now.saturating_add(CLOCKS_DIFFER_MAX)).max() {
        Some(settled) => time_before(settled, schedule.every).saturating_add(schedule.every),
        None => time_before(now, schedule.every),
    }
}

/// The last multiple of the interval that is not after `at`.
fn time_before(at: u64, every: u64) -> u64 {
    let every = every.max(1);
    at.saturating_sub((at % every + every - MONDAY % every) % every)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::copies::{FailedAttempt, Retention, ScheduleObstacle, ScheduledSnapshot};

    /// 2026-11-22, a Sunday, 00:00 UTC.
    const SUNDAY: u64 = 1_795_305_600;
    const HOUR: u64 = 3_600;
    /// This node has done nothing.
    const NOTHING: Own = Own { due: None, failed: None };

    fn hourly(last: Option<u64>) -> ScheduleEntry {
        ScheduleEntry {
            name: "hourly".into(),
            id: 7,
            volumes: Vec::new(),
            every: HOUR,
            retention: Retention::default(),
            paused: false,
            created: SUNDAY + 600,
            since: SUNDAY + 600,
            last: last.map(|due| ScheduledSnapshot { name: "last".into(), due, at: due + 1 }),
            failed: None,
        }
    }

    fn failed(at: u64) -> Option<FailedAttempt> {
        Some(FailedAttempt { at, obstacle: ScheduleObstacle::TooSlow })
    }

    #[test]
    fn times_are_whole_hours_days_and_weeks_by_utc() {
        let at = SUNDAY + 10 * HOUR + 1_234;
        assert_eq!(time_before(at, HOUR), SUNDAY + 10 * HOUR);
        assert_eq!(time_before(at, 900), SUNDAY + 10 * HOUR + 900);
        assert_eq!(time_before(at, DAY), SUNDAY);
        assert_eq!(time_before(at, 7 * DAY), SUNDAY - 6 * DAY, "Monday");
        assert_eq!(time_before(SUNDAY + DAY, 7 * DAY), SUNDAY + DAY);
        assert_eq!(time_before(100, 7 * DAY), 0);
    }

    #[test]
    fn the_first_one_is_due_at_the_next_whole_interval() {
        let new = hourly(None);
        assert_eq!(due(&new, NOTHING, SUNDAY + 600), None);
        assert_eq!(next(&new, SUNDAY + 600), Some(SUNDAY + HOUR));
        assert_eq!(next_look(&new, NOTHING, SUNDAY + 600), SUNDAY + HOUR);
        assert_eq!(due(&new, NOTHING, SUNDAY + HOUR - 1), None);
        assert_eq!(due(&new, NOTHING, SUNDAY + HOUR), Some(SUNDAY + HOUR));
    }

    #[test]
    fn one_is_taken_for_each_time() {
        let taken = hourly(Some(SUNDAY + HOUR));
        assert_eq!(due(&taken, NOTHING, SUNDAY + 2 * HOUR - 1), None);
        assert_eq!(due(&taken, NOTHING, SUNDAY + 2 * HOUR), Some(SUNDAY + 2 * HOUR));
        assert_eq!(due(&hourly(Some(SUNDAY + 2 * HOUR)), NOTHING, SUNDAY + 2 * HOUR + 5), None);
    }

    #[test]
    fn of_several_that_were_missed_one_is_made_good() {
        let taken = hourly(Some(SUNDAY + HOUR));
        let now = SUNDAY + 9 * HOUR + 700;
        assert_eq!(due(&taken, NOTHING, now), Some(SUNDAY + 9 * HOUR));
        assert_eq!(missed_since(&taken, now), Some(SUNDAY + 2 * HOUR));
        assert_eq!(due(&hourly(Some(SUNDAY + 9 * HOUR)), NOTHING, now), None);
    }

    #[test]
    fn one_is_missed_after_five_minutes() {
        let taken = hourly(Some(SUNDAY + HOUR));
        assert_eq!(missed_since(&taken, SUNDAY + 2 * HOUR + 299), None);
        assert_eq!(missed_since(&taken, SUNDAY + 2 * HOUR + 300), Some(SUNDAY + 2 * HOUR));
        assert_eq!(missed_since(&hourly(Some(SUNDAY + 2 * HOUR)), SUNDAY + 2 * HOUR + 300), None);
    }

    #[test]
    fn a_failed_attempt_is_repeated_after_a_minute() {
        let at = SUNDAY + 2 * HOUR + 3;
        let failing = ScheduleEntry { failed: failed(at), ..hourly(Some(SUNDAY + HOUR)) };
        assert_eq!((due(&failing, NOTHING, at + 59), next_look(&failing, NOTHING, at + 59)), (None, at + 60));
        assert_eq!(due(&failing, NOTHING, at + 60), Some(SUNDAY + 2 * HOUR));
        // The node that has tried had a clock that was far ahead.
        let ahead = ScheduleEntry { failed: failed(at + 30 * DAY), ..hourly(Some(SUNDAY + HOUR)) };
        assert_eq!(due(&ahead, NOTHING, at), Some(SUNDAY + 2 * HOUR));
    }

    #[test]
    fn a_schedule_that_is_paused_owes_nothing() {
        let paused = ScheduleEntry { paused: true, ..hourly(Some(SUNDAY + HOUR)) };
        let now = SUNDAY + 9 * HOUR;
        assert_eq!(
            (due(&paused, NOTHING, now), next(&paused, now), missed_since(&paused, now)),
            (None, None, None)
        );
        // It is resumed.
        let resumed = ScheduleEntry { since: now + 60, ..hourly(Some(SUNDAY + HOUR)) };
        assert_eq!(due(&resumed, NOTHING, now + 61), None);
        assert_eq!(next(&resumed, now + 61), Some(now + HOUR));
    }

    #[test]
    fn a_clock_that_was_far_ahead_does_not_put_snapshots_off() {
        let ahead = hourly(Some(SUNDAY + 400 * DAY));
        assert_eq!(
            due(&ahead, NOTHING, SUNDAY + 5 * HOUR + 1),
            Some(SUNDAY + 5 * HOUR),
            "as if it had not been"
        );
        let never = ScheduleEntry { since: SUNDAY + 400 * DAY, ..hourly(None) };
        assert_eq!(due(&never, NOTHING, SUNDAY + 5 * HOUR + 1), Some(SUNDAY + 5 * HOUR));
        assert_eq!(missed_since(&never, SUNDAY + 5 * HOUR + 1), None);
        assert_eq!(
            due(&hourly(Some(SUNDAY + 6 * HOUR)), NOTHING, SUNDAY + 5 * HOUR),
            None,
            "nodes' clocks differ"
        );
    }

    /// Each of two nodes takes what the other one has noted for the mistake of a wrong clock.
    #[test]
    fn nodes_whose_clocks_differ_by_days_take_one_each_for_each_time() {
        let now = SUNDAY + 5 * HOUR + 1;
        for noted in [SUNDAY + 400 * DAY, SUNDAY - 400 * DAY] {
            let of_other = ScheduleEntry { since: noted, ..hourly(Some(noted)) };
            assert_eq!(due(&of_other, NOTHING, now), Some(SUNDAY + 5 * HOUR));
            let own = Own { due: Some(SUNDAY + 5 * HOUR), failed: None };
            assert_eq!((due(&of_other, own, now), next_look(&of_other, own, now)), (None, SUNDAY + 6 * HOUR));
            assert_eq!(due(&of_other, own, now + HOUR), Some(SUNDAY + 6 * HOUR));
        }
        // This node's clock was far ahead until now.
        let ahead = Own { due: Some(SUNDAY + 400 * DAY), failed: None };
        assert_eq!(due(&hourly(Some(SUNDAY + 4 * HOUR)), ahead, now), Some(SUNDAY + 5 * HOUR));
    }

    #[test]
    fn a_node_repeats_its_own_attempt_after_a_minute_whatever_others_have_noted() {
        let at = SUNDAY + 2 * HOUR + 700;
        let own = Own { due: Some(SUNDAY + HOUR), failed: Some(at) };
        // By clocks that are five minutes behind and ahead.
        for of_other in [at - 300, at + 300] {
            let failing = ScheduleEntry { failed: failed(of_other), ..hourly(Some(SUNDAY + HOUR)) };
            assert_eq!((due(&failing, own, at + 59), next_look(&failing, own, at + 59)), (None, at + 60));
            assert_eq!(due(&failing, own, at + 60), Some(SUNDAY + 2 * HOUR));
            // This node's clock was set back.
            assert_eq!(due(&failing, own, at - 200), due(&failing, NOTHING, at - 200));
        }
        // Somebody has changed the schedule since.
        assert_eq!(due(&hourly(Some(SUNDAY + HOUR)), own, at + 1), Some(SUNDAY + 2 * HOUR));
    }
}
