//! One TCP connection on one core.

use std::io;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;

use base::{Buf, SendBatch};
use io_uring::opcode;
use io_uring::types::Fd;

use super::address::Address;
use super::driver::{self, Driver, Kept};
use super::receive_buffers::Received;
use super::receiver::{End, Receiver};
use super::sender::Sender;

/// One TCP connection, used by one core; see [`crate::Stream`].
pub struct Stream {
    driver: Rc<Driver>,
    socket: Arc<TcpStream>,
    receiver: Rc<Receiver>,
    /// The receiver's number in the driver.
    registration: usize,
    sender: Sender,
    addresses: Addresses,
}

#[derive(Clone, Copy)]
struct Addresses {
    local: SocketAddr,
    peer: SocketAddr,
}

impl Stream {
    /// See [`crate::Stream::connect`]; the caller handles the deadline.
    pub async fn connect(address: SocketAddr) -> io::Result<Stream> {
        let driver = driver::current();
        let target = Box::new(Address::from(address));
        // SAFETY: no memory is passed.
        let fd = unsafe { libc::socket(target.family(), libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: `fd` was just opened and nothing else owns it.
        let socket = Arc::new(TcpStream::from(unsafe { OwnedFd::from_raw_fd(fd) }));
        let entry = opcode::Connect::new(Fd(fd), target.as_ptr(), target.len()).build();
        // SAFETY: the address is in a box, which is kept with the socket.
        let connect =
            unsafe { driver.start(entry, Kept::Connect { socket: Arc::clone(&socket), address: target }) };
        let (result, kept) = connect.cancel_on_drop().await;
        drop(kept);
        if result < 0 {
            return Err(io::Error::from_raw_os_error(-result));
        }
        Ok(DetachedStream::new(socket)?.attach())
    }

    /// The address of the other side.
    pub fn peer_address(&self) -> SocketAddr {
        self.addresses.peer
    }

    /// The address of this side.
    pub fn local_address(&self) -> SocketAddr {
        self.addresses.local
    }

    /// See [`crate::Stream::receive`].
    pub async fn receive(&self) -> io::Result<Received> {
        self.receiver.receive(&self.driver).await
    }

    /// See [`crate::Stream::receive_exact`].
    pub async fn receive_exact(&self, buf: Buf, filled: usize) -> io::Result<Buf> {
        self.receiver.receive_exact(&self.driver, buf, filled).await
    }

    /// See [`crate::Stream::send`].
    pub async fn send(&self, batch: SendBatch) -> io::Result<SendBatch> {
        self.sender.send(&self.driver, batch).await
    }

    /// See [`crate::Stream::shutdown`].
    pub fn shutdown(&self) {
        // It only fails if the connection has already ended.
        let _ = self.socket.shutdown(Shutdown::Both);
    }

    /// See [`crate::Stream::abort`].
    pub fn abort(&self) {
        // Without time to linger, closing the socket sends a reset and drops what is queued. The socket is
        // closed when the operations in flight have released it, which the shutdown makes them do. It only
        // fails in the same case as `shutdown`.
        let _ = set_option(&self.socket, libc::SO_LINGER, libc::linger { l_onoff: 1, l_linger: 0 });
        self.shutdown();
    }

    /// See [`crate::Stream::detach`].
    pub async fn detach(self) -> DetachedStream {
        let (queued, end) = self.receiver.finish(&self.driver).await;
        DetachedStream { socket: Arc::clone(&self.socket), addresses: self.addresses, queued, end }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // The socket is closed when the last operation releases it.
        self.receiver.abandon(&self.driver);
        self.driver.unregister(self.registration);
    }
}

/// A connection that belongs to no core: its socket, and data that was received but not read.
pub struct DetachedStream {
    socket: Arc<TcpStream>,
    addresses: Addresses,
    queued: Vec<u8>,
    end: Option<End>,
}

impl DetachedStream {
    /// A connected socket; fails if the connection has ended since.
    pub(super) fn new(socket: Arc<TcpStream>) -> io::Result<DetachedStream> {
        let addresses = Addresses { local: socket.local_addr()?, peer: socket.peer_addr()? };
        socket.set_nodelay(true)?;
        keep_alive(&socket)?;
        Ok(DetachedStream { socket, addresses, queued: Vec::new(), end: None })
    }

    /// See [`crate::DetachedStream::attach`].
    pub fn attach(self) -> Stream {
        let driver = driver::current();
        let receiver = Receiver::new(Arc::clone(&self.socket), self.queued, self.end);
        let registration = driver.register(&receiver);
        let sender = Sender::new(Arc::clone(&self.socket));
        Stream { driver, socket: self.socket, receiver, registration, sender, addresses: self.addresses }
    }

    /// The address of the other side.
    pub(super) fn peer_address(&self) -> SocketAddr {
        self.addresses.peer
    }
}

/// Lets the kernel detect a peer that has disappeared silently.
fn keep_alive(socket: &TcpStream) -> io::Result<()> {
    set_option::<libc::c_int>(socket, libc::SO_KEEPALIVE, 1)
}

/// Sets an option of the socket level, whose value is a `T`.
fn set_option<T>(socket: &TcpStream, option: libc::c_int, value: T) -> io::Result<()> {
    // SAFETY: the value is readable for the number of bytes that is passed.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            option,
            (&raw const value).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
