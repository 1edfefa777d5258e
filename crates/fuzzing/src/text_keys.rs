//! Text segments, and the values in them.

use proto::iscsi::chap::Algorithm;
use proto::iscsi::keys::value::{binary, parse_binary, parse_boolean, parse_number};
use proto::iscsi::keys::{Key, Text, text};
use proto::iscsi::name::IscsiName;

/// Parses a text.
pub fn run(bytes: &[u8]) {
    let Ok(pairs) = text::parse(bytes) else { return };
    let mut again = Text::new();
    for pair in &pairs {
        again.push(pair.key, pair.value);
        let _ = Key::from_name(pair.key).map(Key::name);
        let _ = (parse_number(pair.value), parse_boolean(pair.value), Algorithm::choose(pair.value));
        if let Some(value) = parse_binary(pair.value, 1024) {
            assert!(value.len() <= 1024);
            assert_eq!(parse_binary(&binary(&value), 1024), Some(value));
        }
        if let Ok(name) = IscsiName::parse(pair.value) {
            assert_eq!(IscsiName::parse(name.as_str()), Ok(name.clone()), "a normal name is normal");
        }
    }
    let again = again.into_bytes();
    assert_eq!(text::parse(&again).as_ref(), Ok(&pairs));
}
