//! The layout of the record in etcd: names of keys, and how to read etcd's answers.

use std::sync::Arc;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::Value;

use super::gateway::number;
use crate::transaction::{Revision, Versioned};
use crate::watch::{Change, Everything};

/// The version of this layout. Without this value there is no record.
pub(super) const VERSION: &str = "1";
/// A transaction's result: it took effect.
pub(super) const COMMITTED: &str = "1";
/// A transaction's result: it conflicted.
pub(super) const CONFLICTED: &str = "0";

/// The names below a prefix.
pub(super) struct Layout {
    prefix: String,
}

/// A key in etcd.
#[derive(Debug, PartialEq, Eq)]
enum Key {
    Record(String),
    Version,
    /// The result of the transaction with this `op_id`.
    Result(u128),
}

/// The last transaction that took effect, as the version key shows it: each writes that key again, with the
/// same value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Last {
    pub(super) revision: Revision,
    /// How many transactions have taken effect, plus one for the creation of the record, as etcd counts it.
    pub(super) count: u64,
}

impl Last {
    /// Reads it from the version key, as etcd returns or reports it.
    pub(super) fn of(version: &Value) -> Last {
        Last { revision: Revision(number(&version["mod_revision"])), count: number(&version["version"]) }
    }

    /// Whether the same record can have this last transaction if it had `earlier` before.
    pub(super) fn may_follow(self, earlier: Last) -> bool {
        self == earlier || (self.count > earlier.count && self.revision > earlier.revision)
    }
}

/// The changes of one revision of etcd.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) change: Change,
    /// `None`: somebody has written to the record by hand.
    pub(super) last: Option<Last>,
    /// The ID of the transaction.
    pub(super) op: Option<u128>,
}

pub(super) fn base64(bytes: &[u8]) -> String {
    BASE64_STANDARD.encode(bytes)
}

fn bytes(value: &Value) -> Option<Vec<u8>> {
    // etcd leaves out an empty value.
    BASE64_STANDARD.decode(value.as_str().unwrap_or_default()).ok()
}

impl Layout {
    pub(super) fn new(prefix: &str) -> Layout {
        Layout { prefix: prefix.to_owned() }
    }

    /// The record's key `key`, as etcd's gateway expects it.
    pub(super) fn key(&self, key: &str) -> String {
        base64(format!("{}r/{key}", self.prefix).as_bytes())
    }

    /// The key of the layout's version.
    pub(super) fn version(&self) -> String {
        base64(format!("{}version", self.prefix).as_bytes())
    }

    /// The end of the range of all keys of the record that begin with `prefix`.
    pub(super) fn end(&self, prefix: &str) -> String {
        base64(&after(format!("{}r/{prefix}", self.prefix).into_bytes()))
    }

    /// The key of a transaction's result.
    pub(super) fn result(&self, op_id: u128) -> String {
        base64(format!("{}op/{op_id:032x}", self.prefix).as_bytes())
    }

    /// The range of all our keys.
    pub(super) fn all(&self) -> (String, String) {
        (base64(self.prefix.as_bytes()), base64(&after(self.prefix.clone().into_bytes())))
    }

    fn parse(&self, key: &[u8]) -> Option<Key> {
        let key = std::str::from_utf8(key).ok()?.strip_prefix(&self.prefix)?;
        match key.split_once('/') {
            None if key == "version" => Some(Key::Version),
            Some(("r", key)) => Some(Key::Record(key.to_owned())),
            Some(("op", id)) => u128::from_str_radix(id, 16).ok().map(Key::Result),
            _ => None,
        }
    }

    /// The entries of the record in the answer to a range read, with `last` as the last transaction.
    pub(super) fn everything(&self, last: Last, range: &Value) -> Option<Everything> {
        let mut all = Everything { revision: last.revision, ..Everything::default() };
        for kv in range["kvs"].as_array().into_iter().flatten() {
            if let Some(Key::Record(key)) = self.parse(&bytes(&kv["key"])?) {
                let (value, revision) = (bytes(&kv["value"])?.into(), Revision(number(&kv["mod_revision"])));
                // It is later if somebody has written by hand.
                all.revision = all.revision.max(revision);
                all.entries.insert(key, Versioned { value, revision });
            }
        }
        (last.count > 0).then_some(all)
    }

    /// The steps in the events of a watch, in order. Revisions that did not change the record are left out.
    pub(super) fn steps(&self, events: &Value) -> Option<Vec<Step>> {
        let mut steps: Vec<Step> = Vec::new();
        let mut result = None;
        for event in events.as_array().into_iter().flatten() {
            let kv = &event["kv"];
            let deleted = event["type"] == "DELETE";
            let revision = Revision(number(&kv["mod_revision"]));
            let (write, last) = match self.parse(&bytes(&kv["key"])?) {
                Some(Key::Record(key)) => {
                    let value = if deleted { None } else { Some(Arc::from(bytes(&kv["value"])?)) };
                    (Some((key, value)), None)
                }
                Some(Key::Version) => (None, Some(Last::of(kv))),
                Some(Key::Result(op)) => {
                    // It precedes all else that its transaction writes.
                    result = Some((revision, op));
                    continue;
                }
                None => continue,
            };
            if steps.last().is_none_or(|step| step.change.revision != revision) {
                let op = result.filter(|(at, _)| *at == revision).map(|(_, op)| op);
                steps.push(Step { change: Change { revision, writes: Vec::new() }, last: None, op });
            }
            let step = steps.last_mut().expect("there is this one");
            step.change.writes.extend(write);
            step.last = step.last.or(last);
        }
        Some(steps)
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
        // Captured from etcd 3.4.23; keys and values encoded as etcd encodes them.
        let kv = |key: &str, value: &str, revision: &str| {
            json!({ "kv": { "key": base64(key.as_bytes()), "value": base64(value.as_bytes()),
                "mod_revision": revision } })
        };
        let deleted = |key: &str, revision: &str| json!({ "type": "DELETE", "kv": { "key": base64(key.as_bytes()), "mod_revision": revision } });
        let version = |revision: &str, count: &str| {
            json!({ "kv": { "key": base64(b"u/version"), "value": base64(b"1"), "mod_revision": revision,
                "version": count } })
        };
        let events = json!([
            kv("u/op/aa", "1", "7"),
            version("7", "3"),
            kv("u/r/a", "x", "7"),
            deleted("u/r/b", "7"),
            kv("u/op/bb", "0", "8"),
            deleted("u/op/aa", "9"),
            kv("u/op/cc", "1", "10"),
            version("10", "4"),
            kv("u/r/a", "by hand", "11"),
        ]);
        let steps = Layout::new("u/").steps(&events).unwrap();
        let found: Vec<(u64, Option<u64>, Option<u128>, String)> = steps
            .iter()
            .map(|Step { change, last, op }| {
                let writes = change.writes.iter().map(|(key, value)| format!("{key} {};", value.is_some()));
                (change.revision.0, last.map(|last| last.count), *op, writes.collect())
            })
            .collect();
        let expected = [
            (7, Some(3), Some(0xaa), "a true;b false;"),
            (10, Some(4), Some(0xcc), ""),
            (11, None, None, "a true;"),
        ];
        assert_eq!(found, expected.map(|(at, count, op, writes)| (at, count, op, writes.to_owned())));
    }

    #[test]
    fn ranges_end_behind_their_prefix() {
        assert_eq!(after(b"u/r/".to_vec()), b"u/r0");
        let layout = Layout::new("u/");
        assert_eq!(layout.end("vol/"), base64(b"u/r/vol0"));
        assert_eq!(layout.parse(b"u/r/vol/a"), Some(Key::Record("vol/a".to_owned())));
        assert_eq!(layout.parse(b"u/op/1f"), Some(Key::Result(31)));
        assert_eq!(layout.parse(b"u/op/by hand"), None);
        assert_eq!(layout.parse(b"u/version"), Some(Key::Version));
        assert_eq!(layout.parse(b"u/versions"), None);
        assert_eq!(layout.parse(b"other"), None);
    }
}
