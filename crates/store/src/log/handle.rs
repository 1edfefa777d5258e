//! What the pool and the core that runs a log share, because they may be different cores.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use base::ByteLen;
use rt::CoreId;
use rt::sync::{Sender, oneshot};

use super::bounds::ReplayBounds;
use super::marks::Origin;
use super::memory::Member;
use super::past::Noted;
use super::place::{QUARTER_BYTES, SLOT_BYTES};
use super::space::held_for;
use super::{LogMemory, LogTuning};
use crate::disks::SharedDisks;

/// How many blocks a log notes that were found bad while nobody read them.
const NOTED_MAX: usize = 256;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Poisoning is ignored: the mutex is only ever held for a few instructions that do not panic.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Wakes one task, from any core.
#[derive(Default)]
pub(crate) struct Bell(Mutex<(bool, Option<Sender<()>>)>);

impl Bell {
    pub(crate) fn ring(&self) {
        let waiting = {
            let mut state = lock(&self.0);
            state.0 = true;
            state.1.take()
        };
        if let Some(waiting) = waiting {
            waiting.send(());
        }
    }

    /// Waits until the bell has been rung since the last wait.
    pub(crate) async fn wait(&self) {
        let rung = {
            let mut state = lock(&self.0);
            if std::mem::take(&mut state.0) {
                return;
            }
            let (sender, receiver) = oneshot();
            state.1 = Some(sender);
            receiver
        };
        // The sender is kept until it is used, so this cannot fail.
        let _ = rung.await;
        lock(&self.0).0 = false;
    }
}

/// A request of a log to the pool.
pub(crate) enum Request {
    /// Lend one more zone.
    Borrow {
        log: u16,
        /// Live blocks, in thousandths of what the log can use.
        live_permille: u64,
        /// A write waits for the zone.
        urgent: bool,
        reply: Sender<Lending>,
    },
    /// Take the zone back: no root names it any more.
    Return {
        log: u16,
        /// The log's identity: if the log is gone, another one may have its number, and a zone of this one's.
        identity: [u8; 16],
        zone: u32,
        reply: Sender<Returned>,
    },
}

/// What a log gets that has asked for a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lending {
    /// It has one more zone, or several.
    Lent,
    /// The pool has no space for a zone, and will have none before some of its space is freed
    /// ([`Lender::freed`]).
    NoSpace,
    /// It gets none for another reason, which may be gone at any time.
    Refused,
}

/// What became of a zone that a log has returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Returned {
    /// The pool has it, or knows no such zone.
    Taken,
    /// The pool accepts no changes, or had no space for this one. The catalog on the disks is as before: the
    /// zone is still the log's.
    Kept,
    /// The commit failed otherwise. Nobody uses the zone until the pool is reopened, which shows whose it is.
    Unknown,
}

/// Brings the logs' requests to the pool's core.
pub(crate) struct Lender {
    /// `None`: the pool is gone.
    requests: Mutex<Option<VecDeque<Request>>>,
    unanswered: AtomicU64,
    freed: AtomicU64,
    /// See [`Lender::set_relied_on`].
    relied_on: AtomicU16,
    pub(crate) bell: Bell,
}

impl Default for Lender {
    fn default() -> Lender {
        Lender {
            requests: Mutex::new(Some(VecDeque::new())),
            unanswered: AtomicU64::new(0),
            freed: AtomicU64::new(0),
            relied_on: AtomicU16::new(u16::MAX),
            bell: Bell::default(),
        }
    }
}

impl Lender {
    /// Notes that the durable catalog relies on the content of this many logs, the first ones: it has a
    /// volume there that is not about to be resynced in full. Until the first call, it may be all of them.
    pub(crate) fn set_relied_on(&self, logs: u16) {
        self.relied_on.store(logs, Ordering::Release);
    }

    /// Sends a request. If the pool is gone, the request is dropped, which counts as a refusal.
    pub(crate) fn ask(&self, request: Request) {
        if let Some(requests) = &mut *lock(&self.requests) {
            self.unanswered.fetch_add(1, Ordering::Relaxed);
            requests.push_back(request);
        }
        self.bell.ring();
    }

    /// Counts a request as answered.
    pub(crate) fn answered(&self) {
        self.unanswered.fetch_sub(1, Ordering::Relaxed);
    }

    /// Notes that some of the pool's space has become free.
    pub(crate) fn note_freed(&self) {
        self.freed.fetch_add(1, Ordering::Relaxed);
    }

    /// How often some of the pool's space has become free. A log reads this before it asks: if it has not
    /// changed since, neither has the answer that there is no space.
    pub(super) fn freed(&self) -> u64 {
        self.freed.load(Ordering::Relaxed)
    }

    /// Whether all requests have been answered.
    pub(crate) fn is_idle(&self) -> bool {
        self.unanswered.load(Ordering::Relaxed) == 0
    }

    /// Drops all requests, now and from now on: the pool is gone.
    pub(crate) fn close(&self) {
        let waiting = lock(&self.requests).take();
        drop(waiting);
        self.bell.ring();
    }

    pub(crate) fn next(&self) -> Option<Request> {
        lock(&self.requests).as_mut().and_then(VecDeque::pop_front)
    }
}

/// A log. It exists as long as its pool is open, whether the log itself is open or not.
pub(crate) struct LogHandle {
    pub number: u16,
    pub identity: [u8; 16],
    pub segment_shift: u8,
    /// Number of segments of a zone.
    pub zone_segments: u32,
    pub tuning: LogTuning,
    pub replay: ReplayBounds,
    pub memory: LogMemory,
    pub lender: Arc<Lender>,
    /// Rung when something here has changed, and when the log must end.
    pub bell: Bell,
    shared: Mutex<Shared>,
}

/// Where the roots of a log lie, and who uses them.
#[derive(Default)]
struct Roots {
    /// Disk and offset in each of the two mirrors. There is a third place if a mirror was moved, and it is
    /// unknown which of its places the next opening will find.
    places: Vec<(u16, u64)>,
    /// How many reads or writes of roots are under way.
    users: usize,
    /// A mirror moves: nobody begins to read or write roots.
    held: bool,
    waiting: Vec<Sender<()>>,
}

/// Why a log makes no progress in leaving a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stays {
    /// The pool has no zone for it elsewhere.
    NoSpace,
    /// Something there cannot be read.
    Unreadable,
    /// The log is out of service.
    Offline,
}

#[derive(Default)]
struct Shared {
    /// The core on which slices of the log are open.
    open_on: Option<CoreId>,
    /// Tasks of the log may have I/O under way.
    running: bool,
    waiting: Vec<Sender<()>>,
    zones: BTreeMap<u32, (u16, u64)>,
    roots: Roots,
    disks: Option<SharedDisks>,
    /// The place of the disk that is leaving the pool.
    leaving: Option<u16>,
    /// Why the log makes no progress in leaving it.
    stays: Option<Stays>,
    /// The log is to try again what has failed.
    tries_again: bool,
    /// The branches of the catalog's volumes.
    branches: BTreeMap<u32, Arc<Branch>>,
    /// What those of them are clones of that are clones.
    origins: BTreeMap<u32, Origin>,
    /// The quarters of slots that are reserved for branches, without those that have no reserve.
    reserves: BTreeMap<u32, u64>,
    /// The branch that the next volume gets, as far as this log is concerned.
    next_branch: u32,
    figures: LogFigures,
    /// The open log's part of the memory of all logs.
    member: Weak<Member>,
    /// A volume was deleted since the log last checked.
    fewer_branches: bool,
    /// See [`LogHandle::lacks_records`].
    lacks_records: bool,
    /// By branch, blocks that were found bad while nobody read them.
    bad: BTreeMap<u32, Vec<Noted>>,
}

/// What the pool and a volume's slice in a log share.
#[derive(Debug, Default)]
pub(crate) struct Branch {
    /// Bytes that the volume takes in the log.
    stored: AtomicU64,
    /// Bytes of the volume's blocks that are not zeros.
    mapped: AtomicU64,
    /// Bytes of the volume's slice.
    len: AtomicU64,
    /// Blocks are compressed from now on.
    compresses: AtomicBool,
}

impl Branch {
    pub(super) fn compresses(&self) -> bool {
        self.compresses.load(Ordering::Relaxed)
    }
}

/// How full a log is, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogFigures {
    /// The space that the pool has lent it.
    pub lent: u64,
    /// The live blocks, as far as is known: overwritten blocks count until the map has been merged.
    pub live: u64,
    /// The blocks of those that volumes and snapshots need: without overwritten ones that the log knows of.
    pub needed: u64,
    /// How much of the lent space may be live; the rest is what cleaning gains from.
    pub usable: u64,
    /// The part of it that is kept for the unused reserves of volumes.
    pub reserved: u64,
    /// The part of `live` that only snapshots need, at least.
    pub snapshots: u64,
    /// The part of `live` that deleted snapshots still hold, at most.
    pub freeing: u64,
    /// The segments that can be written without cleaning.
    pub free: u64,
    /// Bytes that hosts have written since the log was opened.
    pub written_by_hosts: u64,
    /// Bytes of blocks that the cleaner has moved since then.
    pub written_moved: u64,
    /// Bytes of the map that checkpoints have written since then.
    pub written_map: u64,
    /// All bytes that were written to the disks for that. What the other three do not account for are the
    /// heads of records.
    pub written: u64,
    /// Blocks of the state of its map of which one copy was lost when the log was opened.
    pub state_repaired: u64,
    /// Memory of leaves, tables of changes, directory, bits, and the state; 0 if the log is not open.
    pub memory: u64,
}

/// The parts of a [`LogHandle`].
pub(crate) struct NewHandle {
    pub number: u16,
    pub identity: [u8; 16],
    pub segment_shift: u8,
    pub zone_segments: u32,
    pub roots: [(u16, u64); 2],
    pub tuning: LogTuning,
    pub replay: ReplayBounds,
    pub memory: LogMemory,
    pub lender: Arc<Lender>,
    pub zones: BTreeMap<u32, (u16, u64)>,
    pub next_branch: u32,
}

impl LogHandle {
    pub(crate) fn new(new: NewHandle) -> LogHandle {
        let NewHandle {
            number,
            identity,
            segment_shift,
            zone_segments,
            roots,
            tuning,
            replay,
            memory,
            lender,
            zones,
            next_branch,
        } = new;
        let roots = Roots { places: roots.into(), ..Roots::default() };
        let shared = Mutex::new(Shared { zones, roots, next_branch, ..Shared::default() });
        let bell = Bell::default();
        LogHandle {
            number,
            identity,
            segment_shift,
            zone_segments,
            tuning,
            replay,
            memory,
            lender,
            bell,
            shared,
        }
    }

    /// Waits until no mirror of the roots moves. None moves until what is returned is dropped.
    pub(super) async fn use_roots(&self) -> UsedRoots<'_> {
        let places = self.until_roots(|roots| {
            let may_begin = !roots.held;
            roots.users += usize::from(may_begin);
            may_begin.then(|| roots.places.clone())
        });
        UsedRoots { places: places.await, handle: self }
    }

    /// Lets nobody begin to read or write roots until what is returned is dropped, and waits until those who
    /// have begun have ended.
    pub(crate) async fn hold_roots(&self) -> HeldRoots<'_> {
        lock(&self.shared).roots.held = true;
        let held = HeldRoots(self);
        self.until_roots(|roots| (roots.users == 0).then_some(())).await;
        held
    }

    async fn until_roots<T>(&self, mut look: impl FnMut(&mut Roots) -> Option<T>) -> T {
        loop {
            let changed = {
                let mut shared = lock(&self.shared);
                if let Some(found) = look(&mut shared.roots) {
                    return found;
                }
                let (sender, receiver) = oneshot();
                shared.roots.waiting.push(sender);
                receiver
            };
            let _ = changed.await;
        }
    }

    /// Changes who uses the roots, and wakes those who wait for that.
    fn change_roots(&self, change: impl FnOnce(&mut Roots)) {
        let waiting = {
            let mut shared = lock(&self.shared);
            change(&mut shared.roots);
            std::mem::take(&mut shared.roots.waiting)
        };
        waiting.into_iter().for_each(|waiting| waiting.send(()));
    }

    /// Sets which disk is leaving the pool: the log gives up its zones there.
    pub(crate) fn set_leaving(&self, disk: Option<u16>) {
        lock(&self.shared).leaving = disk;
        self.bell.ring();
    }

    pub(super) fn leaving(&self) -> Option<u16> {
        lock(&self.shared).leaving
    }

    pub(super) fn set_stays(&self, stays: Option<Stays>) {
        lock(&self.shared).stays = stays;
    }

    /// Why the log makes no progress in leaving the disk that is leaving the pool. `None` if it does, or has
    /// nothing there.
    pub(crate) fn stays(&self) -> Option<Stays> {
        lock(&self.shared).stays
    }

    /// Has the log try again what has kept it from leaving a disk.
    pub(crate) fn try_again(&self) {
        lock(&self.shared).tries_again = true;
        self.bell.ring();
    }

    /// Whether it is to do so since the last call.
    pub(super) fn tries_again(&self) -> bool {
        std::mem::take(&mut lock(&self.shared).tries_again)
    }

    /// Number of slots of a segment.
    pub(crate) fn slots(&self) -> u32 {
        1 << (self.segment_shift - SLOT_BYTES.trailing_zeros() as u8)
    }

    /// Records that the log is opened on this core.
    ///
    /// # Panics
    /// If it is open on any core: two of them would overwrite each other's data.
    pub(super) fn claim(&self, core: CoreId) {
        let mut shared = lock(&self.shared);
        if let Some(other) = shared.open_on {
            drop(shared);
            panic!("log {} is open on core {}: all of its slices belong to that one", self.number, other.0);
        }
        shared.open_on = Some(core);
    }

    /// Records that the log's last slice was closed.
    pub(super) fn give_up(&self) {
        lock(&self.shared).open_on = None;
        self.bell.ring();
    }

    /// Whether slices of the log are open.
    pub(crate) fn is_open(&self) -> bool {
        lock(&self.shared).open_on.is_some()
    }

    /// Whether nobody relies on what the log holds: each of its volumes is a copy that the durable catalog
    /// calls blank or older, so that all of it is resynced from another copy.
    pub(super) fn may_lack_records(&self) -> bool {
        self.number >= self.lender.relied_on.load(Ordering::Acquire)
    }

    /// Notes whether the log was refused only because records are missing.
    pub(super) fn set_lacks_records(&self, lacks: bool) {
        lock(&self.shared).lacks_records = lacks;
    }

    /// Whether the log was refused when it was last opened, only because records are missing that were
    /// acknowledged as durable.
    pub(crate) fn lacks_records(&self) -> bool {
        lock(&self.shared).lacks_records
    }

    /// Waits until an earlier opening of the log has ended.
    pub(crate) async fn ended(&self) {
        loop {
            let ended = {
                let mut shared = lock(&self.shared);
                if !shared.running {
                    return;
                }
                let (sender, receiver) = oneshot();
                shared.waiting.push(sender);
                receiver
            };
            let _ = ended.await;
        }
    }

    pub(super) fn begin(&self) {
        lock(&self.shared).running = true;
    }

    pub(super) fn end(&self) {
        let waiting = {
            let mut shared = lock(&self.shared);
            shared.running = false;
            std::mem::take(&mut shared.waiting)
        };
        waiting.into_iter().for_each(|waiting| waiting.send(()));
    }

    pub(crate) fn zones(&self) -> BTreeMap<u32, (u16, u64)> {
        lock(&self.shared).zones.clone()
    }

    /// Adds a zone that the pool has lent, perhaps on a disk that was added since the log was opened.
    pub(crate) fn add_zone(&self, number: u32, place: (u16, u64), disks: SharedDisks) {
        {
            let mut shared = lock(&self.shared);
            shared.zones.insert(number, place);
            shared.disks = Some(disks);
        }
        self.bell.ring();
    }

    /// Adds a zone again that the log has returned, and the pool has not taken back.
    pub(super) fn keep_zone(&self, number: u32, place: (u16, u64)) {
        lock(&self.shared).zones.insert(number, place);
        self.bell.ring();
    }

    /// Replaces the pool's disks, of which one was removed, so that the log does not keep it open.
    pub(crate) fn set_disks(&self, disks: SharedDisks) {
        lock(&self.shared).disks = Some(disks);
        self.bell.ring();
    }

    /// Drops the references that keep the pool's disks open: the pool is gone.
    pub(crate) fn forget_disks(&self) {
        lock(&self.shared).disks = None;
    }

    /// The pool's disks, if zones were lent since the pool was opened.
    pub(super) fn disks(&self) -> Option<SharedDisks> {
        lock(&self.shared).disks.clone()
    }

    pub(crate) fn remove_zone(&self, number: u32) {
        lock(&self.shared).zones.remove(&number);
    }

    /// Notes a branch: how long the volume's slice is in this log, and whether its blocks are compressed from
    /// now on.
    pub(crate) fn set_branch(&self, branch: u32, len: ByteLen, compresses: bool) {
        let mut shared = lock(&self.shared);
        let known = shared.branches.entry(branch).or_default();
        known.len.store(len.0, Ordering::Relaxed);
        known.compresses.store(compresses, Ordering::Relaxed);
        shared.next_branch = shared.next_branch.max(branch + 1);
    }

    /// Notes that a branch is a clone. From then on its snapshot cannot be deleted.
    pub(crate) fn set_origin(&self, branch: u32, origin: Origin) {
        lock(&self.shared).origins.insert(branch, origin);
        self.bell.ring();
    }

    /// The branches that are clones.
    pub(super) fn origins(&self) -> BTreeMap<u32, Origin> {
        lock(&self.shared).origins.clone()
    }

    /// How many blocks the volume of a branch has in this log, the last one perhaps in part. Of a deleted
    /// volume this is not known, and may be any number.
    pub(super) fn blocks_of(&self, branch: u32) -> u64 {
        let len = |branch: Arc<Branch>| branch.len.load(Ordering::Relaxed).div_ceil(SLOT_BYTES as u64);
        self.branch(branch).map_or(u64::MAX, len)
    }

    /// What is known of a branch; `None` if its volume was deleted.
    pub(super) fn branch(&self, branch: u32) -> Option<Arc<Branch>> {
        lock(&self.shared).branches.get(&branch).cloned()
    }

    /// No volume has had this branch or a higher one.
    pub(super) fn next_branch(&self) -> u32 {
        lock(&self.shared).next_branch
    }

    /// Removes the branch of a deleted volume; the log then frees its space.
    pub(crate) fn remove_branch(&self, branch: u32) {
        {
            let mut shared = lock(&self.shared);
            shared.branches.remove(&branch);
            shared.origins.remove(&branch);
            shared.reserves.remove(&branch);
            shared.bad.remove(&branch);
            shared.fewer_branches = true;
        }
        self.bell.ring();
    }

    /// Reserves this many quarters of slots for a branch.
    pub(crate) fn set_reserve(&self, branch: u32, quarters: u64) {
        {
            let mut shared = lock(&self.shared);
            match quarters {
                0 => drop(shared.reserves.remove(&branch)),
                _ => drop(shared.reserves.insert(branch, quarters)),
            }
        }
        self.bell.ring();
    }

    /// The quarters of slots that are reserved for each branch.
    pub(super) fn reserves(&self) -> BTreeMap<u32, u64> {
        lock(&self.shared).reserves.clone()
    }

    /// Whether a volume was deleted since the last call.
    pub(super) fn has_fewer_branches(&self) -> bool {
        std::mem::take(&mut lock(&self.shared).fewer_branches)
    }

    /// Sets the open log's part of the memory of all logs.
    pub(super) fn set_member(&self, member: Weak<Member>) {
        lock(&self.shared).member = member;
    }

    pub(super) fn has_branch(&self, branch: u32) -> bool {
        lock(&self.shared).branches.contains_key(&branch)
    }

    /// The bytes that a branch takes, and those of its blocks that are not zeros; 0 if the log has not been
    /// opened since the pool was opened.
    pub(crate) fn used(&self, branch: u32) -> (u64, u64) {
        let load = |figure: &AtomicU64| figure.load(Ordering::Relaxed);
        self.branch(branch).map_or((0, 0), |branch| (load(&branch.stored), load(&branch.mapped)))
    }

    /// Sets what [`LogHandle::used`] returns. A volume without snapshots (`is_bare`) cannot have more blocks
    /// than its slice: above that, some of them have been overwritten, and are not merged yet.
    pub(super) fn set_used(&self, branch: u32, (stored, mapped): (u64, u64), is_bare: bool) {
        if let Some(branch) = lock(&self.shared).branches.get(&branch) {
            let len = branch.len.load(Ordering::Relaxed).next_multiple_of(SLOT_BYTES as u64);
            let most = if is_bare { len } else { u64::MAX };
            let (stored, mapped) = (stored.min(most), mapped.min(most));
            branch.stored.store(stored, Ordering::Relaxed);
            branch.mapped.store(mapped, Ordering::Relaxed);
        }
    }

    /// Notes a block of a branch that may be bad, and that nobody has read, for the node to repair. If there
    /// are too many, the next scrub finds it.
    pub(super) fn note_bad(&self, branch: u32, bad: Noted) {
        let mut shared = lock(&self.shared);
        if shared.bad.values().map(Vec::len).sum::<usize>() >= NOTED_MAX {
            return;
        }
        let of_branch = shared.bad.entry(branch).or_default();
        if of_branch.iter().all(|known| known.stored.place != bad.stored.place) {
            of_branch.push(bad);
        }
    }

    /// Takes what was noted of a branch.
    pub(super) fn take_bad(&self, branch: u32) -> Vec<Noted> {
        lock(&self.shared).bad.remove(&branch).unwrap_or_default()
    }

    /// Adds the branches of which something was noted.
    pub(crate) fn add_branches_with_bad(&self, branches: &mut BTreeSet<u32>) {
        branches.extend(lock(&self.shared).bad.keys());
    }

    pub(crate) fn figures(&self) -> LogFigures {
        let shared = lock(&self.shared);
        let memory = shared.member.upgrade().map_or(0, |member| member.bytes());
        let quarter = QUARTER_BYTES as u64;
        let stored = |branch: &Arc<Branch>| branch.stored.load(Ordering::Relaxed);
        let used = |branch: &u32| shared.branches.get(branch).map_or(0, stored) / quarter;
        let held = shared.reserves.iter().map(|(branch, reserve)| held_for(*reserve, used(branch)));
        LogFigures { memory, reserved: held.sum::<u64>() * quarter, ..shared.figures }
    }

    pub(super) fn set_figures(&self, figures: LogFigures) {
        lock(&self.shared).figures = figures;
    }

    pub(super) fn set_needed(&self, needed: u64) {
        lock(&self.shared).figures.needed = needed;
    }
}

/// A read or write of roots. No mirror moves while this exists.
pub(super) struct UsedRoots<'a> {
    handle: &'a LogHandle,
    /// Disk and offset of each place.
    pub(super) places: Vec<(u16, u64)>,
}

impl Drop for UsedRoots<'_> {
    fn drop(&mut self) {
        self.handle.change_roots(|roots| roots.users -= 1);
    }
}

/// Nobody reads or writes the roots of a log while this exists.
pub(crate) struct HeldRoots<'a>(&'a LogHandle);

impl HeldRoots<'_> {
    /// The number of the log.
    pub(crate) fn log(&self) -> u16 {
        self.0.number
    }

    /// Replaces the places of the roots; some may lie on a disk that was added since the log was opened.
    pub(crate) fn set(&self, places: Vec<(u16, u64)>, disks: SharedDisks) {
        let mut shared = lock(&self.0.shared);
        shared.roots.places = places;
        shared.disks = Some(disks);
    }
}

impl Drop for HeldRoots<'_> {
    fn drop(&mut self) {
        self.0.change_roots(|roots| roots.held = false);
    }
}

base::shows!(Debug for LogHandle, |it| "log {}", it.number);
