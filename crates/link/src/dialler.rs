//! Connects to a peer, and reconnects as long as it is a member.

use std::future::ready;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use base::{Instant, chain};
use rt::Stream;

use crate::endpoint::Endpoint;
use crate::hello::{Hello, Opening, PREAMBLE_BYTES, Preamble, Purpose, Refusal, Refused};
use crate::log_throttle::LogTopic;
use crate::mesh::{Member, Mesh};
use crate::wire::{Wire, WireError};
use crate::{Limits, LinkName, LinkTrouble, Peer, Role};

/// Why an attempt failed.
#[derive(Debug, thiserror::Error)]
enum DialError {
    #[error("{0}")]
    Trouble(#[from] LinkTrouble),
    #[error("{0}")]
    Wire(#[from] WireError),
    #[error("the other node responds again")]
    Unwanted,
}

impl DialError {
    /// The same as a code with facts; `None` if nothing is wrong.
    fn trouble(&self) -> Option<LinkTrouble> {
        match self {
            DialError::Trouble(trouble) => Some(*trouble),
            DialError::Wire(error) => Some(error.trouble()),
            DialError::Unwanted => None,
        }
    }
}

/// How often a node that does not connect itself, and has no connection, asks whether it is still a member.
const ASK_EVERY: Duration = Duration::from_secs(10);

/// Asks the peer whether this node is still a member, as long as no link with it is up.
///
/// Of two nodes, the one with the higher number connects; without this question the other would never learn
/// that it was removed while it was away. The peer refuses the link in any case and says why: if all is well,
/// because the other side must connect.
pub(crate) async fn ask_for_membership(mesh: Rc<Mesh>, member: Rc<Member>) {
    let name = LinkName { peer: member.id, role: Role::Control, number: 0 };
    for turn in 0.. {
        rt::sleep(ASK_EVERY).await;
        if member.is_linked() {
            continue;
        }
        let addresses = member.peer.borrow().addresses_of(Role::Control, 0);
        let address = addresses.get(turn % addresses.len().max(1)).copied();
        let Err(error) = attempt(&mesh, name, address, DialTimeouts::alone(&mesh.limits), ready(false)).await
        else {
            continue;
        };
        let is_refusal =
            |trouble: &LinkTrouble| trouble.refusal_of_peer().is_some_and(|refusal| refusal != Refusal::Name);
        if member.is_linked() {
            continue;
        }
        match error.trouble().filter(is_refusal) {
            Some(trouble) => mesh.note_trouble(member.id, trouble),
            // This node is still a member, or the peer does not answer: the side that connects reports what
            // is wrong with links.
            None => member.forget_refusal(),
        }
    }
}

/// When the peer of a silent link has answered over another network: how much longer to wait for something
/// from it over the first one.
///
/// A peer that was only stalled sends at once, and two networks never take exactly equally long.
const LAST_CHANCE: Duration = Duration::from_millis(20);

/// How long an attempt may take.
#[derive(Clone, Copy)]
struct DialTimeouts {
    connect: Duration,
    handshake: Duration,
}

impl DialTimeouts {
    /// For an attempt without a link.
    fn alone(limits: &Limits) -> DialTimeouts {
        DialTimeouts { connect: limits.connect, handshake: limits.handshake }
    }

    /// For an attempt beside a link that is up: the dialler does not look after that link meanwhile. The
    /// peer's kernel answers at once if it is reached, whatever its processes do.
    fn beside(limits: &Limits, role: Role) -> DialTimeouts {
        match role {
            Role::Control => DialTimeouts { connect: limits.doubt, handshake: limits.silence },
            Role::Replication => DialTimeouts::alone(limits),
        }
    }
}

/// Keeps a link up.
pub(crate) async fn keep_up(mesh: Rc<Mesh>, member: Rc<Member>, role: Role, number: u16) {
    let name = LinkName { peer: member.id, role, number };
    let mut backoff = Backoff::new(&mesh);
    let mut attempts = 0;
    loop {
        let began = rt::now();
        let peer = member.peer.borrow().clone();
        let addresses = peer.addresses_of(role, number);
        let address = addresses.get(attempts % addresses.len().max(1)).copied();
        match attempt(&mesh, name, address, DialTimeouts::alone(&mesh.limits), ready(true)).await {
            Ok(serial) => {
                let last = stay(&mesh, &member, name, Place { serial, address, peer }).await;
                // Whatever has ended the link, this network may be the cause, so the next one is tried first.
                // If it was not the cause, the link returns after a while.
                attempts = addresses.iter().position(|known| Some(*known) == last).map_or(0, |at| at + 1);
                if rt::now().since(began) > mesh.limits.backoff_max {
                    backoff = Backoff::new(&mesh);
                }
            }
            Err(error) => {
                attempts += 1;
                if let Some(trouble) = error.trouble() {
                    mesh.note_trouble(member.id, trouble);
                    let topic = LogTopic::Dial(role, address, trouble);
                    if mesh.log_throttle.is_news(Some(member.id), topic) {
                        let address = address.map(|address| address.to_string()).unwrap_or_default();
                        let reason = chain(&error);
                        tracing::warn!(
                            address,
                            reason,
                            "{name} cannot be established; this node keeps trying"
                        );
                    }
                }
            }
        }
        rt::sleep(backoff.next()).await;
    }
}

/// The connection and address of a link.
struct Place {
    /// The number of its connection.
    serial: u64,
    address: Option<SocketAddr>,
    /// The peer's addresses when this one was chosen.
    peer: Peer,
}

/// Waits until the link has ended, and moves it to a better address meanwhile. Returns the address that it
/// used last.
///
/// If the link uses an address for everything, because those for its role did not answer, these are tried
/// again from time to time: the right network is worth interrupting the link. The same holds if the address
/// has become one for another role. And a control link whose peer is silent moves to another network, before
/// it ends, if the peer answers there.
async fn stay(mesh: &Rc<Mesh>, member: &Member, name: LinkName, place: Place) -> Option<SocketAddr> {
    let Place { mut serial, mut address, mut peer } = place;
    let mut look_at = rt::now() + mesh.limits.fail_back;
    let mut looks = 0;
    let mut doubted = rt::now();
    loop {
        let others = elsewhere(&peer, name, address);
        let heard = if others.is_empty() { None } else { Endpoint::current().heard(name) };
        let doubt_at = heard.map(|heard| heard.max(doubted) + mesh.limits.doubt);
        let next = doubt_at.map_or(look_at, |doubt_at| doubt_at.min(look_at));
        let is_up = || member.has(name.role, name.number, serial);
        let news = member.changed.until(|| !is_up() || *member.peer.borrow() != peer);
        let is_news = rt::timeout(next.since(rt::now()), news).await.is_ok();
        if !is_up() {
            return address;
        }
        let found = if is_news || look_at <= rt::now() {
            peer = member.peer.borrow().clone();
            let better = peer.better_than(address, name.role, name.number);
            let found = go_back(mesh, name, &better, looks).await;
            look_at = rt::now() + mesh.limits.fail_back;
            looks += 1;
            found
        } else if let Some(heard) = heard
            && Endpoint::current().heard(name) == Some(heard)
        {
            let found = go_elsewhere(mesh, name, &others, heard).await;
            doubted = rt::now();
            found
        } else {
            None
        };
        if let Some((newer, at)) = found {
            (serial, address) = (newer, Some(at));
        }
    }
}

/// The addresses at which a silent control link is tried. Other links are not: what they carry waits, but no
/// node is missed for that.
fn elsewhere(peer: &Peer, name: LinkName, address: Option<SocketAddr>) -> Vec<SocketAddr> {
    match name.role {
        Role::Control => {
            let mut all = peer.addresses_of(name.role, name.number);
            all.retain(|known| Some(*known) != address);
            all
        }
        Role::Replication => Vec::new(),
    }
}

/// Tries one of the addresses where the link belongs, taking turns.
async fn go_back(
    mesh: &Rc<Mesh>,
    name: LinkName,
    better: &[SocketAddr],
    turn: usize,
) -> Option<(u64, SocketAddr)> {
    let address = *better.get(turn % better.len().max(1))?;
    let timeouts = DialTimeouts::beside(&mesh.limits, name.role);
    let serial = attempt(mesh, name, Some(address), timeouts, ready(true)).await.ok()?;
    Some((serial, address))
}

/// Tries addresses one after the other, until the peer agrees at one of them or is heard again on the link:
/// then one of the two nodes was busy, and the network is intact.
async fn go_elsewhere(
    mesh: &Rc<Mesh>,
    name: LinkName,
    addresses: &[SocketAddr],
    heard: Instant,
) -> Option<(u64, SocketAddr)> {
    let is_silent = || Endpoint::current().heard(name).is_none_or(|last| last == heard);
    let timeouts = DialTimeouts::beside(&mesh.limits, name.role);
    for address in addresses {
        if !is_silent() {
            return None;
        }
        let still_silent = async {
            rt::sleep(LAST_CHANCE).await;
            is_silent()
        };
        match attempt(mesh, name, Some(*address), timeouts, still_silent).await {
            Ok(serial) => {
                tracing::warn!(%address, "{name} was silent: it moved to another address");
                return Some((serial, *address));
            }
            Err(error) => tracing::debug!(%address, reason = chain(&error), "{name} keeps its address"),
        }
    }
    None
}

/// Makes a link at the address, if it is still wanted when the other side has agreed.
async fn attempt(
    mesh: &Rc<Mesh>,
    name: LinkName,
    address: Option<SocketAddr>,
    timeouts: DialTimeouts,
    wanted: impl Future<Output = bool>,
) -> Result<u64, DialError> {
    let address = address.ok_or(LinkTrouble::NoAddress)?;
    let unreached = |error: io::Error| LinkTrouble::Unreached { errno: rt::errno(&error) };
    let stream = Stream::connect(address, timeouts.connect).await.map_err(unreached)?;
    let agreed = rt::timeout(timeouts.handshake, agree(mesh, name, stream, wanted)).await;
    let (wire, hello) = agreed.map_err(|_| LinkTrouble::HandshakeTimeout)??;
    let admitted = mesh.admit(wire, hello).await;
    Ok(admitted.map_err(|refusal| LinkTrouble::ByMe(mesh.refused(refusal, &hello)))?)
}

/// Returns the other side's hello when both sides want the link.
async fn agree(
    mesh: &Rc<Mesh>,
    name: LinkName,
    stream: Stream,
    wanted: impl Future<Output = bool>,
) -> Result<(Wire, Hello), DialError> {
    let ours = mesh.protocol.versions;
    let mut wire = Wire::new(stream, ours);
    let preamble = Preamble { versions: ours, purpose: Purpose::Link, tls: mesh.tls.is_some() };
    wire.send(&preamble.encode()).await?;
    if let Some(tls) = &mesh.tls {
        wire.start_tls(tls.client(name.peer).map_err(WireError::Tls)?).await?;
    }
    let mut mine = mesh.hello(name, mesh.next_attempt());
    wire.send(&mine.encode()).await?;
    // A refusal of the preamble is shorter than a hello.
    let opening: [u8; PREAMBLE_BYTES] = wire.receive().await?;
    if let Opening::Refused(refusal, theirs) = Opening::parse(opening, ours) {
        return Err(LinkTrouble::ByPeer(Refused { refusal, ours, theirs }).into());
    }
    let hello = Hello::read(&mut wire, opening).await?.ok_or(LinkTrouble::Foreign)?;
    if let Some(refusal) = hello.refusal {
        return Err(LinkTrouble::ByPeer(mesh.refused(refusal, &hello)).into());
    }
    let is_answer = (hello.from, hello.role, hello.number, hello.attempt)
        == (name.peer, name.role, name.number, mine.attempt);
    let verdict = if is_answer { mesh.judge_link(&hello, &wire) } else { Err(Refusal::OtherNode) };
    // The side that receives the last hello has the link: until then an existing link is unaffected.
    if !wanted.await {
        return Err(DialError::Unwanted);
    }
    mine.refusal = verdict.err();
    wire.send(&mine.encode()).await?;
    verdict.map_err(|refusal| LinkTrouble::ByMe(mesh.refused(refusal, &hello)))?;
    Ok((wire, hello))
}

/// The wait before the next attempt.
struct Backoff {
    next: Duration,
    max: Duration,
}

impl Backoff {
    fn new(mesh: &Mesh) -> Backoff {
        Backoff { next: mesh.limits.backoff_min, max: mesh.limits.backoff_max }
    }

    /// Between half and all of a time that doubles up to the limit, so that many links that broke together do
    /// not reconnect together.
    fn next(&mut self) -> Duration {
        let wait = self.next;
        self.next = (wait * 2).min(self.max);
        let half = wait / 2;
        half + Duration::from_nanos(rt::random() % (half.as_nanos() as u64).max(1))
    }
}
