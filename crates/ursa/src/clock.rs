//! The wall clock.

use std::time::{SystemTime, UNIX_EPOCH};

/// Seconds since 1970. A clock before that says 0, which makes every token one that has expired.
pub fn unix_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}
