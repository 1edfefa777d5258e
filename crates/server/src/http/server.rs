//! The HTTP connections: they are accepted, limited in number, and closed in an orderly way.
//!
//! One port serves both TLS and plain HTTP: the first byte of a connection tells which one a client speaks.
//! [`super::guard`] refuses clients of other machines that do not use TLS.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;
use tower::ServiceExt;

use super::access::network_of;
use super::guard::Peer;
use super::state::State;
use super::write_timeout::{WRITE_DEADLINE, WriteTimeout};

/// The number of connections from this machine, and again from all other machines.
///
/// They are separate so that others cannot lock out this machine's command line. Further connections are
/// closed; those of this machine wait first, see [`WAITING_MAX`]. A console and some scripts need ten. Each
/// connection holds at most some 10 KiB of headers, 48 KiB of TLS and [`super::BODY_BYTES_MAX`] of body, so
/// all together take 135 MiB in the worst case.
const CONNECTIONS_MAX: usize = 64;
/// How many connections of this machine may wait, and how long. A waiting one costs only its descriptor.
const WAITING_MAX: usize = 256;
const WAITING_DEADLINE: Duration = Duration::from_secs(30);
/// The number of connections from one other address, so that one address cannot take all.
const OF_ADDRESS_MAX: usize = 16;
/// How long a client may take to send its first byte, and for the TLS handshake.
const HANDSHAKE_DEADLINE: Duration = Duration::from_secs(10);
/// The first byte of TLS: a handshake record (RFC 8446 5.1). No HTTP method begins with it.
const TLS_HANDSHAKE: u8 = 22;
/// How long a client may take to send the headers of a request, and how long a connection may be idle.
const HEADERS_DEADLINE: Duration = Duration::from_secs(30);
/// How long requests in progress may take to end when the node stops.
const SHUTDOWN_DEADLINE: Duration = Duration::from_secs(5);
/// The pause after a failed accept: the system may have no more descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The sockets that accept connections.
pub struct Listeners {
    /// One per address.
    pub listeners: Vec<TcpListener>,
    /// The configuration of TLS; `None`: there is no TLS.
    pub tls: Option<Arc<ServerConfig>>,
}

/// Serves until `shutdown` is done and the requests in progress have ended.
pub async fn serve(listeners: Listeners, state: State, shutdown: impl Future<Output = ()>) -> io::Result<()> {
    let tls = listeners.tls.map(TlsAcceptor::from);
    let server = Arc::new(Server {
        router: super::router(state.clone()),
        tls,
        graceful: GracefulShutdown::new(),
        of_this_machine: Arc::new(Semaphore::new(CONNECTIONS_MAX)),
        waiting: Arc::new(Semaphore::new(WAITING_MAX)),
        of_others: Arc::new(Semaphore::new(CONNECTIONS_MAX)),
        by_address: Arc::default(),
    });
    let events = tokio::spawn(super::events::take_all(state.clone()));
    let tasks = [
        tokio::spawn(super::history::keep(state.clone())),
        tokio::spawn(super::forecasts::watch(state.clone())),
        tokio::spawn(super::live::sample(state.clone())),
        tokio::spawn(super::live::ask_all(state.clone())),
        tokio::spawn(super::forwarding::carry_out_all(state.clone())),
        tokio::spawn(super::inquiries::answer_all(state.clone())),
    ];
    let ring = Arc::clone(&state.events);
    let mut accepting = JoinSet::new();
    for listener in listeners.listeners {
        tracing::info!(address = %listener.local_addr()?, tls = server.tls.is_some(), "HTTP interface");
        accepting.spawn(Arc::clone(&server).accept(listener));
    }
    shutdown.await;
    // Event streams do not end: the shutdown would wait for them.
    events.abort();
    tasks.iter().for_each(JoinHandle::abort);
    ring.close();
    accepting.shutdown().await;
    // No task accepts connections any more. A connection has clones of the parts it needs, not the server.
    let graceful = Arc::into_inner(server).map(|server| server.graceful);
    let ended = async {
        if let Some(graceful) = graceful {
            graceful.shutdown().await;
        }
    };
    if tokio::time::timeout(SHUTDOWN_DEADLINE, ended).await.is_err() {
        tracing::warn!("requests were cut off when the node stopped");
    }
    Ok(())
}

/// The number of connections by address of another machine, or by network for IPv6.
type ByAddress = Mutex<BTreeMap<IpAddr, usize>>;

/// What every connection needs.
struct Server {
    router: Router,
    tls: Option<TlsAcceptor>,
    graceful: GracefulShutdown,
    of_this_machine: Arc<Semaphore>,
    /// Connections of this machine that wait for room.
    waiting: Arc<Semaphore>,
    of_others: Arc<Semaphore>,
    by_address: Arc<ByAddress>,
}

impl Server {
    async fn accept(self: Arc<Self>, listener: TcpListener) {
        loop {
            match listener.accept().await {
                Ok((stream, peer)) => {
                    let Some(place) = self.place_for(peer.ip().to_canonical()) else {
                        // Debug only: otherwise anybody could fill the log.
                        tracing::debug!(%peer, "too many connections: one was closed");
                        continue;
                    };
                    let (router, tls, watcher) =
                        (self.router.clone(), self.tls.clone(), self.graceful.watcher());
                    let of_this_machine = Arc::clone(&self.of_this_machine);
                    tokio::spawn(async move {
                        // The wait is not in the loop above, which has to accept other connections.
                        let Some(_room) = place.room(of_this_machine).await else { return };
                        if let Err(error) = talk(stream, peer, router, tls, watcher).await {
                            tracing::debug!(%peer, %error, "connection failed");
                        }
                    });
                }
                Err(error) => {
                    tracing::warn!(error = &error as &dyn std::error::Error, "cannot accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    /// Room for a connection from this address, or a place to wait for it; `None`: there is neither. Only
    /// connections of this machine wait.
    fn place_for(&self, address: IpAddr) -> Option<Place> {
        if address.is_loopback() {
            return Some(match Arc::clone(&self.of_this_machine).try_acquire_owned() {
                Ok(permit) => Place::There(Room { _permit: permit, of_address: None }),
                Err(_) => Place::Waits(Arc::clone(&self.waiting).try_acquire_owned().ok()?),
            });
        }
        let permit = Arc::clone(&self.of_others).try_acquire_owned().ok()?;
        let mut counts = self.by_address.lock().unwrap_or_else(PoisonError::into_inner);
        let address = network_of(address);
        let count = counts.entry(address).or_default();
        if *count >= OF_ADDRESS_MAX {
            return None;
        }
        *count += 1;
        Some(Place::There(Room {
            _permit: permit,
            of_address: Some((address, Arc::clone(&self.by_address))),
        }))
    }
}

/// Where an accepted connection is.
enum Place {
    /// The connection has room.
    There(Room),
    /// The connection waits for room.
    Waits(OwnedSemaphorePermit),
}

impl Place {
    /// The room, as soon as there is some; `None`: there was none in time.
    async fn room(self, of_this_machine: Arc<Semaphore>) -> Option<Room> {
        match self {
            Place::There(room) => Some(room),
            Place::Waits(_waiting) => {
                let permit = tokio::time::timeout(WAITING_DEADLINE, of_this_machine.acquire_owned()).await;
                Some(Room { _permit: permit.ok()?.ok()?, of_address: None })
            }
        }
    }
}

/// The room that a connection takes until it is dropped.
struct Room {
    _permit: OwnedSemaphorePermit,
    of_address: Option<(IpAddr, Arc<ByAddress>)>,
}

impl Drop for Room {
    fn drop(&mut self) {
        let Some((address, counts)) = &self.of_address else { return };
        let mut counts = counts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(address) {
            *count -= 1;
            if *count == 0 {
                counts.remove(address);
            }
        }
    }
}

/// Determines whether the client speaks TLS, and answers its requests.
async fn talk(
    stream: TcpStream,
    peer: SocketAddr,
    router: Router,
    tls: Option<TlsAcceptor>,
    watcher: Watcher,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let mut first = [0];
    let Some(tls) = tls else {
        return Ok(answer(stream, Peer { address: peer, secure: false }, router, watcher).await?);
    };
    let begin = tokio::time::timeout(HANDSHAKE_DEADLINE, stream.peek(&mut first));
    if begin.await?? == 0 || first[0] != TLS_HANDSHAKE {
        return Ok(answer(stream, Peer { address: peer, secure: false }, router, watcher).await?);
    }
    let stream = tokio::time::timeout(HANDSHAKE_DEADLINE, tls.accept(stream)).await??;
    Ok(answer(stream, Peer { address: peer, secure: true }, router, watcher).await?)
}

async fn answer<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    stream: S,
    peer: Peer,
    router: Router,
    watcher: Watcher,
) -> Result<(), hyper::Error> {
    let service = service_fn(move |request: Request<Incoming>| {
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(peer);
        let router = router.clone();
        async move { Ok::<_, Infallible>(router.oneshot(request).await.unwrap_or_else(|never| match never {})) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS_DEADLINE)
        .serve_connection(TokioIo::new(WriteTimeout::new(stream, WRITE_DEADLINE)), service);
    watcher.watch(connection).await
}
