//! Scrubs in the node's record: how the last one of each volume ended, and how far one is that has not.
//!
//! An entry changes in memory first. It is written at once, and if that fails, with the next look at the
//! schedule. It is deleted with its volume, and when its pool leaves this node.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use serde::{Deserialize, Serialize};
use store::PoolId;

use super::super::doing::Doing;
use super::super::turns::Thing;
use super::{Control, PoolScrubs, ScrubEnd, ScrubFound};
use crate::data::VolumeId;
use crate::record::{Change, Record, delete, set};

const SCRUBS: &str = "scrubs/";

fn key(pool: PoolId, volume: VolumeId) -> String {
    format!("{SCRUBS}{pool}/{volume}")
}

/// The scrubs of a volume, as the record stores them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ScrubEntry {
    /// The pool's identity.
    pub(super) pool: String,
    /// The volume's identity.
    pub(super) volume: String,
    /// How the last one ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) last: Option<ScrubEnd>,
    /// The progress of the one that has not ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) progress: Option<ScrubProgress>,
    /// When this node first saw that the first scrub was due, in seconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) due_since: Option<u64>,
}

/// The progress of a scrub.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ScrubProgress {
    /// When it began, in seconds since 1970.
    pub(super) began: u64,
    /// Somebody waits for it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) asked: bool,
    /// The size of the volume in bytes.
    pub(super) size: u64,
    /// Bytes that have been processed, slice by slice.
    pub(super) done: u64,
    /// What it has found there.
    pub(super) found: ScrubFound,
}

/// The entries, and which of them the record does not have as they are.
#[derive(Default)]
pub(super) struct Kept {
    entries: RefCell<BTreeMap<(PoolId, VolumeId), ScrubEntry>>,
    unwritten: RefCell<BTreeSet<(PoolId, VolumeId)>>,
}

impl Kept {
    pub(super) fn restored(record: &Record) -> Kept {
        let all: Vec<ScrubEntry> = record.list(SCRUBS);
        let parsed =
            |entry: ScrubEntry| Some(((PoolId::parse(&entry.pool)?, VolumeId::parse(&entry.volume)?), entry));
        let entries = all.into_iter().filter_map(parsed).collect();
        Kept { entries: RefCell::new(entries), ..Kept::default() }
    }

    /// What is known of a volume's scrubs.
    pub(super) fn of(&self, pool: PoolId, volume: VolumeId) -> ScrubEntry {
        self.entries.borrow().get(&(pool, volume)).cloned().unwrap_or_default()
    }

    /// What is known of the scrubs of a pool's volumes.
    pub(super) fn of_pool(&self, pool: PoolId) -> PoolScrubs {
        let entries = self.entries.borrow();
        let of_pool = || entries.iter().filter(|((of, _), _)| *of == pool).map(|(_, entry)| entry);
        let ends = || of_pool().filter_map(|entry| entry.last);
        PoolScrubs {
            oldest: ends().map(|last| last.at).min(),
            unrepaired: ends().map(|last| last.found.unrepaired()).sum(),
            unfinished: of_pool().filter(|entry| entry.progress.is_some()).count(),
        }
    }

    /// The volumes with a scrub that has not ended.
    pub(super) fn unfinished(&self) -> BTreeSet<VolumeId> {
        let entries = self.entries.borrow();
        entries.iter().filter(|(_, entry)| entry.progress.is_some()).map(|((_, volume), _)| *volume).collect()
    }

    /// The entries whose last scrub has left blocks that cannot be read.
    pub(super) fn with_unrepaired(&self) -> Vec<ScrubEntry> {
        let entries = self.entries.borrow();
        let has_some = |entry: &&ScrubEntry| entry.last.is_some_and(|last| last.found.unrepaired() > 0);
        entries.values().filter(has_some).cloned().collect()
    }

    pub(super) fn set_progress(&self, pool: PoolId, volume: VolumeId, progress: ScrubProgress) {
        self.change(pool, volume, |entry| entry.progress = Some(progress));
    }

    pub(super) fn set_last(&self, pool: PoolId, volume: VolumeId, last: ScrubEnd) {
        self.change(pool, volume, |entry| {
            // A scrub that was stopped has not read everything: what the one before has left may be bad
            // still.
            let left = entry.last.map(|before| before.found);
            let left = left.filter(|left| last.stopped && left.unrepaired() > last.found.unrepaired());
            entry.last = Some(ScrubEnd { found: left.unwrap_or(last.found), ..last });
            (entry.progress, entry.due_since) = (None, None);
        });
    }

    /// Since when the first scrub of a volume has been due on this node, in seconds since 1970; notes that it
    /// is.
    ///
    /// The volume may be older than this node's copy of it, or may have come with a pool.
    pub(super) fn due_since(&self, pool: PoolId, volume: VolumeId, now: u64) -> u64 {
        // A later time is of a clock that was set back.
        if let Some(since) = self.of(pool, volume).due_since.filter(|since| *since <= now) {
            return since;
        }
        self.change(pool, volume, |entry| entry.due_since = Some(now));
        now
    }

    fn change(&self, pool: PoolId, volume: VolumeId, change: impl FnOnce(&mut ScrubEntry)) {
        let mut entries = self.entries.borrow_mut();
        let new =
            || ScrubEntry { pool: pool.to_string(), volume: volume.to_string(), ..ScrubEntry::default() };
        let entry = entries.entry((pool, volume)).or_insert_with(new);
        let before = entry.clone();
        change(entry);
        // A scrub that is interrupted each minute before its first step changes nothing.
        if *entry != before {
            self.unwritten.borrow_mut().insert((pool, volume));
        }
    }

    /// Forgets the volumes that a pool does not have any more.
    pub(super) fn retain(&self, pool: PoolId, volumes: &BTreeSet<VolumeId>) {
        let mut entries = self.entries.borrow_mut();
        let is_gone = |(of, volume): &&(PoolId, VolumeId)| *of == pool && !volumes.contains(volume);
        let gone: Vec<_> = entries.keys().filter(is_gone).copied().collect();
        for place in gone {
            entries.remove(&place);
            self.unwritten.borrow_mut().insert(place);
        }
    }

    /// The changes that delete a pool's entries from the record.
    pub(super) fn without(&self, pool: PoolId) -> Vec<Change> {
        let entries = self.entries.borrow();
        let of_pool = entries.keys().filter(|(of, _)| *of == pool);
        of_pool.map(|(pool, volume)| delete(key(*pool, *volume))).collect()
    }

    /// Forgets a pool that has left this node.
    pub(super) fn forget(&self, pool: PoolId) {
        self.entries.borrow_mut().retain(|(of, _), _| *of != pool);
        self.unwritten.borrow_mut().retain(|(of, _)| *of != pool);
    }

    /// The changes that the record lacks.
    fn changes(&self, places: &BTreeSet<(PoolId, VolumeId)>) -> Vec<Change> {
        let entries = self.entries.borrow();
        let change = |place: &(PoolId, VolumeId)| match entries.get(place) {
            Some(entry) => set(key(place.0, place.1), entry),
            None => delete(key(place.0, place.1)),
        };
        places.iter().map(change).collect()
    }
}

impl Control {
    /// Writes to the record what it lacks of the scrubs.
    pub(super) async fn save_scrubs(self: &Rc<Control>) {
        if self.scrubs.kept.unwritten.borrow().is_empty() {
            return;
        }
        let work = Doing::WriteScrubs.of(self.name());
        let saved = self.change(work, [Thing::Record], |control, changing| async move {
            let kept = &control.scrubs.kept;
            let places = kept.unwritten.take();
            let written = control.commit(&changing, kept.changes(&places)).await;
            if written.is_err() {
                kept.unwritten.borrow_mut().extend(places);
            }
            written
        });
        if let Err(error) = saved.await {
            tracing::debug!(%error, "the progress of scrubs could not be written to the node's record yet");
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::version_1::check;

    const POOL: PoolId = PoolId([3; 16]);
    const OTHER: PoolId = PoolId([4; 16]);
    const VOLUME: VolumeId = VolumeId([7; 16]);

    /// What version 1 has in the node's record. Later versions must read it.
    #[test]
    fn an_entry_of_version_1_is_read_and_keeps_what_it_says() {
        let (pool, volume) = ("a0a1a2a3a4a5a6a7a8a9aaabacadaeaf", "00000000000000000000000000000001");
        check::<ScrubEntry>(&json!({
            "pool": pool, "volume": volume,
            "last": {
                "at": 1790000000, "stopped": true,
                "found": {"bad": 3, "repaired": 1, "first": 24, "of_snapshots": 1}
            },
            "progress": {
                "began": 1790000100, "asked": true, "size": 1073741824, "done": 1048576,
                "found": {"bad": 0, "repaired": 0}
            }
        }));
        check::<ScrubEntry>(&json!({"pool": pool, "volume": volume, "due_since": 1790000000}));
    }

    fn progress(done: u64) -> ScrubProgress {
        ScrubProgress { began: 9, asked: true, size: 1 << 20, done, found: ScrubFound::default() }
    }

    #[test]
    fn the_next_life_continues_where_a_scrub_was() {
        let kept = Kept::default();
        kept.set_progress(POOL, VOLUME, progress(4096));
        let places = kept.unwritten.take();
        let changes = kept.changes(&places);
        let [(at_key, Some(value))] = &changes[..] else { panic!("{changes:?}") };
        let id = "03030303030303030303030303030303/07070707070707070707070707070707";
        assert_eq!(*at_key, format!("scrubs/{id}"));
        let entry: ScrubEntry = serde_json::from_str(value.get()).unwrap();
        assert_eq!((entry.progress, entry.last), (Some(progress(4096)), None));
        assert_eq!(entry, kept.of(POOL, VOLUME));
        assert_eq!(kept.of(OTHER, VOLUME), ScrubEntry::default(), "an older copy is in another pool");
        let last = ScrubEnd {
            at: 20,
            stopped: false,
            found: ScrubFound { bad: 2, repaired: 1, first: Some(9), of_snapshots: 1 },
        };
        kept.set_last(POOL, VOLUME, last);
        assert_eq!((kept.of(POOL, VOLUME).progress, kept.with_unrepaired().len()), (None, 1));
    }

    #[test]
    fn unchanged_scrubs_are_not_written_again() {
        let kept = Kept::default();
        kept.set_progress(POOL, VOLUME, progress(4096));
        kept.unwritten.take();
        kept.set_progress(POOL, VOLUME, progress(4096));
        assert!(kept.unwritten.borrow().is_empty());
        kept.set_progress(POOL, VOLUME, progress(8192));
        assert_eq!(kept.unwritten.take(), BTreeSet::from([(POOL, VOLUME)]));
    }

    #[test]
    fn a_scrub_that_was_stopped_does_not_end_what_the_one_before_has_found() {
        let kept = Kept::default();
        let bad = |bad| ScrubFound { bad, first: (bad > 0).then_some(9), ..ScrubFound::default() };
        let end = |at, stopped, bad_blocks| ScrubEnd { at, stopped, found: bad(bad_blocks) };
        kept.set_last(POOL, VOLUME, end(20, false, 2));
        kept.set_last(POOL, VOLUME, end(30, true, 0));
        assert_eq!(kept.of(POOL, VOLUME).last, Some(end(30, true, 2)));
        kept.set_last(POOL, VOLUME, end(40, true, 3));
        assert_eq!(kept.of(POOL, VOLUME).last, Some(end(40, true, 3)));
        kept.set_last(POOL, VOLUME, end(50, false, 0));
        assert_eq!((kept.of(POOL, VOLUME).last, kept.with_unrepaired().len()), (Some(end(50, false, 0)), 0));
    }

    /// A volume may be years older than the copy that this node has just got.
    #[test]
    fn a_first_scrub_is_due_since_this_node_saw_that() {
        let kept = Kept::default();
        assert_eq!(kept.due_since(POOL, VOLUME, 1000), 1000);
        assert_eq!(kept.unwritten.take().len(), 1, "it lasts");
        assert_eq!(kept.due_since(POOL, VOLUME, 2000), 1000);
        assert!(kept.unwritten.borrow().is_empty());
        assert_eq!(kept.due_since(POOL, VOLUME, 500), 500, "the clock was set back");
        kept.set_last(POOL, VOLUME, ScrubEnd { at: 600, stopped: false, found: ScrubFound::default() });
        assert_eq!(kept.of(POOL, VOLUME).due_since, None);
    }

    #[test]
    fn scrubs_of_missing_volumes_are_deleted_from_the_record() {
        let kept = Kept::default();
        kept.set_progress(POOL, VOLUME, progress(0));
        kept.set_progress(OTHER, VOLUME, progress(0));
        kept.unwritten.take();
        kept.retain(POOL, &BTreeSet::from([VOLUME]));
        assert!(kept.unwritten.borrow().is_empty());
        kept.retain(POOL, &BTreeSet::new());
        let changes = kept.changes(&kept.unwritten.take());
        assert!(matches!(&changes[..], [(_, None)]), "{changes:?}");
        assert_eq!(kept.without(OTHER).len(), 1);
        kept.forget(OTHER);
        assert_eq!(kept.of(OTHER, VOLUME), ScrubEntry::default());
    }
}
