//! TCP: listeners and streams.

use std::io;
use std::net::SocketAddr;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

use base::{Buf, SendBatch};

use crate::worlds::{Of, either};
use crate::{sim, uring};

/// Accepts connections at an address.
pub struct Listener(Of<uring::Listener, sim::Listener>);

impl Listener {
    /// Listens at `address`; port 0 selects a free port.
    ///
    /// # Errors
    /// The system's, for example if the address is in use.
    pub async fn bind(address: SocketAddr) -> io::Result<Listener> {
        if sim::is_current() {
            sim::Listener::bind(address).map(Of::Sim).map(Listener)
        } else {
            uring::Listener::bind(address).map(Of::Uring).map(Listener)
        }
    }

    /// The address, with the port that was selected.
    pub fn local_address(&self) -> SocketAddr {
        either!(&self.0, listener => listener.local_address())
    }

    /// Waits for the next connection. It belongs to no core until it is attached to one.
    ///
    /// # Errors
    /// The system's. Running out of descriptors is temporary: wait a moment and continue.
    pub async fn accept(&self) -> io::Result<(DetachedStream, SocketAddr)> {
        match &self.0 {
            Of::Uring(listener) => {
                let (stream, peer) = listener.accept().await?;
                Ok((DetachedStream(Of::Uring(stream)), peer))
            }
            Of::Sim(listener) => {
                let (stream, peer) = listener.accept().await?;
                Ok((DetachedStream(Of::Sim(stream)), peer))
            }
        }
    }
}

/// A connection on its way from one core to another.
pub struct DetachedStream(Of<uring::DetachedStream, sim::DetachedStream>);

impl DetachedStream {
    /// Attaches the connection to the current core.
    pub fn attach(self) -> Stream {
        match self.0 {
            Of::Uring(stream) => Stream(Of::Uring(stream.attach())),
            Of::Sim(stream) => Stream(Of::Sim(stream.attach())),
        }
    }
}

/// One TCP connection, used by one core. One task may receive while another one sends.
///
/// Nagle's algorithm is off and keep-alive is on. Dropping the stream closes the connection.
pub struct Stream(Of<uring::Stream, sim::Stream>);

/// Bytes that arrived, to be read or changed in place (for example decrypted).
///
/// Drop it soon: the memory belongs to the core's receive ring.
pub struct Received(Of<uring::Received, sim::Received>);

impl Deref for Received {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        either!(&self.0, received => received)
    }
}

impl DerefMut for Received {
    fn deref_mut(&mut self) -> &mut [u8] {
        either!(&mut self.0, received => received)
    }
}

impl Stream {
    /// Connects to `address`.
    ///
    /// # Errors
    /// The system's, or `TimedOut` after `deadline`.
    pub async fn connect(address: SocketAddr, deadline: Duration) -> io::Result<Stream> {
        let connect = async {
            if sim::is_current() {
                sim::Stream::connect(address).await.map(Of::Sim).map(Stream)
            } else {
                uring::Stream::connect(address).await.map(Of::Uring).map(Stream)
            }
        };
        crate::timeout(deadline, connect).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }

    /// The address of the other side.
    pub fn peer_address(&self) -> SocketAddr {
        either!(&self.0, stream => stream.peer_address())
    }

    /// The address of this side.
    pub fn local_address(&self) -> SocketAddr {
        either!(&self.0, stream => stream.local_address())
    }

    /// The bytes that have arrived, at least one; empty when the other side has closed its direction.
    ///
    /// Cancel-safe: a dropped `receive` loses nothing.
    ///
    /// # Errors
    /// The system's, for example for a reset connection.
    pub async fn receive(&self) -> io::Result<Received> {
        match &self.0 {
            Of::Uring(stream) => stream.receive().await.map(Of::Uring).map(Received),
            Of::Sim(stream) => stream.receive().await.map(Of::Sim).map(Received),
        }
    }

    /// Fills `buf` from `filled` to its end, in place if the world supports that.
    ///
    /// For large data whose length is known. Not cancel-safe.
    ///
    /// # Errors
    /// The system's; `UnexpectedEof` if the other side closed before everything had arrived.
    pub async fn receive_exact(&self, buf: Buf, filled: usize) -> io::Result<Buf> {
        either!(&self.0, stream => stream.receive_exact(buf, filled).await)
    }

    /// Sends all of `batch` and returns it empty. Only one send may run at a time.
    ///
    /// # Errors
    /// The system's; the connection cannot be used afterwards.
    pub async fn send(&self, batch: SendBatch) -> io::Result<SendBatch> {
        either!(&self.0, stream => stream.send(batch).await)
    }

    /// Ends the connection now, in both directions: a pending `receive` or `send` fails or sees the end.
    pub fn shutdown(&self) {
        either!(&self.0, stream => stream.shutdown())
    }

    /// Ends the connection as [`Stream::shutdown`] does, and discards sent data that has not left this
    /// machine.
    ///
    /// After a mere `shutdown` the kernel continues to send for many minutes, so the other side may act on
    /// old data long after a broken network was repaired.
    pub fn abort(&self) {
        either!(&self.0, stream => stream.abort())
    }

    /// Detaches the stream from this core. Bytes that have arrived but were not received move with it.
    pub async fn detach(self) -> DetachedStream {
        DetachedStream(match self.0 {
            Of::Uring(stream) => Of::Uring(stream.detach().await),
            Of::Sim(stream) => Of::Sim(stream.detach().await),
        })
    }
}
