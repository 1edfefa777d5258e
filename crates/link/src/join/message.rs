//! The messages of joining: `docs/formats/replication-link.md`.

use replica::NodeId;
use rustls::pki_types::CertificateDer;

use crate::Secret;
use crate::credentials::SECRET_BYTES;
use crate::hello::Refused;
use crate::wire::{Wire, WireError};

/// The maximum number of bytes that the users on both sides tell each other.
pub const ABOUT_MAX: usize = 768 << 10;
/// The length of a point of P-256, uncompressed.
pub(crate) const KEY_BYTES: usize = 65;
/// Far longer than our certificates.
const CERTIFICATE_MAX: usize = 16 << 10;

const REQUEST_MAGIC: [u8; 4] = *b"UJRQ";
const ANSWER_MAGIC: [u8; 4] = *b"UJAN";

/// The request of a node to join.
pub struct JoinRequest {
    /// The secret of its token: see [`crate::OpenToken::redeem`].
    pub secret: Secret,
    /// What the user on the joining side says about the node.
    pub about: Vec<u8>,
    pub(crate) public_key: [u8; KEY_BYTES],
}

base::shows!(Debug for JoinRequest, |it| "JoinRequest({} bytes about the node)", it.about.len());

/// The answer to a node that may join.
#[derive(Debug)]
pub struct JoinAnswer {
    /// The number that the node gets.
    pub node: NodeId,
    /// The node's certificate.
    pub certificate: CertificateDer<'static>,
    /// What the member's user tells the joining side.
    pub about: Vec<u8>,
}

/// Why a message could not be received.
#[derive(Debug, thiserror::Error)]
pub(crate) enum JoinWireError {
    #[error("{0}")]
    Wire(#[from] WireError),
    #[error("the peer sent an unexpected message")]
    Malformed,
}

impl JoinRequest {
    pub(crate) async fn send(&self, wire: &mut Wire) -> Result<(), WireError> {
        let mut bytes = Vec::with_capacity(4 + SECRET_BYTES + KEY_BYTES + 4 + self.about.len());
        bytes.extend(REQUEST_MAGIC);
        bytes.extend(self.secret.bytes());
        bytes.extend(self.public_key);
        bytes.extend((self.about.len() as u32).to_le_bytes());
        bytes.extend(&self.about);
        wire.send(&bytes).await
    }

    pub(crate) async fn receive(wire: &mut Wire) -> Result<JoinRequest, JoinWireError> {
        if wire.receive().await? != REQUEST_MAGIC {
            return Err(JoinWireError::Malformed);
        }
        let secret = Secret::from_bytes(wire.receive().await?);
        let public_key: [u8; KEY_BYTES] = wire.receive().await?;
        let about = receive_bytes(wire, ABOUT_MAX).await?;
        // RFC 5480, 2.2: an uncompressed point.
        if public_key[0] != 4 {
            return Err(JoinWireError::Malformed);
        }
        Ok(JoinRequest { secret, about, public_key })
    }
}

/// The member's answer, or its refusal.
pub(crate) type Verdict = Result<JoinAnswer, Rejection>;

/// Why a member does not let a node join.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Rejection {
    /// Only the user on the joining side can read why.
    #[error("this node does not let it join")]
    User(Vec<u8>),
    #[error("{}", NotAdmitted::Late)]
    Late,
    /// The limit is [`ABOUT_MAX`].
    #[error("{}", NotAdmitted::TooLong)]
    TooLong,
}

/// Why a member does not let a node join, if its user did not say so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
#[allow(missing_docs)] // The messages say it.
pub enum NotAdmitted {
    /// The member admits no node.
    #[error("{0}")]
    Refused(Refused),
    #[error("the cluster did not decide in time: check its state")]
    Late,
    #[error("the cluster's answer is too long")]
    TooLong,
}

pub(crate) async fn send_verdict(wire: &mut Wire, verdict: &Verdict) -> Result<(), WireError> {
    let mut bytes = Vec::from(ANSWER_MAGIC);
    let (refused, node, certificate, about) = match verdict {
        Ok(answer) => (0, answer.node, answer.certificate.as_ref(), &answer.about[..]),
        Err(Rejection::User(why)) => (1, NodeId(0), &[][..], &why[..]),
        Err(Rejection::Late) => (2, NodeId(0), &[][..], &[][..]),
        Err(Rejection::TooLong) => (3, NodeId(0), &[][..], &[][..]),
    };
    bytes.extend([refused, 0]);
    bytes.extend(node.0.to_le_bytes());
    for field in [certificate, about] {
        bytes.extend((field.len() as u32).to_le_bytes());
        bytes.extend(field);
    }
    wire.send(&bytes).await
}

pub(crate) async fn receive_verdict(wire: &mut Wire) -> Result<Verdict, JoinWireError> {
    if wire.receive().await? != ANSWER_MAGIC {
        return Err(JoinWireError::Malformed);
    }
    let [refused, _] = wire.receive().await?;
    let node = NodeId(u16::from_le_bytes(wire.receive().await?));
    let certificate = receive_bytes(wire, CERTIFICATE_MAX).await?;
    let about = receive_bytes(wire, ABOUT_MAX).await?;
    match refused {
        0 => Ok(Ok(JoinAnswer { node, certificate: certificate.into(), about })),
        1 => Ok(Err(Rejection::User(about))),
        2 => Ok(Err(Rejection::Late)),
        3 => Ok(Err(Rejection::TooLong)),
        _ => Err(JoinWireError::Malformed),
    }
}

async fn receive_bytes(wire: &mut Wire, max: usize) -> Result<Vec<u8>, JoinWireError> {
    let len = u32::from_le_bytes(wire.receive().await?) as usize;
    if len > max {
        return Err(JoinWireError::Malformed);
    }
    Ok(wire.receive_bytes(len).await?)
}
