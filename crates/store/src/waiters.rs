//! Tasks of one core that wait for a condition: all of them look again at each `wake`.

use std::cell::RefCell;
use std::task::{Poll, Waker};

#[derive(Default)]
pub(crate) struct Waiters(RefCell<Vec<Waker>>);

impl Waiters {
    /// Lets every waiter look at its condition again.
    pub(crate) fn wake(&self) {
        let waiting = self.0.take();
        waiting.into_iter().for_each(Waker::wake);
    }

    /// Waits until `condition` holds; it is looked at now and after each [`Waiters::wake`].
    pub(crate) async fn until(&self, condition: impl Fn() -> bool) {
        std::future::poll_fn(|context| {
            if condition() {
                return Poll::Ready(());
            }
            let mut waiting = self.0.borrow_mut();
            if !waiting.iter().any(|waker| waker.will_wake(context.waker())) {
                waiting.push(context.waker().clone());
            }
            Poll::Pending
        })
        .await;
    }
}
