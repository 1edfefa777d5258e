//! The segments of a log: which are free, which are in use, and which of their slots are live.
//!
//! A segment is written once from front to back. Records only go into segments that a durable root has
//! announced, so that recovery knows where to look. A segment that is no longer needed becomes free only
//! after the root that says so, and when no read of it is under way. The segment that was freed last is used
//! first: a part of a file that has been written before costs the file system less than one that never was.

use std::collections::{BTreeMap, VecDeque};

use super::leaf::LEAF_GRAIN;
use super::place::{Place, SLOT_BYTES, SLOT_QUARTERS, Size, Slots};
use super::record::slots_of_records;

/// Number of grains of a slot.
pub(crate) const SLOT_GRAINS: u32 = (SLOT_BYTES / LEAF_GRAIN) as u32;

/// A zone, as the log sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Zone {
    /// The index of the disk in the pool.
    pub disk: u16,
    /// The zone's offset on the disk, in bytes.
    pub offset: u64,
    /// The zone goes back to the pool as soon as no root names it; none of its segments is used any more.
    pub leaving: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Data,
    Map,
}

/// A segment in use.
#[derive(Clone, Debug)]
pub(crate) struct Used {
    pub kind: Kind,
    pub generation: u64,
    /// Some blocks in the segment are compressed.
    pub packed: bool,
    /// What is live, 64 bits per word: a bit for each slot, or, if the segment is packed, for each quarter of
    /// a slot. Empty for a map segment.
    pub bits: Vec<u64>,
    /// How many quarters of slots are live; for a map segment, how many grains of leaves the directory points
    /// at.
    pub live: u32,
    /// The segment is still being written.
    pub open: bool,
    /// The newest record in the segment.
    pub newest: u64,
    /// The first slot of the records that the next root does not cover.
    pub replay_from: u16,
    /// How many reads are under way.
    pub readers: u32,
    /// The cleaner has been through the segment, with records below this one. 0: it has not, or there was a
    /// root since.
    pub cleaned: u64,
    /// The cleaner found a block that it cannot read: the segment stays as it is until that block is dead.
    pub stuck: bool,
    /// The slots of these blocks, if the segment is stuck because of blocks in it.
    pub bad: Vec<u16>,
    /// A root says that the segment is free, but reads are still under way.
    pub released: bool,
}

/// How many words the bits of a data segment with this many slots take.
pub(crate) fn words(slots: u32, packed: bool) -> usize {
    let bits = if packed { slots * SLOT_QUARTERS } else { slots };
    bits.div_ceil(u64::BITS) as usize
}

impl Used {
    /// How many quarters of a slot each bit stands for.
    pub(crate) fn quarters_per_bit(&self) -> u32 {
        if self.packed { 1 } else { SLOT_QUARTERS }
    }

    /// How many bits stand for what is before a slot.
    pub(crate) fn bits_before(&self, slot: u16) -> usize {
        usize::from(slot) * (SLOT_QUARTERS / self.quarters_per_bit()) as usize
    }

    /// Whether the cleaner can move what is live here. A recovery replays the records from `root_sequence`
    /// on, so segments with such records stay as they are.
    pub(crate) fn can_be_cleaned(&self, root_sequence: u64) -> bool {
        self.kind == Kind::Data
            && !self.open
            && !self.released
            && !self.stuck
            && self.cleaned == 0
            && self.live > 0
            && self.newest < root_sequence
    }

    /// Whether anything is live in the slots `from..to`.
    pub(crate) fn has_live(&self, from: u16, to: u16) -> bool {
        (self.bits_before(from)..self.bits_before(to)).any(|bit| self.has(bit))
    }

    fn has(&self, bit: usize) -> bool {
        self.bits.get(bit / 64).is_some_and(|word| word >> (bit % 64) & 1 == 1)
    }

    /// The bits of a run.
    fn range(&self, run: Slots) -> std::ops::Range<usize> {
        let from = run.first.quarter() / self.quarters_per_bit();
        let count = run.quarters() / self.quarters_per_bit();
        from as usize..(from + count) as usize
    }

    /// Has a bit for each quarter of a slot from now on.
    fn pack(&mut self, slots: u32) {
        let mut bits = vec![0u64; words(slots, true)];
        for slot in (0..slots as usize).filter(|slot| self.has(*slot)) {
            // The quarters of a slot are in one word.
            bits[slot / 16] |= 0b1111u64 << (slot % 16 * 4);
        }
        (self.packed, self.bits) = (true, bits);
    }

    /// How many slots what is live takes when it is moved, with the heads of the records.
    ///
    /// Of compressed blocks, each counts as a quarter: others need fewer heads.
    pub(crate) fn slots_when_moved(&self) -> u32 {
        let size = if self.packed { Size::Quarter } else { Size::Whole };
        slots_of_records(size, self.live / self.quarters_per_bit())
    }
}

/// The position at which a stream continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Open {
    pub segment: u32,
    pub generation: u64,
    pub next: u16,
}

pub(crate) struct Segments {
    /// Number of slots of a segment.
    pub slots: u32,
    pub zone_segments: u32,
    pub zones: BTreeMap<u32, Zone>,
    /// How many zones are not leaving.
    staying: u64,
    pub used: BTreeMap<u32, Used>,
    /// Free segments; taken from the end.
    pub free: Vec<u32>,
    /// Announced by the durable root: segments, in the order of use, and their generations.
    pub ready: VecDeque<(u32, u64)>,
    pub hosts: Option<Open>,
    /// The hosts' segment was begun from the reserve, for a request without data.
    pub hosts_from_reserve: bool,
    pub survivors: Option<Open>,
    pub map: Option<Open>,
    /// How many quarters of slots are live in all segments.
    pub live: u64,
    /// How many segments are [`Used::packed`].
    pub packed: u64,
    /// Grains of leaves in all map segments.
    pub live_map: u64,
    /// How many segments are [`Used::stuck`].
    pub stuck: u64,
    /// The place of the disk that is leaving the pool: what is in zones there goes elsewhere.
    leaving_disk: Option<u16>,
}

impl Segments {
    pub(crate) fn new(slots: u32, zone_segments: u32) -> Segments {
        Segments {
            slots,
            zone_segments,
            zones: BTreeMap::new(),
            staying: 0,
            used: BTreeMap::new(),
            free: Vec::new(),
            ready: VecDeque::new(),
            hosts: None,
            hosts_from_reserve: false,
            survivors: None,
            map: None,
            live: 0,
            packed: 0,
            live_map: 0,
            stuck: 0,
            leaving_disk: None,
        }
    }

    /// How many segments the log has, without those that go back to the pool.
    pub(crate) fn total(&self) -> u64 {
        self.staying * u64::from(self.zone_segments)
    }

    pub(crate) fn zone_of(&self, segment: u32) -> u32 {
        segment / self.zone_segments
    }

    fn segments_of(&self, zone: u32) -> std::ops::Range<u32> {
        zone * self.zone_segments..(zone + 1) * self.zone_segments
    }

    /// The disk of a segment, and the segment's offset there.
    pub(crate) fn locate(&self, segment: u32) -> Option<(u16, u64)> {
        let zone = self.zones.get(&self.zone_of(segment))?;
        let within = u64::from(segment % self.zone_segments) * u64::from(self.slots) * SLOT_BYTES as u64;
        Some((zone.disk, zone.offset + within))
    }

    /// Adds a zone that the pool has lent. Its segments are free, except those that are in use.
    pub(crate) fn add_zone(&mut self, number: u32, zone: Zone) {
        self.staying += u64::from(!zone.leaving);
        let before = self.zones.insert(number, zone);
        assert_eq!(before, None, "a zone is taken in once");
        self.add_unused(number);
    }

    /// Makes all segments of a zone free that are not in use.
    fn add_unused(&mut self, number: u32) {
        let ready: Vec<u32> = self.ready.iter().map(|(segment, _)| *segment).collect();
        let unused = self.segments_of(number).rev();
        let unused = unused.filter(|segment| !self.used.contains_key(segment) && !ready.contains(segment));
        let unused: Vec<u32> = unused.collect();
        // Put them before those that have been written, which are used first.
        let first = self.segments_of(number).start;
        let last = self.free.iter().take_while(|segment| self.is_on_leaving_disk(**segment)).count();
        let at = if self.is_on_leaving_disk(first) { 0 } else { last };
        self.free.splice(at..at, unused);
    }

    /// Whether a segment is on the disk that is leaving the pool.
    pub(crate) fn is_on_leaving_disk(&self, segment: u32) -> bool {
        let zone = || self.zones.get(&self.zone_of(segment));
        self.leaving_disk.is_some_and(|disk| zone().is_some_and(|zone| zone.disk == disk))
    }

    /// Sets which disk is leaving the pool; returns whether that has changed. Zones that were being emptied,
    /// because another one was, stay in use.
    ///
    /// Free segments on a disk that is leaving are used last: what is written there has to move again.
    pub(crate) fn set_leaving_disk(&mut self, disk: Option<u16>) -> bool {
        let before = std::mem::replace(&mut self.leaving_disk, disk);
        if before == disk {
            return false;
        }
        let was_leaving = |zone: &Zone| zone.leaving && Some(zone.disk) == before;
        let zones = self.zones.iter().filter(|(_, zone)| was_leaving(zone));
        for number in zones.map(|(number, _)| *number).collect::<Vec<u32>>() {
            if let Some(zone) = self.zones.get_mut(&number) {
                zone.leaving = false;
                self.staying += 1;
            }
            self.add_unused(number);
        }
        let mut free = std::mem::take(&mut self.free);
        free.sort_by_key(|segment| !self.is_on_leaving_disk(*segment));
        self.free = free;
        true
    }

    /// The next zone on the disk that is leaving the pool, of those that are still in use.
    pub(crate) fn next_to_empty(&self) -> Option<u32> {
        self.zone_on_leaving_disk(false)
    }

    /// The zone that is being emptied, because its disk is leaving the pool: no segment of it is used any
    /// more than those that are in use already.
    pub(crate) fn emptied_zone(&self) -> Option<u32> {
        self.zone_on_leaving_disk(true)
    }

    fn zone_on_leaving_disk(&self, leaving: bool) -> Option<u32> {
        let disk = self.leaving_disk?;
        let fits = |zone: &Zone| zone.disk == disk && zone.leaving == leaving;
        self.zones.iter().find(|(_, zone)| fits(zone)).map(|(number, _)| *number)
    }

    /// How many zones the log has on the disk that is leaving the pool.
    pub(crate) fn on_leaving_disk(&self) -> usize {
        self.zones.values().filter(|zone| Some(zone.disk) == self.leaving_disk).count()
    }

    /// The segments in use of a zone.
    pub(crate) fn used_in(&self, zone: u32) -> impl Iterator<Item = (&u32, &Used)> {
        self.used.range(self.segments_of(zone))
    }

    /// How many free segments, and announced ones, are in other zones than this one.
    pub(crate) fn unused_beside(&self, zone: u32) -> (usize, usize) {
        let own = self.segments_of(zone);
        let free = self.free.iter().filter(|segment| !own.contains(*segment)).count();
        (free, self.ready.iter().filter(|(segment, _)| !own.contains(segment)).count())
    }

    /// How many segments that are [`Used::stuck`] are not in a zone that is being emptied.
    pub(crate) fn stuck_elsewhere(&self) -> u64 {
        let emptied = self.emptied_zone().into_iter().flat_map(|zone| self.used_in(zone));
        self.stuck - emptied.filter(|(_, used)| used.stuck).count() as u64
    }

    /// Has the cleaner, and checkpoints, try again to move what could not be read in a zone.
    pub(crate) fn unstick(&mut self, zone: u32) {
        for (_, used) in self.used.range_mut(zone * self.zone_segments..(zone + 1) * self.zone_segments) {
            self.stuck -= u64::from(std::mem::take(&mut used.stuck));
            used.bad.clear();
        }
    }

    /// A zone of which no segment is in use.
    pub(crate) fn idle_zone(&self) -> Option<u32> {
        let zones = self.zones.iter().rev().filter(|(_, zone)| !zone.leaving).map(|(number, _)| *number);
        let mut idle = zones.filter(|zone| self.is_unused(*zone));
        idle.next()
    }

    /// Whether no segment of a zone is in use.
    pub(crate) fn is_unused(&self, zone: u32) -> bool {
        self.used.range(self.segments_of(zone)).next().is_none()
    }

    /// Stops using a zone: none of its segments is begun, or written, any more. When none is in use, nothing
    /// names the zone from the next root on. What could not be read there is tried again.
    pub(crate) fn retire_zone(&mut self, number: u32) {
        if let Some(zone) = self.zones.get_mut(&number).filter(|zone| !zone.leaving) {
            zone.leaving = true;
            self.staying -= 1;
        }
        let gone = self.segments_of(number);
        self.free.retain(|segment| !gone.contains(segment));
        self.ready.retain(|(segment, _)| !gone.contains(segment));
        // Records that are under way there end as usual.
        for stream in [&mut self.hosts, &mut self.survivors, &mut self.map] {
            let open = stream.take_if(|open| gone.contains(&open.segment));
            if let Some(used) = open.and_then(|open| self.used.get_mut(&open.segment)) {
                used.open = false;
            }
        }
        self.unstick(number);
    }

    /// Puts a segment into use, from its first slot on.
    pub(crate) fn begin(&mut self, segment: u32, generation: u64, kind: Kind) -> Open {
        let words = match kind {
            Kind::Data => words(self.slots, false),
            Kind::Map => 0,
        };
        let used = Used {
            kind,
            generation,
            packed: false,
            bits: vec![0; words],
            live: 0,
            open: true,
            newest: 0,
            replay_from: 0,
            readers: 0,
            cleaned: 0,
            stuck: false,
            bad: Vec::new(),
            released: false,
        };
        self.used.insert(segment, used);
        Open { segment, generation, next: 0 }
    }

    /// Marks a segment as having a block that cannot be read: cleaning gains nothing from it until the block
    /// is repaired.
    pub(crate) fn set_stuck(&mut self, segment: u32) {
        if let Some(used) = self.used.get_mut(&segment) {
            self.stuck += u64::from(!std::mem::replace(&mut used.stuck, true));
            // The next root does not free it, though the cleaner may have been through it.
            used.cleaned = 0;
        }
    }

    /// Marks the segment of a slot with a live block that cannot be read, until that block is dead.
    pub(crate) fn set_bad(&mut self, slot: Place) {
        if !self.has_live(slot) {
            return;
        }
        self.set_stuck(slot.segment);
        if let Some(used) = self.used.get_mut(&slot.segment).filter(|used| !used.bad.contains(&slot.slot)) {
            used.bad.push(slot.slot);
        }
    }

    /// Frees a segment that is neither needed nor being read.
    fn end(&mut self, segment: u32) {
        let ended = self.used.remove(&segment);
        if let Some(ended) = ended {
            self.stuck -= u64::from(ended.stuck);
            self.packed -= u64::from(ended.packed);
        }
        self.make_free(segment);
    }

    /// Ends writing to a segment.
    pub(crate) fn seal(&mut self, segment: u32) {
        if let Some(used) = self.used.get_mut(&segment) {
            used.open = false;
        }
    }

    /// Makes the hosts' stream continue in another segment.
    pub(crate) fn seal_hosts(&mut self) {
        if let Some(open) = self.hosts.take() {
            self.seal(open.segment);
        }
    }

    /// How many slots are left in an open segment.
    pub(crate) fn rest(&self, open: Option<Open>) -> u32 {
        open.map_or(0, |open| self.slots - u32::from(open.next))
    }

    /// Whether the block in a place is live.
    pub(crate) fn is_set(&self, place: Place) -> bool {
        let Some(used) = self.used.get(&place.segment) else { return false };
        (used.packed || !place.size().is_packed()) && used.range(place.run(1)).all(|bit| used.has(bit))
    }

    /// Whether anything in a slot is live.
    pub(crate) fn has_live(&self, slot: Place) -> bool {
        self.used.get(&slot.segment).is_some_and(|used| used.has_live(slot.slot, slot.slot + 1))
    }

    /// Marks the blocks in these slots as live.
    pub(crate) fn set(&mut self, slots: Slots) {
        self.change(slots, true);
    }

    /// Marks the blocks in these slots as dead.
    pub(crate) fn clear(&mut self, slots: Slots) {
        self.change(slots, false);
    }

    fn change(&mut self, slots: Slots, needed: bool) {
        let Some(used) = self.used.get_mut(&slots.first.segment) else { return };
        if slots.first.size().is_packed() && !used.packed {
            if !needed || used.kind == Kind::Map {
                return;
            }
            used.pack(self.slots);
            self.packed += 1;
        }
        let std::ops::Range { start: mut at, end } = used.range(slots);
        while at < end {
            let Some(word) = used.bits.get_mut(at / 64) else { return };
            let count = (64 - at % 64).min(end - at);
            let mask = u64::MAX >> (64 - count) << (at % 64);
            let changed = mask & if needed { !*word } else { *word };
            *word ^= changed;
            let changed = changed.count_ones() * used.quarters_per_bit();
            if needed {
                used.live += changed;
                self.live += u64::from(changed);
            } else {
                used.live -= changed;
                self.live -= u64::from(changed);
            }
            at += count;
        }
        if !needed && used.stuck {
            let mut bad = std::mem::take(&mut used.bad);
            bad.retain(|slot| used.has_live(*slot, slot + 1));
            used.bad = bad;
            self.stuck -= u64::from(used.bad.is_empty());
            used.stuck = !used.bad.is_empty();
        }
    }

    /// Counts grains of a map segment that the directory points at from now on.
    pub(crate) fn add_leaf(&mut self, segment: u32, grains: u8) {
        if let Some(used) = self.used.get_mut(&segment) {
            used.live += u32::from(grains);
            self.live_map += u64::from(grains);
        }
    }

    /// Counts grains that it no longer points at. Whether they are those of a leaf that could not be read is
    /// not known, so a map segment that is stuck stays so until it is empty or the disks are looked at again.
    pub(crate) fn remove_leaf(&mut self, segment: u32, grains: u8) {
        if let Some(used) = self.used.get_mut(&segment) {
            used.live -= u32::from(grains);
            self.live_map -= u64::from(grains);
            if used.live == 0 {
                self.stuck -= u64::from(std::mem::take(&mut used.stuck));
            }
        }
    }

    /// Counts a read of a segment that begins.
    pub(crate) fn pin(&mut self, segment: u32) {
        if let Some(used) = self.used.get_mut(&segment) {
            used.readers += 1;
        }
    }

    /// Counts a read that has ended. Returns whether that freed the segment.
    pub(crate) fn unpin(&mut self, segment: u32) -> bool {
        let Some(used) = self.used.get_mut(&segment) else { return false };
        used.readers -= 1;
        if used.readers > 0 || !used.released {
            return false;
        }
        self.end(segment);
        true
    }

    /// Whether segments become free as soon as reads that are under way have ended.
    pub(crate) fn awaits_reads(&self) -> bool {
        self.used.values().any(|used| used.released)
    }

    /// Releases a segment that a durable root says is not needed.
    pub(crate) fn release(&mut self, segment: u32) {
        let Some(used) = self.used.get_mut(&segment) else { return };
        assert!(used.live == 0 && !used.open, "segment {segment} is not free");
        if used.readers > 0 {
            used.released = true;
            return;
        }
        self.end(segment);
    }

    /// Makes the segment free that was announced last. Returns whether there was one.
    pub(crate) fn take_back(&mut self) -> bool {
        let last = self.ready.pop_back();
        last.inspect(|(segment, _)| self.make_free(*segment)).is_some()
    }

    fn make_free(&mut self, segment: u32) {
        let zone = self.zones.get(&self.zone_of(segment));
        if zone.is_some_and(|zone| !zone.leaving) {
            let last = self.free.len();
            self.free.insert(if self.is_on_leaving_disk(segment) { 0 } else { last }, segment);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segments() -> Segments {
        let mut segments = Segments::new(16, 4);
        segments.add_zone(0, Zone { disk: 0, offset: 1 << 20, leaving: false });
        segments
    }

    #[test]
    fn a_segment_that_is_read_is_not_free_yet() {
        let mut segments = segments();
        assert_eq!(segments.free.pop(), Some(0));
        let open = segments.begin(0, 7, Kind::Data);
        let place = Place::new(open.segment, 5);
        segments.set(place.run(1));
        segments.set(place.run(1));
        assert_eq!((segments.live, segments.used[&0].live, segments.is_set(place)), (4, 4, true));
        segments.pin(0);
        segments.seal(0);
        segments.clear(place.run(1));
        segments.release(0);
        assert_eq!((segments.free.len(), segments.awaits_reads()), (3, true));
        assert!(segments.unpin(0) && !segments.awaits_reads());
        assert_eq!(segments.free.last(), Some(&0), "what was freed last is taken first");
    }

    #[test]
    fn bits_are_changed_in_runs() {
        let mut segments = Segments::new(256, 4);
        segments.begin(0, 7, Kind::Data);
        let place = |slot| Place::new(0, slot);
        let set = |segments: &Segments| -> Vec<u16> {
            (0..256).filter(|slot| segments.is_set(place(*slot))).collect()
        };
        segments.set(place(60).run(140));
        segments.set(place(64).run(64));
        assert_eq!(set(&segments), (60..200).collect::<Vec<u16>>());
        segments.clear(place(0).run(61));
        segments.clear(place(63).run(2));
        segments.clear(place(190).run(66));
        assert_eq!(set(&segments), (61..63).chain(65..190).collect::<Vec<u16>>());
        assert_eq!((segments.live, segments.used[&0].live), (4 * 127, 4 * 127));
        segments.clear(place(250).run(100));
        segments.clear(Place::new(1, 0).run(1));
        assert_eq!(segments.live, 4 * 127, "there is nothing to clear");
    }

    /// A segment has a bit for each quarter as soon as a block in it is compressed.
    #[test]
    fn parts_of_slots_are_live_by_themselves() {
        let mut segments = Segments::new(40, 4);
        segments.begin(0, 7, Kind::Data);
        segments.set(Place::new(0, 3).run(30));
        let half = |quarter| Place::at(0, quarter, Size::Half);
        let quarter = |quarter| Place::at(0, quarter, Size::Quarter);
        segments.clear(half(4 * 35).run(1));
        assert!(!segments.used[&0].packed && !segments.is_set(half(4 * 5)));
        segments.set(half(4 * 35 + 2).run(2));
        segments.set(quarter(3).run(1));
        assert!(segments.used[&0].packed && segments.packed == 1);
        assert_eq!((segments.live, segments.used[&0].live), (4 * 30 + 4 + 1, 4 * 30 + 4 + 1));
        for slot in 0..40 {
            assert_eq!(segments.is_set(Place::new(0, slot)), (3..33).contains(&slot), "slot {slot}");
        }
        assert!(segments.is_set(half(4 * 36)) && !segments.is_set(half(4 * 36 + 2)));
        assert!(segments.used[&0].has_live(0, 1) && !segments.used[&0].has_live(1, 3));
        assert!(segments.has_live(Place::new(0, 36)) && !segments.has_live(Place::new(0, 37)));
        segments.clear(Place::new(0, 3).run(30));
        segments.clear(half(4 * 35 + 2).run(1));
        segments.clear(quarter(3).run(1));
        assert_eq!(segments.live, 2);
        segments.clear(half(4 * 36).run(1));
        segments.seal(0);
        segments.release(0);
        assert_eq!((segments.live, segments.packed), (0, 0));
    }

    #[test]
    fn zones_lie_one_behind_the_other() {
        let mut segments = segments();
        segments.add_zone(2, Zone { disk: 1, offset: 4 << 20, leaving: false });
        assert_eq!(segments.locate(3), Some((0, (1 << 20) + 3 * 65536)));
        assert_eq!(segments.locate(9), Some((1, (4 << 20) + 65536)));
        assert_eq!(segments.locate(5), None);
        assert_eq!((segments.total(), segments.idle_zone()), (8, Some(2)));
        segments.begin(9, 1, Kind::Data);
        assert_eq!(segments.idle_zone(), Some(0));
        segments.retire_zone(0);
        assert_eq!((segments.total(), segments.idle_zone()), (4, None));
        assert!(segments.free.iter().all(|segment| (8..12).contains(segment)));
    }

    /// Segments of a disk that is leaving are used last; a zone there that is being emptied is not used any
    /// more, unless the disk stays.
    #[test]
    fn a_zone_on_a_leaving_disk_is_not_written_any_more() {
        let mut segments = segments();
        segments.add_zone(1, Zone { disk: 1, offset: 1 << 20, leaving: false });
        assert_eq!(segments.free, [7, 6, 5, 4, 3, 2, 1, 0]);
        assert!(segments.set_leaving_disk(Some(0)) && !segments.set_leaving_disk(Some(0)));
        assert_eq!(segments.free, [3, 2, 1, 0, 7, 6, 5, 4]);
        segments.add_zone(2, Zone { disk: 1, offset: 2 << 20, leaving: false });
        assert_eq!(segments.free[..6], [3, 2, 1, 0, 11, 10]);
        segments.free.retain(|segment| ![0, 1, 2, 4].contains(segment));
        segments.hosts = Some(segments.begin(0, 7, Kind::Data));
        segments.map = Some(segments.begin(1, 8, Kind::Map));
        segments.survivors = Some(segments.begin(4, 9, Kind::Data));
        segments.ready.push_back((2, 10));
        let taken = Place::new(0, 3).run(1);
        segments.set(taken);
        assert_eq!((segments.next_to_empty(), segments.emptied_zone()), (Some(0), None));
        assert_eq!(segments.unused_beside(0), (7, 0));
        segments.retire_zone(0);
        assert_eq!((segments.next_to_empty(), segments.emptied_zone()), (None, Some(0)));
        assert_eq!((segments.hosts, segments.map), (None, None));
        assert!(segments.survivors.is_some() && !segments.used[&0].open && !segments.used[&1].open);
        assert!(segments.ready.is_empty() && segments.free.iter().all(|segment| *segment > 4));
        assert_eq!((segments.total(), segments.on_leaving_disk()), (8, 1));
        segments.release(1);
        assert!(!segments.free.contains(&1) && !segments.is_unused(0));
        // The disk stays after all.
        assert!(segments.set_leaving_disk(None));
        assert_eq!((segments.total(), segments.on_leaving_disk()), (12, 0));
        assert!([1, 2, 3].iter().all(|segment| segments.free.contains(segment)));
        assert!(!segments.free.contains(&0) && segments.is_set(Place::new(0, 3)));
    }

    #[test]
    fn what_could_not_be_read_is_tried_again() {
        let mut segments = segments();
        for segment in [1, 2] {
            segments.begin(segment, 7, Kind::Data);
            segments.used.get_mut(&segment).unwrap().cleaned = 9;
            segments.set_stuck(segment);
            assert_eq!(segments.used[&segment].cleaned, 0, "no root frees it");
        }
        segments.unstick(1);
        assert_eq!(segments.stuck, 2);
        segments.unstick(0);
        assert_eq!(segments.stuck, 0);
        assert!(segments.used.values().all(|used| !used.stuck));
        // Also when the turn of its zone comes.
        segments.set_stuck(1);
        segments.retire_zone(0);
        assert!(segments.stuck == 0 && !segments.used[&1].stuck);
    }

    /// Once, the cleaner passed such segments by for good.
    #[test]
    fn a_segment_is_tried_again_when_what_could_not_be_read_is_dead() {
        let mut segments = segments();
        segments.begin(1, 7, Kind::Data);
        let place = |slot| Place::new(1, slot);
        segments.set(place(3).run(5));
        [4, 6, 6, 9].into_iter().for_each(|slot| segments.set_bad(place(slot)));
        assert_eq!((segments.stuck, &segments.used[&1].bad[..]), (1, &[4, 6][..]), "nobody needs slot 9");
        segments.clear(place(3).run(2));
        assert_eq!((segments.stuck, &segments.used[&1].bad[..]), (1, &[6][..]));
        segments.clear(place(6).run(1));
        assert!(segments.stuck == 0 && !segments.used[&1].stuck && segments.used[&1].live > 0);
        // Of a map segment it is not known which leaf it was.
        segments.begin(2, 8, Kind::Map);
        segments.add_leaf(2, 3);
        segments.add_leaf(2, 2);
        segments.set_stuck(2);
        segments.remove_leaf(2, 2);
        assert_eq!(segments.stuck, 1);
        segments.remove_leaf(2, 3);
        assert!(segments.stuck == 0 && !segments.used[&2].stuck);
    }
}
