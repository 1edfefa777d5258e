//! What nodes report about the links between them.

use base::Chain;
use link::Frame;
use node::control::{FaultKind, LinkStatus};
use node::copies::{self, Address, Copies};
use rt::sim::NetProfile;

use super::*;

impl Cluster {
    fn links(&self, index: usize) -> Vec<LinkStatus> {
        self.control(index, |control| async move { control.links().await.unwrap() })
    }

    /// The nodes to which all links of a node are up.
    fn linked_with(&self, index: usize) -> Vec<u16> {
        let links = self.links(index).into_iter();
        let whole = links.filter(|link| link.control.is_whole() && link.replication.is_whole());
        whole.map(|link| link.peer).collect()
    }

    fn faults(&self, index: usize) -> Vec<FaultKind> {
        self.control(index, |control| async move {
            control.faults().into_iter().map(|fault| fault.kind).collect()
        })
    }

    /// The nodes from which a node receives nothing, and the nodes that reach them.
    fn not_heard(&self, index: usize) -> Vec<(u16, Vec<u16>)> {
        let nodes = self.control(index, |control| async move { control.nodes().await.unwrap() });
        let not_heard = nodes.into_iter().filter(|node| !node.up);
        not_heard.map(|node| (node.entry.id, node.reached_by)).collect()
    }
}

#[test]
fn a_cut_between_two_of_three_nodes_is_reported_by_both() {
    each_seed(3, |seed| {
        let cluster = Cluster::new(seed, 3, 2);
        let linked = || [0, 1, 2].map(|index| cluster.linked_with(index));
        assert_eq!(linked(), [[2, 3], [1, 3], [1, 2]]);
        let link = &cluster.links(1)[1];
        assert_eq!((link.control.up, link.control.of), (1, 1));
        assert_eq!((link.replication.up, link.replication.of), (2, 2));
        let address = cluster.world.address(cluster.servers[2]);
        assert_eq!(link.control.addresses, [address].into());
        assert_eq!(link.replication.addresses, [address].into());

        cluster.world.cut(cluster.servers[1], cluster.servers[2]);
        cluster.world.run_for(Duration::from_secs(5));
        assert_eq!(linked(), [vec![2, 3], vec![1], vec![1]]);
        for (index, at) in [(1, 1), (2, 1)] {
            let link = &cluster.links(index)[at];
            assert_eq!((link.control.up, link.control.of), (0, 1), "{link:?}");
            assert_eq!((link.replication.up, link.replication.of), (0, 2), "{link:?}");
            for links in [&link.control, &link.replication] {
                let silence = links.silence.expect("it was heard of");
                let lately = Duration::from_secs(4)..Duration::from_secs(6);
                assert!(lately.contains(&silence) && links.age.is_none(), "{link:?}");
            }
            assert_eq!(link.silent_cores, [0; 0]);
        }

        // Links may be under construction.
        assert_eq!(cluster.faults(1), []);
        cluster.world.run_for(Duration::from_secs(10));
        assert_eq!(cluster.faults(0), [], "it reaches both");
        for (index, other) in [(1, 3), (2, 2)] {
            let cut_off = FaultKind::NodeCutOff { node: other, heard: false, reached_by: vec![1] };
            assert_eq!(cluster.faults(index), [cut_off]);
            assert_eq!(cluster.not_heard(index), [(other, vec![1])]);
        }
        assert!(cluster.not_heard(0).is_empty());

        cluster.world.heal_all();
        let healed = || linked() == [[2, 3], [1, 3], [1, 2]];
        assert!(cluster.world.run_until(healed, Duration::from_secs(30)));
        // Links may be built on this network, which may be dead a moment later.
        cluster.world.run_for(Duration::from_secs(1));
        assert_eq!([0, 1, 2].map(|index| cluster.faults(index).len()), [0, 1, 1]);
        cluster.world.run_for(Duration::from_secs(6));
        assert_eq!([0, 1, 2].map(|index| cluster.faults(index).len()), [0; 3]);
    });
}

#[test]
fn links_to_a_node_that_is_down_are_not_reported() {
    each_seed(3, |seed| {
        let cluster = Cluster::new(seed, 3, 2);
        cluster.world.crash(cluster.servers[2]);
        for _ in 0..20 {
            cluster.world.run_for(Duration::from_secs(1));
            assert_eq!([0, 1].map(|index| cluster.faults(index)), [const { Vec::new() }; 2]);
            assert_eq!(cluster.not_heard(0), [(3, Vec::<u16>::new())], "nobody reaches it");
        }
        cluster.start(2);
        for _ in 0..20 {
            cluster.world.run_for(Duration::from_secs(1));
            assert_eq!([0, 1, 2].map(|index| cluster.faults(index)), [const { Vec::new() }; 3]);
        }
    });
}

#[test]
fn a_frame_of_a_kind_that_a_node_does_not_know_costs_no_link() {
    each_seed(3, |seed| {
        let cluster = Cluster::new(seed, 2, 2);
        cluster.world.run_for(Duration::from_secs(2));
        // As a later version might send it: on the control link, and on one for data.
        cluster.control(0, |_| async {
            let copies = Copies::current();
            let nothing = || Frame { channel: 7, kind: 200, head: vec![1; 10], payload: Chain::new() };
            copies.reconciler().unwrap().send_frame(copies::NodeId(2), nothing());
            let slice = Address { volume: 0, slice: 1 };
            copies.send(copies::NodeId(2), 200, slice, vec![1; 10], Chain::new());
        });
        cluster.world.run_for(Duration::from_secs(2));
        for index in [0, 1] {
            let links = cluster.links(index);
            let [link] = links.as_slice() else { panic!("{links:?}") };
            for links in [&link.control, &link.replication] {
                assert!(links.is_whole() && links.age > Some(Duration::from_secs(3)), "{link:?}");
            }
        }
    });
}

/// The answers to requests for leases wait for what is sent next, which is soon enough.
#[test]
fn in_peace_each_node_always_has_leases_that_last() {
    each_seed(3, |seed| {
        let cluster = Cluster::new(seed, 3, 1);
        cluster.world.set_net_profile(NetProfile { spike_one_in: 0, ..NetProfile::default() });
        cluster.world.run_for(Duration::from_secs(5));
        for turn in 0..200 {
            cluster.world.run_for(Duration::from_micros(19_700));
            let has = cluster.control(turn % 3, |_| async {
                // Without an answer that had waited, a node would request one at once only when half a
                // second is left.
                let (here, soon) = (Copies::current(), rt::now() + Duration::from_millis(750));
                let others = [1, 2, 3].map(copies::NodeId).into_iter().filter(|node| *node != here.me());
                here.holds_all(soon, others)
            });
            assert!(has, "in turn {turn}");
        }
    });
}
