//! Two nodes with two networks.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use link::Role;
use rt::sim::NetProfile;

use super::{CORE, Cluster, Node, PORT, SECOND, control, replication, settings};
use crate::recorder::{HandlerCall, link};

struct Networks {
    cluster: Cluster,
    /// The addresses of the nodes on the first network, and those on the second.
    first: [IpAddr; 2],
    second: [IpAddr; 2],
}

impl Networks {
    /// The nodes listen on both networks; the node that connects knows only the first.
    fn new(seed: u64) -> Networks {
        let cluster = Cluster::new(seed, &[1, 1]);
        // Retransmission of lost packets may take longer than a control link may be silent.
        cluster.world.set_net_profile(NetProfile { spike_one_in: 0, ..NetProfile::default() });
        let second = [1_u8, 2].map(|number| IpAddr::from([192, 168, 7, number]));
        let first = [0, 1].map(|index: usize| cluster.world.address(cluster.nodes[index].sim));
        for (node, address) in cluster.nodes.iter().zip(second) {
            cluster.kill(node);
            cluster.world.add_address(node.sim, address);
            let mut settings = settings(node.id, cluster.world.address(node.sim), 2);
            settings.listen.push(SocketAddr::new(address, PORT));
            cluster.start_with(node, settings);
        }
        cluster.world.run_for(Duration::from_millis(1));
        Networks { cluster, first, second }
    }

    fn nodes(&self) -> [&Node; 2] {
        [&self.cluster.nodes[0], &self.cluster.nodes[1]]
    }

    /// The nodes learn what the networks are for: the second one is for data.
    fn keep(&self, first_for: Option<Role>) {
        let mut peers = self.cluster.peers();
        let [first, second] = [self.first[0], self.second[0]].map(|ip| SocketAddr::new(ip, PORT));
        peers[0].addresses = vec![(first_for, first), (Some(Role::Replication), second)];
        for node in self.nodes() {
            self.cluster.set_peers(node, peers.clone());
        }
    }

    /// The addresses that the control link and the data link use.
    fn used(&self) -> [Option<IpAddr>; 2] {
        self.cluster.on(self.nodes()[1], CORE, || {
            [control(1), replication(1, 0)].map(|name| link(name).map(|link| link.peer_address().ip()))
        })
    }

    fn cut(&self, [one, other]: [IpAddr; 2], cut: bool) {
        for (from, to) in [(one, other), (other, one)] {
            match cut {
                true => self.cluster.world.cut_addresses_one_way(from, to),
                false => self.cluster.world.heal_addresses_one_way(from, to),
            }
        }
    }

    /// How many links each node has lost.
    fn downs(&self) -> [usize; 2] {
        self.nodes().map(|node| node.log.count(|told| matches!(told, HandlerCall::Down(_))))
    }
}

#[test]
fn replication_returns_to_its_own_network_when_that_recovers() {
    let networks = Networks::new(1);
    let ([common, _], [own, _]) = (networks.first, networks.second);
    networks.cluster.settle();
    networks.keep(None);
    // The link was up before the network for it was known, and need not wait for that network.
    networks.cluster.settle();
    assert_eq!(networks.used(), [Some(common), Some(own)]);
    networks.cut(networks.second, true);
    networks.cluster.world.run_for(12 * SECOND);
    assert_eq!(networks.used(), [Some(common), Some(common)]);
    // Failed attempts do no harm.
    networks.cluster.world.run_for(100 * SECOND);
    assert_eq!(networks.used(), [Some(common), Some(common)]);
    assert_eq!(networks.downs(), [2, 2]);
    networks.cut(networks.second, false);
    networks.cluster.world.run_for(40 * SECOND);
    assert_eq!(networks.used(), [Some(common), Some(own)]);
    assert_eq!(networks.downs(), [3, 3]);
    networks.cluster.world.run_for(100 * SECOND);
    assert_eq!(networks.downs(), [3, 3]);
}

#[test]
fn a_control_link_moves_to_another_network_when_its_own_falls_silent() {
    for seed in 0..10 {
        let networks = Networks::new(seed);
        let ([beats, _], [data, _]) = (networks.first, networks.second);
        networks.keep(Some(Role::Control));
        networks.cluster.settle();
        assert_eq!(networks.used(), [Some(beats), Some(data)]);
        let before = networks.downs();
        let lost = |count| networks.downs() == before.map(|downs| downs + count);
        networks.cut(networks.first, true);
        let began = networks.cluster.world.now();
        let is_anew = || lost(1) && networks.nodes().iter().all(|node| node.log.up().len() == 2);
        assert!(networks.cluster.world.run_until(is_anew, SECOND));
        let took = networks.cluster.world.now() - began;
        assert!((SECOND / 20..SECOND / 4).contains(&took), "{took:?}");
        assert_eq!(networks.used(), [Some(data), Some(data)]);
        // Failed attempts do no harm.
        networks.cluster.world.run_for(100 * SECOND);
        assert!(lost(1));
        networks.cut(networks.first, false);
        networks.cluster.world.run_for(40 * SECOND);
        assert_eq!(networks.used(), [Some(beats), Some(data)]);
        networks.cluster.world.run_for(100 * SECOND);
        assert!(lost(2));
    }
}

#[test]
fn a_node_with_several_addresses_is_heard_often_enough_not_to_be_doubted() {
    let networks = Networks::new(5);
    networks.cluster.settle();
    let heard = || networks.cluster.signs_heard(networks.nodes()[1], [control(1)])[0];
    let often = heard();
    assert!((22..=36).contains(&often), "ten a second, since it has one address: {often}");
    networks.keep(Some(Role::Control));
    networks.cluster.settle();
    let often = heard();
    assert!((45..=70).contains(&often), "twenty a second: {often}");
}

#[test]
fn a_control_link_stays_where_it_is_when_one_of_the_nodes_has_no_time() {
    for seed in 0..10 {
        let networks = Networks::new(seed);
        networks.keep(Some(Role::Control));
        networks.cluster.settle();
        let (used, before) = (networks.used(), networks.downs());
        for (node, pause) in networks.nodes().into_iter().cycle().zip([200, 300, 500, 800, 150, 700]) {
            networks.cluster.world.pause(node.sim);
            networks.cluster.world.run_for(Duration::from_millis(pause));
            networks.cluster.world.resume(node.sim);
            networks.cluster.world.run_for(SECOND);
        }
        assert_eq!((networks.used(), networks.downs()), (used, before));
    }
}
