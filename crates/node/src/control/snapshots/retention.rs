//! Which of its snapshots a schedule keeps. This is the decision, without I/O.

use std::collections::BTreeSet;

use super::calendar::{day, month, week};
use crate::copies::Retention;

/// How many snapshots a schedule keeps at most. A volume can have 1,000: this leaves room for those that are
/// taken otherwise or are on hold, and for a new one before an old one is deleted.
pub(super) const KEPT_MAX: u32 = 900;

/// A snapshot that a schedule has taken and that is not on hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kept {
    /// When it was taken, in seconds since 1970.
    pub(super) at: u64,
    /// Its number: later ones have higher numbers, whatever the clocks say.
    pub(super) number: u32,
}

/// How many snapshots are kept in all.
pub(super) fn total(retention: Retention) -> u64 {
    let Retention { keep, daily, weekly, monthly } = retention;
    [keep, daily, weekly, monthly].into_iter().map(u64::from).sum()
}

/// The numbers of the snapshots that no rule keeps, oldest first.
pub(super) fn expired(retention: Retention, mut all: Vec<Kept>) -> Vec<u32> {
    // Not by time: if a clock was wrong for a while, what it has taken must not displace what is taken later.
    all.sort_unstable_by_key(|one| one.number);
    let Retention { keep, daily, weekly, monthly } = retention;
    let mut kept: BTreeSet<u32> = all.iter().rev().take(keep as usize).map(|one| one.number).collect();
    kept.extend(last_of_each(&all, daily, day));
    kept.extend(last_of_each(&all, weekly, week));
    kept.extend(last_of_each(&all, monthly, month));
    all.into_iter().map(|one| one.number).filter(|number| !kept.contains(number)).collect()
}

/// The last snapshot of each of the latest `count` periods that have one; `all` in order.
fn last_of_each(all: &[Kept], count: u32, period: fn(u64) -> u64) -> Vec<u32> {
    let mut seen = BTreeSet::new();
    let last_of = all.iter().rev().filter(|one| seen.insert(period(one.at)));
    last_of.take(count as usize).map(|one| one.number).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-11-22, a Sunday, 00:00 UTC.
    const SUNDAY: u64 = 1_795_305_600;
    const HOUR: u64 = 3_600;
    const DAY: u64 = 86_400;

    /// Snapshots at these times, numbered from 1.
    fn at(times: impl IntoIterator<Item = u64>) -> Vec<Kept> {
        times.into_iter().zip(1..).map(|(at, number)| Kept { at, number }).collect()
    }

    fn kept(retention: Retention, all: &[Kept]) -> Vec<u32> {
        let expired = expired(retention, all.to_vec());
        all.iter().map(|one| one.number).filter(|number| !expired.contains(number)).collect()
    }

    const NONE: Retention = Retention { keep: 0, daily: 0, weekly: 0, monthly: 0 };

    #[test]
    fn the_latest_are_kept() {
        let all = at([SUNDAY, SUNDAY + HOUR, SUNDAY + 2 * HOUR]);
        assert_eq!(expired(Retention { keep: 2, ..NONE }, all.clone()), [1]);
        assert!(expired(Retention { keep: 3, ..NONE }, all.clone()).is_empty());
        let mut mixed = all;
        mixed.reverse();
        assert_eq!(expired(Retention { keep: 1, ..NONE }, mixed), [1, 2], "in any order, oldest first");
    }

    #[test]
    fn the_last_of_each_day_is_kept() {
        // Saturday 22:00 and 23:00, Sunday 00:00 and 10:00.
        let all = at([SUNDAY - 2 * HOUR, SUNDAY - HOUR, SUNDAY, SUNDAY + 10 * HOUR]);
        assert_eq!(kept(Retention { daily: 1, ..NONE }, &all), [4]);
        assert_eq!(kept(Retention { daily: 2, ..NONE }, &all), [2, 4]);
        assert_eq!(kept(Retention { daily: 9, ..NONE }, &all), [2, 4]);
        assert_eq!(kept(Retention { keep: 2, daily: 2, ..NONE }, &all), [2, 3, 4], "one rule suffices");
    }

    #[test]
    fn days_without_a_snapshot_do_not_count() {
        let all = at([SUNDAY - 40 * DAY, SUNDAY - 9 * DAY, SUNDAY]);
        assert_eq!(kept(Retention { daily: 2, ..NONE }, &all), [2, 3]);
    }

    #[test]
    fn weeks_begin_on_mondays() {
        // Saturday, Sunday, Monday, Tuesday.
        let all = at([SUNDAY - DAY, SUNDAY + 23 * HOUR, SUNDAY + DAY, SUNDAY + 2 * DAY]);
        assert_eq!(kept(Retention { weekly: 2, ..NONE }, &all), [2, 4]);
    }

    #[test]
    fn the_last_of_each_month_is_kept() {
        // November 22, 29, 30, December 1 and 31, January 1.
        let days = [0, 7, 8, 9, 39, 40].map(|days| SUNDAY + days * DAY);
        let all = at(days);
        assert_eq!(kept(Retention { monthly: 3, ..NONE }, &all), [3, 5, 6]);
        assert_eq!(kept(Retention { monthly: 2, ..NONE }, &all), [5, 6]);
    }

    #[test]
    fn a_clock_that_was_wrong_for_a_while_does_not_displace_later_snapshots() {
        let every = Retention { keep: 2, daily: 2, ..NONE };
        // Friday, Saturday, three by the wrong clock, Sunday 01:00 and 02:00.
        for wrong in [SUNDAY + 4_000 * DAY, SUNDAY - 4_000 * DAY] {
            let right = [SUNDAY - 2 * DAY, SUNDAY - DAY];
            let leapt = [0, HOUR, 2 * HOUR].map(|later| wrong + later);
            let all = at(right.into_iter().chain(leapt).chain([SUNDAY + HOUR, SUNDAY + 2 * HOUR]));
            assert_eq!(kept(Retention { keep: 3, ..NONE }, &all), [5, 6, 7]);
            assert_eq!(kept(Retention { daily: 3, ..NONE }, &all), [2, 5, 7], "its day counts as one");
            assert_eq!(kept(every, &all), [5, 6, 7]);
            // While the clock was wrong.
            assert_eq!(kept(every, &all[..3]), [2, 3]);
        }
    }

    /// Two nodes take turns around midnight, and the second one's clock is behind.
    #[test]
    fn a_day_counts_once_if_clocks_differ() {
        let all = at([SUNDAY - DAY - HOUR, SUNDAY - HOUR, SUNDAY, SUNDAY - 1]);
        assert_eq!(kept(Retention { daily: 3, ..NONE }, &all), [1, 3, 4]);
    }

    /// The rule is applied after each snapshot: what it keeps in the end is what it would keep of all.
    #[test]
    fn hourly_snapshots_of_a_year_leave_days_weeks_and_months() {
        let retention = Retention { keep: 24, daily: 7, weekly: 4, monthly: 12 };
        let (mut there, mut all) = (Vec::new(), Vec::new());
        for number in 0..366 * 24 {
            let one = Kept { at: SUNDAY + u64::from(number) * HOUR, number };
            there.push(one);
            all.push(one);
            let expired = expired(retention, there.clone());
            there.retain(|one| !expired.contains(&one.number));
            assert!(there.len() as u64 <= total(retention));
        }
        let expected = expired(retention, all.clone());
        all.retain(|one| !expected.contains(&one.number));
        assert_eq!(there, all);
        // The newest one is also the last of its day, week and month, and one day is a Sunday.
        assert_eq!(there.len(), 24 + 6 + 2 + 11);
    }
}
