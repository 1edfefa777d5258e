use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use rt::sync::{Receiver, Sender, oneshot};

use crate::error::Error;
use crate::limits::{DEADLINE_MAX, GRACE};

/// A call whose answer is pending.
///
/// On a core, await it; a thread that may block uses [`Call::wait`]. Both end by the deadline, or one second
/// later if the engine's disk hangs and the engine cannot answer at all.
pub struct Call<T> {
    answer: Receiver<Result<T, Error>>,
    /// Counted from the first poll.
    timeout: Duration,
    /// The error if there is no answer at all.
    late: Error,
    sleep: Option<rt::Sleep>,
}

/// The engine's side of a call.
pub(crate) type Answer<T> = Sender<Result<T, Error>>;

/// A call, its engine's side, and its deadline within the limit.
pub(crate) fn call<T>(deadline: Duration, late: Error) -> (Answer<T>, Call<T>, Duration) {
    let deadline = deadline.min(DEADLINE_MAX);
    let (sender, answer) = oneshot();
    (sender, Call { answer, timeout: deadline + GRACE, late, sleep: None }, deadline)
}

impl<T> Call<T> {
    fn poll_answer(&mut self, context: &mut Context<'_>) -> Poll<Result<T, Error>> {
        Pin::new(&mut self.answer).poll(context).map(|answer| answer.unwrap_or(Err(Error::Stopped)))
    }

    /// Blocks this thread until the answer arrives.
    pub fn wait(mut self) -> Result<T, Error> {
        let until = Instant::now() + self.timeout;
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        let mut context = Context::from_waker(&waker);
        loop {
            if let Poll::Ready(answer) = self.poll_answer(&mut context) {
                return answer;
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(self.late);
            }
            thread::park_timeout(left);
        }
    }
}

impl<T> Future for Call<T> {
    type Output = Result<T, Error>;
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T, Error>> {
        if let Poll::Ready(answer) = self.poll_answer(context) {
            return Poll::Ready(answer);
        }
        let timeout = self.timeout;
        let sleep = self.sleep.get_or_insert_with(|| rt::sleep(timeout));
        match pin!(sleep).poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(self.late.clone())),
            Poll::Pending => Poll::Pending,
        }
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}
