//! A core's ring and the operations in flight on it.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fs::File;
use std::future::Future;
use std::io;
use std::mem::ManuallyDrop;
use std::net::TcpStream;
use std::os::fd::RawFd;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use base::{Buf, Chain};
use io_uring::types::{CancelBuilder, Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode, squeue};
use slab::Slab;

use super::address::Address;
use super::disk::OpenFile;
use super::listener::Acceptor;
use super::receive_buffers::ReceiveBuffers;
use super::receiver::Receiver;
use super::sender::Sending;

/// Entries of the submission queue. If the tasks of one turn request more, the queue is submitted in between.
const SUBMISSIONS: u32 = 512;
/// Entries of the completion queue: a burst on some thousand connections between two turns. The kernel stores
/// what does not fit, at a cost.
const COMPLETIONS: u32 = 4096;
const _: () = assert!(COMPLETIONS >= 2 * SUBMISSIONS, "the kernel's own proportion");

/// After this many disk requests the queue is submitted within a turn. Otherwise, after many requests were
/// answered at once, the disk would be idle until the core has processed all consequences, and then the core
/// would be idle until the disk has answered.
const DISK_REQUESTS_MAX: u32 = 8;

/// The number of disk completions that are handed out per turn. An initiator sends its next commands when it
/// gets an answer. If everything that a disk has completed were answered together, one batch would circulate
/// between initiator, core and disk, and two of the three would be idle.
const DISK_COMPLETIONS_MAX: usize = 8;

/// The user data of requests whose completion has no meaning (cancellations).
const UNTRACKED: u64 = u64::MAX;

/// What an operation keeps alive for the kernel until its completion: memory, and the descriptor, whose
/// number must not be reused for another file while a request with it may still be in the queue.
#[expect(dead_code, reason = "some of it is only kept")]
pub(super) enum Kept {
    Read { file: Arc<OpenFile>, buf: Buf },
    Write { file: Arc<OpenFile>, data: Chain, pieces: Vec<libc::iovec> },
    File(Arc<OpenFile>),
    Receive { socket: Arc<TcpStream>, buf: Buf },
    Send(Box<Sending>),
    Connect { socket: Arc<TcpStream>, address: Box<Address> },
    Command(Arc<File>),
}

impl Kept {
    /// Whether the operation is one of a disk.
    fn is_for_disk(&self) -> bool {
        matches!(self, Kept::Read { .. } | Kept::Write { .. } | Kept::File(_))
    }
}

/// An entry in the table of operations.
enum Operation {
    /// An operation with a single completion, which a future waits for.
    Single { kept: Kept, state: State },
    /// A receive with one or many completions.
    Receive(Rc<Receiver>),
    /// An accept with many completions.
    Accept(Rc<Acceptor>),
    /// The poll of the doorbell.
    Doorbell(RawFd),
}

/// The progress of an operation with a single completion.
enum State {
    /// In flight, and a future waits; the waker is present from the first poll on.
    Waiting(Option<Waker>),
    /// In flight, and its future was dropped.
    Abandoned,
    /// Completed with this result, which its future has not taken yet.
    Done(i32),
}

/// The number of an operation in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OperationId(usize);

/// A core's ring.
pub(super) struct Driver {
    ring: RefCell<IoUring>,
    /// Sends of the current turn. They are submitted after everything else: the kernel executes a send at
    /// once and copies its data, so disks would get their requests only afterwards.
    sends: RefCell<Vec<squeue::Entry>>,
    /// The number of disk requests in the submission queue.
    disk_requests: Cell<u32>,
    /// By the user data of the request. Leaked if the kernel may still use its content.
    operations: RefCell<ManuallyDrop<Slab<Operation>>>,
    /// The number of operations whose last completion has not come.
    in_flight: Cell<usize>,
    buffers: Rc<ReceiveBuffers>,
    /// The receiving sides of all streams of this core.
    receivers: RefCell<Slab<Weak<Receiver>>>,
    /// Receivers that had too much queued when a completion came; checked again after tasks have run.
    overfull: RefCell<Vec<Rc<Receiver>>>,
    /// Receivers that could not receive because no buffer was free.
    starved: RefCell<Vec<Rc<Receiver>>>,
    /// Completions on their way from the ring to their operations. Between turns it only has those that were
    /// taken from a full ring.
    arrived: RefCell<VecDeque<cqueue::Entry>>,
    /// Disk completions beyond [`DISK_COMPLETIONS_MAX`].
    arrived_of_disks: RefCell<VecDeque<cqueue::Entry>>,
    enters: Cell<u64>,
    completions: Cell<u64>,
}

thread_local! {
    static DRIVER: RefCell<Option<Rc<Driver>>> = const { RefCell::new(None) };
}

/// The driver of the current core.
pub(super) fn current() -> Rc<Driver> {
    DRIVER.with_borrow(|driver| Rc::clone(driver.as_ref().expect("called outside of a core of the runtime")))
}

/// Sets or removes the driver of the current thread.
pub(super) fn set_current(driver: Option<Rc<Driver>>) {
    let previous = DRIVER.replace(driver);
    drop(previous);
}

impl Driver {
    /// A ring for the current thread, the only one that may use it.
    pub(super) fn new() -> io::Result<Rc<Driver>> {
        let ring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_taskrun_flag()
            .setup_submit_all()
            .setup_cqsize(COMPLETIONS)
            .dontfork()
            .build(SUBMISSIONS)?;
        let buffers = ReceiveBuffers::new(&ring)?;
        Ok(Rc::new(Driver {
            ring: RefCell::new(ring),
            sends: RefCell::default(),
            disk_requests: Cell::new(0),
            operations: RefCell::default(),
            in_flight: Cell::new(0),
            buffers,
            receivers: RefCell::default(),
            overfull: RefCell::default(),
            starved: RefCell::default(),
            arrived: RefCell::default(),
            arrived_of_disks: RefCell::default(),
            enters: Cell::new(0),
            completions: Cell::new(0),
        }))
    }

    pub(super) fn buffers(&self) -> &Rc<ReceiveBuffers> {
        &self.buffers
    }

    /// Calls of `io_uring_enter` so far.
    pub(super) fn enters(&self) -> u64 {
        self.enters.get()
    }

    /// Completions so far.
    pub(super) fn completions(&self) -> u64 {
        self.completions.get()
    }

    /// Starts an operation with one completion.
    ///
    /// # Safety
    /// The kernel must not use any memory for `entry` except what `kept` keeps alive and in place, and its
    /// descriptor must be that of the file or socket in `kept`.
    pub(super) unsafe fn start(self: &Rc<Driver>, entry: squeue::Entry, kept: Kept) -> Completion {
        let is_send = matches!(kept, Kept::Send(_));
        let is_for_disk = kept.is_for_disk();
        let id = self.insert(Operation::Single { kept, state: State::Waiting(None) });
        let entry = entry.user_data(id.0 as u64);
        if is_send {
            self.sends.borrow_mut().push(entry);
        } else {
            // SAFETY: the operation keeps what the caller promised until its completion has come.
            unsafe { self.push(entry) };
            if is_for_disk {
                self.disk_requests.set(self.disk_requests.get() + 1);
                if self.disk_requests.get() == DISK_REQUESTS_MAX {
                    self.submit();
                }
            }
        }
        Completion { driver: Rc::clone(self), id: Some(id), cancel: false }
    }

    /// Starts a receive into the core's buffers: once, or repeatedly whenever data comes.
    pub(super) fn start_receive(&self, receiver: &Rc<Receiver>, multishot: bool) -> OperationId {
        let entry = self.buffers.receive_entry(Fd(receiver.descriptor()), multishot);
        let id = self.insert(Operation::Receive(Rc::clone(receiver)));
        // SAFETY: the memory belongs to the receive buffers, which the driver keeps until nothing is in
        // flight; the receiver keeps the socket.
        unsafe { self.push(entry.user_data(id.0 as u64)) };
        id
    }

    /// Starts to accept connections, repeatedly.
    pub(super) fn start_accept(&self, acceptor: &Rc<Acceptor>) -> OperationId {
        let entry = opcode::AcceptMulti::new(Fd(acceptor.descriptor())).flags(libc::SOCK_CLOEXEC).build();
        let id = self.insert(Operation::Accept(Rc::clone(acceptor)));
        // SAFETY: no memory is involved; the acceptor keeps the socket.
        unsafe { self.push(entry.user_data(id.0 as u64)) };
        id
    }

    /// Lets a ring of the doorbell with this descriptor, which must outlive the driver, end the core's sleep.
    pub(super) fn start_doorbell(&self, event: RawFd) {
        let entry = opcode::PollAdd::new(Fd(event), libc::POLLIN as u32).multi(true).build();
        let id = self.insert(Operation::Doorbell(event));
        // SAFETY: no memory is involved.
        unsafe { self.push(entry.user_data(id.0 as u64)) };
    }

    /// Requests that the kernel ends an operation, whose completion still comes.
    ///
    /// If the operation completes first, its number may already belong to a later one. That one is safe,
    /// because its request comes after this one in the queue.
    pub(super) fn cancel(&self, id: OperationId) {
        // The operation may be one of the sends.
        self.push_sends();
        let entry = opcode::AsyncCancel::new(id.0 as u64)
            .build()
            .flags(squeue::Flags::SKIP_SUCCESS)
            .user_data(UNTRACKED);
        // SAFETY: no memory is involved.
        unsafe { self.push(entry) };
    }

    /// Puts the sends of the turn into the queue, but lets disks start first.
    fn push_sends(&self) {
        if self.sends.borrow().is_empty() {
            return;
        }
        if self.disk_requests.get() > 0 {
            self.submit();
        }
        for entry in self.sends.borrow_mut().drain(..) {
            // SAFETY: the callers of `start` guaranteed what the kernel may use, and the operation keeps it.
            unsafe { self.push(entry) };
        }
    }

    /// Submits the queue without handing out completions, because the caller may be in the middle of a task.
    fn submit(&self) {
        self.enters.set(self.enters.get() + 1);
        self.disk_requests.set(0);
        accept_enter(self.ring.borrow().submit());
    }

    fn insert(&self, operation: Operation) -> OperationId {
        self.in_flight.set(self.in_flight.get() + 1);
        OperationId(self.operations.borrow_mut().insert(operation))
    }

    /// # Safety
    /// As for [`Driver::start`], for as long as the request is in flight.
    unsafe fn push(&self, entry: squeue::Entry) {
        loop {
            // SAFETY: guaranteed by the caller.
            if unsafe { self.ring.borrow_mut().submission().push(&entry) }.is_ok() {
                return;
            }
            self.submit();
            // A kernel without room for completions may refuse requests. So completions are taken here and
            // handed out in the next turn.
            self.arrived.borrow_mut().extend(self.ring.borrow_mut().completion());
        }
    }

    /// Whether an `enter` would do something: requests wait for submission, or the kernel has work for us.
    pub(super) fn has_work(&self) -> bool {
        if !self.sends.borrow().is_empty() {
            return true;
        }
        let mut ring = self.ring.borrow_mut();
        let submission = ring.submission();
        let has_work = !submission.is_empty() || submission.taskrun() || submission.cq_overflow();
        drop(submission);
        has_work || !ring.completion().is_empty() || self.has_arrived()
    }

    /// Whether there are completions that were taken from the ring but not handed out yet.
    fn has_arrived(&self) -> bool {
        !self.arrived.borrow().is_empty() || !self.arrived_of_disks.borrow().is_empty()
    }

    /// Submits everything and hands out completions, without waiting. Returns whether there were any.
    pub(super) fn turn(&self) -> bool {
        self.push_sends();
        self.disk_requests.set(0);
        self.enters.set(self.enters.get() + 1);
        accept_enter(self.ring.borrow().submit_and_wait(0));
        self.dispatch()
    }

    /// As [`Driver::turn`], but waits for a completion, at most for `timeout`.
    pub(super) fn turn_sleeping(&self, timeout: Option<Duration>) -> bool {
        if self.has_arrived() {
            return self.turn();
        }
        self.push_sends();
        self.disk_requests.set(0);
        self.enters.set(self.enters.get() + 1);
        let ring = self.ring.borrow();
        accept_enter(match timeout {
            None => ring.submit_and_wait(1),
            Some(timeout) => {
                let timeout = Timespec::from(timeout);
                ring.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&timeout))
            }
        });
        drop(ring);
        self.dispatch()
    }

    /// Hands out completions to their operations, in order: all that are in the ring, but only
    /// [`DISK_COMPLETIONS_MAX`] of disks.
    ///
    /// The rest is left for the next turn. It does not delay later completions of other kinds, such as the
    /// end of a send that the next answers wait for.
    fn dispatch(&self) -> bool {
        let mut any = false;
        while let Some(entry) = self.next_completion() {
            if self.is_of_disk(&entry) {
                self.arrived_of_disks.borrow_mut().push_back(entry);
            } else {
                any = true;
                self.completed(entry);
            }
        }
        for _ in 0..DISK_COMPLETIONS_MAX {
            let Some(entry) = self.arrived_of_disks.borrow_mut().pop_front() else { break };
            any = true;
            self.completed(entry);
        }
        any
    }

    fn next_completion(&self) -> Option<cqueue::Entry> {
        let mut arrived = self.arrived.borrow_mut();
        if arrived.is_empty() {
            arrived.extend(self.ring.borrow_mut().completion());
        }
        arrived.pop_front()
    }

    fn is_of_disk(&self, entry: &cqueue::Entry) -> bool {
        let id = entry.user_data();
        id != UNTRACKED
            && matches!(&self.operations.borrow()[id as usize], Operation::Single { kept, .. } if kept.is_for_disk())
    }

    /// Hands out one completion to its operation.
    fn completed(&self, entry: cqueue::Entry) {
        self.completions.set(self.completions.get() + 1);
        if entry.user_data() == UNTRACKED {
            return;
        }
        let id = entry.user_data() as usize;
        let last = !cqueue::more(entry.flags());
        if last {
            self.in_flight.set(self.in_flight.get() - 1);
        }
        // While the table is borrowed, none of our code is called and nothing is dropped.
        let mut operations = self.operations.borrow_mut();
        let operation = &mut operations[id];
        match operation {
            Operation::Single { state, .. } => match std::mem::replace(state, State::Done(entry.result())) {
                State::Waiting(waker) => {
                    drop(operations);
                    if let Some(waker) = waker {
                        waker.wake();
                    }
                }
                State::Abandoned => {
                    let abandoned = operations.remove(id);
                    drop(operations);
                    drop(abandoned);
                }
                State::Done(_) => unreachable!("a request with one completion has completed twice"),
            },
            Operation::Receive(receiver) => {
                let receiver = Rc::clone(receiver);
                let ended = last.then(|| operations.remove(id));
                drop(operations);
                drop(ended);
                receiver.completed(self, &entry);
            }
            Operation::Accept(acceptor) => {
                let acceptor = Rc::clone(acceptor);
                let ended = last.then(|| operations.remove(id));
                drop(operations);
                drop(ended);
                acceptor.completed(self, &entry);
            }
            Operation::Doorbell(event) => {
                let event = *event;
                if last {
                    operations.remove(id);
                    drop(operations);
                    if entry.result() >= 0 {
                        self.start_doorbell(event);
                    }
                }
            }
        }
    }

    /// Registers a stream's receiver among those that may be asked to return buffers.
    pub(super) fn register(&self, receiver: &Rc<Receiver>) -> usize {
        self.receivers.borrow_mut().insert(Rc::downgrade(receiver))
    }

    pub(super) fn unregister(&self, registration: usize) {
        self.receivers.borrow_mut().remove(registration);
    }

    pub(super) fn is_overfull(&self, receiver: &Rc<Receiver>) {
        self.overfull.borrow_mut().push(Rc::clone(receiver));
    }

    pub(super) fn is_starved(&self, receiver: &Rc<Receiver>) {
        self.buffers.ran_out();
        self.starved.borrow_mut().push(Rc::clone(receiver));
    }

    /// After tasks have run: stops receiving for streams that were not read, and serves those that found no
    /// buffer.
    pub(super) fn relieve(&self) {
        if !self.overfull.borrow().is_empty() {
            let overfull = self.overfull.take();
            overfull.iter().for_each(|receiver| receiver.stop_if_overfull(self));
        }
        if !self.starved.borrow().is_empty() {
            if self.buffers.is_empty() {
                // Queued data is moved to memory of its own, once: the queues are bounded.
                let receivers: Vec<_> =
                    self.receivers.borrow().iter().map(|(_, weak)| weak.clone()).collect();
                receivers.iter().filter_map(Weak::upgrade).for_each(|receiver| receiver.give_back_buffers());
            }
            if !self.buffers.is_empty() {
                let starved = self.starved.take();
                starved.iter().for_each(|receiver| receiver.fed());
            }
        }
    }

    /// Cancels everything and waits until nothing is in flight. All tasks must be gone.
    pub(super) fn quiesce(&self) {
        while self.in_flight.get() > 0 {
            let entry = opcode::AsyncCancel2::new(CancelBuilder::any()).build().user_data(UNTRACKED);
            // SAFETY: no memory is involved.
            unsafe { self.push(entry) };
            self.turn();
            // A disk request cannot be canceled any more once the disk has it.
            if self.in_flight.get() > 0 {
                self.turn_sleeping(Some(Duration::from_millis(10)));
            }
        }
        self.overfull.take();
        self.starved.take();
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        if self.in_flight.get() == 0 {
            // SAFETY: it is dropped once, here, and not used afterwards.
            unsafe { ManuallyDrop::drop(self.operations.get_mut()) };
        } else {
            // Only after a panic: leaking is better than letting the kernel write into freed memory.
            std::mem::forget(Rc::clone(&self.buffers));
        }
    }
}

/// Accepts the normal outcomes of `io_uring_enter`: a signal, a timeout, too many waiting completions.
pub(super) fn accept_enter(result: io::Result<usize>) {
    if let Err(error) = result {
        match error.raw_os_error() {
            Some(libc::EINTR | libc::ETIME | libc::EBUSY | libc::EAGAIN) => {}
            _ => panic!("io_uring_enter failed in a way that a correct program does not see: {error}"),
        }
    }
}

/// Waits for the completion of an operation; returns its result (negative: an error number) and what it kept.
pub(super) struct Completion {
    driver: Rc<Driver>,
    /// `None` after it was ready.
    id: Option<OperationId>,
    /// Whether to cancel the operation if the future is dropped.
    cancel: bool,
}

impl Completion {
    /// Cancels the operation if the future is dropped before its end.
    pub(super) fn cancel_on_drop(mut self) -> Completion {
        self.cancel = true;
        self
    }
}

impl Future for Completion {
    type Output = (i32, Kept);
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<(i32, Kept)> {
        let id = self.id.expect("polled after it was ready");
        let mut operations = self.driver.operations.borrow_mut();
        let Operation::Single { state, .. } = &mut operations[id.0] else {
            unreachable!("a future waits for an operation with a single completion");
        };
        match state {
            State::Waiting(Some(waker)) if waker.will_wake(context.waker()) => Poll::Pending,
            State::Waiting(waker) => {
                let previous = waker.replace(context.waker().clone());
                drop(operations);
                drop(previous);
                Poll::Pending
            }
            State::Done(result) => {
                let result = *result;
                let operation = operations.remove(id.0);
                drop(operations);
                self.id = None;
                match operation {
                    Operation::Single { kept, .. } => Poll::Ready((result, kept)),
                    _ => unreachable!("just seen"),
                }
            }
            State::Abandoned => unreachable!("only a dropped future abandons"),
        }
    }
}

impl Drop for Completion {
    fn drop(&mut self) {
        let Some(id) = self.id else { return };
        let mut operations = self.driver.operations.borrow_mut();
        let Operation::Single { state, .. } = &mut operations[id.0] else {
            unreachable!("a future waits for an operation with a single completion");
        };
        match std::mem::replace(state, State::Abandoned) {
            State::Waiting(waker) => {
                drop(operations);
                drop(waker);
                if self.cancel {
                    self.driver.cancel(id);
                }
            }
            _ => {
                let done = operations.remove(id.0);
                drop(operations);
                drop(done);
            }
        }
    }
}
