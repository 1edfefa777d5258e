//! Detects whether a core's clock has stopped while time passed elsewhere.
//!
//! The clock of a virtual machine stops with the machine, and continues where it was. The machine can only
//! notice that if another clock was corrected meanwhile: the time of day, by the hypervisor's tools or by
//! NTP. So the core compares the two at the beginning of each turn. That takes two reads of the vDSO, some 50
//! ns.

use base::Instant;

use crate::executor::Clock;

/// How many nanoseconds one clock may run ahead of the other between two turns without meaning anything. NTP
/// slews by half a thousandth of the time between two turns, which is microseconds on a core that has
/// anything to do.
const STEP: i128 = 10_000_000;

/// Reads of the two clocks within this many nanoseconds count as simultaneous.
const TOGETHER: u64 = 1_000_000;

/// How often the clocks are read before the last reading counts, if they seem to have moved.
const TRIES: u32 = 4;

/// See the module.
#[derive(Debug)]
pub(crate) struct Stops {
    /// How far the time of day was ahead of the clock at the last turn.
    ahead: i128,
    count: u64,
}

impl Stops {
    pub(crate) fn new(clock: &dyn Clock) -> Stops {
        Stops { ahead: ahead(clock), count: 0 }
    }

    /// Compares the clocks at the beginning of a turn.
    pub(crate) fn look(&mut self, clock: &dyn Clock) {
        if (ahead(clock) - self.ahead).abs() <= STEP {
            return;
        }
        // The thread may have been delayed between the two reads.
        let ahead = ahead_together(clock);
        if ahead - self.ahead > STEP {
            self.count += 1;
        }
        if (ahead - self.ahead).abs() > STEP {
            self.ahead = ahead;
        }
    }

    pub(crate) fn count(&self) -> u64 {
        self.count
    }
}

fn ahead(clock: &dyn Clock) -> i128 {
    difference(clock.wall(), clock.now())
}

fn ahead_together(clock: &dyn Clock) -> i128 {
    let mut tries = 1;
    loop {
        let before = clock.now();
        let wall = clock.wall();
        let after = clock.now();
        if after.0 - before.0 <= TOGETHER || tries == TRIES {
            return difference(wall, before);
        }
        tries += 1;
    }
}

fn difference(wall: u64, now: Instant) -> i128 {
    i128::from(wall) - i128::from(now.0)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[derive(Default)]
    struct Clocks {
        now: Cell<u64>,
        wall: Cell<u64>,
        /// Each read delays the thread by this much.
        held_up: Cell<u64>,
    }

    impl Clocks {
        fn pass(&self, now_ms: u64, wall_ms: u64) {
            self.now.set(self.now.get() + now_ms * 1_000_000);
            self.wall.set(self.wall.get() + wall_ms * 1_000_000);
        }
    }

    impl Clock for Clocks {
        fn now(&self) -> Instant {
            let now = self.now.get();
            let held_up = self.held_up.take();
            self.pass(held_up, held_up);
            Instant(now)
        }

        fn wall(&self) -> u64 {
            let wall = self.wall.get();
            let held_up = self.held_up.take();
            self.pass(held_up, held_up);
            wall
        }
    }

    #[test]
    fn a_clock_that_stops_while_the_time_of_day_runs_is_noticed_once() {
        let clocks = Clocks::default();
        clocks.pass(0, 5000);
        let mut stops = Stops::new(&clocks);
        clocks.pass(3_600_000, 3_600_000);
        stops.look(&clocks);
        assert_eq!(stops.count(), 0, "an hour without a turn, by both clocks");
        clocks.pass(3, 903);
        stops.look(&clocks);
        stops.look(&clocks);
        assert_eq!(stops.count(), 1);
    }

    #[test]
    fn slews_add_up_and_steps_back_mean_nothing() {
        let clocks = Clocks::default();
        clocks.pass(0, 5000);
        let mut stops = Stops::new(&clocks);
        clocks.pass(1000, 0);
        stops.look(&clocks);
        assert_eq!(stops.count(), 0, "set back by a second");
        clocks.pass(1, 12);
        stops.look(&clocks);
        assert_eq!(stops.count(), 1, "from there");
    }

    #[test]
    fn a_thread_delayed_between_two_reads_does_not_report_a_stopped_clock() {
        let clocks = Clocks::default();
        let mut stops = Stops::new(&clocks);
        for _ in 0..5 {
            clocks.held_up.set(300);
            stops.look(&clocks);
        }
        assert_eq!(stops.count(), 0);
    }
}
