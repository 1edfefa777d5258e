//! Time: one true time for the world, and a clock for each node that is wrong in its own way.
//!
//! The time of day is the same on all nodes until clocks drift, stop or leap, or somebody sets it.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use base::Instant;

use crate::executor::Clock;

/// The true time, in nanoseconds since the world began. No node can read it.
#[derive(Clone, Debug, Default)]
pub(super) struct WorldTime(Rc<Cell<u64>>);

impl WorldTime {
    pub(super) fn now(&self) -> u64 {
        self.0.get()
    }

    /// Time only goes forward.
    pub(super) fn advance_to(&self, time: u64) {
        assert!(time >= self.0.get(), "time would go back from {} to {time}", self.0.get());
        self.0.set(time);
    }
}

/// The time of day when a world begins, since 1970: 1970-01-12 13:46:40 UTC.
pub const CALENDAR_START: Duration = Duration::from_secs(1_000_000);

/// How far a clock may be off its rate, in parts per million. Crystals stay within 100; a bad virtual machine
/// does not.
pub const DRIFT_PPM_MAX: i32 = 200_000;

/// The clock of one node: it starts anywhere, runs a little fast or slow, and stops when its machine does.
pub(super) struct NodeClock {
    time: WorldTime,
    /// The true time of the last change of the rate, and what this clock showed then.
    since: Cell<(u64, u64)>,
    drift_ppm: Cell<i32>,
    /// The true time since which it is stopped.
    stopped: Cell<Option<u64>>,
    /// By how many nanoseconds the time of day is ahead of this clock.
    ahead: Cell<i128>,
}

impl NodeClock {
    /// A clock that shows this. Its time of day is right.
    pub(super) fn new(time: WorldTime, shows: u64) -> NodeClock {
        let since = Cell::new((time.now(), shows));
        let ahead = CALENDAR_START.as_nanos() as i128 + i128::from(time.now()) - i128::from(shows);
        NodeClock { time, since, drift_ppm: Cell::new(0), stopped: Cell::new(None), ahead: Cell::new(ahead) }
    }

    /// Stops the clock, and the time of day with it.
    pub(super) fn stop(&self) {
        self.since.set((self.time.now(), self.now().0));
        self.stopped.set(self.stopped.get().or(Some(self.time.now())));
    }

    /// Starts the clock again where it stopped, if it did. With `put_right` the time of day is corrected for
    /// that time.
    pub(super) fn go_on(&self, put_right: bool) {
        let Some(stopped) = self.stopped.take() else { return };
        self.since.set((self.time.now(), self.since.get().1));
        if put_right {
            self.set_time_of_day_by(i128::from(self.time.now() - stopped));
        }
    }

    /// Lets the clock and the time of day leap forward by this many nanoseconds.
    pub(super) fn leap(&self, nanos: u64) {
        self.since.set((self.time.now(), self.now().0.saturating_add(nanos)));
    }

    /// Sets the time of day forward or back by this many nanoseconds.
    pub(super) fn set_time_of_day_by(&self, nanos: i128) {
        self.ahead.set(self.ahead.get() + nanos);
    }

    pub(super) fn set_drift(&self, ppm: i32) {
        assert!(ppm.abs() <= DRIFT_PPM_MAX, "a drift of {ppm} ppm is beyond {DRIFT_PPM_MAX}");
        self.since.set((self.time.now(), self.at(self.time.now())));
        self.drift_ppm.set(ppm);
    }

    /// Starts the clock again with its machine. The time of day has continued while that had no power.
    pub(super) fn restart(&self, shows: u64) {
        self.go_on(true);
        self.set_time_of_day_by(i128::from(self.now().0) - i128::from(shows));
        self.since.set((self.time.now(), shows));
    }

    /// What the clock shows at the true time `time`, which must not be before the last change.
    fn at(&self, time: u64) -> u64 {
        let (from, shown) = self.since.get();
        if self.stopped.get().is_some() {
            return shown;
        }
        let rate = (1_000_000 + i64::from(self.drift_ppm.get())) as u128;
        let elapsed = u128::from(time.saturating_sub(from)) * rate / 1_000_000;
        shown.saturating_add(u64::try_from(elapsed).unwrap_or(u64::MAX))
    }

    /// The earliest true time at which the clock shows `deadline` or more.
    pub(super) fn true_time_of(&self, deadline: Instant) -> u64 {
        let (from, shown) = self.since.get();
        let rate = (1_000_000 + i64::from(self.drift_ppm.get())) as u128;
        let ahead = u128::from(deadline.0.saturating_sub(shown));
        let elapsed = (ahead * 1_000_000).div_ceil(rate);
        from.saturating_add(u64::try_from(elapsed).unwrap_or(u64::MAX))
    }
}

impl Clock for NodeClock {
    fn now(&self) -> Instant {
        Instant(self.at(self.time.now()))
    }

    fn wall(&self) -> u64 {
        let wall = i128::from(self.now().0) + self.ahead.get();
        u64::try_from(wall.max(0)).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The time of day at this many nanoseconds after the beginning of the world.
    fn day(nanos: u64) -> u64 {
        CALENDAR_START.as_nanos() as u64 + nanos
    }

    #[test]
    fn a_deadline_is_reached_at_its_true_time_and_not_before() {
        for ppm in [-200_000, -37, 0, 1, 100, 200_000] {
            let time = WorldTime::default();
            let clock = NodeClock::new(time.clone(), 5_000);
            time.advance_to(123_456_789);
            clock.set_drift(ppm);
            for ahead in [0, 1, 999, 1_000_003, 77_777_777_777] {
                let deadline = Instant(clock.now().0 + ahead);
                let due = clock.true_time_of(deadline);
                assert!(clock.at(due) >= deadline.0, "{ppm} ppm, {ahead} ns");
                assert!(due == time.now() || clock.at(due - 1) < deadline.0, "{ppm} ppm, {ahead} ns");
            }
        }
    }

    #[test]
    fn a_stopped_clock_resumes_where_it_was_and_the_time_of_day_as_set() {
        let time = WorldTime::default();
        let clock = NodeClock::new(time.clone(), 1_000);
        time.advance_to(5_000);
        clock.stop();
        time.advance_to(9_000);
        assert_eq!((clock.now(), clock.wall()), (Instant(6_000), day(5_000)));
        clock.go_on(false);
        assert_eq!(clock.true_time_of(Instant(6_500)), 9_500);
        time.advance_to(10_000);
        assert_eq!((clock.now(), clock.wall()), (Instant(7_000), day(6_000)));
        clock.stop();
        time.advance_to(12_000);
        clock.go_on(true);
        assert_eq!((clock.now(), clock.wall()), (Instant(7_000), day(8_000)));
    }

    #[test]
    fn a_clock_leaps_with_the_time_of_day_which_is_also_set_alone() {
        let time = WorldTime::default();
        let clock = NodeClock::new(time.clone(), 1_000);
        time.advance_to(500);
        clock.leap(10_000);
        assert_eq!((clock.now(), clock.wall()), (Instant(11_500), day(10_500)));
        assert_eq!(clock.true_time_of(Instant(11_600)), 600);
        clock.set_time_of_day_by(-1_000);
        time.advance_to(600);
        assert_eq!((clock.now(), clock.wall()), (Instant(11_600), day(9_600)));
        clock.set_time_of_day_by(-i128::from(day(100_000)));
        assert_eq!(clock.wall(), 0, "there is nothing before 1970");
    }

    #[test]
    fn all_clocks_have_one_time_of_day_whatever_they_show_and_whenever_they_start() {
        let time = WorldTime::default();
        let first = NodeClock::new(time.clone(), 123_456);
        time.advance_to(5_000);
        let second = NodeClock::new(time.clone(), 7);
        assert_eq!((first.wall(), second.wall()), (day(5_000), day(5_000)));
        time.advance_to(6_000);
        first.restart(99);
        second.stop();
        time.advance_to(8_000);
        second.restart(1_000_000);
        assert_eq!((first.now(), second.now()), (Instant(2_099), Instant(1_000_000)));
        assert_eq!((first.wall(), second.wall()), (day(8_000), day(8_000)));
        first.set_time_of_day_by(-50);
        first.restart(4);
        assert_eq!(first.wall(), day(7_950), "what was set stays");
    }

    #[test]
    fn a_change_of_rate_does_not_count_as_a_jump() {
        let time = WorldTime::default();
        let clock = NodeClock::new(time.clone(), 0);
        clock.set_drift(100_000);
        time.advance_to(1_000_000);
        assert_eq!(clock.now(), Instant(1_100_000));
        clock.set_drift(-100_000);
        assert_eq!(clock.now(), Instant(1_100_000));
        time.advance_to(2_000_000);
        assert_eq!(clock.now(), Instant(2_000_000));
    }
}
