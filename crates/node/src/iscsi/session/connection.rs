//! One connection of a session: a task that receives and a task that sends.

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use base::SendBatch;
use proto::iscsi::target_role::{CloseReason, ConnectionId};
use rt::Stream;
use rt::sync::Notify;

use super::Session;

/// The most bytes of one send. Beyond this, batching gains nothing and the responses behind it wait.
const SEND_BYTES_MAX: usize = 1 << 20;

/// How long the last responses of a closing connection may take to leave.
const LINGER_DEADLINE: Duration = Duration::from_secs(10);

/// A connection in its full feature phase.
pub struct Connection {
    id: ConnectionId,
    stream: Stream,
    /// Notified when there may be something to send.
    output: Notify,
    /// Notified when the brain may want bytes again.
    input: Notify,
    /// Receive no more; send what is left, then close.
    finishing: Cell<bool>,
    /// Send nothing more, either.
    cut: Cell<bool>,
    /// Notified when everything is sent.
    sent: Notify,
}

impl Connection {
    /// A connection.
    pub fn new(id: ConnectionId, stream: Stream) -> Connection {
        Connection {
            id,
            stream,
            output: Notify::new(),
            input: Notify::new(),
            finishing: Cell::new(false),
            cut: Cell::new(false),
            sent: Notify::new(),
        }
    }

    /// The initiator's address.
    pub fn peer_address(&self) -> SocketAddr {
        self.stream.peer_address()
    }

    /// The node's address.
    pub fn local_address(&self) -> SocketAddr {
        self.stream.local_address()
    }

    /// Whether the connection is closing: it only sends what is left.
    pub fn is_finishing(&self) -> bool {
        self.finishing.get()
    }

    /// Wakes both tasks: there may be output, or room for input.
    pub fn look(&self) {
        self.output.notify();
        self.input.notify();
    }

    /// Sends what is left and closes.
    pub fn finish(self: &Rc<Connection>) {
        self.finishing.set(true);
        self.look();
        rt::spawn(Rc::clone(self).linger()).detach();
    }

    /// Cuts off an initiator that does not receive what is left, since that holds memory.
    async fn linger(self: Rc<Connection>) {
        if rt::timeout(LINGER_DEADLINE, self.sent.notified()).await.is_err() {
            self.cut();
        }
    }

    /// Closes now.
    pub fn cut(&self) {
        self.finishing.set(true);
        self.cut.set(true);
        self.stream.shutdown();
        self.look();
    }

    /// Passes what arrives to the session, until the end.
    pub(super) async fn receive(self: Rc<Connection>, session: Rc<Session>) {
        while !self.finishing.get() {
            if !session.brain.borrow().wants_bytes(self.id) {
                self.input.notified().await;
                continue;
            }
            let in_place = session.brain.borrow_mut().take_in_place(self.id);
            match in_place {
                Some(place) => {
                    let received = self.stream.receive_exact(place.buf, place.filled).await;
                    if self.finishing.get() {
                        return;
                    }
                    let mut brain = session.brain.borrow_mut();
                    match received {
                        Ok(buf) => brain.handle_in_place(self.id, buf, rt::now()),
                        Err(_) => brain.handle_closed(self.id, CloseReason::Reset),
                    }
                }
                None => {
                    let received = self.stream.receive().await;
                    if self.finishing.get() {
                        return;
                    }
                    let mut brain = session.brain.borrow_mut();
                    match received {
                        Ok(bytes) if bytes.is_empty() => {
                            brain.handle_closed(self.id, CloseReason::PeerClosed)
                        }
                        Ok(bytes) => brain.handle_bytes(self.id, &bytes, rt::now()),
                        Err(_) => brain.handle_closed(self.id, CloseReason::Reset),
                    }
                }
            }
            session.pump();
        }
    }

    /// Sends the session's output, until the end.
    pub(super) async fn send(self: Rc<Connection>, session: Rc<Session>) {
        let mut batch = SendBatch::new();
        while !self.cut.get() {
            session.brain.borrow_mut().poll_transmit(self.id, &mut batch, SEND_BYTES_MAX);
            if batch.is_empty() {
                if self.finishing.get() {
                    break;
                }
                self.output.notified().await;
                continue;
            }
            session.count_answers();
            match self.stream.send(std::mem::take(&mut batch)).await {
                Ok(sent) => batch = sent,
                Err(_) => {
                    if !self.cut.get() {
                        session.brain.borrow_mut().handle_closed(self.id, CloseReason::Reset);
                        session.pump();
                    }
                    break;
                }
            }
            self.input.notify();
        }
        self.finishing.set(true);
        self.stream.shutdown();
        self.sent.notify();
        session.forget_connection(self.id);
    }
}
