//! Who a node is, provably: a cluster has an authority of its own, which signs one certificate for each node.
//!
//! The certificate of node 7 names it `node-7.CLUSTER.ursa.internal`, CLUSTER being the cluster's identity in
//! hexadecimal. Both sides of a connection check that the other's certificate is signed by the cluster's
//! authority and names the node that the other says it is. Certificates do not expire: a node that was off
//! for years, or whose clock is wrong, must still reach its cluster. Who may come in is decided by the list
//! of members, from which a node can be removed.

mod authority;
mod files;
mod name;
mod node;
mod secret;
mod token;

pub use authority::ClusterAuthority;
pub use files::FileError;
pub use node::{NODE_KEY_FILE, NodeCredentials};
pub use secret::{Secret, SecretDigest};
pub use token::{OpenToken, Token, TokenError, UnixSeconds, Unredeemed};

pub(crate) use name::server_name;
pub(crate) use secret::SECRET_BYTES;
pub(crate) use token::fingerprint;

/// Credentials that cannot be made or used.
#[derive(Debug, thiserror::Error)]
pub enum CredentialsError {
    /// A file cannot be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// What is in a file, or was received, is no key or no certificate.
    #[error("{what} is not valid: restore it from a backup, or let the node join the cluster again")]
    Invalid {
        /// Which of them.
        what: &'static str,
    },
    /// A key or certificate could not be made.
    #[error("cannot create {what}")]
    Make {
        /// Which of them.
        what: &'static str,
        /// What the library says.
        #[source]
        source: rcgen::Error,
    },
    /// Key, certificate and authority do not belong together.
    #[error(
        "the node's key, its certificate and the cluster CA do not match: restore them from one backup, or let the node join the cluster again"
    )]
    Mismatch(#[source] rustls::Error),
}
