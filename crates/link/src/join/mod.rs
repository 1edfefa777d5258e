//! Joining a cluster: a node that has a token gets credentials of its own from a member.
//!
//! The node connects to the member that the token names and asks for TLS without a certificate of its own. It
//! knows the member by the token: the cluster's authority, whose certificate has the SHA-256 that the token
//! says, has signed the certificate that the member shows. Then it sends the token's secret and the public
//! key that it has made; the key itself never leaves it. The member asks its user, who uses the token up and
//! signs ([`crate::ClusterAuthority::sign`]), and answers with the certificate.

mod member;
mod message;
mod node;

pub use message::{ABOUT_MAX, JoinAnswer, JoinRequest};
pub use node::{JoinError, Joined, join};

pub(crate) use member::{Admission, JoinAnswered, serve};
pub(crate) use message::JoinWireError;
