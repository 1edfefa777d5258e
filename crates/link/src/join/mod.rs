//! Joining a cluster: a node that has a token gets its own credentials from a member.
//!
//! The node connects to the member that the token names, with TLS but without a certificate of its own. It
//! recognizes the member by the token: the member's certificate must be signed by the authority whose
//! certificate has the SHA-256 in the token. Then the node sends the token's secret and the public key that
//! it has created; the private key never leaves it. The member asks its user, who uses up the token and signs
//! ([`crate::ClusterAuthority::sign`]), and answers with the certificate.

mod member;
mod message;
mod node;

pub use message::{ABOUT_MAX, JoinAnswer, JoinRequest, NotAdmitted};
pub use node::{JoinError, Joined, NoAnswer, join};

pub(crate) use member::{Admission, JoinAnswered, serve};
pub(crate) use message::{JoinWireError, Rejection};
