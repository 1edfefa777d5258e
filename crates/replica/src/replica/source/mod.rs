//! The source of a resync: gives a copy what it missed (R17 to R19).
//!
//! First in bulk, while the copy is outside and takes no writes: the source reads and sends the regions that
//! have a bit, and clears the bit of each one that is on the other disk and was not written to meanwhile. It
//! repeats that until little is left. If a copy was added recently, it gives none until all members have
//! finished what they began before. Then the copy joins, so it gets new writes, too, and one short pass
//! brings the rest.
//!
//! A copy outside that has no room for a region gets it again after all others ([`Message::SyncLater`]):
//! zeros can be written without room, and make some.
//!
//! A region is sent to a copy outside only when all of it is valid; what is written to it meanwhile comes
//! with the next pass. A joiner gets writes that are under way as any member does. Its regions are sent
//! without those, so that a region that is written to all the time can be sent, too.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use crate::canary::{Canary, makes};
use crate::message::{Message, SyncId};
use crate::table::Entry;
use crate::{
    Blocks, Epoch, Geometry, LostBlocks, LostUnits, Payload, Regions, Slot, Slots, Standing, Timestamp,
};

use super::{DiskFailed, Output, RegionRead, Replica};

/// The number of regions of one resync that are being read or are on their way: 1 MiB.
const IN_FLIGHT_MAX: usize = 16;
/// How many regions may be left for the pass in which writes wait for the joiner: 16 MiB, some tenths of a
/// second.
const FINAL_REGIONS_MAX: u64 = 256;
/// After this many passes a copy joins, however much is left: hosts write faster than the resync copies.
const PASSES_MAX: u32 = 8;
/// With this little left a copy joins as soon as a pass has not halved it, since more passes would not help.
///
/// This is 1 GiB. The source of a joiner forgets no write (R18), and while it gives that much a fast disk
/// takes some hundred thousand writes, of 100 bytes each.
const STEADY_REGIONS_MAX: u64 = 16 << 10;

/// For how many ticks a joiner waits for regions that the disk does not read: 10 seconds. While it joins no
/// copy forgets any write, and those tables grow.
const STARVED_TICKS: u32 = 40;

/// After this many failed reads (at least two seconds) a region is read block by block, and given without the
/// blocks that no copy in sync can read (R27). Most causes of failed reads go away before that.
const READS_BEFORE_LOST: u32 = 8;

/// How many units a copy can note as lost.
pub const LOST_UNITS_MAX: u32 = 62;
/// Bytes of such a unit.
pub const LOST_UNIT: u64 = 4096;

/// While a read takes this many ticks, the copy that waits for it receives a message that the resync
/// continues: a disk may take seconds for each block that it cannot read.
///
/// That is from one second on, and until a minute has passed since the last part was read: then the disk
/// hangs.
const SLOW_READ_TICKS: RangeInclusive<u32> = 4..=240;

/// The maximum number of regions that are given without a probe while probed regions turn out to differ.
const UNASKED_MAX: u32 = 256;

/// A resync from here.
#[derive(Debug)]
pub(super) struct Source {
    sync: SyncId,
    phase: Phase,
    todo: Regions,
    in_flight: BTreeMap<u64, InFlight>,
    /// Regions that were being written to; the next tick tries them again.
    contended: Regions,
    /// Regions that the disk did not read; the next tick tries them again.
    unread: Regions,
    /// Regions for which the other copy has no room; they are given after all others.
    put_off: Regions,
    /// Whether the other copy has written a region of this pass.
    advances: bool,
    /// Whether it had no room for any region of the previous pass.
    ///
    /// Then few regions are given in a tick until there is room for one: most would be read and sent in
    /// vain.
    is_slow: bool,
    /// How many regions were begun since the last tick.
    begun: usize,
    /// For how many ticks there have been unread regions while the copy joins.
    unread_ticks: u32,
    /// What is lost at the other copy, including what this one gave as lost.
    lost: LostUnits,
    passes: u32,
    /// How many regions were left when this pass began.
    pass_began: u64,
    caught_up: bool,
    /// How many probed regions in a row were not equal.
    misses: u32,
    /// How many regions to give without a probe.
    unasked: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// To a copy outside.
    Bulk,
    /// To a joiner.
    Final,
    /// All was sent and is on the joiner's disk.
    Ended,
}

#[derive(Debug)]
struct InFlight {
    /// [`RegionRead::number`].
    read: u64,
    /// [`crate::table::Table::mark`] before the read.
    mark: u64,
    /// Whether the region was written to after the read began.
    touched: bool,
    /// Whether it was sent; if not, it is being read.
    sent: bool,
    /// For how many ticks the read has been running, as [`SLOW_READ_TICKS`] counts.
    ticks: u32,
    /// The data of a probed region that was not given yet.
    asked: Option<Payload>,
}

/// The progress of a copy that is resynced from here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SyncState {
    /// Bytes that are left, in whole regions.
    pub left_bytes: u64,
    /// The next step, or what the resync waits for if nothing happens.
    pub next: SyncNext,
}

/// Which copies get regions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Receivers {
    /// All copies that are resynced from here.
    All,
    /// Joiners: writes wait for them already, and the source forgets none of these meanwhile.
    Joiners,
    /// All copies except these; joiners among these still get regions.
    AllBut(Slots),
}

/// The next step of a resync.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncNext {
    /// The driver allows more regions: [`Replica::begin_regions`].
    Budget,
    /// The local disk returns the region.
    Read(u64),
    /// The other copy says that the region is on its disk.
    Confirmed(u64),
    /// Hosts' writes to the region end.
    WritesEnd(u64),
    /// The other copy has room for what it has put off.
    Room,
    /// The next pass begins.
    Pass,
    /// Little is left: the copy is let in as a joiner.
    Admission,
    /// Nothing is left: the joiner is promoted.
    Promotion,
}

impl Source {
    pub fn is_caught_up(&self) -> bool {
        self.caught_up
    }

    /// Whether a joiner has waited too long for regions that the disk here does not read.
    pub fn is_starved(&self) -> bool {
        self.unread_ticks > STARVED_TICKS
    }

    /// Whether the target is a joiner.
    pub fn is_final(&self) -> bool {
        self.phase == Phase::Final
    }

    /// Whether to probe the next region before giving it: the more regions differed, the less often.
    fn asks(&mut self) -> bool {
        if self.unasked == 0 {
            return true;
        }
        self.unasked -= 1;
        false
    }

    /// Whether one more region may be on its way.
    fn has_place(&self) -> bool {
        self.in_flight.len() < IN_FLIGHT_MAX && !(self.is_slow && self.begun >= IN_FLIGHT_MAX)
    }

    /// How many regions are left to give if the dirty map has `dirty`.
    fn left(&self, dirty: u64) -> u64 {
        let waiting = self.contended.len() + self.unread.len() + self.put_off.len();
        let in_hand = self.todo.len() + self.in_flight.len() as u64 + waiting;
        match self.phase {
            // The map has the bits of regions in hand, except of those that only the other copy's map named.
            Phase::Bulk => in_hand.max(dirty),
            Phase::Final | Phase::Ended => in_hand,
        }
    }

    /// The region is written to. Returns whether that makes it necessary to give it once more, or `None` if
    /// it is not in hand.
    fn touch(&mut self, region: u64) -> Option<bool> {
        if let Some(in_flight) = self.in_flight.get_mut(&region) {
            return Some(!std::mem::replace(&mut in_flight.touched, true));
        }
        let waiting = [&self.todo, &self.contended, &self.put_off];
        waiting.into_iter().any(|regions| regions.contains(region)).then_some(false)
    }

    fn is_for(&self, slot: Slot, receivers: Receivers) -> bool {
        match receivers {
            Receivers::All => true,
            Receivers::Joiners => self.is_final(),
            Receivers::AllBut(slots) => !slots.contains(slot) || self.is_final(),
        }
    }

    /// The driver allows no regions, so the other copy hears nothing.
    fn is_held_back(&self) -> bool {
        self.in_flight.is_empty() && !self.todo.is_empty()
    }

    fn next(&self) -> SyncNext {
        if let Some((region, in_flight)) = self.in_flight.first_key_value() {
            return if in_flight.sent { SyncNext::Confirmed(*region) } else { SyncNext::Read(*region) };
        }
        if !self.todo.is_empty() && !self.is_slow {
            return SyncNext::Budget;
        }
        if let Some(region) = self.unread.first() {
            return SyncNext::Read(region);
        }
        if self.is_slow || !self.put_off.is_empty() {
            return SyncNext::Room;
        }
        match (self.phase, self.contended.first()) {
            (Phase::Bulk, _) if self.caught_up => SyncNext::Admission,
            (Phase::Bulk | Phase::Final, Some(region)) => SyncNext::WritesEnd(region),
            (Phase::Bulk, None) => SyncNext::Pass,
            (Phase::Final | Phase::Ended, _) => SyncNext::Promotion,
        }
    }
}

/// How many units the blocks, which are in order, touch.
fn units(lost: &[LostBlocks], geometry: &Geometry) -> u32 {
    let unit = |block: u64| block * u64::from(geometry.block_bytes) / LOST_UNIT;
    let units = lost.iter().flat_map(|LostBlocks { blocks, .. }| unit(blocks.start)..=unit(blocks.end - 1));
    units.collect::<BTreeSet<u64>>().len() as u32
}

impl Replica {
    /// The progress of the copy in the slot, if it is resynced from here.
    pub fn sync_to(&self, slot: Slot) -> Option<SyncState> {
        let source = self.sources[slot.index()].as_ref()?;
        let next = match source.todo.first() {
            Some(region) if source.in_flight.is_empty() && !self.may_give(source) => {
                SyncNext::WritesEnd(region)
            }
            _ => source.next(),
        };
        Some(SyncState { left_bytes: self.geometry.region_bytes() * source.left(self.map.count(slot)), next })
    }

    /// Bytes of regions in which the copy in the slot may differ from this one, in whole regions.
    pub fn missed_bytes(&self, slot: Slot) -> u64 {
        self.geometry.region_bytes() * self.map.count(slot)
    }

    /// Bytes that resyncs from here, in this life, gave to the copy in the slot or found equal, and that are
    /// on its disk.
    ///
    /// What hosts wrote meanwhile may be given again, and counts again.
    pub fn synced_bytes(&self, slot: Slot) -> u64 {
        self.brought[slot.index()]
    }

    pub(super) fn handle_sync_open(&mut self, from: Slot, sync: SyncId, mut dirty: Regions, lost: LostUnits) {
        let Some(config) = &self.config else { return };
        if !matches!(self.standing(), Standing::InSync(_)) {
            return;
        }
        let phase = match config.copy(from).map(|copy| copy.standing) {
            Some(Standing::Outside) => Phase::Bulk,
            Some(Standing::Joining(_)) => Phase::Final,
            _ => return,
        };
        let mut todo: Regions = self.map.dirty(Slots::NONE.with(from)).collect();
        if !makes(Canary::NoOwnDirty) {
            todo.append(&mut dirty);
        }
        if phase == Phase::Final {
            self.send_clean(from, sync, &todo);
        }
        let source = Source {
            sync,
            phase,
            pass_began: todo.len(),
            todo,
            in_flight: BTreeMap::new(),
            contended: Regions::default(),
            unread: Regions::default(),
            put_off: Regions::default(),
            advances: false,
            is_slow: false,
            begun: 0,
            unread_ticks: 0,
            lost,
            passes: 0,
            caught_up: false,
            misses: 0,
            unasked: 0,
        };
        self.sources[from.index()] = Some(source);
        self.end_pass(from);
    }

    /// Tells a joiner what this copy knows of the regions that are equal.
    fn send_clean(&mut self, to: Slot, sync: SyncId, todo: &Regions) {
        let all = Blocks::new(0, self.geometry.blocks);
        let mut known = Vec::new();
        let is_known = |entry: &Entry| entry.is_valid() && !entry.is_doubted();
        for (part, entry) in self.table.within(all).filter(|(_, entry)| is_known(entry)) {
            for region in self.geometry.regions_of(part).filter(|region| !todo.contains(*region)) {
                let piece = part
                    .intersection(self.geometry.blocks_of(region))
                    .expect("the region is one of the part's");
                known.push((piece, entry.ts));
            }
        }
        let third = self.others().without(to);
        let inherit = if makes(Canary::NoInherit) {
            Vec::new()
        } else {
            let of_slot = |slot| (slot, self.map.dirty(Slots::NONE.with(slot)).collect());
            third.iter().map(of_slot).filter(|(_, regions): &(Slot, Regions)| !regions.is_empty()).collect()
        };
        if makes(Canary::NoSyncTimestamp) {
            known.clear();
        }
        self.send(to, Message::SyncClean { sync, known, inherit });
    }

    /// Begins to give up to `max` regions to these copies, and returns how many.
    ///
    /// The driver calls this whenever something has happened, and controls the speed of resyncs by `max`:
    /// without this call none makes progress.
    pub fn begin_regions(&mut self, max: u32, to: Receivers) -> u32 {
        let mut left = max;
        for slot in Slot::all() {
            let given = |source: &Source| source.is_for(slot, to) && self.may_give(source);
            if self.sources[slot.index()].as_ref().is_some_and(given) {
                self.begin_regions_for(slot, &mut left);
            }
        }
        max - left
    }

    /// Whether [`Replica::begin_regions`] would begin any.
    pub fn has_regions_to_begin(&self, to: Receivers) -> bool {
        let mut sources = Slot::all().filter_map(|slot| Some((slot, self.sources[slot.index()].as_ref()?)));
        sources.any(|(slot, source)| {
            source.is_for(slot, to) && self.may_give(source) && !source.todo.is_empty() && source.has_place()
        })
    }

    /// Whether regions may be given now. A resync in bulk clears bits, and a recently added copy has no other
    /// record of older writes that only another member holds.
    fn may_give(&self, source: &Source) -> bool {
        source.is_final() || self.older_finished
    }

    fn begin_regions_for(&mut self, to: Slot, left: &mut u32) {
        let Some(source) = &mut self.sources[to.index()] else { return };
        while source.has_place()
            && *left > 0
            && let Some(region) = source.todo.pop_first()
        {
            let blocks = self.geometry.blocks_of(region);
            if source.phase == Phase::Final || self.table.is_quiet(blocks) {
                self.last_read += 1;
                let (mark, number) = (self.table.mark(), self.last_read);
                let in_flight =
                    InFlight { read: number, mark, touched: false, sent: false, ticks: 0, asked: None };
                source.in_flight.insert(region, in_flight);
                source.begun += 1;
                let by_block = self.unread.get(&region).is_some_and(|reads| *reads >= READS_BEFORE_LOST);
                let read = RegionRead { to, sync: source.sync, region, blocks, by_block, number };
                self.outputs.push_back(Output::ReadRegion(read));
                *left -= 1;
            } else {
                source.contended.insert(region);
            }
        }
        self.end_pass(to);
    }

    /// If nothing is left of this pass, begins the next one or ends.
    fn end_pass(&mut self, to: Slot) {
        let Some(source) = &mut self.sources[to.index()] else { return };
        if !source.in_flight.is_empty() || !source.todo.is_empty() {
            return;
        }
        match source.phase {
            Phase::Bulk if !source.unread.is_empty() || !source.put_off.is_empty() => {
                source.caught_up = false;
            }
            Phase::Bulk => {
                source.passes += 1;
                let left = self.map.count(to);
                let is_steady = left <= STEADY_REGIONS_MAX && left > source.pass_began / 2;
                source.caught_up = left <= FINAL_REGIONS_MAX || is_steady || source.passes >= PASSES_MAX;
            }
            Phase::Final if source.contended.is_empty() && source.unread.is_empty() => {
                source.phase = Phase::Ended;
                let sync = source.sync;
                // The next resync reads all regions as if they had never failed.
                self.unread.clear();
                self.send(to, Message::SyncEnd { sync });
            }
            Phase::Final | Phase::Ended => {}
        }
    }

    /// The region has been read for a resync.
    ///
    /// Where the disk failed, the driver has used other copies in sync (R25). If the region cannot be read,
    /// all others are given, and it is read again later: the next write there heals it, or a disk or a copy
    /// that comes back.
    pub fn handle_region_read(&mut self, read: RegionRead, result: Result<Payload, DiskFailed>) {
        self.handle_region_read_by_block(read, result.map(|payload| (payload, Vec::new())));
    }

    /// Part of a region was read, or the disk has reported that it cannot read it: the disk does not hang.
    pub fn handle_region_read_in_part(&mut self, read: &RegionRead) {
        let source = self.sources[read.to.index()].as_mut().filter(|source| source.sync == read.sync);
        let in_flight = source.and_then(|source| source.in_flight.get_mut(&read.region));
        if let Some(in_flight) = in_flight.filter(|in_flight| in_flight.read == read.number) {
            in_flight.ticks = in_flight.ticks.min(*SLOW_READ_TICKS.start());
        }
    }

    /// Like [`Replica::handle_region_read`], for a region that was read block by block.
    ///
    /// The result names the blocks that no copy in sync can read (R27), in order and apart; the payload says
    /// nothing of them. It is an error if a copy in sync could not be asked, or if this affects more than a
    /// few blocks.
    pub fn handle_region_read_by_block(
        &mut self,
        read: RegionRead,
        result: Result<(Payload, Vec<LostBlocks>), DiskFailed>,
    ) {
        let RegionRead { to, sync, region, blocks, number, .. } = read;
        let Some(source) = self.sources[to.index()].as_mut().filter(|source| source.sync == sync) else {
            return;
        };
        let is_this = |in_flight: &&mut InFlight| in_flight.read == number || makes(Canary::AnyRead);
        let Some(in_flight) = source.in_flight.get_mut(&region).filter(is_this) else { return };
        // If there are more than the joiner can note, they are no longer a few bad blocks.
        let fits = |lost: &[LostBlocks]| {
            let others = source.lost.iter().filter(|(other, _)| **other != region);
            let units = units(lost, &self.geometry);
            lost.is_empty() || others.map(|(_, units)| units).sum::<u32>() + units <= LOST_UNITS_MAX
        };
        let Some((payload, lost)) = result.ok().filter(|(_, lost)| fits(lost)) else {
            source.in_flight.remove(&region);
            source.unread.insert(region);
            *self.unread.entry(region).or_default() += 1;
            return;
        };
        in_flight.sent = true;
        source.lost.remove(&region);
        if lost.is_empty() {
            self.unread.remove(&region);
        } else {
            source.lost.insert(region, units(&lost, &self.geometry));
        }
        // As for a host's read: data counts where no write has changed it since.
        let moving = self.table.moving_since(in_flight.mark, blocks);
        let epoch = self.config.as_ref().map_or(Epoch(0), |config| config.epoch);
        let sendable = |moving: &Vec<(Blocks, Timestamp)>| match source.phase {
            // A write of an earlier epoch may have ended without the joiner.
            Phase::Final => moving.iter().all(|(_, ts)| ts.epoch == epoch),
            Phase::Bulk | Phase::Ended => moving.is_empty(),
        };
        let Some(moving) = moving.filter(sendable) else {
            source.in_flight.remove(&region);
            source.contended.insert(region);
            self.end_pass(to);
            return;
        };
        let still = |part: &Blocks| !moving.iter().any(|(other, _)| other.overlaps(*part));
        let entries = self.table.within(blocks).filter(|(part, entry)| still(part) && !entry.is_doubted());
        let mut known: Vec<(Blocks, Timestamp)> = entries.map(|(part, entry)| (part, entry.ts)).collect();
        if makes(Canary::NoSyncTimestamp) {
            known.clear();
        }
        let inherit = if makes(Canary::NoInherit) {
            Slots::NONE
        } else {
            self.map.get(region).without(to).without(self.me)
        };
        // A region that this copy has not written to since the other was in sync is most probably equal. It
        // is given because the other's own map says that it may differ.
        let suspect = !self.map.get(region).contains(to);
        let short = matches!(payload, Payload::Zeros);
        if source.phase == Phase::Bulk && suspect && !short && lost.is_empty() && source.asks() {
            let digest = payload.digest(blocks, &self.geometry);
            if let Some(in_flight) = source.in_flight.get_mut(&region) {
                in_flight.asked = Some(payload);
            }
            self.send(to, Message::SyncProbe { sync, region, digest, inherit });
            return;
        }
        self.send(to, Message::SyncRegion { sync, region, payload, known, moving, lost, inherit });
    }

    /// The other copy does not hold what the probe described.
    ///
    /// It gets the data that was read then; what has been written since is given again.
    pub(super) fn handle_sync_want(&mut self, from: Slot, sync: SyncId, region: u64) {
        let Some(source) = self.sources[from.index()].as_mut().filter(|source| source.sync == sync) else {
            return;
        };
        let asked = source.in_flight.get_mut(&region).and_then(|in_flight| in_flight.asked.take());
        let Some(payload) = asked else { return };
        source.misses += 1;
        source.unasked = 2u32.saturating_pow(source.misses).min(UNASKED_MAX);
        let inherit = self.map.get(region).without(from).without(self.me);
        let (known, moving, lost) = (Vec::new(), Vec::new(), Vec::new());
        self.send(from, Message::SyncRegion { sync, region, payload, known, moving, lost, inherit });
    }

    /// The other copy, which is outside, has no room for the region.
    pub(super) fn handle_sync_later(&mut self, from: Slot, sync: SyncId, region: u64) {
        let Some(source) = self.sources[from.index()].as_mut().filter(|source| source.sync == sync) else {
            return;
        };
        if source.phase == Phase::Bulk && source.in_flight.remove(&region).is_some() {
            source.put_off.insert(region);
            // It may have caught up with the pass before, and the end of this one is too late to say so.
            source.caught_up = false;
            self.end_pass(from);
        }
    }

    pub(super) fn handle_sync_done(&mut self, from: Slot, sync: SyncId, region: u64) {
        let Some(source) = self.sources[from.index()].as_mut().filter(|source| source.sync == sync) else {
            return;
        };
        let Some(in_flight) = source.in_flight.remove(&region) else { return };
        (source.advances, source.is_slow) = (true, false);
        if in_flight.asked.is_some() {
            source.misses = 0;
        }
        let blocks = self.geometry.blocks_of(region);
        self.brought[from.index()] += blocks.count() * u64::from(self.geometry.block_bytes);
        // The table does not know of blocks that are being rewritten (R25).
        let is_quiet = self.table.is_quiet(blocks) && !self.media.touches(blocks);
        if source.phase == Phase::Bulk && !in_flight.touched && is_quiet {
            // Both disks hold the same, and the next write sets the bit again before it changes this one.
            self.map.clear(region, Slots::NONE.with(from));
        }
        self.end_pass(from);
    }

    /// Bytes of regions that writes have added to the resync of the copy in the slot while it takes none, in
    /// this life.
    ///
    /// A write adds a region that was equal, that was given before, or that is on its way. Regions count
    /// whole, and again only after they were given again.
    pub fn dirtied_bytes(&self, slot: Slot) -> u64 {
        self.dirtied[slot.index()]
    }

    /// A write is about to change the region here.
    pub(super) fn note_dirtied(&mut self, region: u64) {
        let Some(config) = &self.config else { return };
        let outside = config.configured().minus(config.members());
        for slot in Slot::all() {
            // Even if the target has another standing by now: a bit is not cleared for data read before this
            // write.
            let touched = self.sources[slot.index()].as_mut().and_then(|source| source.touch(region));
            let adds = || touched.unwrap_or_else(|| !self.map.get(region).contains(slot));
            if outside.contains(slot) && adds() {
                self.dirtied[slot.index()] += self.geometry.region_bytes();
            }
        }
    }

    /// Tries regions again that were being written to; in bulk, continues with those written to since, and
    /// with those that were put off. Tells a copy that hears nothing of its resync that it continues.
    pub(super) fn retry_source(&mut self, to: Slot) {
        let Some(source) = &mut self.sources[to.index()] else { return };
        let starves = source.phase == Phase::Final && !source.unread.is_empty();
        source.unread_ticks = if starves { source.unread_ticks + 1 } else { 0 };
        source.begun = 0;
        let again = !source.contended.is_empty() || !source.unread.is_empty() || !source.put_off.is_empty();
        let mut reads_long = false;
        for read in source.in_flight.values_mut().filter(|in_flight| !in_flight.sent) {
            read.ticks += 1;
            reads_long |= SLOW_READ_TICKS.contains(&read.ticks);
        }
        let waiting = (again || reads_long || source.is_held_back()).then_some(source.sync);
        // Regions that cannot be read do not count: of several, one is always being read again, for seconds.
        let is_unread = |region: u64| self.unread.contains_key(&region);
        let has_ended = source.phase == Phase::Bulk
            && source.todo.iter().all(is_unread)
            && source.in_flight.iter().all(|(region, in_flight)| !in_flight.sent && is_unread(*region));
        // What was put off does not wait for regions to which hosts write all the time.
        let may_go_on = source.contended.is_empty() || !source.put_off.is_empty();
        source.todo.append(&mut source.contended);
        if has_ended && may_go_on {
            source.is_slow = !source.put_off.is_empty() && !source.advances;
            source.advances = false;
            let mut dirty: Regions = self.map.dirty(Slots::NONE.with(to)).collect();
            dirty.retain(|region| !source.in_flight.contains_key(&region));
            source.todo.append(&mut dirty);
            source.todo.append(&mut source.put_off);
            source.pass_began = source.todo.len();
        }
        // This comes last: regions that cannot be read must not delay those that were written to since.
        source.todo.append(&mut source.unread);
        if let Some(sync) = waiting {
            self.send(to, Message::SyncWait { sync });
        }
        self.end_pass(to);
    }
}

#[cfg(test)]
mod tests;
