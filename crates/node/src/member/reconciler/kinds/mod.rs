//! The kinds of entries in the cluster's record (`docs/formats/cluster.md`): which keys there are, and what
//! the value at each of them is.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::budget::SYNC_LIMIT;
use super::unreadable::{Reading, read};
use crate::attach::access::{HostGroup, Target};
use crate::control::{
    ApiToken, HOSTS, NEXT_NODE, NEXT_NUMBER, PREFERRED, SET_UP, TARGETS, TOKENS, USERS, User,
};
use crate::copies::clone::{NEW_CLONES, NewClones};
use crate::copies::entry::{
    DELETED, DeletedVolume, LINK_ROLES, LinkRoles, MAINTENANCE, NODES, NodeEntry, POOL_MARKS, PoolMarkEntry,
    VOLUME_NAMES, VOLUMES, VolumeEntry,
};
use crate::copies::schedule::{SNAPSHOT_SCHEDULES, SNAPSHOT_TURN, ScheduleEntry, SnapshotTurn};
use crate::copies::snapshot::{
    DELETED_SNAPSHOTS, DeletedSnapshot, LAST_SNAPSHOT, SNAPSHOT_CHANGES, SNAPSHOTS, SnapshotEntry,
};
use crate::copies::split_brain::{POLICIES, PolicyEntry, SPLITS, SplitEntry, VOID_FORKS, VoidEntry};
use crate::copies::verification::{
    DIFFERING, DifferingEntry, VERIFICATION_TURN, VERIFICATIONS, VERIFY_EVERY, VerificationEntry,
    VerificationTurn,
};
use crate::member::floating::{ADDRESSES, AddressEntry, HOLDERS, HolderEntry, LAST_GROUP};

/// A kind of entries.
pub(super) struct Kind {
    /// What its keys begin with, up to and including a slash; without a slash it is the only key.
    pub(super) key: &'static str,
    /// Whether this version can read a value.
    pub(super) can_read: fn(&[u8]) -> bool,
    /// Checks a value that version 1 has written.
    #[cfg(test)]
    check: fn(&serde_json::Value),
}

/// Entries for which an earlier value stands in where this version cannot read them.
pub(super) const WITH_STAND_IN: &[Kind] = &[
    Kind { can_read: |value| matches!(read(value), Reading::Whole(_)), ..kind::<VolumeEntry>(VOLUMES) },
    kind::<DeletedVolume>(DELETED),
    kind::<NodeEntry>(NODES),
    kind::<LinkRoles>(LINK_ROLES),
    kind::<Target>(TARGETS),
    kind::<HostGroup>(HOSTS),
    kind::<User>(USERS),
    kind::<ApiToken>(TOKENS),
    kind::<PolicyEntry>(POLICIES),
    kind::<SplitEntry>(SPLITS),
    kind::<u64>(SYNC_LIMIT),
    kind::<SnapshotEntry>(SNAPSHOTS),
    kind::<SnapshotEntry>(SNAPSHOT_CHANGES),
];

/// Entries that are read in one place each, which leaves alone what it cannot read.
const OTHERS: &[Kind] = &[
    kind::<u16>(NEXT_NODE),
    kind::<u16>(PREFERRED),
    kind::<u64>(MAINTENANCE),
    kind::<PoolMarkEntry>(POOL_MARKS),
    kind::<u32>(NEXT_NUMBER),
    kind::<String>(VOLUME_NAMES),
    kind::<NewClones>(NEW_CLONES),
    kind::<VoidEntry>(VOID_FORKS),
    kind::<u32>(LAST_SNAPSHOT),
    kind::<DeletedSnapshot>(DELETED_SNAPSHOTS),
    kind::<ScheduleEntry>(SNAPSHOT_SCHEDULES),
    kind::<SnapshotTurn>(SNAPSHOT_TURN),
    kind::<u64>(VERIFY_EVERY),
    kind::<VerificationTurn>(VERIFICATION_TURN),
    kind::<VerificationEntry>(VERIFICATIONS),
    kind::<DifferingEntry>(DIFFERING),
    kind::<AddressEntry>(ADDRESSES),
    kind::<HolderEntry>(HOLDERS),
    kind::<u16>(LAST_GROUP),
    kind::<bool>(SET_UP),
];

/// Entries whose values are a `T` as JSON.
const fn kind<T: Serialize + DeserializeOwned>(key: &'static str) -> Kind {
    Kind {
        key,
        can_read: |value| serde_json::from_slice::<T>(value).is_ok(),
        #[cfg(test)]
        check: crate::version_1::check::<T>,
    }
}

impl Kind {
    /// Whether the entry at this key is of this kind.
    pub(super) fn has(&self, key: &str) -> bool {
        if self.key.ends_with('/') { key.starts_with(self.key) } else { key == self.key }
    }
}

/// Whether there is a kind of entries with this key: nothing else is written.
pub(super) fn is_known(key: &str) -> bool {
    WITH_STAND_IN.iter().chain(OTHERS).any(|kind| kind.has(key))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::Value;

    use super::*;

    /// Entries as this version writes them, by key. Later versions must read them: add entries, and change
    /// none.
    const VERSION_1: &str = include_str!("version-1.json");

    fn version_1() -> BTreeMap<String, Value> {
        serde_json::from_str(VERSION_1).unwrap()
    }

    fn kinds() -> impl Iterator<Item = &'static Kind> {
        WITH_STAND_IN.iter().chain(OTHERS)
    }

    #[test]
    fn entries_of_version_1_are_read_and_keep_what_they_say() {
        for (key, entry) in version_1() {
            let kind = kinds().find(|kind| kind.has(&key)).unwrap_or_else(|| panic!("{key} is of no kind"));
            assert!((kind.can_read)(&serde_json::to_vec(&entry).unwrap()), "{key} cannot be read");
            (kind.check)(&entry);
        }
    }

    #[test]
    fn every_kind_has_an_entry_of_version_1_and_is_documented() {
        let entries = version_1();
        let page = include_str!("../../../../../../docs/formats/cluster.md");
        for kind in kinds() {
            assert!(entries.keys().any(|key| kind.has(key)), "{} has no entry", kind.key);
            let documented = format!("| `{}", kind.key);
            assert!(page.contains(&documented), "{} is not in docs/formats/cluster.md", kind.key);
        }
    }

    #[test]
    fn a_key_is_of_one_kind() {
        for key in version_1().keys() {
            assert_eq!(kinds().filter(|kind| kind.has(key)).count(), 1, "{key}");
        }
        for key in ["volume", "volume-names/db", "resync-limit-2", "something of a later version"] {
            assert!(!is_known(key), "{key}");
        }
    }

    #[test]
    fn entries_of_a_later_version_are_distinguished_from_ours() {
        for kind in kinds() {
            assert!(!(kind.can_read)(b"[{\"later\":true}]"), "{}", kind.key);
        }
    }
}
