//! The control thread: the last steps of the start, the HTTP interface, signals, and the stop.

use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use node::Handle;
use node::control::{Handoff, StartError};
use rt::CoreId;
use rt::sync::Receiver;
use rt::uring::CoreStats;
use terms::clock::unix_now;
use terms::notify;
use terms::signals::{self, Signals};
use tokio::net::TcpSocket;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::greeting::{ApiNotes, greeting};
use super::set_up_link::SetUpLink;
use super::settings::Settings;
use super::{ServeError, data_dir};
use crate::http::{
    self, Access, Certificate, CertificateError, CredentialLeft, Elsewhere, EventRing, Listeners, Opening,
    Shared, State, Streams,
};
use crate::watcher::Guarded;

/// What the control thread works with.
pub struct Control {
    /// The settings in effect.
    pub settings: Settings,
    /// Sends calls to the node.
    pub node: Handle,
    /// Sends calls to its cores.
    pub cores: rt::Handle,
    /// What the HTTP interface shares with core 0.
    pub shared: Shared,
    /// Returns the counters of the cores.
    pub core_stats: Arc<dyn Fn() -> Vec<CoreStats> + Send + Sync>,
}

/// The portals, sent when the node serves.
pub type Started = Receiver<Result<Vec<SocketAddr>, StartError>>;

/// The exit code that a shell reports for a program that SIGINT has ended.
const STOPPED_AT_ONCE: i32 = 130;

impl Control {
    /// Runs until the node has stopped.
    pub fn run(self, started: Started) -> Result<(), ServeError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(ServeError::Control).unwrap_or_else(|error| {
            // Exit: nothing could ever stop the cores.
            eprintln!("ursa: {error}");
            std::process::exit(1);
        });
        runtime.block_on(async {
            let served = self.serve(started).await;
            if served.is_err() {
                // The node runs if something else failed to start.
                self.node.drain().await;
            }
            served
        })
    }

    async fn serve(&self, started: Started) -> Result<(), ServeError> {
        let mut signals = Signals::new(signals::END).map_err(ServeError::Control)?;
        let portals = match started.await {
            Ok(Ok(portals)) => portals,
            Ok(Err(error)) => return Err(self.start_error(error)),
            // A core has panicked; the main thread reports it.
            Err(_) => return Ok(()),
        };
        if let Some(marker) = &self.settings.state_marker {
            data_dir::write_marker(marker, &self.settings.node.data_dir)?;
        }
        let http = Http::start(self, &portals).await?;
        let (farewell, over) = oneshot::channel();
        let guard = self.settings.watcher.then(|| tokio::spawn(guard(self.node.clone(), over)));
        // Standard output may be closed.
        let _ = io::stdout().write_all(greeting(&self.settings, &portals, &http.notes()).as_bytes());
        notify::ready();
        tokio::select! {
            () = signals.next() => {}
            // This call ends only when the cores are gone.
            _ = self.cores.call(CoreId(0), std::future::pending::<()>) => return Ok(()),
        }
        notify::stopping();
        tracing::info!("stopping: asking sessions to log out; a second signal stops immediately");
        tokio::select! {
            () = async { tokio::join!(self.node.drain(), http.stop()); } => {
                let _ = farewell.send(());
                if let Some(guard) = guard {
                    let _ = guard.await;
                }
                Ok(())
            }
            () = signals.next() => {
                tracing::warn!("stopped by a second signal, without waiting for sessions");
                std::process::exit(STOPPED_AT_ONCE);
            }
        }
    }

    fn start_error(&self, error: StartError) -> ServeError {
        match error {
            StartError::Record(node::RecordError::Open(rt::OpenError::InUse(_))) => {
                ServeError::Running(self.settings.node.data_dir.clone())
            }
            error => ServeError::Node(error),
        }
    }
}

/// How often the watcher is checked.
const GUARD_EVERY: Duration = Duration::from_millis(500);

/// Keeps a watcher process running for as long as there are other nodes.
async fn guard(node: Handle, mut farewell: oneshot::Receiver<()>) {
    let (mut guarded, mut handoff) = (Guarded::default(), None);
    let mut next = std::pin::pin!(next_handoff(node.clone(), None));
    loop {
        tokio::select! {
            newer = &mut next => {
                handoff = newer;
                next.set(next_handoff(node.clone(), handoff.clone()));
            }
            told = &mut farewell => {
                if told.is_ok() {
                    guarded.farewell();
                }
                return;
            }
            () = tokio::time::sleep(GUARD_EVERY) => {}
        }
        guarded.keep(handoff.clone());
    }
}

/// The handoff, once it is another than the one that is known.
async fn next_handoff(node: Handle, known: Option<Handoff>) -> Option<Handoff> {
    loop {
        let known = known.clone();
        if let Ok(handoff) = node.call(|control| control.next_handoff(known)).await {
            return handoff;
        }
        // The node is starting or stopping.
        tokio::time::sleep(GUARD_EVERY).await;
    }
}

/// The most connections that wait to be accepted: the system's own limit.
const BACKLOG: u32 = 1024;

fn bound(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // Connections of an earlier node in TIME_WAIT do not block the address.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(socket)
}

/// The addresses at which these sockets are reached.
///
/// A socket for all IPv6 addresses also has those of IPv4, unless the system is configured otherwise.
fn reached(sockets: &[(SocketAddr, TcpSocket)]) -> Vec<SocketAddr> {
    let mut addresses: Vec<SocketAddr> = sockets.iter().map(|(address, _)| *address).collect();
    for (address, socket) in sockets {
        let both = || matches!(rustix::net::sockopt::ipv6_v6only(socket), Ok(false));
        if address.ip() == Ipv6Addr::UNSPECIFIED && both() {
            addresses.push((Ipv4Addr::UNSPECIFIED, address.port()).into());
        }
    }
    // A killed process may have left a credential for a loopback address. It would be found first, so replace
    // it.
    let anywhere = addresses.iter().filter(|address| address.ip().is_unspecified());
    let loopback = |address: &SocketAddr| {
        let ip: IpAddr =
            if address.is_ipv4() { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() };
        SocketAddr::new(ip, address.port())
    };
    let also: Vec<SocketAddr> = anywhere.map(loopback).collect();
    addresses.extend(also);
    addresses
}

/// Loads the API's certificate, if the API uses TLS.
fn certificate(settings: &Settings) -> Option<Result<Certificate, CertificateError>> {
    settings.api_has_tls().then(|| {
        Certificate::load(
            settings.api_certificate.as_ref(),
            &settings.node.data_dir,
            &settings.node.name,
            &settings.api_listen,
        )
    })
}

/// The HTTP interface, which runs in a task.
struct Http {
    task: JoinHandle<io::Result<()>>,
    shutdown: oneshot::Sender<()>,
    /// Where the link is with which the first user is created, if there is no user.
    set_up: SetUpLink,
    /// The fingerprint of its certificate.
    fingerprint: Option<String>,
    /// The credential of this machine, which is removed when the API stops.
    _credential: CredentialLeft,
}

impl Http {
    async fn start(control: &Control, portals: &[SocketAddr]) -> Result<Http, ServeError> {
        let settings = &control.settings;
        // Listen only when the credential exists: a client that connects earlier would send an old one.
        let mut sockets = Vec::new();
        for address in settings.api_listen.iter().copied() {
            sockets.push((address, bound(address).map_err(|error| ServeError::Api(address, error))?));
        }
        // With a bad certificate, volumes are still served, and the command line on this machine still works.
        let (certificate, no_certificate) = match certificate(settings).transpose() {
            Ok(certificate) => (certificate, None),
            Err(error) => {
                tracing::error!("the API does not answer other machines: {}", http::with_causes(&error));
                sockets.retain(|(address, _)| address.ip().is_loopback());
                (None, Some(http::CertificateFault::from(&error)))
            }
        };
        let opening = Opening {
            data_dir: control.settings.node.data_dir.clone(),
            metrics_without_token: control.settings.metrics_without_token,
            no_certificate,
        };
        let access = Access::start(&opening);
        let access = access.map_err(|error| ServeError::Access(opening.data_dir.clone(), error))?;
        let access = Arc::new(access);
        control.shared.opened.tell(&access);
        let reachable: Vec<SocketAddr> = sockets.iter().map(|(address, _)| *address).collect();
        let credential = access.leave_credential(&reached(&sockets), None);
        let listen = |(address, socket): (SocketAddr, TcpSocket)| {
            socket.listen(BACKLOG).map_err(|error| ServeError::Api(address, error))
        };
        let listeners = sockets.into_iter().map(listen).collect::<Result<Vec<_>, _>>()?;
        let is_set_up = control.node.call(|control| async move { control.is_set_up() }).await;
        let set_up = match is_set_up {
            Ok(Some(false)) => {
                let token = access.offer_set_up();
                let link =
                    |address: &SocketAddr| format!("{}/#/setup?token={token}", Settings::api_url(*address));
                reachable.iter().map(link).collect()
            }
            _ => Vec::new(),
        };
        let set_up = SetUpLink::place(set_up, &control.settings.node.data_dir);
        let Shared { history, live, opened, inquiries, forwarding } = control.shared.clone();
        let state = State {
            node: control.node.clone(),
            name: control.settings.node.name.clone(),
            read_confirm: control.settings.shown_read_confirm(),
            portals: portals.to_vec(),
            started: SystemTime::now(),
            core_stats: Arc::clone(&control.core_stats),
            access,
            opened,
            events: Arc::new(EventRing::new(unix_now())),
            elsewhere: Elsewhere::default(),
            answers: Arc::default(),
            live,
            forwarding,
            inquiries,
            history,
            streams: Streams::default(),
        };
        let (shutdown, stopping) = oneshot::channel();
        let tls = certificate.as_ref().map(|certificate| Arc::clone(&certificate.config));
        let fingerprint = certificate.map(|certificate| certificate.fingerprint);
        let task = tokio::spawn(http::serve(Listeners { listeners, tls }, state, async {
            // Both a dropped sender and a message mean the end.
            let _ = stopping.await;
        }));
        Ok(Http { task, shutdown, set_up, fingerprint, _credential: credential })
    }

    /// What the greeting says about the API.
    fn notes(&self) -> ApiNotes<'_> {
        ApiNotes { set_up: &self.set_up, fingerprint: self.fingerprint.as_deref() }
    }

    /// Stops; requests in progress complete.
    async fn stop(self) {
        drop(self.shutdown);
        if let Ok(Err(error)) | Err(error) = self.task.await.map_err(io::Error::other) {
            tracing::error!(error = &error as &dyn std::error::Error, "the HTTP interface failed");
        }
    }
}
