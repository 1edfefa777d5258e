//! Connections of peers that do not behave like our nodes.

use std::net::SocketAddr;
use std::time::Duration;

use replica::{Incarnation, NodeId};
use rt::sim::World;
use rt::{CoreId, Stream};

use super::*;
use crate::tls::Configs;
use crate::{
    Capabilities, ClusterAuthority, ClusterId, Frame, Handler, Limits, Link, Links, Peer, Protocol, Role,
    Settings,
};

const CLUSTER: ClusterId = ClusterId([7; 16]);
const SECOND: Duration = Duration::from_secs(1);

/// Counts its links.
#[derive(Default)]
struct Count {
    ups: std::cell::Cell<usize>,
    downs: std::cell::Cell<usize>,
}

impl Handler for Count {
    fn up(&self, _: Rc<Link>) {
        self.ups.set(self.ups.get() + 1);
    }

    fn down(&self, _: LinkName) {
        self.downs.set(self.downs.get() + 1);
    }

    fn frame(&self, _: &Rc<Link>, _: Frame) {}
}

/// The first hello of a node of ours.
const HELLO: Hello = Hello {
    role: Role::Control,
    number: 0,
    refusal: None,
    cluster: CLUSTER,
    from: NodeId(2),
    to: NodeId(1),
    cores: 1,
    incarnation: Incarnation(1),
    attempt: 1,
    generation: 1,
    protocol: Protocol { versions: Versions::CURRENT, capabilities: Capabilities(0) },
};

/// Node 1, with members 2 and 3, and a peer that claims to be one of them.
struct Victim {
    world: World,
    node: rt::sim::NodeId,
    attacker: rt::sim::NodeId,
    address: SocketAddr,
    authority: ClusterAuthority,
    tls: bool,
}

impl Victim {
    fn new(tls: bool) -> Victim {
        let world = World::new(1);
        let authority = ClusterAuthority::create(CLUSTER).unwrap();
        let (node, attacker) = (world.add_machine("victim", 2), world.add_machine("attacker", 1));
        let address = SocketAddr::new(world.address(node), 3261);
        let settings = Settings {
            me: NodeId(1),
            cluster: CLUSTER,
            generation: 1,
            incarnation: Incarnation(1),
            listen: vec![address],
            tls: tls.then(|| authority.issue(NodeId(1)).unwrap()),
            protocol: Protocol::default(),
            limits: Limits::default(),
        };
        let settings = Rc::new(std::cell::Cell::new(Some(settings)));
        world.restart(node, move |core| {
            let settings = Rc::clone(&settings);
            async move {
                if core == CoreId(0) {
                    let install = || -> Rc<dyn Handler> {
                        let count = Rc::new(Count::default());
                        rt::set_local(Rc::clone(&count));
                        count
                    };
                    let links = Links::start(settings.take().unwrap(), install).await.unwrap();
                    let peer = |id| Peer { id: NodeId(id), addresses: Vec::new() };
                    links.set_peers(vec![peer(2), peer(3)]);
                    rt::set_local(Rc::new(links));
                }
                std::future::pending::<()>().await;
            }
        });
        world.restart(attacker, |_| std::future::pending());
        world.run_for(SECOND);
        Victim { world, node, attacker, address, authority, tls }
    }

    /// Connects as this node and sends the hello. Returns the answer, or `None` if there was none.
    fn call(&self, as_node: u16, hello: Hello) -> (Option<Hello>, Wire) {
        let address = self.address;
        let configs = || Configs::new(&self.authority.issue(NodeId(as_node)).unwrap()).unwrap();
        let tls = self.tls.then(configs);
        self.world.block_on(self.attacker, CoreId(0), move || async move {
            let mut wire = Wire::new(Stream::connect(address, SECOND).await.unwrap(), Versions::CURRENT);
            let preamble =
                Preamble { versions: Versions::CURRENT, purpose: Purpose::Link, tls: tls.is_some() };
            wire.send(&preamble.encode()).await.unwrap();
            if let Some(tls) = tls {
                wire.start_tls(tls.client(NodeId(1)).unwrap()).await.unwrap();
            }
            wire.send(&hello.encode()).await.unwrap();
            let Ok(opening) = wire.receive().await else { return (None, wire) };
            (Hello::read(&mut wire, opening).await.unwrap(), wire)
        })
    }

    fn refusal(&self, as_node: u16, hello: Hello) -> Option<Refusal> {
        let (answer, _) = self.call(as_node, hello);
        answer.and_then(|hello| hello.refusal)
    }

    /// How often a link came up on core 0, and went down.
    fn counts(&self) -> (usize, usize) {
        // Not so long that a silent link ends.
        self.world.run_for(SECOND / 10);
        self.world.block_on(self.node, CoreId(0), || async {
            let count = rt::local::<Count>().unwrap();
            (count.ups.get(), count.downs.get())
        })
    }
}

#[test]
fn a_node_with_the_certificate_of_another_is_refused() {
    let victim = Victim::new(true);
    assert_eq!(victim.refusal(3, HELLO), Some(Refusal::Certificate));
    assert_eq!(victim.refusal(2, HELLO), None);
    assert_eq!(victim.counts(), (0, 0));
}

#[test]
fn a_hello_that_names_no_link_is_refused() {
    let victim = Victim::new(false);
    let refusal = |hello| victim.refusal(2, hello).unwrap();
    assert_eq!(refusal(Hello { number: 1, ..HELLO }), Refusal::Name);
    assert_eq!(refusal(Hello { role: Role::Replication, number: 2, ..HELLO }), Refusal::Name);
    assert_eq!(refusal(Hello { from: NodeId(4), ..HELLO }), Refusal::Membership);
    assert_eq!(refusal(Hello { from: NodeId(1), ..HELLO }), Refusal::Membership);
    assert_eq!(refusal(Hello { to: NodeId(3), ..HELLO }), Refusal::OtherNode);
    assert_eq!(refusal(Hello { cluster: ClusterId([0; 16]), ..HELLO }), Refusal::Cluster);
    // An unencrypted preamble may say anything: only what is sent inside TLS counts.
    let versions = Versions::new(Versions::CURRENT.max() + 1, u8::MAX).unwrap();
    let protocol = Protocol { versions, ..HELLO.protocol };
    assert_eq!(refusal(Hello { protocol, ..HELLO }), Refusal::Version);
    assert_eq!(victim.counts(), (0, 0));
}

#[test]
fn a_link_is_up_after_the_verdict_and_an_older_attempt_does_not_replace_it() {
    let victim = Victim::new(false);
    let agree = |hello: Hello| {
        let (answer, mut wire) = victim.call(2, hello);
        assert_eq!(answer.map(|answer| (answer.refusal, answer.attempt)), Some((None, hello.attempt)));
        let before = victim.counts();
        let wire = victim.world.block_on(victim.attacker, CoreId(0), move || async move {
            wire.send(&hello.encode()).await.unwrap();
            wire
        });
        (before, victim.counts(), wire)
    };
    let (before, after, _first) = agree(Hello { attempt: 7, ..HELLO });
    assert_eq!((before, after), ((0, 0), (1, 0)));
    let (_, after, _older) = agree(Hello { attempt: 6, ..HELLO });
    assert_eq!(after, (1, 0));
    let (_, after, _newer) = agree(Hello { attempt: 8, ..HELLO });
    assert_eq!(after, (2, 1));
    // A connection of an earlier life was under way when the later life was seen.
    let (answer, mut late) = victim.call(2, HELLO);
    assert_eq!(answer.and_then(|answer| answer.refusal), None);
    let (_, after, _later_life) = agree(Hello { incarnation: Incarnation(2), ..HELLO });
    assert_eq!(after, (3, 2));
    victim.world.block_on(victim.attacker, CoreId(0), move || async move {
        late.send(&HELLO.encode()).await.unwrap()
    });
    assert_eq!(victim.counts(), (3, 2));
    assert_eq!(victim.refusal(2, HELLO), Some(Refusal::Incarnation));
}

#[test]
fn a_second_hello_that_differs_from_the_first_decides_nothing() {
    let victim = Victim::new(false);
    let (_, mut wire) = victim.call(2, HELLO);
    let another = Hello { from: NodeId(3), ..HELLO };
    victim.world.block_on(victim.attacker, CoreId(0), move || async move {
        wire.send(&another.encode()).await.unwrap();
        assert!(matches!(wire.receive::<1>().await, Err(WireError::Closed | WireError::Io(_))));
    });
    assert_eq!(victim.counts(), (0, 0));
}
