//! Entries of the cluster's record that this version cannot read, because a later version has written them,
//! as in a rolling update.
//!
//! An entry that cannot be read is not gone. Its last readable value stands in for it: links stay, hosts stay
//! logged in, nothing is deleted or reported as deleted. This node never writes such an entry
//! ([`Reconciler::check_readable`]): it would lose what this version does not know.
//!
//! A volume's entry says which copies may serve, and this node promises to act by that (R10). So the node
//! reads as much of the entry as that takes, and ignores what is new in the rest ([`read`]). If it cannot
//! read even that, the epoch shows whether the configuration has changed. In the same epoch everything stays
//! as it was. In another epoch the copy here stays, but takes no part ([`Reconciler::hold_unreadable`]): it
//! may be out of sync by now. Hosts use the other nodes until this one is updated.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use cluster::{Transaction, Versioned};
use replica::Revision;
use serde_json::Value;
use store::VolumeId;

use super::emit_events::Before;
use super::kinds::{WITH_STAND_IN, is_known};
use super::{ClusterError, Kept, Reconciler, json};
use crate::copies::SliceCopy;
use crate::copies::cause::Cause;
use crate::copies::core::Copies;
use crate::copies::entry::{VOLUMES, VolumeEntry};
use crate::copies::split_brain::POLICIES;
use crate::shard::on_all_cores;

/// Stand-ins for entries that cannot be read, by key; `None`: there was no readable value before.
pub(super) type Unreadable = BTreeMap<String, Option<Versioned>>;

/// The record's value at `key`, or its stand-in; `None`: it cannot be read and has no stand-in.
pub(super) fn legible<'a>(
    unreadable: &'a Unreadable,
    key: &str,
    value: &'a Versioned,
) -> Option<&'a Versioned> {
    unreadable.get(key).map_or(Some(value), Option::as_ref)
}

/// How much this version can read of a volume's entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reading {
    /// All of it.
    Whole(VolumeEntry),
    /// Which copies serve, and nothing else.
    Part(VolumeEntry),
    /// Not even that; at most the epoch.
    Nothing {
        /// The configuration's number.
        epoch: Option<u64>,
    },
}

/// How much of its entry can be read, for a volume with a copy here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Legible {
    /// All of it.
    Whole,
    /// Which copies serve. The node proposes nothing: writing the entry would lose the rest of it.
    Part,
    /// Not even which copies serve now: this one does not.
    Nothing,
}

/// Reads as much of a volume's entry as this version can.
pub(super) fn read(value: &[u8]) -> Reading {
    let usable = |entry: &VolumeEntry| entry.config(Revision(0)).is_some();
    if let Ok(entry) = serde_json::from_slice::<VolumeEntry>(value)
        && usable(&entry)
    {
        return Reading::Whole(entry);
    }
    let Ok(value) = serde_json::from_slice::<Value>(value) else { return Reading::Nothing { epoch: None } };
    let epoch = value.get("epoch").and_then(Value::as_u64);
    match who_serves(value).filter(usable) {
        Some(entry) => Reading::Part(entry),
        None => Reading::Nothing { epoch },
    }
}

/// An entry without the fields that do not say which copies serve, whatever a later version has written
/// there.
fn who_serves(mut value: Value) -> Option<VolumeEntry> {
    let entry = value.as_object_mut()?;
    for other in ["dropped", "missed", "paused"] {
        entry.remove(other);
    }
    if !entry.get("reason").is_some_and(Value::is_string) {
        entry.insert("reason".into(), Cause::default().code().into());
    }
    for copy in entry.get_mut("copies")?.as_array_mut()? {
        copy.as_object_mut()?.remove("leaves");
    }
    serde_json::from_value(value).ok()
}

/// Whether this version can read the value at a key, or need not: it is of no kind that gets stand-ins.
fn can_read(key: &str, value: &[u8]) -> bool {
    WITH_STAND_IN.iter().find(|kind| kind.has(key)).is_none_or(|kind| (kind.can_read)(value))
}

/// The stand-in for an entry that cannot be read.
fn stand_in(key: &str, now: &Versioned, before: Option<&Versioned>) -> Option<Versioned> {
    if key.starts_with(VOLUMES)
        && let Reading::Part(entry) = read(&now.value)
    {
        return Some(Versioned { value: Arc::from(json(&entry)), revision: now.revision });
    }
    // An unreadable agreement that a node may continue alone no longer counts.
    let stays = !key.starts_with(POLICIES);
    before.filter(|before| stays && can_read(key, &before.value)).cloned()
}

impl Reconciler {
    /// Notes which of the changed entries cannot be read; `before` has their previous values.
    ///
    /// Returns the changes to report as events. An entry that cannot be read was neither created nor deleted.
    pub(super) fn note_unreadable(&self, before: Before) -> Before {
        let record = self.record.borrow();
        let mut unreadable = self.unreadable.borrow_mut();
        let readable = |(key, before): (String, Option<Versioned>)| {
            let now = record.entries.get(&key);
            let known = unreadable.remove(&key);
            let before = match known {
                Some(ref stood_in) => stood_in.clone(),
                None => before,
            };
            match now.filter(|now| !can_read(&key, &now.value)) {
                Some(now) => {
                    if known.is_none() {
                        tracing::error!(
                            key,
                            "an entry of the cluster's record cannot be read: a later version of ursa wrote it"
                        );
                    }
                    let stands_in = stand_in(&key, now, before.as_ref());
                    unreadable.insert(key, stands_in);
                    None
                }
                // If this node could not read the entry before either, it is no news.
                None => (known != Some(None)).then_some((key, before)),
            }
        };
        before.into_iter().filter_map(readable).collect()
    }

    /// The keys whose entries this version cannot read, among those that get stand-ins.
    pub fn unreadable_keys(&self) -> Vec<String> {
        self.unreadable.borrow().keys().cloned().collect()
    }

    /// Whether the entry at the key is one of [`Reconciler::unreadable_keys`].
    pub fn is_unreadable(&self, key: &str) -> bool {
        self.unreadable.borrow().contains_key(key)
    }

    /// Checks that a transaction writes no entry that cannot be read.
    ///
    /// # Errors
    /// [`ClusterError::Unreadable`].
    pub(super) fn check_readable(&self, transaction: &Transaction) -> Result<(), ClusterError> {
        // The next version must read what this one writes: the tests of `kinds` have an entry of each kind.
        debug_assert!(transaction.writes.iter().all(|(key, _)| is_known(key)), "a key of an unknown kind");
        transaction.writes.iter().try_for_each(|(key, _)| self.check_entry(key))
    }

    /// Checks that the entry at the key can be read, if there is one.
    ///
    /// For callers that do something else before they change the entry.
    ///
    /// # Errors
    /// [`ClusterError::Unreadable`].
    pub fn check_entry(&self, key: &str) -> Result<(), ClusterError> {
        match self.is_unreadable(key) {
            true => Err(ClusterError::Unreadable(key.to_owned())),
            false => Ok(()),
        }
    }

    /// The record's entry of the volume at `key`, as far as this version can read it; `None`: volume not
    /// found.
    pub(super) fn read_volume(&self, key: &str) -> Option<(Reading, Revision)> {
        let record = self.record.borrow();
        let found = record.entries.get(key)?;
        Some((read(&found.value), Revision(found.revision.0)))
    }

    /// Handles an entry of a volume of which at most the epoch can be read.
    pub(super) async fn hold_unreadable(self: &Rc<Self>, id: VolumeId, epoch: Option<u64>) {
        let number = {
            let mut volumes = self.volumes_mut();
            let Some(kept) = volumes.get_mut(&id) else { return };
            // A node that continues alone acts by no record until its fork is settled.
            let is_as_it_was = epoch == Some(kept.entry.epoch) && kept.legible != Legible::Nothing;
            if is_as_it_was || self.forks.has(id) {
                kept.legible = Legible::Part;
                return;
            }
            kept.legible = Legible::Nothing;
            tracing::error!(
                volume = kept.entry.name,
                "this version can no longer read the volume's entry: its copy on this node is not used until the node is updated"
            );
            kept.entry.number
        };
        on_all_cores(move || async move {
            Copies::current().slices_of(number).iter().for_each(|copy: &Rc<SliceCopy>| {
                copy.freeze();
            });
        })
        .await;
        self.show_paths().await;
    }
}

impl Kept {
    /// Whether hosts are not served, whatever the active configuration says.
    pub(super) fn is_held(&self) -> bool {
        self.held || self.legible == Legible::Nothing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENTRY: &str = r#"{"id":"0123456789abcdef0123456789abcdef","number":1,"name":"db","size":1048576,"shape":{"kind":1,"block_bytes":512,"physical_exponent":3,"slices":1,"created":0},"epoch":7,"reason":"silent",
        "copies":[{"slot":0,"node":1,"standing":"in-sync","incarnation":3,"made":1},{"slot":1,"node":2,"standing":"outside","incarnation":0,"made":1}]}"#;

    #[test]
    fn the_serving_copies_are_read_despite_unknown_fields() {
        let Reading::Whole(entry) = read(ENTRY.as_bytes()) else { panic!("it is ours") };
        for (ours, theirs) in [
            (r#""made":1},"#, r#""made":1,"leaves":{"at":5}},"#),
            (r#""reason":"silent""#, r#""reason":{"code":1}"#),
            (r#""reason":"silent""#, r#""reason":"silent","paused":["later"]"#),
            (r#""reason":"silent""#, r#""reason":"silent","dropped":{"later":1},"missed":7"#),
        ] {
            let Reading::Part(part) = read(ENTRY.replacen(ours, theirs, 1).as_bytes()) else {
                panic!("{theirs}")
            };
            assert_eq!((part.epoch, &part.copies), (7, &entry.copies), "{theirs}");
        }
        for (ours, theirs, epoch) in [
            ("in-sync", "nearly", Some(7)),
            (r#""slot":1"#, r#""slot":99"#, Some(7)),
            (r#""epoch":7"#, r#""epoch":"seven""#, None),
        ] {
            let later = ENTRY.replacen(ours, theirs, 1);
            assert_eq!(read(later.as_bytes()), Reading::Nothing { epoch }, "{theirs}");
        }
        assert_eq!(read(b"\x00"), Reading::Nothing { epoch: None });
    }

    #[test]
    fn a_compression_of_a_later_version_is_kept() {
        let later = ENTRY.replacen(r#""epoch":7"#, r#""epoch":7,"compression":9"#, 1);
        let Reading::Whole(entry) = read(later.as_bytes()) else {
            panic!("who serves does not depend on it")
        };
        assert_eq!(entry.wanted().compression, None);
        assert_eq!(read(&json(&entry)), Reading::Whole(entry));
    }

    #[test]
    fn entries_of_a_later_version_are_distinguished_from_ours() {
        for prefix in WITH_STAND_IN.iter().map(|kind| kind.key).filter(|key| key.ends_with('/')) {
            assert!(!can_read(&format!("{prefix}x"), b"[{\"later\":true}]"), "{prefix}");
        }
        assert!(can_read(&format!("{VOLUMES}x"), ENTRY.as_bytes()));
        assert!(can_read("something of a later version", b"[{\"later\":true}]"));
    }
}
