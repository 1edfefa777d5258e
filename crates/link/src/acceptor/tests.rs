//! Who connects and does not do as a node of ours would.

use std::net::SocketAddr;
use std::time::Duration;

use replica::{Incarnation, NodeId};
use rt::sim::World;
use rt::{CoreId, Stream};

use super::*;
use crate::tls::Configs;
use crate::{
    ClusterAuthority, ClusterId, Frame, Handler, Limits, Link, Links, NodeCredentials, Peer, Role, Settings,
};

const CLUSTER: ClusterId = ClusterId([7; 16]);
const SECOND: Duration = Duration::from_secs(1);

/// Gets no link.
struct Nobody;

impl Handler for Nobody {
    fn up(&self, link: Rc<Link>) {
        panic!("{link:?}");
    }

    fn down(&self, _: LinkName) {}

    fn frame(&self, _: &Rc<Link>, _: Frame) {}
}

/// What an attacker says after TLS, if there is any.
type Attack = fn(Hello) -> Hello;

/// Node 1 with members 2 and 3 is called with these credentials and hello; gives its answer's refusal, or `None` if it closed without one.
fn attack(credentials: Option<fn(&ClusterAuthority) -> NodeCredentials>, change: Attack) -> Option<Refusal> {
    let world = World::new(1);
    let authority = ClusterAuthority::create(CLUSTER).unwrap();
    let (victim, attacker) = (world.add_machine("victim", 2), world.add_machine("attacker", 1));
    let address = SocketAddr::new(world.address(victim), 3261);
    let settings = Settings {
        me: NodeId(1),
        cluster: CLUSTER,
        incarnation: Incarnation(1),
        listen: vec![address],
        tls: credentials.is_some().then(|| authority.issue(NodeId(1)).unwrap()),
        limits: Limits::default(),
    };
    let settings = Rc::new(std::cell::Cell::new(Some(settings)));
    world.restart(victim, move |core| {
        let settings = Rc::clone(&settings);
        async move {
            if core == CoreId(0) {
                let links = Links::start(settings.take().unwrap(), || Rc::new(Nobody)).await.unwrap();
                let peer = |id| Peer { id: NodeId(id), addresses: Vec::new() };
                links.set_peers(vec![peer(2), peer(3)]);
                rt::set_local(Rc::new(links));
            }
            std::future::pending::<()>().await;
        }
    });
    world.restart(attacker, |_| std::future::pending());
    world.run_for(SECOND);
    let hello = change(Hello {
        role: Role::Control,
        number: 0,
        refusal: None,
        cluster: CLUSTER,
        from: NodeId(2),
        to: NodeId(1),
        cores: 1,
        incarnation: Incarnation(1),
        attempt: 1,
    });
    let tls = credentials.map(|credentials| Configs::new(&credentials(&authority)).unwrap());
    let answer = world.block_on(attacker, CoreId(0), move || async move {
        let mut wire = Wire::new(Stream::connect(address, SECOND).await.unwrap());
        let preamble = Preamble { purpose: Purpose::Link, tls: tls.is_some() };
        wire.send(&preamble.encode()).await.unwrap();
        if let Some(tls) = tls {
            wire.start_tls(tls.client(NodeId(1)).unwrap()).await.unwrap();
        }
        wire.send(&hello.encode()).await.unwrap();
        let opening = wire.receive().await.ok()?;
        Hello::read(&mut wire, opening).await.unwrap().unwrap().refusal
    });
    world.run_for(SECOND);
    answer
}

#[test]
fn a_node_with_the_certificate_of_another_is_refused() {
    let as_three: fn(&ClusterAuthority) -> NodeCredentials = |authority| authority.issue(NodeId(3)).unwrap();
    assert_eq!(attack(Some(as_three), |hello| hello), Some(Refusal::Certificate));
}

#[test]
fn a_hello_that_names_no_link_is_refused() {
    let refusal = |change: Attack| attack(None, change).unwrap();
    assert_eq!(refusal(|hello| Hello { number: 1, ..hello }), Refusal::Name);
    assert_eq!(refusal(|hello| Hello { role: Role::Replication, number: 2, ..hello }), Refusal::Name);
    assert_eq!(refusal(|hello| Hello { from: NodeId(4), ..hello }), Refusal::Membership);
    assert_eq!(refusal(|hello| Hello { from: NodeId(1), ..hello }), Refusal::Membership);
    assert_eq!(refusal(|hello| Hello { to: NodeId(3), ..hello }), Refusal::OtherNode);
    assert_eq!(refusal(|hello| Hello { cluster: ClusterId([0; 16]), ..hello }), Refusal::Cluster);
    // A hello without its verdict is no link.
    assert_eq!(attack(None, |hello| hello), None);
}
