//! Closes a connection whose peer does not read: otherwise it would keep its place forever.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

/// How long a write may wait for the peer to read something. A browser on a slow line reads some bytes in
/// this time.
pub(super) const WRITE_DEADLINE: Duration = Duration::from_secs(30);

/// A connection with a deadline for writes.
pub(super) struct WriteTimeout<S> {
    stream: S,
    deadline: Duration,
    /// The deadline of the write that waits.
    until: Option<Pin<Box<Sleep>>>,
}

impl<S> WriteTimeout<S> {
    pub(super) fn new(stream: S, deadline: Duration) -> WriteTimeout<S> {
        WriteTimeout { stream, deadline, until: None }
    }

    /// The result of a write, or a timeout if the write has waited for too long.
    fn judge<T>(&mut self, context: &mut Context<'_>, result: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if result.is_ready() {
            self.until = None;
            return result;
        }
        let deadline = self.deadline;
        let until = self.until.get_or_insert_with(|| Box::pin(sleep(deadline)));
        ready!(until.as_mut().poll(context));
        // A further poll must return an error again, and must not poll a completed timer.
        until.as_mut().reset(Instant::now());
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the other end does not read")))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WriteTimeout<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WriteTimeout<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.judge(context, result)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.judge(context, result)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.stream).poll_flush(context);
        self.judge(context, result)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.stream).poll_shutdown(context);
        self.judge(context, result)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    /// Accepts a byte after each interval; never, if there is none.
    struct Slow {
        every: Option<Duration>,
        until: Option<Pin<Box<Sleep>>>,
    }

    impl AsyncWrite for Slow {
        fn poll_write(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
            _: &[u8],
        ) -> Poll<io::Result<usize>> {
            let Some(every) = self.every else { return Poll::Pending };
            let until = self.until.get_or_insert_with(|| Box::pin(sleep(every)));
            ready!(until.as_mut().poll(context));
            self.until = None;
            Poll::Ready(Ok(1))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[tokio::test]
    async fn a_client_that_does_not_read_is_dropped_and_a_slow_one_is_not() {
        let deadline = Duration::from_millis(200);
        let mut stuck = WriteTimeout::new(Slow { every: None, until: None }, deadline);
        let result = poll_fn(|context| Pin::new(&mut stuck).poll_write(context, &[7])).await;
        assert_eq!(result.unwrap_err().kind(), io::ErrorKind::TimedOut);

        let mut slow = WriteTimeout::new(Slow { every: Some(deadline / 4), until: None }, deadline);
        for _ in 0..8 {
            let written = poll_fn(|context| Pin::new(&mut slow).poll_write(context, &[7])).await;
            assert_eq!(written.unwrap(), 1);
        }
    }
}
