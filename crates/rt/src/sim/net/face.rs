//! Listeners and streams as a task sees them.

use std::future::poll_fn;
use std::io;
use std::marker::PhantomData;
use std::net::SocketAddr;
use std::ops::{Deref, DerefMut};
use std::rc::Rc;
use std::task::Poll;

use base::{Buf, SendBatch};

use super::connection::Side;
use super::network::{ConnectionId, Held, ListenerId, Net, Token};
use crate::sim::ledger::Ledger;
use crate::sim::node::NodeId;
use crate::sim::universe;

/// The most bytes of one receive.
const RECEIVE_MAX: usize = 64 << 10;

fn with_net<T>(f: impl FnOnce(&mut Net, NodeId, &mut Ledger) -> T) -> T {
    let (universe, node) = universe::current();
    let (mut net, mut ledger) = (universe.net.borrow_mut(), universe.ledger.borrow_mut());
    f(&mut net, node, &mut ledger)
}

/// A simulated listener.
pub struct Listener {
    token: Token,
    address: SocketAddr,
}

impl Listener {
    /// See [`crate::Listener::bind`].
    ///
    /// # Errors
    /// `AddrInUse`, `AddrNotAvailable`.
    pub fn bind(address: SocketAddr) -> io::Result<Listener> {
        let (token, address) = with_net(|net, node, ledger| net.bind(node, address, ledger))?;
        Ok(Listener { token, address })
    }

    /// The address, with the port that was selected.
    pub fn local_address(&self) -> SocketAddr {
        self.address
    }

    /// See [`crate::Listener::accept`].
    pub async fn accept(&self) -> io::Result<(DetachedStream, SocketAddr)> {
        let accepted = poll_fn(|context| with_net(|net, _, _| net.poll_accept(self.id(), context))).await?;
        let stream = DetachedStream { token: accepted.token, local: accepted.local, peer: accepted.peer };
        Ok((stream, accepted.peer))
    }

    fn id(&self) -> ListenerId {
        match self.token.what {
            Held::Listener(id) => id,
            Held::End(..) => unreachable!("a listener's token is one of a listener"),
        }
    }
}

/// A simulated connection between cores.
pub struct DetachedStream {
    token: Token,
    local: SocketAddr,
    peer: SocketAddr,
}

impl DetachedStream {
    /// Attaches the connection to the current core.
    pub fn attach(self) -> Stream {
        Stream { detached: self, stays: PhantomData }
    }
}

/// A simulated connection.
pub struct Stream {
    detached: DetachedStream,
    /// As in production, it stays on its core.
    stays: PhantomData<Rc<()>>,
}

/// Bytes that arrived.
pub struct Received(Vec<u8>);

impl Deref for Received {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl DerefMut for Received {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

impl Stream {
    /// See [`crate::Stream::connect`].
    ///
    /// # Errors
    /// `ConnectionRefused`, `TimedOut`, `NetworkUnreachable`.
    pub async fn connect(address: SocketAddr) -> io::Result<Stream> {
        let (token, local) = with_net(|net, node, ledger| net.connect(node, address, ledger))?;
        let stream = DetachedStream { token, local, peer: address }.attach();
        poll_fn(|context| with_net(|net, _, _| net.poll_connected(stream.end().0, context))).await?;
        Ok(stream)
    }

    /// The address of the other side.
    pub fn peer_address(&self) -> SocketAddr {
        self.detached.peer
    }

    /// The address of this side.
    pub fn local_address(&self) -> SocketAddr {
        self.detached.local
    }

    /// See [`crate::Stream::receive`].
    ///
    /// # Errors
    /// `ConnectionReset`, `TimedOut`.
    pub async fn receive(&self) -> io::Result<Received> {
        poll_fn(|context| {
            with_net(|net, _, ledger| {
                net.poll_receive(self.end(), RECEIVE_MAX, context, ledger, |bytes| Received(bytes.to_vec()))
            })
        })
        .await
    }

    /// See [`crate::Stream::receive_exact`].
    ///
    /// # Errors
    /// `UnexpectedEof` if the other side closed before everything had arrived; otherwise as for `receive`.
    pub async fn receive_exact(&self, mut buf: Buf, mut filled: usize) -> io::Result<Buf> {
        poll_fn(|context| {
            while filled < buf.len() {
                let rest = &mut buf[filled..];
                let received = with_net(|net, _, ledger| {
                    net.poll_receive(self.end(), rest.len(), context, ledger, |bytes| {
                        rest[..bytes.len()].copy_from_slice(bytes);
                        bytes.len()
                    })
                });
                match received {
                    Poll::Ready(Ok(0)) => return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
                    Poll::Ready(Ok(len)) => filled += len,
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                    Poll::Pending => return Poll::Pending,
                }
            }
            Poll::Ready(Ok(()))
        })
        .await?;
        Ok(buf)
    }

    /// See [`crate::Stream::send`].
    ///
    /// # Errors
    /// `ConnectionReset`, `BrokenPipe`, `TimedOut`.
    pub async fn send(&self, mut batch: SendBatch) -> io::Result<SendBatch> {
        let mut bytes = Vec::with_capacity(batch.len());
        batch.iter().for_each(|piece| bytes.extend_from_slice(piece));
        let mut sent = 0;
        poll_fn(|context| {
            with_net(|net, _, ledger| net.poll_send(self.end(), &bytes, &mut sent, context, ledger))
        })
        .await?;
        batch.clear();
        Ok(batch)
    }

    /// See [`crate::Stream::shutdown`].
    pub fn shutdown(&self) {
        let (id, side) = self.end();
        with_net(|net, _, ledger| net.shutdown(id, side, ledger));
    }

    /// See [`crate::Stream::abort`].
    pub fn abort(&self) {
        let (id, side) = self.end();
        with_net(|net, _, ledger| net.abort(id, side, ledger));
    }

    /// See [`crate::Stream::detach`].
    pub async fn detach(self) -> DetachedStream {
        self.detached
    }

    fn end(&self) -> (ConnectionId, Side) {
        match self.detached.token.what {
            Held::End(connection, side) => (connection, side),
            Held::Listener(_) => unreachable!("a stream's token is one of an end"),
        }
    }
}
