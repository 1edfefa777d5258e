//! When requests of an open-loop pattern are due: at times of their own, independent of earlier requests.
//!
//! A request that cannot be sent when it is due is late, and its latency counts from when it was due. So a
//! stall of the target shows in all requests that it delayed, not only in the few that were under way
//! (coordinated omission).

use std::time::Duration;

use base::{Instant, Rng};

/// The times at which requests are due: equidistant, in order, without end.
pub(crate) struct Arrivals {
    start: Instant,
    /// Nanoseconds between two requests.
    gap: f64,
    /// The time before the first request, in gaps: it keeps several sequences apart.
    phase: f64,
    count: u64,
}

impl Arrivals {
    /// Sequence `number` of the `of` sequences that together have `rate` requests per second from `start` on.
    pub(crate) fn even(start: Instant, rate: f64, number: usize, of: usize) -> Arrivals {
        Arrivals { start, gap: 1e9 * of as f64 / rate, phase: number as f64 / of as f64, count: 0 }
    }

    /// When the next request is due.
    pub(crate) fn next(&mut self) -> Instant {
        // Computed from the start each time, so that errors do not add up.
        let at = (self.count as f64 + self.phase) * self.gap;
        self.count += 1;
        self.start + Duration::from_nanos(at as u64)
    }
}

/// The times of independent requests, in order, without end: a Poisson process.
pub(crate) struct Poisson {
    rng: Rng,
    /// Nanoseconds between two requests, on average.
    gap: f64,
    /// Nanoseconds from the start to the last request.
    last: f64,
    start: Instant,
}

impl Poisson {
    /// `rate` requests per second from `start` on.
    pub(crate) fn new(start: Instant, rate: f64, rng: Rng) -> Poisson {
        Poisson { rng, gap: 1e9 / rate, last: 0.0, start }
    }

    /// When the next request is due.
    pub(crate) fn next(&mut self) -> Instant {
        // Above zero and at most one: 53 random bits are the precision of an `f64`.
        let uniform = ((self.rng.next() >> 11) + 1) as f64 / (1u64 << 53) as f64;
        self.last -= uniform.ln() * self.gap;
        self.start + Duration::from_nanos(self.last as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn even_arrivals_of_several_sequences_interleave() {
        let start = Instant(1_000);
        let mut two = [0, 1].map(|number| Arrivals::even(start, 4.0, number, 2));
        let at: Vec<u64> = (0..4).map(|turn| two[turn % 2].next().0 - 1_000).collect();
        assert_eq!(at, [0, 250_000_000, 500_000_000, 750_000_000]);
        let mut long = Arrivals::even(Instant(0), 3.0, 0, 1);
        assert_eq!((0..3_000_001).map(|_| long.next()).last(), Some(Instant(1_000_000_000_000_000)));
    }

    /// In a Poisson process the variance of the number of events per interval equals its mean.
    #[test]
    fn arrivals_that_do_not_depend_on_each_other() {
        let mut poisson = Poisson::new(Instant(0), 100.0, Rng::new(1));
        let mut counts = [0u32; 2000];
        loop {
            let at = poisson.next().0 / 100_000_000;
            let Some(count) = counts.get_mut(at as usize) else { break };
            *count += 1;
        }
        let mean = f64::from(counts.iter().sum::<u32>()) / 2000.0;
        let variance = counts.iter().map(|count| (f64::from(*count) - mean).powi(2)).sum::<f64>() / 2000.0;
        assert!((mean - 10.0).abs() < 0.3, "{mean}");
        assert!((variance / mean - 1.0).abs() < 0.15, "{variance}");
    }
}
