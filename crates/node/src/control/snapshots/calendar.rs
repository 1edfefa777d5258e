//! Days, weeks and months, by UTC.

/// Seconds of a day.
pub(super) const DAY: u64 = 86_400;

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
    let (hour, minute, second) = (seconds / 3_600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}Z")
}

/// A time as it is part of a snapshot's name: `2026-11-22T12.03.04Z`.
pub(super) fn stamp(seconds: u64) -> String {
    utc(seconds).replace(' ', "T").replace(':', ".")
}

/// Year, month and day of a time in seconds since 1970.
fn date(seconds: u64) -> (u64, u64, u64) {
    // Days since March 1 of the year 0, in eras of 400 years: leap days are then the last of their year
    // (Hinnant, chrono-compatible date algorithms).
    let days = day(seconds) + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
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
