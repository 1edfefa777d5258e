//! A node with targets, hosts and users creates a cluster, and its process ends in the middle of it.
//!
//! After its restart it is in no cluster, or the cluster has all of them; nothing was lost.

use node::access::{HostGroup, HostName};
use node::control::{ControlError, Role, User, UserChange};

use super::*;

/// More than one transaction of the cluster's record can have.
const TARGETS: usize = 120;

fn user(name: &str) -> User {
    User { name: name.into(), role: Role::Admin, password: "a hash".into(), stamp: 1, created: 0 }
}

/// A single node with its objects, and the record that its cluster will have.
fn alone(seed: u64) -> Cluster {
    single(seed, false)
}

/// The same. If it `founds`, the node has been in a cluster from its first start.
fn single(seed: u64, founds: bool) -> Cluster {
    let world = World::new(seed);
    let memory = cluster::memory::Memory::new(cluster::NodeId::new(1));
    let server = world.add_machine("server-1", 1);
    let portal = SocketAddr::new(world.address(server), 3260);
    let record = RecordEngine::Memory(memory.clone());
    let config =
        Config { data_dir: "/ursa".into(), portals: vec![portal], record, founds, ..Config::default() };
    let node =
        Cluster { world, servers: vec![server], configs: vec![Arc::new(config)], cores: 1, record: memory };
    node.start(0);
    node.control(0, |control| async move {
        for number in 0..TARGETS {
            let name = format!("iqn.2026-01.org.ursa:{number}");
            control.create_target(TargetSpec { name, alias: None, chap: None }).await.unwrap();
        }
        let name: HostName = "h1".parse().unwrap();
        let host = HostGroup { name, initiators: Vec::new(), addresses: Vec::new(), chap: None };
        control.set_host(host, true).await.unwrap();
        control.change_user(UserChange::First(user("alice"))).await.unwrap();
    });
    node
}

fn has_everything(node: &Cluster) -> bool {
    node.control(0, |control| async move {
        let access = control.access();
        let hosts = access.hosts().filter(|host| !host.is_built_in()).count();
        let targets = access.targets().count();
        targets == TARGETS && hosts == 1 && control.users().len() == 1 && control.is_set_up() == Some(true)
    })
}

/// The node is in its new cluster, and cannot follow the record yet.
///
/// Before, it took itself for a node without a cluster until its next start. Its users were in the cluster's
/// record by then: somebody else could have become the first one, in a record that nobody reads any more.
#[test]
fn a_founder_that_cannot_follow_its_record_yet_tries_again() {
    let node = alone(1);
    let store = node.record.store(cluster::NodeId::new(1).unwrap());
    let watches = node.control(0, move |_| async move {
        let mut watches = Vec::new();
        while let Ok(watch) = store.watch(cluster::Revision(0), Duration::from_secs(1)).await {
            watches.push(watch);
        }
        watches
    });
    let listen = vec![SocketAddr::new(node.world.address(node.servers[0]), LINK_PORT)];
    node.control(0, move |control| async move { control.init_cluster(listen).await.unwrap_err() });
    let added = node.control(0, |control| async move {
        assert!(control.place().is_some() && control.cluster_failure().is_some());
        assert_eq!(control.is_set_up(), None, "the users are in the record, which cannot be read");
        control.change_user(UserChange::First(user("mallory"))).await
    });
    assert!(matches!(added, Err(ControlError::ClusterFailed(_))), "{added:?}");
    drop(watches);
    let there = (0..200).any(|_| {
        node.world.run_for(Duration::from_millis(100));
        has_everything(&node)
    });
    assert!(there);
    let failure = node.control(0, |control| async move { control.cluster_failure() });
    assert!(failure.is_none(), "{failure:?}");
}

#[test]
fn the_objects_of_a_founder_survive_its_crash_at_any_moment() {
    let (mut before, mut between, mut after) = (0, 0, 0);
    for cut in 0..60 {
        let node = alone(cut);
        let listen = vec![SocketAddr::new(node.world.address(node.servers[0]), LINK_PORT)];
        let done = Rc::new(Cell::new(false));
        let told = Rc::clone(&done);
        let made = node.world.spawn_on(node.servers[0], CoreId(0), move || async move {
            Control::current().init_cluster(listen).await.unwrap();
            told.set(true);
        });
        node.world.run_for(Duration::from_micros(100 * cut * cut));
        drop(made);
        let was_done = done.get();
        node.world.crash(node.servers[0]);
        // This is written last.
        let is_filled = node.record.value("users-set-up").is_some();
        node.start(0);
        let in_cluster = node.control(0, |control| async move { control.place().is_some() });
        assert!(is_filled || !in_cluster, "cut {cut}: the record has everything before the node is in it");
        match (in_cluster, was_done) {
            (false, _) => before += 1,
            (true, false) => between += 1,
            (true, true) => after += 1,
        }
        let there = (0..100).any(|_| {
            node.world.run_for(Duration::from_millis(100));
            has_everything(&node)
        });
        assert!(there, "cut {cut}");
        // What is deleted now stays deleted.
        node.control(0, |control| async move {
            control.delete_target("iqn.2026-01.org.ursa:7", false).await.unwrap();
        });
        node.world.crash(node.servers[0]);
        node.start(0);
        node.world.run_for(Duration::from_secs(3));
        let targets = node.control(0, |control| async move { control.access().targets().count() });
        assert_eq!(targets, TARGETS - 1, "cut {cut}");
    }
    assert!(before > 0 && between + after > 0, "before {before}, in between {between}, after {after}");
}

/// Only its addresses are new, in the life that has begun.
#[test]
fn a_node_that_has_a_cluster_from_its_first_start_listens_when_it_is_asked_to() {
    let (mut before, mut after) = (0, 0);
    for cut in 0..30 {
        let node = single(cut, true);
        let place = || node.control(0, |control| async move { control.place().unwrap() });
        let begun = place();
        assert_eq!((begun.node, begun.incarnation, begun.listen.len()), (1, 1, 0));
        assert!(has_everything(&node), "in the record of its cluster");
        let listen = vec![SocketAddr::new(node.world.address(node.servers[0]), LINK_PORT)];
        let wanted = listen.clone();
        drop(node.world.spawn_on(node.servers[0], CoreId(0), move || async move {
            Control::current().init_cluster(listen).await.unwrap();
        }));
        node.world.run_for(Duration::from_micros(100 * cut * cut));
        node.world.crash(node.servers[0]);
        node.start(0);
        let now = place();
        assert_eq!((&now.cluster, now.node, now.incarnation), (&begun.cluster, 1, 2), "cut {cut}");
        match now.listen == wanted {
            true => after += 1,
            false => before += 1,
        }
        let there = (0..100).any(|_| {
            node.world.run_for(Duration::from_millis(100));
            has_everything(&node)
        });
        assert!(there, "cut {cut}");
        if now.listen.is_empty() {
            let wanted = wanted.clone();
            node.control(0, move |control| async move { control.init_cluster(wanted).await.unwrap() });
        }
        let listens = node.control(0, |control| async move { control.keeper().unwrap().addresses() });
        assert_eq!(listens, wanted, "cut {cut}");
        let again =
            node.control(0, move |control| async move { control.init_cluster(wanted).await.is_err() });
        assert!(again, "it is in a cluster that others can join");
    }
    assert!(before > 0 && after > 0, "before {before}, after {after}");
}
