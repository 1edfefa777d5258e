//! Accepts connections of other nodes.

use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use base::chain;
use rt::{DetachedStream, Listener};

use crate::endpoint::Endpoint;
use crate::hello::{Hello, Opening, PREAMBLE_BYTES, Preamble, Purpose, Refusal, Refused};
use crate::join::{self, Admission, JoinAnswered, JoinWireError, Rejection};
use crate::log_throttle::LogTopic;
use crate::mesh::Mesh;
use crate::room::Room;
use crate::wire::{Wire, WireError};
use crate::{LinkName, LinkTrouble, NotAdmitted, Versions};

/// How long to wait after a failed accept, as without file descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// Accepts connections forever.
pub(crate) async fn accept(mesh: Rc<Mesh>, listener: Rc<Listener>, room: Rc<Room>) {
    loop {
        match listener.accept().await {
            Ok((stream, address)) => {
                let Some(place) = room.enter(address.ip()).await else {
                    if mesh.log_throttle.is_news(None, LogTopic::Crowd(address.ip())) {
                        tracing::warn!(%address, "too many connections from one address that are not links: some are closed");
                    }
                    continue;
                };
                let mesh = Rc::clone(&mesh);
                rt::spawn(async move {
                    let _place = place;
                    welcome(&mesh, stream, address).await;
                })
                .detach();
            }
            Err(error) => {
                if mesh.log_throttle.is_news(None, LogTopic::Accept(rt::errno(&error))) {
                    let address = listener.local_address();
                    tracing::warn!(%address, %error, "cannot accept a connection from another node");
                }
                rt::sleep(PAUSE).await;
            }
        }
    }
}

async fn welcome(mesh: &Rc<Mesh>, stream: DetachedStream, address: SocketAddr) {
    let mut wire = Wire::new(stream.attach(), mesh.protocol.versions);
    let error = match rt::timeout(mesh.limits.handshake, agree(mesh, &mut wire)).await {
        Ok(Ok(Agreed::Link(hello))) => match mesh.admit(wire, hello).await {
            Ok(_) => return,
            Err(refusal) => AcceptError::ByMe { refused: mesh.refused(refusal, &hello), hello },
        },
        Ok(Ok(Agreed::DeathNotice)) => return wire.linger().await,
        Ok(Ok(Agreed::Join(admission))) => {
            match join::serve(&mut wire, mesh.limits.handshake, admission).await {
                Ok(JoinAnswered::Joined(node)) => {
                    wire.linger().await;
                    return tracing::info!(%address, "{node} joined the cluster");
                }
                Ok(JoinAnswered::Refused(rejection)) => {
                    wire.linger().await;
                    AcceptError::Join(rejection)
                }
                Err(error) => AcceptError::Joiner(error),
            }
        }
        Ok(Err(error)) => {
            wire.linger().await;
            error
        }
        Err(_) => AcceptError::Late,
    };
    let node = match &error {
        AcceptError::ByMe { hello, .. } | AcceptError::ByPeer { hello, .. } => Some(hello.from),
        _ => None,
    };
    let reason = chain(&error);
    if let AcceptError::Undone(_) = error {
        // The link that it was to replace works after all. If it failed for another reason, the dialler
        // reports that.
        return tracing::debug!(%address, reason, "an incoming connection was not accepted as a link");
    }
    if let AcceptError::ByMe { refused, hello } = &error
        && refused.refusal == Refusal::Name
        && hello.from < mesh.me
    {
        // A node with a lower number asked whether it is a member, and it is one.
        return tracing::debug!(%address, reason, "a node asked whether it is a member");
    }
    let topic = error.topic(address.ip());
    if let (Some(node), LogTopic::Incoming(_, trouble)) = (node, topic) {
        mesh.note_trouble(node, trouble);
    }
    if mesh.log_throttle.is_news(node, topic) {
        tracing::warn!(%address, reason, "an incoming connection was not accepted as a link");
    }
}

/// What the two sides have agreed on.
enum Agreed {
    /// The connection becomes the link that this hello describes.
    Link(Hello),
    /// The other side may join, if this admission accepts it.
    Join(Admission),
    /// A watcher has reported that a life is over, and was believed.
    DeathNotice,
}

#[derive(Debug, thiserror::Error)]
enum AcceptError {
    #[error("a node could not join: {0}")]
    Join(Rejection),
    #[error("a node could not join: {0}")]
    Joiner(JoinWireError),
    #[error("{0}")]
    Wire(#[from] WireError),
    #[error("handshake timeout")]
    Late,
    #[error("the peer is not a node of a cluster")]
    Foreign,
    #[error("refused: {0}")]
    Opening(Refused),
    #[error("the other side closed it")]
    Undone(#[source] WireError),
    #[error("{} of cluster {} was refused: {refused}", hello.from, hello.cluster)]
    ByMe { refused: Refused, hello: Hello },
    #[error("refused by {}: {refused}", hello.from)]
    ByPeer { refused: Refused, hello: Hello },
}

impl AcceptError {
    /// The same as codes and facts.
    fn topic(&self, from: IpAddr) -> LogTopic {
        let trouble = match self {
            AcceptError::Join(rejection) => {
                let reason = match rejection {
                    Rejection::User(_) => None,
                    Rejection::Late => Some(NotAdmitted::Late),
                    Rejection::TooLong => Some(NotAdmitted::TooLong),
                };
                return LogTopic::NotAdmitted(from, reason);
            }
            AcceptError::Joiner(JoinWireError::Malformed) => return LogTopic::Joiner(from, None),
            AcceptError::Joiner(JoinWireError::Wire(error)) => {
                return LogTopic::Joiner(from, Some(error.trouble()));
            }
            AcceptError::Wire(error) | AcceptError::Undone(error) => error.trouble(),
            AcceptError::Late => LinkTrouble::HandshakeTimeout,
            AcceptError::Foreign => LinkTrouble::Foreign,
            AcceptError::Opening(refused) | AcceptError::ByMe { refused, .. } => LinkTrouble::ByMe(*refused),
            AcceptError::ByPeer { refused, .. } => LinkTrouble::ByPeer(*refused),
        };
        LogTopic::Incoming(from, trouble)
    }
}

async fn agree(mesh: &Rc<Mesh>, wire: &mut Wire) -> Result<Agreed, AcceptError> {
    let opening: [u8; PREAMBLE_BYTES] = wire.receive().await?;
    let preamble = match Opening::parse(opening, wire.versions()) {
        Opening::Preamble(preamble) => preamble,
        Opening::NoCommonVersion(theirs) => return refuse(wire, Refusal::Version, theirs).await,
        Opening::Refused(..) | Opening::Foreign => return Err(AcceptError::Foreign),
    };
    if preamble.purpose == Purpose::Join {
        return agree_to_join(mesh, wire, preamble).await;
    }
    if preamble.tls != mesh.tls.is_some() {
        return refuse(wire, Refusal::Security, preamble.versions).await;
    }
    if let Some(tls) = &mesh.tls {
        wire.start_tls(tls.server().map_err(WireError::Tls)?).await?;
    }
    let opening: [u8; PREAMBLE_BYTES] = wire.receive().await?;
    let hello = Hello::read(wire, opening).await?.ok_or(AcceptError::Foreign)?;
    if preamble.purpose == Purpose::DeathNotice {
        return believe(mesh, wire, hello).await;
    }
    // Of two nodes, the one with the higher number connects.
    let connects = if hello.from > mesh.me { Ok(()) } else { Err(Refusal::Name) };
    let verdict = mesh.judge_link(&hello, wire).and(connects);
    let name = LinkName { peer: hello.from, role: hello.role, number: hello.number };
    let mut mine = mesh.hello(name, hello.attempt);
    mine.refusal = verdict.err();
    wire.send(&mine.encode()).await?;
    verdict.map_err(|refusal| AcceptError::ByMe { refused: mesh.refused(refusal, &hello), hello })?;
    let opening: [u8; PREAMBLE_BYTES] = wire.receive().await.map_err(AcceptError::Undone)?;
    let agreed = Hello::read(wire, opening).await?.ok_or(AcceptError::Foreign)?;
    match agreed.refusal {
        None if agreed == hello => Ok(Agreed::Link(hello)),
        None => Err(AcceptError::Foreign),
        Some(refusal) => Err(AcceptError::ByPeer { refused: mesh.refused(refusal, &hello), hello }),
    }
}

/// Accepts that a life is over if a watcher with its node's credentials says so; acts on it before answering.
async fn believe(mesh: &Rc<Mesh>, wire: &mut Wire, hello: Hello) -> Result<Agreed, AcceptError> {
    let verdict = mesh.judge(&hello, wire);
    if verdict.is_ok() {
        Endpoint::current().handler().died(hello.from, hello.incarnation);
    }
    let name = LinkName { peer: hello.from, role: hello.role, number: hello.number };
    let mine = Hello { refusal: verdict.err(), ..mesh.hello(name, hello.attempt) };
    wire.send(&mine.encode()).await?;
    let refused = |refusal| AcceptError::ByMe { refused: mesh.refused(refusal, &hello), hello };
    verdict.map(|()| Agreed::DeathNotice).map_err(refused)
}

async fn agree_to_join(mesh: &Rc<Mesh>, wire: &mut Wire, preamble: Preamble) -> Result<Agreed, AcceptError> {
    let (Some(tls), Some(admission), true) = (&mesh.tls, mesh.admission(), preamble.tls) else {
        return refuse(wire, Refusal::Join, preamble.versions).await;
    };
    wire.start_tls(tls.join().map_err(WireError::Tls)?).await?;
    Ok(Agreed::Join(admission))
}

async fn refuse<T>(wire: &mut Wire, refusal: Refusal, theirs: Versions) -> Result<T, AcceptError> {
    let ours = wire.versions();
    wire.send(&refusal.encode(ours)).await?;
    Err(AcceptError::Opening(Refused { refusal, ours, theirs }))
}

#[cfg(test)]
mod tests;
