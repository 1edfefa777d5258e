//! How fast a scrub is, and how much longer it takes.
//!
//! A log volume counts by what is in use: what is not is skipped in no time, and there may be far more of it.
//! Other volumes count by their size. Of them, it is not known in advance how much is skipped.

use std::time::Duration;

use base::Instant;

/// What a scrub has done since it got its turn.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    since: Instant,
    /// The bytes that count, of the whole volume.
    total: u64,
    /// Those of them that were done before it was continued: an estimate.
    before: u64,
    /// Those of them that were done since then.
    done: u64,
}

impl Pace {
    /// A scrub that continues at `from` in a volume of `size` bytes, of which `total` bytes count.
    pub(super) fn new(since: Instant, total: u64, (from, size): (u64, u64)) -> Pace {
        let before = u128::from(total) * u128::from(from.min(size)) / u128::from(size.max(1));
        Pace { since, total, before: before as u64, done: 0 }
    }

    /// The same after this many bytes more.
    pub(super) fn after(self, bytes: u64) -> Pace {
        Pace { done: self.done.saturating_add(bytes), ..self }
    }

    /// How much longer it takes, as far as is known.
    pub(super) fn left(self, now: Instant) -> Option<Duration> {
        let left = self.total.saturating_sub(self.before).saturating_sub(self.done);
        let took = now.since(self.since).as_micros();
        let micros = took.saturating_mul(u128::from(left)).checked_div(u128::from(self.done))?;
        Some(Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn only_what_is_in_use_takes_time() {
        let begin = Instant::default();
        let later = |seconds| begin + Duration::from_secs(seconds);
        // 10 GiB are in use, of 1000.
        let log = Pace::new(begin, 10 * GIB, (0, 1000 * GIB));
        assert_eq!(log.left(later(10)), None, "nobody can say");
        let log = log.after(GIB);
        assert_eq!(log.left(later(100)), Some(Duration::from_secs(900)));
        assert_eq!(log.after(20 * GIB).left(later(100)), Some(Duration::ZERO), "hosts have written");
        // Half of the volume was done before the node restarted.
        let continued = Pace::new(begin, 10 * GIB, (500 * GIB, 1000 * GIB)).after(GIB);
        assert_eq!(continued.left(later(100)), Some(Duration::from_secs(400)));
        let thick = Pace::new(begin, 1000 * GIB, (500 * GIB, 1000 * GIB)).after(100 * GIB);
        assert_eq!(thick.left(later(100)), Some(Duration::from_secs(400)));
    }
}
