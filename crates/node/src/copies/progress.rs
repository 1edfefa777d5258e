//! How far copies are that are not in sync: what is left, how fast it goes, and what it waits for.
//!
//! Each slice knows of its own syncs. Core 0 adds them up and watches whether they get on ([`Progress`]); nodes tell each other
//! ([`Report`]), so that each with a copy of the volume can show it: who brings a copy up to date knows best, else who is in sync knows what it
//! misses, else the copy itself knows that nobody gives it anything.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use base::Instant;
use replica::{NodeId, Receivers, Replica, Slot, Standing, SyncFrom, SyncNext};
use serde::{Deserialize, Serialize};

use super::Address;
use super::budget::Restraint;
use super::entry::VolumeEntry;
use super::keeper::Lasting;

/// Over what time a rate is measured.
const RATE_WINDOW: Duration = Duration::from_secs(5);
/// How often it is noted for that.
const RATE_EVERY: Duration = Duration::from_millis(250);
/// After so long without progress it is said what a sync waits for.
const STILL_MIN: Duration = Duration::from_secs(2);
/// How long what another node has said counts: three times of what lies between two reports.
const REPORT_AGE_MAX: Duration = Duration::from_secs(3);

/// How often nodes tell each other.
pub const REPORT_EVERY: Duration = Duration::from_secs(1);

/// What one slice knows of a copy.
#[derive(Clone, Copy, Debug)]
pub struct SliceSync {
    /// Which slice.
    pub address: Address,
    /// Whose copy.
    pub slot: Slot,
    /// Bytes that it misses.
    pub left_bytes: u64,
    /// Bytes that syncs from here have brought it, in this life.
    pub copied_bytes: u64,
    /// Bytes that hosts' writes have added to what it is to be given, in this life.
    pub dirtied_bytes: u64,
    /// What this node has to do with it.
    pub part: Part,
    /// What keeps it from being given faster, if it is given from here.
    pub held_back_by: Option<Restraint>,
}

/// What a slice has to do with a sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The copy is in sync.
    None,
    /// It gives.
    Source(SyncNext),
    /// It is in sync, and somebody else gives, or nobody.
    Witness,
    /// It is the one that misses writes.
    Own(SyncFrom),
}

/// What this slice knows of all copies that are not in sync, and of those that it has brought up to date. `held_back_by`: what keeps syncs from
/// here to such copies from going faster.
pub fn of_slice(
    address: Address,
    replica: &Replica,
    held_back_by: impl Fn(Slot, Receivers) -> Option<Restraint>,
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
            held_back_by: if may_be_held_back(part) { held_back_by(slot, receivers) } else { None },
        })
    };
    config.configured().iter().filter_map(of_slot).collect()
}

/// Whether a sync has anything to give that it may be kept from giving.
fn may_be_held_back(part: Part) -> bool {
    matches!(part, Part::Source(next) if !matches!(next, SyncNext::Admission | SyncNext::Promotion | SyncNext::Pass))
}

/// What the slices of this node know of one copy, together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Local {
    /// Left in the slices that are given from here.
    given_left: u64,
    /// Left in others.
    other_left: u64,
    /// Brought so far.
    copied: u64,
    /// What hosts' writes have added to what it is to be given.
    dirtied: u64,
    /// What the first of the slices given from here does.
    next: Option<(u16, SyncNext)>,
    /// What keeps one of these from being given faster.
    held_back_by: Option<Restraint>,
    /// It is the copy on this node.
    own: Option<SyncFrom>,
}

impl Local {
    /// Takes in what one slice knows.
    pub fn add(&mut self, sync: &SliceSync) {
        self.copied += sync.copied_bytes;
        self.dirtied += sync.dirtied_bytes;
        match sync.part {
            Part::None => {}
            Part::Source(next) => {
                self.given_left += sync.left_bytes;
                self.held_back_by = self.held_back_by.max(sync.held_back_by);
                // What waits for the rest to get as far says nothing of what the rest waits for.
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

    /// Bytes that syncs from here have brought this copy, in this life.
    pub fn copied(&self) -> u64 {
        self.copied
    }

    /// Bytes that hosts' writes have added to what this copy is to be given, in this life.
    pub fn dirtied(&self) -> u64 {
        self.dirtied
    }

    fn left(&self) -> u64 {
        if self.next.is_some() { self.given_left } else { self.other_left }
    }
}

/// Watches one copy come in sync, as far as this node knows.
#[derive(Debug)]
pub struct Progress {
    /// [`Local::copied`] when it began.
    copied_before: u64,
    /// The most that there was to copy at once, with what was copied.
    total: u64,
    /// What was last seen, when that was, and when it last changed.
    seen: Local,
    seen_at: Instant,
    moved_at: Instant,
    /// Of the last [`RATE_WINDOW`].
    samples: VecDeque<Sample>,
}

/// How much had been copied at some time, and how much hosts' writes had added to it.
#[derive(Clone, Copy, Debug)]
struct Sample {
    at: Instant,
    copied: u64,
    dirtied: u64,
}

impl Progress {
    /// From now on.
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

    /// What is so now.
    pub fn observe(&mut self, now: Instant, local: Local) {
        let stood_still = self.copied() == 0 || self.seen_at.since(self.moved_at) >= STILL_MIN;
        if stood_still && local.copied != self.seen.copied {
            // How long it had nothing to do, or waited, is not how fast it goes.
            self.samples = VecDeque::from([self.sample(self.seen_at)]);
        }
        // That hosts' writes add to what is left is no progress.
        if local.copied != self.seen.copied || local.left() < self.seen.left() {
            self.moved_at = now;
        }
        self.seen = local;
        self.seen_at = now;
        self.total = self.total.max(local.left() + self.copied());
        if self.samples.back().is_none_or(|last| now.since(last.at) >= RATE_EVERY) {
            self.samples.push_back(self.sample(now));
        }
        // One from before the window stays, so that it is covered.
        while self.samples.get(1).is_some_and(|second| now.since(second.at) >= RATE_WINDOW) {
            self.samples.pop_front();
        }
    }

    pub(super) fn is_source(&self) -> bool {
        self.seen.next.is_some()
    }

    /// Whether it is the copy on this node, and a disk of it failed.
    pub(super) fn has_failed(&self) -> bool {
        self.seen.own.is_some_and(|own| own.failed)
    }

    pub(super) fn moved_at(&self) -> Instant {
        self.moved_at
    }

    fn copied(&self) -> u64 {
        // A slice that was closed and opened again counts from zero.
        self.seen.copied.saturating_sub(self.copied_before)
    }

    fn sample(&self, at: Instant) -> Sample {
        Sample { at, copied: self.copied(), dirtied: self.seen.dirtied }
    }

    /// How much more a second what this tells has become over the window.
    fn per_second(&self, now: Instant, of: fn(&Sample) -> u64) -> u64 {
        let Some(first) = self.samples.front() else { return 0 };
        let micros = now.since(first.at).as_micros().max(1);
        let more = of(&self.sample(now)).saturating_sub(of(first));
        u64::try_from(u128::from(more) * 1_000_000 / micros).unwrap_or(u64::MAX)
    }

    /// What other nodes are told.
    pub fn report(&self, now: Instant, who: Who<'_>) -> Report {
        Report {
            volume: who.volume.number,
            slot: who.copy.index() as u8,
            source: self.is_source(),
            own: self.seen.own.is_some(),
            failed: self.has_failed(),
            total: self.total,
            left: self.seen.left(),
            copied: self.copied(),
            bytes_per_second: self.per_second(now, |sample| sample.copied),
            dirtied_per_second: self.per_second(now, |sample| sample.dirtied),
            held_back_by: self.seen.held_back_by,
            waits_for: self.waits_for(now, who),
        }
    }

    /// What it waits for if nothing has happened for [`STILL_MIN`]; to be read after "waits for".
    fn waits_for(&self, now: Instant, who: Who<'_>) -> Option<String> {
        let (me, copy) = (who.me, who.node_of(who.copy));
        if self.has_failed() {
            return Some(KeptOut::Failed(me).to_string());
        }
        if let Some(SyncFrom { source, silent_ticks, .. }) = self.seen.own {
            let silent = replica::TICK * silent_ticks;
            return (silent >= STILL_MIN).then(|| match source {
                Some(source) => {
                    format!(
                        "{}, its source, which does not answer since {}",
                        who.node_of(source),
                        seconds(silent)
                    )
                }
                None => "a link to a node whose copy is in sync".into(),
            });
        }
        let still = now.since(self.moved_at);
        let (slice, next) = self.seen.next?;
        if still < STILL_MIN {
            return None;
        }
        let what = match next {
            SyncNext::Read(region) => {
                format!("the disks of {me}, its source, to read region {region} of slice {slice}")
            }
            SyncNext::Confirmed(region) => {
                format!("{copy} to have region {region} of slice {slice} on its disks")
            }
            SyncNext::WritesEnd(region) => {
                format!("hosts' writes to region {region} of slice {slice} to end")
            }
            SyncNext::Budget => self.budget_of(me),
            SyncNext::Pass => "the next pass to begin".into(),
            SyncNext::Admission => {
                who.kept_out.map_or("the cluster's record to let it join".into(), KeptOut::to_string)
            }
            SyncNext::Promotion => "the cluster's record to say that it is in sync".into(),
        };
        Some(format!("{what}, since {}", seconds(still)))
    }

    fn budget_of(&self, me: NodeId) -> String {
        match self.seen.held_back_by {
            Some(Restraint::Turn) => {
                format!("its turn: {me}, its source, brings other volumes up to date first")
            }
            Some(Restraint::Paused) => "somebody to resume it".into(),
            Some(Restraint::NodeLimit) => format!("{me}, its source, to be allowed to give more"),
            Some(Restraint::ClusterLimit) => {
                format!("{me}, its source, to have its share of the cluster's sync limit")
            }
            Some(Restraint::Hosts) | None => {
                format!("{me}, its source, to have time for it beside hosts' writes")
            }
        }
    }
}

/// Who is who in a sync.
#[derive(Clone, Copy, Debug)]
pub struct Who<'a> {
    /// The volume.
    pub volume: &'a VolumeEntry,
    /// This node.
    pub me: NodeId,
    /// The copy that is not in sync.
    pub copy: Slot,
    /// What keeps it from being let in when it has nearly all.
    pub kept_out: Option<&'a KeptOut>,
}

/// Why a copy that has nearly all that it missed is not let in as a joiner; its text is to be read after "waits for".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeptOut {
    /// Its node and that of a copy in sync do not reach each other.
    Apart(NodeId, NodeId),
    /// Its node was started a moment ago, and takes part in nothing for so much longer.
    Quiet(NodeId, Duration),
    /// It did not finish writes when it was in sync last, and is given so much more time.
    Penalty(Duration),
    /// A disk of it failed, and its node has not said since that it is open again.
    Failed(NodeId),
}

impl fmt::Display for KeptOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeptOut::Apart(a, b) => write!(f, "{a} and {b} to reach each other over all their links"),
            KeptOut::Quiet(node, left) => write!(
                f,
                "{} ms to pass, as what {node} promised before it was started a moment ago may still stand",
                left.as_millis()
            ),
            KeptOut::Penalty(left) => {
                let left = left.as_secs() + 1;
                write!(f, "{left} s to pass, as it did not finish writes when it was in sync last")
            }
            KeptOut::Failed(node) => {
                write!(
                    f,
                    "its pool on {node} to be reopened there (ursa pool reopen), as a disk of it failed"
                )
            }
        }
    }
}

impl Who<'_> {
    fn node_of(&self, slot: Slot) -> NodeId {
        NodeId(self.volume.copy_in(slot).map_or(0, |copy| copy.node))
    }
}

/// What a node knows of a copy that is not in sync; on the wire as JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// The volume's number in the cluster.
    pub volume: u32,
    /// Whose copy.
    pub slot: u8,
    /// It brings it up to date, at least parts of it.
    pub(super) source: bool,
    /// It is the node of that copy.
    pub(super) own: bool,
    /// A disk of the copy failed, says its node; nodes of before did not.
    #[serde(default)]
    pub(super) failed: bool,
    /// Bytes that there were to copy.
    total: u64,
    /// Bytes that are left of them.
    left: u64,
    /// Bytes that were copied.
    copied: u64,
    bytes_per_second: u64,
    /// What hosts' writes add to what is left; nodes of before did not say.
    #[serde(default)]
    dirtied_per_second: u64,
    #[serde(default)]
    pub(super) held_back_by: Option<Restraint>,
    waits_for: Option<String>,
}

/// What another node has said, and when.
#[derive(Clone, Debug)]
pub struct Heard {
    /// When it came.
    pub at: Instant,
    /// What it said.
    pub reports: Vec<Report>,
}

impl Heard {
    /// Its reports, unless they are old.
    pub fn fresh(&self, now: Instant) -> &[Report] {
        if now.since(self.at) <= REPORT_AGE_MAX { &self.reports } else { &[] }
    }
}

/// How far a copy is that is not in sync: what is shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CopySync {
    /// Bytes that there were to copy when it began, with what has been written since.
    pub total_bytes: u64,
    /// Bytes that are left of them.
    pub left_bytes: u64,
    /// Bytes that were copied.
    pub copied_bytes: u64,
    /// How fast, over the last seconds.
    pub bytes_per_second: u64,
    /// How much a second hosts' writes have added to what is left.
    pub dirtied_per_second: u64,
    /// Why it missed writes.
    pub cause: String,
    /// What keeps it from going faster, if not the disks and the network.
    pub held_back_by: Option<Restraint>,
    /// What it waits for, if it does; to be read after "waits for".
    pub waits_for: Option<String>,
    /// How long the copy has not been in sync; `None`: nobody has looked.
    pub lasts: Option<Lasting>,
}

impl CopySync {
    /// Of what all nodes say of the copy. `absent` is what it waits for if nobody gives it anything.
    pub fn of(reports: &[&Report], cause: String, absent: impl FnOnce() -> String) -> CopySync {
        let sources: Vec<&&Report> = reports.iter().filter(|report| report.source).collect();
        let own = reports.iter().find(|report| report.own);
        let failed = own.filter(|own| own.failed).and_then(|own| own.waits_for.clone());
        if sources.is_empty() {
            // Nobody gives it anything: who is in sync knows best what it misses.
            let left = reports.iter().filter(|report| !report.own).map(|report| report.left).max();
            let left = left.or(own.map(|own| own.left)).unwrap_or(0);
            let waits_for = own.map_or_else(|| Some(absent()), |own| own.waits_for.clone());
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
            held_back_by: sources.iter().filter_map(|report| report.held_back_by).max(),
            // What is brought to other slices of it ends soon.
            waits_for: failed.or_else(|| if bytes_per_second == 0 { waiting() } else { None }),
            lasts: None,
        }
    }

    /// How long it takes if it goes on like that; `None`: nobody can say, also while hosts' writes add as much as is copied.
    pub fn seconds_left(&self) -> Option<u64> {
        self.left_bytes.checked_div(self.bytes_per_second.saturating_sub(self.dirtied_per_second))
    }
}

fn seconds(duration: Duration) -> String {
    format!("{} s", duration.as_secs())
}

#[cfg(test)]
mod tests {
    use replica::SyncFrom;

    use super::super::entry::{CopyEntry, StandingEntry};
    use super::*;

    const MIB: u64 = 1 << 20;

    fn slot(number: usize) -> Slot {
        Slot::new(number).unwrap()
    }

    fn volume() -> VolumeEntry {
        let copy = |slot: u8, standing| CopyEntry {
            slot,
            node: u16::from(slot) + 1,
            standing,
            incarnation: 1,
            made: 1,
            leaves: None,
        };
        VolumeEntry {
            id: "0".repeat(32),
            number: 7,
            name: "db".into(),
            size: 1 << 30,
            epoch: 3,
            copies: vec![
                copy(0, StandingEntry::InSync),
                copy(1, StandingEntry::InSync),
                copy(2, StandingEntry::Outside),
            ],
            reason: "-".into(),
            dropped: Vec::new(),
            missed: Default::default(),
            paused: Default::default(),
        }
    }

    fn sync(slice: u16, left: u64, copied: u64, part: Part) -> SliceSync {
        let address = Address { volume: 7, slice };
        SliceSync {
            address,
            slot: slot(2),
            left_bytes: left,
            copied_bytes: copied,
            dirtied_bytes: 0,
            part,
            held_back_by: None,
        }
    }

    fn local(slices: &[SliceSync]) -> Local {
        let mut local = Local::default();
        slices.iter().for_each(|slice| local.add(slice));
        local
    }

    fn at(millis: u64) -> Instant {
        Instant(1_000_000_000_000) + Duration::from_millis(millis)
    }

    fn who<'a>(volume: &'a VolumeEntry, kept_out: Option<&'a KeptOut>) -> Who<'a> {
        Who { volume, me: NodeId(1), copy: slot(2), kept_out }
    }

    fn report(progress: &Progress, millis: u64) -> Report {
        progress.report(at(millis), who(&volume(), None))
    }

    #[test]
    fn a_sync_shows_its_rate_over_the_last_seconds_and_what_is_left() {
        let next = Part::Source(SyncNext::Read(3));
        let given = |copied: u64| local(&[sync(0, (100 - copied) * MIB, (40 + copied) * MIB, next)]);
        let mut progress = Progress::new(at(0), given(0));
        // Ten seconds with 1 MiB each, then four with 8 MiB each.
        (1..=100).for_each(|tenth| progress.observe(at(tenth * 100), given(tenth / 10)));
        let slow = report(&progress, 10_000);
        assert_eq!((slow.total, slow.left, slow.copied), (100 * MIB, 90 * MIB, 10 * MIB));
        assert!((900_000..1_300_000).contains(&slow.bytes_per_second), "{slow:?}");
        (1..=60).for_each(|tenth| progress.observe(at(10_000 + tenth * 100), given(10 + tenth * 8 / 10)));
        let fast = report(&progress, 16_000);
        assert!((7_500_000..9_200_000).contains(&fast.bytes_per_second), "{fast:?}");
        let shown = CopySync::of(&[&fast], "cause".into(), || unreachable!());
        assert_eq!(
            (shown.left_bytes, shown.copied_bytes, shown.waits_for.clone()),
            (42 * MIB, 58 * MIB, None)
        );
        assert_eq!(shown.seconds_left(), Some(5));
        // Hosts' writes add to what there is to copy.
        progress.observe(at(16_100), local(&[sync(0, 50 * MIB, 98 * MIB, next)]));
        assert_eq!(report(&progress, 16_100).total, 108 * MIB);
    }

    #[test]
    fn what_hosts_add_makes_it_take_longer() {
        let next = Part::Source(SyncNext::Read(3));
        // 8 MiB a second are copied, and so many are added.
        let shown = |added: u64| {
            let given = |tenth: u64| {
                let (copied, dirtied) = (tenth * 8 * MIB / 10, tenth * added * MIB / 10);
                let slice = sync(0, 100 * MIB + dirtied - copied, copied, next);
                local(&[SliceSync { dirtied_bytes: dirtied, ..slice }])
            };
            let mut progress = Progress::new(at(0), given(0));
            (1..=50).for_each(|tenth| progress.observe(at(tenth * 100), given(tenth)));
            CopySync::of(&[&report(&progress, 5000)], "cause".into(), || unreachable!()).seconds_left()
        };
        assert_eq!((shown(0), shown(4)), (Some(7), Some(20)));
        assert_eq!((shown(8), shown(9)), (None, None));
    }

    #[test]
    fn a_sync_that_had_waited_shows_how_fast_it_goes_now() {
        let next = Part::Source(SyncNext::Read(3));
        let given = |copied: u64| local(&[sync(0, (100 - copied) * MIB, copied * MIB, next)]);
        let mut progress = Progress::new(at(0), given(0));
        let mut go = |from: u64, tenths: u64, copied: &dyn Fn(u64) -> u64| {
            (1..=tenths).for_each(|tenth| progress.observe(at(from + tenth * 100), given(copied(tenth))));
            report(&progress, from + tenths * 100).bytes_per_second / MIB
        };
        // Nothing for four seconds, then 10 MiB a second; again so after a pause of three seconds.
        assert_eq!(go(0, 40, &|_| 0), 0);
        assert_eq!(go(4000, 10, &|tenth| tenth), 10);
        assert_eq!(go(5000, 10, &|tenth| 10 + tenth), 10);
        assert!(go(6000, 30, &|_| 20) < 10);
        assert_eq!(go(9000, 10, &|tenth| 20 + tenth), 10);
    }

    #[test]
    fn what_stands_still_says_what_it_waits_for() {
        let waits = |next| {
            let still = local(&[
                sync(0, 0, 0, Part::Source(SyncNext::Admission)),
                sync(5, MIB, 0, Part::Source(next)),
            ]);
            let mut progress = Progress::new(at(0), still);
            progress.observe(at(1900), still);
            assert_eq!(report(&progress, 1900).waits_for, None);
            // What hosts write is more to copy, and no progress.
            progress.observe(at(1950), Local { given_left: still.given_left + 1, ..still });
            report(&progress, 12_000).waits_for.unwrap()
        };
        assert_eq!(
            waits(SyncNext::Read(9)),
            "the disks of node 1, its source, to read region 9 of slice 5, since 12 s"
        );
        assert_eq!(
            waits(SyncNext::Confirmed(9)),
            "node 3 to have region 9 of slice 5 on its disks, since 12 s"
        );
        assert_eq!(waits(SyncNext::WritesEnd(9)), "hosts' writes to region 9 of slice 5 to end, since 12 s");
        assert_eq!(waits(SyncNext::Admission), "the cluster's record to let it join, since 12 s");
        let still = local(&[sync(0, 0, 0, Part::Source(SyncNext::Admission))]);
        let progress = Progress::new(at(0), still);
        let waits = |kept_out: KeptOut| {
            progress.report(at(12_000), who(&volume(), Some(&kept_out))).waits_for.unwrap()
        };
        assert_eq!(
            waits(KeptOut::Apart(NodeId(3), NodeId(2))),
            "node 3 and node 2 to reach each other over all their links, since 12 s"
        );
        assert_eq!(
            waits(KeptOut::Quiet(NodeId(3), Duration::from_millis(310))),
            "310 ms to pass, as what node 3 promised before it was started a moment ago may still stand, since 12 s"
        );
        assert_eq!(
            waits(KeptOut::Penalty(Duration::from_millis(17_300))),
            "18 s to pass, as it did not finish writes when it was in sync last, since 12 s"
        );
    }

    #[test]
    fn the_copy_itself_says_that_its_source_is_silent() {
        let own = |source, silent_ticks| {
            let from = SyncFrom { source, silent_ticks, failed: false };
            let progress = Progress::new(at(0), local(&[sync(0, MIB, 0, Part::Own(from))]));
            let report = report(&progress, 0);
            CopySync::of(&[&report], "cause".into(), || unreachable!()).waits_for
        };
        assert_eq!(own(Some(slot(1)), 7), None);
        assert_eq!(own(Some(slot(1)), 48).unwrap(), "node 2, its source, which does not answer since 12 s");
        assert_eq!(own(None, 8).unwrap(), "a link to a node whose copy is in sync");
    }

    #[test]
    fn sources_are_added_up_and_count_more_than_who_looks_on() {
        let of = |slices: &[SliceSync]| report(&Progress::new(at(0), local(slices)), 0);
        let give = Part::Source(SyncNext::Pass);
        let first = of(&[sync(0, 10 * MIB, 0, give), sync(1, 70 * MIB, 0, Part::Witness)]);
        let second = of(&[sync(1, 20 * MIB, 0, give), sync(0, 60 * MIB, 0, Part::Witness)]);
        let own = of(&[sync(
            0,
            99 * MIB,
            0,
            Part::Own(SyncFrom { source: None, silent_ticks: 99, failed: false }),
        )]);
        let absent = || "node 3".to_owned();
        let both = CopySync::of(&[&first, &second, &own], "cause".into(), absent);
        assert_eq!((both.left_bytes, both.waits_for), (30 * MIB, None));
        let on_looker = of(&[sync(0, 60 * MIB, 0, Part::Witness), sync(1, MIB, 0, Part::Witness)]);
        let nobody = CopySync::of(&[&on_looker], "cause".into(), absent);
        assert_eq!((nobody.left_bytes, nobody.waits_for.as_deref()), (61 * MIB, Some("node 3")));
        assert_eq!(nobody.seconds_left(), None);
    }

    #[test]
    fn what_a_node_said_long_ago_does_not_count() {
        let heard = Heard { at: at(0), reports: vec![report(&Progress::new(at(0), Local::default()), 0)] };
        assert_eq!((heard.fresh(at(3000)).len(), heard.fresh(at(3001)).len()), (1, 0));
    }
}
