//! The progress of resyncs: watched here, reported to the other nodes, and combined with their reports.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use base::Instant;
use link::Frame;
use replica::{NodeId, Slot};

use super::{ForkState, Reconciler, json};
use crate::copies::budget::Restraint;
use crate::copies::cause::Cause;
use crate::copies::entry::{CopyEntry, StandingEntry, VolumeEntry};
use crate::copies::message;
use crate::copies::progress::{
    Awaited, CopySync, Local, Part, Progress, REPORT_EVERY, ReceivedReports, Report, SliceSync, Who,
};

/// How often the node checks its totals while no resync is under way.
const COUNT_EVERY: Duration = Duration::from_secs(1);

/// What this node and others know of copies that are not in sync; volumes go by their numbers.
#[derive(Default)]
pub(super) struct Syncs {
    /// What this node sees of copies that are not in sync.
    progress: BTreeMap<(u32, Slot), Progress>,
    /// Totals of the resyncs from here, in this life, by copy.
    counted: BTreeMap<(u32, Slot), Counted>,
    /// When the totals were last updated, if no resync was under way then; `None`: one was.
    counted_at: Option<Instant>,
    /// What the other nodes last reported.
    heard: BTreeMap<NodeId, ReceivedReports>,
    /// The last report to the others.
    told: Option<SentReport>,
    /// Which nodes are sources of resyncs of which volumes; the volumes' paths show this.
    sources: BTreeSet<(u32, NodeId)>,
}

/// Totals that this node has counted for a copy on another one, in this life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counted {
    /// Bytes that resyncs from here have copied to it.
    pub copied: u64,
    /// Bytes that hosts' writes have added to what it has to be given.
    pub dirtied: u64,
}

/// A report to the other nodes.
#[derive(Clone, Copy)]
struct SentReport {
    at: Instant,
    /// Whether there was anything to report.
    something: bool,
    /// Whether this node is the source of a resync.
    gives: bool,
    /// How many copies here take no writes, because a disk failed or has no room.
    stuck: usize,
}

/// Why the disks of a copy take no writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DiskTrouble {
    /// A disk failed: its pool must be opened again.
    Failed,
    /// The file system under its pool is full, which passes.
    NoRoom,
}

impl Reconciler {
    /// Takes in what the slices of this node know now.
    pub(super) fn note_syncs(&self, now: Instant, slices: &[SliceSync]) {
        let volumes = self.volumes.borrow();
        let mut syncs = self.syncs.borrow_mut();
        // After resyncs of many volumes there are many totals, and they no longer change.
        let is_over = syncs.progress.is_empty() && slices.iter().all(|slice| slice.part == Part::None);
        if is_over && syncs.counted_at.is_some_and(|at| now.since(at) < COUNT_EVERY) {
            return;
        }
        syncs.counted_at = is_over.then_some(now);
        let mut known: BTreeMap<(u32, Slot), Local> = BTreeMap::new();
        for slice in slices {
            known.entry((slice.address.volume, slice.slot)).or_default().add(slice);
        }
        if known.is_empty() && syncs.counted.is_empty() && syncs.progress.is_empty() {
            return;
        }
        let is_behind = |copy: &CopyEntry| copy.standing != StandingEntry::InSync;
        let behind = volumes.values().filter(|kept| kept.entry.copies.iter().any(is_behind));
        let entries: BTreeMap<u32, &VolumeEntry> =
            behind.map(|kept| (kept.entry.number, &kept.entry)).collect();
        let misses = |number: u32, slot: Slot| {
            let copy = entries.get(&number).and_then(|entry| entry.copy_in(slot));
            copy.is_some_and(is_behind)
        };
        syncs
            .progress
            .retain(|(number, slot), _| known.contains_key(&(*number, *slot)) && misses(*number, *slot));
        syncs.counted.retain(|key, _| known.contains_key(key));
        for ((number, slot), local) in known {
            let counted = Counted { copied: local.copied(), dirtied: local.dirtied() };
            syncs.counted.insert((number, slot), counted);
            if misses(number, slot) {
                let progress = syncs.progress.entry((number, slot));
                progress
                    .and_modify(|progress| progress.observe(now, local))
                    .or_insert_with(|| Progress::new(now, local));
            }
        }
    }

    /// Whether this node sees no copy that is not in sync, and the others know that.
    pub(super) fn knows_of_no_syncs(&self) -> bool {
        let syncs = self.syncs.borrow();
        syncs.progress.is_empty() && syncs.told.is_some_and(|told| !told.something)
    }

    /// Reports this node's resyncs to the others, at intervals, as long as there is something to report.
    ///
    /// It reports at once when this node becomes a source, because it then has a share of the cluster's
    /// budget; and when a disk of a copy here fails, because the copy must not be let in.
    pub(super) fn tell_syncs(&self, now: Instant) {
        let count =
            |is_so: fn(&&Progress) -> bool| self.syncs.borrow().progress.values().filter(is_so).count();
        let (gives, stuck) =
            (count(|one| one.is_source()) > 0, count(|one| one.has_failed() || one.has_no_room()));
        let begins = |told: SentReport| gives && !told.gives || stuck > told.stuck;
        let due = |told: SentReport| now.since(told.at) >= REPORT_EVERY || begins(told);
        if !self.syncs.borrow().told.is_none_or(due) {
            return;
        }
        let reports = self.all_own_reports(now);
        let told = SentReport { at: now, something: !reports.is_empty(), gives, stuck };
        let before = self.syncs.borrow_mut().told.replace(told);
        // An empty report is sent once.
        if told.something || before.is_some_and(|before| before.something) {
            let head = json(&reports);
            for link in self.control_links() {
                link.send(message::frame(message::SYNCS, 0, head.clone()));
            }
        }
    }

    fn all_own_reports(&self, now: Instant) -> Vec<Report> {
        if self.syncs.borrow().progress.is_empty() {
            return Vec::new();
        }
        let volumes = self.volumes.borrow();
        volumes.values().flat_map(|kept| self.own_reports(now, &kept.entry)).collect()
    }

    fn own_reports(&self, now: Instant, volume: &VolumeEntry) -> Vec<Report> {
        let syncs = self.syncs.borrow();
        let report = |copy: Slot| {
            let progress = syncs.progress.get(&(volume.number, copy))?;
            let kept_out = self.kept_out(now, volume, copy);
            Some(progress.report(now, Who { volume, me: self.me(), copy, kept_out: kept_out.as_ref() }))
        };
        Slot::all().filter_map(report).collect()
    }

    /// Takes another node's report on copies that are not in sync.
    pub(super) fn handle_syncs(&self, now: Instant, from: NodeId, frame: &Frame) {
        match serde_json::from_slice(&frame.head) {
            Ok(reports) => {
                self.hurry();
                self.syncs.borrow_mut().heard.insert(from, ReceivedReports { at: now, reports });
            }
            Err(error) => tracing::debug!(%from, %error, "a node's resync report cannot be read"),
        }
    }

    /// What keeps the disks of a copy from taking writes, until its node reports that this is over.
    pub(super) fn disk_trouble(
        &self,
        now: Instant,
        volume: &VolumeEntry,
        copy: &CopyEntry,
    ) -> Option<DiskTrouble> {
        let syncs = self.syncs.borrow();
        let said = syncs.heard.get(&NodeId(copy.node)).map(|heard| heard.fresh(now)).unwrap_or_default();
        let of_it =
            |report: &&Report| report.own && (report.volume, report.slot) == (volume.number, copy.slot);
        match said.iter().find(of_it) {
            Some(report) if report.failed => Some(DiskTrouble::Failed),
            Some(report) => report.no_room.then_some(DiskTrouble::NoRoom),
            // The node may not have reported it yet.
            None => match volume.cause(copy.slot) {
                Cause::NoSpace => Some(DiskTrouble::NoRoom),
                // The copy comes back when its pool has been reopened.
                Cause::DiskFailed | Cause::BlockUnrepaired | Cause::DiskFailing | Cause::DiskSilent => {
                    Some(DiskTrouble::Failed)
                }
                _ => None,
            },
        }
    }

    /// Updates which nodes are sources of resyncs; returns whether that has changed.
    pub(super) fn look_at_sources(&self, now: Instant) -> bool {
        let mut syncs = self.syncs.borrow_mut();
        let own = syncs.progress.iter().filter(|(_, progress)| progress.is_source());
        let mut sources: BTreeSet<(u32, NodeId)> = own.map(|((volume, _), _)| (*volume, self.me())).collect();
        for (node, heard) in &syncs.heard {
            let theirs = heard.fresh(now).iter().filter(|report| report.source);
            sources.extend(theirs.map(|report| (report.volume, *node)));
        }
        let changed = sources != syncs.sources;
        if changed {
            syncs.sources.clone_from(&sources);
            drop(syncs);
            self.tell_syncs_begun(&sources);
        }
        changed
    }

    /// Whether the other node may be a source of resyncs.
    ///
    /// It may unless it has just reported that it is not.
    pub(super) fn may_give(&self, now: Instant, node: NodeId) -> bool {
        let syncs = self.syncs.borrow();
        let said = syncs.heard.get(&node).map(|heard| heard.fresh(now)).unwrap_or_default();
        let gives = |report: &Report| report.source && report.limited_by != Some(Restraint::Paused);
        said.is_empty() || said.iter().any(gives)
    }

    /// When each volume that is resynced from here last made progress, by its number.
    pub(super) fn last_moves(&self) -> BTreeMap<u32, Instant> {
        let syncs = self.syncs.borrow();
        let given = syncs.progress.iter().filter(|(_, progress)| progress.is_source());
        let mut moves = BTreeMap::new();
        for ((volume, _), progress) in given {
            let last = moves.entry(*volume).or_insert(progress.moved_at());
            *last = progress.moved_at().max(*last);
        }
        moves
    }

    /// Whether the node is the source of a resync of the volume.
    pub(super) fn is_source(&self, volume: u32, node: NodeId) -> bool {
        self.syncs.borrow().sources.contains(&(volume, node))
    }

    /// The progress of those copies of a volume that are not in sync, by slot.
    pub(super) fn syncs_of(&self, now: Instant, volume: &VolumeEntry) -> BTreeMap<u8, CopySync> {
        let own = self.own_reports(now, volume);
        let syncs = self.syncs.borrow();
        let heard = syncs.heard.values().flat_map(|heard| heard.fresh(now));
        let all: Vec<&Report> =
            own.iter().chain(heard).filter(|report| report.volume == volume.number).collect();
        let behind = volume.copies.iter().filter(|copy| copy.standing != StandingEntry::InSync);
        behind
            .map(|copy| {
                let of_copy: Vec<&Report> =
                    all.iter().filter(|report| report.slot == copy.slot).copied().collect();
                let absent = || self.absence(now, volume, copy);
                let mut sync = CopySync::of(&of_copy, volume.cause(copy.slot), absent);
                sync.lasts = Some(self.out_of_sync_since.borrow().lasts(now, volume.number, copy.slot));
                if let Some(pause) = volume.paused.get(&copy.slot)
                    && sync.limited_by == Some(Restraint::Paused)
                {
                    sync.waits_for = Some(Awaited::Resumption { by: pause.by.clone() }.into());
                }
                (copy.slot, sync)
            })
            .collect()
    }

    /// Bytes that copies of the cluster's volumes miss, as far as this node knows.
    pub fn missed_bytes(&self) -> u64 {
        let now = rt::now();
        let own = self.all_own_reports(now);
        let syncs = self.syncs.borrow();
        let heard = syncs.heard.values().flat_map(|heard| heard.fresh(now));
        let mut of_copies: BTreeMap<(u32, u8), Vec<&Report>> = BTreeMap::new();
        for report in own.iter().chain(heard) {
            of_copies.entry((report.volume, report.slot)).or_default().push(report);
        }
        let missed =
            |reports: &Vec<&Report>| CopySync::of(reports, Cause::NewCopy, || Awaited::Link).left_bytes;
        of_copies.values().map(missed).sum()
    }

    /// What a copy waits for if there is no report on it.
    fn absence(&self, now: Instant, volume: &VolumeEntry, copy: &CopyEntry) -> Awaited {
        if self.is_forked_off(volume, copy) {
            return Awaited::Decision { volume: volume.name.clone() };
        }
        let node = NodeId(copy.node);
        if node == self.me() {
            return Awaited::OpeningHere;
        }
        if self.is_heard(now, node) { Awaited::Opening(node) } else { Awaited::Node(node) }
    }

    /// Whether the volume is split, and the copy is the one that stays as it is until an administrator
    /// decides.
    fn is_forked_off(&self, volume: &VolumeEntry, copy: &CopyEntry) -> bool {
        let fork = self.fork_of(volume);
        fork.is_some_and(|fork| fork.state == ForkState::Split && fork.node == copy.node)
    }

    /// Totals that this node has counted for copies on others, in this life, by the volume's number and the
    /// slot.
    pub fn counted(&self) -> BTreeMap<(u32, Slot), Counted> {
        self.syncs.borrow().counted.clone()
    }
}
