//! The memory that the commands of a session may hold in addition to the data that came with them.
//!
//! It covers what commands read from the disk (for the initiator, or to compare, change or copy it), and what
//! the initiator has not received yet. Without a limit, an initiator that sends 128 reads of 8 MiB and
//! receives nothing would hold a gigabyte. A command that does not fit waits; a single command always fits,
//! however large. A command gets its memory before it claims blocks, so a command that holds blocks never
//! waits for one that waits for them.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;

use rt::sync::Notify;

/// The budget of one session.
pub struct Budget {
    max: Cell<usize>,
    /// Bytes of commands that were admitted and have not ended.
    running: Cell<usize>,
    /// Bytes of responses that are not sent.
    queued: Cell<usize>,
    /// Waiting commands, by age. The oldest goes first: otherwise a large one could wait forever.
    waiting: RefCell<BTreeSet<u64>>,
    next_ticket: Cell<u64>,
    /// Notified when the next in line may fit.
    freed: Notify,
}

impl Budget {
    /// A budget of `max` bytes.
    pub fn new(max: usize) -> Budget {
        Budget {
            max: Cell::new(max),
            running: Cell::new(0),
            queued: Cell::new(0),
            waiting: RefCell::default(),
            next_ticket: Cell::new(0),
            freed: Notify::new(),
        }
    }

    /// Waits until `bytes` fit.
    pub async fn admit(&self, bytes: usize) -> Admitted<'_> {
        if !self.waiting.borrow().is_empty() || !self.fits(bytes) {
            let place = Place::in_line(self);
            let is_next = || self.waiting.borrow().first() == Some(&place.ticket);
            self.freed.until(|| is_next() && self.fits(bytes)).await;
        }
        self.running.set(self.running.get() + bytes);
        Admitted { budget: self, bytes }
    }

    fn fits(&self, bytes: usize) -> bool {
        let held = self.running.get() + self.queued.get();
        held == 0 || held + bytes <= self.max.get()
    }

    /// Sets the size of the responses that are not sent.
    pub fn set_queued(&self, bytes: usize) {
        if self.queued.replace(bytes) > bytes {
            self.freed.notify();
        }
    }

    /// Sets another limit, since the number of sessions has changed.
    pub fn set_max(&self, max: usize) {
        if self.max.replace(max) < max {
            self.freed.notify();
        }
    }
}

/// A command that waits.
struct Place<'a> {
    budget: &'a Budget,
    ticket: u64,
}

impl<'a> Place<'a> {
    fn in_line(budget: &'a Budget) -> Place<'a> {
        let ticket = budget.next_ticket.get();
        budget.next_ticket.set(ticket + 1);
        budget.waiting.borrow_mut().insert(ticket);
        Place { budget, ticket }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.budget.waiting.borrow_mut().remove(&self.ticket);
        self.budget.freed.notify();
    }
}

/// The memory that a command was admitted with. Released on drop.
pub struct Admitted<'a> {
    budget: &'a Budget,
    bytes: usize,
}

impl Drop for Admitted<'_> {
    fn drop(&mut self) {
        self.budget.running.set(self.budget.running.get() - self.bytes);
        self.budget.freed.notify();
    }
}

#[cfg(test)]
mod tests {
    use std::pin::{Pin, pin};
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn poll<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn commands_that_do_not_fit_wait_and_a_single_one_fits() {
        let budget = Budget::new(10);
        let Poll::Ready(large) = poll(pin!(budget.admit(100))) else { panic!("nothing else is held") };
        let mut small = pin!(budget.admit(1));
        assert!(poll(small.as_mut()).is_pending());
        budget.set_queued(100);
        drop(large);
        assert!(poll(small.as_mut()).is_pending(), "answered, but not sent");
        budget.set_queued(9);
        let Poll::Ready(_small) = poll(small.as_mut()) else { panic!("ten bytes fit") };
        let mut more = pin!(budget.admit(1));
        assert!(poll(more.as_mut()).is_pending());
        let mut late = pin!(budget.admit(0));
        assert!(poll(late.as_mut()).is_pending(), "who came first goes first");
        budget.set_max(11);
        assert!(poll(more.as_mut()).is_ready());
        assert!(poll(late.as_mut()).is_ready());
    }
}
