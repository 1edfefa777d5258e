//! Room: which streams may take which segments, which writes may begin, and when tasks must make room.
//!
//! What must never happen: a write begins that cannot be finished; UNMAP, the cleaner or a checkpoint finds
//! no segment. So hosts' data leaves the last announced segments to others, and writes begin only while at
//! least a tenth of what the log can use is not live: then some segment has something to gain.

use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::Poll;

use rt::Room;
use rt::sync::oneshot;

use super::changes::Changes;
use super::checkpoint::STEP_LEAVES;
use super::leaf::{LEAF_BYTES_MAX, LEAF_BYTES_ONE};
use super::pace::FREEZE_PART;
use super::place::{QUARTER_BYTES, SLOT_BYTES, SLOT_QUARTERS};
use super::record::ENTRIES_MAX;
use super::root::REPLAY_MAX;
use super::segment::{SLOT_GRAINS, Used};
use super::state::{LEAF_ENTRY_BYTES, STATE_BYTES};
use super::{Inner, Lending, LogTuning, Request, Running, Sweeping};
use crate::canary::{Canary, makes};
use crate::error::SliceError;

/// Slots of data that a record has at least if it is full: all of its blocks are quarters.
const PACKED_SLOTS: u32 = ENTRIES_MAX as u32 / SLOT_QUARTERS;

/// Announced segments for survivors only: one that is being filled, and one for what does not fit into the
/// first.
const SURVIVOR_SEGMENTS: usize = 2;

/// Announced segments for survivors and for requests without data only.
pub(super) const CONTROL_SEGMENTS: usize = 1;

/// Announced segments that hosts' data never uses.
pub(super) const RESERVE: usize = SURVIVOR_SEGMENTS + CONTROL_SEGMENTS;

/// Segments that are being written, one for hosts and one for survivors: cleaning gains nothing from them.
const OPEN_SEGMENTS: u64 = 2;

/// High water: with fewer available segments than this (reserve included), the cleaner runs. In thousandths
/// of all segments, and the minimum.
const HIGH_PERMILLE: u64 = 30;
const HIGH_MIN: u64 = RESERVE as u64 + 4;

/// Low water: with fewer available segments than this, hosts' records only get a share of what the cleaner
/// gains.
const LOW_PERMILLE: u64 = 20;
const LOW_MIN: u64 = RESERVE as u64 + 1;

/// Percentage of what the log can use that may be live; the rest is what cleaning gains from.
pub(super) const LIVE_PERCENT: u64 = 90;

/// The same for [`Inner::reserve`]. It is lower, so that a write which was promised room still finds it a
/// moment later.
const RESERVE_PERCENT: u64 = 88;

/// Announced segments in addition to those that the replay bytes fill: the reserve, and one partly filled
/// segment of each stream.
pub(super) const ANNOUNCED_EXTRA: u64 = RESERVE as u64 + 3;

/// After zeroing this many blocks (1 MiB), an otherwise idle log merges them, so that the space becomes free
/// soon.
const ZEROED_BLOCKS: u64 = 256;

/// The log asks for a zone when less than 1/`AHEAD_PART` of what it can use is left, so that no write waits
/// for one.
const AHEAD_PART: u64 = 16;

/// The log returns a zone only if more than 1/`SPARE_PART` of what it can use is left without it.
///
/// That is so much more than [`AHEAD_PART`] that the log does not ask for the zone again soon.
const SPARE_PART: u64 = 8;

/// How many bytes hosts and the cleaner write at most while a checkpoint is made.
///
/// The checkpoint begins when no more than this is left in announced segments, so that no write waits for it.
const CHECKPOINT_BYTES: u64 = 16 << 20;

/// While the cleaner works, such a checkpoint must free at least this many bytes, because it writes the map
/// for them.
const GAIN_BYTES: u64 = 8 << 20;

/// As long as more is left, a checkpoint must free this many quarters of the segments at high water.
const GAIN_QUARTERS: u64 = 3;

/// Slots that a checkpoint may waste at the ends of segments and of its pieces, in percent of what it writes.
const WASTE_PERCENT: u64 = 25;

/// A branch with a reserve keeps at least this part of it for overwriting, and this many quarters of slots:
/// overwritten blocks count until they are merged.
const OVERWRITING_PART: u64 = 32;
const OVERWRITING_MIN: u64 = 2048 * SLOT_QUARTERS as u64;

/// How many quarters of slots other branches must leave to a branch that has reserved `reserve`, and uses
/// `used`.
pub(crate) fn held_for(reserve: u64, used: u64) -> u64 {
    let overwriting = (reserve / OVERWRITING_PART).max(OVERWRITING_MIN).min(reserve);
    (reserve + overwriting).saturating_sub(used).max(overwriting)
}

impl Running {
    pub(super) fn segment_bytes(&self) -> u64 {
        u64::from(self.segments.slots) * SLOT_BYTES as u64
    }

    /// How many segments the next checkpoint takes at most: for leaves that may change, for a step of folding
    /// deleted snapshots, for the state, and for partly filled segments.
    pub(super) fn map_need(&self) -> u64 {
        self.merge_need() + self.folding_need()
    }

    /// The same without folding.
    fn merge_need(&self) -> u64 {
        let mut changes = self.tables().map(Changes::len).sum::<usize>();
        // What a range of zeros unmaps goes into leaves of snapshots, and is not just left out.
        if !self.marks.is_empty() {
            let zeroed = self.tables().map(Changes::zeroed_leaves).sum::<u64>();
            changes += zeroed.min(self.leaves.len() as u64 * self.readers()) as usize;
        }
        self.merge_need_for(changes)
    }

    /// The same if the tables had this many entries.
    fn merge_need_for(&self, changes: usize) -> u64 {
        let changes = self.leaves_of_changes(changes);
        // What is unmapped of what a restored volume or a clone has of its snapshot is noted, and so is what
        // a later snapshot has of that.
        let readers = self.readers();
        let has_parents = readers > 1 || self.marks.restores().any(|(_, restore)| restore.to > 0);
        let times = if has_parents { 1 + 2 * readers } else { 1 };
        let leaves = times * self.segments.live_map * super::leaf::LEAF_GRAIN as u64;
        let rewritten = leaves.min(changes * LEAF_BYTES_MAX as u64);
        // Map segments that are evacuated are rewritten as well: less than half of each, one segment at a
        // time.
        let evacuated = self.segments.emptied_zone().map_or(0, |zone| self.evacuated_from(zone));
        // The second copy of the state has segments of its own.
        self.segments_for(rewritten + changes * LEAF_BYTES_ONE as u64 + self.state_bytes())
            + 2
            + evacuated
            + self.state_need(changes)
    }

    /// How many volumes may be read through one leaf at most, and so may have to hide what it has.
    fn readers(&self) -> u64 {
        1 + self.marks.clones() as u64
    }

    /// How many leaves this many entries of the tables change at most. With snapshots, what is overwritten
    /// goes into one more.
    fn leaves_of_changes(&self, changes: usize) -> u64 {
        changes as u64 * if self.marks.is_empty() { 1 } else { 2 }
    }

    /// How many bytes a copy of the state takes at most before more leaves are in it.
    fn state_bytes(&self) -> u64 {
        self.state_len as u64 + 4 * SLOT_BYTES as u64
    }

    /// How many segments a copy of the state takes at most if this many leaves change.
    fn state_need(&self, leaves: u64) -> u64 {
        self.segments_for(leaves * LEAF_ENTRY_BYTES as u64 + self.state_bytes())
    }

    /// Whether leaves of this many bytes may be evacuated after a merge: not if they would take segments that
    /// the copies of the state need.
    pub(super) fn has_room_to_evacuate(&self, bytes: u64) -> bool {
        let leaves = self.leaves_of_changes(self.frozen.as_ref().map_or(0, Changes::len));
        self.segments.free.len() as u64 >= self.segments_for(bytes) + 2 * self.state_need(leaves)
    }

    /// How many segments a step of folding deleted snapshots takes at most.
    fn folding_need(&self) -> u64 {
        match self.to_fold().min(STEP_LEAVES as u64) {
            0 => 0,
            leaves => self.segments_for(leaves * LEAF_BYTES_MAX as u64) + 1,
        }
    }

    fn segments_for(&self, map_bytes: u64) -> u64 {
        (map_bytes + map_bytes * WASTE_PERCENT / 100).div_ceil(self.segment_bytes())
    }

    /// How many leaves may be written for deleted snapshots, besides those that the next merge writes, once
    /// [`Running::make_room_to_fold`] has been called. In a full log that is less than a step.
    pub(super) fn room_to_fold(&self) -> usize {
        self.leaves_that_fit().min(STEP_LEAVES)
    }

    /// The same, also for more than a step.
    pub(super) fn leaves_that_fit(&self) -> usize {
        let free = self.segments.free.len() as u64 + self.announced_too_many();
        let bytes = free.saturating_sub(self.merge_need()) * self.segment_bytes();
        (bytes * 100 / (100 + WASTE_PERCENT) / LEAF_BYTES_MAX as u64) as usize
    }

    /// How many announced segments nobody needs soon. With fewer than at high water, the cleaner makes room,
    /// as long as it can.
    fn announced_too_many(&self) -> u64 {
        let needed = if self.exhausted { RESERVE as u64 + 1 } else { self.high() - 1 };
        (self.segments.ready.len() as u64).saturating_sub(needed)
    }

    /// Takes announced segments for the map that nobody needs soon.
    ///
    /// Otherwise, a full log that is idle would keep what deleted snapshots hold: it has announced what it
    /// had before they were deleted, and nothing else makes room. Recovery finds no records in these
    /// segments.
    pub(super) fn make_room_to_fold(&mut self) {
        while (self.segments.free.len() as u64) < self.map_need()
            && self.announced_too_many() > 0
            && self.segments.take_back()
        {}
    }

    /// Free segments in addition to those that the map needs.
    pub(super) fn spare(&self) -> u64 {
        (self.segments.free.len() as u64).saturating_sub(self.map_need())
    }

    /// Segments that records can use now, or after the next root.
    pub(super) fn stock(&self) -> u64 {
        self.segments.ready.len() as u64 + self.spare()
    }

    pub(super) fn high(&self) -> u64 {
        (self.segments.total() * HIGH_PERMILLE / 1000).max(HIGH_MIN)
    }

    pub(super) fn low(&self) -> u64 {
        (self.segments.total() * LOW_PERMILLE / 1000).max(LOW_MIN)
    }

    /// How many segments should be announced if this many bytes of records have been written since the
    /// freeze: with them, that is as much as a recovery may have to read.
    pub(super) fn announced(&self, since_freeze: u64) -> usize {
        let left = self.replay_bytes().saturating_sub(since_freeze);
        let wanted = left.div_ceil(self.segment_bytes()) + ANNOUNCED_EXTRA;
        // Half of the segments that a root can name are for those that were begun since the freeze.
        (wanted as usize).min(REPLAY_MAX / 2 - 4)
    }

    /// How many quarters of slots the log can hold.
    ///
    /// Excluded are the reserve, the segments being written, those that cannot be cleaned, the second copy of
    /// the state, what the next checkpoint takes at most, the map at twice its size, and the heads in the
    /// fullest segments.
    ///
    /// All segments count as if they had the heads of compressed blocks. Otherwise, one such block in a
    /// segment would take away room that others have reserved or were promised.
    fn usable(&self) -> u64 {
        self.usable_beside(self.map_need())
    }

    /// The same if the next checkpoint took this many segments.
    fn usable_beside(&self, map_need: u64) -> u64 {
        self.usable_of(self.segments.total(), map_need)
    }

    /// The same if the log had this many segments altogether.
    pub(super) fn usable_of(&self, total: u64, map_need: u64) -> u64 {
        let second = self.runs[1].len() as u64;
        let kept = RESERVE as u64 + OPEN_SEGMENTS + map_need + self.segments.stuck_elsewhere() + second;
        let segments = total.saturating_sub(kept);
        let map = 2 * self.segments.live_map.div_ceil(u64::from(SLOT_GRAINS));
        let slots = u64::from(self.segments.slots - self.segments.slots.div_ceil(1 + PACKED_SLOTS));
        (segments * slots).saturating_sub(map) * u64::from(SLOT_QUARTERS)
    }

    /// How many quarters of slots may be live: the limit for hosts' data.
    pub(super) fn may_be_live(&self) -> u64 {
        self.share_of_usable(LIVE_PERCENT)
    }

    fn share_of_usable(&self, percent: u64) -> u64 {
        self.usable() * percent / 100
    }

    /// Whether a branch has room for this many more quarters of slots; `None`: any branch, in addition to all
    /// reserves.
    fn fits(&self, branch: Option<u32>, quarters: u64, percent: u64) -> bool {
        let is_reserved = |branch: u32| {
            self.reserves.get(&branch).is_some_and(|reserve| self.used_by(branch) + quarters <= *reserve)
        };
        // Nobody else can take that room meanwhile.
        let percent = if branch.is_some_and(is_reserved) { LIVE_PERCENT } else { percent };
        let taken = self.live_quarters() + self.append.expected + self.held(branch);
        taken + quarters <= self.share_of_usable(percent)
    }

    /// Whether a merge may make this much room for a branch, as far as is known.
    ///
    /// Overwritten blocks count as live until they are merged. But a log in which a volume overwrites its
    /// reserve always has some, and they make no room, unless they took more than the new ones: merging them
    /// gives back what writing them took.
    fn may_merge_room(&self, branch: u32, quarters: u64, percent: u64) -> bool {
        if self.frozen.is_some() || self.sweeping != Sweeping::Nothing {
            return true;
        }
        if self.active.is_empty() {
            return false;
        }
        let Some((settled, held)) = self.settled else { return true };
        // The best case: what was zeroed or written since were live blocks that had not shrunk, the tables
        // are empty, and the branch has less than its reserve.
        let is_reserved = self.reserves.contains_key(&branch);
        let percent = if is_reserved { LIVE_PERCENT } else { percent };
        // What others write into their reserves is live until it is merged, and no longer held: overwriting
        // there makes no room.
        let held = if is_reserved { self.held(Some(branch)) } else { held };
        let dead = (self.zeroed + self.active.blocks()) * u64::from(SLOT_QUARTERS);
        let live = (settled + self.active.quarters()).saturating_sub(dead);
        live + held + quarters
            <= self.usable_beside(self.merge_need_for(0) + self.folding_need()) * percent / 100
    }

    /// How many quarters of slots are kept for the reserves of branches other than this one.
    pub(super) fn held(&self, but: Option<u32>) -> u64 {
        let others = self.reserves.iter().filter(|(branch, _)| Some(**branch) != but);
        others.map(|(branch, reserve)| held_for(*reserve, self.used_by(*branch))).sum()
    }

    /// How many quarters of slots a branch takes.
    fn used_by(&self, branch: u32) -> u64 {
        self.used.get(&branch).map_or(0, |used| used.quarters)
    }

    pub(super) fn may_open_for_hosts(&self, data: bool) -> bool {
        if makes(Canary::ReserveToHosts) {
            return !self.segments.ready.is_empty();
        }
        // Survivors leave the last one. If they have used theirs, it is for a checkpoint that finds no free
        // segment, and requests without data wait for its root.
        self.segments.ready.len() > if data { RESERVE } else { SURVIVOR_SEGMENTS }
    }

    /// Whether the segment that hosts write is for requests without data only, as long as the reserve is not
    /// whole without it.
    pub(super) fn is_kept_for_control(&self) -> bool {
        let segments = &self.segments;
        segments.hosts_from_reserve && segments.hosts.is_some() && segments.ready.len() < RESERVE
    }

    pub(super) fn may_open_for_survivors(&self) -> bool {
        self.segments.ready.len() > CONTROL_SEGMENTS
    }

    /// Whether the cleaner should run.
    pub(super) fn wants_cleaning(&self) -> bool {
        !self.exhausted && self.stock() < self.high() || self.victim_to_empty().is_some()
    }

    /// Segments that the next root frees: nothing in them is live, or the cleaner has been through them.
    ///
    /// Not those whose place the root's own state takes: the second copy's, and also the first copy's if it
    /// takes a whole segment each time. A log that counted them would have something to gain by each
    /// checkpoint, and make one after the other.
    fn freed_next(&self) -> impl Iterator<Item = u32> {
        let is_long = self.state_len >= self.segments.slots as usize * STATE_BYTES;
        let replaced = if is_long { &self.runs[..] } else { &self.runs[1..] };
        let freed = |used: &Used| !used.open && !used.released && (used.live == 0 || used.cleaned > 0);
        let is_replaced = move |segment: u32| replaced.iter().flatten().any(|run| run.segment == segment);
        let used = self.segments.used.iter();
        let freed = used.filter(move |(segment, used)| freed(used) && !is_replaced(**segment));
        freed.map(|(segment, _)| *segment)
    }

    /// Whether the next root frees any segments.
    pub(super) fn frees_next(&self) -> bool {
        self.freed_next().next().is_some()
    }

    /// Whether a checkpoint would announce enough segments for its cost.
    ///
    /// A checkpoint writes the map, so it is not worth making one for each segment that becomes free.
    fn gains_by_checkpoint(&self) -> bool {
        let (ready, announced) = (self.segments.ready.len() as u64, self.announced(0) as u64);
        let missing = announced.saturating_sub(ready);
        let short = RESERVE as u64 + 1 + (CHECKPOINT_BYTES / self.segment_bytes()).min(announced / 4);
        if ready > short.max(announced / 2) {
            return false;
        }
        let wanted = if ready > short {
            self.high().min(missing) * GAIN_QUARTERS / 4
        } else if self.cleaning {
            (GAIN_BYTES / self.segment_bytes()).min(missing / 2)
        } else {
            1
        };
        // What is freed in a zone that is being emptied cannot be announced.
        let freed = self.freed_next().filter(|segment| !self.is_emptied(*segment)).count() as u64;
        (self.spare() + freed).min(missing) >= wanted.max(1)
    }

    /// Whether hosts would soon have to wait for a checkpoint, or something waits for one already.
    fn must_freeze(&self, tuning: &LogTuning) -> bool {
        self.checkpoint_wanted
            || self.active.len() >= self.changes_max(tuning) / 2
            || self.since_freeze >= self.replay_bytes() / FREEZE_PART
    }

    /// The same, or there are few announced segments left, and a checkpoint would announce more.
    pub(super) fn is_checkpoint_due(&self, tuning: &LogTuning) -> bool {
        self.must_freeze(tuning) || self.gains_by_checkpoint()
    }

    fn wants_checkpoint(&mut self, tuning: &LogTuning) -> bool {
        if self.checkpointing {
            return false;
        }
        // The next zone goes back when the pool has taken back the last one: requests for zones would have to
        // wait for all of them otherwise.
        if self.must_freeze(tuning) || self.sweeping != Sweeping::Nothing && self.returning == 0 {
            return true;
        }
        if self.zeroed >= ZEROED_BLOCKS && self.append.is_idle() {
            return true;
        }
        let is_changed = std::mem::take(&mut self.stock_changed);
        is_changed && (self.gains_by_checkpoint() || self.leaves_by_checkpoint())
    }

    /// Whether the log should ask the pool for a zone.
    fn wants_zone(&self) -> bool {
        let live = self.live_quarters();
        let refused = self.refused_at.is_some_and(|at| live <= at + self.usable() / 100);
        let is_short =
            || self.stock() < self.high() || !self.fits(None, self.usable() / AHEAD_PART, LIVE_PERCENT);
        let leaves = || !self.none_to_leave && self.needs_zone_to_leave();
        !self.asking && (!refused && is_short() || leaves())
    }

    /// Whether the log can do without a zone.
    ///
    /// Overwritten blocks count as live until they are merged, and may amount to what a replay covers. They
    /// are allowed for, so that the log does not ask for the zone again at once.
    pub(super) fn can_return_zone(&self) -> bool {
        let zone = u64::from(self.segments.zone_segments);
        let replayed = self.replay_bytes() / FREEZE_PART / QUARTER_BYTES as u64;
        let overwritten = replayed.min(self.live_quarters());
        let zone_quarters = zone * u64::from(self.segments.slots * SLOT_QUARTERS);
        let room = zone_quarters + overwritten + self.usable() / SPARE_PART;
        self.segments.total() > zone
            && self.spare() > 2 * zone + self.high()
            && self.fits(None, room, LIVE_PERCENT)
    }

    fn live_permille(&self) -> u64 {
        let taken = self.live_quarters() + self.append.expected + self.held(None);
        (taken * 1000).checked_div(self.usable()).unwrap_or(1000)
    }
}

impl Inner {
    /// Waits until there is room for this many quarters of slots of a branch, and counts them as expected.
    pub(super) async fn admit(self: &Rc<Inner>, branch: u32, quarters: u64) -> Result<(), SliceError> {
        self.find_room(branch, quarters, LIVE_PERCENT).await?;
        self.state.borrow_mut().append.expected += quarters;
        Ok(())
    }

    /// Waits until a write of this many blocks of a branch would find room, whether they shrink or not.
    pub(super) async fn reserve(self: &Rc<Inner>, branch: u32, blocks: u64) -> Result<(), SliceError> {
        self.find_room(branch, blocks * u64::from(SLOT_QUARTERS), RESERVE_PERCENT).await
    }

    /// What the log can take of a branch. First asks the pool to lend enough that a sixteenth of the log is
    /// free.
    pub(super) async fn room(self: &Rc<Inner>, branch: u32) -> Room {
        let wanted = self.state.borrow().usable() / AHEAD_PART;
        if self.find_room(branch, wanted, RESERVE_PERCENT).await.is_err() && self.has_changes() {
            // Merging does not make that much room, but what has been overwritten does not count as taken.
            let _ = self.merge_all().await;
        }
        let state = self.state.borrow();
        let total = state.share_of_usable(RESERVE_PERCENT);
        let taken = state.live_quarters() + state.append.expected + state.held(Some(branch));
        let free = total.saturating_sub(taken);
        let bytes = |quarters: u64| quarters * QUARTER_BYTES as u64;
        Room { file_system: 0, free: bytes(free), total: bytes(total), promised: 0 }
    }

    fn has_changes(&self) -> bool {
        let state = self.state.borrow();
        state.frozen.is_some() || !state.active.is_empty()
    }

    async fn find_room(self: &Rc<Inner>, branch: u32, quarters: u64, percent: u64) -> Result<(), SliceError> {
        let (mut merged, asked_before) = (0, self.state.borrow().asks);
        loop {
            if !self.goes_on() {
                return Err(SliceError::Offline);
            }
            let (fits, asking) = {
                let state = self.state.borrow();
                (state.fits(Some(branch), quarters, percent), state.asking)
            };
            if fits {
                return Ok(());
            }
            // The pool is asked once for all writes that wait.
            if asking {
                self.changed.until(|| !self.state.borrow().asking || !self.goes_on()).await;
                continue;
            }
            if self.may_lend(asked_before) {
                let lent = self.borrow_zone(true).await;
                // Another task may have waited for this answer: let it check again.
                self.pump();
                if lent {
                    continue;
                }
            }
            // The second merge covers all blocks that were overwritten before this began.
            let may_merge = {
                let state = self.state.borrow();
                // Room may have been made while the pool was asked.
                if state.fits(Some(branch), quarters, percent) {
                    return Ok(());
                }
                merged < 2 && state.may_merge_room(branch, quarters, percent)
            };
            if !may_merge {
                return Err(SliceError::Full);
            }
            merged += 1;
            self.wait_for_checkpoint().await;
        }
    }

    /// Whether the pool may have a zone for a write that began when `asked_before` requests had been made: it
    /// has refused none since, or has freed space since it had none.
    fn may_lend(&self, asked_before: u64) -> bool {
        let state = self.state.borrow();
        match state.no_zone_since {
            Some(freed) => freed != self.handle.lender.freed(),
            None => state.refused_ask <= asked_before,
        }
    }

    /// Requests a checkpoint, and waits until one has ended.
    pub(super) async fn wait_for_checkpoint(self: &Rc<Inner>) {
        let before = {
            let mut state = self.state.borrow_mut();
            state.checkpoint_wanted = true;
            state.checkpoints
        };
        self.tend();
        self.changed.until(|| self.state.borrow().checkpoints > before || !self.goes_on()).await;
    }

    /// Merges all records that have completed by now.
    ///
    /// A checkpoint that is under way may have begun before they completed, so it takes two then.
    pub(super) async fn merge_all(self: &Rc<Inner>) -> Result<(), SliceError> {
        let checkpoints = if self.state.borrow().checkpointing { 2 } else { 1 };
        for _ in 0..checkpoints {
            self.wait_for_checkpoint().await;
        }
        if self.goes_on() { Ok(()) } else { Err(SliceError::Offline) }
    }

    /// Starts the tasks that are needed: a checkpoint, a request for a zone, the cleaner.
    pub(super) fn tend(self: &Rc<Inner>) {
        if !self.goes_on() {
            return;
        }
        let tuning = self.handle.tuning;
        let (checkpoint, zone, clean) = {
            let mut state = self.state.borrow_mut();
            let checkpoint = state.wants_checkpoint(&tuning);
            state.checkpointing |= checkpoint;
            let zone = state.wants_zone();
            // Ask for a zone before moving anything.
            let clean = !zone && !state.asking && !state.cleaning && state.wants_cleaning();
            state.cleaning |= clean;
            (checkpoint, zone, clean)
        };
        if checkpoint {
            let inner = Rc::clone(self);
            rt::spawn(async move { inner.run_checkpoint().await }).detach();
        }
        if zone {
            let inner = Rc::clone(self);
            rt::spawn(async move {
                inner.borrow_zone(false).await;
                inner.settle();
            })
            .detach();
        }
        if clean {
            let inner = Rc::clone(self);
            rt::spawn(async move { inner.run_cleaner().await }).detach();
        }
    }

    /// Called when a task has ended: the others may continue. If none can, requests that wait fail for lack
    /// of room.
    pub(super) fn settle(self: &Rc<Inner>) {
        self.tell();
        self.tend();
        self.unstick();
        self.changed.notify();
        self.pump();
    }

    /// Resolves a deadlock: requests wait without an announced segment, and no task is under way that would
    /// free one.
    ///
    /// A checkpoint announces what is free, and may find segments that the cleaner can work on. If there is
    /// nothing to merge either, reads may keep segments from becoming free: their end calls this again. If
    /// there are none, there is no room, and the requests fail.
    pub(super) fn unstick(self: &Rc<Inner>) {
        let refused = {
            let mut state = self.state.borrow_mut();
            let busy =
                state.checkpointing || state.cleaning || state.asking || !state.append.in_flight.is_empty();
            let rest = state.segments.rest(state.segments.hosts);
            let is_kept = state.is_kept_for_control();
            let data = state.append.has_data() && (rest < 2 || is_kept) && !state.may_open_for_hosts(true);
            let control = state.append.has_control() && rest < 1 && !state.may_open_for_hosts(false);
            if busy || !(data || control) {
                return;
            }
            // A single slot is too small for data, and keeps the segment from the cleaner.
            if !is_kept {
                state.segments.seal_hosts();
            }
            if state.has_unmerged() || state.spare() > 0 {
                state.checkpoint_wanted = true;
                Vec::new()
            } else if !state.exhausted || state.segments.awaits_reads() {
                Vec::new()
            } else {
                state.append.take_all()
            }
        };
        if refused.is_empty() {
            self.tend();
            return;
        }
        let log = self.handle.number;
        tracing::warn!(log, requests = refused.len(), "a log has no segment for what it has admitted");
        refused.into_iter().for_each(|request| request.fail(SliceError::Full));
    }

    /// Asks the pool for a zone; returns whether it lent one. With `urgent`, a write waits for it.
    async fn borrow_zone(self: &Rc<Inner>, urgent: bool) -> bool {
        let (reply, mut answer) = oneshot();
        // Before the pool looks.
        let freed = self.handle.lender.freed();
        let (live_permille, urgent, leaves, number) = {
            let mut state = self.state.borrow_mut();
            state.asking = true;
            state.asks += 1;
            // Cleaning cannot make up for segments that cannot be cleaned, however few live blocks they have,
            // nor for a zone that has to be given up.
            let leaves = state.needs_zone_to_leave();
            let urgent = urgent || leaves || state.segments.stuck_elsewhere() > 0;
            (state.live_permille(), urgent, leaves, state.asks)
        };
        let asking = Asking(self);
        self.handle.lender.ask(Request::Borrow { log: self.handle.number, live_permille, urgent, reply });
        // A log that is being closed does not wait for the answer: the pool may be deleting the log, and
        // answers nobody before the log has ended.
        let mut closed = pin!(self.changed.until(|| self.closing.get()));
        let lending = std::future::poll_fn(|context| match Pin::new(&mut answer).poll(context) {
            Poll::Ready(lending) => Poll::Ready(lending.unwrap_or(Lending::Refused)),
            Poll::Pending => closed.as_mut().poll(context).map(|()| Lending::Refused),
        });
        let lending = lending.await;
        self.take_zones();
        let lent = lending == Lending::Lent;
        {
            let mut state = self.state.borrow_mut();
            state.refused_at = if lent { None } else { Some(state.live_quarters()) };
            state.no_zone_since = (lending == Lending::NoSpace).then_some(freed);
            state.none_to_leave = leaves && !lent;
            // Now the log may leave without one.
            state.stock_changed |= leaves;
            if urgent && !lent {
                state.refused_ask = number;
            }
        }
        drop(asking);
        lent
    }
}

/// A request for a zone, until this is dropped: others wait for its end, whatever becomes of the write.
struct Asking<'a>(&'a Inner);

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.0.state.borrow_mut().asking = false;
        self.0.changed.notify();
    }
}

#[cfg(test)]
mod tests {
    use base::ByteLen;

    use super::super::LogMemory;
    use super::super::leaf::{Era, LEAF_BLOCKS, LEAF_GRAIN};
    use super::super::marks::Origin;
    use super::super::segment::Zone;
    use super::super::state::LeafPlace;
    use super::super::tests::without_pool;
    use super::*;

    /// A log with segments of 1 MiB, this many of which are announced.
    fn announced(ready: u32) -> Running {
        let mut state = without_pool(20, LogMemory::new(ByteLen(1 << 30)));
        state.segments.ready = (0..ready).map(|segment| (segment, 7)).collect();
        state
    }

    /// Before, an idle log in which all but the map's segments were announced never freed what deleted
    /// snapshots held, and hosts found it full.
    #[test]
    fn announced_segments_make_room_to_fold() {
        let mut state = announced(20);
        for number in 0..2 {
            state.segments.add_zone(number, Zone { disk: 0, offset: 0, leaving: false });
        }
        let era = Era::new(1, state.marks.begin(1, 9, 0));
        state.segments.free = (100..100 + state.map_need() as u32).collect();
        state.hold(era, &LeafPlace { segment: 0, at: 0, len: 73, blocks: 512, quarters: 2048 });
        state.marks.delete(era);
        assert!((state.segments.free.len() as u64) < state.map_need(), "a step of folding counts");
        assert_eq!(state.room_to_fold(), STEP_LEAVES);
        state.make_room_to_fold();
        assert_eq!(state.segments.free.len() as u64, state.map_need());
        assert!(state.segments.free.ends_with(&[19, 18]) && state.segments.ready.len() == 18);
        // The cleaner makes room then, and the log does not give up what it needs for that.
        state.segments.ready.truncate(state.high() as usize - 1);
        state.segments.free.truncate(1);
        assert_eq!(state.room_to_fold(), 0);
        state.make_room_to_fold();
        assert_eq!((state.segments.free.len(), state.segments.ready.len() as u64), (1, state.high() - 1));
        // Unless it gains nothing: then hosts keep one segment.
        state.exhausted = true;
        state.segments.free = (100..100 + state.merge_need() as u32 - 1).collect();
        assert_eq!(state.room_to_fold(), STEP_LEAVES);
        state.make_room_to_fold();
        assert_eq!(state.segments.ready.len(), RESERVE + 1);
    }

    /// Each of them may have to hide all that is under it.
    #[test]
    fn unmapping_clones_needs_room_for_the_notes_of_each() {
        let mut state = announced(20);
        let place = LeafPlace { segment: 0, at: 0, len: 73, blocks: 512, quarters: 2048 };
        state.leaves = (0..5000).map(|number| ((Era::first(1), number), place)).collect();
        state.segments.live_map = 5000 * 73;
        state.marks.begin(1, 9, 0);
        let origin = Origin { branch: 1, snapshot: 9 };
        state.marks.set_origins(&(2..=4).map(|clone| (clone, origin)).collect());
        for clone in 2..=4 {
            state.active.zero(Era::first(clone), 0, 5000 * LEAF_BLOCKS, &mut Vec::new());
        }
        let notes = 3 * state.segments.live_map * LEAF_GRAIN as u64;
        assert!(state.map_need() >= notes.div_ceil(1 << 20), "{}", state.map_need());
    }

    /// Before, a range of zeros counted as one leaf. In a full log, hosts could take the segments that the
    /// merge then needed for what snapshots keep.
    #[test]
    fn unmapping_what_a_snapshot_has_needs_room_for_its_leaves() {
        let mut state = announced(20);
        let place = LeafPlace { segment: 0, at: 0, len: 73, blocks: 512, quarters: 2048 };
        state.leaves = (0..5000).map(|number| ((Era::first(1), number), place)).collect();
        state.segments.live_map = 5000 * 73;
        let before = state.map_need();
        state.active.zero(Era::first(1), 0, 5000 * LEAF_BLOCKS, &mut Vec::new());
        assert_eq!(state.map_need(), before, "without snapshots, less than before is written");
        state.marks.begin(1, 9, 0);
        let map = state.segments.live_map * LEAF_GRAIN as u64;
        assert!(state.map_need() >= map.div_ceil(1 << 20), "{}", state.map_need());
    }
}
