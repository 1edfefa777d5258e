//! Holds back the operations on a part of a slice while that part is moved to another disk.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::Range;

use rt::sync::Notify;

use crate::error::SliceError;

/// Operations in the same piece of this size keep their order. It is the largest block that a disk has.
const ORDER_BYTES: u64 = 4096;

/// The operations of a slice, or those on the pages of its map.
///
/// At most one range is held at a time. Ranges are whatever the operations count in.
///
/// Callers rely on the order in which they have begun operations: one that waits here is not overtaken by a
/// later one on the same block.
#[derive(Default)]
pub(crate) struct Gate {
    held: RefCell<Option<Range<u64>>>,
    /// It is unknown where the held range lies: operations on it fail.
    lost: Cell<bool>,
    /// The operations that wait, by age.
    waiting: RefCell<BTreeMap<u64, Range<u64>>>,
    /// The number of the next operation that waits.
    next: Cell<u64>,
    /// The operations under way, by the turn in which they began.
    under_way: [Cell<usize>; 2],
    turn: Cell<usize>,
    /// A change was given up before its I/O had ended, and nobody knows when that ends.
    abandoned: Cell<bool>,
    /// Notified when a range is no longer held, and when a turn's last operation has ended.
    changed: Notify,
}

/// An operation under way.
struct Pass<'a> {
    gate: &'a Gate,
    turn: usize,
    /// It changes something, and its I/O may be under way.
    changes: bool,
}

/// An operation that waits.
struct Waiting<'a> {
    gate: &'a Gate,
    number: u64,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.gate.waiting.borrow_mut().remove(&self.number);
        self.gate.changed.notify();
    }
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        if self.changes {
            self.gate.abandoned.set(true);
        }
        let left = &self.gate.under_way[self.turn];
        left.set(left.get() - 1);
        if left.get() == 0 && self.turn != self.gate.turn.get() {
            self.gate.changed.notify();
        }
    }
}

impl Gate {
    /// Runs a read, when its range is not held.
    pub(crate) async fn read<T>(
        &self,
        range: Range<u64>,
        read: impl Future<Output = Result<T, SliceError>>,
    ) -> Result<T, SliceError> {
        let _pass = self.pass(&range, false).await?;
        read.await
    }

    /// Runs a change, when its range is not held.
    pub(crate) async fn change<T>(
        &self,
        range: Range<u64>,
        change: impl Future<Output = Result<T, SliceError>>,
    ) -> Result<T, SliceError> {
        let mut pass = self.pass(&range, true).await?;
        let changed = change.await;
        pass.changes = false;
        changed
    }

    /// Holds back all operations on `range` that begin from now on, and waits until those under way have
    /// ended.
    ///
    /// # Errors
    /// [`SliceError::Offline`]: a change was given up, and may still happen. Nothing is held then.
    pub(crate) async fn hold(&self, range: Range<u64>) -> Result<(), SliceError> {
        assert!(self.held.borrow().is_none(), "one range at a time");
        self.held.replace(Some(range));
        let before = self.turn.get();
        self.turn.set(1 - before);
        self.changed.until(|| self.under_way[before].get() == 0).await;
        if self.abandoned.get() {
            self.let_go();
            return Err(SliceError::Offline);
        }
        Ok(())
    }

    /// Lets the operations on the held range go on.
    pub(crate) fn let_go(&self) {
        self.held.replace(None);
        self.changed.notify();
    }

    /// Fails the operations on the held range from now on, or all operations if nothing is held.
    pub(crate) fn lose(&self) {
        self.held.borrow_mut().get_or_insert(0..u64::MAX);
        self.lost.set(true);
        self.changed.notify();
    }

    pub(crate) fn holds(&self) -> bool {
        self.held.borrow().is_some()
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.lost.get()
    }

    async fn pass(&self, range: &Range<u64>, changes: bool) -> Result<Pass<'_>, SliceError> {
        if self.holds_some_of(range) || self.is_any_waiting(self.next.get(), range) {
            let number = self.next.get();
            self.next.set(number + 1);
            self.waiting.borrow_mut().insert(number, range.clone());
            let _waiting = Waiting { gate: self, number };
            let goes_on = || match self.holds_some_of(range) {
                true => self.lost.get(),
                false => !self.is_any_waiting(number, range),
            };
            self.changed.until(goes_on).await;
            if self.holds_some_of(range) {
                return Err(SliceError::Offline);
            }
        }
        // From here until the operation has begun, nothing else runs on this core.
        let turn = self.turn.get();
        self.under_way[turn].set(self.under_way[turn].get() + 1);
        Ok(Pass { gate: self, turn, changes })
    }

    /// Whether an operation older than `number` waits that has a block in common with `range`.
    fn is_any_waiting(&self, number: u64, range: &Range<u64>) -> bool {
        let blocks = |range: &Range<u64>| range.start / ORDER_BYTES..range.end.div_ceil(ORDER_BYTES);
        let wanted = blocks(range);
        self.waiting.borrow().range(..number).any(|(_, other)| {
            let other = blocks(other);
            other.start < wanted.end && wanted.start < other.end
        })
    }

    fn holds_some_of(&self, range: &Range<u64>) -> bool {
        self.held.borrow().as_ref().is_some_and(|held| held.start < range.end && range.start < held.end)
    }
}

#[cfg(test)]
mod tests {
    use std::pin::{Pin, pin};
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn poll<T>(future: Pin<&mut impl Future<Output = T>>) -> Poll<T> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    /// An operation that ends when the flag is set.
    async fn until(flag: &Cell<bool>) -> Result<(), SliceError> {
        std::future::poll_fn(|_| if flag.get() { Poll::Ready(Ok(())) } else { Poll::Pending }).await
    }

    #[test]
    fn a_range_is_held_when_what_was_under_way_has_ended() {
        let (gate, end) = (Gate::default(), Cell::new(false));
        let mut older = pin!(gate.change(8192..16384, until(&end)));
        assert!(poll(older.as_mut()).is_pending());
        let mut hold = pin!(gate.hold(0..4096));
        assert!(poll(hold.as_mut()).is_pending(), "the older one may touch the range");
        let mut beside = pin!(gate.change(4096..4608, async { Ok(()) }));
        assert!(poll(beside.as_mut()).is_ready(), "touching is not overlapping");
        let mut within = pin!(gate.read(2048..4608, async { Ok(()) }));
        assert!(poll(within.as_mut()).is_pending());
        end.set(true);
        assert!(poll(older.as_mut()).is_ready());
        assert_eq!(poll(hold.as_mut()), Poll::Ready(Ok(())));
        assert!(poll(within.as_mut()).is_pending());
        gate.let_go();
        assert_eq!(poll(within.as_mut()), Poll::Ready(Ok(())));
        // Also the next time.
        assert_eq!(poll(pin!(gate.hold(0..4096))), Poll::Ready(Ok(())));
    }

    /// Also if they share only a block of the disk, and whoever is woken first.
    #[test]
    fn operations_that_were_held_back_keep_their_order() {
        let gate = Gate::default();
        let order = &RefCell::new(Vec::new());
        let note = |number: u64| async move {
            order.borrow_mut().push(number);
            Ok(())
        };
        assert_eq!(poll(pin!(gate.hold(0..4096))), Poll::Ready(Ok(())));
        let mut first = pin!(gate.change(3584..4608, note(1)));
        assert!(poll(first.as_mut()).is_pending());
        let mut second = pin!(gate.change(5120..5632, note(2)));
        assert!(poll(second.as_mut()).is_pending(), "it shares the last block of the first");
        let mut apart = pin!(gate.change(8192..8704, note(3)));
        assert!(poll(apart.as_mut()).is_ready());
        gate.let_go();
        let mut third = pin!(gate.change(3584..4096, note(4)));
        assert!(poll(third.as_mut()).is_pending(), "it came last");
        assert!(poll(second.as_mut()).is_pending());
        assert!(poll(first.as_mut()).is_ready());
        assert!(poll(third.as_mut()).is_ready());
        assert!(poll(second.as_mut()).is_ready());
        assert_eq!(*order.borrow(), [3, 1, 4, 2]);
        assert!(gate.waiting.borrow().is_empty());
    }

    #[test]
    fn nothing_is_held_that_may_still_change() {
        let (gate, never) = (Gate::default(), Cell::new(false));
        {
            let mut given_up = pin!(gate.change(0..8, until(&never)));
            assert!(poll(given_up.as_mut()).is_pending());
        }
        assert_eq!(poll(pin!(gate.hold(0..8))), Poll::Ready(Err(SliceError::Offline)));
        assert_eq!(poll(pin!(gate.change(0..8, async { Ok(()) }))), Poll::Ready(Ok(())));
        // A read that is given up changes nothing.
        let gate = Gate::default();
        {
            let mut given_up = pin!(gate.read(0..8, until(&never)));
            assert!(poll(given_up.as_mut()).is_pending());
        }
        assert_eq!(poll(pin!(gate.hold(0..8))), Poll::Ready(Ok(())));
    }

    #[test]
    fn operations_fail_where_it_is_unknown_what_counts() {
        let gate = Gate::default();
        assert_eq!(poll(pin!(gate.hold(0..8))), Poll::Ready(Ok(())));
        let mut waiting = pin!(gate.read(0..1, async { Ok(()) }));
        assert!(poll(waiting.as_mut()).is_pending());
        gate.lose();
        assert_eq!(poll(waiting.as_mut()), Poll::Ready(Err(SliceError::Offline)));
        assert_eq!(poll(pin!(gate.read(8..9, async { Ok(()) }))), Poll::Ready(Ok(())));
        let all = Gate::default();
        all.lose();
        assert_eq!(poll(pin!(all.read(8..9, async { Ok(()) }))), Poll::Ready(Err(SliceError::Offline)));
    }
}
