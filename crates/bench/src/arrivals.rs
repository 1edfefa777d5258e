//! When requests of an open-loop pattern are due: at times of their own, whatever becomes of those before.
//!
//! A request that cannot be sent when it is due is late, and its latency counts from when it was due. So a stall of the
//! target shows in all the requests that it delayed, not only in the few that were under way (coordinated omission).

use std::time::Duration;

use base::Instant;

/// The times at which requests are due, at equal distances, in order and without an end.
pub(crate) struct Arrivals {
    start: Instant,
    /// Nanoseconds between two.
    gap: f64,
    /// Before the first, in gaps: keeps several sequences apart.
    phase: f64,
    count: u64,
}

impl Arrivals {
    /// `rate` a second from `start` on, of which this is the sequence number `number` of `of` with equal parts.
    pub(crate) fn even(start: Instant, rate: f64, number: usize, of: usize) -> Arrivals {
        Arrivals { start, gap: 1e9 * of as f64 / rate, phase: number as f64 / of as f64, count: 0 }
    }

    /// When the next one is due.
    pub(crate) fn next(&mut self) -> Instant {
        // From the start each time: no error adds up.
        let at = (self.count as f64 + self.phase) * self.gap;
        self.count += 1;
        self.start + Duration::from_nanos(at as u64)
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
}
