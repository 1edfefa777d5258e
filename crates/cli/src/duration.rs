//! Durations as people write them: `90s`, `30m`, `1h`, `2d`.

use std::time::Duration;

/// The text is not a duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a duration: use 90s, 30m, 1h or 2d")]
pub struct InvalidDuration(String);

/// Parses a whole number and its unit.
pub fn parse_duration(text: &str) -> Result<Duration, InvalidDuration> {
    let seconds = || {
        let unit = text.chars().last()?;
        let number = text.strip_suffix(unit)?;
        let seconds: u64 = match unit {
            's' => 1,
            'm' => 60,
            'h' => 3_600,
            'd' => 86_400,
            _ => return None,
        };
        // `parse` alone would accept a sign.
        let digits = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
        digits.then(|| number.parse::<u64>().ok()?.checked_mul(seconds))?
    };
    seconds().map(Duration::from_secs).ok_or_else(|| InvalidDuration(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_a_unit() {
        for (text, seconds) in [("0s", 0), ("90s", 90), ("30m", 1_800), ("1h", 3_600), ("2d", 172_800)] {
            assert_eq!(parse_duration(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for text in ["", "1", "h", "-1h", "+1h", "1.5h", "1h30m", "1 h", "1é", "99999999999999999999d"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }
}
