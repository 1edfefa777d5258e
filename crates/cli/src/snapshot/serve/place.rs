//! Where clients connect to.

use std::fs;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf, absolute};
use std::time::Duration;

use clap::Args;
use rustix::fs::{Mode, fchmod};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with, sockopt,
};

use super::ServeError;

/// Only the owner may connect to a socket.
const MODE: u32 = 0o600;
/// How many clients wait to be accepted.
const BACKLOG: i32 = 16;
/// After how long without a word a client is asked whether it still exists, how often, and how many times.
/// An idle client may stay, but one whose machine is gone takes the place of another one.
const ALIVE_AFTER: Duration = Duration::from_secs(60);
const ALIVE_EVERY: Duration = Duration::from_secs(15);
const ALIVE_COUNT: u32 = 4;

/// Where a snapshot is served.
#[derive(Args, Debug)]
#[group(required = true, multiple = false)]
pub(super) struct Place {
    /// Listen on this address (the port of NBD is 10809); one that other machines reach requires TLS
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,
    /// Listen on a Unix socket, which only your user can open
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
}

/// A listening socket.
pub(super) enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// A connection with a client.
pub(super) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// The file of a socket, which is deleted when this is dropped.
pub(super) struct SocketFile(Option<PathBuf>);

impl Place {
    /// The address, unless it is a Unix socket.
    pub(super) fn address(&self) -> Option<SocketAddr> {
        self.listen
    }

    pub(super) fn open(&self) -> Result<(Listener, SocketFile), ServeError> {
        if let Some(path) = &self.socket {
            return Ok((Listener::Unix(listen_at(path)?), SocketFile(Some(path.clone()))));
        }
        // One of the two is there.
        let address = self.listen.unwrap_or_else(|| SocketAddr::from(([127, 0, 0, 1], 0)));
        let listener = TcpListener::bind(address).map_err(|error| ServeError::Listen(address, error))?;
        Ok((Listener::Tcp(listener), SocketFile(None)))
    }

    /// The URI, after <https://github.com/NetworkBlockDevice/nbd/blob/master/doc/uri.md>.
    pub(super) fn uri(&self, listener: &Listener, is_encrypted: bool, export: &str) -> String {
        let scheme = if is_encrypted { "nbds" } else { "nbd" };
        let export = encoded(export.as_bytes());
        match (&self.socket, listener) {
            (None, Listener::Tcp(listener)) => {
                // The port may have been chosen by the system.
                let address = listener.local_addr().ok().or(self.listen);
                let address = address.map_or(String::new(), |address| address.to_string());
                format!("{scheme}://{address}/{export}")
            }
            (path, _) => {
                let path = path.clone().unwrap_or_default();
                let path = absolute(&path).unwrap_or(path);
                format!("{scheme}+unix:///{export}?socket={}", encoded(path.as_os_str().as_bytes()))
            }
        }
    }
}

/// Creates a socket that only the owner can open.
fn listen_at(path: &Path) -> Result<UnixListener, ServeError> {
    match listen_for_owner(path) {
        Err(error) if error.kind() == ErrorKind::AddrInUse => {
            // A process that was killed leaves its socket behind.
            if !is_left_behind(path) {
                return Err(ServeError::InUse(path.to_owned()));
            }
            fs::remove_file(path).and_then(|()| listen_for_owner(path))
        }
        bound => bound,
    }
    .map_err(|error| ServeError::Socket(path.to_owned(), error))
}

fn listen_for_owner(path: &Path) -> io::Result<UnixListener> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    // The file that `bind` creates has this mode from the beginning: nobody else can connect before.
    fchmod(&socket, Mode::from_raw_mode(MODE))?;
    bind(&socket, &SocketAddrUnix::new(path)?)?;
    listen(&socket, BACKLOG)?;
    Ok(socket.into())
}

/// Whether it is a socket at which no process listens.
fn is_left_behind(path: &Path) -> bool {
    let is_socket = fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket());
    let refuses = UnixStream::connect(path).is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused);
    is_socket && refuses
}

/// As a part of a URI.
fn encoded(bytes: &[u8]) -> String {
    let encode = |byte: &u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' | b'@' => {
            char::from(*byte).to_string()
        }
        other => format!("%{other:02X}"),
    };
    bytes.iter().map(encode).collect()
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if let Some(path) = &self.0 {
            // It may have been deleted.
            let _ = fs::remove_file(path);
        }
    }
}

impl Listener {
    /// Waits for a client. Returns how it is named, too.
    pub(super) fn accept(&self) -> io::Result<(Stream, String)> {
        match self {
            Listener::Tcp(listener) => {
                let (stream, peer) = listener.accept()?;
                Ok((Stream::Tcp(stream), format!("client {peer}")))
            }
            Listener::Unix(listener) => {
                let (stream, _) = listener.accept()?;
                Ok((Stream::Unix(stream), "a client".into()))
            }
        }
    }
}

impl Stream {
    /// Sets what the connection needs: bytes leave at once, no send takes longer than this, and it ends when
    /// the client's machine is gone.
    pub(super) fn set_up(&self, sent_within: Duration) -> io::Result<()> {
        self.set_write_timeout(sent_within)?;
        let Stream::Tcp(stream) = self else { return Ok(()) };
        stream.set_nodelay(true)?;
        sockopt::set_tcp_keepidle(stream, ALIVE_AFTER)?;
        sockopt::set_tcp_keepintvl(stream, ALIVE_EVERY)?;
        sockopt::set_tcp_keepcnt(stream, ALIVE_COUNT)?;
        Ok(sockopt::set_socket_keepalive(stream, true)?)
    }

    pub(super) fn set_read_timeout(&self, within: Option<Duration>) -> io::Result<()> {
        match self {
            Stream::Tcp(stream) => stream.set_read_timeout(within),
            Stream::Unix(stream) => stream.set_read_timeout(within),
        }
    }

    pub(super) fn set_write_timeout(&self, within: Duration) -> io::Result<()> {
        match self {
            Stream::Tcp(stream) => stream.set_write_timeout(Some(within)),
            Stream::Unix(stream) => stream.set_write_timeout(Some(within)),
        }
    }

    pub(super) fn shut_down(&self) {
        // It may have ended already.
        let _ = match self {
            Stream::Tcp(stream) => stream.shutdown(Shutdown::Both),
            Stream::Unix(stream) => stream.shutdown(Shutdown::Both),
        };
    }
}

impl Read for &Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => (&*stream).read(buffer),
            Stream::Unix(stream) => (&*stream).read(buffer),
        }
    }
}

impl Write for &Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => (&*stream).write(bytes),
            Stream::Unix(stream) => (&*stream).write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn at(socket: &Path) -> Place {
        Place { listen: None, socket: Some(socket.to_owned()) }
    }

    #[test]
    fn only_its_owner_can_open_a_socket_and_it_does_not_stay() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("db");
        let (listener, file) = at(&path).open().unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let refused = at(&path).open().map(drop).unwrap_err();
        assert!(matches!(refused, ServeError::InUse(_)), "{refused}");
        drop(listener);
        // As if the process had been killed.
        let (_again, file_again) = at(&path).open().unwrap();
        drop(file_again);
        assert!(!path.exists());
        drop(file);
    }

    #[test]
    fn a_file_that_is_no_socket_stays() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("precious");
        fs::write(&path, b"data").unwrap();
        assert!(matches!(at(&path).open().map(drop), Err(ServeError::InUse(_))));
        assert_eq!(fs::read(&path).unwrap(), b"data");
    }

    #[test]
    fn clients_find_it_by_its_uri() {
        let place = Place { listen: Some("127.0.0.1:0".parse().unwrap()), socket: None };
        let (listener, _file) = place.open().unwrap();
        let Listener::Tcp(tcp) = &listener else { panic!("it is an address") };
        let port = tcp.local_addr().unwrap().port();
        assert_ne!(port, 0);
        assert_eq!(place.uri(&listener, false, "db@b"), format!("nbd://127.0.0.1:{port}/db@b"));
        assert_eq!(place.uri(&listener, true, "db@b c"), format!("nbds://127.0.0.1:{port}/db@b%20c"));
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a&b");
        let (listener, _file) = at(&path).open().unwrap();
        let uri = at(&path).uri(&listener, false, "db@b");
        assert!(uri.starts_with("nbd+unix:///db@b?socket=/"), "{uri}");
        assert!(uri.ends_with("/a%26b"), "{uri}");
    }
}
