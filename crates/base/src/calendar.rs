//! Dates by UTC.

/// Seconds of a day.
pub const DAY: u64 = 86_400;

/// Year, month and day of a time in seconds since 1970.
pub fn date(seconds: u64) -> (u64, u64, u64) {
    // Days since March 1 of the year 0, in eras of 400 years: leap days are then the last of their year
    // (Hinnant, chrono-compatible date algorithms).
    let days = seconds / DAY + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

/// The time of day, by UTC, of a time in seconds since 1970: hour, minute and second.
pub fn time_of_day(seconds: u64) -> (u64, u64, u64) {
    (seconds / 3_600 % 24, seconds / 60 % 60, seconds % 60)
}
