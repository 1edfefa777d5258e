//! Connecting to a peer, again and again for as long as it is a member.

use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use rt::Stream;

use crate::error::chain;
use crate::hello::{Hello, Opening, PREAMBLE_BYTES, Preamble, Purpose, Refusal};
use crate::hub::{Hub, Member};
use crate::wire::{Wire, WireError};
use crate::{LinkName, Role};

/// Why an attempt has failed.
#[derive(Debug, thiserror::Error)]
enum DialError {
    #[error("its address is not known")]
    Nowhere,
    #[error("cannot connect: {0}")]
    Connect(std::io::Error),
    #[error("the two sides did not agree in time: something else may answer at this address")]
    Late,
    #[error("{0}")]
    Wire(#[from] WireError),
    #[error("what answers at this address is not a node of a cluster: correct the address")]
    Foreign,
    #[error("refused by the other node: {0}")]
    ByPeer(Refusal),
    #[error("refused by this node: {0}")]
    ByMe(Refusal),
}

/// Keeps a link up.
pub(crate) async fn keep_up(hub: Rc<Hub>, member: Rc<Member>, role: Role, number: u16) {
    let name = LinkName { peer: member.id, role, number };
    let mut backoff = Backoff::new(&hub);
    let mut attempts = 0;
    loop {
        let began = rt::now();
        let addresses = member.peer.borrow().addresses_of(role, number);
        let address = addresses.get(attempts % addresses.len().max(1)).copied();
        match attempt(&hub, name, address).await {
            Ok(serial) => {
                stay(&hub, &member, name, serial, address).await;
                // What is silent may be this network: the next one first.
                attempts += 1;
                if rt::now().since(began) > hub.limits.backoff_max {
                    backoff = Backoff::new(&hub);
                }
            }
            Err(error) => {
                attempts += 1;
                let address = address.map(|address| address.to_string()).unwrap_or_default();
                let reason = chain(&error);
                hub.note_trouble(member.id, &reason);
                if hub.said.is_news(Some(member.id), &format!("{role} {address} {reason}")) {
                    tracing::warn!(address, reason, "{name} cannot be made; this node goes on trying");
                }
            }
        }
        rt::sleep(backoff.next()).await;
    }
}

/// Waits until the link has ended. If it uses an address that is for everything, because those for its role did not answer, they are tried again
/// from time to time: a network of its own is worth a link's interruption. So it is if the address is for another role since.
async fn stay(
    hub: &Rc<Hub>,
    member: &Member,
    name: LinkName,
    mut serial: u64,
    mut address: Option<SocketAddr>,
) {
    loop {
        let ended = member.ended.until(|| !member.has(name.role, name.number, serial));
        if rt::timeout(hub.limits.fail_back, ended).await.is_ok() {
            return;
        }
        let better = member.peer.borrow().better_than(address, name.role, name.number);
        if better.is_some()
            && let Ok(newer) = attempt(hub, name, better).await
        {
            (serial, address) = (newer, better);
        }
    }
}

async fn attempt(hub: &Rc<Hub>, name: LinkName, address: Option<SocketAddr>) -> Result<u64, DialError> {
    let address = address.ok_or(DialError::Nowhere)?;
    let stream = Stream::connect(address, hub.limits.connect).await.map_err(DialError::Connect)?;
    let agreed = rt::timeout(hub.limits.handshake, agree(hub, name, stream)).await;
    let (wire, hello) = agreed.map_err(|_| DialError::Late)??;
    hub.admit(wire, hello).await.map_err(DialError::ByMe)
}

/// Both sides want the link when this gives what the other has said.
async fn agree(hub: &Rc<Hub>, name: LinkName, stream: Stream) -> Result<(Wire, Hello), DialError> {
    let mut wire = Wire::new(stream);
    let preamble = Preamble { purpose: Purpose::Link, tls: hub.tls.is_some() };
    wire.send(&preamble.encode()).await?;
    if let Some(tls) = &hub.tls {
        wire.start_tls(tls.client(name.peer).map_err(WireError::Tls)?).await?;
    }
    let mut mine = hub.hello(name, hub.next_attempt());
    wire.send(&mine.encode()).await?;
    // A refusal of the preamble is shorter than a hello.
    let opening: [u8; PREAMBLE_BYTES] = wire.receive().await?;
    match Opening::parse(opening) {
        Opening::Refused(refusal) => return Err(DialError::ByPeer(refusal)),
        Opening::Version(_) => return Err(DialError::ByPeer(Refusal::Version)),
        Opening::Preamble(_) | Opening::Foreign => {}
    }
    let hello = Hello::read(&mut wire, opening).await?.ok_or(DialError::Foreign)?;
    if let Some(refusal) = hello.refusal {
        return Err(DialError::ByPeer(refusal));
    }
    let is_answer = (hello.from, hello.role, hello.number, hello.attempt)
        == (name.peer, name.role, name.number, mine.attempt);
    let verdict = if is_answer { hub.judge_link(&hello, &wire) } else { Err(Refusal::OtherNode) };
    mine.refusal = verdict.err();
    wire.send(&mine.encode()).await?;
    verdict.map_err(DialError::ByMe)?;
    Ok((wire, hello))
}

/// How long to wait before the next attempt.
struct Backoff {
    next: Duration,
    max: Duration,
}

impl Backoff {
    fn new(hub: &Hub) -> Backoff {
        Backoff { next: hub.limits.backoff_min, max: hub.limits.backoff_max }
    }

    /// Between a half and all of a time that doubles up to the limit: many links that broke together do not come back together.
    fn next(&mut self) -> Duration {
        let wait = self.next;
        self.next = (wait * 2).min(self.max);
        let half = wait / 2;
        half + Duration::from_nanos(rt::random() % (half.as_nanos() as u64).max(1))
    }
}
