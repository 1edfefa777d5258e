//! Requests that wait for a record, and the records that are under way.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

use base::SharedBuf;
use rt::sync::Sender;

use super::record::{Entry, Head, What};
use crate::error::SliceError;

/// Requests that wait for a record.
pub(super) type Queue = VecDeque<Request>;

/// A part of a request.
pub(super) enum Item {
    /// A block and its checksum.
    Block { block: u64, data: SharedBuf, crc: u32 },
    /// Blocks that must read as zeros.
    Zeros { block: u64, count: u64 },
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
    /// Items whose records have not completed.
    pub(super) left: Cell<usize>,
    pub(super) reply: Cell<Option<Sender<Result<(), SliceError>>>>,
}

impl Ticket {
    pub(super) fn done(&self, items: usize, result: Result<(), SliceError>) {
        self.left.set(self.left.get() - items);
        let ended = result.is_err() || self.left.get() == 0;
        if let Some(reply) = ended.then(|| self.reply.take()).flatten() {
            reply.send(result);
        }
    }
}

impl Request {
    pub(super) fn fail(self, error: SliceError) {
        self.ticket.done(self.items.len(), Err(error));
    }

    /// Blocks with data that are not in a record yet.
    pub(super) fn blocks(&self) -> u64 {
        self.items.iter().filter(|item| matches!(item, Item::Block { .. })).count() as u64
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
    /// Blocks with data that were admitted, and whose records have not completed.
    pub(super) expected: u64,
    /// A durable head or root says that all records with smaller numbers are durable.
    pub(super) said: u64,
    /// A task waits to write a record that says more.
    pub(super) saying: bool,
    /// The next record is made for what its head says, even if no request waits.
    pub(super) word: bool,
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
        self.expected -= self.data.iter().map(Request::blocks).sum::<u64>();
        self.data.drain(..).collect()
    }

    /// Takes note that a root covers all records below `sequence`.
    pub(super) fn rooted(&mut self, sequence: u64) {
        self.said = self.said.max(sequence);
        self.void.retain(|void| *void >= sequence);
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
    pub(super) items: Vec<Item>,
    pub(super) tickets: Vec<(Rc<Ticket>, usize)>,
    pub(super) durable: bool,
    /// How many more entries fit.
    pub(super) left: usize,
    pub(super) data_left: usize,
}

impl Taken {
    /// Takes what fits from the queue, in order.
    pub(super) fn take(&mut self, queue: &mut Queue) {
        while let Some(request) = queue.front_mut() {
            let before = self.entries.len();
            while self.left > 0 {
                let what = match request.items.front() {
                    Some(Item::Block { block, crc, .. }) if self.data_left > 0 => {
                        self.data_left -= 1;
                        Entry { branch: request.branch, block: *block, what: What::Block { crc: *crc } }
                    }
                    Some(Item::Zeros { block, count }) => {
                        Entry { branch: request.branch, block: *block, what: What::Zeros { count: *count } }
                    }
                    _ => break,
                };
                self.left -= 1;
                self.entries.push(what);
                self.items.extend(request.items.pop_front());
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
}
