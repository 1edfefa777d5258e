//! Nodes in a simulated world.

mod networks;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use link::{
    Capabilities, ClusterId, Limits, LinkName, LinkTrouble, Links, Negotiated, Peer, Protocol, Refusal, Role,
    Settings, Versions,
};
use replica::{Incarnation, NodeId};
use rt::sim::{NetProfile, World};
use rt::{CoreId, Stream};

use crate::recorder::{ANSWER, ASK, HandlerCall, Log, Recorder, SAY, frame, link};

const PORT: u16 = 3261;
const CLUSTER: ClusterId = ClusterId([7; 16]);
const SECOND: Duration = Duration::from_secs(1);
const CORE: CoreId = CoreId(0);

/// A node of a world: number `n` is the world's node `n - 1`.
struct Node {
    id: NodeId,
    sim: rt::sim::NodeId,
    log: Log,
}

/// What core 0 keeps alive.
struct Held(Links);

struct Cluster {
    world: World,
    nodes: Vec<Node>,
}

fn settings(me: NodeId, address: IpAddr, incarnation: u64) -> Settings {
    Settings {
        me,
        cluster: CLUSTER,
        generation: 1,
        incarnation: Incarnation(incarnation),
        listen: vec![SocketAddr::new(address, PORT)],
        tls: None,
        protocol: Protocol::default(),
        limits: Limits::default(),
    }
}

impl Cluster {
    /// Nodes 1, 2, … with these numbers of cores, all of them members, and started.
    fn new(seed: u64, cores: &[usize]) -> Cluster {
        let world = World::new(seed);
        let nodes = (1..).zip(cores).map(|(number, cores)| Node {
            id: NodeId(number),
            sim: world.add_machine(&format!("node {number}"), *cores),
            log: Log::default(),
        });
        let nodes = nodes.collect();
        let cluster = Cluster { world, nodes };
        for node in &cluster.nodes {
            cluster.start(node, 1);
        }
        cluster
    }

    fn peers(&self) -> Vec<Peer> {
        let peer = |node: &Node| Peer { id: node.id, addresses: vec![(None, self.address(node))] };
        self.nodes.iter().map(peer).collect()
    }

    fn address(&self, node: &Node) -> SocketAddr {
        SocketAddr::new(self.world.address(node.sim), PORT)
    }

    fn start(&self, node: &Node, incarnation: u64) {
        let settings = settings(node.id, self.world.address(node.sim), incarnation);
        self.start_with(node, settings);
    }

    fn start_with(&self, node: &Node, settings: Settings) {
        let (log, peers) = (node.log.clone(), self.peers());
        let settings = Rc::new(RefCell::new(Some(settings)));
        self.world.restart(node.sim, move |core| {
            let (log, peers, settings) = (log.clone(), peers.clone(), Rc::clone(&settings));
            async move {
                if core == CORE {
                    let settings = settings.take().unwrap();
                    let links = Links::start(settings, Recorder::install(&log)).await.unwrap();
                    links.set_peers(peers);
                    rt::set_local(Rc::new(Held(links)));
                }
                std::future::pending::<()>().await;
            }
        });
    }

    fn kill(&self, node: &Node) {
        self.world.kill(node.sim);
        node.log.clear();
    }

    /// Runs something on a core of a node and returns its result.
    fn on<T: Send + 'static>(
        &self,
        node: &Node,
        core: CoreId,
        what: impl FnOnce() -> T + Send + 'static,
    ) -> T {
        self.world.block_on(node.sim, core, move || async move { what() })
    }

    fn set_peers(&self, node: &Node, peers: Vec<Peer>) {
        self.on(node, CORE, move || {
            // A node that has just been started sets them itself.
            if let Some(held) = rt::local::<Held>() {
                held.0.set_peers(peers);
            }
        });
    }

    fn settle(&self) {
        self.world.run_for(2 * SECOND);
    }

    /// How often a node hears anything over these links of core 0 in three seconds.
    fn signs_heard<const N: usize>(&self, node: &Node, names: [LinkName; N]) -> [usize; N] {
        let mut heard = names.map(|_| BTreeSet::new());
        for _ in 0..3_000 {
            self.world.run_for(SECOND / 1_000);
            let at = self.on(node, CORE, move || names.map(|name| link(name).unwrap().heard()));
            for (heard, at) in heard.iter_mut().zip(at) {
                heard.insert(at);
            }
        }
        heard.map(|heard| heard.len())
    }

    fn send(&self, node: &Node, name: LinkName, frames: Vec<(u64, u8, Vec<u8>)>) {
        let cores = self.world.handle(node.sim).cores() as u16;
        let core = match name.role {
            Role::Control => CORE,
            Role::Replication => CoreId(name.number % cores),
        };
        self.on(node, core, move || {
            let link = link(name).unwrap();
            for (channel, kind, payload) in frames {
                link.send(frame(channel, kind, b"head", payload));
            }
        });
    }
}

fn control(peer: u16) -> LinkName {
    LinkName { peer: NodeId(peer), role: Role::Control, number: 0 }
}

fn replication(peer: u16, number: u16) -> LinkName {
    LinkName { peer: NodeId(peer), role: Role::Replication, number }
}

/// The links that a node with this many cores has with a peer.
fn all_links(
    peer: u16,
    peer_incarnation: u64,
    cores: u16,
    links: u16,
) -> Vec<(LinkName, CoreId, Incarnation)> {
    let incarnation = Incarnation(peer_incarnation);
    let mut all = vec![(control(peer), CORE, incarnation)];
    all.extend((0..links).map(|number| (replication(peer, number), CoreId(number % cores), incarnation)));
    all
}

#[test]
fn every_pair_gets_its_links_on_their_cores() {
    for seed in 0..5 {
        let cluster = Cluster::new(seed, &[2, 3, 1]);
        cluster.settle();
        let [a, b, c] = &cluster.nodes[..] else { panic!("three nodes") };
        assert_eq!(a.log.up(), [all_links(2, 1, 2, 3), all_links(3, 1, 2, 2)].concat());
        assert_eq!(b.log.up(), [all_links(1, 1, 3, 3), all_links(3, 1, 3, 3)].concat());
        assert_eq!(c.log.up(), [all_links(1, 1, 1, 2), all_links(2, 1, 1, 3)].concat());
        let cores = cluster.on(a, CoreId(1), || link(replication(2, 1)).unwrap().peer_cores());
        assert_eq!(cores, 3);
        cluster.world.run_for(20 * SECOND);
        assert_eq!(a.log.count(|told| matches!(told, HandlerCall::Down(_))), 0, "idle links stay");
    }
}

#[test]
fn frames_arrive_in_order_with_what_they_carry() {
    for seed in 0..10 {
        let cluster = Cluster::new(seed, &[2, 2]);
        cluster.settle();
        let [a, b] = &cluster.nodes[..] else { panic!("two nodes") };
        let sizes = [0, 1, 512, 4096, 100_000, 5, 1 << 20, 0, 33_000];
        let sent: Vec<_> = (0..).zip(sizes).map(|(n, size)| (n, ASK, vec![n as u8 + 1; size])).collect();
        cluster.send(b, replication(1, 1), sent.clone());
        cluster.settle();
        let frames = |log: &Log, name, kind| {
            let frames = log.all().into_iter().filter_map(|(core, told)| match told {
                HandlerCall::Frame { name: its, channel, kind: its_kind, head, payload } => {
                    assert_eq!((its, its_kind, core, &head[..]), (name, kind, CoreId(1), &b"head"[..]));
                    Some((channel, ASK, payload))
                }
                _ => None,
            });
            frames.collect::<Vec<_>>()
        };
        assert!(frames(&a.log, replication(2, 1), ASK) == sent);
        assert!(frames(&b.log, replication(1, 1), ANSWER) == sent);
    }
}

#[test]
fn a_broken_link_goes_down_on_both_sides_and_comes_back() {
    for seed in 0..20 {
        let cluster = Cluster::new(seed, &[2, 2]);
        cluster.settle();
        let [a, b] = &cluster.nodes[..] else { panic!("two nodes") };
        for _ in 0..3 {
            let frames = (0..200).map(|n| (n, ASK, vec![1; 5000])).collect();
            cluster.send(b, replication(1, 0), frames);
            assert_eq!(cluster.world.break_connections(a.sim, b.sim), 3);
            cluster.settle();
            assert_eq!((a.log.up().len(), b.log.up().len()), (3, 3));
        }
        assert_eq!(a.log.count(|told| matches!(told, HandlerCall::Down(_))), 9);
        // From each life of the link, an uninterrupted beginning has arrived.
        let mut next = 0;
        for (_, told) in a.log.all() {
            match told {
                HandlerCall::Up(name, _) if name == replication(2, 0) => next = 0,
                HandlerCall::Frame { channel, .. } => {
                    assert_eq!(channel, next);
                    next += 1;
                }
                _ => {}
            }
        }
    }
}

#[test]
fn a_silent_peer_is_dropped_after_a_second_on_all_links_and_found_again() {
    for seed in 0..5 {
        let cluster = Cluster::new(seed, &[1, 1]);
        cluster.settle();
        let [a, b] = &cluster.nodes[..] else { panic!("two nodes") };
        cluster.world.cut(a.sim, b.sim);
        let began = cluster.world.now();
        let none_up = || [a, b].iter().all(|node| node.log.up().is_empty());
        cluster.world.run_for(SECOND * 8 / 10);
        assert_eq!((a.log.up().len(), b.log.up().len()), (2, 2));
        assert!(cluster.world.run_until(none_up, 20 * SECOND));
        let took = cluster.world.now() - began;
        assert!(took < SECOND * 12 / 10, "links of all kinds: {took:?}");
        cluster.world.run_for(20 * SECOND);
        cluster.world.heal_all();
        cluster.world.run_for(4 * SECOND);
        assert_eq!((a.log.up().len(), b.log.up().len()), (2, 2));
    }
}

#[test]
fn a_peer_heard_before_the_timeout_is_kept() {
    for seed in 0..5 {
        let cluster = Cluster::new(seed, &[1, 1]);
        cluster.settle();
        let [a, b] = &cluster.nodes[..] else { panic!("two nodes") };
        for _ in 0..20 {
            cluster.world.cut(a.sim, b.sim);
            // TCP retries after the same time at most: together less than a link waits.
            cluster.world.run_for(SECOND * 4 / 10);
            cluster.world.heal_all();
            cluster.world.run_for(SECOND);
        }
        let downs = |node: &Node| node.log.count(|told| matches!(told, HandlerCall::Down(_)));
        assert_eq!((downs(a), downs(b)), (0, 0));
    }
}

#[test]
fn a_link_cut_one_way_goes_down_on_both_sides() {
    for (seed, from) in (0..6).zip([0, 1].into_iter().cycle()) {
        let cluster = Cluster::new(seed, &[1, 1]);
        cluster.settle();
        let (from, to) = (&cluster.nodes[from], &cluster.nodes[1 - from]);
        cluster.world.cut_one_way(from.sim, to.sim);
        assert!(cluster.world.run_until(|| from.log.up().is_empty() && to.log.up().is_empty(), 30 * SECOND));
        cluster.world.heal_all();
        cluster.world.run_for(4 * SECOND);
        assert_eq!((from.log.up().len(), to.log.up().len()), (2, 2));
    }
}

#[test]
fn idle_links_carry_signs_of_life_and_those_for_data_half_as_many() {
    let cluster = Cluster::new(5, &[1, 1]);
    cluster.settle();
    // Ten and five a second; what a lost packet delays arrives together.
    let [control, data] = cluster.signs_heard(&cluster.nodes[0], [control(2), replication(2, 0)]);
    assert!((22..=36).contains(&control) && (11..=18).contains(&data), "{control} and {data}");
}

/// However seldom the links carry signs of life, and are looked at.
#[test]
fn a_silent_peer_is_given_up_after_the_same_time_on_each_link() {
    for (seed, name) in (0..20).flat_map(|seed| [control(2), replication(2, 0)].map(|name| (seed, name))) {
        let cluster = Cluster::new(seed, &[1, 1]);
        cluster.world.set_net_profile(NetProfile { spike_one_in: 0, ..NetProfile::default() });
        cluster.settle();
        cluster.world.run_for(Duration::from_millis(11 * seed));
        let [a, b] = &cluster.nodes[..] else { panic!("two nodes") };
        cluster.world.cut_one_way(b.sim, a.sim);
        let cut = cluster.world.now();
        let silent = cluster.on(a, CORE, move || rt::now().since(link(name).unwrap().heard()));
        let is_down = || a.log.up().iter().all(|(up, ..)| *up != name);
        assert!(cluster.world.run_until(is_down, 2 * SECOND), "{name}");
        let silent = silent + (cluster.world.now() - cut);
        let latest = SECOND * 11 / 10 + SECOND / 200;
        assert!((SECOND..=latest).contains(&silent), "{name} after {silent:?}, seed {seed}");
    }
}

#[test]
fn what_may_wait_leaves_with_the_next_sign_of_life_or_before_the_next_frame() {
    let cluster = Cluster::new(5, &[1, 1]);
    cluster.world.set_net_profile(NetProfile { spike_one_in: 0, ..NetProfile::default() });
    cluster.settle();
    let [a, b] = &cluster.nodes[..] else { panic!("two nodes") };
    let channels = || {
        let all = a.log.all().into_iter();
        let channel = |told| if let HandlerCall::Frame { channel, .. } = told { Some(channel) } else { None };
        all.filter_map(|(_, told)| channel(told)).collect::<Vec<u64>>()
    };
    let say = |waits: &'static [(u64, bool)]| {
        cluster.on(b, CORE, move || {
            let link = link(control(1)).unwrap();
            for (channel, waits) in waits {
                let frame = frame(*channel, SAY, b"head", Vec::new());
                if *waits { link.send_with_next(frame) } else { link.send(frame) }
            }
        });
    };
    // Just after a beat, so that the next one is far away.
    let beat = SECOND / 10;
    let to_beat = cluster.on(b, CORE, move || rt::now().beat_after(beat).since(rt::now()));
    cluster.world.run_for(to_beat + beat / 10);
    say(&[(1, true), (2, true)]);
    cluster.world.run_for(beat / 2);
    assert!(channels().is_empty(), "nothing else was sent");
    cluster.world.run_for(beat / 2);
    assert_eq!(channels(), [1, 2]);
    say(&[(3, true), (4, false), (5, true)]);
    cluster.world.run_for(beat / 10);
    assert_eq!(channels(), [1, 2, 3, 4, 5], "in order, and at once");
}

#[test]
fn a_paused_node_does_not_take_its_own_pause_for_silence() {
    let cluster = Cluster::new(3, &[1, 1]);
    cluster.settle();
    let [a, b] = &cluster.nodes[..] else { panic!("two nodes") };
    // Not as long as the peer waits, but with all of this node's own timers late.
    cluster.world.pause(b.sim);
    cluster.world.run_for(SECOND * 8 / 10);
    cluster.world.resume(b.sim);
    cluster.world.run_for(10 * SECOND);
    // Longer, but neither is running to miss the other.
    [a, b].iter().for_each(|node| cluster.world.pause(node.sim));
    cluster.world.run_for(4 * SECOND);
    [a, b].iter().for_each(|node| cluster.world.resume(node.sim));
    cluster.world.run_for(10 * SECOND);
    for node in [a, b] {
        assert_eq!(node.log.count(|told| matches!(told, HandlerCall::Down(_))), 0);
    }
    cluster.world.pause(b.sim);
    cluster.world.run_for(10 * SECOND);
    assert_eq!(a.log.up(), []);
    cluster.world.resume(b.sim);
    cluster.world.run_for(10 * SECOND);
    assert_eq!((a.log.up().len(), b.log.up().len()), (2, 2));
}

#[test]
fn a_restarted_peer_takes_the_place_of_its_earlier_life() {
    for seed in 0..10 {
        let cluster = Cluster::new(seed, &[2, 2]);
        cluster.settle();
        let [a, b] = &cluster.nodes[..] else { panic!("two nodes") };
        for (node, other) in [(a, b), (b, a)] {
            // After a power loss the other side does not hear that the connections are gone.
            cluster.world.crash(node.sim);
            node.log.clear();
            cluster.start(node, 2);
            cluster.world.run_for(20 * SECOND);
            assert_eq!(other.log.up(), all_links(node.id.0, 2, 2, 2));
        }
        // No core has seen a link with the new life while one with the old life was up.
        let mut up = std::collections::BTreeMap::new();
        for (_, told) in a.log.all() {
            match told {
                HandlerCall::Up(name, incarnation) => {
                    up.insert(name, incarnation);
                    assert!(up.values().all(|other| *other == incarnation), "{up:?}");
                }
                HandlerCall::Down(name) => drop(up.remove(&name)),
                HandlerCall::Died(..) | HandlerCall::Frame { .. } => {}
            }
        }
    }
}

#[test]
fn an_earlier_life_is_refused() {
    for seed in 0..5 {
        let cluster = Cluster::new(seed, &[1, 1]);
        let [a, b] = &cluster.nodes[..] else { panic!("two nodes") };
        cluster.kill(b);
        cluster.start(b, 5);
        cluster.settle();
        assert_eq!(a.log.up(), all_links(2, 5, 1, 1));
        for (node, other) in [(b, a), (a, b)] {
            cluster.kill(node);
            cluster.start(node, if node.id == b.id { 4 } else { 0 });
            cluster.settle();
            assert_eq!((other.log.up(), node.log.up()), (Vec::new(), Vec::new()));
            cluster.kill(node);
            cluster.start(node, 6);
            cluster.settle();
            assert_eq!((other.log.up().len(), node.log.up().len()), (2, 2));
        }
    }
}

#[test]
fn a_non_member_gets_no_link_and_a_removed_member_loses_its_own() {
    let cluster = Cluster::new(1, &[2, 2, 1]);
    cluster.settle();
    let [a, b, c] = &cluster.nodes[..] else { panic!("three nodes") };
    let without =
        |node: &Node| cluster.peers().into_iter().filter(|peer| peer.id != node.id).collect::<Vec<_>>();
    cluster.set_peers(a, without(b));
    cluster.settle();
    assert_eq!(a.log.up(), all_links(3, 1, 2, 2));
    assert_eq!(b.log.up(), all_links(3, 1, 2, 2));
    assert_eq!(c.log.up().len(), 6);
    // Added again.
    cluster.set_peers(a, cluster.peers());
    cluster.settle();
    assert_eq!(a.log.up().len(), 6);
    // Removed by the node that connects, and added again at once.
    cluster.set_peers(b, without(a));
    cluster.set_peers(b, cluster.peers());
    cluster.settle();
    assert_eq!((a.log.up().len(), b.log.up().len()), (6, 6));
    assert_eq!(b.log.count(|told| *told == HandlerCall::Down(control(1))), 2);
}

#[test]
fn a_node_of_a_later_version_speaks_the_one_in_common() {
    let cluster = Cluster::new(1, &[1, 1, 1]);
    let [a, b, c] = &cluster.nodes[..] else { panic!("three nodes") };
    // In both directions: of two nodes, the one with the higher number connects.
    let speaks = |node: &Node, life: u64, min, max, capabilities| {
        cluster.kill(node);
        let protocol =
            Protocol { versions: Versions::new(min, max).unwrap(), capabilities: Capabilities(capabilities) };
        cluster.start_with(
            node,
            Settings { protocol, ..settings(node.id, cluster.world.address(node.sim), life) },
        );
    };
    speaks(a, 2, 1, 2, 0b011);
    speaks(b, 2, 1, 3, 0b110);
    speaks(c, 2, 3, 3, 0b111);
    cluster.settle();
    let negotiated = |node: &Node, peer: u16| {
        cluster.on(node, CORE, move || {
            [control(peer), replication(peer, 0)].map(|name| link(name).map(|link| link.negotiated()))
        })
    };
    let both =
        |version, capabilities| [Some(Negotiated { version, capabilities: Capabilities(capabilities) }); 2];
    assert_eq!((negotiated(a, 2), negotiated(b, 1)), (both(2, 0b010), both(2, 0b010)));
    assert_eq!((negotiated(b, 3), negotiated(c, 2)), (both(3, 0b110), both(3, 0b110)));
    assert_eq!((negotiated(a, 3), negotiated(c, 1)), ([None; 2], [None; 2]), "nothing is in common");
    // The last of the older versions is updated.
    speaks(a, 3, 1, 3, 0b011);
    cluster.settle();
    assert_eq!((negotiated(a, 3), negotiated(c, 1)), (both(3, 0b011), both(3, 0b011)));
}

#[test]
fn a_node_listens_at_the_addresses_that_are_there_and_at_the_others_when_they_are() {
    let cluster = Cluster::new(1, &[1, 1]);
    let [a, b] = &cluster.nodes[..] else { panic!("two nodes") };
    cluster.kill(a);
    let mut settings = settings(a.id, cluster.world.address(a.sim), 2);
    // The same address twice: the second bind fails as long as the first one is in use.
    settings.listen.push(settings.listen[0]);
    cluster.start_with(a, settings);
    cluster.settle();
    let missing = cluster.on(a, CORE, || rt::local::<Held>().unwrap().0.missing_addresses());
    assert_eq!(missing.into_iter().collect::<Vec<_>>(), [(cluster.address(a), 98)], "EADDRINUSE");
    assert_eq!((a.log.up().len(), b.log.up().len()), (2, 2), "the other address works");
}

#[test]
fn a_node_listens_at_another_address_while_its_links_run() {
    let cluster = Cluster::new(1, &[1, 1]);
    let [a, b] = &cluster.nodes[..] else { panic!("two nodes") };
    cluster.kill(a);
    let settings = settings(a.id, cluster.world.address(a.sim), 2);
    cluster.start_with(a, Settings { listen: Vec::new(), ..settings });
    cluster.settle();
    assert_eq!((a.log.up(), b.log.up()), (Vec::new(), Vec::new()), "nothing leads to it");
    let address = cluster.address(a);
    let addresses = cluster.world.block_on(a.sim, CORE, move || async move {
        let held = rt::local::<Held>().unwrap();
        held.0.listen(vec![address]).await;
        held.0.local_addresses()
    });
    assert_eq!(addresses, [address]);
    cluster.settle();
    assert_eq!((a.log.up(), b.log.up()), (all_links(2, 1, 1, 1), all_links(1, 2, 1, 1)));
}

#[test]
fn another_cluster_is_refused() {
    let cluster = Cluster::new(1, &[1, 1]);
    let [a, b] = &cluster.nodes[..] else { panic!("two nodes") };
    cluster.kill(b);
    let theirs = settings(b.id, cluster.world.address(b.sim), 2);
    cluster.start_with(b, Settings { cluster: ClusterId([8; 16]), ..theirs });
    cluster.settle();
    assert_eq!((a.log.up(), b.log.up()), (Vec::new(), Vec::new()));
}

#[test]
fn an_address_that_leads_to_another_node_is_noticed() {
    let cluster = Cluster::new(1, &[1, 1, 1]);
    let [a, b, c] = &cluster.nodes[..] else { panic!("three nodes") };
    let mut peers = cluster.peers();
    let of_b = peers[1].addresses.clone();
    peers[0].addresses = of_b;
    cluster.settle();
    cluster.set_peers(c, peers);
    cluster.world.break_connections(a.sim, c.sim);
    cluster.settle();
    assert_eq!(c.log.up(), all_links(2, 1, 1, 1));
    assert_eq!((a.log.up(), b.log.up().len()), (all_links(2, 1, 1, 1), 4));
    // The right address after the wrong one works, too.
    let mut peers = cluster.peers();
    peers[0].addresses = vec![(Some(Role::Control), cluster.address(b)), (None, cluster.address(a))];
    cluster.set_peers(c, peers);
    cluster.settle();
    assert_eq!(c.log.up().len(), 4);
}

#[test]
fn a_queue_that_is_not_taken_ends_the_link() {
    let cluster = Cluster::new(1, &[1, 1]);
    let [a, b] = &cluster.nodes[..] else { panic!("two nodes") };
    cluster.kill(b);
    let mut settings = settings(b.id, cluster.world.address(b.sim), 2);
    settings.limits.queued_bytes = 1 << 20;
    cluster.start_with(b, settings);
    cluster.settle();
    let queued = cluster.on(b, CORE, || {
        let link = link(replication(1, 0)).unwrap();
        let before = link.queued_bytes();
        (0..100).for_each(|_| link.send(frame(0, SAY, b"", vec![1; 10_000])));
        // A frame may exceed the limit if the queue did not exceed it before.
        link.send(frame(0, SAY, b"", vec![1; 2 << 20]));
        (before, link.queued_bytes())
    });
    assert_eq!(queued.0, 0);
    assert!(queued.1 > 3_000_000);
    cluster.settle();
    assert_eq!(b.log.count(|told| matches!(told, HandlerCall::Down(_))), 0);
    cluster.on(b, CORE, || {
        let link = link(replication(1, 0)).unwrap();
        assert_eq!(link.queued_bytes(), 0);
        (0..200).for_each(|_| link.send(frame(0, SAY, b"", vec![1; 10_000])));
    });
    cluster.world.run_for(Duration::from_millis(10));
    assert_eq!(b.log.count(|told| *told == HandlerCall::Down(replication(1, 0))), 1);
    cluster.settle();
    assert_eq!((a.log.up().len(), b.log.up().len()), (2, 2));
}

#[test]
fn a_user_may_close_a_link_within_a_call() {
    let cluster = Cluster::new(1, &[1, 1]);
    cluster.settle();
    let [a, b] = &cluster.nodes[..] else { panic!("two nodes") };
    cluster.on(a, CORE, || {
        let link = link(control(2)).unwrap();
        link.close("the test wants it");
        link.close("once more");
        link.send(frame(0, SAY, b"", vec![1]));
        assert_eq!(link.queued_bytes(), 0);
    });
    cluster.settle();
    for node in [a, b] {
        assert_eq!(node.log.count(|told| matches!(told, HandlerCall::Down(_))), 1);
        assert_eq!(node.log.up().len(), 2);
        assert_eq!(node.log.count(|told| matches!(told, HandlerCall::Frame { .. })), 0);
    }
}

#[test]
fn a_new_connection_replaces_one_that_only_one_side_has_lost() {
    for seed in 0..10 {
        let cluster = Cluster::new(seed, &[2, 2]);
        cluster.settle();
        let [a, b] = &cluster.nodes[..] else { panic!("two nodes") };
        // The other side learns of the end only through the new connection.
        cluster.world.cut_one_way(b.sim, a.sim);
        cluster.on(b, CoreId(1), || {
            let link = link(replication(1, 1)).unwrap();
            link.send(frame(1, SAY, b"", vec![1; 100]));
            link.close("the test wants it");
        });
        cluster.world.run_for(Duration::from_millis(10));
        assert_eq!(a.log.up().len(), 3);
        cluster.world.heal_all();
        cluster.settle();
        let lives = |log: &Log| {
            let of_it = |told: &HandlerCall| match told {
                HandlerCall::Up(name, _) | HandlerCall::Down(name) | HandlerCall::Frame { name, .. } => {
                    name.number == 1
                }
                HandlerCall::Died(..) => false,
            };
            log.all().into_iter().map(|(_, told)| told).filter(of_it).collect::<Vec<_>>()
        };
        let name = replication(2, 1);
        let up = HandlerCall::Up(name, Incarnation(1));
        assert_eq!(lives(&a.log), [up.clone(), HandlerCall::Down(name), up]);
        assert_eq!(lives(&b.log).len(), 3);
        assert_eq!((a.log.up().len(), b.log.up().len()), (3, 3));
    }
}

#[test]
fn how_it_stands_with_the_others_can_be_asked() {
    let cluster = Cluster::new(1, &[1, 2]);
    let [a, b] = &cluster.nodes[..] else { panic!("two nodes") };
    let state = |node| cluster.on(node, CORE, || rt::local::<Held>().unwrap().0.peers());
    cluster.settle();
    let [of_b] = &state(a)[..] else { panic!("one peer") };
    assert_eq!((of_b.id, of_b.incarnation, of_b.links), (NodeId(2), Some(Incarnation(1)), 3));
    assert_eq!(of_b.trouble, None);
    cluster.kill(a);
    cluster.settle();
    let [of_a] = &state(b)[..] else { panic!("one peer") };
    assert_eq!((of_a.incarnation, of_a.links), (Some(Incarnation(1)), 0));
    assert_eq!(of_a.trouble, Some(LinkTrouble::Unreached { errno: 111 }), "ECONNREFUSED");
    cluster.start(a, 0);
    cluster.settle();
    for trouble in [state(a), state(b)].map(|peers| peers[0].trouble.unwrap()) {
        let (LinkTrouble::ByPeer(refused) | LinkTrouble::ByMe(refused)) = trouble else {
            panic!("{trouble:?}")
        };
        assert_eq!(refused.refusal, Refusal::Incarnation);
    }
    cluster.kill(a);
    cluster.start(a, 2);
    cluster.settle();
    assert_eq!(state(b)[0].trouble, None);
}

#[test]
fn stopping_notifies_every_core_and_nothing_comes_back() {
    let cluster = Cluster::new(1, &[2, 2]);
    cluster.settle();
    let [a, b] = &cluster.nodes[..] else { panic!("two nodes") };
    cluster.world.block_on(a.sim, CORE, || async { rt::local::<Held>().unwrap().0.stop().await });
    assert_eq!(a.log.up(), []);
    cluster.settle();
    assert_eq!((a.log.up(), b.log.up()), (Vec::new(), Vec::new()));
}

#[test]
fn a_connection_that_is_not_a_link_does_no_harm() {
    let cluster = Cluster::new(1, &[1, 1]);
    cluster.settle();
    let [a, b] = &cluster.nodes[..] else { panic!("two nodes") };
    let address = cluster.address(a);
    for garbage in [
        &b"GET / HTTP/1.1\r\n\r\n"[..],
        b"URSA\x01\x01\x00\x00UHELxxxxxxx",
        b"URSA\x09\x01\x00\x00",
        b"x",
        b"",
    ] {
        let garbage = garbage.to_vec();
        let answered = cluster.world.block_on(b.sim, CORE, move || async move {
            let stream = Stream::connect(address, SECOND).await.unwrap();
            let mut batch = base::SendBatch::new();
            batch.push(&garbage);
            stream.send(batch).await.unwrap();
            let began = rt::now();
            while stream.receive().await.is_ok_and(|received| !received.is_empty()) {}
            rt::now().since(began)
        });
        assert!(answered < 7 * SECOND, "a handshake has a deadline");
    }
    assert_eq!(a.log.count(|told| matches!(told, HandlerCall::Down(_))), 0);
    assert_eq!((a.log.up().len(), b.log.up().len()), (2, 2));
}

/// Everything at once; the recorders check the order of their calls.
fn storm(seed: u64) -> u64 {
    let cluster = Cluster::new(seed, &[2, 1, 3]);
    let profile = NetProfile { break_one_in: 3_000, ..NetProfile::default() };
    cluster.world.set_net_profile(profile);
    let mut rng = base::Rng::new(seed);
    let mut lives = [1; 3];
    for _ in 0..60 {
        let (at, to) = (rng.below(3) as usize, rng.below(3) as usize);
        let (node, other) = (&cluster.nodes[at], &cluster.nodes[to]);
        match rng.below(8) {
            0 => cluster.world.cut(node.sim, other.sim),
            1 => cluster.world.heal_all(),
            2 => drop(cluster.world.break_connections(node.sim, other.sim)),
            3 => {
                cluster.kill(node);
                lives[at] += 1;
                cluster.start(node, lives[at]);
            }
            4 if at != to => {
                let id = other.id;
                let peers = cluster.peers().into_iter().filter(|peer| peer.id != id);
                cluster.set_peers(node, peers.collect());
                cluster.set_peers(node, cluster.peers());
            }
            _ => {}
        }
        for (name, core, _) in node.log.up() {
            cluster.on(node, core, move || {
                // The link may just have ended.
                let Some(link) = link(name) else { return };
                (0..10).for_each(|n| link.send(frame(n, ASK, b"storm", vec![n as u8; 3000 * n as usize])));
            });
        }
        cluster.world.run_for(Duration::from_millis(rng.below(1500)));
    }
    cluster.world.heal_all();
    cluster.world.set_net_profile(NetProfile::default());
    cluster.world.run_for(30 * SECOND);
    let links: Vec<usize> = cluster.nodes.iter().map(|node| node.log.up().len()).collect();
    assert_eq!(links, [2 + 2 + 3, 2 + 2 + 3, 2 + 3 + 3]);
    cluster.world.log_hash()
}

#[test]
fn after_a_storm_all_links_are_up() {
    for seed in 0..15 {
        storm(seed);
    }
}

#[test]
fn a_seed_is_a_run() {
    assert_eq!(storm(99), storm(99));
}
