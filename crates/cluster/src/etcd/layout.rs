//! How the record lies in etcd: names of keys, and what is in etcd's answers.

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::Value;

use super::gateway::number;
use crate::transaction::{Revision, Versioned};
use crate::watch::{Change, Everything};

/// Of this layout. Where it does not stand there is no record.
pub(super) const VERSION: &str = "1";
/// A transaction's result: it took effect.
pub(super) const COMMITTED: &str = "1";
/// A transaction's result: it conflicted.
pub(super) const CONFLICTED: &str = "0";

/// Names below a prefix.
pub(super) struct Layout {
    prefix: String,
}

/// A key in etcd.
#[derive(Debug, PartialEq, Eq)]
enum Key {
    Record(String),
    Result,
}

pub(super) fn base64(bytes: &[u8]) -> String {
    BASE64_STANDARD.encode(bytes)
}

fn bytes(value: &Value) -> Option<Vec<u8>> {
    // An empty value is left out.
    BASE64_STANDARD.decode(value.as_str().unwrap_or_default()).ok()
}

impl Layout {
    pub(super) fn new(prefix: &str) -> Layout {
        Layout { prefix: prefix.to_owned() }
    }

    /// The record's key `key`, as etcd's gateway wants it.
    pub(super) fn key(&self, key: &str) -> String {
        base64(format!("{}r/{key}", self.prefix).as_bytes())
    }

    /// Where the version of the layout stands.
    pub(super) fn version(&self) -> String {
        base64(format!("{}version", self.prefix).as_bytes())
    }

    /// The end of the range of all keys of the record that begin with `prefix`.
    pub(super) fn end(&self, prefix: &str) -> String {
        base64(&after(format!("{}r/{prefix}", self.prefix).into_bytes()))
    }

    /// Where the result of a transaction is.
    pub(super) fn result(&self, op_id: u128) -> String {
        base64(format!("{}op/{op_id:032x}", self.prefix).as_bytes())
    }

    /// The range of all that is ours.
    pub(super) fn all(&self) -> (String, String) {
        (base64(self.prefix.as_bytes()), base64(&after(self.prefix.clone().into_bytes())))
    }

    fn parse(&self, key: &[u8]) -> Option<Key> {
        let key = std::str::from_utf8(key).ok()?.strip_prefix(&self.prefix)?;
        match key.split_once('/')? {
            ("r", key) => Some(Key::Record(key.to_owned())),
            ("op", _) => Some(Key::Result),
            _ => None,
        }
    }

    /// What of the record is in the answer to a question for a range, as of `revision`.
    pub(super) fn everything(&self, revision: Revision, range: &Value) -> Option<Everything> {
        let mut entries = BTreeMap::new();
        for kv in range["kvs"].as_array().into_iter().flatten() {
            if let Some(Key::Record(key)) = self.parse(&bytes(&kv["key"])?) {
                let value = bytes(&kv["value"])?.into();
                entries.insert(key, Versioned { value, revision: Revision(number(&kv["mod_revision"])) });
            }
        }
        (revision.0 > 0).then_some(Everything { revision, entries })
    }

    /// The changes in events of a watch, in order. Revisions that changed nothing of the record are left out.
    pub(super) fn changes(&self, events: &Value) -> Option<Vec<Change>> {
        let mut changes: Vec<Change> = Vec::new();
        for event in events.as_array().into_iter().flatten() {
            let kv = &event["kv"];
            let deleted = event["type"] == "DELETE";
            let revision = Revision(number(&kv["mod_revision"]));
            let write = match self.parse(&bytes(&kv["key"])?) {
                Some(Key::Record(key)) => {
                    let value = if deleted { None } else { Some(Arc::from(bytes(&kv["value"])?)) };
                    Some((key, value))
                }
                Some(Key::Result) if !deleted && bytes(&kv["value"])? == COMMITTED.as_bytes() => None,
                _ => continue,
            };
            match changes.last_mut() {
                Some(last) if last.revision == revision => last.writes.extend(write),
                _ => changes.push(Change { revision, writes: write.into_iter().collect() }),
            }
        }
        Some(changes)
    }
}

/// The first key after all that begin with `prefix`.
fn after(mut prefix: Vec<u8>) -> Vec<u8> {
    // UTF-8 has no byte 255, and our prefixes are not empty.
    let last = prefix.last_mut().expect("a prefix ends with a slash at least");
    *last += 1;
    prefix
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn events_of_a_watch_as_etcd_sends_them() {
        // Captured from etcd 3.4.23, keys and values put into its form.
        let kv = |key: &str, value: &str, revision: &str| {
            json!({ "kv": { "key": base64(key.as_bytes()), "value": base64(value.as_bytes()),
                "mod_revision": revision } })
        };
        let deleted = |key: &str, revision: &str| json!({ "type": "DELETE", "kv": { "key": base64(key.as_bytes()), "mod_revision": revision } });
        let events = json!([
            kv("u/op/aa", "1", "7"),
            kv("u/r/a", "x", "7"),
            deleted("u/r/b", "7"),
            kv("u/op/bb", "0", "8"),
            deleted("u/op/aa", "9"),
            kv("u/op/cc", "1", "10"),
            kv("u/r/a", "by hand", "11"),
        ]);
        let changes = Layout::new("u/").changes(&events).unwrap();
        let found: Vec<(u64, Vec<String>)> = changes
            .iter()
            .map(|it| {
                (it.revision.0, it.writes.iter().map(|(key, v)| format!("{key} {}", v.is_some())).collect())
            })
            .collect();
        let expected = [(7, vec!["a true", "b false"]), (10, vec![]), (11, vec!["a true"])];
        assert_eq!(found, expected.map(|(at, keys)| (at, keys.into_iter().map(str::to_owned).collect())));
    }

    #[test]
    fn ranges_end_behind_their_prefix() {
        assert_eq!(after(b"u/r/".to_vec()), b"u/r0");
        let layout = Layout::new("u/");
        assert_eq!(layout.end("vol/"), base64(b"u/r/vol0"));
        assert_eq!(layout.parse(b"u/r/vol/a"), Some(Key::Record("vol/a".to_owned())));
        assert_eq!(layout.parse(b"u/op/1"), Some(Key::Result));
        assert_eq!(layout.parse(b"u/version"), None);
        assert_eq!(layout.parse(b"other"), None);
    }
}
