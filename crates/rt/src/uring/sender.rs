//! The sending side of a stream.

use std::cell::Cell;
use std::io;
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::rc::Rc;
use std::sync::Arc;

use base::SendBatch;
use io_uring::opcode;
use io_uring::types::Fd;

use super::driver::{Driver, Kept};

/// Pieces of one request: the kernel's limit (IOV_MAX).
const PIECES_MAX: usize = 1024;

/// What a send keeps alive for the kernel.
pub(super) struct Sending {
    #[expect(dead_code, reason = "it is only kept")]
    socket: Arc<TcpStream>,
    batch: SendBatch,
    /// The pieces of the batch that this request sends.
    pieces: Vec<libc::iovec>,
    /// Refers to `pieces`.
    header: libc::msghdr,
}

impl Sending {
    fn new(socket: Arc<TcpStream>) -> Box<Sending> {
        // SAFETY: a msghdr of zeros is valid: no address, no pieces, no control data.
        let header = unsafe { std::mem::zeroed() };
        Box::new(Sending { socket, batch: SendBatch::new(), pieces: Vec::new(), header })
    }

    /// Points the header to what follows the first `sent` bytes.
    fn aim(&mut self, sent: usize) {
        self.pieces.clear();
        let mut skip = sent;
        for piece in self.batch.iter() {
            if skip >= piece.len() {
                skip -= piece.len();
                continue;
            }
            if self.pieces.len() == PIECES_MAX {
                break;
            }
            let rest = &piece[skip..];
            skip = 0;
            self.pieces.push(libc::iovec { iov_base: rest.as_ptr().cast_mut().cast(), iov_len: rest.len() });
        }
        self.header.msg_iov = self.pieces.as_mut_ptr();
        self.header.msg_iovlen = self.pieces.len();
    }
}

/// The sending side of a stream.
pub(super) struct Sender {
    socket: Arc<TcpStream>,
    /// Kept between two sends to reuse its memory.
    spare: Cell<Option<Box<Sending>>>,
    state: Cell<State>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Ready,
    /// A task sends.
    Busy,
    /// A send failed or was given up: it is unknown what the other side has received.
    Broken,
}

impl Sender {
    pub(super) fn new(socket: Arc<TcpStream>) -> Sender {
        Sender { socket, spare: Cell::new(None), state: Cell::new(State::Ready) }
    }

    /// See [`crate::Stream::send`].
    pub(super) async fn send(&self, driver: &Rc<Driver>, batch: SendBatch) -> io::Result<SendBatch> {
        match self.state.get() {
            State::Ready => {}
            State::Busy => panic!("two tasks send on one stream"),
            State::Broken => return Err(io::ErrorKind::BrokenPipe.into()),
        }
        let len = batch.len();
        if len == 0 {
            return Ok(batch);
        }
        self.state.set(State::Busy);
        let unfinished = Unfinished(self);
        let mut sending = self.spare.take().unwrap_or_else(|| Sending::new(Arc::clone(&self.socket)));
        sending.batch = batch;
        let mut sent = 0;
        while sent < len {
            sending.aim(sent);
            let entry = opcode::SendMsg::new(Fd(self.socket.as_raw_fd()), &raw const sending.header)
                .flags((libc::MSG_NOSIGNAL | libc::MSG_WAITALL) as u32)
                .build();
            // SAFETY: the header, the pieces and the batch that they refer to are in the box or owned by it,
            // and the box is kept, with the socket.
            let completion = unsafe { driver.start(entry, Kept::Send(sending)) };
            let (result, Kept::Send(back)) = completion.cancel_on_drop().await else {
                unreachable!("an operation gives back what it was given");
            };
            sending = back;
            match result {
                count if count > 0 => sent += count as usize,
                _ if matches!(-result, libc::EINTR | libc::EAGAIN) => {}
                0 => return Err(io::ErrorKind::WriteZero.into()),
                _ => return Err(io::Error::from_raw_os_error(-result)),
            }
        }
        std::mem::forget(unfinished);
        let mut batch = std::mem::take(&mut sending.batch);
        batch.clear();
        self.spare.set(Some(sending));
        self.state.set(State::Ready);
        Ok(batch)
    }
}

/// Dropped if a send failed or was given up.
struct Unfinished<'a>(&'a Sender);

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        self.0.state.set(State::Broken);
    }
}
