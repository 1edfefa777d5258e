//! Why a request brought nothing.

use crate::Problem;

/// A request brought nothing.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody answers there.
    #[error("no node answers at {url}: start one with `ursa serve`, or name another with --api")]
    Unreachable {
        /// Where.
        url: String,
        /// What the system said.
        #[source]
        source: Box<ureq::Error>,
    },
    /// The connection was there and nothing came in time. A change may be carried out all the same.
    #[error(
        "the node at {url} did not answer in time: look whether the change was made before you repeat it"
    )]
    TimedOut {
        /// Where.
        url: String,
        /// At which step.
        #[source]
        source: Box<ureq::Error>,
    },
    /// The node refused, and says why.
    #[error("{0}")]
    Problem(Box<Problem>),
    /// Something answers there that is not a node of this version.
    #[error("what answers at {url} is no Ursa node of this version: check the address")]
    NotUrsa {
        /// Where.
        url: String,
        /// What was not understood.
        #[source]
        source: serde_json::Error,
    },
    /// Not an address.
    #[error("{url} is not an address: write it as http://127.0.0.1:3280")]
    Address {
        /// What was given.
        url: String,
        /// What is wrong with it.
        #[source]
        source: Box<ureq::Error>,
    },
}

impl ClientError {
    pub(super) fn of(url: &str, source: ureq::Error) -> ClientError {
        let (url, timeout) =
            (url.to_owned(), matches!(&source, ureq::Error::Timeout(ureq::Timeout::Connect)));
        match source {
            ureq::Error::BadUri(_) | ureq::Error::Http(_) | ureq::Error::RequireHttpsOnly(_) => {
                ClientError::Address { url, source: Box::new(source) }
            }
            ureq::Error::Timeout(_) if !timeout => ClientError::TimedOut { url, source: Box::new(source) },
            _ => ClientError::Unreachable { url, source: Box::new(source) },
        }
    }

    /// The problem document, if the node has refused.
    pub fn problem(&self) -> Option<&Problem> {
        match self {
            ClientError::Problem(problem) => Some(problem),
            _ => None,
        }
    }
}
