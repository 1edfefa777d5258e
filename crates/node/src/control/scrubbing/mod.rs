//! Scrubs: this node reads what its volumes have in use from its own disks, so that bad blocks are found and
//! repaired from another copy while there is one.
//!
//! A verification compares copies, and needs all of them. A scrub concerns one copy, or a volume without
//! copies; each node scrubs its own. How far a scrub is, and how the last one ended, is in the node's record
//! ([`kept`]). Every scrub that was interrupted continues where it was, whoever had started it; until then it
//! is a job that can be cancelled ([`interrupted`]).

mod interrupted;
mod kept;
mod pace;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use base::{ByteLen, Instant};
use rt::sync::Semaphore;
use serde::{Deserialize, Serialize};
use store::{Pool, PoolId, SliceError, VolumeInfo};

use self::kept::{Kept, ScrubEntry, ScrubProgress};
use self::pace::Pace;
use super::verifying::{due_at, is_in_sync_here, pause};
use super::{Control, ControlError, EndedJob, EndedWork, Fault, FaultKind, JobOutcome, Result};
use crate::data::{ScrubAt, Scrubbed, ScrubbedBlock, VolumeId};
use crate::events::code::SCRUB_FOUND_BAD_BLOCKS;
use crate::events::{Event, tell};
use crate::record::{Change, Record};
use crate::shard::Shard;
use crate::under_way::UnderWay;
use crate::yielding;

/// How often each volume is scrubbed.
pub const SCRUB_EVERY: Duration = Duration::from_secs(28 * 86_400);
/// How long a scrub may be due before it is reported: the time that it may take ([`Control::least_rate`]).
const OVERDUE_AFTER: Duration = Duration::from_secs(14 * 86_400);
/// In which part of [`SCRUB_EVERY`] a node must be able to read all of its volumes.
const INTERVAL_PARTS: u64 = 2;
/// How often a node checks whether a scrub is due, and writes to its record what could not be written before.
const LOOK_EVERY: Duration = Duration::from_secs(20);
/// How long after an interruption a scrub is tried again.
const AGAIN_AFTER: Duration = Duration::from_secs(60);
/// How often progress is saved in the node's record, which is written as a whole. A restart repeats at most
/// this much.
const SAVE_EVERY: Duration = Duration::from_secs(300);
/// How many volumes are scrubbed at the same time; others wait.
const AT_ONCE: usize = 2;
/// After this time in one step, other scrubs no longer wait for a scrub. A step reads up to 64 places, and a
/// disk may take seconds for each that it cannot read.
const HANGS_AFTER: Duration = Duration::from_secs(60);

/// The state of a scrub.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScrubState {
    /// It is running.
    Running,
    /// Everything in use was read.
    Done,
    /// It was stopped.
    Stopped,
    /// It cannot continue now. It will when it can.
    Interrupted,
}

/// The bad blocks that a scrub has found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScrubFound {
    /// Bad blocks; 4,096 bytes each, or a part of a log's map.
    pub bad: u64,
    /// Those of them that were repaired.
    pub repaired: u64,
    /// The LBA of the first one that was not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first: Option<u64>,
    /// How many of those that were not only snapshots have.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub of_snapshots: u64,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl ScrubFound {
    /// The bad blocks that were not repaired.
    pub fn unrepaired(&self) -> u64 {
        self.bad.saturating_sub(self.repaired)
    }

    /// In words; `None`: nothing.
    pub fn said(&self) -> Option<String> {
        let ScrubFound { bad, repaired, first, of_snapshots } = self;
        let blocks = if *bad == 1 { "block" } else { "blocks" };
        match (*bad, first) {
            (0, _) => None,
            (_, None) => Some(format!("{bad} bad {blocks} found and repaired")),
            (_, Some(lba)) => Some(format!(
                "{bad} bad {blocks} found, {repaired} repaired; {} cannot be read, first LBA {lba}{}",
                self.unrepaired(),
                match of_snapshots {
                    0 => String::new(),
                    some => format!(" ({some} in snapshots only)"),
                }
            )),
        }
    }

    fn note(&mut self, is_repaired: bool, lba: u64, is_of_snapshot: bool) {
        self.bad += 1;
        if is_repaired {
            self.repaired += 1;
        } else {
            self.first.get_or_insert(lba);
            self.of_snapshots += u64::from(is_of_snapshot);
        }
    }
}

/// The progress or result of a scrub.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scrub {
    /// The volume's name when it began.
    pub volume: String,
    /// Its state.
    pub state: ScrubState,
    /// How long ago it began, or was continued.
    pub age: Duration,
    /// How long it has taken since then.
    pub took: Duration,
    /// Size of the volume in bytes.
    pub total: u64,
    /// Bytes processed so far, including those that are not in use.
    pub done: u64,
    /// Bytes that were read since it began, or was continued.
    pub read: u64,
    /// What it has found.
    pub found: ScrubFound,
    /// Why it was interrupted.
    pub problem: Option<Unscrubbable>,
    /// What it waits for; `None`: it makes progress, or has ended.
    pub waits_for: Option<ScrubWait>,
    /// How much longer it will take if it continues like this; `None`: that is unknown, or it has ended.
    pub left: Option<Duration>,
}

/// How a scrub ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScrubEnd {
    /// When, in seconds since 1970.
    pub at: u64,
    /// Whether a user stopped it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stopped: bool,
    /// What it had found.
    pub found: ScrubFound,
}

/// The scrubs of a volume on this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScrubStatus {
    /// How the last one ended.
    pub last: Option<ScrubEnd>,
    /// Bytes processed by the one that is running, or was interrupted.
    pub done: Option<u64>,
    /// When the next one is due, in seconds since 1970.
    pub next: u64,
    /// Whether it should have ended long ago.
    pub is_overdue: bool,
}

/// The scrubs of the volumes of a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolScrubs {
    /// The earliest end of a volume's last scrub, in seconds since 1970; `None`: none has been scrubbed.
    pub oldest: Option<u64>,
    /// Bad blocks that the last scrubs found and that were not repaired.
    pub unrepaired: u64,
    /// How many volumes have a scrub that has not ended.
    pub unfinished: usize,
}

/// The scrubs of this node.
pub(super) struct Scrubs {
    /// The last one of each volume in this life of the node.
    of: RefCell<BTreeMap<VolumeId, Rc<Scrubbing>>>,
    kept: Kept,
    turns: Rc<Semaphore>,
    /// When scrubs were interrupted.
    interrupted: RefCell<BTreeMap<VolumeId, Instant>>,
    /// Volumes whose scrub is overdue, and how many seconds ago the last one ended, or the first one was due.
    overdue: RefCell<BTreeMap<VolumeId, u64>>,
    /// Bytes that were read for scrubs in this life of the node.
    read: Cell<u64>,
    /// Bad blocks are being repaired that logs have noted.
    repairs: UnderWay<()>,
}

struct Scrubbing {
    began: Instant,
    ended: Cell<Option<Instant>>,
    stopped: Cell<bool>,
    /// How fast it is; `None`: it has not got its turn yet.
    pace: Cell<Option<Pace>>,
    /// A step takes so long that others do not wait for it: it has no turn meanwhile.
    hangs: Cell<bool>,
    /// Somebody waits for it.
    is_asked_for: Cell<bool>,
    /// Bytes that were processed before it was continued.
    from: u64,
    /// When it first began, in seconds since 1970.
    began_at: u64,
    pool: PoolId,
    found: RefCell<Scrub>,
}

impl Scrubs {
    /// With what an earlier life of the node has left in its record.
    pub(super) fn restored(record: &Record) -> Scrubs {
        Scrubs {
            of: RefCell::default(),
            kept: Kept::restored(record),
            turns: Rc::new(Semaphore::new(AT_ONCE)),
            interrupted: RefCell::default(),
            overdue: RefCell::default(),
            read: Cell::new(0),
            repairs: UnderWay::default(),
        }
    }

    /// The changes that delete a pool's entries from the record.
    pub(super) fn without(&self, pool: PoolId) -> Vec<Change> {
        self.kept.without(pool)
    }

    /// Forgets a pool that has left this node.
    pub(super) fn forget(&self, pool: PoolId) {
        self.kept.forget(pool);
    }

    /// Forgets volumes that this node does not have any more.
    fn keep(&self, here: &BTreeSet<VolumeId>) {
        self.of.borrow_mut().retain(|id, scrubbing| scrubbing.is_running() || here.contains(id));
        self.interrupted.borrow_mut().retain(|id, _| here.contains(id));
    }

    fn running(&self, id: VolumeId) -> Option<Rc<Scrubbing>> {
        self.of.borrow().get(&id).filter(|it| it.is_running()).map(Rc::clone)
    }
}

impl Scrubbing {
    fn is_running(&self) -> bool {
        self.ended.get().is_none()
    }

    fn shown(&self) -> Scrub {
        let now = rt::now();
        let took = self.ended.get().unwrap_or(now).since(self.began);
        let pace = self.pace.get().filter(|_| self.is_running());
        let waits_for = match pace {
            _ if self.hangs.get() => Some(ScrubWait::Disks),
            None if self.is_running() => Some(ScrubWait::Turn),
            _ => None,
        };
        let left = pace.filter(|_| waits_for.is_none()).and_then(|pace| pace.left(now));
        Scrub { age: now.since(self.began), took, waits_for, left, ..self.found.borrow().clone() }
    }

    fn note_passed(&self, bytes: u64) {
        self.pace.set(self.pace.get().map(|pace| pace.after(bytes)));
    }

    fn progress(&self) -> ScrubProgress {
        let found = self.found.borrow();
        ScrubProgress {
            began: self.began_at,
            asked: self.is_asked_for.get(),
            size: found.total,
            done: found.done,
            found: found.found,
        }
    }
}

impl Control {
    /// Starts to scrub a volume on this node, unless that is already running. It does not wait for hosts as
    /// long as one that the schedule started.
    ///
    /// # Errors
    /// The volume does not exist; [`ControlError::NotScrubbable`].
    pub fn begin_scrub(self: &Rc<Control>, name: &str) -> Result<Scrub> {
        let (pool, info) = self.volume_named(name)?;
        if let Some(running) = self.scrubs.running(info.id) {
            running.is_asked_for.set(true);
            // If it was cancelled and is still in a step, which may take long, it continues.
            if running.stopped.replace(false) {
                self.scrubs.kept.set_progress(running.pool, info.id, running.progress());
                let control = Rc::clone(self);
                rt::spawn(async move { control.save_scrubs().await }).detach();
            }
            return Ok(running.shown());
        }
        if let Some(reason) = self.why_not_scrubbable(&info) {
            let volume = self.shown_name(&info);
            return Err(ControlError::NotScrubbable { volume, reason });
        }
        let scrubbing = self.new_scrub(pool.id(), &info, true);
        let shown = scrubbing.shown();
        rt::spawn(Rc::clone(self).scrub(info.id, scrubbing)).detach();
        Ok(shown)
    }

    /// Starts to scrub all volumes of a pool that can be scrubbed.
    ///
    /// # Errors
    /// The pool does not exist, or is not open.
    pub fn begin_pool_scrub(self: &Rc<Control>, pool: &str) -> Result<Vec<(VolumeId, Scrub)>> {
        let pool = self.pool_named(pool)?;
        let volumes = self.current_volumes(&pool);
        drop(pool);
        let begin = |info: VolumeInfo| Some((info.id, self.begin_scrub(&info.id.to_string()).ok()?));
        Ok(volumes.into_iter().filter_map(begin).collect())
    }

    /// The last scrub of a volume in this life of the node, or one that an earlier life has left, if any.
    pub fn last_scrub(&self, name: &str) -> Result<Option<Scrub>> {
        let id = self.volume_named(name)?.1.id;
        let last = self.scrubs.of.borrow().get(&id).map(|scrubbing| scrubbing.shown());
        Ok(last.or_else(|| self.interrupted_scrub(id).map(|(_, scrub)| scrub)))
    }

    /// Bytes that were read for scrubs in this life of the node.
    pub fn scrubbed_bytes(&self) -> u64 {
        self.scrubs.read.get()
    }

    /// The scrubs of a volume of this pool; `None`: nothing of it is on a disk.
    pub(super) fn scrub_status(&self, pool: PoolId, info: &VolumeInfo) -> Option<ScrubStatus> {
        if !info.kind.is_durable() {
            return None;
        }
        let entry = self.scrubs.kept.of(pool, info.id);
        let running = self.scrubs.running(info.id).map(|scrubbing| scrubbing.found.borrow().done);
        let now = (Shard::current().config().unix_now)();
        Some(ScrubStatus {
            last: entry.last,
            done: running.or(entry.progress.map(|progress| progress.done)),
            next: due(now, pool, info, None, entry.last),
            is_overdue: self.scrubs.overdue.borrow().contains_key(&info.id),
        })
    }

    /// The scrubs of a pool's volumes.
    pub(super) fn pool_scrubs(&self, pool: PoolId) -> PoolScrubs {
        self.scrubs.kept.of_pool(pool)
    }

    /// Why this node cannot scrub a volume now.
    fn why_not_scrubbable(&self, info: &VolumeInfo) -> Option<Unscrubbable> {
        if !info.kind.is_durable() {
            return Some(Unscrubbable::InMemory);
        }
        if Shard::current().volume(info.id).is_none() {
            return Some(Unscrubbable::NotServed);
        }
        let is_behind = self.reconciler().is_ok_and(|reconciler| !is_in_sync_here(&reconciler, info.id));
        is_behind.then_some(Unscrubbable::OutOfSync)
    }

    fn new_scrub(&self, pool: PoolId, info: &VolumeInfo, is_asked_for: bool) -> Rc<Scrubbing> {
        let now = (Shard::current().config().unix_now)();
        let volume = self.volume(&info.id.to_string()).ok();
        let total = volume.as_ref().map_or(info.capacity, |volume| volume.info.capacity).0;
        // Progress on a volume of another size does not count.
        let progress = self.scrubs.kept.of(pool, info.id).progress.filter(|known| known.size == total);
        let found = Scrub {
            volume: volume.map_or_else(|| info.name.clone(), |volume| volume.info.name),
            state: ScrubState::Running,
            age: Duration::ZERO,
            took: Duration::ZERO,
            total,
            done: progress.map_or(0, |progress| progress.done),
            read: 0,
            found: progress.map(|progress| progress.found).unwrap_or_default(),
            problem: None,
            waits_for: None,
            left: None,
        };
        let scrubbing = Rc::new(Scrubbing {
            began: rt::now(),
            ended: Cell::new(None),
            stopped: Cell::new(false),
            pace: Cell::new(None),
            hangs: Cell::new(false),
            is_asked_for: Cell::new(is_asked_for || progress.is_some_and(|progress| progress.asked)),
            from: found.done,
            began_at: progress.map_or(now, |progress| progress.began),
            pool,
            found: RefCell::new(found),
        });
        // It continues after a restart, even if it was about to begin.
        self.scrubs.kept.set_progress(pool, info.id, scrubbing.progress());
        self.scrubs.of.borrow_mut().insert(info.id, Rc::clone(&scrubbing));
        scrubbing
    }

    async fn scrub(self: Rc<Control>, id: VolumeId, scrubbing: Rc<Scrubbing>) {
        self.save_scrubs().await;
        let turns = Rc::clone(&self.scrubs.turns);
        turns.acquire(1).await;
        let read = self.read_all(id, &scrubbing).await;
        turns.release(1);
        scrubbing.ended.set(Some(rt::now()));
        let state = match read {
            Ok(state) => state,
            // Who has cancelled it does not want it to continue.
            Err(_) if scrubbing.stopped.get() => ScrubState::Stopped,
            Err(problem) => {
                scrubbing.found.borrow_mut().problem = Some(problem);
                ScrubState::Interrupted
            }
        };
        scrubbing.found.borrow_mut().state = state;
        let shown = scrubbing.shown();
        let pool = scrubbing.pool;
        match state {
            ScrubState::Running | ScrubState::Interrupted => {
                tracing::debug!(volume = %id, problem = ?shown.problem, "a scrub was interrupted");
                self.scrubs.interrupted.borrow_mut().insert(id, rt::now());
                // A pool that has left this node is forgotten already.
                if self.pool_with(pool).is_some() {
                    self.scrubs.kept.set_progress(pool, id, scrubbing.progress());
                }
            }
            ScrubState::Done | ScrubState::Stopped => {
                self.keep_end(pool, id, state, shown.found);
                self.note_scrubbed(id, shown);
            }
        }
        self.save_scrubs().await;
    }

    /// Keeps how a scrub has ended; the next one begins at the start of the volume.
    fn keep_end(&self, pool: PoolId, id: VolumeId, state: ScrubState, found: ScrubFound) {
        let at = (Shard::current().config().unix_now)();
        let last = ScrubEnd { at, stopped: state == ScrubState::Stopped, found };
        self.scrubs.kept.set_last(pool, id, last);
        self.scrubs.overdue.borrow_mut().remove(&id);
    }

    /// Reads everything that is in use.
    ///
    /// # Errors
    /// Why it cannot continue now.
    async fn read_all(
        self: &Rc<Control>,
        id: VolumeId,
        scrubbing: &Scrubbing,
    ) -> Result<ScrubState, Unscrubbable> {
        let least = self.least_rate().await;
        let (_, info) = self.volume_named(&id.to_string()).map_err(|_| Unscrubbable::NotServed)?;
        let size = ByteLen(scrubbing.found.borrow().total);
        let is_thin = info.kind.is_thin();
        // What is in use of a thin volume is known, and takes nearly all of the time.
        let whole = if is_thin { info.reserved } else { size };
        scrubbing.pace.set(Some(Pace::new(rt::now(), whole.0, (scrubbing.from, size.0))));
        let mut saved_at = rt::now();
        let mut before = 0;
        for slice in 0..info.stripe.slices() {
            let len = info.stripe.slice_len(slice, size).0;
            let mut at = ScrubAt::new(scrubbing.from.saturating_sub(before).min(len));
            while at.offset < len {
                if scrubbing.stopped.get() {
                    return Ok(ScrubState::Stopped);
                }
                if self.reconciler().is_ok_and(|reconciler| reconciler.is_stopping()) {
                    return Err(Unscrubbable::Stopping);
                }
                let began = rt::now();
                let step = match Shard::current().volume(id) {
                    Some(volume) => self.in_turn(scrubbing, volume.scrub(slice, at)).await,
                    None => return Err(Unscrubbable::NotServed),
                };
                let step = step?;
                let took = rt::now().since(began);
                let next = step.next.offset.clamp(at.offset, len);
                scrubbing.note_passed(if is_thin { step.used } else { next - at.offset });
                self.note_step(&info, scrubbing, (slice, &step));
                scrubbing.found.borrow_mut().done = before + next;
                let rest = match scrubbing.is_asked_for.get() {
                    // Half of the time is left to hosts.
                    true => took,
                    false => rest(took, step.read, least),
                };
                at = step.next;
                rt::sleep(rest).await;
                // Lets other tasks run even if no step takes any time.
                rt::next_turn().await;
                if rt::now().since(saved_at) >= SAVE_EVERY && !scrubbing.stopped.get() {
                    saved_at = rt::now();
                    self.scrubs.kept.set_progress(scrubbing.pool, id, scrubbing.progress());
                    self.save_scrubs().await;
                }
            }
            before += len;
        }
        Ok(ScrubState::Done)
    }

    /// Takes a step. If that takes long, it gives the turn to other scrubs meanwhile.
    ///
    /// Nothing ends the step early: it may be repairing a block, and the scrub would only repeat it.
    async fn in_turn<T>(&self, scrubbing: &Scrubbing, step: impl Future<Output = T>) -> T {
        let mut step = pin!(step);
        if let Ok(done) = rt::timeout(HANGS_AFTER, step.as_mut()).await {
            return done;
        }
        scrubbing.hangs.set(true);
        self.scrubs.turns.release(1);
        let done = step.await;
        self.scrubs.turns.acquire(1).await;
        scrubbing.hangs.set(false);
        done
    }

    fn note_step(&self, info: &VolumeInfo, scrubbing: &Scrubbing, (slice, step): (u16, &Scrubbed)) {
        self.scrubs.read.set(self.scrubs.read.get() + step.read);
        let mut all = scrubbing.found.borrow_mut();
        all.read += step.read;
        for ScrubbedBlock { bad, is_repaired, snapshot } in &step.found {
            let lba = info.stripe.volume_offset(slice, bad.offset).0 / u64::from(info.block_size.bytes());
            all.found.note(*is_repaired, lba, snapshot.is_some());
        }
    }

    /// Notes how a scrub has ended.
    fn note_scrubbed(&self, id: VolumeId, scrub: Scrub) {
        if let Some(said) = scrub.found.said() {
            let text = format!("scrub of volume {}: {said}", scrub.volume);
            tell(Event::new(SCRUB_FOUND_BAD_BLOCKS, &scrub.volume, text).of_volume(id));
        }
        let is_stopped = scrub.state == ScrubState::Stopped;
        let outcome = if is_stopped { JobOutcome::Cancelled } else { JobOutcome::Done };
        // Nobody knows how long earlier lives of the node have worked on it.
        let took = Some(scrub.took).filter(|took| !took.is_zero());
        let subject = scrub.volume.clone();
        let work = EndedWork::Scrub { volume: id, found: Box::new(scrub) };
        self.note_end(EndedJob { work, subject, outcome, took });
    }

    /// The bytes per second that a scrub makes at least, whatever hosts do: all volumes of the node are read,
    /// one after the other, in a part of the interval.
    async fn least_rate(&self) -> u64 {
        let mut bytes = 0;
        for pool in self.open_pools().into_iter().map(|pool| pool.id()).collect::<Vec<_>>() {
            let volumes = self.pool_with(pool).map(|pool| pool.volumes()).unwrap_or_default();
            let on_disk = volumes.iter().filter(|info| info.kind.is_durable());
            bytes += on_disk.map(|info| info.reserved.0).sum::<u64>();
            rt::next_turn().await;
        }
        bytes * INTERVAL_PARTS / SCRUB_EVERY.as_secs()
    }

    /// Scrubs volumes when they are due, as long as the node runs.
    pub(super) async fn scrub_by_schedule(self: Rc<Control>) {
        loop {
            rt::sleep(LOOK_EVERY).await;
            self.save_scrubs().await;
            self.repair_noted();
            if let Some((pool, info)) = self.due_for_scrub().await {
                let scrubbing = self.new_scrub(pool, &info, false);
                rt::spawn(Rc::clone(&self).scrub(info.id, scrubbing)).detach();
            }
        }
    }

    /// Repairs bad blocks that logs have noted while nobody read them, as a scrub does.
    fn repair_noted(self: &Rc<Control>) {
        let with_bad = |pool: Pool| pool.volumes_with_bad_blocks();
        let volumes: Vec<VolumeId> = self.open_pools().into_iter().flat_map(with_bad).collect();
        if volumes.is_empty() {
            return;
        }
        let control = Rc::clone(self);
        // One that waits for a disk is not joined by others.
        self.scrubs.repairs.start((), async move {
            for id in volumes {
                control.repair_noted_of(id).await;
            }
        });
    }

    async fn repair_noted_of(&self, id: VolumeId) {
        let Some(volume) = Shard::current().volume(id) else { return };
        let Ok((_, info)) = self.volume_named(&id.to_string()) else { return };
        for slice in 0..info.stripe.slices() {
            // If the copy is not in sync, it stays noted.
            if let Err(error) = volume.repair_noted(slice).await {
                tracing::debug!(volume = %id, slice, %error, "bad blocks that a log has noted are not repaired yet");
            }
        }
    }

    /// The volume that has been due for longest, of those that this node can scrub now. Also notes which
    /// scrubs are overdue, and forgets those of volumes that were deleted.
    ///
    /// There is one scrub by schedule at a time, besides those that hang. Those that somebody waits for
    /// continue meanwhile.
    async fn due_for_scrub(&self) -> Option<(PoolId, VolumeInfo)> {
        let now = (Shard::current().config().unix_now)();
        let is_scheduled = |it: &Rc<Scrubbing>| it.is_running() && !it.is_asked_for.get() && !it.hangs.get();
        let is_busy = self.scrubs.of.borrow().values().any(is_scheduled);
        let (mut here, mut overdue) = (BTreeSet::new(), BTreeMap::new());
        let mut first: Option<(u64, PoolId, VolumeInfo)> = None;
        for pool in self.open_pools().into_iter().map(|pool| pool.id()).collect::<Vec<_>>() {
            let Some(ids) = self.pool_with(pool).map(|pool| pool.volume_ids()) else { continue };
            self.scrubs.kept.retain(pool, &ids.iter().copied().collect());
            here.extend(ids.iter().copied());
            let look = |id: VolumeId| {
                // The pool may be closed meanwhile, so no reference to it is kept.
                let Some(info) = self.pool_with(pool).and_then(|pool| pool.volume(id)) else { return };
                let is_here = || self.pool_of(id).is_ok_and(|current| current.id() == pool);
                if !info.kind.is_durable() || !is_here() {
                    return;
                }
                let entry = self.scrubs.kept.of(pool, id);
                let since = match due(now, pool, &info, None, entry.last) {
                    since if since > now || entry.last.is_some() => since,
                    _ => self.scrubs.kept.due_since(pool, id, now),
                };
                if now > since.saturating_add(OVERDUE_AFTER.as_secs()) {
                    let last = entry.last.map_or(since, |last| last.at);
                    overdue.insert(id, now.saturating_sub(last));
                }
                let due = due(now, pool, &info, entry.progress, entry.last);
                let is_next = due <= now && first.as_ref().is_none_or(|(other, ..)| due < *other);
                let has_turn = !is_busy || entry.progress.is_some_and(|progress| progress.asked);
                if is_next && has_turn && self.may_begin(&info) {
                    first = Some((due, pool, info));
                }
            };
            yielding::for_each(ids, look).await;
        }
        self.scrubs.keep(&here);
        self.scrubs.overdue.replace(overdue);
        first.map(|(_, pool, info)| (pool, info))
    }

    fn may_begin(&self, info: &VolumeInfo) -> bool {
        let interrupted = self.scrubs.interrupted.borrow().get(&info.id).copied();
        self.scrubs.running(info.id).is_none()
            && interrupted.is_none_or(|at| rt::now().since(at) >= AGAIN_AFTER)
            && self.why_not_scrubbable(info).is_none()
    }

    /// Volumes in which the last scrub found blocks that cannot be read, and those whose scrub is overdue.
    pub(super) fn scrub_faults(&self) -> Vec<Fault> {
        let name_of = |id: VolumeId, pool: Option<PoolId>| {
            let (here, info) = self.volume_named(&id.to_string()).ok()?;
            pool.is_none_or(|pool| pool == here.id()).then(|| self.shown_name(&info))
        };
        let unrepaired = |entry: ScrubEntry| {
            let found = entry.last?.found;
            let (id, pool) = (VolumeId::parse(&entry.volume)?, PoolId::parse(&entry.pool)?);
            let (blocks, first) = (found.unrepaired(), found.first?);
            let volume = name_of(id, Some(pool))?;
            let (id, of_snapshots) = (id.to_string(), found.of_snapshots);
            Some(FaultKind::ScrubUnrepaired { id, volume, blocks, lba: first, of_snapshots }.into())
        };
        let overdue = |(id, seconds): (&VolumeId, &u64)| {
            let volume = name_of(*id, None)?;
            Some(FaultKind::ScrubOverdue { id: id.to_string(), volume, seconds: *seconds }.into())
        };
        let mut faults: Vec<Fault> =
            self.scrubs.kept.with_unrepaired().into_iter().filter_map(unrepaired).collect();
        faults.extend(self.scrubs.overdue.borrow().iter().filter_map(overdue));
        faults
    }
}

/// Why a volume cannot be scrubbed now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // The messages say it.
pub enum Unscrubbable {
    #[error("nothing of it is on a disk")]
    InMemory,
    #[error("this node does not serve it")]
    NotServed,
    #[error("the copy on this node is out of sync")]
    OutOfSync,
    #[error("this node is stopping")]
    Stopping,
    #[error("the node was restarted")]
    Restarted,
    /// A step failed.
    #[error(transparent)]
    Slice(#[from] SliceError),
}

/// What a scrub waits for. Nodes report it to each other as JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs)] // The messages say it.
pub enum ScrubWait {
    #[error("its turn")]
    Turn,
    #[error("a response from its disks")]
    Disks,
    #[error("this node to serve the volume")]
    Serving,
    #[error("the copy on this node to be in sync")]
    Sync,
}

/// When a volume is due, in seconds since 1970. `progress`: of a scrub that was interrupted.
///
/// The copies of a volume are not scrubbed at the same time: each pool has another share of the interval.
fn due(
    now: u64,
    pool: PoolId,
    info: &VolumeInfo,
    progress: Option<ScrubProgress>,
    last: Option<ScrubEnd>,
) -> u64 {
    let mut id = info.id;
    id.0.iter_mut().zip(pool.0).for_each(|(byte, of_pool)| *byte ^= of_pool);
    let (began, last) = (progress.map(|progress| progress.began), last.map(|last| last.at));
    due_at(now, SCRUB_EVERY, id, info.created, began, last)
}

/// The pause after a step that took `took` and read `read` bytes, if `least` bytes per second are the least.
///
/// Hosts get most of the time, as during a verification, unless the scrub would then not end in time.
fn rest(took: Duration, read: u64, least: u64) -> Duration {
    let pause = pause(took, read);
    match read.saturating_mul(1_000_000).checked_div(least).filter(|_| read > 0) {
        Some(by_least) => pause.min(Duration::from_micros(by_least).saturating_sub(took)),
        None => pause,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_have_most_of_the_time_unless_the_interval_is_too_short_for_that() {
        const MIB: u64 = 1 << 20;
        let millis = Duration::from_millis;
        // A step of 256 KiB.
        assert_eq!(rest(millis(10), MIB / 4, 0), millis(90), "an empty node");
        assert_eq!(rest(millis(10), MIB / 4, MIB), millis(90));
        assert_eq!(rest(millis(10), MIB / 4, 10 * MIB), millis(15), "25 ms altogether");
        assert_eq!(rest(millis(100), MIB / 4, 10 * MIB), Duration::ZERO, "it is late");
        assert_eq!(rest(millis(1), 0, MIB), millis(9), "nothing is in use");
    }

    #[test]
    fn the_result_of_a_scrub_is_reported() {
        let mut found = ScrubFound::default();
        assert_eq!(found.said(), None);
        found.note(true, 7, true);
        assert_eq!(found.said().as_deref(), Some("1 bad block found and repaired"));
        found.note(false, 40, false);
        found.note(false, 80, false);
        let text = "3 bad blocks found, 1 repaired; 2 cannot be read, first LBA 40";
        assert_eq!((found.said().as_deref(), found.unrepaired()), (Some(text), 2));
        found.note(false, 90, true);
        let text = "4 bad blocks found, 1 repaired; 3 cannot be read, first LBA 40 (1 in snapshots only)";
        assert_eq!(found.said().as_deref(), Some(text));
    }
}
