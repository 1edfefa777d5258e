//! A connection with a client, with or without TLS.

use std::io::{self, ErrorKind, Read, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nbd::Transport;
use rustls::{ServerConfig, ServerConnection};

use super::place::Stream;

/// How long a client may take nothing of a reply. A program that writes a backup to tape may pause for
/// minutes.
const SENT_WITHIN: Duration = Duration::from_secs(600);
/// How long the last words of TLS may take.
const CLOSED_WITHIN: Duration = Duration::from_secs(1);
/// How many bytes of TLS are read at a time. What they contain fits into what rustls keeps.
const TLS_BYTES: usize = 4096;

/// A connection with a client.
pub(super) struct Connection {
    stream: Stream,
    config: Option<Arc<ServerConfig>>,
    /// As soon as TLS has begun. It is locked while bytes are sent, but not while some are waited for.
    session: Option<Mutex<ServerConnection>>,
}

impl Connection {
    /// A connection that can begin TLS if there is a configuration.
    ///
    /// # Errors
    /// The connection is lost already.
    pub(super) fn new(stream: Stream, config: Option<Arc<ServerConfig>>) -> io::Result<Connection> {
        stream.set_up(SENT_WITHIN)?;
        Ok(Connection { stream, config, session: None })
    }
}

impl Transport for Connection {
    fn start_tls(&mut self, deadline: Instant) -> io::Result<()> {
        let Some(config) = self.config.clone() else { return Err(ErrorKind::Unsupported.into()) };
        let mut session = ServerConnection::new(config).map_err(io::Error::other)?;
        let mut timed = Timed { stream: &self.stream, deadline: Some(deadline) };
        while session.is_handshaking() || session.wants_write() {
            session.complete_io(&mut timed)?;
        }
        self.session = Some(Mutex::new(session));
        Ok(())
    }

    fn receive(&self, buffer: &mut [u8], deadline: Option<Instant>) -> io::Result<usize> {
        let mut timed = Timed { stream: &self.stream, deadline };
        let Some(session) = &self.session else { return timed.read(buffer) };
        let mut encrypted = [0; TLS_BYTES];
        loop {
            match lock(session).reader().read(buffer) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                // Many clients end without a last word of TLS. Requests have lengths, so nothing is mistaken.
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(0),
                read => return read,
            }
            let len = timed.read(&mut encrypted)?;
            let mut session = lock(session);
            let mut rest = &encrypted[..len];
            loop {
                let taken = session.read_tls(&mut rest)?;
                session.process_new_packets().map_err(io::Error::other)?;
                // Behind the last word of TLS it takes nothing.
                if taken == 0 || rest.is_empty() {
                    break;
                }
            }
            while session.wants_write() {
                session.write_tls(&mut &self.stream)?;
            }
        }
    }

    fn send(&self, bytes: &[u8]) -> io::Result<()> {
        let Some(session) = &self.session else { return (&self.stream).write_all(bytes) };
        let mut session = lock(session);
        let mut rest = bytes;
        while !rest.is_empty() {
            let taken = session.writer().write(rest)?;
            if taken == 0 {
                return Err(ErrorKind::WriteZero.into());
            }
            rest = &rest[taken..];
            while session.wants_write() {
                session.write_tls(&mut &self.stream)?;
            }
        }
        Ok(())
    }

    fn close(&self) {
        // A thread that sends has it locked, perhaps to a client that takes nothing.
        if let Some(Ok(mut session)) = self.session.as_ref().map(Mutex::try_lock) {
            session.send_close_notify();
            let timed = self.stream.set_write_timeout(CLOSED_WITHIN);
            // The client may be gone.
            let _ = timed.and_then(|()| session.write_tls(&mut &self.stream));
        }
        self.stream.shut_down();
    }
}

fn lock(session: &Mutex<ServerConnection>) -> MutexGuard<'_, ServerConnection> {
    session.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A stream that is read until a deadline at most.
struct Timed<'a> {
    stream: &'a Stream,
    deadline: Option<Instant>,
}

impl Read for Timed<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) {
            return Err(ErrorKind::TimedOut.into());
        }
        self.stream.set_read_timeout(left)?;
        loop {
            let mut stream = self.stream;
            match stream.read(buffer) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    return Err(ErrorKind::TimedOut.into());
                }
                read => return read,
            }
        }
    }
}

impl Write for Timed<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut stream = self.stream;
        stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
