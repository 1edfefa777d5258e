//! The wall clock.

use std::time::{SystemTime, UNIX_EPOCH};

/// Seconds since 1970.
///
/// A clock before 1970 yields 0, at which every token has expired.
pub fn unix_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// Formats a time in seconds since 1970: `2026-11-22 12:03:04Z`.
pub fn utc(seconds: u64) -> String {
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Days since March 1 of the year 0, in eras of 400 years: leap days are then the last of their year
    // (Hinnant, chrono-compatible date algorithms).
    let day = days + 719_468;
    let (era, of_era) = (day / 146_097, day % 146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::utc;

    #[test]
    fn times_are_read_as_the_system_has_them() {
        // Verified with `date -u -d @SECONDS`.
        assert_eq!(utc(0), "1970-01-01 00:00:00Z");
        assert_eq!(utc(951_782_400), "2000-02-29 00:00:00Z");
        assert_eq!(utc(1_709_251_199), "2024-02-29 23:59:59Z");
        assert_eq!(utc(1_795_348_984), "2026-11-22 12:03:04Z");
        assert_eq!(utc(4_102_444_800), "2100-01-01 00:00:00Z");
    }
}
