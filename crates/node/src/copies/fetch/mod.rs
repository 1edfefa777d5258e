//! Fetches blocks that a node's own disk cannot read from another copy in sync (R25 in
//! `docs/why/replication.md`).
//!
//! The copy that is asked answers what it could give to a host of its own at that moment, or refuses. It
//! never asks a third copy: the copy that needs the blocks asks the others, one after the other. No message
//! is repeated. A question that is lost when the link breaks counts as refused.

mod message;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::Range;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use base::{ByteLen, ByteOffset, Chain};
use replica::{Epoch, Incarnation, NodeId, Slot, Standing};
use rt::sync::{Notify, Sender, oneshot};
use store::{ReadFailure, SliceError, SnapshotError};

pub use self::message::FetchMessage;
use super::SliceCopy;
use super::core::Copies;
use super::message::replication::FETCH;

/// How long one copy may take to answer while a host waits.
///
/// This is several times what a read takes that waits for a write under way. A host's read may ask two copies
/// within [`super::HOLD_MAX`].
pub(super) const HOST_WAITS: Duration = Duration::from_secs(1);

/// How long one copy may take to answer while no host waits.
///
/// A disk may try for seconds before it reports that it cannot read; a second read finds out which of the
/// blocks.
pub(super) const NOBODY_WAITS: Duration = Duration::from_secs(30);

/// How many questions a slice answers at the same time; they take up to 32 MiB of memory.
///
/// Further ones are refused, and asked again.
const SERVED_AT_ONCE_MAX: usize = 32;

/// The most bytes in one question: one frame of a link, and a small part of what its queue may hold.
pub(super) const FETCH_BYTES_MAX: u64 = 1 << 20;

/// The questions of a slice's copy, and those that it answers.
#[derive(Default)]
pub(super) struct Fetches {
    last: Cell<u64>,
    open: RefCell<BTreeMap<u64, Question>>,
    /// How many questions of other copies are being answered.
    served: Cell<usize>,
    /// Ranges that the disk is still reading for questions that have been refused because it was late.
    late: RefCell<Vec<Range<u64>>>,
    /// Notified when it has read one of them.
    read_late: Notify,
}

impl Fetches {
    /// `first_number`: see [`replica::Replica::count_from`].
    pub(super) fn new(first_number: u64) -> Fetches {
        Fetches { last: Cell::new(first_number), ..Fetches::default() }
    }
}

struct Question {
    slot: Slot,
    len: u64,
    answer: Sender<Result<Chain, NotFetched>>,
}

/// Why another copy did not give blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotFetched {
    /// No other copy is in sync, or none of their disks can read them.
    Nowhere,
    /// Not now: another copy does not serve at the moment, or does not answer.
    Later,
}

impl SliceCopy {
    /// Fetches these bytes from the first other copy in sync that can read them.
    ///
    /// They are valid as of some moment since the call. `within` is how long each copy may take for each MiB:
    /// [`HOST_WAITS`] or [`NOBODY_WAITS`].
    pub(super) async fn fetch(
        self: &Rc<Self>,
        range: Range<u64>,
        within: Duration,
    ) -> Result<Chain, NotFetched> {
        let mut data = Chain::new();
        for start in range.clone().step_by(FETCH_BYTES_MAX as usize) {
            data.append(self.fetch_part(start..range.end.min(start + FETCH_BYTES_MAX), within).await?);
        }
        Ok(data)
    }

    async fn fetch_part(self: &Rc<Self>, range: Range<u64>, within: Duration) -> Result<Chain, NotFetched> {
        let mut nowhere = NotFetched::Nowhere;
        // A copy that has just left may ask no other copy, though others have what it cannot read: the caller
        // checks again whether this copy may be read at all.
        for slot in self.whom_to_ask().ok_or(NotFetched::Later)? {
            match self.fetch_from(slot, range.clone(), within).await {
                Ok(data) => return Ok(data),
                Err(NotFetched::Nowhere) => {}
                Err(NotFetched::Later) => nowhere = NotFetched::Later,
            }
        }
        Err(nowhere)
    }

    /// The other copies in sync; `None`: this copy is not in sync itself.
    pub(super) fn others_in_sync(&self) -> Option<Vec<Slot>> {
        let serves = matches!(self.replica.borrow().standing(), Standing::InSync(_));
        serves.then(|| self.whom_to_ask()).flatten()
    }

    /// The copies to ask: the other ones in sync.
    ///
    /// `None`: this copy is not a member.
    ///
    /// A joiner may ask as well: it can lose a block of what it holds, like any copy.
    fn whom_to_ask(&self) -> Option<Vec<Slot>> {
        let replica = self.replica.borrow();
        let config = replica.config().filter(|_| replica.standing() != Standing::Outside)?;
        Some(config.in_sync().without(replica.me()).iter().collect())
    }

    async fn fetch_from(
        self: &Rc<Self>,
        slot: Slot,
        range: Range<u64>,
        within: Duration,
    ) -> Result<Chain, NotFetched> {
        let len = range.end - range.start;
        let ask = |number, epoch| FetchMessage::Ask { number, epoch, range, within };
        self.ask_copy(slot, len, within, ask).await
    }

    /// Fetches these bytes as they were in a snapshot, while no host waits.
    ///
    /// The caller compares checksums: nothing here proves that it is the same snapshot there.
    pub(super) async fn fetch_past(
        self: &Rc<Self>,
        slot: Slot,
        snapshot: u64,
        range: Range<u64>,
    ) -> Result<Chain, NotFetched> {
        let (len, within) = (range.end - range.start, NOBODY_WAITS);
        let ask = |number, epoch| FetchMessage::AskPast { number, epoch, snapshot, range, within };
        self.ask_copy(slot, len, within, ask).await
    }

    /// Asks the copy of a slot for this many bytes.
    async fn ask_copy(
        self: &Rc<Self>,
        slot: Slot,
        len: u64,
        within: Duration,
        message: impl FnOnce(u64, Epoch) -> FetchMessage,
    ) -> Result<Chain, NotFetched> {
        let (Some(epoch), Some(node)) = (self.epoch(), self.node_of(slot)) else {
            return Err(NotFetched::Later);
        };
        if !Copies::current().reaches(node, self.address().slice) {
            return Err(NotFetched::Later);
        }
        let number = self.fetches.last.get() + 1;
        self.fetches.last.set(number);
        let (answer, answered) = oneshot();
        let question = Question { slot, len, answer };
        self.fetches.open.borrow_mut().insert(number, question);
        self.say_of_fetch(node, message(number, epoch));
        let answered = rt::timeout(within, answered).await;
        self.fetches.open.borrow_mut().remove(&number);
        match answered {
            Ok(Ok(answer)) => answer,
            Ok(Err(rt::sync::Closed)) | Err(rt::Elapsed) => Err(NotFetched::Later),
        }
    }

    fn say_of_fetch(&self, node: NodeId, message: FetchMessage) {
        let (head, payload) = message.encode();
        Copies::current().send(node, FETCH, self.address(), head, payload);
    }

    /// Drops the questions to a slot: the link to its copy broke, or the slot now has a copy on another node.
    pub(super) fn forget_fetches(&self, slot: Slot) {
        self.fetches.open.borrow_mut().retain(|_, question| question.slot != slot);
    }

    /// Handles a message about unreadable blocks from node `from` in its life `life`.
    pub(super) fn receive_fetch(self: &Rc<Self>, from: NodeId, life: Incarnation, message: FetchMessage) {
        let Some(slot) = self.slot_of(from) else { return };
        let (number, answer) = match message {
            FetchMessage::Ask { number, epoch, range, within } => {
                if !self.may_be_asked((slot, life), epoch, &range) {
                    return self.say_of_fetch(from, FetchMessage::Refused(number));
                }
                let copy = Rc::clone(self);
                return self.serve(async move { copy.answer(from, number, range, within).await });
            }
            FetchMessage::AskPast { number, epoch, snapshot, range, within } => {
                if !self.may_be_asked((slot, life), epoch, &range) {
                    return self.say_of_fetch(from, FetchMessage::Refused(number));
                }
                let copy = Rc::clone(self);
                return self
                    .serve(async move { copy.answer_past(from, number, (snapshot, range), within).await });
            }
            FetchMessage::Data { number, data } => (number, Ok(data)),
            FetchMessage::Refused(number) => (number, Err(NotFetched::Later)),
            FetchMessage::Unreadable { number, .. } => (number, Err(NotFetched::Nowhere)),
        };
        let mut open = self.fetches.open.borrow_mut();
        let is_answer = |question: &Question| {
            question.slot == slot && answer.as_ref().map_or(true, |data| data.len() as u64 == question.len)
        };
        if open.get(&number).is_some_and(is_answer)
            && let Some(question) = open.remove(&number)
        {
            question.answer.send(answer);
        }
    }

    /// Whether this copy answers a question for a range that the copy of a slot asks in its life.
    fn may_be_asked(&self, (slot, life): (Slot, Incarnation), epoch: Epoch, range: &Range<u64>) -> bool {
        let is_member = self.replica.borrow().config().is_some_and(|config| config.has_member(slot, life));
        let fits = range.end <= self.len().0 && range.end - range.start <= FETCH_BYTES_MAX;
        let block = u64::from(self.block_bytes());
        let whole = range.start.is_multiple_of(block) && range.end.is_multiple_of(block);
        let is_free = self.fetches.served.get() < SERVED_AT_ONCE_MAX;
        is_member && fits && whole && is_free && self.epoch() == Some(epoch)
    }

    fn serve(self: &Rc<Self>, answer: impl Future<Output = ()> + 'static) {
        self.fetches.served.set(self.fetches.served.get() + 1);
        let copy = Rc::clone(self);
        rt::spawn(async move {
            answer.await;
            copy.fetches.served.set(copy.fetches.served.get() - 1);
        })
        .detach();
    }

    /// What a snapshot has never changes, so this copy need not be one that hosts may read now.
    async fn answer_past(
        &self,
        to: NodeId,
        number: u64,
        (snapshot, range): (u64, Range<u64>),
        within: Duration,
    ) {
        let (offset, len) = (ByteOffset(range.start), ByteLen(range.end - range.start));
        let read = self.layout.read_snapshot(snapshot, offset, len);
        // A little before the asking copy gives up, so that the refusal still arrives.
        let answer = match rt::timeout(within.min(NOBODY_WAITS) * 9 / 10, read).await {
            Ok(Ok(data)) => FetchMessage::Data { number, data },
            Ok(Err(SnapshotError::Unknown | SnapshotError::Slice(SliceError::Unreadable(_)))) => {
                FetchMessage::Unreadable { number, first: offset }
            }
            Ok(Err(_)) | Err(rt::Elapsed) => FetchMessage::Refused(number),
        };
        self.say_of_fetch(to, answer);
    }

    async fn answer(self: &Rc<Self>, to: NodeId, number: u64, range: Range<u64>, within: Duration) {
        // A little before the asking copy gives up, so that the refusal still arrives.
        let until = rt::now() + within.min(NOBODY_WAITS) * 9 / 10;
        let overlaps = |late: &Range<u64>| late.start < range.end && range.start < late.end;
        // A disk that is asked again and again for what it is still reading would do nothing else.
        let is_free = self.fetches.read_late.until(|| !self.fetches.late.borrow().iter().any(overlaps));
        if rt::timeout_at(until, is_free).await.is_err() {
            return self.say_of_fetch(to, FetchMessage::Refused(number));
        }
        let (offset, len) = (ByteOffset(range.start), ByteLen(range.end - range.start));
        let is_awaited = Cell::new(true);
        let mut read = pin!(self.read_own(offset, len, &is_awaited));
        let error = match rt::timeout(until.since(rt::now()), read.as_mut()).await {
            Ok(Ok(data)) => return self.say_of_fetch(to, FetchMessage::Data { number, data }),
            Ok(Err(error)) => {
                let answer = match error {
                    SliceError::Unreadable(bad) => FetchMessage::Unreadable { number, first: bad.offset },
                    _ => FetchMessage::Refused(number),
                };
                self.say_of_fetch(to, answer);
                Some(error)
            }
            Err(rt::Elapsed) => {
                self.say_of_fetch(to, FetchMessage::Refused(number));
                is_awaited.set(false);
                self.fetches.late.borrow_mut().push(range.clone());
                let error = read.await.err();
                let mut late = self.fetches.late.borrow_mut();
                let at = late.iter().position(|late| *late == range);
                late.swap_remove(at.expect("it was put there"));
                self.fetches.read_late.notify();
                error
            }
        };
        if let Some(SliceError::Unreadable(bad)) = error {
            self.note_bad(bad);
            // This copy asks for its lost blocks from time to time anyway, and this very question may be such
            // a one.
            if bad.cause != ReadFailure::Lost {
                self.repair_soon(bad, range.end);
            }
        }
    }
}
