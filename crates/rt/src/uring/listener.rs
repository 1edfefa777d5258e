//! Accepting connections.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};

use io_uring::cqueue;

use super::driver::{self, Driver, OperationId};
use super::stream::DetachedStream;

/// Connections that the kernel may accept for us in advance: after a network failure thousands of initiators
/// may log in at once. The sysctl net.core.somaxconn (4096 by default) limits it.
const BACKLOG: libc::c_int = 4096;

/// Connections that wait here for [`Listener::accept`]; more than these wait in the kernel. Each holds a
/// descriptor.
const QUEUE_MAX: usize = 256;

/// Accepts connections at an address; see [`crate::Listener`].
pub struct Listener {
    driver: Rc<Driver>,
    acceptor: Rc<Acceptor>,
    address: SocketAddr,
}

/// The listening socket; the operation in flight shares it.
pub(super) struct Acceptor {
    socket: TcpListener,
    /// The request in flight, if there is one.
    operation: Cell<Option<OperationId>>,
    /// Whether that request was canceled.
    stopping: Cell<bool>,
    queue: RefCell<VecDeque<io::Result<OwnedFd>>>,
    waker: RefCell<Option<Waker>>,
}

impl Listener {
    /// See [`crate::Listener::bind`].
    pub fn bind(address: SocketAddr) -> io::Result<Listener> {
        // The standard library sets SO_REUSEADDR and close-on-exec; only its backlog is too short.
        let socket = TcpListener::bind(address)?;
        // SAFETY: no memory is passed; listening again only changes the backlog.
        if unsafe { libc::listen(socket.as_raw_fd(), BACKLOG) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let address = socket.local_addr()?;
        let acceptor = Acceptor {
            socket,
            operation: Cell::new(None),
            stopping: Cell::new(false),
            queue: RefCell::default(),
            waker: RefCell::default(),
        };
        Ok(Listener { driver: driver::current(), acceptor: Rc::new(acceptor), address })
    }

    /// The address, with the port that was selected.
    pub fn local_address(&self) -> SocketAddr {
        self.address
    }

    /// See [`crate::Listener::accept`].
    pub async fn accept(&self) -> io::Result<(DetachedStream, SocketAddr)> {
        loop {
            let socket = std::future::poll_fn(|context| {
                if let Some(accepted) = self.acceptor.queue.borrow_mut().pop_front() {
                    return Poll::Ready(accepted);
                }
                if self.acceptor.operation.get().is_none() {
                    self.acceptor.operation.set(Some(self.driver.start_accept(&self.acceptor)));
                }
                let previous = self.acceptor.waker.replace(Some(context.waker().clone()));
                drop(previous);
                Poll::Pending
            })
            .await?;
            // A connection that was reset while it waited cannot be used: take the next one.
            if let Ok(stream) = DetachedStream::new(Arc::new(TcpStream::from(socket))) {
                let peer = stream.peer_address();
                return Ok((stream, peer));
            }
        }
    }
}

impl Acceptor {
    pub(super) fn descriptor(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    /// Handles a completion of the request.
    pub(super) fn completed(&self, driver: &Driver, entry: &cqueue::Entry) {
        if !cqueue::more(entry.flags()) {
            self.operation.set(None);
            self.stopping.set(false);
        }
        match entry.result() {
            // SAFETY: the descriptor was just opened for us and nothing else owns it.
            fd if fd >= 0 => self.queue.borrow_mut().push_back(Ok(unsafe { OwnedFd::from_raw_fd(fd) })),
            // The peer gave up before we accepted, or we have canceled.
            error if matches!(-error, libc::ECONNABORTED | libc::EINTR | libc::EAGAIN | libc::ECANCELED) => {}
            error => self.queue.borrow_mut().push_back(Err(io::Error::from_raw_os_error(-error))),
        }
        if self.queue.borrow().len() >= QUEUE_MAX {
            self.stop(driver);
        }
        let waker = self.waker.take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn stop(&self, driver: &Driver) {
        if let Some(id) = self.operation.get()
            && !self.stopping.replace(true)
        {
            driver.cancel(id);
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.acceptor.stop(&self.driver);
    }
}
