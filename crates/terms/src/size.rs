//! Sizes as people write them: `10G` is ten times 2^30 bytes.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A number of bytes, written with a binary suffix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "String")]
pub struct Size(pub u64);

/// The text is not a size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a size: use 512M, 10G or 1.5T (K, M, G, T and P are powers of 1024), or bytes without a suffix"
)]
pub struct InvalidSize(String);

/// The suffixes, smallest first: each is 1024 times the one before.
const SUFFIXES: [char; 5] = ['K', 'M', 'G', 'T', 'P'];

/// A size in a file: `"10G"`, or bytes without quotes.
#[derive(Deserialize)]
#[serde(untagged)]
enum Written {
    Bytes(u64),
    Text(String),
}

impl FromStr for Size {
    type Err = InvalidSize;

    fn from_str(text: &str) -> Result<Size, InvalidSize> {
        parse(text).map(Size).ok_or_else(|| InvalidSize(text.to_owned()))
    }
}

fn parse(text: &str) -> Option<u64> {
    let upper = text.trim().to_ascii_uppercase();
    // 10G, 10GB and 10GiB mean the same, as in most storage tools.
    let short = upper.strip_suffix("IB").or_else(|| upper.strip_suffix('B')).unwrap_or(&upper);
    let exponent = SUFFIXES.iter().position(|suffix| short.ends_with(*suffix)).map_or(0, |at| at + 1);
    if exponent == 0 && short.len() + 1 < upper.len() {
        return None;
    }
    let number = if exponent == 0 { short } else { &short[..short.len() - 1] }.trim_end();
    let unit = 1u64 << (10 * exponent);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    // With nine digits, the largest unit fits into 128 bits easily.
    if !digits(whole) || !digits(fraction) || fraction.len() > 9 {
        return None;
    }
    let scale = 10u128.pow(fraction.len() as u32);
    let part = u128::from(unit) * fraction.parse::<u128>().ok()?;
    // A fraction of a byte is not a size.
    if part % scale != 0 {
        return None;
    }
    let rest = u64::try_from(part / scale).ok()?;
    whole.parse::<u64>().ok()?.checked_mul(unit)?.checked_add(rest)
}

impl TryFrom<Written> for Size {
    type Error = InvalidSize;

    fn try_from(written: Written) -> Result<Size, InvalidSize> {
        match written {
            Written::Bytes(bytes) => Ok(Size(bytes)),
            Written::Text(text) => text.parse(),
        }
    }
}

impl From<Size> for String {
    fn from(size: Size) -> String {
        size.to_string()
    }
}

/// Exact, so that the text can be parsed again: `1G`, `1536M`, `1000`.
impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let exponent = match self.0 {
            0 => 0,
            bytes => (bytes.trailing_zeros() / 10).min(SUFFIXES.len() as u32),
        };
        write!(f, "{}", self.0 >> (10 * exponent))?;
        match exponent {
            0 => Ok(()),
            _ => write!(f, "{}", SUFFIXES[exponent as usize - 1]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_binary() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("4096B", 4096),
            ("1K", 1024),
            ("512M", 536_870_912),
            ("10G", 10_737_418_240),
            ("10g", 10_737_418_240),
            ("10GB", 10_737_418_240),
            ("10 GiB", 10_737_418_240),
            ("1.5T", 1_649_267_441_664),
            ("16383P", 18_445_618_173_802_708_992),
        ] {
            assert_eq!(text.parse(), Ok(Size(bytes)), "{text}");
        }
    }

    #[test]
    fn invalid_sizes_are_refused() {
        for text in [
            "",
            "G",
            "-1",
            "1.",
            ".5G",
            "1X",
            "0.3",
            "1iB",
            "1e3",
            "16384P",
            "99999999999999999999",
            "1.0000000001P",
        ] {
            assert!(text.parse::<Size>().is_err(), "{text}");
        }
    }

    #[test]
    fn displayed_sizes_can_be_parsed() {
        for (bytes, text) in
            [(0, "0"), (1000, "1000"), (1536 << 20, "1536M"), (1 << 40, "1T"), (1 << 62, "4096P")]
        {
            assert_eq!(Size(bytes).to_string(), text);
            assert_eq!(text.parse(), Ok(Size(bytes)));
        }
    }
}
