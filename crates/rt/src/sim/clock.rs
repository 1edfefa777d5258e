//! Time: one true time for the world, and a clock for each node that is wrong in its own way.

use std::cell::Cell;
use std::rc::Rc;

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
    /// By how many nanoseconds the time of day is ahead of this clock, because someone set it.
    ahead: Cell<i128>,
}

impl NodeClock {
    pub(super) fn new(time: WorldTime, shows: u64) -> NodeClock {
        let since = Cell::new((time.now(), shows));
        NodeClock { time, since, drift_ppm: Cell::new(0), stopped: Cell::new(None), ahead: Cell::new(0) }
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

    /// Starts the clock again with its machine.
    pub(super) fn restart(&self, shows: u64) {
        self.stopped.set(None);
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
        assert_eq!((clock.now(), clock.wall()), (Instant(6_000), 6_000));
        clock.go_on(false);
        assert_eq!(clock.true_time_of(Instant(6_500)), 9_500);
        time.advance_to(10_000);
        assert_eq!((clock.now(), clock.wall()), (Instant(7_000), 7_000));
        clock.stop();
        time.advance_to(12_000);
        clock.go_on(true);
        assert_eq!((clock.now(), clock.wall()), (Instant(7_000), 9_000));
    }

    #[test]
    fn a_clock_leaps_with_the_time_of_day_which_is_also_set_alone() {
        let time = WorldTime::default();
        let clock = NodeClock::new(time.clone(), 1_000);
        time.advance_to(500);
        clock.leap(10_000);
        assert_eq!((clock.now(), clock.wall()), (Instant(11_500), 11_500));
        assert_eq!(clock.true_time_of(Instant(11_600)), 600);
        clock.set_time_of_day_by(-1_000);
        time.advance_to(600);
        assert_eq!((clock.now(), clock.wall()), (Instant(11_600), 10_600));
        clock.set_time_of_day_by(-100_000);
        assert_eq!(clock.wall(), 0, "there is nothing before 1970");
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
