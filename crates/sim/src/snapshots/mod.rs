//! Snapshots that an administrator takes, reads and deletes while all else goes on, and what must hold for
//! them (A15, `docs/why/snapshots.md`).
//!
//! A snapshot is an operation of the histories: it reads all sectors of all of its volumes at one instant
//! between its call and its answer. So there must be a moment at which each sector can have held what the
//! snapshot has of it. That read then takes part in the check of what hosts saw (A1).
//!
//! Whoever reads a snapshot, of whichever copy and however often, finds the same. What was taken stays until
//! it is deleted, and what was refused or deleted never comes back: [`onlooker::follow_snapshots`] checks
//! each change of the record for that, and [`Snapshots::settle`] compares the pools with the record in the
//! end.
//!
//! Restores to them: `restores.rs`.

mod restores;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Range, RangeInclusive};
use std::rc::Rc;
use std::time::Duration;

use base::{ByteLen, ByteOffset};
use node::Control;
use node::control::{ControlError, SNAPSHOT_HOLD_MAX, SnapshotSpec, VolumeAt};
use node::copies::SnapshotEntry;
use rt::sim::linear::{Moments, NEVER, Time};
use store::STRIPE_UNIT;

use self::restores::Restores;
pub use self::restores::Wanted;
use crate::cluster::{Cluster, Volume, wait};
use crate::harm;
use crate::history::{History, value_of};
use crate::layout::{self, Layout, SECTOR};
use crate::load::Counts;
use crate::onlooker::{self, Recorded};
use crate::plan::Plan;
use crate::replaced::Sectors;

/// Longest time from the end of all faults until each snapshot is taken or gone.
const SETTLED_MAX: Duration = Duration::from_secs(60);
/// How much longer than the limit hosts may be held: another program may have the processor.
const HOLD_SLACK: Duration = Duration::from_millis(50);

/// All snapshots of a run, shared with the tasks that take, read and delete them.
#[derive(Clone)]
pub struct Snapshots(Rc<Inner>);

struct Inner {
    histories: Vec<History>,
    volumes: Vec<Of>,
    /// What the record has had, by number.
    recorded: onlooker::Snapshots,
    asked: RefCell<Vec<Asked>>,
    restores: Restores,
    counts: Counts,
}

/// A volume, as far as snapshots need it.
struct Of {
    id: String,
    name: &'static str,
    layout: Layout,
    exchanged: Range<u64>,
    /// Blocks that only one host uses, which checks them itself; empty in a plan without restores.
    own: Range<u64>,
}

/// A snapshot that an administrator asked for, or that a restore has kept.
struct Asked {
    name: String,
    /// A restore has kept it.
    is_kept: bool,
    call: Time,
    /// When the answer came that it is taken; [`NEVER`]: none did.
    reply: Time,
    answer: Option<Answer>,
    /// It is to be deleted, and whether that was answered.
    deletion: Option<bool>,
    /// What it has, by volume and sector, as far as it was read.
    found: BTreeMap<(usize, u64), u64>,
    /// The same in blocks that only one host uses, which are in no history.
    own: BTreeMap<(usize, u64), u64>,
    /// The volumes of which all was read.
    whole: BTreeSet<usize>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Answer {
    Taken,
    Refused,
    /// It may be taken, now or later.
    Unknown,
}

impl Asked {
    fn new(name: String, call: Time) -> Asked {
        let (found, own, whole) = (BTreeMap::new(), BTreeMap::new(), BTreeSet::new());
        Asked { name, is_kept: false, call, reply: NEVER, answer: None, deletion: None, found, own, whole }
    }
}

impl Snapshots {
    /// None yet. From now on, the record's snapshots are checked.
    pub fn new(cluster: &Cluster, plan: &Plan, histories: &[History], counts: &Counts) -> Snapshots {
        let of = |volume: &Volume| Of {
            id: cluster.entry_of(volume).id,
            name: volume.name,
            layout: volume.layout,
            exchanged: volume.exchanged(),
            own: if plan.restores { layout::OWN } else { 0..0 },
        };
        Snapshots(Rc::new(Inner {
            histories: histories.to_vec(),
            volumes: cluster.volumes.iter().map(of).collect(),
            recorded: onlooker::follow_snapshots(cluster, &histories[0], counts),
            asked: RefCell::default(),
            restores: Restores::default(),
            counts: counts.clone(),
        }))
    }

    /// Has a node take a snapshot of these volumes, and read what its own copies have of it. Does not wait
    /// for that; returns which snapshot it is.
    pub fn take(&self, cluster: &Cluster, index: usize, volumes: &[&Volume]) -> usize {
        let call = self.0.histories[0].tick();
        let at = self.0.asked.borrow().len();
        let name = format!("s{at}");
        self.0.asked.borrow_mut().push(Asked::new(name.clone(), call));
        let is_set = volumes.len() > 1;
        let volumes = volumes.iter().map(|volume| volume.name.to_owned()).collect();
        let spec = SnapshotSpec { name, volumes, ..SnapshotSpec::default() };
        let all = self.clone();
        cluster.ask_to(index, move |control| async move {
            let taken = control.create_snapshot(spec).await.map(drop);
            all.answered(at, &taken);
            if taken.is_ok() {
                if is_set {
                    all.0.counts.count("snapshot of two volumes");
                }
                all.read_here(control, at, index).await;
            }
        });
        at
    }

    fn answered(&self, at: usize, taken: &Result<(), ControlError>) {
        let (answer, what) = match taken {
            Ok(()) => (Answer::Taken, "snapshot taken"),
            Err(
                ControlError::SnapshotNotTaken { .. }
                | ControlError::SnapshotTooSlow { .. }
                | ControlError::NoSnapshotsOfKind(_),
            ) => (Answer::Refused, "snapshot refused"),
            Err(_) => (Answer::Unknown, "snapshot that may be taken"),
        };
        self.0.counts.count(what);
        let now = self.0.histories[0].tick();
        let mut asked = self.0.asked.borrow_mut();
        asked[at].answer = Some(answer);
        if answer == Answer::Taken {
            asked[at].reply = now;
        }
    }

    /// Whether it is known that the snapshot was taken; `None`: there is no answer yet.
    pub fn is_taken(&self, at: usize) -> Option<bool> {
        self.0.asked.borrow()[at].answer.map(|answer| answer == Answer::Taken)
    }

    /// Has a node delete a snapshot, and does not wait for it.
    pub fn delete(&self, cluster: &Cluster, index: usize, at: usize) {
        self.0.asked.borrow_mut()[at].deletion.get_or_insert(false);
        let (all, name) = (self.clone(), self.name(at));
        cluster.ask_to(index, move |control| async move {
            // The node may not have followed the record to the snapshot yet.
            if control.delete_snapshot(&name).await.is_ok() {
                all.0.counts.count("snapshot deleted");
                all.0.asked.borrow_mut()[at].deletion = Some(true);
            }
        });
    }

    fn name(&self, at: usize) -> String {
        self.0.asked.borrow()[at].name.clone()
    }

    /// The snapshots that exist, according to the record.
    pub fn alive(&self) -> Vec<usize> {
        let count = self.0.asked.borrow().len();
        (0..count).filter(|at| self.entry(*at).is_some_and(|known| known.exists())).collect()
    }

    /// The snapshots that are lost with a node's copy of a volume.
    pub fn only_on(&self, cluster: &Cluster, volume: &Volume, index: usize) -> Vec<usize> {
        // A restore may have kept one.
        self.is_restoring(cluster);
        let (now, node) = (cluster.entry_of(volume), index as u16 + 1);
        let is_last = |known: Recorded| known.exists() && known.entry.is_only_on(node, &now);
        (0..self.0.asked.borrow().len()).filter(|at| self.entry(*at).is_some_and(is_last)).collect()
    }

    /// What the record has of a snapshot, or had last.
    fn entry(&self, at: usize) -> Option<Recorded> {
        let (recorded, name) = (self.0.recorded.borrow(), self.name(at));
        recorded.values().find(|known| known.entry.name == name).cloned()
    }

    /// Has a node read what its own copies have of a snapshot, and does not wait for it.
    pub fn begin_to_read(&self, cluster: &Cluster, index: usize, at: usize) {
        let all = self.clone();
        cluster.ask_to(index, move |control| async move {
            all.read_here(control, at, index).await;
        });
    }

    /// Returns how many copies have it.
    async fn read_here(&self, control: Rc<Control>, at: usize, index: usize) -> usize {
        let mut copies = 0;
        for volume in 0..self.0.volumes.len() {
            if self.read(&control, at, volume, index).await {
                self.0.counts.count("copy of a snapshot read");
                copies += 1;
            }
        }
        copies
    }

    /// Reads what a node's copy of a volume has of a snapshot. Returns whether it has all of it.
    ///
    /// # Panics
    /// If it was something else before, or on another copy.
    async fn read(&self, control: &Control, at: usize, volume: usize, index: usize) -> bool {
        let (of, bytes) = (&self.0.volumes[volume], u64::from(self.0.histories[volume].block_size().bytes()));
        let pieces = self.entry(at).map(|known| self.pieces(&known.entry, volume)).unwrap_or_default();
        let name = self.name(at);
        for blocks in &pieces {
            let (offset, len) = (blocks.start * bytes, (blocks.end - blocks.start) * bytes);
            let volume_at = VolumeAt { volume: of.name.into(), snapshot: name.clone() };
            let read = control.read_snapshot_here(&volume_at, ByteOffset(offset), ByteLen(len));
            let Ok(data) = read.await else { return false };
            self.note(at, volume, blocks.start, &data.contiguous(), index);
        }
        let has_it = !pieces.is_empty();
        if has_it {
            self.0.asked.borrow_mut()[at].whole.insert(volume);
        }
        has_it
    }

    /// The blocks that a snapshot has of a volume and that are checked, in pieces within a stripe unit.
    fn pieces(&self, entry: &SnapshotEntry, volume: usize) -> Vec<Range<u64>> {
        let (of, size) = (&self.0.volumes[volume], self.0.histories[volume].block_size());
        let Some(has) = entry.of(&of.id) else { return Vec::new() };
        let bytes = u64::from(size.bytes());
        let (unit, quiet) = (STRIPE_UNIT.0 / bytes, of.layout.quiet(size));
        let grown = of.layout.grown(size, has.size / bytes);
        let others = [of.exchanged.clone(), quiet..quiet + 1, grown, of.own.clone()];
        let all = of.layout.hot(size).into_iter().chain(others);
        let pieces = all.flat_map(|blocks| {
            let middle = blocks.end.min((blocks.start / unit + 1) * unit);
            [blocks.start..middle, middle..blocks.end]
        });
        pieces.filter(|blocks| !blocks.is_empty()).collect()
    }

    fn note(&self, at: usize, volume: usize, first: u64, data: &[u8], index: usize) {
        let history = &self.0.histories[volume];
        let (mut asked, volume_name) = (self.0.asked.borrow_mut(), self.0.volumes[volume].name);
        let is_own = self.0.volumes[volume].own.contains(&first);
        let Asked { name, found, own, .. } = &mut asked[at];
        let found = if is_own { own } else { found };
        for (sector, bytes) in (history.sectors_of(first).start..).zip(data.chunks_exact(SECTOR)) {
            let of = || format!("sector {sector} of {volume_name} in snapshot {name}");
            let value = value_of(bytes).unwrap_or_else(|| panic!("{} holds parts of two writes", of()));
            if is_own || history.is_watched(sector) {
                let before = *found.entry((volume, sector)).or_insert(value);
                assert_eq!(before, value, "{} was read before, and is read on node {}", of(), index + 1);
            }
        }
    }

    /// What a snapshot has of a volume; `None`: not all of it was read.
    fn content(&self, at: usize, volume: usize) -> Option<Sectors> {
        let asked = &self.0.asked.borrow()[at];
        let all = asked.found.iter().chain(&asked.own).filter(|((of, _), _)| *of == volume);
        asked.whole.contains(&volume).then(|| all.map(|((_, sector), value)| (*sector, *value)).collect())
    }

    /// Waits until no snapshot is being taken or deleted and nothing is being restored, and checks that the
    /// copies have what the record says, and nothing else.
    ///
    /// # Panics
    /// If that takes too long, or something is missing or left.
    pub fn settle(&self, plan: &Plan, cluster: &Cluster) {
        let is_settled = || {
            let is_restoring = self.is_restoring(cluster);
            let recorded = self.0.recorded.borrow();
            !is_restoring && recorded.values().all(|known| known.is_gone || known.exists())
        };
        assert!(
            wait(&cluster.world, SETTLED_MAX, is_settled),
            "a snapshot is neither taken nor gone, or a restore not over, though nothing fails any more: {:?}",
            self.0.recorded.borrow()
        );
        for index in 0..cluster.servers.len() {
            let here = cluster.control(index, |control| async move { control.snapshots_here().await });
            let here = here.expect("it is in its cluster");
            let has = here.iter().flat_map(|of| of.has.iter().map(move |it| (of.volume.clone(), it.number)));
            let (has, due) = (has.collect::<BTreeSet<_>>(), self.due(cluster, index));
            let read: usize = self.alive().into_iter().map(|at| self.read_now(cluster, index, at)).sum();
            // Pools that were set back lack snapshots, or have some that were deleted.
            if !plan.harms_logs() {
                assert_eq!(has, due, "what the pools of node {} have", index + 1);
                assert_eq!(read, due.len(), "node {} cannot read what it has", index + 1);
            }
        }
    }

    /// What the record says that a node's copies have: volumes and numbers.
    fn due(&self, cluster: &Cluster, index: usize) -> BTreeSet<(String, u32)> {
        let mut due = BTreeSet::new();
        for entry in self.alive().into_iter().filter_map(|at| self.entry(at)).map(|known| known.entry) {
            for volume in &cluster.volumes {
                let (now, has) = (cluster.entry_of(volume), entry.of(&self.0.volumes[volume.index].id));
                let mut copies = has.iter().flat_map(|has| &has.copies);
                if copies.any(|copy| usize::from(copy.node) == index + 1 && copy.is_of(&now)) {
                    due.insert((now.id, entry.number));
                }
            }
        }
        due
    }

    /// Reads what a node's copies have of a snapshot. Returns how many have it.
    fn read_now(&self, cluster: &Cluster, index: usize, at: usize) -> usize {
        let all = self.clone();
        cluster.control(index, move |control| async move { all.read_here(control, at, index).await })
    }

    /// Checks each snapshot against what hosts saw, and adds it to the histories as a read of all of its
    /// sectors. To be called after [`Snapshots::settle`].
    ///
    /// # Panics
    /// If it is not one instant, or is there or not against what was answered.
    pub fn check(&self, plan: &Plan) {
        let stands_still = harm::STANDING_STILL.iter().any(|name| plan.has(name));
        self.check_restores();
        for (at, asked) in self.0.asked.borrow().iter().enumerate() {
            let (name, known) = (&asked.name, self.entry(at));
            let completed = known.as_ref().and_then(|known| known.completed);
            let is_there = known.as_ref().is_some_and(Recorded::exists);
            match asked.answer {
                Some(Answer::Taken) => assert!(completed.is_some(), "{name} was taken, and never existed"),
                Some(Answer::Refused) => assert!(completed.is_none(), "{name} was refused, and exists"),
                Some(Answer::Unknown) | None => {}
            }
            match asked.deletion {
                None => assert!(completed.is_none() || is_there, "{name} is gone, and nobody has deleted it"),
                Some(true) => assert!(!is_there, "{name} was deleted, and exists"),
                Some(false) => {}
            }
            let Some((completed, known)) = completed.zip(known) else { continue };
            let pause = Duration::from_micros(known.entry.pause_us);
            let limit = SNAPSHOT_HOLD_MAX + HOLD_SLACK;
            // A restore that is decided ends when all copies in sync are restored.
            let is_short = pause <= limit || stands_still || asked.is_kept;
            assert!(is_short, "{name} has held hosts for {pause:?}");
            self.check_instant(name, asked, asked.call..=completed.min(asked.reply));
        }
    }

    fn check_instant(&self, name: &str, asked: &Asked, during: RangeInclusive<Time>) {
        let sectors = asked.found.iter().map(|((volume, sector), value)| (*volume, *sector, *value));
        let moments = |(volume, sector, value): (usize, u64, u64)| {
            let moments = self.0.histories[volume].moments(sector, value);
            moments.unwrap_or_else(|violation| {
                let around = self.0.histories[volume].around(sector, &[value]);
                panic!("sector {sector} of volume {volume} in snapshot {name}: {violation:?}\n{around}")
            })
        };
        let all: Vec<Vec<Moments>> = sectors.clone().map(moments).collect();
        let has = |it: &Vec<Moments>, time| it.iter().any(|moments| moments.has(time));
        let mut common = during.clone().filter(|time| all.iter().all(|it| has(it, *time)));
        let Some(first) = common.next() else {
            let of_each = sectors.zip(&all).map(|((volume, sector, value), it)| {
                let mut possible = during.clone().filter(|time| has(it, *time));
                let first = possible.next();
                let last = possible.next_back().or(first);
                format!("{sector} of volume {volume} is {value}, possible from {first:?} to {last:?}\n")
            });
            panic!("snapshot {name} is no instant of {during:?}:\n{}", of_each.collect::<String>());
        };
        let at = first..=common.next_back().unwrap_or(first);
        sectors.for_each(|(volume, sector, value)| self.0.histories[volume].held(sector, value, &at));
        if !asked.found.is_empty() {
            self.0.counts.count("snapshot compared with what hosts saw");
        }
    }
}
