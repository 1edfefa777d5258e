//! How long to wait before a portal is tried again.

use std::time::Duration;

/// The wait after the first failure; it doubles with each further one.
const FIRST: Duration = Duration::from_millis(100);

/// The longest wait.
pub(super) const MAX: Duration = Duration::from_secs(5);

/// A session that lasted this long was not a failure: the waits start again.
const STABLE: Duration = Duration::from_secs(30);

/// The waits between attempts at one portal.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    failures: u32,
}

impl Backoff {
    /// Notes that a session has ended, and how long it lasted.
    pub(super) fn lived(&mut self, time: Duration) {
        if time >= STABLE {
            self.failures = 0;
        }
    }

    /// How long to wait before the next attempt.
    ///
    /// The first attempt comes at once. The others are spread by `random`, so that clients that failed
    /// together do not return together.
    pub(super) fn next(&mut self, random: u64) -> Duration {
        let failures = self.failures;
        self.failures = failures.saturating_add(1);
        if failures == 0 {
            return Duration::ZERO;
        }
        let wait = FIRST.saturating_mul(1 << (failures - 1).min(16)).min(MAX);
        wait / 2 + Duration::from_nanos(random % (wait.as_nanos() as u64 / 2).max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_their_limit() {
        let mut backoff = Backoff::default();
        let waits: Vec<_> = (0..12).map(|_| backoff.next(0)).collect();
        assert_eq!(waits[..4], [0, 50, 100, 200].map(Duration::from_millis));
        assert_eq!(waits[11], MAX / 2);
        assert!(backoff.next(u64::MAX) <= MAX);
        backoff.lived(STABLE / 2);
        assert!(!backoff.next(0).is_zero());
        backoff.lived(STABLE);
        assert!(backoff.next(0).is_zero());
    }
}
