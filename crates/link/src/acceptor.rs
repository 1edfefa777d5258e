//! Being connected to.

use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use rt::sync::Semaphore;
use rt::{DetachedStream, Listener};

use crate::LinkName;
use crate::error::chain;
use crate::hello::{Hello, Opening, PREAMBLE_BYTES, Preamble, Purpose, Refusal};
use crate::hub::Hub;
use crate::wire::{Wire, WireError};

/// When a connection cannot be accepted, as without descriptors: how long until the next try.
const PAUSE: Duration = Duration::from_millis(100);

/// Accepts connections for ever.
pub(crate) async fn accept(hub: Rc<Hub>, listener: Rc<Listener>, room: Rc<Semaphore>) {
    loop {
        match listener.accept().await {
            Ok((stream, address)) => {
                room.acquire(1).await;
                let (hub, room) = (Rc::clone(&hub), Rc::clone(&room));
                rt::spawn(async move {
                    welcome(&hub, stream, address).await;
                    room.release(1);
                })
                .detach();
            }
            Err(error) => {
                if hub.said.is_news(None, &error.to_string()) {
                    let address = listener.local_address();
                    tracing::warn!(%address, %error, "cannot accept a connection of another node");
                }
                rt::sleep(PAUSE).await;
            }
        }
    }
}

async fn welcome(hub: &Rc<Hub>, stream: DetachedStream, address: SocketAddr) {
    let agreed = rt::timeout(hub.limits.handshake, agree(hub, stream)).await;
    let error = match agreed {
        Ok(Ok(Some((wire, hello)))) => match hub.admit(wire, hello).await {
            Ok(_) => return,
            Err(refusal) => AcceptError::ByMe { refusal, hello },
        },
        Ok(Ok(None)) => return,
        Ok(Err(error)) => error,
        Err(_) => AcceptError::Late,
    };
    let node = match &error {
        AcceptError::ByMe { hello, .. } | AcceptError::ByPeer { hello, .. } => Some(hello.from),
        _ => None,
    };
    let reason = chain(&error);
    // Ports of clients change with every attempt.
    if hub.said.is_news(node, &format!("{} {reason}", address.ip())) {
        tracing::warn!(%address, reason, "a connection to this node did not become a link");
    }
}

#[derive(Debug, thiserror::Error)]
enum AcceptError {
    #[error("{0}")]
    Wire(#[from] WireError),
    #[error("the two sides did not agree in time")]
    Late,
    #[error("what connected is not a node of a cluster")]
    Foreign,
    #[error("refused: {0}")]
    Opening(Refusal),
    #[error("{} of cluster {} was refused: {refusal}", hello.from, hello.cluster)]
    ByMe { refusal: Refusal, hello: Hello },
    #[error("refused by {}: {refusal}", hello.from)]
    ByPeer { refusal: Refusal, hello: Hello },
}

/// Both sides want the link when this gives what the other has said.
async fn agree(hub: &Rc<Hub>, stream: DetachedStream) -> Result<Option<(Wire, Hello)>, AcceptError> {
    let mut wire = Wire::new(stream.attach());
    let opening: [u8; PREAMBLE_BYTES] = wire.receive().await?;
    let preamble = match Opening::parse(opening) {
        Opening::Preamble(preamble) => preamble,
        Opening::Version(_) => return refuse(&mut wire, Refusal::Version).await,
        Opening::Refused(_) | Opening::Foreign => return Err(AcceptError::Foreign),
    };
    match preamble {
        Preamble { purpose: Purpose::Join, .. } => return refuse(&mut wire, Refusal::Join).await,
        Preamble { tls, .. } if tls != hub.tls.is_some() => {
            return refuse(&mut wire, Refusal::Security).await;
        }
        Preamble { purpose: Purpose::Link, .. } => {}
    }
    if let Some(tls) = &hub.tls {
        wire.start_tls(tls.server().map_err(WireError::Tls)?).await?;
    }
    let opening: [u8; PREAMBLE_BYTES] = wire.receive().await?;
    let hello = Hello::read(&mut wire, opening).await?.ok_or(AcceptError::Foreign)?;
    // Of two nodes that with the higher number connects.
    let verdict = if hello.from > hub.me { hub.judge(&hello, &wire) } else { Err(Refusal::Name) };
    let name = LinkName { peer: hello.from, role: hello.role, number: hello.number };
    let mut mine = hub.hello(name, hello.attempt);
    mine.refusal = verdict.err();
    wire.send(&mine.encode()).await?;
    verdict.map_err(|refusal| AcceptError::ByMe { refusal, hello })?;
    let opening: [u8; PREAMBLE_BYTES] = wire.receive().await?;
    let agreed = Hello::read(&mut wire, opening).await?.ok_or(AcceptError::Foreign)?;
    match agreed.refusal {
        None if agreed == hello => Ok(Some((wire, hello))),
        None => Err(AcceptError::Foreign),
        Some(refusal) => Err(AcceptError::ByPeer { refusal, hello }),
    }
}

async fn refuse<T>(wire: &mut Wire, refusal: Refusal) -> Result<T, AcceptError> {
    wire.send(&refusal.encode()).await?;
    Err(AcceptError::Opening(refusal))
}
