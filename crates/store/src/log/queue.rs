//! Requests that wait for a record, and the records that are under way.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

use base::SharedBuf;
use rt::sync::Sender;

use super::place::{SLOT_QUARTERS, Size};
use super::record::{Entry, Head, StoredRun, What};
use crate::error::SliceError;

/// Requests that wait for a record.
pub(super) type Queue = VecDeque<Request>;

/// A part of a request.
pub(super) enum Item {
    /// Consecutive blocks that take the same room, as they are to be stored, one after the other in memory,
    /// and the checksum of each.
    Blocks { first: u64, size: Size, data: SharedBuf, crcs: Vec<u32> },
    /// Blocks that must read as zeros.
    Zeros { block: u64, count: u64 },
    /// What happened to a snapshot, or a restore: its entry, without the branch.
    Snapshot { era: u32, time: u64, what: What },
}

impl Item {
    /// How many entries of records it takes.
    pub(super) fn entries(&self) -> usize {
        match self {
            Item::Blocks { crcs, .. } => crcs.len(),
            Item::Zeros { .. } | Item::Snapshot { .. } => 1,
        }
    }

    /// How much room its blocks take.
    fn quarters(&self) -> u64 {
        match self {
            Item::Blocks { size, crcs, .. } => crcs.len() as u64 * u64::from(size.quarters()),
            Item::Zeros { .. } | Item::Snapshot { .. } => 0,
        }
    }
}

/// A request that waits for a record.
pub(super) struct Request {
    pub(super) branch: u32,
    pub(super) items: VecDeque<Item>,
    pub(super) durable: bool,
    pub(super) ticket: Rc<Ticket>,
}

/// Where to send the result of a request.
pub(super) struct Ticket {
    /// Entries whose records have not ended.
    pub(super) left: Cell<usize>,
    /// The first error of one that has.
    pub(super) failed: Cell<Option<SliceError>>,
    pub(super) reply: Cell<Option<Sender<Result<(), SliceError>>>>,
}

impl Ticket {
    /// Some entries have ended, with this result. The request ends with the last one, even if others failed.
    ///
    /// Whoever made the request keeps others from the blocks until then. What is still on its way, or in the
    /// queue, takes effect: if a later UNMAP came first, it would bring back what that has removed.
    pub(super) fn done(&self, entries: usize, result: Result<(), SliceError>) {
        self.left.set(self.left.get() - entries);
        self.failed.set(self.failed.get().or(result.err()));
        let has_ended = self.left.get() == 0;
        if let Some(reply) = has_ended.then(|| self.reply.take()).flatten() {
            reply.send(self.failed.get().map_or(Ok(()), Err));
        }
    }
}

impl Request {
    pub(super) fn fail(self, error: SliceError) {
        self.ticket.done(self.items.iter().map(Item::entries).sum(), Err(error));
    }

    /// How much room the blocks take that are not in a record yet.
    pub(super) fn quarters(&self) -> u64 {
        self.items.iter().map(Item::quarters).sum()
    }
}

/// The state of writing.
#[derive(Default)]
pub(super) struct Append {
    /// Requests with data.
    pub(super) data: Queue,
    /// Requests without data: they find room when data finds none.
    pub(super) control: Queue,
    /// A task is about to make records.
    pub(super) pumping: bool,
    pub(super) next: u64,
    /// The newest record of hosts that has entries.
    pub(super) newest: u64,
    /// Records that are under way.
    pub(super) in_flight: BTreeSet<u64>,
    /// Records that found no space in the file system since the last root: they may be missing after a crash.
    pub(super) void: BTreeSet<u64>,
    /// How many records of hosts are under way.
    pub(super) records: usize,
    /// The oldest record that has completed and has not been flushed since.
    pub(super) unsure: Option<u64>,
    /// The same for records that flushes under way cover, by the number of the flush.
    pub(super) flushing: BTreeMap<u64, u64>,
    pub(super) flushes: u64,
    /// Quarters of slots for blocks that were admitted, and whose records have not completed.
    pub(super) expected: u64,
    /// A durable head or root says that all records with smaller numbers are durable.
    pub(super) said: u64,
    /// A task waits to write a record that says more.
    pub(super) saying: bool,
    /// The next record is made for what its head says, even if no request waits.
    pub(super) word: bool,
    /// A task waits for hosts to leave the log alone, to merge what they have written.
    pub(super) resting: bool,
}

impl Append {
    /// Removes all waiting requests.
    pub(super) fn take_all(&mut self) -> Vec<Request> {
        let mut all = self.take_data();
        all.extend(self.control.drain(..));
        all
    }

    /// Removes the waiting requests that have data.
    pub(super) fn take_data(&mut self) -> Vec<Request> {
        self.expected -= self.data.iter().map(Request::quarters).sum::<u64>();
        self.data.drain(..).collect()
    }

    /// Takes note that a root covers all records below `sequence`.
    pub(super) fn rooted(&mut self, sequence: u64) {
        self.said = self.said.max(sequence);
        self.void.retain(|void| *void >= sequence);
    }

    /// How many entries of requests with data wait for a record; no more are counted than decide whether they
    /// are at least `most`.
    pub(super) fn waiting_entries(&self, most: usize) -> usize {
        let mut waiting = 0;
        for request in &self.data {
            waiting += request.items.iter().map(Item::entries).sum::<usize>();
            if waiting >= most {
                break;
            }
        }
        waiting
    }

    /// Whether requests of a branch wait.
    pub(super) fn has_of(&self, branch: u32) -> bool {
        self.control.iter().chain(&self.data).any(|request| request.branch == branch)
    }

    pub(super) fn has_data(&self) -> bool {
        !self.data.is_empty()
    }

    pub(super) fn is_idle(&self) -> bool {
        self.data.is_empty() && self.control.is_empty() && self.records == 0
    }

    pub(super) fn has_control(&self) -> bool {
        !self.control.is_empty()
    }

    /// All records with smaller numbers are known to be durable.
    pub(super) fn durable_below(&self) -> u64 {
        let under_way = [self.in_flight.first(), self.void.first()];
        let oldest = under_way.into_iter().chain([self.unsure.as_ref(), self.flushing.values().min()]);
        oldest.flatten().copied().min().unwrap_or(self.next)
    }

    /// Whether records are known to be durable, and a recovery would not know it.
    pub(super) fn is_unsaid(&self) -> bool {
        self.durable_below() > self.said
    }

    /// Begins a flush: it covers the records that have completed.
    pub(super) fn begin_flush(&mut self) -> u64 {
        self.flushes += 1;
        if let Some(unsure) = self.unsure.take() {
            self.flushing.insert(self.flushes, unsure);
        }
        self.flushes
    }

    pub(super) fn end_flush(&mut self, flush: u64) {
        self.flushing.remove(&flush);
    }

    /// Takes note of a record that found no space, or whose disk failed.
    pub(super) fn is_void(&mut self, sequence: u64) {
        self.in_flight.remove(&sequence);
        self.void.insert(sequence);
    }

    /// Takes note of a record that has completed.
    pub(super) fn completed(&mut self, head: &Head, durable: bool) {
        let sequence = head.sequence;
        self.in_flight.remove(&sequence);
        if !durable {
            self.unsure = Some(self.unsure.map_or(sequence, |unsure| unsure.min(sequence)));
            return;
        }
        // A record without entries changes nothing, so it may count as durable itself.
        let itself = u64::from(head.entries.is_empty() && head.durable_below == sequence);
        self.said = self.said.max(head.durable_below + itself);
    }
}

/// The contents of a record.
#[derive(Default)]
pub(super) struct Taken {
    pub(super) entries: Vec<Entry>,
    /// The blocks of the entries, in the same order.
    pub(super) data: Vec<StoredRun>,
    pub(super) tickets: Vec<(Rc<Ticket>, usize)>,
    pub(super) durable: bool,
    /// How many more entries fit, how many of them may have data, and how many quarters of slots there are
    /// for that. (The rest of the head's own slot is not counted.)
    left: usize,
    data_left: usize,
    quarters_left: usize,
}

impl Taken {
    /// Nothing yet. There is room for this many entries, of which some may have data, in so many slots.
    pub(super) fn with_room(left: usize, data_left: usize, slots: usize) -> Taken {
        Taken { left, data_left, quarters_left: slots * SLOT_QUARTERS as usize, ..Taken::default() }
    }

    pub(super) fn has_room_for_data(&self) -> bool {
        self.data_left > 0 && self.quarters_left > 0
    }

    /// Takes what fits from the queue, in order. Entries of blocks get their era from whoever makes the
    /// record.
    pub(super) fn take(&mut self, queue: &mut Queue) {
        while let Some(request) = queue.front_mut() {
            let before = self.entries.len();
            while let Some(item) = request.items.pop_front() {
                if let Some(rest) = self.take_item(request.branch, item) {
                    request.items.push_front(rest);
                    break;
                }
            }
            let taken = self.entries.len() - before;
            if taken > 0 {
                self.durable |= request.durable;
                self.tickets.push((Rc::clone(&request.ticket), taken));
            }
            if !request.items.is_empty() {
                return;
            }
            queue.pop_front();
        }
    }

    /// Takes what fits of an item. Returns the rest.
    fn take_item(&mut self, branch: u32, item: Item) -> Option<Item> {
        match item {
            Item::Blocks { first, size, data, mut crcs } => {
                let quarters = size.quarters() as usize;
                let most = self.left.min(self.data_left).min(self.quarters_left / quarters);
                let count = crcs.len().min(most);
                if count > 0 {
                    let what = |crc| What::Block { crc, size };
                    let entry = |(block, crc)| Entry { branch, era: 0, block, what: what(crc) };
                    self.entries.extend((first..).zip(crcs.drain(..count)).map(entry));
                    self.data.push((size, data.slice(0..count * size.bytes())));
                }
                self.left -= count;
                self.data_left -= count;
                self.quarters_left -= count * quarters;
                let (first, data) = (first + count as u64, data.slice(count * size.bytes()..data.len()));
                (!crcs.is_empty()).then_some(Item::Blocks { first, size, data, crcs })
            }
            Item::Zeros { block, count } if self.left > 0 => {
                self.entries.push(Entry { branch, era: 0, block, what: What::Zeros { count } });
                self.left -= 1;
                None
            }
            Item::Snapshot { era, time, what } if self.left > 0 => {
                self.entries.push(Entry { branch, era, block: time, what });
                self.left -= 1;
                None
            }
            rest @ (Item::Zeros { .. } | Item::Snapshot { .. }) => Some(rest),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::task::{Context, Poll, Waker};

    use base::Buf;
    use rt::sync::oneshot;

    use super::super::place::SLOT_BYTES;
    use super::*;

    /// Once, a request ended with its first failed record. What was left of it in the queue was written
    /// later, behind an UNMAP of the same blocks.
    #[test]
    fn a_request_ends_with_its_last_record_though_another_one_failed() {
        let (reply, mut result) = oneshot();
        let ticket = Ticket { left: Cell::new(3), failed: Cell::new(None), reply: Cell::new(Some(reply)) };
        let mut ended = || Pin::new(&mut result).poll(&mut Context::from_waker(Waker::noop()));
        ticket.done(1, Err(SliceError::Full));
        assert!(ended().is_pending());
        ticket.done(1, Ok(()));
        assert!(ended().is_pending());
        ticket.done(1, Err(SliceError::Offline));
        assert!(matches!(ended(), Poll::Ready(Ok(Err(SliceError::Full)))));
    }

    #[test]
    fn a_run_is_split_where_a_record_is_full() {
        let bytes: Vec<u8> = (0..5u8).flat_map(|number| [number; SLOT_BYTES]).collect();
        let data = Buf::copy_of(&bytes).share();
        let items = [
            Item::Blocks { first: 10, size: Size::Whole, data, crcs: (110..115).collect() },
            Item::Zeros { block: 20, count: 9 },
        ];
        let (reply, _result) = oneshot();
        let (left, failed, reply) = (Cell::new(6), Cell::new(None), Cell::new(Some(reply)));
        let ticket = Rc::new(Ticket { left, failed, reply });
        let request = Request { branch: 1, items: items.into(), durable: true, ticket: Rc::clone(&ticket) };
        assert_eq!(request.quarters(), 20);
        let mut queue = Queue::from([request]);
        for (left, slots, blocks) in [(2, 9, 10..12), (9, 1, 12..13), (2, 9, 13..15)] {
            let mut taken = Taken::with_room(left, 9, slots);
            taken.take(&mut queue);
            let entry = |block: u64| {
                let what = What::Block { crc: 100 + block as u32, size: Size::Whole };
                Entry { branch: 1, era: 0, block, what }
            };
            assert_eq!(taken.entries, blocks.clone().map(entry).collect::<Vec<Entry>>());
            let found: Vec<u8> = taken.data.iter().flat_map(|(_, run)| run.to_vec()).collect();
            let at = |block: u64| (block - 10) as usize * SLOT_BYTES;
            assert_eq!(found, bytes[at(blocks.start)..at(blocks.end)]);
            for (ticket, entries) in taken.tickets {
                ticket.done(entries, Ok(()));
            }
        }
        assert_eq!((ticket.left.get(), queue.len()), (1, 1));
        let mut taken = Taken::with_room(1, 0, 0);
        taken.take(&mut queue);
        assert_eq!(taken.entries, [Entry { branch: 1, era: 0, block: 20, what: What::Zeros { count: 9 } }]);
        assert!(queue.is_empty() && taken.durable);
    }
}
