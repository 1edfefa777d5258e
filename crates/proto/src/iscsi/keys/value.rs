//! Values: numbers, booleans and binary strings written as text (RFC 7143 6.1).

/// Parses a decimal or hexadecimal (`0x`) number.
pub fn parse_number(text: &str) -> Option<u64> {
    match strip_base(text, b'x') {
        Some(digits) => all(digits, u8::is_ascii_hexdigit).then(|| u64::from_str_radix(digits, 16).ok())?,
        None => all(text, u8::is_ascii_digit).then(|| text.parse().ok())?,
    }
}

/// Parses `Yes` or `No`.
pub fn parse_boolean(text: &str) -> Option<bool> {
    match text {
        "Yes" => Some(true),
        "No" => Some(false),
        _ => None,
    }
}

/// Returns `Yes` or `No`.
pub fn boolean(value: bool) -> &'static str {
    if value { "Yes" } else { "No" }
}

/// Parses a binary string of at most `len_max` bytes: `0x` and pairs of hexadecimal digits, or `0b` and
/// base64.
pub fn parse_binary(text: &str, len_max: usize) -> Option<Vec<u8>> {
    let bytes = match (strip_base(text, b'x'), strip_base(text, b'b')) {
        (Some(digits), _) if digits.len() <= 2 * len_max => parse_hexadecimal(digits)?,
        (_, Some(digits)) if digits.len() <= len_max.div_ceil(3) * 4 => parse_base64(digits)?,
        _ => return None,
    };
    (bytes.len() <= len_max).then_some(bytes)
}

/// Writes a binary string as `0x` and hexadecimal digits, since not every side supports base64.
pub fn binary(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = String::with_capacity(2 + 2 * bytes.len());
    text.push_str("0x");
    for byte in bytes {
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
    text
}

/// The digits after `0x` or `0b`; the letter may have either case.
fn strip_base(text: &str, base: u8) -> Option<&str> {
    let [b'0', letter, ..] = text.as_bytes() else { return None };
    (letter.eq_ignore_ascii_case(&base)).then(|| &text[2..])
}

fn all(text: &str, test: impl Fn(&u8) -> bool) -> bool {
    !text.is_empty() && text.bytes().all(|byte| test(&byte))
}

fn parse_hexadecimal(digits: &str) -> Option<Vec<u8>> {
    let (pairs, rest) = digits.as_bytes().as_chunks::<2>();
    if !rest.is_empty() || pairs.is_empty() {
        return None;
    }
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?)).collect()
}

/// Parses padded base64 (RFC 4648 section 4).
fn parse_base64(digits: &str) -> Option<Vec<u8>> {
    let data = digits.trim_end_matches('=');
    let padding = digits.len() - data.len();
    if digits.is_empty() || !digits.len().is_multiple_of(4) || padding > 2 {
        return None;
    }
    let mut bytes = Vec::with_capacity(digits.len() / 4 * 3);
    let (mut bits, mut count) = (0u32, 0);
    for digit in data.bytes() {
        let value = match digit {
            b'A'..=b'Z' => digit - b'A',
            b'a'..=b'z' => digit - b'a' + 26,
            b'0'..=b'9' => digit - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = bits << 6 | u32::from(value);
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
            bits &= (1 << count) - 1;
        }
    }
    (bits == 0).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn numbers() {
        assert_eq!(parse_number("262144"), Some(262_144));
        assert_eq!(parse_number("0x1fF"), Some(511));
        assert_eq!(parse_number("0"), Some(0));
        for text in ["", "0x", "-1", "+1", "1 ", "0b1", "ten", "18446744073709551616", "?"] {
            assert_eq!(parse_number(text), None, "{text}");
        }
    }

    /// RFC 4648 section 10.
    #[test]
    fn base64_of_the_rfc() {
        for (text, bytes) in [
            ("0bZg==", "f"),
            ("0BZm8=", "fo"),
            ("0bZm9v", "foo"),
            ("0bZm9vYg==", "foob"),
            ("0bZm9vYmFy", "foobar"),
        ] {
            assert_eq!(parse_binary(text, 6).as_deref(), Some(bytes.as_bytes()), "{text}");
        }
        for text in ["0b", "0bZg=", "0bZg", "0bZ===", "0bZh==", "0bZ!==", "0b===="] {
            assert_eq!(parse_binary(text, 6), None, "{text}");
        }
    }

    #[test]
    fn hexadecimal() {
        assert_eq!(parse_binary("0X00ffA5", 3), Some(vec![0x00, 0xff, 0xa5]));
        for text in ["0x", "0x1", "0x0g", "00ff", "0x00ffa5a5", "0xé", "0"] {
            assert_eq!(parse_binary(text, 3), None, "{text}");
        }
        assert_eq!(binary(&[0x00, 0xff, 0xa5]), "0x00ffa5");
    }

    proptest! {
        #[test]
        fn never_panics(text in ".{0,40}") {
            let _ = (parse_number(&text), parse_boolean(&text), parse_binary(&text, 16));
        }

        #[test]
        fn binary_values_round_trip(bytes in proptest::collection::vec(any::<u8>(), 1..40)) {
            prop_assert_eq!(parse_binary(&binary(&bytes), bytes.len()), Some(bytes.clone()));
            prop_assert_eq!(parse_binary(&binary(&bytes), bytes.len() - 1), None);
        }
    }
}
