//! Carries out what [`Locks`] decides about ranges that commands lock on all nodes.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

use base::{ByteLen, ByteOffset, Chain, Instant};
use replica::{Blocks, Config, Incarnation, NodeId, Slot, Standing};
use rt::Task;
use store::SliceError;

use super::super::core::Copies;
use super::super::lock::{Here, LockMessage, Locks, Look, Work};
use super::super::message::replication::LOCK;
use super::SliceCopy;
use crate::data::{Exclusive, Order};

/// How long a command waits for its range on all nodes. Its write begins within this time of its arrival, or
/// not at all.
///
/// This is longer than it takes to give up a lost node and continue without it.
pub(super) const LOCK_MAX: Duration = Duration::from_secs(5);

/// A place in the order of hosts' commands, and the task that waits until all older operations have ended.
type Place = (Rc<Exclusive>, Option<Task<()>>);

/// The ranges that commands have locked, here and on other nodes.
pub(super) struct Locking {
    locks: RefCell<Locks>,
    /// The order of hosts' commands on this slice.
    hosts: Rc<Order>,
    /// By claim.
    places: RefCell<BTreeMap<u64, Place>>,
}

/// A range that a command has locked on all nodes, until this is dropped.
pub struct RangeLock {
    copy: Rc<SliceCopy>,
    number: u64,
}

impl Locking {
    pub(super) fn new(me: Slot, hosts: Rc<Order>, first_number: u64) -> Locking {
        Locking { locks: RefCell::new(Locks::new(me, first_number)), hosts, places: RefCell::default() }
    }

    /// See [`Locks::holds`].
    pub(super) fn holds(&self, range: &Range<u64>) -> bool {
        self.locks.borrow().holds(range)
    }
}

impl SliceCopy {
    /// Locks the range on all nodes.
    ///
    /// # Errors
    /// [`SliceError::Unavailable`] if that takes too long.
    pub async fn lock(self: &Rc<SliceCopy>, range: Range<u64>) -> Result<RangeLock, SliceError> {
        let until = rt::now() + LOCK_MAX;
        let mut hold = None;
        while self.may_wait() {
            match self.try_lock(&range, until).await {
                Ok(Some(lock)) => return Ok(lock),
                // Another member may not act in this epoch yet.
                Ok(None) => self.try_again(&mut hold).await?,
                Err(rt::Elapsed) => break,
            }
        }
        Err(SliceError::Unavailable)
    }

    /// Tries once to lock the range; `None`: this node does not serve, or it cannot be had in this epoch.
    async fn try_lock(
        self: &Rc<SliceCopy>,
        range: &Range<u64>,
        until: Instant,
    ) -> Result<Option<RangeLock>, rt::Elapsed> {
        if !matches!(self.replica.borrow().standing(), Standing::InSync(_)) {
            return Ok(None);
        }
        let Some(number) = self.tell_locks(|locks| locks.begin(range.clone(), until)) else {
            return Ok(None);
        };
        let lock = RangeLock { copy: Rc::clone(self), number };
        let look = || self.locks.locks.borrow().look(number, rt::now());
        loop {
            match look() {
                Look::Holds => return Ok(Some(lock)),
                Look::Refused => return Ok(None),
                Look::Late => return Err(rt::Elapsed),
                Look::Waits(until) => {
                    let changed = self.happened.until(|| !matches!(look(), Look::Waits(_)));
                    let _ = rt::timeout_at(until, changed).await;
                }
            }
        }
    }

    /// Waits until this copy has nothing to finish, for whoever has locked all of it; `false`: that takes too
    /// long.
    ///
    /// The other members have waited for that before they gave it. Afterwards all of them hold the same.
    pub async fn settled(self: &Rc<SliceCopy>) -> bool {
        let (until, all) = (rt::now() + LOCK_MAX, self.blocks(ByteOffset(0), self.len()));
        self.ask_validation(all);
        let is_settled = || self.replica.borrow().is_settled(all);
        rt::timeout_at(until, self.happened.until(is_settled)).await.is_ok()
    }

    /// The configuration in which this copy is in sync, and takes part.
    pub fn in_sync_config(&self) -> Option<Config> {
        let replica = self.replica.borrow();
        let takes_part = matches!(replica.standing(), Standing::InSync(_)) && !self.is_detached();
        replica.config().filter(|_| takes_part).cloned()
    }

    /// Handles a message about a range from node `from` in its life `life`.
    pub(in crate::copies) fn receive_lock(
        self: &Rc<SliceCopy>,
        from: NodeId,
        life: Incarnation,
        message: LockMessage,
    ) {
        let here = Here {
            len: self.layout.len().0,
            block_bytes: u64::from(self.block_bytes()),
            detached: self.is_detached(),
        };
        self.tell_locks(|locks| locks.handle_message(from, life, here, message));
    }

    pub(super) fn tell_locks<T>(self: &Rc<SliceCopy>, what: impl FnOnce(&mut Locks) -> T) -> T {
        let told = what(&mut self.locks.locks.borrow_mut());
        self.do_lock_work();
        self.happened.notify();
        told
    }

    /// Does what [`Locks`] wants until there is nothing left.
    fn do_lock_work(self: &Rc<SliceCopy>) {
        loop {
            let next = self.locks.locks.borrow_mut().poll();
            match next {
                None => return,
                Some(Work::Say(node, message)) => {
                    Copies::current().send(node, LOCK, self.address(), message.encode(), Chain::new());
                }
                Some(Work::Queue(claim, range)) => self.queue(claim, range),
                Some(Work::Settle { claim, range, asks }) => self.await_settled(claim, &range, asks),
                Some(Work::Leave(claim)) => {
                    let place = self.locks.places.borrow_mut().remove(&claim);
                    drop(place);
                }
            }
        }
    }

    fn queue(self: &Rc<SliceCopy>, claim: u64, range: Range<u64>) {
        let place = Rc::new(self.locks.hosts.queue(range));
        if place.has_come() {
            self.locks.places.borrow_mut().insert(claim, (place, None));
            return self.locks.locks.borrow_mut().handle_come(claim);
        }
        let (copy, waiting) = (Rc::clone(self), Rc::clone(&place));
        // Dropped with the place: a command that gives up must not keep others waiting.
        let comes = rt::spawn(async move {
            waiting.come().await;
            copy.tell_locks(|locks| locks.handle_come(claim));
        });
        self.locks.places.borrow_mut().insert(claim, (place, Some(comes)));
    }

    fn await_settled(self: &Rc<SliceCopy>, claim: u64, range: &Range<u64>, asks: bool) {
        let blocks = self.blocks_of(range);
        if asks {
            self.ask_validation(blocks);
        }
        // What is still to come ends before the node through which it comes gives the range. Hosts there,
        // whose writes overlap all the time, must not keep this node waiting.
        let last = self.replica.borrow().last_unsettled(blocks);
        let Some(last) = last else { return self.locks.locks.borrow_mut().handle_settled(claim) };
        let copy = Rc::clone(self);
        rt::spawn(async move {
            let waits = || copy.locks.locks.borrow().awaits_settled(claim);
            let is_over = || !waits() || !copy.replica.borrow().has_unsettled_until(blocks, last);
            copy.happened.until(is_over).await;
            // Otherwise the range was given back, or the epoch has changed, which the taker detects on its
            // own.
            if waits() {
                copy.tell_locks(|locks| locks.handle_settled(claim));
            }
        })
        .detach();
    }

    fn blocks_of(&self, range: &Range<u64>) -> Blocks {
        self.blocks(ByteOffset(range.start), ByteLen(range.end - range.start))
    }
}

impl Drop for RangeLock {
    fn drop(&mut self) {
        // Not at once: a node that stops drops its commands when it can send nothing any more. This is done
        // for a copy that has left, too: only then do commands that wait here for the range end, and its
        // volume cannot be closed before.
        let (copy, number) = (Rc::clone(&self.copy), self.number);
        rt::spawn(async move { copy.tell_locks(|locks| locks.end(number)) }).detach();
    }
}
