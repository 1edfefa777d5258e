//! Waiting for a time.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use base::Instant;

use crate::executor::{Core, current, now};

/// The sleeping tasks of a core, by deadline and then by age.
#[derive(Default)]
pub(crate) struct Timers {
    sleeping: RefCell<BTreeMap<(Instant, u64), Waker>>,
    next: Cell<u64>,
}

impl Timers {
    /// The deadline of the next sleeper.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.sleeping.borrow().first_key_value().map(|((deadline, _), _)| *deadline)
    }

    /// Wakes all sleepers that are due at `now`; returns how many.
    pub(crate) fn fire(&self, now: Instant) -> usize {
        let mut fired = 0;
        loop {
            let due = {
                let mut sleeping = self.sleeping.borrow_mut();
                match sleeping.first_entry() {
                    Some(first) if first.key().0 <= now => first.remove(),
                    _ => return fired,
                }
            };
            due.wake();
            fired += 1;
        }
    }
}

/// Waits until a time; see [`sleep`].
pub struct Sleep {
    deadline: Instant,
    /// Its entry in the core's timers and the waker in it; present from the first poll on.
    entry: Option<Entry>,
}

/// An entry among the sleepers of a core.
struct Entry {
    core: Rc<Core>,
    number: u64,
    waker: Waker,
}

impl Future for Sleep {
    type Output = ();
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if now() >= self.deadline {
            return Poll::Ready(());
        }
        let deadline = self.deadline;
        // A sleep next to a busy future, as in `timeout`, is polled often.
        if self.entry.as_ref().is_some_and(|entry| entry.waker.will_wake(context.waker())) {
            return Poll::Pending;
        }
        let (core, number) = match self.entry.take() {
            Some(entry) => (entry.core, entry.number),
            None => {
                let core = current();
                let number = core.timers.next.get();
                core.timers.next.set(number + 1);
                (core, number)
            }
        };
        let waker = context.waker().clone();
        let previous = core.timers.sleeping.borrow_mut().insert((deadline, number), waker.clone());
        drop(previous);
        self.entry = Some(Entry { core, number, waker });
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(Entry { core, number, .. }) = &self.entry {
            let waker = core.timers.sleeping.borrow_mut().remove(&(self.deadline, *number));
            drop(waker);
        }
    }
}

/// Waits for `duration`.
pub fn sleep(duration: Duration) -> Sleep {
    sleep_until(now() + duration)
}

/// Waits until `deadline`.
pub fn sleep_until(deadline: Instant) -> Sleep {
    Sleep { deadline, entry: None }
}

/// The time was over before the future was ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the deadline passed")]
pub struct Elapsed;

/// Waits for `future`, but drops it after `duration`.
pub async fn timeout<T>(duration: Duration, future: impl Future<Output = T>) -> Result<T, Elapsed> {
    timeout_at(now() + duration, future).await
}

/// Waits for `future`, but drops it at `deadline`.
pub async fn timeout_at<T>(deadline: Instant, future: impl Future<Output = T>) -> Result<T, Elapsed> {
    let mut future = pin!(future);
    let mut sleep = sleep_until(deadline);
    std::future::poll_fn(|context| {
        if let Poll::Ready(value) = future.as_mut().poll(context) {
            return Poll::Ready(Ok(value));
        }
        Pin::new(&mut sleep).poll(context).map(|()| Err(Elapsed))
    })
    .await
}
