//! Quantities as they are shown and recorded.

/// Bytes for people, exact: `4K`, `1536M`, `1000`. Powers of 1024.
pub fn short_size(bytes: u64) -> String {
    let exponent = if bytes == 0 { 0 } else { (bytes.trailing_zeros() / 10).min(4) };
    let suffix = ["", "K", "M", "G", "T"][exponent as usize];
    format!("{}{suffix}", bytes >> (10 * exponent))
}

/// A number with a comma for every three digits: `1,234,567`.
pub fn grouped(number: f64) -> String {
    let digits = format!("{:.0}", number.abs());
    let mut text = if number < 0.0 && digits != "0" { "-".to_owned() } else { String::new() };
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Durations in records: seconds as a number.
pub(crate) mod seconds {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer, de};

    pub(crate) fn serialize<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(duration.as_secs_f64())
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        Duration::try_from_secs_f64(f64::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_exact() {
        let shown = [0, 512, 4096, 1536 << 20, 1 << 40].map(short_size);
        assert_eq!(shown, ["0", "512", "4K", "1536M", "1T"]);
    }

    #[test]
    fn large_numbers_are_grouped() {
        let shown = [0.4, 999.0, 1000.0, 1234567.4, -1000.0].map(grouped);
        assert_eq!(shown, ["0", "999", "1,000", "1,234,567", "-1,000"]);
    }
}
