//! The receiving side of a stream.
//!
//! There are two ways to receive. Usually one multishot request stays with the kernel and delivers data
//! whenever it comes, in buffers of the core's ring. Data that no task has requested yet is queued up to a
//! limit; above it the request is canceled until the queue has been read, so that TCP slows the sender down.
//! Large data of known length is received directly into its destination; the multishot request must be off
//! for that. Canceling it for each large write would cost more than it saves, so a stream that has lately
//! received in place requests other data with one request at a time.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::net::TcpStream;
use std::os::fd::{AsRawFd, RawFd};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use base::Buf;
use io_uring::types::Fd;
use io_uring::{cqueue, opcode};

use super::driver::{Driver, Kept, OperationId};
use super::receive_buffers::Received;

/// The bytes that a stream may have queued, after its tasks had a chance to read, before it stops receiving.
/// One turn of the kernel may add its socket buffer, so this need not be large.
const QUEUE_BYTES_MAX: usize = 64 << 10;
/// The same limit in pieces, each of which may pin a buffer.
const QUEUE_PIECES_MAX: usize = 8;

/// Receiving at least this many bytes in place is worth canceling a multishot request.
const IN_PLACE_MIN: usize = 32 << 10;

/// After a receive in place, this many receives are requested one by one.
const SINGLE_RECEIVES: u8 = 32;

/// The request that the kernel has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// None.
    Off,
    /// Receive, once or as often as data comes.
    On(OperationId),
    /// Stop receiving. Data may still come until it has stopped.
    Stopping(OperationId),
    /// None, until buffers are free again.
    Starved,
}

/// How the other side's direction has ended.
#[derive(Clone, Copy, Debug)]
pub(super) enum End {
    /// It was closed normally.
    Closed,
    /// With this error number.
    Failed(i32),
}

impl End {
    fn error(self) -> io::Error {
        match self {
            End::Closed => io::ErrorKind::UnexpectedEof.into(),
            End::Failed(number) => io::Error::from_raw_os_error(number),
        }
    }
}

/// The receiving side of a stream; operations in flight share it.
pub(super) struct Receiver {
    socket: Arc<TcpStream>,
    mode: Cell<Mode>,
    /// Data that came and was not requested yet, in order.
    queue: RefCell<VecDeque<Received>>,
    queued_bytes: Cell<usize>,
    /// Set once; comes after all queued data.
    end: Cell<Option<End>>,
    /// The waker of the task that receives.
    waker: RefCell<Option<Waker>>,
    /// How many of the next receives are requested one by one.
    singles: Cell<u8>,
    /// A task receives.
    busy: Cell<bool>,
}

impl Receiver {
    pub(super) fn new(socket: Arc<TcpStream>, queued: Vec<u8>, end: Option<End>) -> Rc<Receiver> {
        let receiver = Receiver {
            socket,
            mode: Cell::new(Mode::Off),
            queue: RefCell::default(),
            queued_bytes: Cell::new(0),
            end: Cell::new(end),
            waker: RefCell::default(),
            singles: Cell::new(0),
            busy: Cell::new(false),
        };
        if !queued.is_empty() {
            receiver.enqueue(Received::own(queued));
        }
        Rc::new(receiver)
    }

    pub(super) fn descriptor(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    /// See [`crate::Stream::receive`].
    pub(super) async fn receive(self: &Rc<Receiver>, driver: &Driver) -> io::Result<Received> {
        let _busy = Busy::new(&self.busy);
        self.next(driver).await
    }

    async fn next(self: &Rc<Receiver>, driver: &Driver) -> io::Result<Received> {
        std::future::poll_fn(|context| {
            if let Some(received) = self.dequeue() {
                let scarce = driver.buffers().is_scarce();
                return Poll::Ready(Ok(if scarce { received.unpinned() } else { received }));
            }
            match self.end.get() {
                Some(End::Closed) => return Poll::Ready(Ok(Received::own(Vec::new()))),
                Some(end) => return Poll::Ready(Err(end.error())),
                None => {}
            }
            self.start(driver);
            self.wait(context);
            Poll::Pending
        })
        .await
    }

    /// See [`crate::Stream::receive_exact`].
    pub(super) async fn receive_exact(
        self: &Rc<Receiver>,
        driver: &Rc<Driver>,
        mut buf: Buf,
        mut filled: usize,
    ) -> io::Result<Buf> {
        assert!(filled <= buf.len());
        let _busy = Busy::new(&self.busy);
        filled += self.take_queued(&mut buf[filled..]);
        if buf.len() - filled >= IN_PLACE_MIN {
            self.singles.set(SINGLE_RECEIVES);
            self.stop(driver).await;
            filled += self.take_queued(&mut buf[filled..]);
        }
        if self.mode.get() == Mode::Off {
            return self.receive_in_place(driver, buf, filled).await;
        }
        while filled < buf.len() {
            let mut received = self.next(driver).await?;
            if received.is_empty() {
                return Err(End::Closed.error());
            }
            let count = received.len().min(buf.len() - filled);
            buf[filled..filled + count].copy_from_slice(&received[..count]);
            filled += count;
            received.advance(count);
            if !received.is_empty() {
                self.queued_bytes.set(self.queued_bytes.get() + received.len());
                self.queue.borrow_mut().push_front(received);
            }
        }
        Ok(buf)
    }

    /// Receives the rest of `buf` without the core's buffers. Nothing may be queued, and the kernel must have
    /// no request, unless the direction has ended.
    async fn receive_in_place(
        &self,
        driver: &Rc<Driver>,
        mut buf: Buf,
        mut filled: usize,
    ) -> io::Result<Buf> {
        while filled < buf.len() {
            if let Some(end) = self.end.get() {
                return Err(end.error());
            }
            let rest = &mut buf[filled..];
            let len = u32::try_from(rest.len()).unwrap_or(1 << 30);
            let entry = opcode::Recv::new(Fd(self.descriptor()), rest.as_mut_ptr(), len)
                .flags(libc::MSG_WAITALL)
                .build();
            let unfinished = Unfinished(self);
            // SAFETY: the request writes into the buffer and uses the socket, both of which are kept.
            let completion =
                unsafe { driver.start(entry, Kept::Receive { socket: Arc::clone(&self.socket), buf }) };
            let (result, Kept::Receive { buf: back, .. }) = completion.cancel_on_drop().await else {
                unreachable!("an operation gives back what it was given");
            };
            std::mem::forget(unfinished);
            buf = back;
            match result {
                0 => self.end.set(Some(End::Closed)),
                count if count > 0 => filled += count as usize,
                _ if is_transient(-result) => {}
                _ => self.end.set(Some(End::Failed(-result))),
            }
        }
        Ok(buf)
    }

    /// Ends receiving on this core: stops, and returns the bytes that have come.
    pub(super) async fn finish(&self, driver: &Driver) -> (Vec<u8>, Option<End>) {
        self.stop(driver).await;
        let queue = self.queue.take();
        self.queued_bytes.set(0);
        let mut bytes = Vec::new();
        queue.iter().for_each(|received| bytes.extend_from_slice(received));
        (bytes, self.end.get())
    }

    /// The stream was dropped: releases the socket as soon as the kernel does.
    pub(super) fn abandon(&self, driver: &Driver) {
        if let Mode::On(id) = self.mode.get() {
            driver.cancel(id);
            self.mode.set(Mode::Stopping(id));
        }
        self.queue.take();
        self.queued_bytes.set(0);
        self.end.set(Some(End::Failed(libc::ECANCELED)));
    }

    /// Handles a completion of this stream's request.
    pub(super) fn completed(self: &Rc<Receiver>, driver: &Driver, entry: &cqueue::Entry) {
        let result = entry.result();
        if let Some(buffer) = cqueue::buffer_select(entry.flags()) {
            let received = driver.buffers().taken(buffer, usize::try_from(result).unwrap_or(0));
            if !received.is_empty() && self.end.get().is_none() {
                self.enqueue(received);
                if self.is_overfull() {
                    driver.is_overfull(self);
                }
            }
        }
        let mode = self.mode.get();
        if !cqueue::more(entry.flags()) {
            self.mode.set(Mode::Off);
        }
        match result {
            0 => self.end_with(End::Closed),
            count if count > 0 => {}
            _ if result == -libc::ENOBUFS => {
                if matches!(mode, Mode::On(_)) {
                    self.mode.set(Mode::Starved);
                    driver.is_starved(self);
                    return;
                }
            }
            _ if is_transient(-result) || result == -libc::ECANCELED => {}
            _ => self.end_with(End::Failed(-result)),
        }
        self.wake();
    }

    /// Stops receiving if the stream's task did not read what exceeds the limit.
    pub(super) fn stop_if_overfull(&self, driver: &Driver) {
        if let Mode::On(id) = self.mode.get()
            && self.is_overfull()
        {
            driver.cancel(id);
            self.mode.set(Mode::Stopping(id));
        }
    }

    /// Copies queued data to memory of its own.
    pub(super) fn give_back_buffers(&self) {
        for received in self.queue.borrow_mut().iter_mut().filter(|received| received.is_pinned()) {
            let pinned = std::mem::replace(received, Received::own(Vec::new()));
            *received = pinned.unpinned();
        }
    }

    /// Buffers are free again.
    pub(super) fn fed(&self) {
        if self.mode.get() == Mode::Starved {
            self.mode.set(Mode::Off);
            self.wake();
        }
    }

    fn is_overfull(&self) -> bool {
        self.queued_bytes.get() > QUEUE_BYTES_MAX || self.queue.borrow().len() > QUEUE_PIECES_MAX
    }

    fn enqueue(&self, received: Received) {
        self.queued_bytes.set(self.queued_bytes.get() + received.len());
        self.queue.borrow_mut().push_back(received);
    }

    fn dequeue(&self) -> Option<Received> {
        let received = self.queue.borrow_mut().pop_front()?;
        self.queued_bytes.set(self.queued_bytes.get() - received.len());
        Some(received)
    }

    /// Copies queued data into `target` as far as it fits; returns how many bytes.
    fn take_queued(&self, target: &mut [u8]) -> usize {
        let mut queue = self.queue.borrow_mut();
        let mut taken = 0;
        while taken < target.len() {
            let Some(first) = queue.front_mut() else { break };
            let count = first.len().min(target.len() - taken);
            target[taken..taken + count].copy_from_slice(&first[..count]);
            taken += count;
            first.advance(count);
            if first.is_empty() {
                queue.pop_front();
            }
        }
        self.queued_bytes.set(self.queued_bytes.get() - taken);
        taken
    }

    /// Requests data from the kernel, unless a request exists.
    fn start(self: &Rc<Receiver>, driver: &Driver) {
        if self.mode.get() == Mode::Off {
            let multishot = self.singles.get() == 0;
            self.singles.set(self.singles.get().saturating_sub(1));
            self.mode.set(Mode::On(driver.start_receive(self, multishot)));
        }
    }

    /// Waits until the kernel has no request.
    async fn stop(&self, driver: &Driver) {
        std::future::poll_fn(|context| {
            match self.mode.get() {
                Mode::Off => return Poll::Ready(()),
                Mode::Starved => {
                    self.mode.set(Mode::Off);
                    return Poll::Ready(());
                }
                Mode::On(id) => {
                    driver.cancel(id);
                    self.mode.set(Mode::Stopping(id));
                }
                Mode::Stopping(_) => {}
            }
            self.wait(context);
            Poll::Pending
        })
        .await;
    }

    fn wait(&self, context: &Context<'_>) {
        let mut waker = self.waker.borrow_mut();
        if waker.as_ref().is_none_or(|waker| !waker.will_wake(context.waker())) {
            let previous = waker.replace(context.waker().clone());
            drop(waker);
            drop(previous);
        }
    }

    fn wake(&self) {
        let waker = self.waker.borrow_mut().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn end_with(&self, end: End) {
        if self.end.get().is_none() {
            self.end.set(Some(end));
        }
    }
}

/// Errors after which the same request is simply repeated.
fn is_transient(number: i32) -> bool {
    matches!(number, libc::EINTR | libc::EAGAIN)
}

/// While this lives, one task receives.
struct Busy<'a>(&'a Cell<bool>);

impl Busy<'_> {
    fn new(busy: &Cell<bool>) -> Busy<'_> {
        assert!(!busy.replace(true), "two tasks receive from one stream");
        Busy(busy)
    }
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

/// Dropped if a receive in place was given up: bytes are lost, so the stream cannot be used any more.
struct Unfinished<'a>(&'a Receiver);

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        self.0.end_with(End::Failed(libc::ECONNABORTED));
    }
}
