//! Log-structured volumes: blocks are never overwritten in place.
//!
//! What a log guarantees: a write that was acknowledged as durable can be read after any power cut; a read
//! returns what was written, or an error that names the block; memory stays within its bounds; a write for
//! which there is no room is refused, and UNMAP always finds room.
//!
//! Writes are appended to a *segment* as *records* ([`append`]), and their places are entered in a table of
//! changes ([`changes`]). From time to time the table is frozen and merged into *leaves*, the map of 512
//! blocks each, and a *root* says where everything is ([`checkpoint`]). After a crash, the records after the
//! root are replayed ([`replay`]). Overwritten blocks leave holes; the *cleaner* moves what is left of a
//! segment elsewhere ([`cleaner`]). Overwritten blocks that a snapshot needs stay, and the snapshot's leaves
//! name them ([`marks`]). A clone is read through a snapshot of another volume ([`clones`]). Slice *s* of all
//! log volumes of a pool lies in log *s*, so a log belongs to one core.
//!
//! The reasons are in `docs/why/log.md`, the format on disk is in `docs/formats/log.md`.

mod announce;
mod append;
pub(crate) mod bounds;
mod changes;
#[cfg(any(test, debug_assertions))]
pub(crate) mod check;
mod checkpoint;
mod cleaner;
mod clones;
mod counting;
mod diff;
mod effort;
mod emptying;
#[cfg(test)]
pub(crate) mod golden;
pub(crate) mod handle;
pub(crate) mod leaf;
mod lines;
pub(crate) mod marks;
mod memory;
mod merge;
mod pace;
pub(crate) mod pack;
pub(crate) mod past;
pub(crate) mod place;
mod queue;
mod read;
pub(crate) mod record;
mod replay;
mod rest;
mod restore;
pub(crate) mod root;
mod segment;
mod slice;
mod snapshots;
mod space;
pub(crate) mod state;
#[cfg(test)]
mod tests;
mod twice;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::{Rc, Weak};
use std::sync::Arc;

use base::{ByteLen, Instant};
use rt::sync::Notify;

use crate::disks::{CoreDisks, PoolDisk};
use crate::error::SliceError;
pub use clones::HeldSnapshot;
pub use diff::{ChangedRange, ChangedRanges, DiffLimits};
pub use handle::LogFigures;
pub(crate) use handle::{Branch, Lender, Lending, LogHandle, NewHandle, Request, Returned, Stays};
pub use memory::LogMemory;
pub use past::{BadVersion, FoundBad, PastCursor, SnapshotsChecked};
pub use read::MAP_UNIT;
pub use slice::LogSlice;
pub use snapshots::{NewSnapshot, SnapshotError, SnapshotInfo};
pub(crate) use space::held_for;

use bounds::ReplayBounds;
use changes::Changes;
use counting::Replaced;
use effort::Effort;
use leaf::{Era, LEAF_BLOCKS, Leaf, LeafCache, LeafKey};
use marks::Marks;
use pace::Meanwhile;
use place::{Place, QUARTER_BYTES, SLOT_BYTES, Slots};
use queue::Append;
use replay::RecoveryError;
use root::Run;
use segment::{Segments, Zone};
use state::LeafPlace;

/// The bounds of a log. The same for every log of a pool, whatever it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogTuning {
    /// Bytes of a segment of logs that are created from now on: a power of two from 64 KiB to 64 MiB. `None`:
    /// a 1024th of the pool, at least 256 KiB.
    pub segment: Option<ByteLen>,
    /// The minimum number of segments of a zone of such logs; a zone is whole extents.
    pub zone_segments: u32,
    /// The minimum number of entries that the tables of changes may hold, frozen and active together. Above
    /// it, the log's share of [`LogMemory`] decides.
    pub changes_min: usize,
    /// The maximum number of such entries.
    pub changes_max: usize,
    /// How many bytes of records after the last root a recovery reads at most, not counting the rest of the
    /// segments that it has to scan.
    pub replay_bytes: u64,
    /// How many bytes the recoveries of all logs of a pool may scan together. A log with a small map may
    /// replay what its part allows, where that is more than `replay_bytes`.
    pub scan_bytes_all: u64,
}

impl Default for LogTuning {
    fn default() -> LogTuning {
        LogTuning {
            segment: None,
            // More than even a small log keeps in reserve (10, see `Running::usable`). Zones of the largest
            // segments are 1 GiB.
            zone_segments: 16,
            // Half of the maximum, 128 Ki entries of some 60 bytes, for each table; an eighth of that where
            // memory is short.
            changes_min: 32 << 10,
            changes_max: 256 << 10,
            // Eight logs on a disk of 500 MB/s read their records in 4 s.
            replay_bytes: 256 << 20,
            // 3 s on such a disk: 1 GiB for a single log, with the largest segments.
            scan_bytes_all: 1408 << 20,
        }
    }
}

/// Memory of an entry of a standard library map, including its share of nodes that are not full.
const ENTRY_BYTES: usize = 64;

/// The state of an open log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The log is being recovered: operations wait.
    Opening,
    /// The log serves.
    Open,
    /// The log cannot be opened; the reason was logged. Operations fail with [`SliceError::Offline`].
    Refused,
    /// A write or flush failed. It is unknown what the disks hold, so nothing more is written until the pool
    /// has been reopened.
    Failed,
}

/// What is left to do after volumes or snapshots were deleted. Until it is done, checkpoints follow one
/// another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sweeping {
    Nothing,
    /// A checkpoint removes some of the leaves that deleted volumes and snapshots have left.
    Leaves,
    /// All leaves have been removed, and the log can spare zones: a checkpoint returns one to the pool.
    Zones,
}

/// An open log. All slices of its core that lie in it hold a clone; when the last clone is dropped, the log
/// is closed.
pub(crate) struct Log {
    inner: Rc<Inner>,
}

/// The logs that are open on a core.
#[derive(Default)]
struct CoreLogs(RefCell<Vec<Weak<Log>>>);

/// The state that the tasks of a log share.
struct Inner {
    handle: Arc<LogHandle>,
    disks: RefCell<CoreDisks>,
    phase: Cell<Phase>,
    /// The last slice was closed: the tasks must end.
    closing: Cell<bool>,
    state: RefCell<Running>,
    /// Notified when there may be room, when a checkpoint has ended, and when the phase has changed.
    changed: Notify,
    /// The log's tasks have begun.
    begun: Cell<bool>,
    /// What the logs of the core have compressed and decompressed in this turn.
    effort: Rc<Effort>,
}

/// What a log knows while it runs.
struct Running {
    segments: Segments,
    /// The place of each leaf, for all branches.
    leaves: BTreeMap<LeafKey, LeafPlace>,
    /// The snapshots and restores of all branches, and what the leaves of each era hold; those without leaves
    /// are missing.
    marks: Marks,
    held: BTreeMap<Era, Held>,
    /// The snapshots that had been deleted at the last freeze, and were still in the list; and the restores
    /// whose lines nobody needed then.
    deleted_at_freeze: BTreeSet<Era>,
    /// What deleted snapshots held is not freed for now.
    folding_paused: bool,
    /// Leaves of deleted snapshots that were not folded, because they cannot be read, or what would get their
    /// blocks.
    unfolded: BTreeSet<LeafKey>,
    /// Branches whose former lines may hold what nobody needs, and from which leaf on to look for it.
    unsettled: BTreeMap<u32, u64>,
    cache: LeafCache,
    /// Leaves that the disk cannot read where they are. They were in memory, and the next checkpoint writes
    /// them again. At most one for each scrub that is running.
    mending: BTreeMap<LeafKey, Leaf>,
    /// The changes since the last freeze.
    active: Changes,
    /// The changes that are being merged: those of records below `frozen_below`.
    frozen: Option<Changes>,
    frozen_below: u64,
    append: Append,
    /// The newest durable root, and the sequence number in it.
    root: u64,
    root_sequence: u64,
    /// Where the two copies of the state of that root lie.
    runs: [Vec<Run>; 2],
    state_len: usize,
    /// How many slots of the state came from its second copy when the log was opened.
    state_repaired: u64,
    /// What each branch takes, in the same sense as [`LogFigures::live`].
    used: BTreeMap<u32, Usage>,
    /// How many quarters of slots all of them take.
    used_by_all: u64,
    /// What is known to be free after the merge of the active table, and of the frozen one.
    replaced: Replaced,
    frozen_replaced: Replaced,
    /// How many quarters of slots are reserved for branches.
    reserves: BTreeMap<u32, u64>,
    /// Which tasks are under way.
    checkpointing: bool,
    cleaning: bool,
    asking: bool,
    /// How many checkpoints have ended.
    checkpoints: u64,
    /// Something needs a checkpoint, whatever the bounds say.
    checkpoint_wanted: bool,
    /// What the next checkpoint does because volumes or snapshots were deleted.
    sweeping: Sweeping,
    /// How many zones were returned that the pool has not taken back yet.
    returning: usize,
    /// No zone goes back before this time, because the pool did not take one.
    return_again_at: Option<Instant>,
    /// Segments were opened, emptied or lent since the log last checked whether a checkpoint would gain
    /// segments.
    stock_changed: bool,
    replay: ReplayBounds,
    /// What may be written until the root of the checkpoint that is under way, if that is bounded.
    meanwhile: Option<Meanwhile>,
    /// Bytes of records since the last freeze.
    since_freeze: u64,
    /// Blocks that were zeroed since the last freeze.
    zeroed: u64,
    /// The cleaner can gain nothing until something changes.
    exhausted: bool,
    /// How many quarters of slots were live when the pool last refused a zone.
    refused_at: Option<u64>,
    /// How many requests for zones have been made, and the number of the last urgent one that was refused.
    asks: u64,
    refused_ask: u64,
    /// The pool has refused a zone without which the log cannot leave a disk that is leaving the pool.
    none_to_leave: bool,
    /// The pool had no space for a zone when so much of it had been freed ([`Lender::freed`]).
    no_zone_since: Option<u64>,
    /// How many quarters of slots were live at the last freeze whose checkpoint has ended, once all changes
    /// until then were merged; and how many were held for reserves then. Changes since then take as much as
    /// they free, except zeros, and blocks that shrink more than those they replace. `None` before the first
    /// checkpoint, and when reserves have changed.
    settled: Option<(u64, u64)>,
    /// How many slots hosts may still write near low water. The cleaner earns them.
    credit: i64,
    written_by_hosts: u64,
    written_moved: u64,
    written_map: u64,
    written: u64,
}

/// What blocks take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Usage {
    /// How many blocks there are.
    blocks: u64,
    /// How many quarters of slots they take.
    quarters: u64,
}

impl Usage {
    /// That of the blocks in these slots.
    fn of(slots: Slots) -> Usage {
        Usage { blocks: u64::from(slots.count), quarters: u64::from(slots.quarters()) }
    }

    fn add(&mut self, more: Usage) {
        self.blocks += more.blocks;
        self.quarters += more.quarters;
    }

    fn subtract(&mut self, less: Usage) {
        self.blocks = self.blocks.saturating_sub(less.blocks);
        self.quarters = self.quarters.saturating_sub(less.quarters);
    }
}

/// What the leaves of an era hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Held {
    leaves: u64,
    /// How many quarters of slots their blocks take.
    quarters: u64,
}

impl Log {
    /// Returns the log of `handle` on this core, and opens it if it is not open. Operations wait until it
    /// serves.
    ///
    /// # Panics
    /// If the log is open on another core.
    pub(crate) fn open(handle: &Arc<LogHandle>, disks: &CoreDisks) -> Rc<Log> {
        let logs = rt::local::<CoreLogs>().unwrap_or_else(|| {
            let logs = Rc::new(CoreLogs::default());
            rt::set_local(Rc::clone(&logs));
            logs
        });
        let mut logs = logs.0.borrow_mut();
        logs.retain(|log| log.strong_count() > 0);
        let open = logs.iter().filter_map(Weak::upgrade).find(|log| Arc::ptr_eq(&log.inner.handle, handle));
        if let Some(log) = open {
            log.inner.open_again();
            return log;
        }
        handle.claim(rt::core());
        let log = Rc::new(Log { inner: Rc::new(Inner::new(handle, disks)) });
        logs.push(Rc::downgrade(&log));
        let inner = Rc::clone(&log.inner);
        rt::spawn(async move { inner.start().await }).detach();
        log
    }

    /// Takes the pool's disks after some were added or removed.
    pub(crate) fn set_disks(&self, disks: &CoreDisks) {
        self.inner.set_disks(disks);
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.inner.closing.set(true);
        self.inner.handle.give_up();
        // Only tasks of the log itself still wait for these, and the log ends when they have ended.
        self.inner.refuse_waiting();
        self.inner.changed.notify();
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.begun.get() {
            self.handle.end();
        }
    }
}

impl Inner {
    fn new(handle: &Arc<LogHandle>, disks: &CoreDisks) -> Inner {
        Inner {
            handle: Arc::clone(handle),
            disks: RefCell::new(disks.clone()),
            phase: Cell::new(Phase::Opening),
            closing: Cell::new(false),
            state: RefCell::new(Running::new(handle)),
            changed: Notify::new(),
            begun: Cell::new(false),
            effort: Effort::of_core(),
        }
    }

    /// Waits until an earlier opening has ended, then recovers the log and serves.
    async fn start(self: Rc<Inner>) {
        self.handle.ended().await;
        if self.closing.get() {
            return;
        }
        self.handle.begin();
        self.begun.set(true);
        self.recover_and_serve().await;
    }

    /// Recovers a log again that was refused, if nobody relies on what it lacks any more. Slices without
    /// blocks may have kept it open.
    fn open_again(self: &Rc<Inner>) {
        let may_open = self.handle.lacks_records() && self.handle.may_lack_records();
        if self.phase.get() == Phase::Refused && may_open {
            self.phase.set(Phase::Opening);
            self.state.replace(Running::new(&self.handle));
            let inner = Rc::clone(self);
            rt::spawn(async move { inner.recover_and_serve().await }).detach();
        }
    }

    async fn recover_and_serve(self: Rc<Inner>) {
        match self.recover().await {
            Ok(()) => {
                self.handle.set_lacks_records(false);
                self.take_reserves();
                self.take_zones();
                self.phase.set(Phase::Open);
                self.take_origins();
                self.report_orphans();
                // An earlier opening may have ended before it had removed what deleted volumes left.
                self.sweep();
                let (inner, handle) = (Rc::downgrade(&self), Arc::clone(&self.handle));
                rt::spawn(async move { listen(&inner, &handle).await }).detach();
                self.tell();
                self.tend();
            }
            Err(_) if self.closing.get() => {}
            Err(error) => {
                let log = self.handle.number;
                tracing::error!(log, %error, "a log cannot be opened: its volumes are offline");
                self.handle.set_lacks_records(matches!(error, RecoveryError::RecordMissing(_)));
                self.phase.set(Phase::Refused);
                self.tell_stays();
                self.give_up_memory();
            }
        }
        self.changed.notify();
    }

    /// Waits until the log serves.
    async fn ready(&self) -> Result<(), SliceError> {
        self.changed.until(|| self.phase.get() != Phase::Opening).await;
        if self.phase.get() == Phase::Open { Ok(()) } else { Err(SliceError::Offline) }
    }

    /// Whether the log's tasks should continue.
    fn goes_on(&self) -> bool {
        self.phase.get() == Phase::Open && !self.closing.get()
    }

    /// Takes the log out of service after a write or flush failed.
    fn fail(&self, what: &str, error: &(dyn std::error::Error + 'static)) {
        if self.phase.get() != Phase::Failed {
            let log = self.handle.number;
            tracing::error!(log, error, "a log is out of service, because {what} failed: reopen the pool");
            self.phase.set(Phase::Failed);
        }
        self.tell_stays();
        self.give_up_memory();
        self.refuse_waiting();
        self.changed.notify();
    }

    /// Ends all requests that wait for their records to be made: none will be made any more.
    fn refuse_waiting(&self) {
        let waiting = self.state.borrow_mut().append.take_all();
        waiting.into_iter().for_each(|request| request.fail(SliceError::Offline));
    }

    /// Frees the memory of the log's leaves for other logs: it will not read or write any more.
    fn give_up_memory(&self) {
        self.state.borrow_mut().cache.clear();
    }

    /// Whether the log is out of service until its pool is reopened.
    fn is_offline(&self) -> bool {
        let disks = self.disks.borrow();
        let has_failed = |disk: &Rc<PoolDisk>| disk.failure().is_some();
        // Called for each request, and there are many more zones than disks: check the disks first.
        matches!(self.phase.get(), Phase::Failed | Phase::Refused)
            || disks.all().any(has_failed)
                && self.state.borrow().segments.zones.values().any(|zone| has_failed(disks.disk(zone.disk)))
    }

    /// The first leaf of a branch, from `number` on, in which some block has a place, perhaps one of its
    /// origin.
    fn next_leaf(&self, branch: u32, number: u64) -> Option<u64> {
        let state = self.state.borrow();
        let in_map = state.next_leaf_under(Era::new(branch, state.marks.now(branch)), number..=u64::MAX);
        let next = |branch| {
            state.tables().filter_map(move |table| table.next_block(branch, number * LEAF_BLOCKS)).min()
        };
        let changed = state.marks.ancestors(branch).filter_map(next);
        changed.map(|block| block / LEAF_BLOCKS).chain(in_map).min()
    }

    /// The disk of a place (the object and its index), and the offset there.
    fn locate(&self, place: Place) -> Option<(Rc<PoolDisk>, u16, u64)> {
        let (disk, start) = self.state.borrow().segments.locate(place.segment)?;
        let at = start + u64::from(place.quarter()) * QUARTER_BYTES as u64;
        Some((Rc::clone(self.disks.borrow().disk(disk)), disk, at))
    }

    /// The disks on which the log has zones.
    fn own_disks(&self) -> Vec<Rc<PoolDisk>> {
        let state = self.state.borrow();
        let disks: BTreeSet<u16> = state.segments.zones.values().map(|zone| zone.disk).collect();
        disks.into_iter().map(|disk| Rc::clone(self.disks.borrow().disk(disk))).collect()
    }

    /// Replaces the disks if these are newer: the log may have attached some itself.
    fn set_disks(&self, disks: &CoreDisks) {
        let is_newer = disks.is_newer_than(&self.disks.borrow());
        if is_newer {
            self.disks.replace(disks.clone());
        }
    }

    /// Takes over the zones that the pool has lent meanwhile.
    fn take_zones(&self) {
        // The zones first: their disks are those of the same time, or later.
        let zones = self.handle.zones();
        let leaving = self.handle.leaving();
        self.take_disks();
        {
            let mut state = self.state.borrow_mut();
            for (number, (disk, offset)) in zones {
                if !state.segments.zones.contains_key(&number) {
                    state.segments.add_zone(number, Zone { disk, offset, leaving: false });
                    state.stock_changed = true;
                    state.exhausted = false;
                }
            }
        }
        self.take_leaving_disk(leaving);
    }

    /// Takes over the disks that the pool has made known.
    fn take_disks(&self) {
        if let Some(disks) = self.handle.disks() {
            let present = disks.attach_added(&self.disks.borrow());
            self.set_disks(&present);
        }
    }

    /// Takes over the reserves of volumes.
    fn take_reserves(&self) {
        let mut state = self.state.borrow_mut();
        state.reserves = self.handle.reserves();
        state.settled = None;
    }

    /// Reports how full the log is.
    fn tell(&self) {
        let mut state = self.state.borrow_mut();
        state.account(&self.handle.tuning);
        let (segment, quarter) = (state.segment_bytes(), QUARTER_BYTES as u64);
        // What a checkpoint that is under way has removed is not gone before its root is durable.
        let before = if state.checkpointing { self.handle.figures().live } else { 0 };
        let (snapshots, freeing) = state.held_by_snapshots();
        self.handle.set_figures(LogFigures {
            lent: state.segments.total() * segment,
            live: before.max(state.live_quarters() * quarter),
            needed: state.usage_of_all() * quarter,
            usable: state.may_be_live() * quarter,
            snapshots: snapshots.0,
            freeing: freeing.0,
            free: (state.segments.ready.len() + state.segments.free.len()) as u64 * segment,
            written_by_hosts: state.written_by_hosts,
            written_moved: state.written_moved,
            written_map: state.written_map,
            written: state.written,
            state_repaired: state.state_repaired,
            // Filled in when the figures are read.
            memory: 0,
            reserved: 0,
        });
        let branches: Vec<u32> = state.used.keys().copied().collect();
        drop(state);
        branches.into_iter().for_each(|branch| self.tell_used(branch));
        self.tell_stays();
    }

    /// Reports how much all branches take.
    fn tell_needed(&self) {
        let needed = self.state.borrow().usage_of_all();
        self.handle.set_needed(needed * QUARTER_BYTES as u64);
    }

    /// Reports how much a branch takes.
    fn tell_used(&self, branch: u32) {
        let state = self.state.borrow();
        let (used, is_bare) = (state.usage_of(branch), state.marks.is_bare(branch));
        let (stored, mapped) = (used.quarters * QUARTER_BYTES as u64, used.blocks * SLOT_BYTES as u64);
        self.handle.set_used(branch, (stored, mapped), is_bare);
    }

    /// Has checkpoints remove what deleted volumes and snapshots have left, if anything.
    fn sweep(&self) {
        {
            let mut state = self.state.borrow_mut();
            state.unfolded.clear();
            state.look_at_lines();
        }
        if !self.gone().is_empty() || self.state.borrow().has_to_fold() {
            self.state.borrow_mut().sweeping = Sweeping::Leaves;
        }
    }

    /// The branches of deleted volumes that the map or a table of changes still names, in order.
    ///
    /// The catalog has no such volume any more, and no branch is used again: so nothing will read these
    /// blocks, whatever becomes of the log meanwhile.
    fn gone(&self) -> Vec<u32> {
        let state = self.state.borrow();
        let behind = |branch: &u32| state.next_branch(branch.checked_add(1)?);
        let named = std::iter::successors(state.next_branch(0), behind);
        named.filter(|branch| !self.handle.has_branch(*branch)).collect()
    }
}

impl Running {
    fn new(handle: &Arc<LogHandle>) -> Running {
        let ringing = Arc::downgrade(handle);
        let share = handle.memory.join(move || {
            if let Some(handle) = ringing.upgrade() {
                handle.bell.ring();
            }
        });
        handle.set_member(share.member());
        Running {
            segments: Segments::new(handle.slots(), handle.zone_segments),
            leaves: BTreeMap::new(),
            marks: Marks::default(),
            held: BTreeMap::new(),
            deleted_at_freeze: BTreeSet::new(),
            folding_paused: false,
            unfolded: BTreeSet::new(),
            unsettled: BTreeMap::new(),
            cache: LeafCache::new(share),
            mending: BTreeMap::new(),
            active: Changes::default(),
            frozen: None,
            frozen_below: 0,
            append: Append::default(),
            root: 0,
            root_sequence: 0,
            runs: [Vec::new(), Vec::new()],
            state_len: 0,
            state_repaired: 0,
            used: BTreeMap::new(),
            used_by_all: 0,
            replaced: Replaced::default(),
            frozen_replaced: Replaced::default(),
            reserves: BTreeMap::new(),
            checkpointing: false,
            cleaning: false,
            asking: false,
            checkpoints: 0,
            checkpoint_wanted: false,
            sweeping: Sweeping::Nothing,
            returning: 0,
            return_again_at: None,
            stock_changed: true,
            replay: handle.replay,
            meanwhile: None,
            since_freeze: 0,
            zeroed: 0,
            exhausted: false,
            refused_at: None,
            asks: 0,
            refused_ask: 0,
            none_to_leave: false,
            no_zone_since: None,
            settled: None,
            credit: 0,
            written_by_hosts: 0,
            written_moved: 0,
            written_map: 0,
            written: 0,
        }
    }

    /// The tables of changes.
    fn tables(&self) -> impl Iterator<Item = &Changes> {
        std::iter::once(&self.active).chain(&self.frozen)
    }

    /// The first branch, from `from` on, that the map or a table of changes names.
    fn next_branch(&self, from: u32) -> Option<u32> {
        let in_map = self.leaves.range((Era::first(from), 0)..).next().map(|((era, _), _)| era.branch);
        self.tables().filter_map(|table| table.next_branch(from)).chain(in_map).min()
    }

    /// How many quarters of slots the live blocks take. Until the next merge, a block that was moved lies in
    /// two places; it counts once.
    fn live_quarters(&self) -> u64 {
        let moved = self.active.moved_quarters() + self.frozen.as_ref().map_or(0, Changes::moved_quarters);
        self.segments.live.saturating_sub(moved)
    }

    /// How many bytes of records a recovery may have to replay.
    fn replay_bytes(&self) -> u64 {
        self.replay.bytes(self.leaves.len())
    }

    /// Reports to the other logs how much memory this one takes, and gives up leaves if they have asked for
    /// memory.
    fn account(&mut self, tuning: &LogTuning) {
        let map = self.segments.live_map * leaf::LEAF_GRAIN as u64;
        self.cache.share().require(self.required_memory(tuning), map);
        self.cache.yield_to_others();
    }

    /// The limit for entries in the tables of changes: up to a quarter of the log's share of memory.
    fn changes_max(&self, tuning: &LogTuning) -> usize {
        let entries = self.cache.share().bytes() / 4 / ENTRY_BYTES as u64;
        (entries as usize).clamp(tuning.changes_min, tuning.changes_max)
    }

    /// Bytes of memory that the log cannot do without.
    ///
    /// The tables of changes count as full, because this is not calculated again while they grow. The state
    /// counts, too: each checkpoint has it in memory.
    fn required_memory(&self, tuning: &LogTuning) -> u64 {
        let entries = self.changes_max(tuning) + self.leaves.len() + self.marks.len() + self.held.len();
        let bits: usize = self.segments.used.values().map(|used| used.bits.len() * 8 + ENTRY_BYTES).sum();
        (entries * ENTRY_BYTES + bits + self.state_len) as u64
    }
}

/// Handles notifications from the pool, and from reads whose end has freed segments. It keeps nothing alive
/// while it waits, so that the log can end.
async fn listen(inner: &Weak<Inner>, handle: &LogHandle) {
    loop {
        handle.bell.wait().await;
        let Some(inner) = inner.upgrade() else { return };
        if !inner.goes_on() {
            return;
        }
        inner.take_zones();
        inner.take_reserves();
        inner.take_origins();
        inner.try_again();
        if handle.has_fewer_branches() {
            inner.sweep();
        }
        inner.state.borrow_mut().account(&handle.tuning);
        inner.tend();
        // Reads may have ended that kept segments from being free.
        inner.unstick();
        // Another disk may be leaving now, or none.
        inner.tell_stays();
        inner.changed.notify();
    }
}
