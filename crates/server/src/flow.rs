//! What was read or written between two moments.

use std::time::Duration;

use api::LiveFlow;
use node::{BUCKETS, Histogram, Operation, UnitStats, bucket_bound};

/// Operations of one kind between two moments.
#[derive(Default)]
pub struct Done {
    pub latency: Histogram,
    /// Bytes of the blocks they addressed.
    pub bytes: u64,
}

impl Done {
    /// Operations of this kind, from the counters at both moments.
    pub fn of(operation: Operation, before: &UnitStats, now: &UnitStats) -> Done {
        let kind = operation as usize;
        let (was, is) = (&before.latency[kind], &now.latency[kind]);
        // The counters of a volume restart at zero when its pool is reopened.
        let mut latency = Histogram { sum: is.sum.saturating_sub(was.sum), ..Histogram::default() };
        for bucket in 0..BUCKETS {
            latency.counts[bucket] = is.counts[bucket].saturating_sub(was.counts[bucket]);
        }
        Done { latency, bytes: now.bytes[kind].saturating_sub(before.bytes[kind]) }
    }

    /// Like [`Done::of`]; `None` if a counter has decreased, because the volume counts from zero again.
    pub fn since(operation: Operation, before: &UnitStats, now: &UnitStats) -> Option<Done> {
        let kind = operation as usize;
        let (was, is) = (&before.latency[kind], &now.latency[kind]);
        let mut counts = was.counts.iter().zip(&is.counts);
        let grew = counts.all(|(was, is)| was <= is) && before.bytes[kind] <= now.bytes[kind];
        grew.then(|| Done::of(operation, before, now))
    }

    /// Adds the operations of another volume.
    pub fn add(&mut self, more: &Done) {
        self.latency.add(&more.latency);
        self.bytes += more.bytes;
    }

    pub fn count(&self) -> u64 {
        self.latency.count()
    }

    /// The flow as the API reports it, from operations in this many seconds.
    pub fn flow(&self, seconds: f64) -> LiveFlow {
        let count = self.count();
        LiveFlow {
            operations: count as f64 / seconds,
            bytes: self.bytes as f64 / seconds,
            mean_us: (count > 0).then(|| self.latency.sum as f64 / count as f64 / 1000.0),
            p99_us: self.p99().map(|bound| bound.as_secs_f64() * 1e6),
        }
    }

    /// The upper bound of the 99th percentile's bucket; `None` without operations.
    pub fn p99(&self) -> Option<Duration> {
        let rank = (self.count() * 99).div_ceil(100);
        let mut below = 0;
        let bucket = self.latency.counts.iter().position(|count| {
            below += count;
            rank > 0 && below >= rank
        });
        bucket_bound(bucket?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_99th_of_a_hundred_is_found() {
        let p99 = |fast: u64, slow: u64| {
            let mut done = Done::default();
            (0..fast).for_each(|_| done.latency.record(Duration::from_micros(4)));
            (0..slow).for_each(|_| done.latency.record(Duration::from_micros(1000)));
            done.p99().map(|bound| bound.as_micros())
        };
        assert_eq!(p99(0, 0), None);
        assert_eq!((p99(99, 1), p99(98, 2), p99(0, 1)), (Some(4), Some(1024), Some(1024)));
        let mut endless = Done::default();
        endless.latency.record(Duration::from_secs(60));
        assert_eq!(endless.p99(), None);
    }
}
