//! Proves the identity of nodes: a cluster has its own authority, which signs one certificate for each node.
//!
//! The certificate of node 7 has the name `node-7.CLUSTER.ursa.internal`, where CLUSTER is the cluster's
//! identity in hexadecimal. Both sides of a connection check that the other's certificate is signed by the
//! cluster's authority and names the node that the other claims to be. Certificates do not expire: a node
//! that was off for years, or whose clock is wrong, must still reach its cluster. The list of members decides
//! which nodes are admitted; a node can be removed from it.

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

/// Why credentials cannot be created or used.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // The messages say it.
pub enum CredentialsError {
    /// A file cannot be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    #[error("{what} is not valid: restore it from a backup, or let the node join the cluster again")]
    Invalid { what: &'static str },
    #[error("cannot create {what}")]
    Make {
        what: &'static str,
        #[source]
        source: rcgen::Error,
    },
    #[error(
        "the node's key, its certificate and the cluster CA do not match: restore them from one backup, or let the node join the cluster again"
    )]
    Mismatch(#[source] rustls::Error),
}
