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
/// Callers rely on the order in which they have begun changes: one that waits here is not overtaken by a
/// later one on the same block. Reads have no place in that order: one that is under way together with a
/// change may see what was before or what is after.
#[derive(Default)]
pub(crate) struct Gate {
    held: RefCell<Option<Range<u64>>>,
    /// It is unknown where the held range lies: operations on it fail.
    lost: Cell<bool>,
    /// The changes that wait, by age.
    waiting: RefCell<BTreeMap<u64, Range<u64>>>,
    /// The number of the next change that waits.
    next: Cell<u64>,
    /// The operations under way, by the turn in which they began.
    under_way: [Cell<usize>; 2],
    turn: Cell<usize>,
    /// The caller of a change gave up before its I/O had ended, and nobody knows when that ends.
    abandoned: Cell<bool>,
    /// Notified when a range is no longer held, and when a turn's last operation has ended.
    changed: Notify,
}

/// An operation under way. A read ends when this is dropped, a change with [`Pass::end`].
#[must_use]
pub(crate) struct Pass<'a> {
    gate: &'a Gate,
    turn: usize,
    /// It changes something, and its I/O may be under way.
    changes: bool,
}

impl Pass<'_> {
    /// The change has ended, whether or not it succeeded. If this is not called, it may still happen.
    pub(crate) fn end(mut self) {
        self.changes = false;
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

/// A change that waits.
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

/// A range is being held. Unless it is held in the end, the operations on it continue.
pub(crate) struct Holding<'a> {
    pub(crate) gate: &'a Gate,
    pub(crate) is_held: bool,
}

impl Drop for Holding<'_> {
    fn drop(&mut self) {
        if !self.is_held {
            self.gate.let_go();
        }
    }
}

impl Gate {
    /// Begins a read, when its range is not held.
    pub(crate) async fn read(&self, range: Range<u64>) -> Result<Pass<'_>, SliceError> {
        if self.holds_some_of(&range) {
            self.changed.until(|| self.lost.get() || !self.holds_some_of(&range)).await;
        }
        self.pass(&range, false)
    }

    /// Begins a change, when its range is not held. It ends with [`Pass::end`].
    pub(crate) async fn change(&self, range: Range<u64>) -> Result<Pass<'_>, SliceError> {
        if self.holds_some_of(&range) || self.is_any_waiting(self.next.get(), &range) {
            let number = self.next.get();
            self.next.set(number + 1);
            self.waiting.borrow_mut().insert(number, range.clone());
            let _waiting = Waiting { gate: self, number };
            let goes_on = || match self.holds_some_of(&range) {
                true => self.lost.get(),
                false => !self.is_any_waiting(number, &range),
            };
            self.changed.until(goes_on).await;
        }
        self.pass(&range, true)
    }

    /// Holds back all operations on `range` that begin from now on, and waits until those under way have
    /// ended. If this is dropped before, nothing is held.
    ///
    /// # Errors
    /// [`SliceError::Offline`]: the caller of a change gave up, and the change may still happen; or it is
    /// unknown where a part lies. Nothing is held then that was not before.
    pub(crate) async fn hold(&self, range: Range<u64>) -> Result<(), SliceError> {
        if self.lost.get() {
            return Err(SliceError::Offline);
        }
        assert!(self.held.borrow().is_none(), "one range at a time");
        self.held.replace(Some(range));
        let mut holding = Holding { gate: self, is_held: false };
        let before = self.turn.get();
        // There are some only if an earlier hold did not wait for all of them.
        self.changed.until(|| self.under_way[1 - before].get() == 0).await;
        self.turn.set(1 - before);
        self.changed.until(|| self.under_way[before].get() == 0).await;
        if self.abandoned.get() {
            return Err(SliceError::Offline);
        }
        holding.is_held = true;
        Ok(())
    }

    /// Lets the operations on the held range continue, unless they fail.
    pub(crate) fn let_go(&self) {
        if !self.lost.get() {
            self.held.replace(None);
        }
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

    /// Notes that an operation begins. From here until it has begun, nothing else runs on this core.
    fn pass(&self, range: &Range<u64>, changes: bool) -> Result<Pass<'_>, SliceError> {
        if self.holds_some_of(range) {
            return Err(SliceError::Offline);
        }
        let turn = self.turn.get();
        self.under_way[turn].set(self.under_way[turn].get() + 1);
        Ok(Pass { gate: self, turn, changes })
    }

    /// Whether a change older than `number` waits that has a block in common with `range`.
    fn is_any_waiting(&self, number: u64, range: &Range<u64>) -> bool {
        let waiting = self.waiting.borrow();
        if waiting.is_empty() {
            return false;
        }
        let blocks = |range: &Range<u64>| range.start / ORDER_BYTES..range.end.div_ceil(ORDER_BYTES);
        let wanted = blocks(range);
        waiting.range(..number).any(|(_, other)| {
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

    /// The I/O of an operation, which ends when the flag is set.
    async fn until(flag: &Cell<bool>) {
        std::future::poll_fn(|_| if flag.get() { Poll::Ready(()) } else { Poll::Pending }).await;
    }

    async fn change(gate: &Gate, range: Range<u64>, io: impl Future<Output = ()>) -> Result<(), SliceError> {
        let pass = gate.change(range).await?;
        io.await;
        pass.end();
        Ok(())
    }

    async fn read(gate: &Gate, range: Range<u64>, io: impl Future<Output = ()>) -> Result<(), SliceError> {
        let _pass = gate.read(range).await?;
        io.await;
        Ok(())
    }

    #[test]
    fn a_range_is_held_when_what_was_under_way_has_ended() {
        let (gate, end) = (Gate::default(), Cell::new(false));
        let mut older = pin!(change(&gate, 8192..16384, until(&end)));
        assert!(poll(older.as_mut()).is_pending());
        let mut hold = pin!(gate.hold(0..4096));
        assert!(poll(hold.as_mut()).is_pending(), "the older one may touch the range");
        let mut beside = pin!(change(&gate, 4096..4608, async {}));
        assert!(poll(beside.as_mut()).is_ready(), "touching is not overlapping");
        let mut within = pin!(read(&gate, 2048..4608, async {}));
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
    fn changes_that_were_held_back_keep_their_order() {
        let gate = Gate::default();
        let order = &RefCell::new(Vec::new());
        let note = |number: u64| async move { order.borrow_mut().push(number) };
        assert_eq!(poll(pin!(gate.hold(0..4096))), Poll::Ready(Ok(())));
        let mut first = pin!(change(&gate, 3584..4608, note(1)));
        assert!(poll(first.as_mut()).is_pending());
        let mut second = pin!(change(&gate, 5120..5632, note(2)));
        assert!(poll(second.as_mut()).is_pending(), "it shares the last block of the first");
        let mut apart = pin!(change(&gate, 8192..8704, note(3)));
        assert!(poll(apart.as_mut()).is_ready());
        gate.let_go();
        let mut third = pin!(change(&gate, 3584..4096, note(4)));
        assert!(poll(third.as_mut()).is_pending(), "it came last");
        assert!(poll(second.as_mut()).is_pending());
        assert!(poll(first.as_mut()).is_ready());
        assert!(poll(third.as_mut()).is_ready());
        assert!(poll(second.as_mut()).is_ready());
        assert_eq!(*order.borrow(), [3, 1, 4, 2]);
        assert!(gate.waiting.borrow().is_empty());
    }

    /// Whoever asks another copy instead does not poll its read meanwhile.
    #[test]
    fn a_read_that_nobody_polls_holds_up_no_change() {
        let gate = Gate::default();
        assert_eq!(poll(pin!(gate.hold(0..4096))), Poll::Ready(Ok(())));
        let mut unpolled = pin!(read(&gate, 0..4096, async {}));
        assert!(poll(unpolled.as_mut()).is_pending());
        gate.let_go();
        assert_eq!(poll(pin!(change(&gate, 0..4096, async {}))), Poll::Ready(Ok(())));
        assert_eq!(poll(unpolled.as_mut()), Poll::Ready(Ok(())));
    }

    #[test]
    fn a_hold_that_is_given_up_lets_go_and_is_made_up_for_by_the_next() {
        let (gate, end) = (Gate::default(), Cell::new(false));
        let mut slow = pin!(change(&gate, 0..8, until(&end)));
        assert!(poll(slow.as_mut()).is_pending());
        {
            let mut given_up = pin!(gate.hold(0..8));
            assert!(poll(given_up.as_mut()).is_pending());
        }
        assert_eq!(poll(pin!(change(&gate, 0..8, async {}))), Poll::Ready(Ok(())), "nothing is held");
        let mut again = pin!(gate.hold(0..8));
        assert!(poll(again.as_mut()).is_pending(), "the slow one is still under way");
        end.set(true);
        assert!(poll(slow.as_mut()).is_ready());
        assert_eq!(poll(again.as_mut()), Poll::Ready(Ok(())));
    }

    #[test]
    fn nothing_is_held_that_may_still_change() {
        let (gate, never) = (Gate::default(), Cell::new(false));
        {
            let mut given_up = pin!(change(&gate, 0..8, until(&never)));
            assert!(poll(given_up.as_mut()).is_pending());
        }
        assert_eq!(poll(pin!(gate.hold(0..8))), Poll::Ready(Err(SliceError::Offline)));
        assert_eq!(poll(pin!(change(&gate, 0..8, async {}))), Poll::Ready(Ok(())));
        // A read whose caller gives up changes nothing.
        let gate = Gate::default();
        {
            let mut given_up = pin!(read(&gate, 0..8, until(&never)));
            assert!(poll(given_up.as_mut()).is_pending());
        }
        assert_eq!(poll(pin!(gate.hold(0..8))), Poll::Ready(Ok(())));
    }

    #[test]
    fn operations_fail_where_it_is_unknown_what_counts() {
        let gate = Gate::default();
        assert_eq!(poll(pin!(gate.hold(0..8))), Poll::Ready(Ok(())));
        let mut waiting = pin!(read(&gate, 0..1, async {}));
        assert!(poll(waiting.as_mut()).is_pending());
        gate.lose();
        assert_eq!(poll(waiting.as_mut()), Poll::Ready(Err(SliceError::Offline)));
        assert_eq!(poll(pin!(read(&gate, 8..9, async {}))), Poll::Ready(Ok(())));
        // Nothing brings it back: neither the end of the move nor the next one.
        assert_eq!(poll(pin!(gate.hold(16..32))), Poll::Ready(Err(SliceError::Offline)));
        gate.let_go();
        assert_eq!(poll(pin!(change(&gate, 0..1, async {}))), Poll::Ready(Err(SliceError::Offline)));
        let all = Gate::default();
        all.lose();
        assert_eq!(poll(pin!(read(&all, 8..9, async {}))), Poll::Ready(Err(SliceError::Offline)));
    }
}
