//! Measures how long the turns of a core take: an incoming request waits at most one turn before the core
//! looks at it.
//!
//! A turn is measured from one look at the ring to the next, or from the end of a wait. It includes the
//! kernel's work on requests of tasks in between, and whatever else used the processor meanwhile. The
//! kernel's work directly before the core sleeps is not included.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use base::Instant;

/// The upper bounds of the buckets in nanoseconds: 5 µs to 1 s. They include the round numbers that are of
/// interest: how many turns take longer than 0.1, 0.5 or 1 ms.
const BOUNDS: [u64; TURN_BUCKETS - 1] = [
    5_000,
    10_000,
    25_000,
    50_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    25_000_000,
    50_000_000,
    100_000_000,
    250_000_000,
    1_000_000_000,
];

/// The number of buckets; the last has no bound.
pub const TURN_BUCKETS: usize = 17;

/// The longest turn is remembered at least this long, and at most twice as long: a reader that reads twice in
/// this time sees each.
const LATELY: Duration = Duration::from_secs(30);

/// The upper bound of bucket `index`; `None` for the last, which has none.
pub fn turn_bound(index: usize) -> Option<Duration> {
    BOUNDS.get(index).copied().map(Duration::from_nanos)
}

/// The turns of a core that found work. All but [`Turns::longest`] only grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Turns {
    /// By bucket ([`turn_bound`]), not cumulative.
    pub counts: [u64; TURN_BUCKETS],
    /// The total time.
    pub time: Duration,
    /// The longest of the last half minute, or of the last minute.
    pub longest: Duration,
}

/// The shared side of [`Turns`]. One writer, no order between the fields: they are for metrics.
#[derive(Default)]
pub(super) struct TurnCounters {
    counts: [AtomicU64; TURN_BUCKETS],
    time_ns: AtomicU64,
    /// When the current period of the longest turn began.
    since_ns: AtomicU64,
    /// The longest since then, and the longest of the period before, if the two are adjacent.
    longest_ns: AtomicU64,
    longest_before_ns: AtomicU64,
}

impl TurnCounters {
    /// Records a turn of the core.
    pub(super) fn record(&self, began: Instant, ended: Instant) {
        let nanos = ended.0.saturating_sub(began.0);
        let bucket = BOUNDS.partition_point(|bound| *bound < nanos);
        grow(&self.counts[bucket], 1);
        grow(&self.time_ns, nanos);
        let longest = self.longest_ns.load(Ordering::Relaxed);
        let lasts = ended.since(self.since());
        if lasts < LATELY {
            if nanos > longest {
                self.longest_ns.store(nanos, Ordering::Relaxed);
            }
            return;
        }
        let before = if lasts < 2 * LATELY { longest } else { 0 };
        self.longest_before_ns.store(before, Ordering::Relaxed);
        self.longest_ns.store(nanos, Ordering::Relaxed);
        self.since_ns.store(ended.0, Ordering::Relaxed);
    }

    pub(super) fn read(&self, now: Instant) -> Turns {
        let longest = self.longest_ns.load(Ordering::Relaxed);
        let lasts = now.since(self.since());
        let longest = if lasts < LATELY {
            longest.max(self.longest_before_ns.load(Ordering::Relaxed))
        } else if lasts < 2 * LATELY {
            longest
        } else {
            0
        };
        Turns {
            counts: std::array::from_fn(|bucket| self.counts[bucket].load(Ordering::Relaxed)),
            time: Duration::from_nanos(self.time_ns.load(Ordering::Relaxed)),
            longest: Duration::from_nanos(longest),
        }
    }

    fn since(&self) -> Instant {
        Instant(self.since_ns.load(Ordering::Relaxed))
    }
}

/// Only the core itself writes, so no atomic addition is needed.
fn grow(counter: &AtomicU64, by: u64) {
    counter.store(counter.load(Ordering::Relaxed).saturating_add(by), Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Instant = Instant(1_000_000_000_000);

    fn record(counters: &TurnCounters, ended: Instant, took: Duration) {
        counters.record(Instant(ended.0 - took.as_nanos() as u64), ended);
    }

    #[test]
    fn bounds_are_inclusive_and_the_last_bucket_takes_all() {
        for (nanos, bucket) in [
            (0, 0),
            (5_000, 0),
            (5_001, 1),
            (100_000, 4),
            (100_001, 5),
            (500_000, 6),
            (1_000_000, 7),
            (1_000_001, 8),
            (1_000_000_000, 15),
            (1_000_000_001, 16),
            (3_600_000_000_000, 16),
        ] {
            let counters = TurnCounters::default();
            counters.record(Instant(7), Instant(7 + nanos));
            let turns = counters.read(START);
            assert_eq!(turns.counts.iter().position(|count| *count == 1), Some(bucket), "{nanos} ns");
            assert_eq!(turns.time, Duration::from_nanos(nanos));
        }
        assert_eq!(turn_bound(4), Some(Duration::from_micros(100)));
        assert_eq!(turn_bound(15), Some(Duration::from_secs(1)));
        assert_eq!(turn_bound(TURN_BUCKETS - 1), None);
        assert!(BOUNDS.is_sorted());
    }

    #[test]
    fn the_longest_is_remembered_for_a_while_and_then_forgotten() {
        let counters = TurnCounters::default();
        let longest = |after: Duration| counters.read(START + after).longest;
        let (long, short) = (Duration::from_millis(7), Duration::from_micros(20));
        assert_eq!(longest(Duration::ZERO), Duration::ZERO);
        record(&counters, START, long);
        record(&counters, START + Duration::from_secs(1), short);
        assert_eq!(longest(Duration::from_secs(2)), long);
        record(&counters, START + LATELY, short);
        assert_eq!(longest(LATELY), long, "it may not have been asked for yet");
        record(&counters, START + 2 * LATELY, short);
        assert_eq!(longest(2 * LATELY), short);
        assert_eq!(longest(4 * LATELY), Duration::ZERO, "there was none for a while");
        record(&counters, START + 9 * LATELY, long);
        record(&counters, START + 11 * LATELY, short);
        assert_eq!(longest(11 * LATELY), short, "the one before is long ago");
    }
}
