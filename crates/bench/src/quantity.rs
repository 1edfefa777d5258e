//! Formats quantities for display and for records.

/// A size in bytes for people, exact: `4K`, `1536M`, `1000`. Suffixes are powers of 1024.
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

/// A number in few characters: `1.5k`, `20M`, `0.25`.
pub(crate) fn compact(number: f64) -> String {
    let (scaled, suffix) = match number.abs() {
        size if size >= 1e9 => (number / 1e9, "G"),
        size if size >= 1e6 => (number / 1e6, "M"),
        size if size >= 1e3 => (number / 1e3, "k"),
        _ => (number, ""),
    };
    let text = match scaled.abs() {
        size if size >= 100.0 => format!("{scaled:.0}"),
        size if size >= 1.0 => format!("{scaled:.1}"),
        _ => format!("{scaled:.2}"),
    };
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text}{suffix}")
}

/// Microseconds in a suitable unit: `85.2 µs`, `1.5 ms`, `2 s`.
pub fn micros(micros: f64) -> String {
    let (scaled, unit) = match micros {
        size if size >= 1e6 => (micros / 1e6, "s"),
        size if size >= 1e3 => (micros / 1e3, "ms"),
        _ => (micros, "µs"),
    };
    format!("{} {unit}", compact(scaled))
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
    fn narrow_places_have_short_numbers() {
        let shown = [0.0, 0.25, 1.0, 12.5, 999.4, 1500.0, 20e6, 121_306.0].map(compact);
        assert_eq!(shown, ["0", "0.25", "1", "12.5", "999", "1.5k", "20M", "121k"]);
        let shown = [85.23, 100.0, 1500.0, 49_611.0, 2e6].map(micros);
        assert_eq!(shown, ["85.2 µs", "100 µs", "1.5 ms", "49.6 ms", "2 s"]);
    }

    #[test]
    fn large_numbers_are_grouped() {
        let shown = [0.4, 999.0, 1000.0, 1234567.4, -1000.0].map(grouped);
        assert_eq!(shown, ["0", "999", "1,000", "1,234,567", "-1,000"]);
    }
}
