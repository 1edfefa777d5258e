//! What is logged about a link that cannot be made: once, on both sides, with what to do.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use link::{ClusterAuthority, ClusterId, Limits, Links, NodeCredentials, Peer, Protocol, Settings, Versions};
use replica::{Incarnation, NodeId};
use rt::sim::World;

use crate::recorder::{Log, Recorder};

const CLUSTER: ClusterId = ClusterId([7; 16]);

/// The log.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// One of two nodes of a world that are configured as members of one cluster.
struct Member {
    id: u16,
    cluster: ClusterId,
    generation: u64,
    incarnation: u64,
    tls: Option<NodeCredentials>,
    knows: Vec<u16>,
    protocol: Protocol,
}

impl Member {
    fn new(id: u16) -> Member {
        Member {
            id,
            cluster: CLUSTER,
            generation: 1,
            incarnation: 1,
            tls: None,
            knows: vec![1, 2],
            protocol: Protocol::default(),
        }
    }
}

/// The warnings of two nodes within a minute, without the ports of addresses.
fn warnings(members: [Member; 2]) -> Vec<String> {
    let lines = Lines::default();
    let writer = lines.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_writer(move || writer.clone())
        .with_max_level(tracing::Level::WARN)
        .with_ansi(false)
        .without_time()
        .with_target(false)
        .finish();
    tracing::subscriber::with_default(subscriber, || {
        let world = World::new(1);
        let nodes: Vec<_> =
            members.iter().map(|member| world.add_machine(&member.id.to_string(), 2)).collect();
        let addresses = [1, 2].map(|host| SocketAddr::from(([10, 0, 0, host], 3261)));
        for (member, (node, address)) in members.into_iter().zip(nodes.into_iter().zip(addresses)) {
            let peers: Vec<Peer> = (1..)
                .zip(addresses)
                .filter(|(id, _)| member.knows.contains(id))
                .map(|(id, address)| Peer { id: NodeId(id), addresses: vec![(None, address)] })
                .collect();
            let settings = Settings {
                me: NodeId(member.id),
                cluster: member.cluster,
                generation: member.generation,
                incarnation: Incarnation(member.incarnation),
                listen: vec![address],
                tls: member.tls,
                protocol: member.protocol,
                limits: Limits::default(),
            };
            let settings = Rc::new(std::cell::Cell::new(Some(settings)));
            world.restart(node, move |core| {
                let (settings, peers) = (Rc::clone(&settings), peers.clone());
                async move {
                    if core.0 == 0 {
                        let settings = settings.take().unwrap();
                        let links = Links::start(settings, Recorder::install(&Log::default())).await.unwrap();
                        links.set_peers(peers);
                        rt::set_local(Rc::new(links));
                    }
                    std::future::pending::<()>().await;
                }
            });
        }
        world.run_for(Duration::from_secs(60));
    });
    let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
    text.lines().map(str::to_owned).collect()
}

/// Checks that both sides have logged this once.
fn said_once(members: [Member; 2], wanted: &str) {
    said_by_each(members, wanted, wanted);
}

/// Checks that the dialler and the acceptor have each logged their message once. The acceptor asks every ten
/// seconds whether it is a member; the dialler's message about that appears once, too.
fn said_by_each(members: [Member; 2], dialler: &str, acceptor: &str) {
    let is_asked =
        |line: &String| line.contains("an incoming connection was not accepted as a link address=10.0.0.1:");
    let (asked, warnings): (Vec<String>, Vec<String>) = warnings(members).into_iter().partition(is_asked);
    assert!(asked.len() <= 1, "{asked:#?}");
    assert_eq!(warnings.len(), 2, "{warnings:#?}");
    for (what, why) in [
        ("the control link with node 1 cannot be established", dialler),
        ("an incoming connection was not accepted as a link", acceptor),
    ] {
        let said = warnings.iter().filter(|line| line.contains(what) && line.contains(why));
        assert_eq!(said.count(), 1, "{what}, {why}: {warnings:#?}");
    }
}

#[test]
fn nothing_is_reported_if_nothing_is_wrong() {
    assert_eq!(warnings([Member::new(1), Member::new(2)]), Vec::<String>::new());
}

#[test]
fn another_cluster_is_reported_once() {
    let other = Member { cluster: ClusterId([8; 16]), ..Member::new(2) };
    said_once([Member::new(1), other], "belongs to another cluster: correct its address, or let it join");
}

#[test]
fn an_abandoned_cluster_is_reported_once() {
    let other = Member { generation: 2, ..Member::new(2) };
    said_once([Member::new(1), other], "must join again as a new node");
}

#[test]
fn an_unknown_peer_is_reported_once() {
    said_once(
        [Member { knows: Vec::new(), ..Member::new(1) }, Member::new(2)],
        "not a member of the cluster",
    );
}

#[test]
fn the_wrong_node_is_reported_once() {
    let pair = |tls: &dyn Fn(u16) -> Option<NodeCredentials>| {
        let other = Member { id: 3, knows: Vec::new(), tls: tls(3), ..Member::new(1) };
        [other, Member { id: 5, knows: vec![1], tls: tls(5), ..Member::new(2) }]
    };
    said_once(pair(&|_| None), "another node answers at this address");
    let authority = ClusterAuthority::create(CLUSTER).unwrap();
    said_by_each(
        pair(&|id| Some(authority.issue(NodeId(id)).unwrap())),
        "the certificate belongs to another node: correct the address",
        "the peer does not accept this node; see its log for the cause",
    );
}

#[test]
fn tls_on_one_side_is_reported_once() {
    let authority = ClusterAuthority::create(CLUSTER).unwrap();
    let with = |id: u16| Member { tls: Some(authority.issue(NodeId(id)).unwrap()), ..Member::new(id) };
    said_once([with(1), Member::new(2)], "one node uses TLS and the other does not");
    said_once([Member::new(1), with(2)], "one node uses TLS and the other does not");
    assert_eq!(warnings([with(1), with(2)]), Vec::<String>::new());
}

#[test]
fn another_authority_is_reported_once() {
    let with = |id: u16| {
        let authority = ClusterAuthority::create(CLUSTER).unwrap();
        Member { tls: Some(authority.issue(NodeId(id)).unwrap()), ..Member::new(id) }
    };
    said_by_each(
        [with(1), with(2)],
        "the certificate is not signed by this cluster's CA",
        "the peer does not accept this node; see its log for the cause",
    );
}

#[test]
fn incompatible_versions_are_reported_once_with_both_ranges() {
    let later = Protocol { versions: Versions::new(2, 4).unwrap(), ..Protocol::default() };
    let authority = ClusterAuthority::create(CLUSTER).unwrap();
    for tls in [false, true] {
        let member = |id: u16, protocol| {
            let tls = tls.then(|| authority.issue(NodeId(id)).unwrap());
            Member { tls, protocol, ..Member::new(id) }
        };
        let now = Protocol::default();
        let of_now = "this node speaks protocol version 1, the other node versions 2 to 4";
        let of_later = "this node speaks protocol versions 2 to 4, the other node version 1";
        said_by_each([member(1, now), member(2, later)], of_later, of_now);
        said_by_each([member(1, later), member(2, now)], of_now, of_later);
    }
}
