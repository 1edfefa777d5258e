//! Writing: requests become records, and completed records become changes.
//!
//! All requests that arrive in one turn of the core form one record. The next record gathers while records
//! are under way, of which there are a few at most. There is no timer, so at queue depth 1 nothing waits. A
//! record is one device write, with FUA if anything in it must be durable. When it has completed, its changes
//! go into the table, and its requests end.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use base::{Chain, SharedBuf};
use rt::sync::oneshot;
use rt::{DiskError, Durability};

use super::changes::{Changes, Move};
use super::leaf::Era;
use super::marks::{Mark, Restore, Standing};
use super::place::{Place, SLOT_BYTES, Size, Stored};
use super::queue::{Item, Request, Taken, Ticket};
use super::record::{
    DATA_SLOTS_MAX, ENTRIES_MAX, Entry, Head, Layout, Stream, What, arrange, data_slots, in_a_row,
};
use super::segment::{Kind, Open};
use super::space::RESERVE;
use super::{Inner, LogTuning, Phase, Running, Usage};
use crate::canary::{Canary, makes};
use crate::error::SliceError;

/// Records of hosts that may be under way at once.
///
/// That is 20 MiB at most, which keeps a fast disk busy. Requests that arrive meanwhile share the next
/// record.
const RECORDS_MAX: usize = 32;

/// After being idle for this long, a log writes a record which says that its newest records are durable.
pub(super) const SAY_AFTER: Duration = Duration::from_secs(1);

/// A record on its way to the disk.
pub(super) struct Record {
    head: Head,
    bytes: Chain,
    durability: Durability,
    tickets: Vec<(Rc<Ticket>, usize)>,
}

/// A live block that the cleaner moves.
pub(super) struct Survivor {
    pub branch: u32,
    /// The era in which the block was written, as its record says.
    pub era: u32,
    pub block: u64,
    pub from: Place,
    /// The generation of the segment that the block comes from.
    pub generation: u64,
    pub crc: u32,
    /// As it is stored; what is compressed stays compressed.
    pub data: SharedBuf,
}

impl Running {
    /// Whether the changes of a record belong to the frozen table.
    pub(super) fn is_of_frozen(&self, sequence: u64) -> bool {
        self.frozen.is_some() && sequence < self.frozen_below
    }

    fn table(&mut self, sequence: u64) -> &mut Changes {
        let is_late = self.is_of_frozen(sequence);
        match &mut self.frozen {
            Some(frozen) if is_late => frozen,
            _ => &mut self.active,
        }
    }

    /// Applies the entries of a completed record.
    pub(super) fn apply(&mut self, sequence: u64, head: Place, entries: &[Entry]) {
        let mut layout = Layout::new(entries.len());
        let mut dead = Vec::new();
        for run in entries.chunk_by(Entry::is_followed_by) {
            let Entry { branch, era, block, what } = run[0];
            // The snapshot may have been removed since the record was made.
            let known = Era::new(branch, self.marks.known(branch, era));
            match what {
                What::Block { size, .. } => {
                    let at = head.behind(layout.take(size, run.len()), size);
                    let (slots, crcs) = (at.run(run.len() as u16), run.iter().filter_map(Entry::crc));
                    self.segments.set(slots);
                    self.count_replaced(sequence, branch, block, run.len() as u64);
                    self.add_used(branch, Usage::of(slots));
                    self.table(sequence).write(known, block, at, crcs, &mut dead);
                }
                What::Zeros { count } => {
                    self.zeroed += count;
                    self.count_replaced(sequence, branch, block, count);
                    self.table(sequence).zero(known, block, count, &mut dead);
                }
                What::Moved { crc, from } => {
                    let at = head.behind(layout.take(from.size(), 1), from.size());
                    self.segments.set(at.run(1));
                    let moved = Move { from, to: Stored { place: at, crc }, sequence };
                    let written = Era::new(branch, era);
                    if let Some(earlier) = self.table(sequence).moved(written, block, moved) {
                        self.segments.clear(earlier.run(1));
                    }
                }
                What::Taken { snapshot } => {
                    let mark = Mark { era, id: snapshot, time: block, standing: Standing::Kept };
                    self.marks.taken(branch, mark);
                }
                What::Deleted { .. } => self.marks.delete(Era::new(branch, era)),
                What::Restored { restore } => {
                    self.marks.restored(branch, Restore { era, id: restore, to: block as u32 });
                }
            }
            // The map never named these slots, and their segments are recent, so nothing depends on them.
            for slots in dead.drain(..) {
                self.segments.clear(slots);
                self.forget(branch, Usage::of(slots));
            }
        }
        if let Some(used) = self.segments.used.get_mut(&head.segment) {
            used.newest = used.newest.max(sequence);
        }
    }

    /// Takes slots at the end of a stream for a record, and numbers the record.
    fn head(&mut self, stream: Stream, entries: Vec<Entry>) -> Option<Head> {
        let slots = 1 + data_slots(&entries) as u16;
        let (durable_below, root) = (self.append.durable_below(), self.root);
        let open = match stream {
            Stream::Hosts => self.segments.hosts.as_mut(),
            Stream::Survivors => self.segments.survivors.as_mut(),
        }?;
        let place = Place::new(open.segment, open.next);
        let generation = open.generation;
        open.next += slots;
        let sequence = self.append.next;
        self.append.next += 1;
        self.append.in_flight.insert(sequence);
        self.since_freeze += u64::from(slots) * SLOT_BYTES as u64;
        self.written += u64::from(slots) * SLOT_BYTES as u64;
        if stream == Stream::Survivors {
            self.written_moved += u64::from(slots - 1) * SLOT_BYTES as u64;
        }
        if let Some(used) = self.segments.used.get_mut(&place.segment) {
            used.newest = sequence;
        }
        if stream == Stream::Hosts && self.segments.rest(self.segments.hosts) == 0 {
            self.segments.seal_hosts();
        }
        Some(Head { stream, generation, sequence, durable_below, root, place, entries })
    }

    /// Continues a stream in the next announced segment.
    pub(super) fn open_next(&mut self, stream: Stream) -> bool {
        let Some((segment, generation)) = self.segments.ready.pop_front() else { return false };
        let open = self.segments.begin(segment, generation, Kind::Data);
        let slot: &mut Option<Open> = match stream {
            Stream::Hosts => &mut self.segments.hosts,
            Stream::Survivors => &mut self.segments.survivors,
        };
        if let Some(full) = slot.replace(open) {
            self.segments.seal(full.segment);
        }
        self.stock_changed = true;
        self.exhausted = false;
        true
    }

    /// Builds the next record of hosts from as many waiting requests as there is room for.
    ///
    /// `None`: nothing waits, or there is no room.
    fn next_record(&mut self, tuning: &LogTuning) -> Option<(Head, Taken)> {
        let entries_left = self.entries_left(self.changes_max(tuning));
        let bounded = entries_left > 0 && self.since_freeze < self.replay_bytes() && self.keeps_pace();
        let may_write = self.may_write_data() && !self.gathers() && !self.is_kept_for_control();
        let wants_data = self.append.has_data() && bounded && may_write;
        let room = self.segments.rest(self.segments.hosts);
        let needed = if wants_data { 2 } else { 1 };
        if !wants_data && !self.append.has_control() && !self.append.word {
            return None;
        }
        if room < needed && !self.open_for_hosts(wants_data) {
            // Requests without data may still fit, or may use a segment that data may not.
            if !wants_data || !self.append.has_control() || room == 0 && !self.open_for_hosts(false) {
                return None;
            }
        }
        let room = self.segments.rest(self.segments.hosts);
        let data_max = match wants_data {
            true => (room as usize - 1).min(DATA_SLOTS_MAX).min(self.data_slots_left()),
            false => 0,
        };
        // Zeros are not limited by the room in the table, nor in the log: they are few, and merging makes
        // room for them.
        let mut taken = Taken::with_room(ENTRIES_MAX, entries_left, data_max);
        taken.take(&mut self.append.control);
        if taken.has_room_for_data() {
            taken.take(&mut self.append.data);
        }
        if taken.entries.is_empty() && !self.append.word {
            return None;
        }
        taken.durable |= std::mem::take(&mut self.append.word);
        // Not that of the branch, which goes back when deleted snapshots are removed. A recovery may still
        // know those, and would put what is written now before what was written in their eras.
        let era = self.marks.newest();
        if era > 0 {
            for entry in taken.entries.iter_mut().filter(|entry| !entry.is_of_snapshot()) {
                entry.era = era;
            }
        }
        arrange(&mut taken.entries, &mut taken.data);
        let blocks = taken.entries.iter().filter(|entry| entry.has_data()).count() as u64;
        if self.is_paced() {
            // The credit may become negative, within `DEBT_SLOTS_MAX`: later requests wait until that has
            // been earned, too.
            self.credit -= 1 + data_slots(&taken.entries) as i64;
        }
        let head = self.head(Stream::Hosts, std::mem::take(&mut taken.entries))?;
        if !head.entries.is_empty() {
            self.append.newest = head.sequence;
        }
        self.append.records += 1;
        self.written_by_hosts += blocks * SLOT_BYTES as u64;
        Some((head, taken))
    }

    fn open_for_hosts(&mut self, data: bool) -> bool {
        let is_from_reserve = !data && self.segments.ready.len() <= RESERVE;
        let opens = self.may_open_for_hosts(data) && self.open_next(Stream::Hosts);
        assert!(!(opens && data) || self.segments.ready.len() >= RESERVE, "hosts' data takes the reserve");
        if opens {
            self.segments.hosts_from_reserve = is_from_reserve;
        }
        opens
    }

    /// How many entries the table has room for.
    fn entries_left(&self, changes_max: usize) -> usize {
        let under_way = self.append.in_flight.len() * ENTRIES_MAX / 2;
        let frozen = self.frozen.as_ref().map_or(0, Changes::len);
        changes_max.saturating_sub(self.active.len() + frozen + under_way)
    }
}

impl Inner {
    /// Writes blocks and zeroes ranges. Returns when all their records have ended, whether or not one failed.
    pub(super) async fn append(
        self: &Rc<Inner>,
        branch: u32,
        items: Vec<Item>,
        durable: bool,
    ) -> Result<(), SliceError> {
        if items.is_empty() {
            return Ok(());
        }
        let (reply, result) = oneshot();
        let left = Cell::new(items.iter().map(Item::entries).sum());
        let ticket = Rc::new(Ticket { left, failed: Cell::new(None), reply: Cell::new(Some(reply)) });
        let request = Request { branch, items: items.into(), durable, ticket };
        let quarters = request.quarters();
        if quarters > 0 {
            self.admit(branch, quarters).await?;
        }
        {
            let mut state = self.state.borrow_mut();
            let queue = if quarters > 0 { &mut state.append.data } else { &mut state.append.control };
            queue.push_back(request);
        }
        self.pump();
        result.await.unwrap_or(Err(SliceError::Offline))
    }

    /// Schedules the making of records from waiting requests: in this turn of the core, after its other
    /// tasks.
    pub(super) fn pump(self: &Rc<Inner>) {
        if std::mem::replace(&mut self.state.borrow_mut().append.pumping, true) {
            return;
        }
        let inner = Rc::clone(self);
        rt::spawn(async move {
            inner.state.borrow_mut().append.pumping = false;
            inner.make_records();
        })
        .detach();
    }

    fn make_records(self: &Rc<Inner>) {
        if self.phase.get() == Phase::Failed || self.closing.get() {
            self.refuse_waiting();
            return;
        }
        while self.goes_on() {
            let next = {
                let mut state = self.state.borrow_mut();
                if state.append.records >= RECORDS_MAX {
                    return;
                }
                state.next_record(&self.handle.tuning)
            };
            let Some((head, Taken { data, tickets, durable, .. })) = next else { break };
            let bytes = in_a_row(&head, data);
            let is_durable = durable && !makes(Canary::RecordCached);
            let durability = if is_durable { Durability::Durable } else { Durability::Cached };
            let inner = Rc::clone(self);
            rt::spawn(async move { inner.write_record(Record { head, bytes, durability, tickets }).await })
                .detach();
        }
        self.tend();
        self.unstick();
    }

    async fn write_record(self: Rc<Inner>, record: Record) {
        let Record { head, bytes, durability, tickets } = record;
        let result = self.write_at(head.place, bytes, durability).await;
        let quarters: u32 = head.entries.iter().filter_map(Entry::size).map(Size::quarters).sum();
        {
            let mut state = self.state.borrow_mut();
            state.append.records -= 1;
            state.append.expected -= u64::from(quarters);
            if result.is_ok() {
                state.append.completed(&head, durability == Durability::Durable);
                state.apply(head.sequence, head.place, &head.entries);
            } else {
                state.append.is_void(head.sequence);
            }
        }
        let mut told = None;
        for entry in &head.entries {
            if told.replace(entry.branch) != Some(entry.branch) {
                self.tell_used(entry.branch);
            }
        }
        self.tell_needed();
        let result = result.map_err(|error| self.write_failed(&error));
        tickets.into_iter().for_each(|(ticket, entries)| ticket.done(entries, result));
        self.changed.notify();
        self.say_durable_soon();
        self.merge_at_rest();
        self.pump();
    }

    /// Schedules a record that says which records are durable, for when the log is idle.
    ///
    /// Each record says this of those before it; nothing says it of the last ones. If the disk could not read
    /// those after a crash, they would count as not written, and older blocks would reappear.
    fn say_durable_soon(self: &Rc<Inner>) {
        {
            let append = &mut self.state.borrow_mut().append;
            if append.saying || !append.is_unsaid() {
                return;
            }
            append.saying = true;
        }
        let inner = Rc::downgrade(self);
        rt::spawn(async move {
            rt::sleep(SAY_AFTER).await;
            let Some(inner) = inner.upgrade() else { return };
            let is_idle = {
                let append = &mut inner.state.borrow_mut().append;
                append.saying = false;
                append.word = append.is_idle() && append.is_unsaid();
                append.is_idle()
            };
            if is_idle {
                inner.pump();
            } else {
                inner.say_durable_soon();
            }
        })
        .detach();
    }

    /// Builds one record of blocks that the cleaner moves. The segment has room for it.
    pub(super) fn survivors_record(&self, survivors: Vec<Survivor>) -> Option<(Head, Chain)> {
        let entry = |survivor: &Survivor| {
            let what = What::Moved { crc: survivor.crc, from: survivor.from };
            Entry { branch: survivor.branch, era: survivor.era, block: survivor.block, what }
        };
        debug_assert!(
            survivors.iter().all(|survivor| self.state.borrow().is_in_place(survivor)),
            "a move of a block that has been overwritten"
        );
        let mut entries: Vec<Entry> = survivors.iter().map(entry).collect();
        let stored = |survivor: Survivor| (survivor.from.size(), survivor.data);
        let mut data = survivors.into_iter().map(stored).collect();
        arrange(&mut entries, &mut data);
        let head = self.state.borrow_mut().head(Stream::Survivors, entries)?;
        let bytes = in_a_row(&head, data);
        Some((head, bytes))
    }

    /// Writes a record that [`Inner::survivors_record`] has built.
    pub(super) async fn write_survivors(&self, (head, bytes): (Head, Chain)) -> Result<(), SliceError> {
        let result = self.write_at(head.place, bytes, Durability::Cached).await;
        {
            let mut state = self.state.borrow_mut();
            if result.is_ok() {
                state.append.completed(&head, false);
                state.apply(head.sequence, head.place, &head.entries);
            } else {
                state.append.is_void(head.sequence);
            }
        }
        self.changed.notify();
        result.map_err(|error| self.write_failed(&error))
    }

    /// Writes whole slots of a segment from `place` on.
    pub(super) async fn write_at(
        &self,
        place: Place,
        bytes: impl Into<Chain>,
        durability: Durability,
    ) -> Result<(), DiskError> {
        let bytes = bytes.into();
        let range = || DiskError::Range { offset: u64::from(place.segment), len: bytes.len() as u64 };
        let (disk, _, at) = self.locate(place).ok_or_else(range)?;
        disk.write(at, bytes, durability).await
    }

    /// Handles a record that could not be written.
    ///
    /// If there was no space, the number of the record stays open until the next root. After any other error
    /// it is unknown what the disk holds.
    fn write_failed(&self, error: &DiskError) -> SliceError {
        match error {
            DiskError::Full => SliceError::Full,
            DiskError::Latched => {
                self.fail("a write", error);
                SliceError::Offline
            }
            DiskError::ReadOnly | DiskError::Range { .. } | DiskError::Media(_) => {
                self.fail("a write", error);
                SliceError::Unwritable
            }
        }
    }

    /// Makes all completed records durable.
    pub(super) async fn flush(self: &Rc<Inner>) -> Result<(), SliceError> {
        if self.phase.get() == Phase::Failed {
            return Err(SliceError::Offline);
        }
        let flush = self.state.borrow_mut().append.begin_flush();
        for disk in self.own_disks() {
            if let Err(error) = disk.flush().await {
                self.fail("a flush", &error);
                return Err(if matches!(error, DiskError::Latched) {
                    SliceError::Offline
                } else {
                    SliceError::Unwritable
                });
            }
        }
        self.state.borrow_mut().append.end_flush(flush);
        self.say_durable_soon();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use base::{Buf, ByteLen};

    use super::super::LogMemory;
    use super::super::pace::DEBT_SLOTS_MAX;
    use super::super::segment::Zone;
    use super::super::tests::without_pool;
    use super::*;
    use crate::canary::make;

    /// A log with one open segment of 1 MiB, and no other.
    fn running() -> Running {
        let mut state = without_pool(20, LogMemory::new(ByteLen(1 << 30)));
        state.segments.add_zone(0, Zone { disk: 0, offset: 0, leaving: false });
        state.segments.free.clear();
        state.segments.hosts = Some(state.segments.begin(0, 7, Kind::Data));
        state
    }

    /// Where the result of this many entries goes.
    fn ticket(entries: usize) -> Rc<Ticket> {
        let (reply, _result) = oneshot();
        let (left, failed, reply) = (Cell::new(entries), Cell::new(None), Cell::new(Some(reply)));
        Rc::new(Ticket { left, failed, reply })
    }

    /// A write of this many blocks waits for a record.
    fn wait(state: &mut Running, blocks: usize) {
        let ticket = ticket(blocks);
        let data = Buf::zeroed(blocks * SLOT_BYTES).share();
        let first = 10_000 * state.append.next + 1000 * state.append.data.len() as u64;
        let item = Item::Blocks { first, size: Size::Whole, data, crcs: vec![0; blocks] };
        state.append.data.push_back(Request { branch: 1, items: [item].into(), durable: true, ticket });
    }

    /// The number of blocks of the next record.
    fn next(state: &mut Running) -> Option<usize> {
        state.next_record(&LogTuning::default()).map(|(head, _)| head.entries.len())
    }

    /// Before, a record could owe 160 slots, and the next write waited for as many steps of the cleaner.
    #[test]
    fn a_write_waits_for_a_bounded_number_of_steps_of_the_cleaner() {
        let mut state = running();
        (state.cleaning, state.credit) = (true, 1);
        wait(&mut state, 150);
        while state.append.has_data() {
            let mut steps = 0;
            while !state.may_write_data() {
                assert_eq!(next(&mut state), None);
                // A step that gains next to nothing.
                state.earn(0);
                steps += 1;
            }
            assert!(steps <= DEBT_SLOTS_MAX + 1, "{steps}");
            let blocks = next(&mut state).unwrap();
            assert!(blocks <= DEBT_SLOTS_MAX, "{blocks}");
        }
        // Who has earned more writes it at once.
        let mut state = running();
        (state.cleaning, state.credit) = (true, 100);
        wait(&mut state, 150);
        assert_eq!((next(&mut state), next(&mut state)), (Some(100), None));
        assert_eq!(state.credit, -1);
    }

    /// Before, they did when a deleted snapshot was removed. If the power failed before the next root was
    /// durable, what was written since was replayed as if it came before what the snapshot's era had.
    #[test]
    fn eras_of_records_never_go_back() {
        let mut state = running();
        let era_of_next = |state: &mut Running| {
            wait(state, 1);
            let (head, _) = state.next_record(&LogTuning::default()).unwrap();
            head.entries[0].era
        };
        assert_eq!(era_of_next(&mut state), 0);
        let era = state.marks.begin(1, 9, 0);
        assert_eq!(era_of_next(&mut state), era);
        state.marks.delete(Era::new(1, era));
        state.marks.remove(|_, mark| mark.standing == Standing::Deleted);
        assert!(state.marks.is_empty());
        assert_eq!(era_of_next(&mut state), era);
        // For the running log it is the same.
        assert_eq!(state.marks.known(1, era), 0);
    }

    #[test]
    fn small_records_wait_for_more_blocks_while_the_cleaner_works() {
        let mut state = running();
        (state.cleaning, state.credit) = (true, 1000);
        for _ in 0..2 {
            wait(&mut state, 1);
            assert_eq!(next(&mut state), Some(1));
        }
        wait(&mut state, 1);
        assert_eq!(next(&mut state), None, "two are under way");
        wait(&mut state, 15);
        assert_eq!(next(&mut state), Some(16));
        wait(&mut state, 1);
        assert_eq!(next(&mut state), None);
        state.append.records = 1;
        assert_eq!(next(&mut state), Some(1), "of those under way, two have ended");
        wait(&mut state, 1);
        state.cleaning = false;
        assert_eq!(next(&mut state), Some(1));
        assert!(state.append.records >= 2);
        (state.cleaning, state.segments.free) = (true, (1..16).collect());
        wait(&mut state, 1);
        assert_eq!(next(&mut state), Some(1), "no segments are short: it empties a zone");
    }

    /// An UNMAP waits for a record.
    fn unmap(state: &mut Running) {
        let items = [Item::Zeros { block: 0, count: 1 }].into();
        state.append.control.push_back(Request { branch: 1, items, durable: true, ticket: ticket(1) });
    }

    /// However much data waits, UNMAP gets a segment, and so does the cleaner.
    #[test]
    fn data_leaves_the_last_segments_to_others() {
        let mut state = running();
        state.segments.ready = (1..=RESERVE as u32 + 2).map(|segment| (segment, 7)).collect();
        wait(&mut state, 300);
        while next(&mut state).is_some() {
            // They have been written.
            state.append.in_flight.clear();
            wait(&mut state, 300);
        }
        state.segments.seal_hosts();
        assert_eq!(next(&mut state), None);
        unmap(&mut state);
        assert!(next(&mut state).is_some() && !state.append.has_control());
        assert!(state.may_open_for_survivors() && state.open_next(Stream::Survivors));
    }

    /// Before, data filled the segment that UNMAP had got from the reserve, and the next UNMAP found none.
    #[test]
    fn data_does_not_follow_unmap_into_the_reserve() {
        let mut state = running();
        state.segments.seal_hosts();
        state.segments.ready = (1..=RESERVE as u32).map(|segment| (segment, 7)).collect();
        unmap(&mut state);
        assert_eq!(next(&mut state), Some(1));
        wait(&mut state, 9);
        assert_eq!(next(&mut state), None);
        unmap(&mut state);
        assert_eq!(next(&mut state), Some(1), "the UNMAP only");
        assert!(state.append.has_data());
        // A root has announced another one, so that the reserve is whole.
        state.segments.ready.push_back((9, 7));
        assert_eq!(next(&mut state), Some(9));
    }

    /// Whole logs show it too rarely: they let hosts write no faster than the cleaner gains segments.
    #[test]
    fn a_reserve_that_hosts_get_is_noticed() {
        make(Some(Canary::ReserveToHosts));
        let noticed = std::panic::catch_unwind(data_leaves_the_last_segments_to_others).is_err();
        make(None);
        assert!(noticed);
    }
}
