//! Entries of the cluster's record that this version cannot read: a later one has written them, as in a
//! rolling update.
//!
//! What cannot be read is not gone. Its last value that could be read stands for it: links stay, hosts stay
//! logged in, nothing is deleted or told as deleted. It is never written ([`Keeper::check_readable`]): what
//! this version does not know of it would be lost.
//!
//! A volume's entry says who may serve, and this node promises to act by that (R10). So as much of it is read
//! as that takes, without what is new in the rest ([`read`]). If not even that can be read, the epoch tells
//! whether it has changed: in the same epoch everything stays as it was. In another one the copy here stays
//! as well, and takes no part ([`Keeper::hold_unreadable`]): it may be out of sync by now. Hosts use the
//! other nodes until this one is updated.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use cluster::{Transaction, Versioned};
use replica::Revision;
use serde::de::DeserializeOwned;
use serde_json::Value;
use store::VolumeId;

use super::super::SliceCopy;
use super::super::cause::Cause;
use super::super::core::Copies;
use super::super::entry::{
    DELETED, DeletedVolume, LINK_ROLES, LinkRoles, NODES, NodeEntry, VOLUMES, VolumeEntry,
};
use super::super::strategy::{SPLITS, STRATEGIES, SplitEntry, StrategyEntry};
use super::budget::SYNC_LIMIT;
use super::telling::Before;
use super::{ClusterError, Keeper, Kept, json};
use crate::access::{HostGroup, Target};
use crate::control::{ApiToken, HOSTS, TARGETS, TOKENS, USERS, User};
use crate::shard::on_all_cores;

/// What stands for entries that cannot be read, by key; `None`: nothing that could be read was there before.
pub(super) type Unreadable = BTreeMap<String, Option<Versioned>>;

/// The value that the record has at `key`, or what stands for it; `None`: nothing does.
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
    /// Who serves, and nothing of the rest.
    Part(VolumeEntry),
    /// Not even that; the epoch at most.
    Nothing {
        /// The configuration's number.
        epoch: Option<u64>,
    },
}

/// The same, of a volume with a copy here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Legible {
    /// All of it.
    Whole,
    /// Nothing is proposed: with this node's words the rest of the entry would be lost.
    Part,
    /// Who serves by now is not known: not this copy.
    Nothing,
}

/// Reads a volume's entry.
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

/// An entry without what says nothing of who serves, whatever a later version has made of that.
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

/// Whether this version can read what is at a key. Of keys that are not here somebody else sees to that: each
/// is read in one place only, which leaves alone what it cannot read.
fn can_read(key: &str, value: &[u8]) -> bool {
    type Reader = fn(&[u8]) -> bool;
    fn is<T: DeserializeOwned>(value: &[u8]) -> bool {
        serde_json::from_slice::<T>(value).is_ok()
    }
    let readers: [(&str, Reader); 11] = [
        (VOLUMES, |value| matches!(read(value), Reading::Whole(_))),
        (DELETED, is::<DeletedVolume>),
        (NODES, is::<NodeEntry>),
        (LINK_ROLES, is::<LinkRoles>),
        (TARGETS, is::<Target>),
        (HOSTS, is::<HostGroup>),
        (USERS, is::<User>),
        (TOKENS, is::<ApiToken>),
        (STRATEGIES, is::<StrategyEntry>),
        (SPLITS, is::<SplitEntry>),
        (SYNC_LIMIT, is::<u64>),
    ];
    readers.iter().find(|(prefix, _)| key.starts_with(prefix)).is_none_or(|(_, read)| read(value))
}

/// What stands for an entry that cannot be read.
fn stand_in(key: &str, now: &Versioned, before: Option<&Versioned>) -> Option<Versioned> {
    if key.starts_with(VOLUMES)
        && let Reading::Part(entry) = read(&now.value)
    {
        return Some(Versioned { value: Arc::from(json(&entry)), revision: now.revision });
    }
    // That a node may go on alone is nobody's word any more.
    let stays = !key.starts_with(STRATEGIES);
    before.filter(|before| stays && can_read(key, &before.value)).cloned()
}

impl Keeper {
    /// Notes which of the entries that have changed cannot be read; `before` is what was there. Gives what
    /// people are to be told of: what cannot be read has neither come nor gone.
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
                // What nobody could read here before is no news.
                None => (known != Some(None)).then_some((key, before)),
            }
        };
        before.into_iter().filter_map(readable).collect()
    }

    /// The keys whose entries this version cannot read, of those for which others stand in.
    pub fn unreadable_keys(&self) -> Vec<String> {
        self.unreadable.borrow().keys().cloned().collect()
    }

    /// Whether the entry at the key is one of these.
    pub fn is_unreadable(&self, key: &str) -> bool {
        self.unreadable.borrow().contains_key(key)
    }

    /// That a change writes nothing that cannot be read.
    ///
    /// # Errors
    /// [`ClusterError::Unreadable`].
    pub(super) fn check_readable(&self, transaction: &Transaction) -> Result<(), ClusterError> {
        transaction.writes.iter().try_for_each(|(key, _)| self.check_entry(key))
    }

    /// That the entry at the key can be read, if there is one: before something else is done that belongs to
    /// a change of it.
    ///
    /// # Errors
    /// [`ClusterError::Unreadable`].
    pub fn check_entry(&self, key: &str) -> Result<(), ClusterError> {
        match self.is_unreadable(key) {
            true => Err(ClusterError::Unreadable(key.to_owned())),
            false => Ok(()),
        }
    }

    /// What the record says of the volume at `key`, as far as this version can read it; `None`: there is no
    /// such volume.
    pub(super) fn read_volume(&self, key: &str) -> Option<(Reading, Revision)> {
        let record = self.record.borrow();
        let found = record.entries.get(key)?;
        Some((read(&found.value), Revision(found.revision.0)))
    }

    /// Nothing can be read of the volume's entry but its epoch.
    pub(super) async fn hold_unreadable(self: &Rc<Self>, id: VolumeId, epoch: Option<u64>) {
        let number = {
            let mut volumes = self.volumes.borrow_mut();
            let Some(kept) = volumes.get_mut(&id) else { return };
            // Who has gone on alone acts by no record until that is settled.
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
    /// Hosts are not served, whatever the configuration says that is acted in.
    pub(super) fn is_held(&self) -> bool {
        self.held || self.legible == Legible::Nothing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENTRY: &str = r#"{"id":"0123456789abcdef0123456789abcdef","number":1,"name":"db","size":1048576,"epoch":7,"reason":"silent",
        "copies":[{"slot":0,"node":1,"standing":"in-sync","incarnation":3,"made":1},{"slot":1,"node":2,"standing":"outside","incarnation":0,"made":1}]}"#;

    #[test]
    fn who_serves_is_read_whatever_is_new_in_the_rest() {
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
    fn what_a_later_version_writes_is_told_from_what_this_one_does() {
        for prefix in [VOLUMES, DELETED, NODES, LINK_ROLES, TARGETS, HOSTS, USERS, TOKENS, STRATEGIES, SPLITS]
        {
            assert!(!can_read(&format!("{prefix}x"), b"[{\"later\":true}]"), "{prefix}");
        }
        assert!(can_read(&format!("{VOLUMES}x"), ENTRY.as_bytes()));
        assert!(can_read("something of a later version", b"[{\"later\":true}]"));
    }
}
