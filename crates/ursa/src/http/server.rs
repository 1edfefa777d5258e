//! Connections: accepted, bounded, and ended in an orderly way.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tower::ServiceExt;

use super::guard::Peer;
use super::state::State;

/// Connections at a time; more wait in the listener's queue. A console and some scripts need ten; each holds at most
/// some 10 KiB of headers and [`super::BODY_BYTES_MAX`] of body, so all together 65 MiB in the worst case.
const CONNECTIONS_MAX: usize = 64;
/// How long the headers of a request may take, and a connection may be quiet between two requests.
const HEADERS_DEADLINE: Duration = Duration::from_secs(30);
/// How long requests under way may take to end when the node stops.
const SHUTDOWN_DEADLINE: Duration = Duration::from_secs(5);
/// How long to wait when the system has no more sockets to give.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves until `shutdown` is done and the requests that were under way have ended.
///
/// # Errors
/// If the listener has no address, so is none.
pub async fn serve(
    listener: TcpListener,
    state: State,
    shutdown: impl Future<Output = ()>,
) -> io::Result<()> {
    tracing::info!(address = %listener.local_addr()?, "HTTP interface");
    let router = super::router(state);
    let connections = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let graceful = GracefulShutdown::new();
    let accept = async {
        loop {
            let permit = Arc::clone(&connections).acquire_owned().await;
            match listener.accept().await {
                Ok((stream, peer)) => {
                    let connection = graceful.watch(connection(stream, peer, router.clone()));
                    tokio::spawn(async move {
                        let _permit = permit;
                        if let Err(error) = connection.await {
                            tracing::debug!(%peer, error = &error as &dyn std::error::Error, "connection failed");
                        }
                    });
                }
                Err(error) => {
                    tracing::warn!(error = &error as &dyn std::error::Error, "cannot accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    };
    tokio::select! {
        () = accept => {}
        () = shutdown => {}
    }
    if tokio::time::timeout(SHUTDOWN_DEADLINE, graceful.shutdown()).await.is_err() {
        tracing::warn!("requests were cut off at the stop");
    }
    Ok(())
}

fn connection(
    stream: TcpStream,
    peer: SocketAddr,
    router: Router,
) -> impl hyper_util::server::graceful::GracefulConnection<Error = hyper::Error> + Send {
    let service = service_fn(move |request: Request<Incoming>| {
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(Peer { address: peer, secure: false });
        let router = router.clone();
        async move { Ok::<_, Infallible>(router.oneshot(request).await.unwrap_or_else(|never| match never {})) }
    });
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS_DEADLINE)
        .serve_connection(TokioIo::new(stream), service)
}
