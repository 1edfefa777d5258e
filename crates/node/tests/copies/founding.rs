//! A node creates a cluster at its first start, and lets others join when it is asked to. Its process ends in
//! the middle of it.

use cluster::memory::Fault;
use node::access::{HostGroup, HostName};
use node::control::{Role, User, UserChange};

use super::*;

const TARGETS: usize = 20;

fn user(name: &str) -> User {
    User { name: name.into(), role: Role::Admin, password: "a hash".into(), stamp: 1, created: 0 }
}

/// A single node with its objects, and the record of its cluster.
fn single(seed: u64) -> Cluster {
    let node = Cluster::stopped(seed, 1, 1, &Config::default());
    node.start(0);
    make_everything(&node);
    node
}

fn make_everything(node: &Cluster) {
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
}

fn has_everything(node: &Cluster) -> bool {
    node.control(0, |control| async move {
        let access = control.access();
        let hosts = access.hosts().filter(|host| !host.is_built_in()).count();
        let targets = access.targets().count();
        targets == TARGETS && hosts == 1 && control.users().len() == 1 && control.is_set_up() == Some(true)
    })
}

#[test]
fn a_first_start_ends_at_any_moment_and_the_next_one_has_a_cluster() {
    let (mut before, mut after) = (0, 0);
    for cut in 0..60 {
        let node = Cluster::stopped(cut, 1, 1, &Config::default());
        drop(node.begin_start(0));
        node.world.run_for(Duration::from_micros(100 * cut * cut));
        node.world.crash(node.servers[0]);
        node.start(0);
        let place = || node.control(0, |control| async move { control.place().unwrap() });
        let begun = place();
        assert!(begun.is_private() && begun.node == 1, "cut {cut}: {begun:?}");
        // The life that has ended counts if the node has been in the cluster.
        match begun.incarnation {
            1 => before += 1,
            _ => after += 1,
        }
        let set_up = node.control(0, |control| async move { control.is_set_up() });
        assert_eq!(set_up, Some(false), "cut {cut}: its record can be read at once");
        make_everything(&node);
        node.world.crash(node.servers[0]);
        node.start(0);
        assert!(has_everything(&node), "cut {cut}");
        assert_eq!(place().cluster, begun.cluster, "cut {cut}");
    }
    assert!(before > 0 && after > 0, "before {before}, after {after}");
}

/// It leaves without the others, and hosts reach the volume that only it has as before.
#[test]
fn a_node_that_leaves_its_cluster_has_one_of_its_own_whenever_it_crashes() {
    let name = Shape::thick().name;
    for cut in 0..20 {
        let cluster = Cluster::new(cut, 2, 1);
        cluster.control(1, move |control| async move {
            control.create_volume(new_volume(POOL, Shape::thick())).await.unwrap();
            map(&control, name, 0).await.unwrap();
        });
        // Until it has saved the rules.
        cluster.world.run_for(Duration::from_secs(10));
        cluster.record.begin(cluster::NodeId::new(2).unwrap(), Fault::Unreachable);
        cluster.control(1, |control| async move { control.leave_cluster().await.unwrap() });
        cluster.world.crash(cluster.servers[1]);
        drop(cluster.begin_start(1));
        cluster.world.run_for(Duration::from_micros(500 * cut * cut));
        cluster.world.crash(cluster.servers[1]);
        cluster.start(1);
        let place = cluster.control(1, |control| async move { control.place().unwrap() });
        assert!(place.is_private() && !place.leave && place.cluster != CLUSTER, "cut {cut}: {place:?}");
        let maps = cluster.control(1, move |control| async move { control.volume(name).unwrap().maps });
        assert_eq!(maps, [(TARGET.to_owned(), 0, "any".to_owned())], "cut {cut}");
        let (client, portal) = (cluster.client("host"), cluster.portal(1));
        cluster.world.block_on(client, CoreId(0), move || async move {
            let session = log_in(portal, "host").await.unwrap();
            write(&session, 0, 1).await.unwrap();
        });
        // It is in the record of its own cluster.
        let is_recorded = || {
            cluster.control(1, move |control| async move {
                control.reconciler().is_ok_and(|reconciler| reconciler.volume_named(name).is_some())
            })
        };
        assert!(cluster.world.run_until(is_recorded, Duration::from_secs(10)), "cut {cut}");
    }
}

/// The record of its own cluster takes no changes at first.
#[test]
fn a_node_that_has_left_acts_by_the_rules_that_it_kept_until_its_own_record_has_them() {
    let name = Shape::thick().name;
    let cluster = Cluster::new(1, 2, 1);
    let RecordEngine::Memories(Memories { founded, .. }) = &cluster.configs[1].record else {
        panic!("it can create a cluster")
    };
    let (founded, me) = (founded.clone(), cluster::NodeId::new(1).unwrap());
    let store = founded.store(me);
    cluster.control(1, move |control| async move {
        control.create_volume(new_volume(POOL, Shape::thick())).await.unwrap();
        map(&control, name, 0).await.unwrap();
        // The record is not empty, so the node acts by it.
        let other = cluster::Transaction::new(1).put("other", b"1".to_vec());
        store.cas(other, Duration::from_secs(1)).await.unwrap();
    });
    // Until it has saved the rules.
    cluster.world.run_for(Duration::from_secs(10));
    cluster.record.begin(cluster::NodeId::new(2).unwrap(), Fault::Unreachable);
    cluster.control(1, |control| async move { control.leave_cluster().await.unwrap() });
    cluster.world.crash(cluster.servers[1]);
    founded.begin(me, Fault::RequestsLost);
    cluster.start(1);
    let maps = || cluster.control(1, move |control| async move { control.volume(name).unwrap().maps });
    let known = [(TARGET.to_owned(), 0, "any".to_owned())];
    cluster.world.run_for(Duration::from_secs(10));
    assert_eq!(maps(), known);
    founded.end(me, Fault::RequestsLost);
    let is_taken_over = || founded.value(&format!("target/{TARGET}")).is_some();
    assert!(cluster.world.run_until(is_taken_over, Duration::from_secs(30)));
    cluster.world.run_for(Duration::from_secs(1));
    assert_eq!(maps(), known);
}

/// Only its addresses are new, in the life that has begun.
#[test]
fn a_node_listens_for_others_when_it_is_asked_to() {
    let (mut before, mut after) = (0, 0);
    for cut in 0..30 {
        let node = single(cut);
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
        let listens = node.control(0, |control| async move { control.reconciler().unwrap().addresses() });
        assert_eq!(listens, wanted, "cut {cut}");
        let again =
            node.control(0, move |control| async move { control.init_cluster(wanted).await.is_err() });
        assert!(again, "it is in a cluster that others can join");
    }
    assert!(before > 0 && after > 0, "before {before}, after {after}");
}
