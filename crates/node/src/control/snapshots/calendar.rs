//! Days, weeks and months, by UTC.

pub(super) use base::calendar::DAY;
use base::calendar::{date, time_of_day};

/// The number of a time's day since 1970.
pub(super) fn day(seconds: u64) -> u64 {
    seconds / DAY
}

/// The number of a time's week. Weeks begin on Mondays; 1970 began on a Thursday.
pub(super) fn week(seconds: u64) -> u64 {
    (day(seconds) + 3) / 7
}

/// The number of a time's month since the year 0.
pub(super) fn month(seconds: u64) -> u64 {
    let (year, month, _) = date(seconds);
    year * 12 + month
}

/// A time for people: `2026-11-22 12:03:04Z`.
pub(super) fn utc(seconds: u64) -> String {
    let (year, month, day) = date(seconds);
    let (hour, minute, second) = time_of_day(seconds);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}Z")
}

/// A time as it is part of a snapshot's name: `2026-11-22T12.03.04Z`.
pub(super) fn stamp(seconds: u64) -> String {
    utc(seconds).replace(' ', "T").replace(':', ".")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_the_system_has_them() {
        // Verified with `date -u -d @SECONDS`.
        assert_eq!(utc(0), "1970-01-01 00:00:00Z");
        assert_eq!(utc(951_782_400), "2000-02-29 00:00:00Z");
        assert_eq!(utc(1_709_251_199), "2024-02-29 23:59:59Z");
        assert_eq!(stamp(1_795_348_984), "2026-11-22T12.03.04Z");
        assert_eq!(stamp(4_102_444_800), "2100-01-01T00.00.00Z");
    }

    #[test]
    fn weeks_begin_on_mondays_and_months_on_their_first_day() {
        // 2026-11-22 was a Sunday.
        let sunday = 1_795_348_984;
        assert_eq!(week(sunday + DAY), week(sunday) + 1);
        assert_eq!(week(sunday - 6 * DAY), week(sunday));
        // 2026-12-01, and the new year.
        assert_eq!(month(1_796_083_200), month(1_796_083_199) + 1);
        assert_eq!(month(4_102_444_800), month(4_102_444_799) + 1);
        assert_eq!(month(sunday), 2026 * 12 + 11);
    }
}
