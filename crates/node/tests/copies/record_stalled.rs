//! A node that cannot write its copy of the cluster's record because its disk is full.
//!
//! It does not know which hosts may log in by now, and after a change of the record it does not know whether
//! its copies are still in sync: its hosts use their other paths.

use cluster::embedded::Files;
use cluster::memory::Fault;
use node::control::{ControlError, FaultKind, Member, Stall};
use node::copies::{NodeEntry, node_key};
use node::member::{Reconciler, json};

use super::*;

/// How long such a node lets hosts log in: `LOGINS_WITHIN`.
const LOGINS_WITHIN: Duration = Duration::from_secs(180);
/// From a change of the node's disk until all nodes know.
const KNOWN_WITHIN: Duration = Duration::from_secs(5);
const CLUSTER: u128 = 0x0123_4567_89ab_cdef_0123_4567_89ab_cdef;
const STALLED: usize = 2;

/// Nodes of which the first three vote, each with a file of the record.
fn with_files(seed: u64, nodes: u16) -> (Cluster, Files) {
    let numbers: Vec<cluster::NodeId> = (1..=nodes).filter_map(cluster::NodeId::new).collect();
    let files = Files::new(CLUSTER, &numbers[..1], &numbers[1..]);
    let world = World::new(seed);
    let servers: Vec<NodeId> =
        (1..=nodes).map(|number| world.add_machine(&format!("server-{number}"), 2)).collect();
    let link = |server: &NodeId| vec![SocketAddr::new(world.address(*server), LINK_PORT)];
    let members: Vec<Member> =
        (1..).zip(&servers).map(|(node, server)| Member { node, addresses: link(server) }).collect();
    let configs = servers.iter().zip(&members).map(|(server, member)| {
        let portals = vec![SocketAddr::new(world.address(*server), 3260)];
        let record = RecordEngine::Simulated(files.clone());
        let first_place = Some(Place {
            cluster: format!("{CLUSTER:032x}"),
            node: member.node,
            listen: member.addresses.clone(),
            witness: false,
            record: RecordPlace::Nodes,
            force_new: false,
            leave: false,
            incarnation: 0,
            members: members.clone(),
        });
        Arc::new(Config { data_dir: "/ursa".into(), portals, record, first_place, ..Config::default() })
    });
    let configs = configs.collect();
    let record = cluster::memory::Memory::new(numbers);
    let cluster = Cluster { world, servers, configs, cores: 2, record };
    for index in 0..usize::from(nodes) {
        cluster.start(index);
        cluster.add_pool(index, POOL, DISK);
        if index == 0 {
            let others = members[1..].to_vec();
            cluster.control(0, move |control| async move { let_in(&control, &others).await });
        }
    }
    let all_up = move |control: Rc<Control>| async move {
        let known = control.nodes().await.unwrap();
        known.len() == usize::from(nodes) && known.iter().all(|node| node.up)
    };
    let ready = || cluster.control(0, all_up) && cluster.voters() == [1, 2, 3];
    assert!(until(&cluster, ready), "three nodes that vote");
    cluster.control(0, |control| async move {
        let name = TARGET.to_owned();
        control.create_target(TargetSpec { name, alias: None, chap: None }).await.unwrap();
    });
    (cluster, files)
}

/// Adds members, as if they had joined with a token.
async fn let_in(control: &Control, members: &[Member]) {
    let entry = |member: &Member| NodeEntry {
        id: member.node,
        name: format!("server-{}", member.node),
        addresses: member.addresses.clone(),
        portals: Vec::new(),
        portal_group: member.node,
        identity: String::new(),
        witness: false,
        incarnation: 0,
        version: None,
        authority: false,
        cores: None,
        started: None,
        start: 0,
    };
    let put = |transaction: cluster::Transaction, member: &Member| {
        transaction.put(&node_key(replica::NodeId(member.node)), json(&entry(member)))
    };
    let transaction = members.iter().fold(Reconciler::transaction(), put);
    control.reconciler().unwrap().commit(transaction).await.unwrap();
}

fn until(cluster: &Cluster, is_so: impl Fn() -> bool) -> bool {
    (0..300).any(|_| {
        cluster.world.run_for(Duration::from_millis(100));
        is_so()
    })
}

impl Cluster {
    fn lets_in(&self, index: usize, name: &'static str) -> bool {
        let (client, portal) = (self.client(name), self.portal(index));
        self.world.block_on(client, CoreId(0), move || async move {
            Session::connect(portal, TARGET, &named(name)).await.is_ok()
        })
    }

    /// Makes a change of the record, which all nodes would have to write.
    fn change_record(&self) {
        self.control(0, |control| async move {
            let name = "iqn.2026-01.org.ursa:other".to_owned();
            control.create_target(TargetSpec { name, alias: None, chap: None }).await.unwrap();
        });
    }

    /// The numbers of the nodes that vote.
    fn voters(&self) -> Vec<u16> {
        self.control(0, |control| async move {
            let nodes = control.nodes().await.unwrap();
            nodes.iter().filter(|node| node.votes).map(|node| node.entry.id).collect()
        })
    }

    /// The stall of the full node's copy of the record, as a node sees it.
    fn stall_seen_by(&self, index: usize) -> Option<Stall> {
        self.control(index, |control| async move { control.nodes().await.unwrap()[STALLED].stalled })
    }
}

#[test]
fn a_node_that_cannot_follow_the_record_refuses_logins_after_a_while() {
    let (cluster, files) = with_files(1, 3);
    cluster.add_volume(VolumeKind::Thick, 3);
    cluster.wait_until_all_serve();
    let stalled = cluster::NodeId::new(STALLED as u16 + 1).unwrap();
    let longest = cluster.keep_writing("writer", 0);
    cluster.world.run_for(Duration::from_secs(1));
    files.begin(stalled, Fault::DiskFull);
    cluster.change_record();
    cluster.world.run_for(KNOWN_WITHIN);
    for index in 0..3 {
        assert_eq!(cluster.stall_seen_by(index), Some(Stall::NoSpace), "as node {} says", index + 1);
    }
    assert!(cluster.lets_in(STALLED, "early"), "a short shortage keeps nobody out");
    cluster.world.run_for(LOGINS_WITHIN);
    assert!(!cluster.lets_in(STALLED, "late"), "its access rules may be outdated");
    assert!(cluster.lets_in(0, "elsewhere"));
    assert_eq!([0, 1, 2].map(|index| cluster.serves(index)), [true, true, false]);
    longest.set(Duration::ZERO);
    cluster.world.run_for(Duration::from_secs(5));
    assert!(!longest.get().is_zero(), "hosts of the other nodes do not notice");
    let faults = cluster.control(STALLED, |control| async move { control.faults() });
    let has = |is: fn(&FaultKind) -> bool| faults.iter().any(|fault| is(&fault.kind));
    assert!(has(|kind| matches!(kind, FaultKind::RecordStalled { .. })), "{faults:?}");
    assert!(has(|kind| matches!(kind, FaultKind::LoginsRefused)), "{faults:?}");

    files.end(stalled, Fault::DiskFull);
    cluster.world.run_for(KNOWN_WITHIN);
    assert!(cluster.lets_in(STALLED, "again"), "it knows the record again");
    assert_eq!([0, 1, 2].map(|index| cluster.stall_seen_by(index)), [None; 3]);
    cluster.wait_until_all_serve();
}

/// Of three voters, one cannot write its copy of the record. If another one were removed, two would be left,
/// and one of them is no majority.
#[test]
fn a_node_is_not_removed_if_the_vote_of_another_is_missing() {
    let (cluster, files) = with_files(1, 3);
    let stalled = STALLED as u16 + 1;
    let check = |number: u16| {
        cluster.control(0, move |control| async move { control.check_removal(number).await.map(drop) })
    };
    assert!(check(2).is_ok(), "all votes are there");
    files.begin(cluster::NodeId::new(stalled).unwrap(), Fault::DiskFull);
    cluster.change_record();
    cluster.world.run_for(KNOWN_WITHIN);
    assert_eq!(cluster.stall_seen_by(0), Some(Stall::NoSpace));
    assert!(matches!(check(2), Err(ControlError::NodeNeeded(2))));
    assert!(check(stalled).is_ok(), "its vote is missing already");
}

/// Of four nodes, three vote. The one that cannot write its copy of the record gives its vote to the fourth,
/// and does not take it back.
#[test]
fn a_stalled_voter_is_replaced() {
    let (cluster, files) = with_files(1, 4);
    let stalled = cluster::NodeId::new(STALLED as u16 + 1).unwrap();
    files.begin(stalled, Fault::DiskFull);
    cluster.change_record();
    cluster.world.run_for(KNOWN_WITHIN);
    assert_eq!(cluster.stall_seen_by(0), Some(Stall::NoSpace));
    assert!(until(&cluster, || cluster.voters() == [1, 2, 4]), "{:?} vote", cluster.voters());

    files.end(stalled, Fault::DiskFull);
    cluster.world.run_for(2 * KNOWN_WITHIN);
    assert_eq!(cluster.stall_seen_by(0), None);
    assert_eq!(cluster.voters(), [1, 2, 4], "voters are not replaced without need");
}
