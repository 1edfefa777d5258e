//! The links of a node.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use replica::{Incarnation, NodeId};
use rt::{CoreId, Listener, Task};

use crate::endpoint::Endpoint;
use crate::link::{Bounds, Link};
use crate::mesh::{Identification, Mesh};
use crate::room::Room;
use crate::{
    Frame, JoinAnswer, JoinRequest, Limits, LinkName, LinkTrouble, Peer, Refusal, Settings, acceptor,
};

/// What the user does with links: one handler on each core, called there.
///
/// No call may take long. A link that is closed within a call is reported down later, not within the call.
pub trait Handler {
    /// A link is up. No other link of this name is.
    fn up(&self, link: Rc<Link>);
    /// The link of this name is down.
    ///
    /// No more frames of it arrive. What was sent and not answered may or may not have arrived.
    fn down(&self, name: LinkName);
    /// A frame has arrived, in the order in which the peer sent it.
    fn frame(&self, link: &Rc<Link>, frame: Frame);
    /// The process that was this life of the node is dead, according to a watcher that has the node's
    /// credentials.
    ///
    /// Called on core 0.
    fn died(&self, node: NodeId, incarnation: Incarnation) {
        let _ = (node, incarnation);
    }
}

/// The state of the links with another member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerState {
    /// Its number.
    pub id: NodeId,
    /// Its latest life that this node has seen.
    pub incarnation: Option<Incarnation>,
    /// The links that are up.
    pub links: usize,
    /// Why the last attempt to make a link failed, on either side, if none was made since.
    pub trouble: Option<LinkTrouble>,
    /// Why the other node refused the last attempt, if it did and no link was made since.
    pub refusal: Option<Refusal>,
}

/// Why links could not be started.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // The messages say it.
pub enum StartError {
    #[error(
        "cannot listen for other nodes at {address}: choose an address of this machine and an unused port"
    )]
    Listen {
        address: SocketAddr,
        #[source]
        source: io::Error,
    },
    #[error("the credentials belong to another node or cluster: let this node join the cluster again")]
    Credentials,
    #[error("the credentials are not valid: let this node join the cluster again")]
    Tls(#[source] rustls::Error),
}

/// How often the node retries to listen at a missing address, so that an interface that comes up late is soon
/// in use.
const LISTEN_EVERY: Duration = Duration::from_secs(2);

/// Listens at these addresses as far as possible now.
async fn try_to_listen(addresses: Vec<SocketAddr>) -> Vec<(SocketAddr, io::Result<Listener>)> {
    let mut listening = Vec::new();
    for address in addresses {
        listening.push((address, Listener::bind(address).await));
    }
    listening
}

/// Waits until the node can listen at the address.
async fn listen_later(address: SocketAddr, missing: &RefCell<BTreeMap<SocketAddr, i32>>) -> Listener {
    loop {
        rt::sleep(LISTEN_EVERY).await;
        match Listener::bind(address).await {
            Ok(listener) => {
                missing.borrow_mut().remove(&address);
                tracing::info!(%address, "listening for other nodes");
                return listener;
            }
            Err(error) => {
                missing.borrow_mut().insert(address, rt::errno(&error));
            }
        }
    }
}

/// The links of this node with all others of its cluster, on core 0.
pub struct Links {
    mesh: Rc<Mesh>,
    room: Rc<Room>,
    addresses: RefCell<Vec<SocketAddr>>,
    /// Addresses that are not available now, with the error number of the system.
    missing: Rc<RefCell<BTreeMap<SocketAddr, i32>>>,
    accepting: RefCell<Vec<Task<()>>>,
}

impl Links {
    /// Listens at all available addresses, and at the others as soon as they are, and prepares all cores for
    /// links.
    ///
    /// `install_handler` is called on each core. There are no peers yet. Must be called on core 0.
    ///
    /// # Panics
    /// If called on another core.
    pub async fn start(
        settings: Settings,
        install_handler: impl Fn() -> Rc<dyn Handler> + Send + Clone + 'static,
    ) -> Result<Links, StartError> {
        assert_eq!(rt::core(), CoreId(0), "links are started on core 0");
        let tls = settings.configs()?;
        let Settings { me, cluster, generation, incarnation, listen, protocol, limits, .. } = settings;
        let listening = try_to_listen(listen).await;
        let Limits { queued_bytes, silence, .. } = limits;
        let bounds = Bounds { queued_bytes, silence };
        for core in 0..rt::cores() {
            let install_handler = install_handler.clone();
            let core = CoreId(u16::try_from(core).expect("cores have numbers of 16 bits"));
            rt::call(core, move || async move { Endpoint::install(install_handler(), bounds) }).await;
        }
        let room = Room::new(limits.handshakes);
        let mesh = Mesh::new(Identification { me, cluster, generation, incarnation, protocol, limits, tls });
        rt::set_local(Rc::clone(&mesh));
        let links = Links {
            mesh,
            room,
            addresses: RefCell::default(),
            missing: Rc::default(),
            accepting: RefCell::default(),
        };
        links.accept(listening);
        Ok(links)
    }

    /// Listens at these addresses, too: at those that are available at once, at the others as soon as they
    /// are.
    pub async fn listen(&self, addresses: Vec<SocketAddr>) {
        let listening = try_to_listen(addresses).await;
        self.accept(listening);
    }

    fn accept(&self, listening: Vec<(SocketAddr, io::Result<Listener>)>) {
        for (address, listener) in listening {
            let (mesh, room, missing) =
                (Rc::clone(&self.mesh), Rc::clone(&self.room), Rc::clone(&self.missing));
            let (address, accepting) = match listener {
                Ok(listener) => {
                    (listener.local_address(), rt::spawn(acceptor::accept(mesh, Rc::new(listener), room)))
                }
                Err(error) => {
                    tracing::warn!(%address, %error, "cannot listen for other nodes at this address: retrying");
                    missing.borrow_mut().insert(address, rt::errno(&error));
                    let later = rt::spawn(async move {
                        let listener = listen_later(address, &missing).await;
                        acceptor::accept(mesh, Rc::new(listener), room).await;
                    });
                    (address, later)
                }
            };
            self.addresses.borrow_mut().push(address);
            self.accepting.borrow_mut().push(accepting);
        }
    }

    /// Sets the other members of the cluster; this node itself may be among them.
    ///
    /// Links with nodes that are not among them end. If the addresses of a member or their roles have
    /// changed, links that are up stay until new ones are up where they belong.
    pub fn set_peers(&self, peers: Vec<Peer>) {
        self.mesh.set_peers(peers);
    }

    /// From now on `admission` decides which nodes may join through this one, which must have TLS; until then
    /// none may.
    ///
    /// A refusal is for the user on the joining side ([`JoinError::Refused`](crate::JoinError::Refused)).
    /// `admission` is called on core 0 and may wait; after 30 s the joining node gets a timeout.
    pub fn let_join<F>(&self, admission: impl Fn(JoinRequest) -> F + 'static)
    where
        F: Future<Output = Result<JoinAnswer, Vec<u8>>> + 'static,
    {
        self.mesh.let_join(Some(Rc::new(move |request| Box::pin(admission(request)))));
    }

    /// From now on no node may join through this one.
    pub fn let_nobody_join(&self) {
        self.mesh.let_join(None);
    }

    /// Whether this node has heard from a later generation of the cluster: then its own cluster was
    /// abandoned.
    pub fn is_outdated(&self) -> bool {
        self.mesh.is_outdated()
    }

    /// Addresses at which this node should listen and cannot now, with the error number of the system.
    ///
    /// Such as those of a network card that is gone. The node retries.
    pub fn missing_addresses(&self) -> BTreeMap<SocketAddr, i32> {
        self.missing.borrow().clone()
    }

    /// Where this node listens, or will as soon as the address is available.
    pub fn local_addresses(&self) -> Vec<SocketAddr> {
        self.addresses.borrow().clone()
    }

    /// Whether links are encrypted and both sides prove their identities.
    pub fn are_encrypted(&self) -> bool {
        self.mesh.tls.is_some()
    }

    /// The states of the other members, in the order of their numbers.
    pub fn peers(&self) -> Vec<PeerState> {
        self.mesh.peers()
    }

    /// Ends all links. When this returns, every core was notified, and no link comes up again.
    pub async fn stop(&self) {
        drop(self.accepting.take());
        self.mesh.stop().await;
    }
}
