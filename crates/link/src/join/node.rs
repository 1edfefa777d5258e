//! The joining node's side of joining.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256, PublicKeyData};
use rt::Stream;

use super::message::{ABOUT_MAX, JoinRequest, JoinWireError, NotAdmitted, Rejection, receive_verdict};
use crate::credentials::fingerprint;
use crate::hello::{Preamble, Purpose};
use crate::tls;
use crate::wire::{Wire, WireError};
use crate::{
    CredentialsError, Limits, LinkTrouble, NodeCredentials, Token, TokenError, UnixSeconds, Versions,
};

/// How long the member may take to answer: longer than its user may take to decide.
const ANSWER: Duration = Duration::from_secs(40);

/// The result: this node is a member now.
#[derive(Debug)]
pub struct Joined {
    /// Its credentials: to be saved before anything else.
    pub credentials: NodeCredentials,
    /// What the member's user says.
    pub about: Vec<u8>,
}

/// Why the node could not join.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // The messages say it.
pub enum JoinError {
    /// The token cannot be used.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// `last` is the address that was tried last, and why it did not answer; `None`: the token names none.
    #[error(
        "no member could be reached at {}: check that it is running and that this machine can reach it ({})",
        list(addresses),
        why_unreached(last)
    )]
    Unreachable { addresses: Vec<SocketAddr>, last: Option<(SocketAddr, LinkTrouble)> },
    /// The member's user refused; `about` is what it tells the user on this side.
    #[error("the member at {address} refused")]
    Refused { address: SocketAddr, about: Vec<u8> },
    /// The member admits no node, or not this one, and its user was not asked or did not decide.
    #[error("the member at {address} refused: {reason}")]
    NotAdmitted { address: SocketAddr, reason: NotAdmitted },
    #[error(
        "the connection to the member at {address} ended before it answered ({reason}): create a new token, the old one may have been used"
    )]
    Unanswered { address: SocketAddr, reason: NoAnswer },
    /// No key could be created, or the certificate does not match.
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
}

/// Why a member did not answer after it had the token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // The messages say it.
pub enum NoAnswer {
    #[error("timeout")]
    Late,
    #[error("{0}")]
    Link(LinkTrouble),
    #[error("the peer sent an unexpected message")]
    Malformed,
    #[error("it does not present the CA certificate")]
    NoAuthority,
}

fn list(addresses: &[SocketAddr]) -> String {
    addresses.iter().map(SocketAddr::to_string).collect::<Vec<_>>().join(", ")
}

fn why_unreached(last: &Option<(SocketAddr, LinkTrouble)>) -> String {
    match last {
        Some((address, trouble)) => format!("{address}: {trouble}"),
        None => "the token names no address".to_owned(),
    }
}

/// Joins the cluster of the token.
///
/// `about` is for the member's user: at most [`ABOUT_MAX`] bytes.
///
/// # Panics
/// If `about` is longer.
pub async fn join(
    token: &Token,
    about: Vec<u8>,
    now: UnixSeconds,
    limits: &Limits,
) -> Result<Joined, JoinError> {
    assert!(about.len() <= ABOUT_MAX, "{} bytes about a node are too many", about.len());
    token.check(now)?;
    let make = |source| CredentialsError::Make { what: "the node's key", source };
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(make)?;
    let public_key = key.der_bytes().try_into().expect("keys are made of P-256, whose points have 65 bytes");
    let request = JoinRequest { secret: token.secret.clone(), about, public_key };
    let mut last = None;
    for address in &token.addresses {
        match reach(token, *address, limits).await {
            Ok(wire) => return ask(token, wire, *address, request, key).await,
            Err(WireError::Refused(refused)) => {
                let reason = NotAdmitted::Refused(refused);
                return Err(JoinError::NotAdmitted { address: *address, reason });
            }
            Err(error) => last = Some((*address, error.trouble())),
        }
    }
    Err(JoinError::Unreachable { addresses: token.addresses.clone(), last })
}

/// Connects to the member and verifies that it is one.
async fn reach(token: &Token, address: SocketAddr, limits: &Limits) -> Result<Wire, WireError> {
    let mut wire = Wire::new(Stream::connect(address, limits.connect).await?, Versions::CURRENT);
    let handshake = async {
        let preamble = Preamble { versions: wire.versions(), purpose: Purpose::Join, tls: true };
        wire.send(&preamble.encode()).await?;
        wire.start_tls(tls::joiner(token)?).await
    };
    let late = |_| WireError::Io(io::ErrorKind::TimedOut.into());
    rt::timeout(limits.handshake, handshake).await.map_err(late)??;
    Ok(wire)
}

async fn ask(
    token: &Token,
    mut wire: Wire,
    address: SocketAddr,
    request: JoinRequest,
    key: KeyPair,
) -> Result<Joined, JoinError> {
    let unanswered = |reason: NoAnswer| JoinError::Unanswered { address, reason };
    let exchange = async {
        request.send(&mut wire).await?;
        receive_verdict(&mut wire).await
    };
    let verdict = rt::timeout(ANSWER, exchange).await.map_err(|_| unanswered(NoAnswer::Late))?;
    let verdict = verdict.map_err(|error: JoinWireError| match error {
        JoinWireError::Wire(error) => unanswered(NoAnswer::Link(error.trouble())),
        JoinWireError::Malformed => unanswered(NoAnswer::Malformed),
    })?;
    let answer = verdict.map_err(|rejection| match rejection {
        Rejection::User(about) => JoinError::Refused { address, about },
        Rejection::Late => JoinError::NotAdmitted { address, reason: NotAdmitted::Late },
        Rejection::TooLong => JoinError::NotAdmitted { address, reason: NotAdmitted::TooLong },
    })?;
    let chain = wire.tls().map(|tls| tls.peer_chain()).unwrap_or_default();
    let authority = chain.iter().find(|certificate| fingerprint(certificate) == token.authority).cloned();
    let authority = authority.ok_or_else(|| unanswered(NoAnswer::NoAuthority))?;
    let credentials =
        NodeCredentials::new(token.cluster, answer.node, key, answer.certificate, authority.into_owned())?;
    Ok(Joined { credentials, about: answer.about })
}
