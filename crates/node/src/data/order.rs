//! Which operations of a slice may run at the same time.
//!
//! Operations that overlap run one after the other, in the order in which they came, unless both only read.
//! So a block is one register to all clients: no read sees a part of a write, and of two writes one remains,
//! although a disk may mix both in units smaller than the volume's block. A read-modify-write (COMPARE AND
//! WRITE, ORWRITE) is atomic: it keeps its claim on the range until it has written. Operations almost never
//! overlap; then the check only looks at the operations that are under way nearby.
//!
//! An operation that has to wait waits for the youngest of the older ones: when that has ended, usually none
//! is left. So if many wait for one block, the end of each wakes only the next one.
//!
//! No operation waits forever: the holder of a claim waits only for its disk, or for claims on slices of
//! higher numbers.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

use rt::sync::Notify;

use super::claims::Claims;

/// The operations of one slice. Ranges are in bytes of the slice.
#[derive(Default)]
pub struct Order {
    reads: RefCell<Claims>,
    /// Writes, zeroings, and what read-modify-writes have taken.
    changes: RefCell<Claims>,
    /// The number of the next claim.
    next: Cell<u64>,
    /// Notified when the claim with this number has ended, for those that younger ones wait for.
    awaited: RefCell<BTreeMap<u64, Rc<Notify>>>,
}

/// The claim of a read or a write.
pub struct Claim<'a> {
    order: &'a Order,
    of: &'a RefCell<Claims>,
    number: u64,
    range: Range<u64>,
}

/// The claim of a read-modify-write. It is owned, since commands of other cores hold it, too.
pub struct Exclusive {
    order: Rc<Order>,
    number: u64,
    range: Range<u64>,
}

impl Exclusive {
    /// Waits until all older operations in its range have ended.
    pub async fn come(&self) {
        self.order.until_oldest(self.number, &self.range).await;
    }

    /// Whether all older operations in its range have ended.
    pub fn has_come(&self) -> bool {
        self.order.is_oldest(self.number, &self.range)
    }
}

impl Order {
    /// Waits for older changes of `range`.
    pub async fn read(&self, range: Range<u64>) -> Claim<'_> {
        let read = Claim { order: self, of: &self.reads, number: self.claim(&self.reads, &range), range };
        self.until_free(|| self.changes.borrow().youngest_older(read.number, &read.range)).await;
        read
    }

    /// Waits for all older operations in `range`.
    pub async fn write(&self, range: Range<u64>) -> Claim<'_> {
        let write =
            Claim { order: self, of: &self.changes, number: self.claim(&self.changes, &range), range };
        self.until_oldest(write.number, &write.range).await;
        write
    }

    /// Like [`Order::write`], for a command that reads and then writes.
    pub async fn exclusive(self: &Rc<Order>, range: Range<u64>) -> Exclusive {
        let exclusive = self.queue(range);
        exclusive.come().await;
        exclusive
    }

    /// Queues behind all older operations in `range`, without waiting.
    pub fn queue(self: &Rc<Order>, range: Range<u64>) -> Exclusive {
        Exclusive { order: Rc::clone(self), number: self.claim(&self.changes, &range), range }
    }

    fn claim(&self, claims: &RefCell<Claims>, range: &Range<u64>) -> u64 {
        let number = self.next.get();
        self.next.set(number + 1);
        claims.borrow_mut().add(number, range);
        number
    }

    async fn until_oldest(&self, number: u64, range: &Range<u64>) {
        self.until_free(|| self.youngest_older(number, range)).await;
    }

    fn is_oldest(&self, number: u64, range: &Range<u64>) -> bool {
        self.youngest_older(number, range).is_none()
    }

    fn youngest_older(&self, number: u64, range: &Range<u64>) -> Option<u64> {
        let older = |claims: &RefCell<Claims>| claims.borrow().youngest_older(number, range);
        older(&self.changes).max(older(&self.reads))
    }

    /// Waits until no claim is in the way; `in_the_way` names one that has not ended.
    async fn until_free(&self, in_the_way: impl Fn() -> Option<u64>) {
        while let Some(number) = in_the_way() {
            let ended = Rc::clone(self.awaited.borrow_mut().entry(number).or_default());
            ended.notified().await;
        }
    }

    fn end(&self, claims: &RefCell<Claims>, number: u64, range: &Range<u64>) {
        claims.borrow_mut().remove(number, range);
        let awaited = self.awaited.borrow_mut().remove(&number);
        if let Some(ended) = awaited {
            ended.notify();
        }
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.order.end(self.of, self.number, &self.range);
    }
}

impl Drop for Exclusive {
    fn drop(&mut self) {
        self.order.end(&self.order.changes, self.number, &self.range);
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Context, Poll, Wake, Waker};

    use super::*;

    fn poll<F: Future>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn operations_that_overlap_take_turns_unless_both_read() {
        let order = Order::default();
        let Poll::Ready(first) = poll(pin!(order.read(0..8))) else { panic!("nothing to wait for") };
        let Poll::Ready(second) = poll(pin!(order.read(4..12))) else { panic!("both read") };
        let mut write = pin!(order.write(0..4));
        assert!(poll(write.as_mut()).is_pending(), "the first read is under way");
        assert!(poll(pin!(order.write(12..16))).is_ready(), "touching is not overlapping");
        let mut late = pin!(order.read(0..1));
        assert!(poll(late.as_mut()).is_pending(), "who asked first goes first");
        drop(first);
        let Poll::Ready(write) = poll(write.as_mut()) else { panic!("the second read is elsewhere") };
        assert!(poll(late.as_mut()).is_pending());
        drop((write, second));
        assert!(poll(late.as_mut()).is_ready());
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

        let (first, second) = (order.queue(0..4), order.queue(3..5));
        assert!(first.has_come() && !second.has_come());
        drop(first);
        assert!(second.has_come());
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
        assert!(order.changes.borrow().is_empty() && order.reads.borrow().is_empty());
        assert!(order.awaited.borrow().is_empty());
    }

    /// Counts how often it is woken.
    #[derive(Default)]
    struct Wakes(AtomicUsize);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn of_many_that_wait_for_a_range_each_is_woken_once() {
        const COUNT: usize = 50;
        let order = Order::default();
        let mut held = None;
        let mut writes = Vec::new();
        for number in 0..COUNT {
            let (mut write, wakes) = (Box::pin(order.write(0..8)), Arc::new(Wakes::default()));
            let waker = Waker::from(Arc::clone(&wakes));
            match write.as_mut().poll(&mut Context::from_waker(&waker)) {
                Poll::Ready(claim) => held = Some(claim),
                Poll::Pending => assert!(number > 0, "nothing to wait for"),
            }
            writes.push((write, wakes, waker, 0));
        }
        for turn in 1..COUNT {
            drop(held.take());
            for (number, (write, wakes, waker, seen)) in writes.iter_mut().enumerate().skip(turn) {
                let woken = wakes.0.load(Ordering::Relaxed);
                if std::mem::replace(seen, woken) < woken
                    && let Poll::Ready(claim) = write.as_mut().poll(&mut Context::from_waker(waker))
                {
                    assert_eq!(number, turn);
                    held = Some(claim);
                }
            }
            assert!(held.is_some(), "the end of the former one has woken it");
        }
        assert!(writes.iter().skip(1).all(|(_, _, _, seen)| *seen == 1));
    }
}
