//! Waiting for other tasks. [`oneshot`] works between threads; everything else is for tasks of one core.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

/// A channel for one value, which may come from another thread.
pub fn oneshot<T>() -> (Sender<T>, Receiver<T>) {
    let slot = Arc::new(Mutex::new(Slot { value: None, waker: None, closed: false }));
    (Sender(Arc::clone(&slot)), Receiver(slot))
}

struct Slot<T> {
    value: Option<T>,
    waker: Option<Waker>,
    /// The sender was dropped.
    closed: bool,
}

/// Sends the value of a [`oneshot`].
pub struct Sender<T>(Arc<Mutex<Slot<T>>>);

/// Receives the value of a [`oneshot`], or [`Closed`] if its sender was dropped.
pub struct Receiver<T>(Arc<Mutex<Slot<T>>>);

/// The other side was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the other side is gone")]
pub struct Closed;

impl<T> Sender<T> {
    /// Sends the value. It does no harm if the receiver was dropped.
    pub fn send(self, value: T) {
        self.0.lock().expect("no code panics while it holds the slot").value = Some(value);
        // Dropping `self` wakes the receiver.
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        let waker = {
            let mut slot = self.0.lock().expect("no code panics while it holds the slot");
            slot.closed = true;
            slot.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl<T> Future for Receiver<T> {
    type Output = Result<T, Closed>;
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T, Closed>> {
        let mut slot = self.0.lock().expect("no code panics while it holds the slot");
        if let Some(value) = slot.value.take() {
            return Poll::Ready(Ok(value));
        }
        if slot.closed {
            return Poll::Ready(Err(Closed));
        }
        slot.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

/// Wakes all tasks that wait for it. A `notify` without waiting tasks is remembered once.
///
/// To begin or end a wait costs the same however many others wait.
#[derive(Default)]
pub struct Notify {
    /// No waiter has returned since the last `notify` (one may have been dropped), so the next `notified`
    /// returns at once.
    remembered: Cell<bool>,
    /// Counts the calls of `notify`, so that a waiter detects one that came after it began to wait.
    calls: Cell<u64>,
    /// The waiters, by number; `None`: it was dropped.
    waiting: RefCell<Vec<(u64, Option<Waker>)>>,
    /// How many of them were dropped: fewer than half.
    dropped: Cell<usize>,
    /// The number of the next waiter.
    next: Cell<u64>,
}

impl Notify {
    /// A new one, without a remembered `notify`.
    pub fn new() -> Notify {
        Notify::default()
    }

    /// Wakes all waiters, or lets the next `notified` return at once.
    pub fn notify(&self) {
        self.calls.set(self.calls.get() + 1);
        self.remembered.set(true);
        self.dropped.set(0);
        let waiting = self.waiting.take();
        waiting.into_iter().filter_map(|(_, waker)| waker).for_each(Waker::wake);
    }

    /// Waits until `condition` holds. It is checked now, and after each `notify`.
    pub async fn until(&self, condition: impl Fn() -> bool) {
        while !condition() {
            self.notified().await;
        }
    }

    /// Waits for the next `notify`.
    pub async fn notified(&self) {
        let mut waiter = Waiter { notify: self, began: None };
        std::future::poll_fn(|context| waiter.poll(context)).await;
    }

    /// Waits for the next `notify` of this or of the other one.
    pub async fn notified_or(&self, other: &Notify) {
        let (mut this, mut other) = (pin!(self.notified()), pin!(other.notified()));
        std::future::poll_fn(|context| match this.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(()),
            Poll::Pending => other.as_mut().poll(context),
        })
        .await;
    }

    /// Begins a wait: its number, and the calls of `notify` until now.
    fn begin(&self) -> (u64, u64) {
        let number = self.next.get();
        self.next.set(number + 1);
        (number, self.calls.get())
    }

    /// Where the waiter with this number is, or belongs.
    fn place_of(waiting: &[(u64, Option<Waker>)], number: u64) -> Result<usize, usize> {
        waiting.binary_search_by_key(&number, |(number, _)| *number)
    }
}

/// A wait for the next `notify`. It leaves no waker behind when it is dropped.
struct Waiter<'a> {
    notify: &'a Notify,
    /// See [`Notify::begin`]; `None`: it was not polled yet.
    began: Option<(u64, u64)>,
}

impl Waiter<'_> {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let notify = self.notify;
        let (number, calls) = *self.began.get_or_insert_with(|| notify.begin());
        if notify.remembered.replace(false) || notify.calls.get() != calls {
            return Poll::Ready(());
        }
        let waker = context.waker().clone();
        let mut waiting = notify.waiting.borrow_mut();
        let previous = match Notify::place_of(&waiting, number) {
            Ok(at) => waiting[at].1.replace(waker),
            Err(at) => {
                waiting.insert(at, (number, Some(waker)));
                None
            }
        };
        // Dropping a waker may drop its task, which may wait here, too.
        drop(waiting);
        drop(previous);
        Poll::Pending
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        let Some((number, _)) = self.began else { return };
        let notify = self.notify;
        let mut waiting = notify.waiting.borrow_mut();
        let Ok(at) = Notify::place_of(&waiting, number) else { return };
        let waker = waiting[at].1.take();
        notify.dropped.set(notify.dropped.get() + 1);
        // If each moved all that come behind it, n waiters that give up together would cost n².
        if notify.dropped.get() * 2 >= waiting.len() {
            waiting.retain(|(_, waker)| waker.is_some());
            notify.dropped.set(0);
        }
        drop(waiting);
        drop(waker);
    }
}

/// A bounded number of permits, granted in the order of the requests.
pub struct Semaphore {
    permits: Cell<usize>,
    waiting: RefCell<VecDeque<(usize, Sender<()>)>>,
}

impl Semaphore {
    /// A semaphore with `permits` permits.
    pub fn new(permits: usize) -> Semaphore {
        Semaphore { permits: Cell::new(permits), waiting: RefCell::default() }
    }

    /// The number of free permits.
    pub fn available(&self) -> usize {
        self.permits.get()
    }

    /// Takes `count` permits if they are free and no other task waits.
    pub fn try_acquire(&self, count: usize) -> bool {
        let free = self.waiting.borrow().is_empty() && self.permits.get() >= count;
        if free {
            self.permits.set(self.permits.get() - count);
        }
        free
    }

    /// Waits for `count` permits. The caller returns them with [`Semaphore::release`]; dropping returns
    /// nothing.
    pub async fn acquire(&self, count: usize) {
        if self.try_acquire(count) {
            return;
        }
        let (granted, wait) = oneshot();
        self.waiting.borrow_mut().push_back((count, granted));
        let mut guard = Ungranted { semaphore: self, count, wait: Some(wait) };
        guard.wait().await;
    }

    /// Returns `count` permits.
    pub fn release(&self, count: usize) {
        self.permits.set(self.permits.get() + count);
        loop {
            let granted = {
                let mut waiting = self.waiting.borrow_mut();
                match waiting.front() {
                    Some((wanted, _)) if *wanted <= self.permits.get() => {
                        let (wanted, granted) = waiting.pop_front().expect("just seen");
                        self.permits.set(self.permits.get() - wanted);
                        granted
                    }
                    _ => return,
                }
            };
            granted.send(());
        }
    }
}

/// Returns permits that were granted to a waiter that no longer waits.
struct Ungranted<'a> {
    semaphore: &'a Semaphore,
    count: usize,
    wait: Option<Receiver<()>>,
}

impl Ungranted<'_> {
    async fn wait(&mut self) {
        let wait = self.wait.as_mut().expect("only taken below");
        wait.await.expect("the semaphore keeps the sender until it grants");
        self.wait = None;
    }
}

impl Drop for Ungranted<'_> {
    fn drop(&mut self) {
        let Some(wait) = &self.wait else { return };
        let granted = wait.0.lock().expect("no code panics while it holds the slot").value.is_some();
        if granted {
            self.semaphore.release(self.count);
        } else {
            let slot = Arc::as_ptr(&wait.0);
            let removed = {
                let mut waiting = self.semaphore.waiting.borrow_mut();
                let at = waiting.iter().position(|(_, sender)| Arc::as_ptr(&sender.0) == slot);
                at.and_then(|at| waiting.remove(at))
            };
            drop(removed);
            self.semaphore.release(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn poll<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn notify_reaches_every_waiter() {
        let notify = Notify::new();
        let (mut first, mut second) = (pin!(notify.notified()), pin!(notify.notified()));
        assert!(poll(first.as_mut()).is_pending() && poll(second.as_mut()).is_pending());
        notify.notify();
        assert!(poll(first.as_mut()).is_ready() && poll(second.as_mut()).is_ready());
        assert!(poll(pin!(notify.notified())).is_pending(), "it reached somebody, so it is not remembered");
        {
            let mut gives_up = pin!(notify.notified());
            assert!(poll(gives_up.as_mut()).is_pending());
        }
        notify.notify();
        assert!(poll(pin!(notify.notified())).is_ready(), "who gave up did not take it away");
    }

    #[test]
    fn a_wait_leaves_nothing_behind() {
        let notify = Notify::new();
        let mut stays = pin!(notify.notified());
        assert!(poll(stays.as_mut()).is_pending());
        for _ in 0..3 {
            let mut gives_up = Box::pin(notify.notified());
            assert!(poll(gives_up.as_mut()).is_pending() && poll(gives_up.as_mut()).is_pending());
            assert_eq!(notify.waiting.borrow().len(), 2);
        }
        assert_eq!(notify.waiting.borrow().len(), 1, "one still waits");
        notify.notify();
        assert!(poll(stays.as_mut()).is_ready());
        assert!(notify.waiting.borrow().is_empty());
    }

    #[test]
    fn of_many_waits_some_are_dropped() {
        let notify = Notify::new();
        let mut waits: Vec<_> = (0..100).map(|_| Box::pin(notify.notified())).collect();
        assert!(waits.iter_mut().all(|wait| poll(wait.as_mut()).is_pending()));
        for part in [2, 3, 5] {
            let mut number = 0;
            waits.retain(|_| {
                number += 1;
                number % part == 0
            });
            assert!(notify.waiting.borrow().len() < 2 * waits.len());
            assert!(waits.iter_mut().all(|wait| poll(wait.as_mut()).is_pending()));
        }
        assert_eq!(waits.len(), 3);
        notify.notify();
        assert!(waits.iter_mut().all(|wait| poll(wait.as_mut()).is_ready()));
        assert!(notify.waiting.borrow().is_empty() && notify.dropped.get() == 0);
        assert!(poll(pin!(notify.notified())).is_pending(), "it reached those that were left");
    }

    #[test]
    fn a_wait_for_one_of_two_ends_with_either() {
        let (first, second) = (Notify::new(), Notify::new());
        for notify in [&first, &second] {
            let mut wait = pin!(first.notified_or(&second));
            assert!(poll(wait.as_mut()).is_pending());
            notify.notify();
            assert!(poll(wait.as_mut()).is_ready());
        }
        assert!(first.waiting.borrow().is_empty() && poll(pin!(first.notified())).is_pending());
    }

    #[test]
    fn notify_is_remembered_once() {
        let notify = Notify::new();
        notify.notify();
        notify.notify();
        assert!(poll(pin!(notify.notified())).is_ready());
        assert!(poll(pin!(notify.notified())).is_pending());
    }

    #[test]
    fn permits_go_to_the_first_in_line() {
        let semaphore = Semaphore::new(2);
        let mut large = Box::pin(semaphore.acquire(3));
        assert!(poll(large.as_mut()).is_pending());
        assert!(!semaphore.try_acquire(1), "somebody waits");
        semaphore.release(1);
        let mut small = pin!(semaphore.acquire(1));
        assert!(poll(small.as_mut()).is_pending());
        drop(large);
        assert!(poll(small.as_mut()).is_ready(), "permits granted to who gave up go on");
        assert_eq!(semaphore.available(), 2);
    }

    #[test]
    fn a_dropped_sender_is_noticed() {
        let (sender, mut receiver) = oneshot::<u8>();
        assert!(poll(Pin::new(&mut receiver)).is_pending());
        drop(sender);
        assert_eq!(poll(Pin::new(&mut receiver)), Poll::Ready(Err(Closed)));
        let (sender, mut receiver) = oneshot();
        sender.send(7);
        assert_eq!(poll(Pin::new(&mut receiver)), Poll::Ready(Ok(7)));
    }
}

#[cfg(test)]
mod notify_tests {
    use super::*;

    #[test]
    fn until_checks_again_at_each_notify_and_at_nothing_else() {
        let (bell, ready, looks) = (Notify::new(), Cell::new(false), Cell::new(0));
        // Nothing waited for this one: it does not mean that the condition holds.
        bell.notify();
        let wait = bell.until(|| {
            looks.set(looks.get() + 1);
            ready.get()
        });
        let mut wait = pin!(wait);
        let mut poll = || wait.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert_eq!((poll(), poll()), (Poll::Pending, Poll::Pending));
        let before = looks.get();
        ready.set(true);
        assert_eq!((poll(), looks.get()), (Poll::Pending, before));
        bell.notify();
        assert_eq!(poll(), Poll::Ready(()));
        let holds = pin!(bell.until(|| true)).poll(&mut Context::from_waker(Waker::noop()));
        assert_eq!(holds, Poll::Ready(()), "it waits for no notify");
    }
}
