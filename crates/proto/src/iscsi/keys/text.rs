//! The text format of login and text PDUs: `key=value` pairs, each ended by a NUL (RFC 7143 6.1).

/// The most bytes of pairs in one exchange.
///
/// RFC 7143 6.2 requires a side to accept 8192, however many PDUs carry them; we accept no more.
pub const TEXT_MAX: usize = 8192;

/// The most pairs in one exchange.
///
/// RFC 7143 defines some 30 keys. The answer to an unknown key is its name (at most 63 bytes),
/// `=NotUnderstood` and a NUL, so the answers to 96 pairs still fit into one PDU of [`TEXT_MAX`] bytes.
pub const PAIRS_MAX: usize = 96;
const _: () = assert!(PAIRS_MAX * (KEY_MAX + "=NotUnderstood".len() + 1) <= TEXT_MAX);

/// RFC 7143 6.1: the longest name of a key, in bytes.
pub const KEY_MAX: usize = 63;

/// Why a text cannot be parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TextError {
    /// More than [`TEXT_MAX`] bytes or [`PAIRS_MAX`] pairs.
    #[error("too many keys in one exchange")]
    TooLong,
    /// A piece without `=`.
    #[error("text that is not key=value")]
    NoValue,
    /// The name of a key is empty, too long or contains invalid characters.
    #[error("a key with an invalid name")]
    Name,
    /// A value is not UTF-8 or contains control characters.
    #[error("a value with invalid characters")]
    Value,
}

/// A `key=value` pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair<'a> {
    /// The key's name as received.
    pub key: &'a str,
    /// The value; may be empty.
    pub value: &'a str,
}

/// Parses the text of one exchange; returns its pairs in order.
pub fn parse(text: &[u8]) -> Result<Vec<Pair<'_>>, TextError> {
    if text.len() > TEXT_MAX {
        return Err(TextError::TooLong);
    }
    let parsed: Vec<Pair<'_>> = pairs(text).take(PAIRS_MAX + 1).collect::<Result<_, _>>()?;
    if parsed.len() > PAIRS_MAX { Err(TextError::TooLong) } else { Ok(parsed) }
}

/// Parses a text of any length, such as a list of targets; yields its pairs in order.
///
/// The NUL after the last pair may be missing. There may also be extra NULs, if padding was counted as part
/// of the data segment.
pub fn pairs(text: &[u8]) -> impl Iterator<Item = Result<Pair<'_>, TextError>> {
    text.split(|byte| *byte == 0).filter(|piece| !piece.is_empty()).map(parse_pair)
}

fn parse_pair(piece: &[u8]) -> Result<Pair<'_>, TextError> {
    let piece = std::str::from_utf8(piece).map_err(|_| TextError::Value)?;
    let (key, value) = piece.split_once('=').ok_or(TextError::NoValue)?;
    if !is_key(key) {
        return Err(TextError::Name);
    }
    if value.chars().any(char::is_control) {
        return Err(TextError::Value);
    }
    Ok(Pair { key, value })
}

/// Whether this is a key's name: RFC 7143 6.1, standard-label, and the `#` of registered extensions. The RFC
/// requires an initial capital letter, but `iSCSIProtocolLevel` has none.
fn is_key(key: &str) -> bool {
    (1..=KEY_MAX).contains(&key.len())
        && key.starts_with(|first: char| first.is_ascii_alphabetic())
        && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-+@_#".contains(&byte))
}

/// A text that is being written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Text(Vec<u8>);

impl Text {
    /// A text without pairs.
    pub fn new() -> Text {
        Text::default()
    }

    /// Adds `key=value`.
    pub fn push(&mut self, key: &str, value: &str) {
        self.0.extend_from_slice(key.as_bytes());
        self.0.push(b'=');
        self.0.extend_from_slice(value.as_bytes());
        self.0.push(0);
    }

    /// The bytes for the data segment.
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn pairs_in_order() {
        let pairs = parse(b"InitiatorName=iqn.2001-04.com.example\0TargetAlias=\0X-a.B=c=d\0").unwrap();
        assert_eq!(
            pairs,
            [
                Pair { key: "InitiatorName", value: "iqn.2001-04.com.example" },
                Pair { key: "TargetAlias", value: "" },
                Pair { key: "X-a.B", value: "c=d" },
            ]
        );
        assert_eq!(parse(b"").unwrap(), []);
        assert_eq!(parse(b"\0\0").unwrap(), []);
        assert_eq!(parse(b"A=1\0\0\0B=2").unwrap().len(), 2);
    }

    #[test]
    fn malformed_text_is_refused() {
        assert_eq!(parse(b"SendTargets\0"), Err(TextError::NoValue));
        assert_eq!(parse(b"=All\0"), Err(TextError::Name));
        assert_eq!(parse(b"Send Targets=All\0"), Err(TextError::Name));
        assert_eq!(parse(b"1=2\0"), Err(TextError::Name));
        assert_eq!(parse(format!("{}=1\0", "K".repeat(64)).as_bytes()), Err(TextError::Name));
        assert_eq!(parse(b"A=\xff\0"), Err(TextError::Value));
        assert_eq!(parse(b"A=1\n\0"), Err(TextError::Value));
        assert_eq!(parse(&[b'A'; TEXT_MAX + 1]), Err(TextError::TooLong));
        assert_eq!(parse("A=1\0".repeat(PAIRS_MAX + 1).as_bytes()), Err(TextError::TooLong));
    }

    proptest! {
        #[test]
        fn never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&bytes);
        }

        #[test]
        fn reads_what_it_writes(pairs in proptest::collection::vec(("[A-Z][A-Za-z0-9-]{0,20}", "[ -~]{0,40}"), 0..20)) {
            let mut text = Text::new();
            pairs.iter().for_each(|(key, value)| text.push(key, value));
            let bytes = text.into_bytes();
            let read: Vec<_> =
                parse(&bytes).unwrap().iter().map(|pair| (pair.key.to_owned(), pair.value.to_owned())).collect();
            prop_assert_eq!(read, pairs);
        }
    }
}
