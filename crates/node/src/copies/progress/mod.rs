//! The progress of copies that are not in sync: what is left, how fast it goes, and what it waits for.
//!
//! Each slice knows its own resyncs. Core 0 adds them up and watches whether they make progress
//! ([`Progress`]). Nodes send each other [`Report`]s, so that each node with a copy of the volume can show
//! them. The node that resyncs the copy knows best. Without one, a node whose copy is in sync knows what the
//! copy misses. Otherwise only the copy itself knows that no node gives it anything.

mod waiting;

use std::collections::VecDeque;
use std::time::Duration;

use base::Instant;
use replica::{Receivers, Replica, Slot, Standing, SyncFrom, SyncNext};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

pub use self::waiting::{Awaited, KeptOut, SyncWait, Who};
use super::Address;
use super::budget::Restraint;
use super::cause::Cause;

/// The time over which a rate is measured.
const RATE_WINDOW: Duration = Duration::from_secs(5);
/// How often a sample is taken for that.
const RATE_EVERY: Duration = Duration::from_millis(250);
/// How long a resync must be without progress before it is shown what it waits for.
const STILL_MIN: Duration = Duration::from_secs(2);
/// How long a report of another node counts: three times the time between two reports.
const REPORT_AGE_MAX: Duration = Duration::from_secs(3);

/// How often nodes send each other reports.
pub const REPORT_EVERY: Duration = Duration::from_secs(1);

/// What one slice knows of a copy.
#[derive(Clone, Copy, Debug)]
pub struct SliceSync {
    /// Which slice.
    pub address: Address,
    /// The slot of the copy.
    pub slot: Slot,
    /// Bytes that it misses.
    pub left_bytes: u64,
    /// Bytes that resyncs from here have brought it, in this life of the node.
    pub copied_bytes: u64,
    /// Bytes that hosts' writes have added to what it misses, in this life of the node.
    pub dirtied_bytes: u64,
    /// The part that this node has in the resync.
    pub part: Part,
    /// What limits the rate, if the copy is resynced from here.
    pub limited_by: Option<Restraint>,
    /// Whether it is the copy on this node and the file system under its pool is full.
    pub no_room: bool,
}

/// The part that a slice has in a resync.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The copy is in sync.
    None,
    /// This slice is the source.
    Source(SyncNext),
    /// This slice is in sync, and another node is the source, or none is.
    Witness,
    /// This slice's copy is the one that misses writes.
    Own(SyncFrom),
}

/// What a slice knows of all copies that are not in sync, and of those that it has resynced.
///
/// `limited_by` says what limits the rate of resyncs from here to such copies. `no_room`: this copy finds no
/// room for writes.
pub fn of_slice(
    address: Address,
    replica: &Replica,
    no_room: bool,
    limited_by: impl Fn(Slot, Receivers) -> Option<Restraint>,
) -> Vec<SliceSync> {
    let Some(config) = replica.config() else { return Vec::new() };
    let serves = matches!(replica.standing(), Standing::InSync(_));
    let of_slot = |slot: Slot| {
        let (copied_bytes, dirtied_bytes) = (replica.synced_bytes(slot), replica.dirtied_bytes(slot));
        let (left_bytes, part) = if slot == replica.me() {
            let from = replica.syncs_from()?;
            (from.source.map_or(0, |source| replica.missed_bytes(source)), Part::Own(from))
        } else if config.in_sync().contains(slot) {
            (0, Part::None)
        } else if let Some(sync) = replica.sync_to(slot) {
            (sync.left_bytes, Part::Source(sync.next))
        } else if serves {
            (replica.missed_bytes(slot), Part::Witness)
        } else {
            return None;
        };
        let receivers = if config.members().contains(slot) { Receivers::Joiners } else { Receivers::All };
        (part != Part::None || copied_bytes + dirtied_bytes > 0).then_some(SliceSync {
            address,
            slot,
            left_bytes,
            copied_bytes,
            dirtied_bytes,
            part,
            limited_by: if may_be_held_back(part) { limited_by(slot, receivers) } else { None },
            no_room: no_room && slot == replica.me(),
        })
    };
    config.configured().iter().filter_map(of_slot).collect()
}

/// Whether a resync has anything to give that a limit may hold back.
fn may_be_held_back(part: Part) -> bool {
    matches!(part, Part::Source(next) if !matches!(next, SyncNext::Admission | SyncNext::Promotion | SyncNext::Pass))
}

/// What the slices of this node know of one copy, together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Local {
    /// Bytes left in the slices that are resynced from here.
    given_left: u64,
    /// Bytes left in the others.
    other_left: u64,
    /// Bytes copied so far.
    copied: u64,
    /// Bytes that hosts' writes have added to what it misses.
    dirtied: u64,
    /// What the first of the slices that are resynced from here does.
    next: Option<(u16, SyncNext)>,
    /// What limits the rate of one of these.
    limited_by: Option<Restraint>,
    /// Set if it is the copy on this node.
    own: Option<SyncFrom>,
    /// As [`SliceSync::no_room`], of any slice.
    no_room: bool,
}

impl Local {
    /// Adds what one slice knows.
    pub fn add(&mut self, sync: &SliceSync) {
        self.copied += sync.copied_bytes;
        self.dirtied += sync.dirtied_bytes;
        self.no_room |= sync.no_room;
        match sync.part {
            Part::None => {}
            Part::Source(next) => {
                self.given_left += sync.left_bytes;
                self.limited_by = self.limited_by.max(sync.limited_by);
                // A slice that waits for the rest to get as far does not say what the rest waits for.
                let waits = |next| matches!(next, SyncNext::Admission | SyncNext::Promotion);
                if self.next.is_none_or(|(_, known)| waits(known) && !waits(next)) {
                    self.next = Some((sync.address.slice, next));
                }
            }
            Part::Witness => self.other_left += sync.left_bytes,
            Part::Own(from) => {
                self.other_left += sync.left_bytes;
                let worse =
                    |known: SyncFrom| (known.failed, known.silent_ticks) < (from.failed, from.silent_ticks);
                if self.own.is_none_or(worse) {
                    self.own = Some(from);
                }
            }
        }
    }

    /// Bytes that resyncs from here have brought this copy, in this life of the node.
    pub fn copied(&self) -> u64 {
        self.copied
    }

    /// Bytes that hosts' writes have added to what this copy misses, in this life of the node.
    pub fn dirtied(&self) -> u64 {
        self.dirtied
    }

    fn left(&self) -> u64 {
        if self.next.is_some() { self.given_left } else { self.other_left }
    }
}

/// The progress of one copy towards being in sync, as far as this node knows.
#[derive(Debug)]
pub struct Progress {
    /// [`Local::copied`] when it began.
    copied_before: u64,
    /// The most that there was to copy at any time, including what was copied already.
    total: u64,
    /// What was last seen, when that was, and when it last changed.
    seen: Local,
    seen_at: Instant,
    moved_at: Instant,
    /// The samples of the last [`RATE_WINDOW`].
    samples: VecDeque<Sample>,
}

/// How much had been copied at a point in time, and how much hosts' writes had added.
#[derive(Clone, Copy, Debug)]
struct Sample {
    at: Instant,
    copied: u64,
    dirtied: u64,
}

impl Progress {
    /// Begins to watch a copy.
    pub fn new(now: Instant, local: Local) -> Progress {
        let mut progress = Progress {
            copied_before: local.copied,
            total: 0,
            seen: local,
            seen_at: now,
            moved_at: now,
            samples: VecDeque::from([Sample { at: now, copied: 0, dirtied: local.dirtied }]),
        };
        progress.observe(now, local);
        progress
    }

    /// Takes what this node's slices know now.
    pub fn observe(&mut self, now: Instant, local: Local) {
        let stood_still = self.copied() == 0 || self.seen_at.since(self.moved_at) >= STILL_MIN;
        if stood_still && local.copied != self.seen.copied {
            // The time in which it had nothing to do, or waited, must not lower the rate.
            self.samples = VecDeque::from([self.sample(self.seen_at)]);
        }
        // More data left to copy because of hosts' writes is no progress.
        if local.copied != self.seen.copied || local.left() < self.seen.left() {
            self.moved_at = now;
        }
        self.seen = local;
        self.seen_at = now;
        self.total = self.total.max(local.left() + self.copied());
        if self.samples.back().is_none_or(|last| now.since(last.at) >= RATE_EVERY) {
            self.samples.push_back(self.sample(now));
        }
        // One sample from before the window stays, so that the window is covered.
        while self.samples.get(1).is_some_and(|second| now.since(second.at) >= RATE_WINDOW) {
            self.samples.pop_front();
        }
    }

    pub(crate) fn is_source(&self) -> bool {
        self.seen.next.is_some()
    }

    /// Whether it is the copy on this node, and a disk of it failed.
    pub(crate) fn has_failed(&self) -> bool {
        self.seen.own.is_some_and(|own| own.failed)
    }

    /// Whether it is the copy on this node, and finds no room for writes.
    pub(crate) fn has_no_room(&self) -> bool {
        self.seen.no_room
    }

    pub(crate) fn moved_at(&self) -> Instant {
        self.moved_at
    }

    fn copied(&self) -> u64 {
        // A slice that was closed and opened again counts from zero.
        self.seen.copied.saturating_sub(self.copied_before)
    }

    fn sample(&self, at: Instant) -> Sample {
        Sample { at, copied: self.copied(), dirtied: self.seen.dirtied }
    }

    /// How fast the value of a sample grew over the window, per second.
    fn per_second(&self, now: Instant, of: fn(&Sample) -> u64) -> u64 {
        let Some(first) = self.samples.front() else { return 0 };
        let micros = now.since(first.at).as_micros().max(1);
        let more = of(&self.sample(now)).saturating_sub(of(first));
        u64::try_from(u128::from(more) * 1_000_000 / micros).unwrap_or(u64::MAX)
    }

    /// The report for other nodes.
    pub fn report(&self, now: Instant, who: Who<'_>) -> Report {
        Report {
            volume: who.volume.number,
            slot: who.copy.index() as u8,
            source: self.is_source(),
            own: self.seen.own.is_some(),
            failed: self.has_failed(),
            no_room: self.has_no_room(),
            total: self.total,
            left: self.seen.left(),
            copied: self.copied(),
            bytes_per_second: self.per_second(now, |sample| sample.copied),
            dirtied_per_second: self.per_second(now, |sample| sample.dirtied),
            limited_by: self.seen.limited_by,
            waits_for: self.waits_for(now, who),
        }
    }
}

/// What a node knows of a copy that is not in sync; JSON on the wire.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// The volume's number in the cluster.
    pub volume: u32,
    /// The slot of the copy.
    pub slot: u8,
    /// Whether the node resyncs the copy, at least parts of it.
    pub(crate) source: bool,
    /// Whether it is the node of that copy.
    pub(crate) own: bool,
    /// Whether a disk of the copy failed, as its node says.
    pub(crate) failed: bool,
    /// Whether the file system under the copy's pool is full, as its node says.
    pub(crate) no_room: bool,
    /// Bytes that there were to copy.
    total: u64,
    /// Bytes that are left of them.
    left: u64,
    /// Bytes that were copied.
    copied: u64,
    bytes_per_second: u64,
    /// How much hosts' writes add to what is left.
    dirtied_per_second: u64,
    #[serde(default, deserialize_with = "if_known")]
    pub(crate) limited_by: Option<Restraint>,
    #[serde(default, deserialize_with = "if_known")]
    waits_for: Option<SyncWait>,
}

/// Values that are only shown may have names of a later version; then the rest of the report still counts.
fn if_known<'de, T: DeserializeOwned, D: Deserializer<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    Value::deserialize(deserializer).map(|value| serde_json::from_value(value).ok())
}

/// The reports of another node, and when they came.
#[derive(Clone, Debug)]
pub struct ReceivedReports {
    /// When they came.
    pub at: Instant,
    /// The reports.
    pub reports: Vec<Report>,
}

impl ReceivedReports {
    /// The reports; none if they are old.
    pub fn fresh(&self, now: Instant) -> &[Report] {
        if now.since(self.at) <= REPORT_AGE_MAX { &self.reports } else { &[] }
    }
}

/// How long a condition has lasted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lasting {
    /// How long this node has seen it.
    pub age: Duration,
    /// It lasted already when this node began to look, so it may be older.
    pub at_least: bool,
}

/// The progress of a copy that is not in sync, as it is shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CopySync {
    /// Bytes that there were to copy when the resync began, and those that hosts have added since.
    pub total_bytes: u64,
    /// Bytes that are left of them.
    pub left_bytes: u64,
    /// Bytes that were copied.
    pub copied_bytes: u64,
    /// The rate in bytes a second, over the last seconds.
    pub bytes_per_second: u64,
    /// Bytes a second that hosts' writes have added to what is left.
    pub dirtied_per_second: u64,
    /// Why the copy missed writes.
    pub cause: Cause,
    /// What limits the rate, if not the disks and the network.
    pub limited_by: Option<Restraint>,
    /// What it waits for, if it does.
    pub waits_for: Option<SyncWait>,
    /// How long the copy has been out of sync; `None`: unknown.
    pub lasts: Option<Lasting>,
}

impl CopySync {
    /// Combines the reports of all nodes about a copy.
    ///
    /// `absent` is what the copy waits for if no node gives it anything and its own node reports nothing.
    pub fn of(reports: &[&Report], cause: Cause, absent: impl FnOnce() -> Awaited) -> CopySync {
        let sources: Vec<&&Report> = reports.iter().filter(|report| report.source).collect();
        let own = reports.iter().find(|report| report.own);
        let failed = own.filter(|own| own.failed || own.no_room).and_then(|own| own.waits_for.clone());
        if sources.is_empty() {
            // No node gives it anything: a node whose copy is in sync knows best what it misses.
            let left = reports.iter().filter(|report| !report.own).map(|report| report.left).max();
            let left = left.or(own.map(|own| own.left)).unwrap_or(0);
            let waits_for = own.map_or_else(|| Some(absent().into()), |own| own.waits_for.clone());
            return CopySync { total_bytes: left, left_bytes: left, cause, waits_for, ..CopySync::default() };
        }
        let sum = |of: fn(&Report) -> u64| sources.iter().map(|report| of(report)).sum();
        let bytes_per_second = sum(|report| report.bytes_per_second);
        let waiting = || sources.iter().find_map(|report| report.waits_for.clone());
        CopySync {
            total_bytes: sum(|report| report.total),
            left_bytes: sum(|report| report.left),
            copied_bytes: sum(|report| report.copied),
            bytes_per_second,
            dirtied_per_second: sum(|report| report.dirtied_per_second),
            cause,
            limited_by: sources.iter().filter_map(|report| report.limited_by).max(),
            // The resync of its other slices ends soon.
            waits_for: failed.or_else(|| if bytes_per_second == 0 { waiting() } else { None }),
            lasts: None,
        }
    }

    /// How many seconds the rest takes at the present rate.
    ///
    /// `None`: unknown, also while hosts' writes add as much as is copied.
    pub fn seconds_left(&self) -> Option<u64> {
        self.left_bytes.checked_div(self.bytes_per_second.saturating_sub(self.dirtied_per_second))
    }
}

#[cfg(test)]
mod tests;
