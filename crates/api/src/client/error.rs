//! Errors of requests.

use std::error::Error;
use std::io::ErrorKind;

use ureq::Timeout;

use crate::{DryRun, Problem};

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // The messages say it.
pub enum ClientError {
    #[error("no node answers at {url}: start one with `ursa serve`, or choose another with --api")]
    Unreachable {
        url: String,
        #[source]
        source: Box<ureq::Error>,
    },
    /// The connection was established, but no complete response arrived. The node may execute a change all
    /// the same.
    #[error("the node at {url} did not answer: check whether the change was made before you repeat it")]
    NoAnswer {
        url: String,
        #[source]
        source: Box<ureq::Error>,
    },
    /// The caller has not said how to verify the node's certificate. Nothing was sent.
    #[error(
        "cannot verify the certificate of {url}: give --fingerprint (the node prints it when it starts) or --ca FILE"
    )]
    Unknown {
        url: String,
        #[source]
        source: Box<ureq::Error>,
    },
    /// The server has a different certificate, or one that cannot be used. Nothing was sent.
    #[error("certificate verification failed for {url}: nothing was sent to it")]
    Untrusted {
        url: String,
        #[source]
        source: Box<ureq::Error>,
    },
    #[error("{0}")]
    Problem(Box<Problem>),
    /// What a call would do: never returned to callers of [`Client::would`](crate::Client::would).
    #[error("nothing was changed: it was a dry run")]
    DryRun(Box<DryRun>),
    #[error("the server at {url} is not an Ursa node of this version: check the address")]
    NotUrsa {
        url: String,
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
    #[error(
        "{url:?} is not an address: write it as http://127.0.0.1:3280, or https://10.1.1.5:3280 from another machine"
    )]
    Address {
        url: String,
        #[source]
        source: Box<ureq::Error>,
    },
}

impl ClientError {
    pub(super) fn of(url: &str, error: ureq::Error) -> ClientError {
        use ureq::Error as E;
        let has_scheme = url.starts_with("http://") || url.starts_with("https://");
        let no_address = !has_scheme || matches!(error, E::BadUri(_) | E::Http(_));
        let url = url.to_owned();
        match error {
            error if no_address => ClientError::Address { url, source: Box::new(error) },
            error @ E::TlsRequired => ClientError::Unknown { url, source: Box::new(error) },
            error if is_of_tls(&error) => ClientError::Untrusted { url, source: Box::new(error) },
            E::Protocol(error) => ClientError::NotUrsa { url, source: Box::new(error) },
            error @ (E::LargeResponseHeader(..) | E::BodyExceedsLimit(_)) => {
                ClientError::NotUrsa { url, source: Box::new(error) }
            }
            error if never_connected(&error) => ClientError::Unreachable { url, source: Box::new(error) },
            error => ClientError::NoAnswer { url, source: Box::new(error) },
        }
    }

    /// The problem document, if the node refused the request.
    pub fn problem(&self) -> Option<&Problem> {
        match self {
            ClientError::Problem(problem) => Some(problem),
            _ => None,
        }
    }
}

/// Whether the TLS handshake failed, or TLS was aborted.
fn is_of_tls(error: &ureq::Error) -> bool {
    match error {
        ureq::Error::Tls(_) => true,
        ureq::Error::Io(error) => error.get_ref().is_some_and(|inner| inner.is::<rustls::Error>()),
        _ => false,
    }
}

/// Whether the error proves that nothing was sent.
fn never_connected(error: &ureq::Error) -> bool {
    match error {
        ureq::Error::ConnectionFailed | ureq::Error::HostNotFound => true,
        ureq::Error::Timeout(timeout) => matches!(timeout, Timeout::Resolve | Timeout::Connect),
        ureq::Error::Io(error) => matches!(
            error.kind(),
            ErrorKind::ConnectionRefused
                | ErrorKind::HostUnreachable
                | ErrorKind::NetworkUnreachable
                | ErrorKind::AddrNotAvailable
        ),
        _ => false,
    }
}
