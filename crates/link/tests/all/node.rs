//! A node on threads of its own, with links over loopback.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use link::{
    ClusterAuthority, ClusterId, Limits, LinkName, Links, NodeCredentials, Peer, Protocol, Role, Settings,
};
use replica::{Incarnation, NodeId};
use rt::sync::Notify;
use rt::uring::{Config, Running};
use rt::{CoreId, Handle};

use crate::recorder::{HandlerCall, Log, Recorder};

pub const CLUSTER: ClusterId = ClusterId([0xc1; 16]);
pub const PATIENCE: Duration = Duration::from_secs(20);
pub const CORES: u16 = 2;

pub fn limits() -> Limits {
    Limits { handshake: Duration::from_millis(500), ..Limits::default() }
}

/// A node on threads of its own.
pub struct Node {
    pub id: NodeId,
    pub log: Log,
    pub address: SocketAddr,
    pub handle: Handle,
    running: Option<Running>,
}

/// One life of a node.
pub struct Life {
    pub id: u16,
    pub incarnation: u64,
    pub cores: u16,
    pub address: SocketAddr,
}

/// What core 0 keeps alive.
pub struct Held {
    pub links: Links,
    over: Notify,
}

impl Node {
    pub fn start(id: u16, tls: Option<NodeCredentials>) -> Node {
        Node::live(
            Life { id, incarnation: 1, cores: CORES, address: SocketAddr::from(([127, 0, 0, 1], 0)) },
            tls,
        )
    }

    pub fn live(life: Life, tls: Option<NodeCredentials>) -> Node {
        let Life { id, incarnation, cores, address } = life;
        let (log, id) = (Log::default(), NodeId(id));
        let (told, bound) = mpsc::channel();
        let settings = Settings {
            me: id,
            cluster: CLUSTER,
            generation: 1,
            incarnation: Incarnation(incarnation),
            listen: vec![address],
            tls,
            protocol: Protocol::default(),
            limits: limits(),
        };
        let settings = std::sync::Arc::new(std::sync::Mutex::new(Some(settings)));
        let its_log = log.clone();
        let config =
            Config { processors: vec![0; usize::from(cores)], pin: false, poll: Duration::from_micros(20) };
        let running = Running::start(config, move |core| {
            let (settings, log, told) = (settings.clone(), its_log.clone(), told.clone());
            async move {
                if core != CoreId(0) {
                    return std::future::pending().await;
                }
                let settings = settings.lock().unwrap().take().unwrap();
                let links = Links::start(settings, Recorder::install(&log)).await.unwrap();
                let address = links.local_addresses()[0];
                let held = Rc::new(Held { links, over: Notify::new() });
                rt::set_local(Rc::clone(&held));
                told.send(address).unwrap();
                held.over.notified().await;
                held.links.stop().await;
            }
        });
        let running = running.unwrap();
        Node { id, log, address: bound.recv().unwrap(), handle: running.handle(), running: Some(running) }
    }

    /// Runs something on a core.
    pub fn on<T: Send + 'static>(&self, core: u16, what: impl FnOnce() -> T + Send + 'static) -> T {
        let (told, result) = mpsc::channel();
        let call = self.handle.call(CoreId(core), move || async move { told.send(what()).unwrap() });
        let result = result.recv_timeout(PATIENCE).unwrap();
        drop(call);
        result
    }

    pub fn peer(&self) -> Peer {
        Peer { id: self.id, addresses: vec![(None, self.address)] }
    }

    pub fn set_peers(&self, peers: Vec<Peer>) {
        self.on(0, move || rt::local::<Held>().unwrap().links.set_peers(peers));
    }

    pub fn wait(&self, what: impl Fn(&Log) -> bool) {
        let began = Instant::now();
        while !what(&self.log) {
            assert!(began.elapsed() < PATIENCE, "{:?}", self.log.up());
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    pub fn wait_for_links(&self, count: usize) {
        self.wait(|log| log.up().len() == count);
    }

    pub fn ups(&self) -> usize {
        self.log.count(|told| matches!(told, HandlerCall::Up(..)))
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let Some(running) = self.running.take() else { return };
        if !std::thread::panicking() {
            self.on(0, || rt::local::<Held>().unwrap().over.notify());
            running.join();
            assert_eq!(self.log.up(), [], "stopping brings all links down");
        }
    }
}

pub fn control(peer: u16) -> LinkName {
    LinkName { peer: NodeId(peer), role: Role::Control, number: 0 }
}

pub fn replication(peer: u16, number: u16) -> LinkName {
    LinkName { peer: NodeId(peer), role: Role::Replication, number }
}

/// Two nodes that are to be linked.
pub fn pair(first: Option<NodeCredentials>, second: Option<NodeCredentials>) -> (Node, Node) {
    let (a, b) = (Node::start(1, first), Node::start(2, second));
    let peers = vec![a.peer(), b.peer()];
    a.set_peers(peers.clone());
    b.set_peers(peers);
    (a, b)
}

pub fn authority() -> ClusterAuthority {
    ClusterAuthority::create(CLUSTER).unwrap()
}

pub fn secure_pair() -> (Node, Node) {
    let authority = authority();
    pair(Some(authority.issue(NodeId(1)).unwrap()), Some(authority.issue(NodeId(2)).unwrap()))
}
