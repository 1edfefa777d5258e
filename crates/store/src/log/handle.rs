//! What the pool and the core that runs a log share: they may be different cores.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use rt::CoreId;
use rt::sync::{Sender, oneshot};

use super::memory::Member;
use super::{LogMemory, LogTuning};
use crate::disks::SharedDisks;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing panics while it holds one of these for more than a few instructions.
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

    /// Waits until it has been rung since the last wait.
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
        // The sender is kept until it is used.
        let _ = rung.await;
        lock(&self.0).0 = false;
    }
}

/// What a log asks of the pool.
pub(crate) enum Request {
    /// One more zone; the answer is whether there was one to be had.
    Borrow {
        log: u16,
        /// Blocks that are live, in thousandths of what the log can use.
        live_permille: u64,
        /// A write waits for it.
        urgent: bool,
        reply: Sender<bool>,
    },
    /// Nothing names the zone any more.
    Return { log: u16, zone: u32, reply: Sender<()> },
}

/// Brings requests of logs to the pool's core.
pub(crate) struct Lender {
    /// `None`: the pool is gone.
    requests: Mutex<Option<VecDeque<Request>>>,
    unanswered: AtomicU64,
    pub(crate) bell: Bell,
}

impl Default for Lender {
    fn default() -> Lender {
        Lender {
            requests: Mutex::new(Some(VecDeque::new())),
            unanswered: AtomicU64::new(0),
            bell: Bell::default(),
        }
    }
}

impl Lender {
    /// Dropped, and so answered with no, when the pool is gone.
    pub(crate) fn ask(&self, request: Request) {
        if let Some(requests) = &mut *lock(&self.requests) {
            self.unanswered.fetch_add(1, Ordering::Relaxed);
            requests.push_back(request);
        }
        self.bell.ring();
    }

    /// A request was answered.
    pub(crate) fn answered(&self) {
        self.unanswered.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether all requests were answered.
    pub(crate) fn is_idle(&self) -> bool {
        self.unanswered.load(Ordering::Relaxed) == 0
    }

    /// The pool is gone.
    pub(crate) fn close(&self) {
        let waiting = lock(&self.requests).take();
        drop(waiting);
        self.bell.ring();
    }

    pub(crate) fn next(&self) -> Option<Request> {
        lock(&self.requests).as_mut().and_then(VecDeque::pop_front)
    }
}

/// A log, as long as its pool is open.
pub(crate) struct LogHandle {
    pub number: u16,
    pub identity: [u8; 16],
    pub segment_shift: u8,
    /// Segments of a zone.
    pub zone_segments: u32,
    /// Disk and byte of its roots, in both mirrors.
    pub roots: [(u16, u64); 2],
    pub tuning: LogTuning,
    pub memory: LogMemory,
    pub lender: Arc<Lender>,
    /// Rung when something here has changed, and when the log is to end.
    pub bell: Bell,
    shared: Mutex<Shared>,
}

#[derive(Default)]
struct Shared {
    /// Slices are open there.
    open_on: Option<CoreId>,
    /// Tasks of the log may have I/O under way.
    running: bool,
    waiting: Vec<Sender<()>>,
    zones: BTreeMap<u32, (u16, u64)>,
    disks: Option<SharedDisks>,
    /// Those of the catalogue's volumes, with the bytes that each takes in this log.
    branches: BTreeMap<u32, Arc<AtomicU64>>,
    figures: LogFigures,
    /// What the open log takes of the memory of all logs.
    member: Weak<Member>,
    /// A volume was deleted since the log last looked, or it has not looked since it was opened.
    fewer_branches: bool,
}

/// How full a log is, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogFigures {
    /// What it has of the pool.
    pub lent: u64,
    /// Blocks that somebody needs, as far as is known: what was overwritten counts until the map has been
    /// merged.
    pub live: u64,
    /// What may be live of what it has: the rest is what cleaning gains.
    pub usable: u64,
    /// Segments that can be written at once.
    pub free: u64,
    /// What hosts have written since it was opened.
    pub written_by_hosts: u64,
    /// All that was written to the disks for it since then.
    pub written: u64,
    /// Memory of leaves, tables of changes, directory and bits; 0 if it is not open.
    pub memory: u64,
}

/// What a log is made of when its pool is opened, or it is made.
pub(crate) struct NewHandle {
    pub number: u16,
    pub identity: [u8; 16],
    pub segment_shift: u8,
    pub zone_segments: u32,
    pub roots: [(u16, u64); 2],
    pub tuning: LogTuning,
    pub memory: LogMemory,
    pub lender: Arc<Lender>,
    pub zones: BTreeMap<u32, (u16, u64)>,
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
            memory,
            lender,
            zones,
        } = new;
        let shared = Mutex::new(Shared { zones, ..Shared::default() });
        let bell = Bell::default();
        LogHandle {
            number,
            identity,
            segment_shift,
            zone_segments,
            roots,
            tuning,
            memory,
            lender,
            bell,
            shared,
        }
    }

    /// Slots of a segment.
    pub(crate) fn slots(&self) -> u32 {
        1 << (self.segment_shift - super::place::SLOT_BYTES.trailing_zeros() as u8)
    }

    /// The log is opened on this core.
    ///
    /// # Panics
    /// If it is open on some core: two of them would write over each other.
    pub(super) fn claim(&self, core: CoreId) {
        let mut shared = lock(&self.shared);
        if let Some(other) = shared.open_on {
            drop(shared);
            panic!("log {} is open on core {}: all of its slices belong to that one", self.number, other.0);
        }
        shared.open_on = Some(core);
    }

    /// Its last slice was closed.
    pub(super) fn give_up(&self) {
        lock(&self.shared).open_on = None;
        self.bell.ring();
    }

    /// Whether slices of it are open.
    pub(crate) fn is_open(&self) -> bool {
        lock(&self.shared).open_on.is_some()
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

    /// The pool has lent a zone, perhaps on a disk that was added since the log was opened.
    pub(crate) fn add_zone(&self, number: u32, place: (u16, u64), disks: SharedDisks) {
        {
            let mut shared = lock(&self.shared);
            shared.zones.insert(number, place);
            shared.disks = Some(disks);
        }
        self.bell.ring();
    }

    /// The pool is gone, and with it what keeps its disks open.
    pub(crate) fn forget_disks(&self) {
        lock(&self.shared).disks = None;
    }

    /// The pool's disks, if zones were lent since it was opened.
    pub(super) fn disks(&self) -> Option<SharedDisks> {
        lock(&self.shared).disks.clone()
    }

    pub(crate) fn remove_zone(&self, number: u32) {
        lock(&self.shared).zones.remove(&number);
    }

    pub(crate) fn add_branch(&self, branch: u32) {
        lock(&self.shared).branches.entry(branch).or_default();
    }

    /// A volume was deleted: what it has is given back.
    pub(crate) fn remove_branch(&self, branch: u32) {
        {
            let mut shared = lock(&self.shared);
            shared.branches.remove(&branch);
            shared.fewer_branches = true;
        }
        self.bell.ring();
    }

    /// Whether a volume was deleted since this was last asked.
    pub(super) fn has_fewer_branches(&self) -> bool {
        std::mem::take(&mut lock(&self.shared).fewer_branches)
    }

    /// The log is opened, and takes what `member` says.
    pub(super) fn set_member(&self, member: Weak<Member>) {
        let mut shared = lock(&self.shared);
        shared.member = member;
        // An earlier opening may have ended before it had swept.
        shared.fewer_branches = true;
    }

    pub(super) fn has_branch(&self, branch: u32) -> bool {
        lock(&self.shared).branches.contains_key(&branch)
    }

    /// What a branch takes, in bytes; 0 if the log was not opened since the pool was.
    pub(crate) fn used(&self, branch: u32) -> u64 {
        lock(&self.shared).branches.get(&branch).map_or(0, |used| used.load(Ordering::Relaxed))
    }

    pub(super) fn set_used(&self, branch: u32, bytes: u64) {
        if let Some(used) = lock(&self.shared).branches.get(&branch) {
            used.store(bytes, Ordering::Relaxed);
        }
    }

    pub(crate) fn figures(&self) -> LogFigures {
        let shared = lock(&self.shared);
        let memory = shared.member.upgrade().map_or(0, |member| member.bytes());
        LogFigures { memory, ..shared.figures }
    }

    pub(super) fn set_figures(&self, figures: LogFigures) {
        lock(&self.shared).figures = figures;
    }
}

impl std::fmt::Debug for LogHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "log {}", self.number)
    }
}
