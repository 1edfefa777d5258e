//! Whether a core without work should look for some before it sleeps.
//!
//! Sleeping and waking cost a few microseconds of CPU and of latency; looking costs CPU during the whole
//! wait. So looking pays if the wait will be short, and the best guess for the next wait is the last few.

use std::time::Duration;

/// Decides by a moving average of the recent idle times of the core.
pub(super) struct Idle {
    /// The longest time to look.
    limit: Duration,
    /// The moving average of idle times. [`Idle::CAP`] limits how much each counts, so that one long pause is
    /// forgotten after a few short ones.
    average: Duration,
}

impl Idle {
    /// The weight of the newest idle time is 1 / 8.
    const WEIGHT: u32 = 8;
    /// Up to this multiple of the limit an idle time counts in full.
    const CAP: u32 = 4;

    pub(super) fn new(limit: Duration) -> Idle {
        // Sleep at first: a core that has never had work should not use any CPU.
        Idle { limit, average: limit * Idle::CAP }
    }

    /// How long to look for work before sleeping; zero: not at all.
    pub(super) fn look(&self) -> Duration {
        if self.average <= self.limit { self.limit } else { Duration::ZERO }
    }

    /// Work came after an idle time of `gap`.
    pub(super) fn ended(&mut self, gap: Duration) {
        let gap = gap.min(self.limit * Idle::CAP);
        self.average = (self.average * (Idle::WEIGHT - 1) + gap) / Idle::WEIGHT;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_core_polls_only_while_work_arrives_quickly() {
        let limit = Duration::from_micros(20);
        let mut idle = Idle::new(limit);
        assert_eq!(idle.look(), Duration::ZERO);
        (0..16).for_each(|_| idle.ended(Duration::from_micros(2)));
        assert_eq!(idle.look(), limit);
        idle.ended(Duration::from_secs(10));
        assert_eq!(idle.look(), limit, "one pause is no reason to stop");
        (0..3).for_each(|_| idle.ended(Duration::from_secs(10)));
        assert_eq!(idle.look(), Duration::ZERO);
    }

    #[test]
    fn a_limit_of_zero_always_sleeps() {
        let mut idle = Idle::new(Duration::ZERO);
        (0..100).for_each(|_| idle.ended(Duration::ZERO));
        assert_eq!(idle.look(), Duration::ZERO);
    }
}
