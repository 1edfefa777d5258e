//! Which operations of a slice may run at the same time.
//!
//! Ordinary reads and writes run side by side; SCSI promises nothing about two of them that overlap. A read-modify-write
//! (COMPARE AND WRITE, ORWRITE) is one step to everybody else: it takes its range exclusively, which holds back new
//! operations on the range and waits for the writes that are already under way. Almost always nothing is exclusive, and
//! then the check is a look at an empty list.

use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;

use rt::sync::Notify;
use slab::Slab;

/// The operations of one slice that matter to others. Ranges are in bytes of the slice.
#[derive(Default)]
pub struct Order {
    writes: RefCell<Slab<Range<u64>>>,
    exclusive: RefCell<Slab<Range<u64>>>,
    /// Rung when a write or an exclusive operation has ended while somebody may wait for it.
    ended: Notify,
}

fn overlap(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}

fn any(ranges: &RefCell<Slab<Range<u64>>>, range: &Range<u64>) -> bool {
    ranges.borrow().iter().any(|(_, other)| overlap(other, range))
}

/// A write under way.
pub struct Write<'a> {
    order: &'a Order,
    entry: usize,
}

/// An exclusive range. Owned, since it is held for a command of another core, too.
pub struct Exclusive {
    order: Rc<Order>,
    entry: usize,
}

impl Order {
    /// Waits until nobody has a part of `range` exclusively.
    pub async fn read(&self, range: &Range<u64>) {
        while any(&self.exclusive, range) {
            self.ended.notified().await;
        }
    }

    /// Waits as [`Order::read`] does, and then counts as a write under way.
    pub async fn write(&self, range: Range<u64>) -> Write<'_> {
        self.read(&range).await;
        Write { order: self, entry: self.writes.borrow_mut().insert(range) }
    }

    /// Takes `range` exclusively, after those who have parts of it and after the writes under way.
    pub async fn exclusive(self: &Rc<Order>, range: Range<u64>) -> Exclusive {
        self.read(&range).await;
        let entry = self.exclusive.borrow_mut().insert(range.clone());
        let taken = Exclusive { order: Rc::clone(self), entry };
        while any(&self.writes, &range) {
            self.ended.notified().await;
        }
        taken
    }
}

impl Drop for Write<'_> {
    fn drop(&mut self) {
        self.order.writes.borrow_mut().remove(self.entry);
        if !self.order.exclusive.borrow().is_empty() {
            self.order.ended.notify();
        }
    }
}

impl Drop for Exclusive {
    fn drop(&mut self) {
        self.order.exclusive.borrow_mut().remove(self.entry);
        self.order.ended.notify();
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn poll<F: Future>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn an_exclusive_range_holds_back_others_and_waits_for_writes() {
        let order = Rc::new(Order::default());
        let mut write = pin!(order.write(0..8));
        let Poll::Ready(write) = poll(write.as_mut()) else { panic!("nothing to wait for") };

        let mut apart = pin!(order.exclusive(8..16));
        assert!(poll(apart.as_mut()).is_ready(), "touching is not overlapping");

        let mut exclusive = pin!(order.exclusive(4..12));
        assert!(poll(exclusive.as_mut()).is_pending(), "a write is under way");
        let mut late = pin!(order.write(4..5));
        assert!(poll(late.as_mut()).is_pending(), "who asked first goes first");
        let mut elsewhere = pin!(order.write(100..101));
        assert!(poll(elsewhere.as_mut()).is_ready());

        drop(write);
        let Poll::Ready(taken) = poll(exclusive.as_mut()) else { panic!("the write is over") };
        assert!(poll(late.as_mut()).is_pending());
        drop(taken);
        assert!(poll(late.as_mut()).is_ready());
    }

    #[test]
    fn a_waiter_that_gives_up_leaves_nothing() {
        let order = Rc::new(Order::default());
        let Poll::Ready(write) = poll(pin!(order.write(0..8))) else { panic!("nothing to wait for") };
        {
            let mut exclusive = Box::pin(order.exclusive(0..8));
            assert!(poll(exclusive.as_mut()).is_pending());
        }
        drop(write);
        assert!(order.exclusive.borrow().is_empty() && order.writes.borrow().is_empty());
    }
}
