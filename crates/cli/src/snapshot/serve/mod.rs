//! `ursa snapshot serve`: what a volume held in a snapshot over NBD, for `qemu-img`, `nbdcopy` and backup
//! programs.
//!
//! It is a client of the node, as an export is: the node needs neither another port nor another way to decide
//! who may read. Anyone who reaches this process can read the volume. So it listens on a socket that only its
//! user can open, on a loopback address, or requires certificates (`docs/why/snapshots.md`).

mod map;
mod place;
mod source;
mod transport;

use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::Duration;

use api::{Client, SnapshotDataQuery};
use clap::Args;
use https::{AuthoritiesError, IdentityError};
use nbd::{Ended, Security};
use rustls::ServerConfig;
use serde::Serialize;
use terms::clock::utc;
use terms::exit::with_causes;
use terms::notify;
use terms::signals::{self, Signals};

use self::place::{Listener, Place, Stream};
use self::source::SnapshotSource;
use self::transport::Connection;
use super::super::error::CliError;
use super::super::output::Output;
use super::super::table::size;
use super::diff::VolumeAt;
use super::export::{self, ExportError};

/// How many clients are served at the same time. Each may have 4 requests under way, and for each of these
/// some MiB are in memory.
const CLIENTS_MAX: usize = 16;
/// How soon a client is accepted after that has failed: the system may have no more file descriptors.
const ACCEPTED_AGAIN_AFTER: Duration = Duration::from_secs(1);
/// How many bytes are read before the snapshot is served, to see whether they can be.
const TRIED_BYTES: u64 = 4096;

/// The files in the directory of certificates, named as QEMU and libnbd name them.
const AUTHORITIES: &str = "ca-cert.pem";
const CERTIFICATE: &str = "server-cert.pem";
const KEY: &str = "server-key.pem";

/// A snapshot to be served.
#[derive(Args, Debug)]
pub struct Serve {
    /// The snapshot to serve
    #[arg(value_name = "VOLUME@SNAPSHOT")]
    at: VolumeAt,
    /// Also say what has changed since this earlier snapshot of the volume: qemu:dirty-bitmap:SNAPSHOT
    #[arg(long, value_name = "VOLUME@SNAPSHOT")]
    since: Option<VolumeAt>,
    #[command(flatten)]
    place: Place,
    /// Require TLS, with ca-cert.pem, server-cert.pem and server-key.pem in this directory; clients need a
    /// certificate from that CA
    #[arg(long, value_name = "DIRECTORY")]
    tls_certificates: Option<PathBuf>,
    /// Listen without TLS on an address that other machines reach: anyone there can read the volume
    #[arg(long, conflicts_with = "tls_certificates")]
    insecure: bool,
    /// Exit when a client has read the snapshot and no client is connected any more
    #[arg(long)]
    once: bool,
}

/// Why a snapshot was not served.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // The messages say it.
pub enum ServeError {
    /// Also that the snapshot is not found, or is not one that can be served.
    #[error(transparent)]
    Snapshot(#[from] ExportError),
    #[error(
        "other machines can reach {0}, and without TLS anyone there can read the volume: add --tls-certificates DIRECTORY, or listen on a loopback address or a socket (--insecure serves it all the same)"
    )]
    Exposed(SocketAddr),
    #[error(transparent)]
    Authorities(#[from] AuthoritiesError),
    #[error(transparent)]
    Identity(#[from] IdentityError),
    #[error("cannot listen on {0}")]
    Listen(SocketAddr, #[source] io::Error),
    #[error("cannot create the socket {0}")]
    Socket(PathBuf, #[source] io::Error),
    #[error("{0} is in use: choose another path")]
    InUse(PathBuf),
    #[error("cannot wait for signals")]
    Signals(#[source] io::Error),
}

impl ServeError {
    pub(crate) fn code(&self) -> u8 {
        match self {
            ServeError::Snapshot(error) => error.code(),
            ServeError::Exposed(_) | ServeError::Authorities(_) | ServeError::Identity(_) => 2,
            _ => 1,
        }
    }
}

/// What clients connect to.
#[derive(Debug, Serialize)]
struct Served {
    uri: String,
    export: String,
    size: u64,
    /// The NAME of `qemu:dirty-bitmap:NAME`.
    #[serde(skip_serializing_if = "Option::is_none")]
    bitmap: Option<String>,
}

/// What happens while a snapshot is served.
enum Happening {
    Signal,
    Accepted(Stream, String),
    Ended(Ended),
}

impl Serve {
    pub fn run(self, client: &Client, output: &Output) -> Result<(), CliError> {
        let exposed = self.place.address().filter(|address| !address.ip().is_loopback());
        if let Some(address) = exposed.filter(|_| self.tls_certificates.is_none() && !self.insecure) {
            return Err(ServeError::Exposed(address).into());
        }
        let tls = self.tls_certificates.as_deref().map(tls_in).transpose()?;
        let wanted = export::wanted(client, &self.at, self.since.as_ref()).map_err(ServeError::from)?;
        let export = nbd::Export {
            name: format!("{}@{}", wanted.volume_name, wanted.snapshot.name),
            description: format!(
                "volume {} in snapshot {} of {}",
                wanted.volume_name,
                wanted.snapshot.name,
                utc(wanted.snapshot.time)
            ),
            size: wanted.snapshot.size,
            bitmap: wanted.since.as_ref().map(|since| since.name.clone()),
        };
        let source = SnapshotSource::new(client.clone(), &wanted);
        // Viewers may not read, and should learn that now.
        client.snapshot_data(&SnapshotDataQuery {
            volume: export::hex(&wanted.volume),
            snapshot: wanted.snapshot.number.to_string(),
            offset: 0,
            len: TRIED_BYTES.min(wanted.snapshot.size),
        })?;
        let (happens, happenings) = mpsc::channel();
        // First, so that a signal does not leave a socket behind.
        raise_signal(happens.clone()).map_err(ServeError::Signals)?;
        let (listener, file) = self.place.open()?;
        let uri = self.place.uri(&listener, tls.is_some(), &export.name);
        let (size, bitmap) = (export.size, export.bitmap.clone());
        output.line(&Served { uri, export: export.name.clone(), size, bitmap }, shown)?;
        let accepted = happens.clone();
        // It ends with this process.
        thread::spawn(move || accept_all(&listener, &accepted));
        notify::ready();
        let serving = Serving { tls, export, source };
        serving.run(&happens, happenings, self.once);
        notify::stopping();
        drop(file);
        Ok(())
    }
}

fn shown(served: &Served) -> String {
    let Served { uri, export, size: bytes, bitmap } = served;
    let bitmap = bitmap.as_ref().map_or(String::new(), |bitmap| {
        format!("\nWhat has changed since {bitmap}: qemu:dirty-bitmap:{bitmap}")
    });
    format!("{export}, {}, is served until Ctrl-C: {uri}{bitmap}", size(*bytes))
}

/// TLS with the certificates in a directory.
fn tls_in(directory: &Path) -> Result<Arc<ServerConfig>, ServeError> {
    let clients = https::authorities(&directory.join(AUTHORITIES))?;
    Ok(Arc::new(https::server(&directory.join(CERTIFICATE), &directory.join(KEY), clients)?))
}

/// Reports the first signal that asks this process to end.
fn raise_signal(happens: Sender<Happening>) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut signals = {
        let _inside = runtime.enter();
        Signals::new(signals::END)?
    };
    // It ends with this process.
    thread::spawn(move || {
        runtime.block_on(signals.next());
        let _ = happens.send(Happening::Signal);
    });
    Ok(())
}

fn accept_all(listener: &Listener, happens: &Sender<Happening>) {
    loop {
        match listener.accept() {
            Ok((stream, peer)) => {
                if happens.send(Happening::Accepted(stream, peer)).is_err() {
                    return;
                }
            }
            Err(error) => {
                tell(&format!("no client can be accepted: {error}"));
                thread::sleep(ACCEPTED_AGAIN_AFTER);
            }
        }
    }
}

/// What the threads of all clients use.
struct Serving {
    tls: Option<Arc<ServerConfig>>,
    export: nbd::Export,
    source: SnapshotSource,
}

impl Serving {
    /// Serves clients until a signal arrives; with `once`, at most until the last one has left.
    fn run(self, happens: &Sender<Happening>, happenings: mpsc::Receiver<Happening>, once: bool) {
        let serving = Arc::new(self);
        let (mut clients, mut is_used) = (0, false);
        for happening in happenings {
            match happening {
                Happening::Signal => return,
                Happening::Accepted(_, peer) if clients == CLIENTS_MAX => {
                    tell(&format!("{peer} is refused: there are {CLIENTS_MAX} clients already"));
                }
                Happening::Accepted(stream, peer) => {
                    let (serving, happens) = (Arc::clone(&serving), happens.clone());
                    let serve = move || {
                        let ended = serving.serve(stream, &peer);
                        let _ = happens.send(Happening::Ended(ended));
                    };
                    match thread::Builder::new().spawn(serve) {
                        Ok(_) => clients += 1,
                        Err(error) => tell(&format!("no thread can be started for a client: {error}")),
                    }
                }
                Happening::Ended(ended) => {
                    clients -= 1;
                    is_used |= ended.has_used;
                    if once && is_used && clients == 0 {
                        return;
                    }
                }
            }
        }
    }

    fn serve(&self, stream: Stream, peer: &str) -> Ended {
        let security = if self.tls.is_some() { Security::Tls } else { Security::Plain };
        let ended = match Connection::new(stream, self.tls.clone()) {
            Ok(mut connection) => nbd::serve(&mut connection, security, &self.export, &self.source),
            Err(error) => Ended { has_used: false, problem: Some(nbd::Problem::Lost(error)) },
        };
        if let Some(problem) = &ended.problem {
            tell(&format!("{peer}: {}", with_causes(problem)));
        }
        ended
    }
}

/// Writes a line to standard error, which may be closed.
fn tell(line: &str) {
    let _ = writeln!(io::stderr(), "ursa: {line}");
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        serve: Serve,
    }

    fn parse(arguments: &[&str]) -> Result<Serve, clap::Error> {
        Line::try_parse_from([&["serve", "db@b"], arguments].concat()).map(|line| line.serve)
    }

    /// The node is never asked.
    fn refused(arguments: &[&str]) -> CliError {
        let client = Client::new("http://127.0.0.1:1");
        parse(arguments).unwrap().run(&client, &Output::new(crate::Format::Table)).unwrap_err()
    }

    #[test]
    fn it_is_served_at_one_place() {
        assert!(parse(&[]).is_err());
        assert!(parse(&["--listen", "127.0.0.1:10809", "--socket", "/run/db"]).is_err());
        assert!(parse(&["--listen", "127.0.0.1:10809"]).is_ok());
        assert!(parse(&["--socket", "/run/db", "--since", "db@a", "--once"]).is_ok());
    }

    #[test]
    fn an_address_that_others_reach_needs_tls() {
        use terms::exit::Outcome;

        for address in ["0.0.0.0:10809", "10.0.0.7:10809", "[::]:10809", "[fd00::1]:10809"] {
            let error = refused(&["--listen", address]);
            assert!(matches!(error, CliError::Serve(ServeError::Exposed(_))), "{error}");
            assert_eq!(error.code(), 2);
            assert!(error.to_string().contains("--tls-certificates"), "{error}");
            let unreached = refused(&["--listen", address, "--insecure"]);
            assert_eq!(unreached.code(), 3, "{unreached}");
        }
        for place in [["--listen", "127.0.0.1:0"], ["--listen", "[::1]:0"], ["--socket", "/nowhere/db"]] {
            assert_eq!(refused(&place).code(), 3);
        }
        assert!(parse(&["--listen", "10.0.0.7:10809", "--insecure", "--tls-certificates", "/etc"]).is_err());
    }

    #[test]
    fn certificates_are_read_before_the_node_is_asked() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().to_str().unwrap();
        let error = refused(&["--listen", "10.0.0.7:10809", "--tls-certificates", path]);
        assert!(matches!(error, CliError::Serve(ServeError::Authorities(_))), "{error}");
        assert!(error.to_string().contains("ca-cert.pem"), "{error}");
    }

    #[test]
    fn what_is_served_is_shown_with_its_bitmap() {
        let mut served = Served {
            uri: "nbd://127.0.0.1:10809/db@b".into(),
            export: "db@b".into(),
            size: 1 << 40,
            bitmap: None,
        };
        assert_eq!(shown(&served), "db@b, 1T, is served until Ctrl-C: nbd://127.0.0.1:10809/db@b");
        served.bitmap = Some("a".into());
        assert!(shown(&served).ends_with("\nWhat has changed since a: qemu:dirty-bitmap:a"));
    }
}
