//! The cleaner: frees segments by moving what is live in them.
//!
//! What must never happen: a write waits for more of its steps than hosts may owe slots; it runs out of
//! segments; it works without gaining anything. A step reads at most 1 MiB of a victim, and writes its live
//! blocks as records of survivors. The map changes in the next checkpoint, and until then blocks are read
//! from their old places.

use std::rc::Rc;

use base::{Buf, Chain};
use rt::join_all;
use rt::sync::{Receiver, oneshot};

use super::append::Survivor;
use super::pack::is_intact;
use super::past::Noted;
use super::place::{Place, QUARTER_BYTES, SLOT_BYTES, SLOT_QUARTERS, Stored};
use super::record::{DATA_SLOTS_MAX, ENTRIES_MAX, Head, Stream};
use super::segment::Used;
use super::{Inner, Running, Sweeping};
use crate::canary::{Canary, makes};

/// Slots that a step reads: 1 MiB.
///
/// Each step waits for the disk, and smaller steps would spend most of their time on that.
const STEP_SLOTS: usize = 256;

const _: () = assert!(STEP_SLOTS > DATA_SLOTS_MAX, "a step reads the longest record as a whole");

/// A victim must yield at least 1/`GAIN_PART` of its slots, net of the heads of survivors. A log that is not
/// full always has one that yields a twelfth.
const GAIN_PART: u32 = 16;

/// Slots of a victim that are being read.
pub(super) struct Window {
    generation: u64,
    count: usize,
    read: Receiver<Result<Buf, ()>>,
}

impl Inner {
    /// Runs the cleaner as a task. The caller has set the flag for it.
    pub(super) async fn run_cleaner(self: Rc<Inner>) {
        let mut gathered = Vec::new();
        while self.goes_on() && self.state.borrow().wants_cleaning() {
            let victim = self.state.borrow().victim();
            match victim {
                Some(victim) => {
                    if self.clean(victim, &mut gathered).await.is_err() {
                        break;
                    }
                }
                None => {
                    if self.write_gathered(&mut gathered, 1).await.is_err() {
                        break;
                    }
                    // A merge may create a victim: it finds dead blocks, and covers segments that were sealed
                    // since the last root.
                    if !self.state.borrow().has_unmerged() {
                        self.state.borrow_mut().exhausted = true;
                        break;
                    }
                    self.wait_for_checkpoint().await;
                }
            }
            // Room may come from the pool instead.
            self.take_zones();
            self.pump();
        }
        if self.goes_on() {
            let _ = self.write_gathered(&mut gathered, 1).await;
        }
        {
            let mut state = self.state.borrow_mut();
            state.cleaning = false;
            state.credit = 0;
            state.stock_changed = true;
            // It gains nothing, but deleted snapshots may hold what it looks for.
            if state.exhausted && state.may_fold() {
                state.sweeping = Sweeping::Leaves;
            }
        }
        self.settle();
    }

    /// Gathers what is live in a segment, and writes it. Some may stay gathered, to fill a record with blocks
    /// of the next victim.
    pub(super) async fn clean(self: &Rc<Inner>, victim: u32, gathered: &mut Vec<Survivor>) -> Result<(), ()> {
        let _pinned = self.pin(victim);
        let (slots, live) = {
            let state = self.state.borrow();
            (state.segments.slots, state.segments.used.get(&victim).map_or(0, |used| used.live))
        };
        // What is gained per 1000 that are moved.
        let gain = u64::from(slots * SLOT_QUARTERS - live) * 1000 / u64::from(live.max(1));
        let walked = self.walk_victim(victim, gain, gathered).await;
        let mut state = self.state.borrow_mut();
        let next = state.append.next;
        // A segment that keeps an unreadable block is not free with the next root.
        if let Some(used) = state.segments.used.get_mut(&victim).filter(|used| !used.stuck) {
            // The gathered blocks will soon get their sequence numbers; until then the victim counts as
            // cleaned by the next record. If some of it was left, nothing is gathered, and the next root is
            // enough: if it needed a record, checkpoints would follow one another until a host writes one.
            used.cleaned = next + u64::from(walked != Ok(false));
        }
        state.stock_changed = true;
        drop(state);
        walked.map(drop)
    }

    /// Returns whether it has come to the end of the segment; if not, because segments are short, nothing
    /// stays gathered.
    async fn walk_victim(
        self: &Rc<Inner>,
        victim: u32,
        gain: u64,
        gathered: &mut Vec<Survivor>,
    ) -> Result<bool, ()> {
        let slots = self.handle.slots() as usize;
        let (mut slot, mut ahead) = (0, None);
        while slot < slots && self.goes_on() {
            let is_emptied = self.state.borrow().is_emptied(victim);
            if is_emptied && self.state.borrow().checkpointing {
                // What is gathered does not wait with the cleaner: its segment would be cleaned again.
                self.write_gathered(gathered, 1).await?;
            }
            if is_emptied && !self.may_empty_more().await {
                self.write_gathered(gathered, 1).await?;
                return Ok(false);
            }
            self.changed.until(|| self.state.borrow().cleaner_keeps_pace() || !self.goes_on()).await;
            let window = ahead.take().or_else(|| self.read_window(victim, slot));
            let Some(Window { generation, count, read }) = window else { return Ok(true) };
            // What the disk cannot read of it is zeros, and is found to be bad below. All else is moved.
            let Ok(Ok(mut bytes)) = read.await else {
                (slot..slot + count).for_each(|slot| self.is_bad(Place::new(victim, slot as u16)));
                slot += count;
                continue;
            };
            slot += self.gather(victim, generation, slot, &mut bytes, gathered).await;
            // While what is live in this one is written. Hosts may wait for both.
            ahead = self.read_window(victim, slot);
            let before = quarters(gathered);
            self.write_gathered(gathered, DATA_SLOTS_MAX).await?;
            let written = before.saturating_sub(quarters(gathered));
            self.state.borrow_mut().earn(written * gain / 1000 / u64::from(SLOT_QUARTERS));
            self.pump();
            rt::yield_now().await;
        }
        Ok(true)
    }

    /// Begins to read a victim from `slot` on. `None`: nothing is left to be moved.
    pub(super) fn read_window(self: &Rc<Inner>, victim: u32, slot: usize) -> Option<Window> {
        let window = STEP_SLOTS.min((self.handle.slots() as usize).saturating_sub(slot));
        let (generation, is_live) = {
            let state = self.state.borrow();
            let used = state.segments.used.get(&victim).filter(|used| used.live > 0 && window > 0)?;
            (used.generation, used.has_live(slot as u16, (slot + window) as u16))
        };
        // If nothing in the window is live, the head alone shows where the next head is.
        let count = if is_live { window } else { 1 };
        // The log does not end before its I/O, though the cleaner may end before it needs this.
        let inner = Rc::clone(self);
        let place = Place::new(victim, slot as u16);
        let (reply, read) = oneshot();
        rt::spawn(async move { reply.send(inner.read_slots(place, count).await.map_err(drop)) }).detach();
        Some(Window { generation, count, read })
    }

    /// Gathers the live blocks from what was read of a victim at `slot`. Returns how many slots were
    /// processed.
    async fn gather(
        &self,
        victim: u32,
        generation: u64,
        slot: usize,
        bytes: &mut [u8],
        gathered: &mut Vec<Survivor>,
    ) -> usize {
        let count = bytes.len() / SLOT_BYTES;
        let mut done = 0;
        while done < count {
            let place = Place::new(victim, (slot + done) as u16);
            let head = Head::decode(&bytes[done * SLOT_BYTES..(done + 1) * SLOT_BYTES]);
            let Some(head) = head.filter(|head| head.generation == generation && head.place == place) else {
                // Walks from head to head do not come to live slots in between: what says which blocks these
                // are has rotted. Without a note of that, the segment would be cleaned again and again.
                self.is_bad(place);
                done += 1;
                continue;
            };
            let end = done + 1 + head.data_slots();
            let is_live = |place: Place| self.state.borrow().segments.is_set(place);
            if end > count {
                if head.stored().any(|(_, place)| is_live(place)) && done > 0 {
                    // The record's data was not read in full: the next step begins with this record.
                    return done;
                }
                return end;
            }
            for (entry, from) in head.stored().filter(|(_, place)| is_live(*place)) {
                let Some(crc) = entry.crc() else { continue };
                let at = (from.quarter() as usize - slot * SLOT_QUARTERS as usize) * QUARTER_BYTES;
                let stored = &mut bytes[at..at + from.size().bytes()];
                if from.size().is_packed() {
                    self.effort.wait().await;
                    self.effort.spend(1);
                }
                let (branch, era, block) = (entry.branch, entry.era, entry.block);
                if !is_intact(stored, from.size(), crc) {
                    self.is_bad(from);
                    let bad = Noted { block, stored: Stored { place: from, crc }, generation };
                    self.handle.note_bad(branch, bad);
                    continue;
                }
                let data = Buf::copy_of(stored).share();
                gathered.push(Survivor { branch, era, block, from, generation, crc, data });
            }
            done = end;
        }
        done
    }

    /// Marks a slot with an unreadable block, if that is live: it and its segment stay where they are until
    /// the block is written again, or repaired.
    fn is_bad(&self, slot: Place) {
        self.state.borrow_mut().segments.set_bad(slot);
    }

    /// Writes gathered blocks as long as they fill records, or there are at least `least` of them.
    async fn write_gathered(self: &Rc<Inner>, gathered: &mut Vec<Survivor>, least: usize) -> Result<(), ()> {
        let mut records = Vec::new();
        while !gathered.is_empty() {
            if !self.goes_on() {
                break;
            }
            let room = self.state.borrow_mut().room_for_survivors();
            if room < 2 {
                // A checkpoint waits for all records that have numbers, so write these first.
                self.write_records(std::mem::take(&mut records)).await?;
                if !self.state.borrow().has_unmerged() {
                    self.state.borrow_mut().exhausted = true;
                    return Err(());
                }
                self.wait_for_checkpoint().await;
                continue;
            }
            // A move must get its number while its block is still in its old place. Otherwise, that segment
            // may have been freed, and the same block may have been written to the same slot since: the move
            // would put older data in its place.
            if !makes(Canary::MoveLate) {
                gathered.retain(|survivor| self.state.borrow().is_in_place(survivor));
            }
            let (count, is_full) = fitting(gathered, (room - 1).min(DATA_SLOTS_MAX));
            if gathered.len() < least && !is_full || gathered.is_empty() {
                break;
            }
            let some = gathered.drain(..count).collect();
            records.extend(self.survivors_record(some));
        }
        self.write_records(records).await?;
        if self.goes_on() { Ok(()) } else { Err(()) }
    }

    async fn write_records(&self, records: Vec<(Head, Chain)>) -> Result<(), ()> {
        let written = join_all(records.into_iter().map(|record| self.write_survivors(record))).await;
        if written.iter().all(Result::is_ok) { Ok(()) } else { Err(()) }
    }
}

impl Running {
    /// How many slots survivors have: in the next segment, if a record does not fit into the present one.
    pub(super) fn room_for_survivors(&mut self) -> usize {
        if self.segments.rest(self.segments.survivors) < 2 && self.may_open_for_survivors() {
            self.open_next(Stream::Survivors);
        }
        self.segments.rest(self.segments.survivors) as usize
    }

    /// Whether a gathered block is still live in its old place.
    pub(super) fn is_in_place(&self, survivor: &Survivor) -> bool {
        self.is_still_there(survivor.from, survivor.generation)
    }

    /// Whether the block that lay in a place when its segment had this generation is still live there.
    pub(super) fn is_still_there(&self, place: Place, generation: u64) -> bool {
        let used = self.segments.used.get(&place.segment);
        let is_same = used.is_some_and(|used| used.generation == generation && !used.released);
        is_same && self.segments.is_set(place)
    }

    /// Whether a checkpoint would merge, remove or free anything.
    pub(super) fn has_unmerged(&self) -> bool {
        let frozen = self.frozen.as_ref().is_some_and(|frozen| !frozen.is_empty());
        frozen || !self.active.is_empty() || self.sweeping != Sweeping::Nothing || self.frees_next()
    }

    /// The segment to be cleaned next: one from which much is gained, if segments are needed; otherwise, one
    /// on a disk that is leaving the pool.
    fn victim(&self) -> Option<u32> {
        let gaining = if self.stock() < self.high() { self.gaining_victim() } else { None };
        gaining.or_else(|| self.victim_to_empty())
    }

    /// A segment with much to gain, and old, so that its remaining blocks are unlikely to die soon. What is
    /// freed in a zone that is being emptied is no gain.
    fn gaining_victim(&self) -> Option<u32> {
        let slots = self.segments.slots;
        let gain = |used: &Used| slots.saturating_sub(used.slots_when_moved());
        let fits =
            |used: &Used| used.can_be_cleaned(self.root_sequence) && gain(used) >= (slots / GAIN_PART).max(1);
        let worth = |used: &Used| {
            let age = (self.append.next - used.newest) as f64;
            let live = f64::from(used.live) / f64::from(slots * SLOT_QUARTERS);
            (1.0 - live) * age / (1.0 + live)
        };
        let emptied = self.segments.emptied_zone();
        let is_emptied = |segment: u32| emptied.is_some_and(|zone| zone == self.segments.zone_of(segment));
        let victims = self.segments.used.iter();
        let victims = victims.filter(|(segment, used)| fits(used) && !is_emptied(**segment));
        // A total gain of less than one segment is none: the same blocks would be moved round and round.
        if victims.clone().map(|(_, used)| u64::from(gain(used))).sum::<u64>() < u64::from(slots) {
            return None;
        }
        victims.max_by(|one, other| worth(one.1).total_cmp(&worth(other.1))).map(|(segment, _)| *segment)
    }
}

/// How many quarters of slots these blocks take.
fn quarters(gathered: &[Survivor]) -> u64 {
    gathered.iter().map(|survivor| u64::from(survivor.from.size().quarters())).sum()
}

/// How many of these blocks, from the first one on, fit into a record with so many slots of data, and whether
/// they fill it.
fn fitting(gathered: &[Survivor], slots: usize) -> (usize, bool) {
    let mut left = slots as u32 * SLOT_QUARTERS;
    let mut count = 0;
    for survivor in gathered.iter().take(ENTRIES_MAX) {
        let Some(rest) = left.checked_sub(survivor.from.size().quarters()) else { return (count, true) };
        left = rest;
        count += 1;
    }
    (count, left == 0 || count == ENTRIES_MAX)
}
