//! Exclusive locks on ranges of a slice, granted in the order of the requests.
//!
//! Used where a block is read, changed and written back, so that no other write changes it meanwhile; and to
//! serialize changes of a list.

use std::cell::{Cell, RefCell};

use rt::sync::Notify;

#[derive(Default)]
pub(crate) struct RangeLock {
    /// The ranges that are held or waited for, by age. There are as many as writes under way on the slice.
    claims: RefCell<Vec<Claim>>,
    next: Cell<u64>,
    waiters: Notify,
}

#[derive(Clone, Copy)]
struct Claim {
    ticket: u64,
    start: u64,
    end: u64,
}

/// Holds the range until dropped.
pub(crate) struct Locked<'a> {
    lock: &'a RangeLock,
    ticket: u64,
}

impl RangeLock {
    /// Waits until no older claim overlaps `start..end`.
    pub(crate) async fn lock(&self, start: u64, end: u64) -> Locked<'_> {
        let ticket = self.next.get();
        self.next.set(ticket + 1);
        self.claims.borrow_mut().push(Claim { ticket, start, end });
        // From here on, so that a waiter that is dropped gives up its claim.
        let locked = Locked { lock: self, ticket };
        let free = || {
            let claims = self.claims.borrow();
            !claims
                .iter()
                .take_while(|claim| claim.ticket < ticket)
                .any(|claim| claim.start < end && start < claim.end)
        };
        self.waiters.until(free).await;
        locked
    }

    /// Whether nobody holds a range, or waits for one.
    pub(crate) fn is_free(&self) -> bool {
        self.claims.borrow().is_empty()
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        self.lock.claims.borrow_mut().retain(|claim| claim.ticket != self.ticket);
        self.lock.waiters.notify();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    #[test]
    fn overlapping_ranges_wait_in_order() {
        let lock = RangeLock::default();
        let mut context = Context::from_waker(Waker::noop());
        let mut poll =
            |future: std::pin::Pin<&mut dyn Future<Output = ()>>| future.poll(&mut context).is_ready();
        let Poll::Ready(first) = pin!(lock.lock(0, 10)).poll(&mut Context::from_waker(Waker::noop())) else {
            panic!("nobody else is there");
        };
        let mut second = pin!(async { drop(lock.lock(5, 20).await) });
        let mut behind_second = pin!(async { drop(lock.lock(15, 30).await) });
        let mut apart = pin!(async { drop(lock.lock(30, 40).await) });
        assert!(!poll(second.as_mut()));
        assert!(!poll(behind_second.as_mut()));
        assert!(poll(apart.as_mut()));
        drop(first);
        assert!(!poll(behind_second.as_mut()), "it is younger than the second");
        assert!(poll(second.as_mut()));
        assert!(poll(behind_second.as_mut()));
        assert!(lock.claims.borrow().is_empty());
    }

    #[test]
    fn a_dropped_waiter_is_in_nobodys_way() {
        let lock = RangeLock::default();
        let mut context = Context::from_waker(Waker::noop());
        let Poll::Ready(first) = pin!(lock.lock(0, 10)).poll(&mut context) else {
            panic!("nobody else is there")
        };
        {
            let mut waiting = pin!(lock.lock(0, 10));
            assert!(waiting.as_mut().poll(&mut context).is_pending());
        }
        drop(first);
        assert!(pin!(lock.lock(0, 10)).poll(&mut context).is_ready());
    }
}
