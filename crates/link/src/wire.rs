//! A connection while the two sides agree on its purpose.

use std::error::Error;
use std::time::Duration;
use std::{fmt, io};

use base::SendBatch;
use rt::{DetachedStream, Stream};

use crate::hello::{Opening, PREAMBLE_BYTES, Refused};
use crate::tls::{FeedError, Tls};
use crate::{LinkTrouble, Versions};

/// How much a side may have sent before it is read: a few handshake messages, and the first frames after
/// them.
const INCOMING_MAX: usize = 1 << 20;

/// The maximum time that [`Wire::linger`] takes.
const LINGER: Duration = Duration::from_secs(1);

/// Why the two sides did not reach an agreement.
#[derive(Debug)]
pub(crate) enum WireError {
    Io(io::Error),
    Closed,
    Tls(rustls::Error),
    Refused(Refused),
    TooMuch,
}

impl WireError {
    /// The same as a code with facts.
    pub(crate) fn trouble(&self) -> LinkTrouble {
        match self {
            WireError::Io(error) => LinkTrouble::Broken { errno: rt::errno(error) },
            WireError::Closed => LinkTrouble::Closed,
            WireError::Tls(error) => LinkTrouble::Tls(error.into()),
            WireError::Refused(refused) => LinkTrouble::ByPeer(*refused),
            WireError::TooMuch => LinkTrouble::TooMuch,
        }
    }
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.trouble())
    }
}

impl Error for WireError {
    /// For the log: what rustls says.
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            WireError::Tls(error) => Some(error),
            _ => None,
        }
    }
}

impl From<io::Error> for WireError {
    fn from(error: io::Error) -> WireError {
        WireError::Io(error)
    }
}

impl From<rustls::Error> for WireError {
    fn from(error: rustls::Error) -> WireError {
        WireError::Tls(error)
    }
}

/// The connection.
pub(crate) struct Wire {
    stream: Stream,
    /// The versions that this side speaks.
    versions: Versions,
    tls: Option<Tls>,
    /// Decrypted bytes that have arrived and were not read yet.
    incoming: Vec<u8>,
}

/// The same connection on its way to another core.
pub(crate) struct DetachedWire {
    pub(crate) stream: DetachedStream,
    pub(crate) tls: Option<Tls>,
    pub(crate) incoming: Vec<u8>,
}

impl Wire {
    pub(crate) fn new(stream: Stream, versions: Versions) -> Wire {
        Wire { stream, versions, tls: None, incoming: Vec::new() }
    }

    /// The versions that this side speaks.
    pub(crate) fn versions(&self) -> Versions {
        self.versions
    }

    pub(crate) fn tls(&self) -> Option<&Tls> {
        self.tls.as_ref()
    }

    /// Does the TLS handshake.
    pub(crate) async fn start_tls(&mut self, mut tls: Tls) -> Result<(), WireError> {
        assert!(self.tls.is_none(), "TLS is started once");
        self.flush(&mut tls).await?;
        if tls.is_client() {
            // A side that refuses says so unencrypted; TLS never begins like that.
            self.fill(PREAMBLE_BYTES).await?;
            let opening = std::array::from_fn(|at| self.incoming[at]);
            if let Opening::Refused(refusal, theirs) = Opening::parse(opening, self.versions) {
                return Err(WireError::Refused(Refused { refusal, ours: self.versions, theirs }));
            }
        }
        let mut arrived = std::mem::take(&mut self.incoming);
        loop {
            let incoming = &mut self.incoming;
            let fed = tls.feed(&mut arrived, |plain| keep(incoming, plain));
            // An alert tells the other side what is wrong.
            self.flush(&mut tls).await?;
            fed?;
            if !tls.is_handshaking() {
                self.tls = Some(tls);
                return Ok(());
            }
            let received = self.stream.receive().await?;
            if received.is_empty() {
                return Err(WireError::Closed);
            }
            arrived = received.to_vec();
        }
    }

    async fn flush(&self, tls: &mut Tls) -> Result<(), WireError> {
        let mut batch = SendBatch::new();
        tls.take_output(&mut batch)?;
        self.stream.send(batch).await?;
        Ok(())
    }

    /// Sends bytes.
    pub(crate) async fn send(&mut self, bytes: &[u8]) -> Result<(), WireError> {
        let mut batch = SendBatch::new();
        match &mut self.tls {
            None => batch.push(bytes),
            Some(tls) => tls.seal(&[io::IoSlice::new(bytes)], &mut batch)?,
        }
        self.stream.send(batch).await?;
        Ok(())
    }

    /// Waits for `N` bytes.
    pub(crate) async fn receive<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        self.fill(N).await?;
        let bytes = std::array::from_fn(|at| self.incoming[at]);
        self.incoming.drain(..N);
        Ok(bytes)
    }

    /// Waits for `len` bytes: at most [`INCOMING_MAX`].
    pub(crate) async fn receive_bytes(&mut self, len: usize) -> Result<Vec<u8>, WireError> {
        self.fill(len).await?;
        let rest = self.incoming.split_off(len);
        Ok(std::mem::replace(&mut self.incoming, rest))
    }

    /// Waits until `len` bytes have arrived.
    async fn fill(&mut self, len: usize) -> Result<(), WireError> {
        while self.incoming.len() < len {
            let mut received = self.stream.receive().await?;
            if received.is_empty() {
                return Err(WireError::Closed);
            }
            let incoming = &mut self.incoming;
            let Some(tls) = &mut self.tls else {
                keep(incoming, &received)?;
                continue;
            };
            let fed = tls.feed(&mut received, |plain| keep(incoming, plain));
            let mut batch = SendBatch::new();
            tls.take_output(&mut batch)?;
            self.stream.send(batch).await?;
            fed?;
        }
        Ok(())
    }

    /// Gives the other side a moment to receive what was sent last.
    ///
    /// If a connection is closed while received data is unread, the system discards what was sent.
    pub(crate) async fn linger(&self) {
        let drain = async {
            let mut left = INCOMING_MAX;
            while let Ok(received) = self.stream.receive().await
                && !received.is_empty()
                && received.len() <= left
            {
                left -= received.len();
            }
        };
        // If the other side does not close the connection, this one does.
        let _ = rt::timeout(LINGER, drain).await;
    }

    /// Detaches the connection from this core.
    pub(crate) async fn detach(self) -> DetachedWire {
        DetachedWire { stream: self.stream.detach().await, tls: self.tls, incoming: self.incoming }
    }
}

fn keep(incoming: &mut Vec<u8>, bytes: &[u8]) -> Result<(), WireError> {
    if incoming.len() + bytes.len() > INCOMING_MAX {
        return Err(WireError::TooMuch);
    }
    incoming.extend_from_slice(bytes);
    Ok(())
}

impl From<FeedError<WireError>> for WireError {
    fn from(error: FeedError<WireError>) -> WireError {
        match error {
            FeedError::Tls(error) => WireError::Tls(error),
            FeedError::User(error) => error,
        }
    }
}
