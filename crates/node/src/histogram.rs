//! Latencies in buckets that Prometheus can sum.

use std::time::Duration;

/// The number of buckets. Their upper bounds are 4 µs, doubled up to 4.2 s; the last bucket has none.
pub const BUCKETS: usize = 22;

/// The upper bound of bucket `index`; `None` for the last, which has none.
pub fn bucket_bound(index: usize) -> Option<Duration> {
    (index + 1 < BUCKETS).then(|| Duration::from_micros(4 << index))
}

/// How many operations had which latency.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    /// Operations per bucket, not cumulative.
    pub counts: [u64; BUCKETS],
    /// The sum of all latencies, in nanoseconds.
    pub sum: u64,
}

impl Histogram {
    /// Counts one operation.
    pub fn record(&mut self, duration: Duration) {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        // The smallest index with nanos <= 4_000 << index.
        let quotient = nanos.saturating_sub(1) / 4_000;
        let index = (u64::BITS - quotient.leading_zeros()) as usize;
        self.counts[index.min(BUCKETS - 1)] += 1;
        self.sum = self.sum.saturating_add(nanos);
    }

    /// Adds the counts of another core.
    pub fn add(&mut self, other: &Histogram) {
        self.counts.iter_mut().zip(other.counts).for_each(|(count, more)| *count += more);
        self.sum = self.sum.saturating_add(other.sum);
    }

    /// The number of operations.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_inclusive() {
        for (micros, bucket) in [(0, 0), (4, 0), (8, 1), (16, 2), (4_194_304, 20)] {
            for (nanos, bucket) in
                [(micros * 1000, bucket), (micros * 1000 + 1, if micros == 0 { 0 } else { bucket + 1 })]
            {
                let mut histogram = Histogram::default();
                histogram.record(Duration::from_nanos(nanos));
                assert_eq!(histogram.counts.iter().position(|count| *count == 1), Some(bucket), "{nanos} ns");
            }
        }
        assert_eq!(bucket_bound(0), Some(Duration::from_micros(4)));
        assert_eq!(bucket_bound(20), Some(Duration::from_micros(4_194_304)));
        assert_eq!(bucket_bound(21), None);
    }

    #[test]
    fn hours_fit_in_the_last() {
        let mut histogram = Histogram::default();
        histogram.record(Duration::MAX);
        assert_eq!(histogram.counts[BUCKETS - 1], 1);
        assert_eq!(histogram.count(), 1);
    }
}
