//! The recent writes of a slice, by block: which write a block holds, and whether all members hold it.
//!
//! Entries never overlap: a newer write splits older ones. Blocks that are not in the table are valid. A
//! write that arrives for them is newer than what they hold, or older than the floor, and then it is not
//! taken (R15). The table knows nothing of epochs, disks or messages.

use std::collections::{BTreeMap, VecDeque};

use crate::{ApplyId, Blocks, Geometry, Payload, Timestamp};

/// How many entries are kept at most for reads that are under way.
///
/// A slow disk reads for seconds, and hosts write elsewhere meanwhile. An entry takes about
/// 150 bytes of memory. If there are more writes than this, the read is repeated.
const REMEMBERED_MAX: usize = 1 << 16;

/// The recent writes of a slice; see the module.
#[derive(Debug)]
pub struct Table {
    geometry: Geometry,
    /// By the first block.
    entries: BTreeMap<u64, Entry>,
    /// Entries that became valid, oldest first: the order in which they are forgotten. Some no longer exist,
    /// or were split since.
    settled: VecDeque<(Timestamp, u64)>,
    /// Grows with every write; see [`Entry::serial`].
    serial: u64,
    /// The greatest serial of an entry that was forgotten.
    forgotten: u64,
    /// Entries with a greater serial are kept, up to [`REMEMBERED_MAX`]: a read with this mark is under way.
    read_since: Option<u64>,
    /// How many entries are invalid.
    invalid: usize,
    /// Below it valid entries are forgotten and no write is taken; `None` if nothing was forgotten yet.
    floor: Option<Timestamp>,
    /// Forgotten entries below the floor, where no newer write was taken since. Only in builds that check A9.
    dropped: Option<Box<Table>>,
}

/// One write's part of the blocks.
#[derive(Clone, Debug)]
pub struct Entry {
    end: u64,
    /// The place of the write in the order.
    pub ts: Timestamp,
    /// The data, as long as it may be needed again; `None` once the write is valid.
    pub payload: Option<Payload>,
    /// The local write to the disk that is still under way.
    pub apply: Option<ApplyId>,
    /// The number of writes that this copy had taken when it took this one.
    serial: u64,
    /// Other copies may hold something newer and have forgotten its timestamp; see
    /// [`Table::doubt_valid_before`].
    doubted: bool,
}

impl Entry {
    /// Whether all members are known to hold the write on their disks.
    pub fn is_valid(&self) -> bool {
        self.payload.is_none()
    }

    /// Whether the blocks may hold something newer than the entry says, which a resync brought without a
    /// timestamp.
    pub fn is_doubted(&self) -> bool {
        self.doubted
    }
}

impl Table {
    /// The table of a slice of this geometry, with all blocks valid.
    pub fn new(geometry: Geometry) -> Table {
        Table {
            geometry,
            entries: BTreeMap::new(),
            settled: VecDeque::new(),
            serial: 0,
            forgotten: 0,
            read_since: None,
            invalid: 0,
            floor: None,
            dropped: None,
        }
    }

    /// Forgets everything: the copy was not a member all the time.
    ///
    /// All earlier marks count as changed, whatever is noted later.
    pub fn clear(&mut self) {
        let serial = self.serial + 1;
        *self = Table { serial, forgotten: serial, ..Table::new(self.geometry) };
    }

    /// All earlier marks count as changed: the disk holds something else now.
    pub fn outdate(&mut self) {
        self.serial += 1;
        self.forgotten = self.serial;
    }

    /// The slice has become longer; the new blocks are valid.
    pub fn grow(&mut self, geometry: Geometry) {
        self.geometry = geometry;
    }

    /// Takes a write where it is newer than what the blocks hold, and returns these parts. They are invalid
    /// now, and the caller reports their local write with [`Table::applying`].
    pub fn write(&mut self, blocks: Blocks, ts: Timestamp, payload: &Payload) -> Vec<Blocks> {
        let older = self.older_than(blocks, Some(ts));
        if Some(ts) < self.floor {
            self.check_was_here(&older, ts);
            return Vec::new();
        }
        self.serial += 1;
        for part in &older {
            if let Some(dropped) = &mut self.dropped {
                dropped.cut(*part);
                dropped.settled.clear();
            }
            let payload = Some(payload.part(blocks, *part, &self.geometry));
            self.put(*part, ts, payload);
        }
        older
    }

    /// Notes that the blocks hold a write that is valid at another copy, together with the data that a resync
    /// brought: see [`Table::older_than`].
    pub fn take_over(&mut self, blocks: Blocks, ts: Timestamp) {
        self.serial += 1;
        self.put(blocks, ts, None);
        self.settled.push_back((ts, blocks.start));
    }

    /// The parts of the blocks whose write is older than `ts`, or unknown.
    ///
    /// `None` counts as older than every entry that is not doubted: the result is then the parts whose write
    /// is unknown or doubted.
    pub fn older_than(&self, blocks: Blocks, ts: Option<Timestamp>) -> Vec<Blocks> {
        if self.is_unknown(blocks) {
            return vec![blocks];
        }
        let mut older: Vec<Blocks> = Vec::new();
        let mut add = |start: u64, end: u64| match older.last_mut() {
            Some(last) if last.end == start => last.end = end,
            _ if start < end => older.push(Blocks { start, end }),
            _ => {}
        };
        let mut at = blocks.start;
        for (part, entry) in self.within(blocks) {
            add(at, part.start);
            if ts.map_or(entry.doubted, |ts| entry.ts < ts) {
                add(part.start, part.end);
            }
            at = part.end;
        }
        add(at, blocks.end);
        older
    }

    /// The write is on the disks of all members: blocks in which it is still the newest are valid (R6).
    pub fn settle(&mut self, blocks: Blocks, ts: Timestamp) {
        if let Some(entry) = self.exactly(blocks) {
            if entry.ts == ts && entry.payload.take().is_some() {
                self.invalid -= 1;
                self.settled.push_back((ts, blocks.start));
            }
            return;
        }
        let parts: Vec<Blocks> = self
            .within(blocks)
            .filter(|(_, entry)| entry.ts == ts && !entry.is_valid())
            .map(|(part, _)| part)
            .collect();
        for part in parts {
            self.split(part.start);
            self.split(part.end);
            let entry = self.entries.get_mut(&part.start).expect("split at its start, which lies in it");
            entry.payload = None;
            self.invalid -= 1;
            self.settled.push_back((ts, part.start));
        }
    }

    /// Notes that `apply` brings the blocks' newest writes to the disk.
    pub fn applying(&mut self, blocks: Blocks, apply: ApplyId) {
        if let Some(entry) = self.exactly(blocks) {
            entry.apply = Some(apply);
            return;
        }
        self.split(blocks.start);
        self.split(blocks.end);
        for (_, entry) in self.entries.range_mut(blocks.start..blocks.end) {
            entry.apply = Some(apply);
        }
    }

    /// The local write has ended; the blocks are the ones that it wrote.
    pub fn applied(&mut self, blocks: Blocks, apply: ApplyId) {
        if let Some(entry) = self.exactly(blocks) {
            entry.apply = entry.apply.filter(|under_way| *under_way != apply);
            return;
        }
        let from = self.first_in(blocks);
        for (_, entry) in self.entries.range_mut(from..blocks.end) {
            if entry.apply == Some(apply) {
                entry.apply = None;
            }
        }
    }

    /// The local writes that must end before everything that the table has for the blocks is on the disk.
    pub fn under_way(&self, blocks: Blocks) -> Vec<ApplyId> {
        if let Some(entry) = self.entries.get(&blocks.start).filter(|entry| entry.end == blocks.end) {
            return Vec::from_iter(entry.apply);
        }
        let mut applies: Vec<ApplyId> = self.within(blocks).filter_map(|(_, entry)| entry.apply).collect();
        applies.sort_unstable();
        applies.dedup();
        applies
    }

    /// Whether every block is valid (R9).
    pub fn is_valid(&self, blocks: Blocks) -> bool {
        self.invalid == 0 || self.within(blocks).all(|(_, entry)| entry.is_valid())
    }

    /// Whether all blocks are valid and no local write to them is under way.
    pub fn is_quiet(&self, blocks: Blocks) -> bool {
        self.within(blocks).all(|(_, entry)| entry.is_valid() && entry.apply.is_none())
    }

    /// A mark for [`Table::unchanged_since`].
    pub fn mark(&self) -> u64 {
        self.serial
    }

    /// Whether no write was taken into the blocks since the mark.
    ///
    /// The answer may be a false no, but never a false yes.
    pub fn unchanged_since(&self, mark: u64, blocks: Blocks) -> bool {
        mark == self.serial
            || self.forgotten <= mark && self.within(blocks).all(|(_, entry)| entry.serial <= mark)
    }

    /// The writes in the blocks that are under way or were taken since the mark; `None` if the table no
    /// longer knows.
    pub fn moving_since(&self, mark: u64, blocks: Blocks) -> Option<Vec<(Blocks, Timestamp)>> {
        let moves = |entry: &Entry| !entry.is_valid() || entry.apply.is_some() || entry.serial > mark;
        let moving =
            self.within(blocks).filter(|(_, entry)| moves(entry)).map(|(part, entry)| (part, entry.ts));
        (self.forgotten <= mark).then(|| moving.collect())
    }

    /// The invalid parts whose writes were taken before the mark, in block order: these writes must be sent
    /// again (R7).
    pub fn invalid_since_before(&self, mark: u64) -> impl Iterator<Item = (Blocks, Timestamp, &Payload)> {
        self.entries.iter().filter(move |(_, entry)| entry.serial <= mark).filter_map(|(start, entry)| {
            let payload = entry.payload.as_ref()?;
            Some((Blocks { start: *start, end: entry.end }, entry.ts, payload))
        })
    }

    /// The least timestamp of an invalid entry.
    pub fn oldest_invalid(&self) -> Option<Timestamp> {
        if self.invalid == 0 {
            return None;
        }
        self.invalid_since_before(u64::MAX).map(|(_, ts, _)| ts).min()
    }

    /// The entries in the blocks, clipped to them.
    pub fn within(&self, blocks: Blocks) -> impl Iterator<Item = (Blocks, &Entry)> {
        self.entries.range(self.first_in(blocks)..blocks.end).filter_map(move |(start, entry)| {
            Some((blocks.intersection(Blocks { start: *start, end: entry.end })?, entry))
        })
    }

    /// The data that invalid entries have for these blocks, in order.
    pub fn invalid_within(&self, blocks: Blocks) -> impl Iterator<Item = (Blocks, Payload)> {
        self.entries.range(self.first_in(blocks)..blocks.end).filter_map(move |(start, entry)| {
            let whole = Blocks { start: *start, end: entry.end };
            let part = blocks.intersection(whole)?;
            Some((part, entry.payload.as_ref()?.part(whole, part, &self.geometry)))
        })
    }

    /// Keeps entries of writes since this mark from now on, for a read that is under way; `None`: there is no
    /// read.
    pub fn remember_since(&mut self, mark: Option<u64>) {
        self.read_since = mark;
    }

    /// Forgets valid entries below `floor`, except for those that a read under way needs.
    ///
    /// Older writes were on the disks of all members before these reported the floor. A write below it that
    /// still arrives is late, and is not taken any more (R15).
    pub fn forget_below(&mut self, floor: Timestamp) {
        self.floor = self.floor.max(Some(floor));
        while let Some((ts, start)) = self.settled.front().copied().filter(|(ts, _)| *ts < floor) {
            match self.entries.get(&start) {
                Some(entry) if entry.ts == ts && entry.is_valid() => {
                    if entry.apply.is_some() {
                        return; // Valid by a sync whose data is still on its way to the disk.
                    }
                    let is_needed = self.read_since.is_some_and(|mark| entry.serial > mark);
                    if is_needed && self.settled.len() <= REMEMBERED_MAX {
                        return;
                    }
                    self.forgotten = self.forgotten.max(entry.serial);
                    let blocks = Blocks { start, end: entry.end };
                    self.entries.remove(&start);
                    if cfg!(debug_assertions) {
                        self.note_dropped(blocks, ts);
                    }
                }
                _ => {} // Overwritten since.
            }
            self.settled.pop_front();
        }
    }

    /// What [`Table::forget_below`] was last called with, or the greatest of these.
    pub fn floor(&self) -> Option<Timestamp> {
        self.floor
    }

    /// Doubts all valid entries older than `ts`.
    ///
    /// Another copy holds such a write or a newer one, whose timestamp it may have forgotten: from now on the
    /// data of that copy counts as newer than the entry. An older write that is sent again does not.
    pub fn doubt_valid_before(&mut self, ts: Timestamp) {
        for entry in self.entries.values_mut() {
            entry.doubted |= entry.is_valid() && entry.ts < ts;
        }
    }

    /// How many entries are invalid, and how many are valid.
    pub fn count(&self) -> (usize, usize) {
        (self.invalid, self.entries.len() - self.invalid)
    }

    /// Whether the table has no entries: all blocks are valid.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The entry of exactly these blocks. Most writes are not split, and finding the borders of other entries
    /// costs three times as much.
    fn exactly(&mut self, blocks: Blocks) -> Option<&mut Entry> {
        self.entries.get_mut(&blocks.start).filter(|entry| entry.end == blocks.end)
    }

    /// Whether no entry touches the blocks.
    fn is_unknown(&self, blocks: Blocks) -> bool {
        self.entries.range(..blocks.end).next_back().is_none_or(|(_, last)| last.end <= blocks.start)
    }

    fn first_in(&self, blocks: Blocks) -> u64 {
        match self.entries.range(..=blocks.start).next_back() {
            Some((start, entry)) if entry.end > blocks.start => *start,
            _ => blocks.start,
        }
    }

    /// Makes `at` a border between entries.
    fn split(&mut self, at: u64) {
        let Some((start, entry)) = self.entries.range_mut(..at).next_back() else { return };
        if entry.end <= at {
            return;
        }
        let (start, whole) = (*start, Blocks { start: *start, end: entry.end });
        let (left, right) = (Blocks { start, end: at }, Blocks { start: at, end: entry.end });
        let mut tail = entry.clone();
        entry.end = at;
        if let Some(payload) = &entry.payload {
            tail.payload = Some(payload.part(whole, right, &self.geometry));
            entry.payload = Some(payload.part(whole, left, &self.geometry));
            self.invalid += 1;
        } else {
            self.settled.push_back((tail.ts, at));
        }
        self.entries.insert(at, tail);
    }

    /// Removes all entries in the blocks.
    fn cut(&mut self, blocks: Blocks) {
        if self.is_unknown(blocks) {
            return;
        }
        self.split(blocks.start);
        self.split(blocks.end);
        let inside: Vec<u64> =
            self.entries.range(blocks.start..blocks.end).map(|(start, _)| *start).collect();
        for start in inside {
            let entry = self.entries.remove(&start).expect("just seen");
            self.invalid -= usize::from(!entry.is_valid());
        }
    }

    /// Makes the blocks one entry, with the present serial.
    fn put(&mut self, blocks: Blocks, ts: Timestamp, payload: Option<Payload>) {
        self.cut(blocks);
        self.invalid += usize::from(payload.is_some());
        let entry = Entry { end: blocks.end, ts, payload, apply: None, serial: self.serial, doubted: false };
        self.entries.insert(blocks.start, entry);
    }

    fn note_dropped(&mut self, blocks: Blocks, ts: Timestamp) {
        let geometry = self.geometry;
        let dropped = self.dropped.get_or_insert_with(|| Box::new(Table::new(geometry)));
        dropped.take_over(blocks, ts);
        // Entries of this table are only forgotten together with it.
        dropped.settled.clear();
    }

    /// A9: all of these blocks have held the write that is not taken because it is below the floor, or
    /// something newer.
    fn check_was_here(&self, blocks: &[Blocks], ts: Timestamp) {
        if !cfg!(debug_assertions) {
            return;
        }
        for part in blocks {
            let was_here = |dropped: &Table| dropped.older_than(*part, Some(ts)).is_empty();
            assert!(
                self.dropped.as_deref().is_some_and(was_here),
                "{ts} is late and not taken, and was never in all of {part:?} (A9)"
            );
        }
    }

    /// Whether a newer write was forgotten somewhere in the blocks, and no other was taken there since.
    #[cfg(test)]
    pub fn has_forgotten_newer(&self, blocks: Blocks, ts: Timestamp) -> bool {
        self.dropped.iter().any(|dropped| dropped.within(blocks).any(|(_, entry)| entry.ts > ts))
    }

    /// Asserts the table's invariants.
    #[cfg(test)]
    pub fn check(&self) {
        let mut at = 0;
        for (start, entry) in &self.entries {
            assert!(*start >= at && entry.end > *start, "entries overlap at block {start}");
            at = entry.end;
        }
        assert!(at <= self.geometry.blocks);
        assert_eq!(self.invalid, self.entries.values().filter(|entry| !entry.is_valid()).count());
    }
}

#[cfg(test)]
mod tests;
