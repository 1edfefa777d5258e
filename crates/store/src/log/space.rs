//! Room: who may take which segment, which writes begin, and when the tasks are wanted that make room.
//!
//! What must never happen: a write begins that cannot be finished; UNMAP, the cleaner or a checkpoint finds
//! no segment. So hosts leave the last announced segments to others, and writes begin only while a tenth of
//! what the log can use is not needed by anybody: then some segment has something to be gained.

use std::rc::Rc;

use rt::Room;
use rt::sync::oneshot;

use super::changes::Changes;
use super::leaf::{LEAF_BYTES_MAX, LEAF_BYTES_ONE};
use super::place::SLOT_BYTES;
use super::record::DATA_SLOTS_MAX;
use super::root::REPLAY_MAX;
use super::segment::{SLOT_GRAINS, Used};
use super::{Inner, LogTuning, Request, Running};
use crate::error::SliceError;

/// Announced segments that only survivors go to: one that is begun, and one for what does not fit into its
/// rest.
const SURVIVOR_SEGMENTS: usize = 2;

/// Announced segments that only requests without data, and survivors, go to.
const CONTROL_SEGMENTS: usize = 1;

/// Announced segments that hosts' data never goes to.
pub(super) const RESERVE: usize = SURVIVOR_SEGMENTS + CONTROL_SEGMENTS;

/// Segments that are being written, of hosts and of survivors: nothing is gained from them.
const OPEN_SEGMENTS: u64 = 2;

/// Segments that can be taken, reserve included: with fewer there is cleaning, in thousandths of all, and at
/// least.
const HIGH_PERMILLE: u64 = 30;
const HIGH_MIN: u64 = RESERVE as u64 + 4;

/// With fewer, hosts' records take no more than their share of what the cleaner gains.
const LOW_PERMILLE: u64 = 20;
const LOW_MIN: u64 = RESERVE as u64 + 1;

/// What hosts get of what the cleaner gains, at least.
const HOSTS_SHARE_MIN_PERMILLE: u64 = 100;

/// What may be live of what the log can use, in percent: the rest is what cleaning gains.
const LIVE_PERCENT: u64 = 90;

/// The same for [`Inner::reserve`]: who was told that there is room finds it a moment later.
const RESERVE_PERCENT: u64 = 88;

/// Announced segments beside those that a replay's bytes fill: the reserve, and one that is begun of each
/// stream.
const ANNOUNCED_EXTRA: u64 = RESERVE as u64 + 3;

/// Blocks that are zeroed before the log merges them when nothing else is to do: 1 MiB, so that the space is
/// free soon.
const ZEROED_BLOCKS: u64 = 256;

/// A checkpoint begins when this part of the bytes of a replay has been written: the rest is for what comes
/// while it is made.
const FREEZE_PART: u64 = 2;

/// A zone is asked for while this part of what the log can use has room still, so that no write waits for it.
const AHEAD_PART: u64 = 16;

/// A zone goes back only if more than this part of what the log can use has room without it: so much more
/// than [`AHEAD_PART`] that it is not asked for again soon.
const SPARE_PART: u64 = 8;

/// What hosts and the cleaner write at most while a checkpoint is made: it begins when no more is announced,
/// so that nobody waits for it.
const CHECKPOINT_BYTES: u64 = 16 << 20;

/// Such a checkpoint frees so many bytes at least as long as the cleaner works: the map is written for them.
const GAIN_BYTES: u64 = 8 << 20;

/// Slots that a checkpoint may waste at the ends of segments and of its pieces, in percent of what it writes.
const WASTE_PERCENT: u64 = 25;

impl Running {
    fn segment_bytes(&self) -> u64 {
        u64::from(self.segments.slots) * SLOT_BYTES as u64
    }

    /// Segments that the next checkpoint takes at most: the leaves that may change, the state, and what is
    /// begun.
    pub(super) fn map_need(&self) -> u64 {
        let changes = (self.active.len() + self.frozen.as_ref().map_or(0, Changes::len)) as u64;
        let leaves = self.segments.live_map * super::leaf::LEAF_GRAIN as u64;
        let rewritten = leaves.min(changes * LEAF_BYTES_MAX as u64);
        // Evacuated map segments are rewritten as well: less than half of each, one segment at a time.
        let bytes =
            rewritten + changes * LEAF_BYTES_ONE as u64 + self.state_len as u64 + 4 * SLOT_BYTES as u64;
        (bytes + bytes * WASTE_PERCENT / 100).div_ceil(self.segment_bytes()) + 2
    }

    /// Free segments beside those that the map needs.
    pub(super) fn spare(&self) -> u64 {
        (self.segments.free.len() as u64).saturating_sub(self.map_need())
    }

    /// Segments that records can take now, or after the next root.
    fn stock(&self) -> u64 {
        self.segments.ready.len() as u64 + self.spare()
    }

    pub(super) fn high(&self) -> u64 {
        (self.segments.total() * HIGH_PERMILLE / 1000).max(HIGH_MIN)
    }

    fn low(&self) -> u64 {
        (self.segments.total() * LOW_PERMILLE / 1000).max(LOW_MIN)
    }

    /// How many segments a root announces.
    pub(super) fn announced(&self, replay_bytes: u64) -> usize {
        let wanted = replay_bytes.div_ceil(self.segment_bytes()) + ANNOUNCED_EXTRA;
        // Of those that a root can name, half are for the ones that were begun since the freeze.
        (wanted as usize).min(REPLAY_MAX / 2 - 4)
    }

    /// Blocks that the log can hold: what is not in reserve and can be cleaned, without the map and twice its
    /// size in holes, and without the heads that the fullest segments have.
    fn usable(&self) -> u64 {
        let kept = RESERVE as u64 + OPEN_SEGMENTS + self.map_need() + self.segments.stuck;
        let segments = self.segments.total().saturating_sub(kept);
        let map = 2 * self.segments.live_map.div_ceil(u64::from(SLOT_GRAINS));
        let slots = self.segments.slots - self.segments.slots.div_ceil(1 + DATA_SLOTS_MAX as u32);
        (segments * u64::from(slots)).saturating_sub(map)
    }

    /// Blocks that may be live: what hosts' data may take.
    pub(super) fn may_be_live(&self) -> u64 {
        self.share_of_usable(LIVE_PERCENT)
    }

    fn share_of_usable(&self, percent: u64) -> u64 {
        self.usable() * percent / 100
    }

    /// Whether so many blocks more have room.
    fn fits(&self, blocks: u64, percent: u64) -> bool {
        self.live_blocks() + self.append.expected + blocks <= self.share_of_usable(percent)
    }

    pub(super) fn may_open_for_hosts(&self, data: bool) -> bool {
        self.segments.ready.len() > if data { RESERVE } else { SURVIVOR_SEGMENTS }
    }

    pub(super) fn may_open_for_survivors(&self) -> bool {
        self.segments.ready.len() > CONTROL_SEGMENTS
    }

    /// Whether hosts' data is paid for by the cleaner.
    pub(super) fn is_paced(&self) -> bool {
        self.cleaning && self.stock() <= self.low()
    }

    /// Whether it is paid for, or need not be.
    pub(super) fn may_write_data(&self) -> bool {
        self.credit > 0 || !self.is_paced()
    }

    /// The cleaner has gained slots: near low water hosts may take a part of them, the smaller the fewer
    /// there are. If they could take all, the map would be written out of the reserve, for fewer and fewer
    /// segments each time.
    pub(super) fn earn(&mut self, slots: u64) {
        let share = (self.stock() * 1000 / self.low()).clamp(HOSTS_SHARE_MIN_PERMILLE, 1000);
        let earned = (slots * share / 1000).max(1) as i64;
        self.credit = (self.credit + earned).min(i64::from(self.segments.slots));
    }

    /// Whether the cleaner is wanted.
    pub(super) fn wants_cleaning(&self) -> bool {
        !self.exhausted && self.stock() < self.high()
    }

    /// Segments that the next root frees: nobody needs them, or the cleaner has been through them.
    fn freed_next(&self) -> impl Iterator<Item = &Used> {
        let freed = |used: &&Used| !used.open && !used.released && (used.live == 0 || used.cleaned > 0);
        self.segments.used.values().filter(freed)
    }

    /// Whether the next root frees any.
    pub(super) fn frees_next(&self) -> bool {
        self.freed_next().next().is_some()
    }

    /// Whether a checkpoint announces enough for its cost. It writes the map for it, so it is not made for
    /// each segment that becomes free.
    fn gains_by_checkpoint(&self, replay_bytes: u64) -> bool {
        let (ready, announced) = (self.segments.ready.len() as u64, self.announced(replay_bytes) as u64);
        let missing = announced.saturating_sub(ready);
        let short = RESERVE as u64 + 1 + (CHECKPOINT_BYTES / self.segment_bytes()).min(announced / 4);
        if ready > short.max(announced / 2) {
            return false;
        }
        let wanted = if ready > short {
            self.high().min(missing) / 2
        } else if self.cleaning {
            (GAIN_BYTES / self.segment_bytes()).min(missing / 2)
        } else {
            1
        };
        (self.spare() + self.freed_next().count() as u64).min(missing) >= wanted.max(1)
    }

    fn wants_checkpoint(&mut self, tuning: &LogTuning) -> bool {
        let replay_bytes = tuning.replay_bytes;
        if self.checkpointing {
            return false;
        }
        if self.checkpoint_wanted
            || self.active.len() >= self.changes_max(tuning) / 2
            || self.since_freeze >= replay_bytes / FREEZE_PART
        {
            return true;
        }
        if self.zeroed >= ZEROED_BLOCKS && self.append.is_idle() {
            return true;
        }
        std::mem::take(&mut self.stock_changed) && self.gains_by_checkpoint(replay_bytes)
    }

    /// Whether a zone of the pool would be of use.
    fn wants_zone(&self) -> bool {
        let live = self.live_blocks();
        let refused = self.refused_at.is_some_and(|at| live <= at + self.usable() / 100);
        let is_short = || self.stock() < self.high() || !self.fits(self.usable() / AHEAD_PART, LIVE_PERCENT);
        !self.asking && !refused && is_short()
    }

    /// Whether the log can do without a zone. What was overwritten counts as live until it is merged, which
    /// may be as much as a replay has: it must not be asked for at once again.
    pub(super) fn can_return_zone(&self, replay_bytes: u64) -> bool {
        let zone = u64::from(self.segments.zone_segments);
        let overwritten = (replay_bytes / FREEZE_PART / SLOT_BYTES as u64).min(self.live_blocks());
        let room = zone * u64::from(self.segments.slots) + overwritten + self.usable() / SPARE_PART;
        self.segments.total() > zone && self.spare() > 2 * zone + self.high() && self.fits(room, LIVE_PERCENT)
    }

    fn live_permille(&self) -> u64 {
        ((self.live_blocks() + self.append.expected) * 1000).checked_div(self.usable()).unwrap_or(1000)
    }
}

impl Inner {
    /// Waits until so many blocks have room, and counts them as expected.
    pub(super) async fn admit(self: &Rc<Inner>, blocks: u64) -> Result<(), SliceError> {
        self.find_room(blocks, LIVE_PERCENT).await?;
        self.state.borrow_mut().append.expected += blocks;
        Ok(())
    }

    /// Whether a write of so many blocks would find room.
    pub(super) async fn reserve(self: &Rc<Inner>, blocks: u64) -> Result<(), SliceError> {
        self.find_room(blocks, RESERVE_PERCENT).await
    }

    /// What the log can take, once the pool has lent what makes a sixteenth of that free, if it can.
    pub(super) async fn room(self: &Rc<Inner>) -> Room {
        let wanted = self.state.borrow().usable() / AHEAD_PART;
        let _ = self.find_room(wanted, RESERVE_PERCENT).await;
        let state = self.state.borrow();
        let total = state.share_of_usable(RESERVE_PERCENT);
        let free = total.saturating_sub(state.live_blocks() + state.append.expected);
        let bytes = |blocks: u64| blocks * SLOT_BYTES as u64;
        Room { file_system: 0, free: bytes(free), total: bytes(total), promised: 0 }
    }

    async fn find_room(self: &Rc<Inner>, blocks: u64, percent: u64) -> Result<(), SliceError> {
        let mut merged = 0;
        loop {
            if !self.goes_on() {
                return Err(SliceError::Offline);
            }
            if self.state.borrow().fits(blocks, percent) {
                return Ok(());
            }
            let lent = self.borrow_zone(true).await;
            // Whoever waited for the answer to another question looks again.
            self.pump();
            if lent {
                continue;
            }
            // What was overwritten since the last merge counts as live: the second one has all of it.
            let worth = {
                let state = self.state.borrow();
                merged < 2 && (state.frozen.is_some() || !state.active.is_empty())
            };
            if !worth {
                return Err(SliceError::Full);
            }
            merged += 1;
            self.wait_for_checkpoint().await;
        }
    }

    /// Has a checkpoint made, and waits for the end of one.
    pub(super) async fn wait_for_checkpoint(self: &Rc<Inner>) {
        let before = {
            let mut state = self.state.borrow_mut();
            state.checkpoint_wanted = true;
            state.checkpoints
        };
        self.tend();
        self.changed.until(|| self.state.borrow().checkpoints > before || !self.goes_on()).await;
    }

    /// Has all records merged that have completed by now. One checkpoint that is under way may have begun
    /// before they did.
    pub(super) async fn merge_all(self: &Rc<Inner>) -> Result<(), SliceError> {
        let checkpoints = if self.state.borrow().checkpointing { 2 } else { 1 };
        for _ in 0..checkpoints {
            self.wait_for_checkpoint().await;
        }
        if self.goes_on() { Ok(()) } else { Err(SliceError::Offline) }
    }

    /// Starts what is wanted: a checkpoint, a zone, the cleaner, records.
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
            // Zones are asked for before anything is moved.
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

    /// A task has ended: the others may go on. If none can, data that waits finds no room.
    pub(super) fn settle(self: &Rc<Inner>) {
        self.tell();
        self.tend();
        self.unstick();
        self.changed.notify();
        self.pump();
    }

    /// Something waits, has no announced segment to go to, and no task is under way that makes one free: a
    /// checkpoint announces what is free, and may find what the cleaner can work on. If there is nothing to
    /// merge either, there is no room.
    pub(super) fn unstick(self: &Rc<Inner>) {
        let refused = {
            let mut state = self.state.borrow_mut();
            let busy =
                state.checkpointing || state.cleaning || state.asking || !state.append.in_flight.is_empty();
            let rest = state.segments.rest(state.segments.hosts);
            let data = state.append.has_data() && rest < 2 && !state.may_open_for_hosts(true);
            let control = state.append.has_control() && rest < 1 && !state.may_open_for_hosts(false);
            if busy || !(data || control) {
                return;
            }
            // A rest of one slot is of no use to data, and keeps the segment from the cleaner.
            state.segments.seal_hosts();
            if state.has_unmerged() || state.spare() > 0 {
                state.checkpoint_wanted = true;
                Vec::new()
            } else if !state.exhausted {
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

    /// Asks the pool for a zone. With `urgent` a write waits for it.
    async fn borrow_zone(self: &Rc<Inner>, urgent: bool) -> bool {
        let (reply, answer) = oneshot();
        let (live_permille, urgent) = {
            let mut state = self.state.borrow_mut();
            state.asking = true;
            // Cleaning does not make up for segments that cannot be cleaned, however little lives in them.
            (state.live_permille(), urgent || state.segments.stuck > 0)
        };
        self.handle.lender.ask(Request::Borrow { log: self.handle.number, live_permille, urgent, reply });
        let lent = answer.await.unwrap_or(false);
        self.take_zones();
        let mut state = self.state.borrow_mut();
        state.asking = false;
        state.refused_at = if lent { None } else { Some(state.live_blocks()) };
        lent
    }
}
