//! The links of a node.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use replica::{Incarnation, NodeId};
use rt::{CoreId, Listener, Task};

use crate::hub::{Hub, Identification};
use crate::link::{Bounds, Link};
use crate::room::Room;
use crate::seat::Seat;
use crate::{Frame, JoinAnswer, JoinRequest, Limits, LinkName, Peer, Refusal, Settings, acceptor};

/// What the user of links does with them: one on each core, called there. None of the calls may take long. A
/// link that one of them closes is down later, not within the call.
pub trait Handler {
    /// A link is up. None of this name is.
    fn up(&self, link: Rc<Link>);
    /// The link of this name is down: no frame of it comes any more, and what was sent and not answered may
    /// or may not have arrived.
    fn down(&self, name: LinkName);
    /// A frame has come, in the order in which the peer sent it.
    fn frame(&self, link: &Rc<Link>, frame: Frame);
    /// A process that was this life of the node is dead: a watcher that has the node's credentials says so.
    /// Told on core 0.
    fn died(&self, node: NodeId, incarnation: Incarnation) {
        let _ = (node, incarnation);
    }
}

/// How it stands with another member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerState {
    /// Its number.
    pub id: NodeId,
    /// Its latest life that was seen.
    pub incarnation: Option<Incarnation>,
    /// The links that are up.
    pub links: usize,
    /// Why the last attempt to make a link failed, if none was made since: by this node, or by the other.
    pub trouble: Option<String>,
    /// Why the other node refused the last attempt, if it did, and no link was made since.
    pub refusal: Option<Refusal>,
}

/// The links could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// An address is not to be had.
    #[error(
        "cannot listen for other nodes at {address}: choose an address of this machine and an unused port"
    )]
    Listen {
        /// Which one.
        address: SocketAddr,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// Credentials of another node or cluster.
    #[error("the credentials belong to another node or cluster: let this node join the cluster again")]
    Credentials,
    /// Credentials that TLS does not take.
    #[error("the credentials are not valid: let this node join the cluster again")]
    Tls(#[source] rustls::Error),
}

/// How often it is tried to listen at an address that is not there: an interface that comes up late is of use
/// soon.
const LISTEN_EVERY: Duration = Duration::from_secs(2);

/// Listens as soon as that is possible.
async fn listen_later(address: SocketAddr, missing: &RefCell<BTreeMap<SocketAddr, String>>) -> Listener {
    loop {
        rt::sleep(LISTEN_EVERY).await;
        match Listener::bind(address).await {
            Ok(listener) => {
                missing.borrow_mut().remove(&address);
                tracing::info!(%address, "listening for other nodes");
                return listener;
            }
            Err(error) => drop(missing.borrow_mut().insert(address, error.to_string())),
        }
    }
}

/// The links of this node with all others of its cluster. Lives on core 0.
pub struct Links {
    hub: Rc<Hub>,
    addresses: Vec<SocketAddr>,
    /// Addresses that are not to be had now, and what the system says.
    missing: Rc<RefCell<BTreeMap<SocketAddr, String>>>,
    accepting: RefCell<Vec<Task<()>>>,
}

impl Links {
    /// Listens at all addresses that are there, and at the others as soon as they are, and prepares all cores
    /// for links; `install_handler` is called on each. There are no peers yet. To be called on core 0.
    ///
    /// # Errors
    /// See [`StartError`].
    ///
    /// # Panics
    /// On another core than 0.
    pub async fn start(
        settings: Settings,
        install_handler: impl Fn() -> Rc<dyn Handler> + Send + Clone + 'static,
    ) -> Result<Links, StartError> {
        assert_eq!(rt::core(), CoreId(0), "links are started on core 0");
        let tls = settings.configs()?;
        let Settings { me, cluster, generation, incarnation, listen, protocol, limits, .. } = settings;
        let mut listening = Vec::new();
        for address in listen {
            listening.push((address, Listener::bind(address).await));
        }
        let Limits { queued_bytes, silence, .. } = limits;
        let bounds = Bounds { queued_bytes, silence };
        for core in 0..rt::cores() {
            let install_handler = install_handler.clone();
            let core = CoreId(u16::try_from(core).expect("cores have numbers of 16 bits"));
            rt::call(core, move || async move { Seat::install(install_handler(), bounds) }).await;
        }
        let room = Room::new(limits.handshakes);
        let hub = Hub::new(Identification { me, cluster, generation, incarnation, protocol, limits, tls });
        rt::set_local(Rc::clone(&hub));
        let links =
            Links { hub, addresses: Vec::new(), missing: Rc::default(), accepting: RefCell::default() };
        let mut addresses = Vec::new();
        for (address, listener) in listening {
            let (hub, room, missing) = (Rc::clone(&links.hub), Rc::clone(&room), Rc::clone(&links.missing));
            let accepting = match listener {
                Ok(listener) => {
                    addresses.push(listener.local_address());
                    rt::spawn(acceptor::accept(hub, Rc::new(listener), room))
                }
                Err(error) => {
                    addresses.push(address);
                    tracing::warn!(%address, %error, "cannot listen for other nodes at this address: retrying");
                    missing.borrow_mut().insert(address, error.to_string());
                    rt::spawn(async move {
                        let listener = listen_later(address, &missing).await;
                        acceptor::accept(hub, Rc::new(listener), room).await;
                    })
                }
            };
            links.accepting.borrow_mut().push(accepting);
        }
        Ok(Links { addresses, ..links })
    }

    /// From now on these are the other members of the cluster; this node itself may be among them. Links with
    /// who is none of them end. Where a member's addresses or what they are for have changed, links that are
    /// up stay where they are until they are there where they belong.
    pub fn set_peers(&self, peers: Vec<Peer>) {
        self.hub.set_peers(peers);
    }

    /// From now on `admission` decides who may join by this node, which must have TLS; until then nobody may.
    /// A refusal is a text that says what to do. It is called on core 0 and may wait; after 30 s who wants to
    /// join is told that it took too long.
    pub fn let_join<F>(&self, admission: impl Fn(JoinRequest) -> F + 'static)
    where
        F: Future<Output = Result<JoinAnswer, String>> + 'static,
    {
        self.hub.let_join(Some(Rc::new(move |request| Box::pin(admission(request)))));
    }

    /// Nobody may join by this node any more.
    pub fn let_nobody_join(&self) {
        self.hub.let_join(None);
    }

    /// Whether a node of a later generation of the cluster was heard: this one is of the cluster that was
    /// given up.
    pub fn is_outdated(&self) -> bool {
        self.hub.is_outdated()
    }

    /// Addresses that this node is to listen at and cannot now, and what the system says: a network card that
    /// is gone, say. They are tried again.
    pub fn missing_addresses(&self) -> BTreeMap<SocketAddr, String> {
        self.missing.borrow().clone()
    }

    /// Where this node listens, or will as soon as the address is there.
    pub fn local_addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Whether links are encrypted, and both sides prove who they are.
    pub fn are_encrypted(&self) -> bool {
        self.hub.tls.is_some()
    }

    /// How it stands with each of the other members, in the order of their numbers.
    pub fn peers(&self) -> Vec<PeerState> {
        self.hub.peers()
    }

    /// Ends all links; when this returns every core was told, and nothing comes up again.
    pub async fn stop(&self) {
        drop(self.accepting.take());
        self.hub.stop().await;
    }
}
