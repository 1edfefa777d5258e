//! An instant type of our own, so that the simulator controls time.

use std::ops::{Add, Sub};
use std::time::Duration;

/// Nanoseconds since an arbitrary start (boot in production, the beginning of the run in the simulator).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(pub u64);

impl Instant {
    /// The time since `earlier`; zero if `earlier` is later.
    pub fn since(self, earlier: Instant) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// The first multiple of `period` after this instant: one period later at most.
    ///
    /// Periodic work that waits for beats is due at the same moments as all other work of the node with this
    /// period, or with a multiple of it, whenever each began: a core wakes once for all of it. After a delay
    /// the next beat may follow at once, but there is never more than one in a period.
    pub fn beat_after(self, period: Duration) -> Instant {
        let period = u64::try_from(period.as_nanos()).unwrap_or(u64::MAX).max(1);
        Instant((self.0 - self.0 % period).saturating_add(period))
    }

    /// As [`Instant::beat_after`], with beats that are `offset` later. It is less than the period.
    ///
    /// Work that is to wake a core together with other work, and not in the same turn as work of its kind,
    /// has an offset that is a multiple of the other's period.
    pub fn offset_beat_after(self, period: Duration, offset: Duration) -> Instant {
        let ahead = period.saturating_sub(offset);
        let beat = (self + ahead).beat_after(period);
        Instant(beat.0.saturating_sub(u64::try_from(ahead.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl Add<Duration> for Instant {
    type Output = Instant;
    /// Saturates: 584 years after the start nothing is due any more.
    fn add(self, duration: Duration) -> Instant {
        Instant(self.0.saturating_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl Sub<Instant> for Instant {
    type Output = Duration;
    fn sub(self, earlier: Instant) -> Duration {
        self.since(earlier)
    }
}

crate::shows!(Display for Instant, |it| "{}.{:09}", it.0 / 1_000_000_000, it.0 % 1_000_000_000);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beats_are_the_same_for_all_and_never_further_away_than_a_period() {
        let ms = |ms: u64| Instant(ms * 1_000_000);
        let beat = |now: Instant, period| now.beat_after(Duration::from_millis(period));
        assert_eq!(beat(ms(0), 50), ms(50));
        assert_eq!(beat(Instant(1), 50), ms(50));
        assert_eq!(beat(Instant(49_999_999), 50), ms(50));
        assert_eq!(beat(ms(50), 50), ms(100), "the next one");
        assert_eq!(beat(ms(51), 100), ms(100), "each second one is one of 100 ms");
        assert_eq!(Instant(7).beat_after(Duration::ZERO), Instant(8));
        assert_eq!(Instant(u64::MAX - 1).beat_after(Duration::from_secs(1)), Instant(u64::MAX));
    }

    #[test]
    fn beats_with_an_offset_are_as_far_apart() {
        let ms = |ms: u64| Instant(ms * 1_000_000);
        let beat = |now: u64, offset| {
            ms(now).offset_beat_after(Duration::from_millis(1000), Duration::from_millis(offset))
        };
        assert_eq!([0, 299, 300, 1299, 1300].map(|now| beat(now, 300)), [300, 300, 1300, 1300, 2300].map(ms));
        assert_eq!([0, 999, 1000].map(|now| beat(now, 0)), [1000, 1000, 2000].map(ms));
        assert_eq!([0, 899, 900].map(|now| beat(now, 900)), [900, 900, 1900].map(ms));
    }
}
