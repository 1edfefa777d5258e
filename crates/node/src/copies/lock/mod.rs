//! Ranges that one command locks on all nodes: COMPARE AND WRITE and ORWRITE read and then write in one step.
//!
//! The command locks the range on every member of its epoch, its own node included, in the order of slots, so
//! that two commands cannot wait for each other. A member gives the range when no host's write through it is
//! under way there, when it knows of nothing there that it would complete should a coordinator be lost, and
//! when nothing through it begins until the range is given back. A claim holds only in its epoch, so the
//! command's write must begin in that same epoch: whatever begins elsewhere in a later epoch comes after it.
//! Why that is enough: `docs/why/replication.md`.
//!
//! No message is repeated. After a link broke, the taker says what it holds, and the other side releases
//! everything else that it had given to the taker. A copy that is detached from the others listens to that,
//! too: it may be attached again in the same epoch. This counts only from the life of the taker's node that
//! is a member. What an earlier life held is released by the next epoch, in which the writes that this life
//! left behind are ordered before all others. For the same reason a range is not given back while the
//! command's write may still be under way.

mod message;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

use base::Chain;
use replica::{Blocks, Epoch, Incarnation, NodeId, Slot, Slots, Standing};
use store::SliceError;

pub use self::message::LockMessage;
use super::SliceCopy;
use super::core::{Copies, LOCK};
use crate::canary::{Canary, makes};
use crate::volume::{Exclusive, Order};

/// How long a command waits for its range on all nodes.
///
/// This is longer than it takes to give up a lost node and continue without it.
const LOCK_MAX: Duration = Duration::from_secs(5);

/// How often a member checks whether the writes that were under way in a range have ended.
const SETTLED_EVERY: Duration = Duration::from_millis(5);

/// The ranges that a slice's copy has given to commands of other nodes, and those of its own commands.
pub(super) struct Locks {
    /// The order of hosts' commands on this slice.
    hosts: Rc<Order>,
    given: RefCell<BTreeMap<(NodeId, u64), Rc<Given>>>,
    own: RefCell<BTreeMap<u64, Own>>,
    last: Cell<u64>,
    /// Whether the copy has left: no range is given or taken any more.
    left: Cell<bool>,
}

/// A range that a command of another node has here, or waits for.
struct Given {
    epoch: Epoch,
    claim: Exclusive,
}

/// A range that a command of this node has locked, or is locking.
struct Own {
    epoch: Epoch,
    range: Range<u64>,
    /// The members that were asked.
    asked: Slots,
    /// The members that have given it.
    taken: Slots,
    /// Whether it cannot be had in this epoch.
    refused: bool,
    /// Whether all members have given it.
    complete: bool,
    /// The claim on this node.
    here: Option<Exclusive>,
}

/// A range that a command has locked on all nodes, until this is dropped.
pub struct RangeLock {
    copy: Rc<SliceCopy>,
    number: u64,
}

impl Locks {
    pub fn new(hosts: Rc<Order>) -> Locks {
        let (given, own) = (RefCell::default(), RefCell::default());
        Locks { hosts, given, own, last: Cell::new(0), left: Cell::new(false) }
    }

    /// The copy acts in this epoch from now on: releases what was given in earlier ones.
    pub fn enter(&self, epoch: Epoch) {
        self.given.borrow_mut().retain(|_, given| given.epoch == epoch);
    }

    /// The copy leaves: releases everything.
    ///
    /// No command writes here any more, and no other node will say that it needs a range no longer. Commands
    /// that wait here for a range must end; otherwise their volume is never closed.
    pub fn leave(&self) {
        self.left.set(true);
        self.given.take();
        self.own.borrow_mut().values_mut().for_each(|own| own.here = None);
    }

    /// Whether a command holds the range on all nodes in this epoch.
    pub fn hold(&self, epoch: Epoch, range: &Range<u64>) -> bool {
        let own = self.own.borrow();
        own.values().any(|own| {
            own.complete && own.epoch == epoch && own.range.start <= range.start && range.end <= own.range.end
        })
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
            match rt::timeout(until.since(rt::now()), self.try_lock(&range)).await {
                Ok(Some(lock)) => return Ok(lock),
                Ok(None) => self.hold(&mut hold).await?,
                Err(rt::Elapsed) => break,
            }
        }
        Err(SliceError::Unavailable)
    }

    /// Tries once to lock the range; `None`: this node does not serve, or another one acts in another epoch.
    async fn try_lock(self: &Rc<SliceCopy>, range: &Range<u64>) -> Option<RangeLock> {
        let (me, epoch, members) = self.serving_members()?;
        let number = self.locks.last.get() + 1;
        self.locks.last.set(number);
        let (asked, taken) = (Slots::NONE, Slots::NONE);
        let own =
            Own { epoch, range: range.clone(), asked, taken, refused: false, complete: false, here: None };
        self.locks.own.borrow_mut().insert(number, own);
        let lock = RangeLock { copy: Rc::clone(self), number };
        for slot in members.iter() {
            if slot == me {
                let here = self.locks.hosts.exclusive(range.clone()).await;
                self.with_own(number, |own| own.here = Some(here));
                continue;
            }
            if makes(Canary::LockHere) {
                continue;
            }
            self.with_own(number, |own| own.asked = own.asked.with(slot));
            self.say(slot, &LockMessage::Take { number, epoch, range: range.clone() });
            let answered = || self.with_own(number, |own| own.refused || own.taken.contains(slot));
            self.happened.until(|| answered() || !self.acts_in(epoch)).await;
            if self.with_own(number, |own| own.refused) || !self.acts_in(epoch) {
                return None;
            }
        }
        self.with_own(number, |own| own.complete = true);
        Some(lock)
    }

    fn with_own<T>(&self, number: u64, with: impl FnOnce(&mut Own) -> T) -> T {
        with(self.locks.own.borrow_mut().get_mut(&number).expect("kept until its lock is given back"))
    }

    /// This copy's slot, the epoch and all members, if this copy serves.
    fn serving_members(&self) -> Option<(Slot, Epoch, Slots)> {
        let replica = self.replica.borrow();
        let config = replica.config().filter(|_| matches!(replica.standing(), Standing::InSync(_)))?;
        Some((replica.me(), config.epoch, config.members()))
    }

    /// The epoch that this copy acts in.
    pub(super) fn epoch(&self) -> Option<Epoch> {
        self.replica.borrow().config().map(|config| config.epoch)
    }

    fn acts_in(&self, epoch: Epoch) -> bool {
        !self.locks.left.get() && self.epoch() == Some(epoch)
    }

    fn say(&self, slot: Slot, message: &LockMessage) {
        if let Some(node) = self.node_of(slot) {
            self.say_to(node, message);
        }
    }

    fn say_to(&self, node: NodeId, message: &LockMessage) {
        Copies::current().send(node, LOCK, self.address(), message.encode(), Chain::new());
    }

    /// The link to a node is up again: tells it which ranges are held.
    ///
    /// What it was asked before may have been lost, so requests that it has not answered count as refused.
    pub(super) fn say_locks(&self, node: NodeId) {
        let Some(slot) = self.slot_of(node) else { return };
        let mut held = Vec::new();
        for (number, own) in self.locks.own.borrow_mut().iter_mut() {
            if own.taken.contains(slot) {
                held.push(*number);
            } else if own.asked.contains(slot) {
                own.refused = true;
            }
        }
        self.say_to(node, &LockMessage::Holds(held));
        self.happened.notify();
    }

    /// Handles a message about a range from node `from` in its life `life`.
    pub(super) fn receive_lock(self: &Rc<SliceCopy>, from: NodeId, life: Incarnation, message: LockMessage) {
        let Some(slot) = self.slot_of(from) else { return };
        let is_member = self.replica.borrow().config().is_some_and(|config| config.has_member(slot, life));
        match message {
            // Commands that wait for an answer give up: `LOCK_MAX`.
            LockMessage::Take { .. } | LockMessage::Taken(_) | LockMessage::Refused(_)
                if self.is_detached() => {}
            LockMessage::Take { number, .. } if !is_member => {
                self.say_to(from, &LockMessage::Refused(number));
            }
            _ if !is_member => {}
            LockMessage::Take { number, epoch, range } => self.give(from, number, epoch, range),
            LockMessage::Taken(number) => {
                if let Some(own) = self.locks.own.borrow_mut().get_mut(&number) {
                    own.taken = own.taken.with(slot);
                }
            }
            LockMessage::Refused(number) => {
                if let Some(own) = self.locks.own.borrow_mut().get_mut(&number) {
                    own.refused = true;
                }
            }
            LockMessage::Release(number) => drop(self.locks.given.borrow_mut().remove(&(from, number))),
            LockMessage::Holds(numbers) => {
                self.locks
                    .given
                    .borrow_mut()
                    .retain(|(node, number), _| *node != from || numbers.contains(number));
            }
        }
        self.happened.notify();
    }

    fn give(self: &Rc<SliceCopy>, to: NodeId, number: u64, epoch: Epoch, range: Range<u64>) {
        if !self.acts_in(epoch) || range.end > self.layout.len().0 {
            return self.say_to(to, &LockMessage::Refused(number));
        }
        let blocks = self.blocks_of(&range);
        let given = Rc::new(Given { epoch, claim: self.locks.hosts.queue(range) });
        self.locks.given.borrow_mut().insert((to, number), Rc::clone(&given));
        let copy = Rc::clone(self);
        rt::spawn(async move {
            given.claim.come().await;
            copy.ask_validation(blocks);
            while copy.is_given(to, number, &given) && !copy.replica.borrow().is_settled(blocks) {
                let _ = rt::timeout(SETTLED_EVERY, copy.happened.notified()).await;
            }
            // Otherwise the range was given back, or the epoch has changed, which the taker detects on its
            // own.
            if copy.is_given(to, number, &given) {
                copy.say_to(to, &LockMessage::Taken(number));
            }
        })
        .detach();
    }

    /// Gives back a range that a command no longer needs.
    ///
    /// The command's write may still be under way, if its initiator was told that the outcome is unknown: a
    /// write through another node in this epoch must not be ordered before it.
    fn give_back(self: &Rc<SliceCopy>, number: u64) {
        let (epoch, range, complete) =
            self.with_own(number, |own| (own.epoch, own.range.clone(), own.complete));
        let blocks = self.blocks_of(&range);
        let is_over = move |copy: &SliceCopy| {
            !complete || !copy.acts_in(epoch) || copy.replica.borrow().is_settled(blocks)
        };
        if is_over(self) {
            return self.release(number);
        }
        let copy = Rc::clone(self);
        rt::spawn(async move {
            while !is_over(&copy) {
                let _ = rt::timeout(SETTLED_EVERY, copy.happened.notified()).await;
            }
            copy.release(number);
        })
        .detach();
    }

    fn release(&self, number: u64) {
        let own = self.locks.own.borrow_mut().remove(&number);
        for slot in own.map_or(Slots::NONE, |own| own.asked).iter() {
            self.say(slot, &LockMessage::Release(number));
        }
    }

    fn is_given(&self, to: NodeId, number: u64, given: &Rc<Given>) -> bool {
        self.locks.given.borrow().get(&(to, number)).is_some_and(|there| Rc::ptr_eq(there, given))
    }

    fn blocks_of(&self, range: &Range<u64>) -> Blocks {
        self.blocks(base::ByteOffset(range.start), base::ByteLen(range.end - range.start))
    }
}

impl Drop for RangeLock {
    fn drop(&mut self) {
        // Not at once: a node that stops drops its commands when it can send nothing any more. This is done
        // for a copy that has left, too: only then do commands that wait here for the range end, and its
        // volume cannot be closed before.
        let (copy, number) = (Rc::clone(&self.copy), self.number);
        rt::spawn(async move { copy.give_back(number) }).detach();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(epoch: u64, range: Range<u64>, complete: bool) -> Own {
        Own {
            epoch: Epoch(epoch),
            range,
            asked: Slots::NONE,
            taken: Slots::NONE,
            refused: false,
            complete,
            here: None,
        }
    }

    #[test]
    fn a_range_is_held_in_its_epoch_only() {
        let locks = Locks::new(Rc::default());
        locks.own.borrow_mut().insert(1, own(4, 512..1024, true));
        locks.own.borrow_mut().insert(2, own(5, 2048..4096, false));
        assert!(locks.hold(Epoch(4), &(512..1024)));
        assert!(!locks.hold(Epoch(5), &(512..1024)), "others may have written in the epoch after");
        assert!(!locks.hold(Epoch(4), &(512..1536)));
        assert!(!locks.hold(Epoch(5), &(2048..4096)), "not all nodes have given it");
    }

    #[test]
    fn granted_ranges_are_released_in_the_next_epoch() {
        let hosts: Rc<Order> = Rc::default();
        let locks = Locks::new(Rc::clone(&hosts));
        let give = |number, epoch| {
            let given = Given { epoch: Epoch(epoch), claim: hosts.queue(0..512) };
            locks.given.borrow_mut().insert((NodeId(2), number), Rc::new(given));
        };
        give(1, 4);
        give(2, 5);
        locks.enter(Epoch(5));
        let given = locks.given.borrow();
        assert_eq!(given.keys().collect::<Vec<_>>(), [&(NodeId(2), 2)]);
    }
}
