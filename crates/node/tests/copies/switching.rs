//! A node that is in a cluster of its own joins another one, while hosts use its volume.

use node::control::{AddedCopy, ControlError, EnterError, NewVolume};
use node::copies::{
    PoolMarkEntry, Retention, ScheduleEntry, pool_mark_key, snapshot_schedule_key, volume_key,
};
use node::member::{Reconciler, json};
use rt::sim::DiskLatency;

use super::adopting::write_in_turn;
use super::reservations::{
    about_to_join_from, crash_while_it_enters, is_conflict, log_in_again, registrants,
};
use super::*;

/// Two nodes, each without others: nodes could join the cluster of the second one.
fn in_its_own(seed: u64) -> Cluster {
    let cluster = Cluster::apart(seed, 2, 2, &Config::default(), &[512]);
    let listen = cluster.place_in_cluster(1).listen;
    cluster.control(1, move |control| async move { control.init_cluster(listen).await.unwrap() });
    cluster
}

impl Cluster {
    /// Whether the second node takes part in the cluster of the first one, by its own record.
    fn has_switched(&self) -> bool {
        let other = self.place_in_cluster(1).cluster;
        self.control(1, |control| async move { control.place().unwrap().cluster == other })
    }

    /// The names of the volumes of the cluster of the first node, in order.
    fn names(&self) -> Vec<String> {
        self.control(0, |control| async move {
            let volumes = control.reconciler().unwrap().volumes().into_iter();
            let mut names: Vec<String> = volumes.map(|volume| volume.entry.name).collect();
            names.sort();
            names
        })
    }

    /// The second node's number in the cluster in which it takes part now.
    fn takes_part_as(&self) -> Option<u16> {
        self.control(
            1,
            |control| async move { control.reconciler().ok().map(|reconciler| reconciler.me().0) },
        )
    }
}

/// Why a node has not entered a cluster.
fn refusal(entered: Result<(), ControlError>) -> EnterError {
    match entered {
        Err(ControlError::Enter(error)) => *error,
        other => panic!("{other:?}"),
    }
}

/// Hosts learn of nothing but other port numbers.
#[test]
fn a_node_leaves_its_own_cluster_for_another_one_while_hosts_use_its_volume() {
    each_seed(4, |seed| {
        let (cluster, client, session) = about_to_join_from(in_its_own(seed));
        let portal = cluster.portal(1);
        let ended = Rc::new(Cell::new(false));
        let ends = Rc::clone(&ended);
        let host = cluster.world.spawn_on(client, CoreId(0), move || async move {
            write_in_turn(&session, &ends).await;
            assert_eq!(registrants(&session).await, [(0x0201, 7)]);
        });
        cluster.world.run_for(Duration::from_millis(50));
        cluster.enter_one(1);
        assert_eq!((cluster.has_switched(), cluster.takes_part_as()), (true, Some(2)));
        // The volume gets into the record, as those of a node that has been in no cluster.
        cluster.world.run_for(Duration::from_secs(3));
        cluster.control(1, |control| async move {
            let copy = AddedCopy { node: 1, pool: None, instead_of: None };
            control.add_copy(Shape::thick().name, copy).await.unwrap();
        });
        cluster.wait_until_in_sync(0, 2);
        ended.set(true);
        cluster.world.wait_for(host).unwrap();
        cluster.world.run_for(Duration::from_millis(500));
        assert_eq!(cluster.checksum(0), cluster.checksum(1));
        let other = cluster.client("other");
        cluster.world.block_on(other, CoreId(0), move || async move {
            let session = log_in_again(portal, "other").await;
            assert!(is_conflict(&write(&session, 0, 1).await), "the reservation holds");
        });
        // After a restart it is where it was.
        cluster.world.crash(cluster.servers[1]);
        cluster.start(1);
        cluster.wait_until_all_serve();
        assert_eq!(cluster.takes_part_as(), Some(2));
    });
}

#[test]
fn a_crash_while_a_node_switches_leaves_it_in_one_of_the_clusters_and_its_volume_served() {
    let (mut old, mut new) = (0, 0);
    for cut in 0..40 {
        let (cluster, client, session) = about_to_join_from(in_its_own(cut));
        drop(session);
        // The node has saved which hosts may use the volume.
        cluster.world.run_for(Duration::from_secs(1));
        let is_new = crash_while_it_enters(&cluster, client, cut);
        let number = if is_new { 2 } else { 1 };
        match is_new {
            true => new += 1,
            false => old += 1,
        }
        cluster.world.run_for(Duration::from_secs(3));
        assert_eq!(cluster.takes_part_as(), Some(number), "cut {cut}");
        if !is_new {
            cluster.enter_one(1);
            cluster.world.run_for(Duration::from_secs(3));
            assert_eq!(cluster.takes_part_as(), Some(2), "cut {cut}");
        }
        assert_eq!(cluster.names(), [Shape::thick().name], "cut {cut}");
    }
    assert!(old > 0 && new > 0, "{old} in the old cluster, {new} in the new one");
}

/// The tasks of the former life find the copies of the present one. So the next life does not begin while
/// one of them may run; hosts do not notice.
#[test]
fn what_still_uses_the_former_cluster_delays_the_next_life_and_no_host() {
    let (cluster, client, session) = about_to_join_from(in_its_own(1));
    drop(cluster.world.spawn_on(cluster.servers[1], CoreId(0), || async {
        let reconciler = Control::current().reconciler().unwrap();
        rt::sleep(Duration::from_secs(30)).await;
        drop(reconciler);
    }));
    cluster.world.run_for(Duration::from_millis(1));
    let place = cluster.place_in_cluster(1);
    let entered = cluster.control(1, |control| async move { control.enter_cluster(place, 0).await });
    assert!(matches!(refusal(entered), EnterError::FormerCluster));
    assert_eq!((cluster.has_switched(), cluster.takes_part_as()), (true, None));
    let holder = Rc::clone(&session);
    cluster.world.block_on(client, CoreId(0), move || async move {
        write(&holder, 0, 2).await.unwrap();
        assert_eq!(registrants(&holder).await, [(0x0201, 7)]);
    });
    let is_first = cluster.control(1, |control| async move { control.is_set_up() });
    assert_eq!(is_first, None, "nobody becomes the first user of a node that is in a cluster");
    cluster.world.run_for(Duration::from_secs(45));
    assert_eq!(cluster.takes_part_as(), Some(2));
    let failure = cluster.control(1, |control| async move { control.cluster_failure() });
    assert!(failure.is_none(), "{failure:?}");
    cluster.world.block_on(client, CoreId(0), move || async move { write(&session, 0, 3).await.unwrap() });
}

/// Its disk does not respond. The record of the cluster that the node would leave must take part in it.
#[test]
fn a_change_of_a_volume_keeps_a_node_in_its_cluster() {
    let (cluster, client, session) = about_to_join_from(in_its_own(1));
    let hangs = Duration::from_secs(60)..Duration::from_secs(61);
    let slow = DiskLatency { write: hangs, ..DiskLatency::default() };
    cluster.world.set_disk_latency(cluster.servers[1], DISK, slow);
    drop(cluster.world.spawn_on(cluster.servers[1], CoreId(0), || async {
        let new = NewVolume { name: "second".into(), ..new_volume(POOL, Shape::thick()) };
        let _ = Control::current().create_volume(new).await;
    }));
    cluster.world.run_for(Duration::from_millis(100));
    let place = cluster.place_in_cluster(1);
    let entered = cluster.control(1, |control| async move { control.enter_cluster(place, 0).await });
    assert!(matches!(entered, Err(ControlError::Busy { .. })), "{entered:?}");
    assert_eq!((cluster.has_switched(), cluster.takes_part_as()), (false, Some(1)));
    cluster.world.set_disk_latency(cluster.servers[1], DISK, DiskLatency::default());
    cluster.world.run_for(Duration::from_secs(180));
    cluster.enter_one(1);
    assert_eq!(cluster.takes_part_as(), Some(2));
    cluster.world.block_on(client, CoreId(0), move || async move { write(&session, 0, 2).await.unwrap() });
}

/// The record knows the volume's new name, and its pool does not: the node would bring the former one.
#[test]
fn a_pool_that_is_behind_the_record_keeps_a_node_in_its_cluster() {
    let (cluster, _, session) = about_to_join_from(in_its_own(1));
    drop(session);
    let place = cluster.place_in_cluster(1);
    let entered = cluster.control(1, |control| async move {
        let (reconciler, id) =
            (control.reconciler().unwrap(), control.volume(Shape::thick().name).unwrap().info.id);
        let mut entry = reconciler.volume(id).unwrap().entry;
        entry.name = "renamed".into();
        reconciler.commit(Reconciler::transaction().put(&volume_key(id), json(&entry))).await.unwrap();
        drop(reconciler);
        control.enter_cluster(place, 0).await
    });
    assert!(matches!(refusal(entered), EnterError::NotInPool(_)));
    cluster.world.run_for(Duration::from_secs(3));
    cluster.enter_one(1);
    cluster.world.run_for(Duration::from_secs(3));
    assert_eq!(cluster.names(), ["renamed"]);
}

/// They name volumes that the record of the other cluster does not have yet.
#[test]
fn schedules_of_snapshots_keep_a_node_in_its_cluster() {
    let (cluster, _, session) = about_to_join_from(in_its_own(1));
    drop(session);
    let place = cluster.place_in_cluster(1);
    let entered = cluster.control(1, |control| async move {
        let schedule = ScheduleEntry {
            name: "hourly".into(),
            id: 1,
            volumes: Vec::new(),
            every: 3_600,
            retention: Retention { keep: 1, ..Retention::default() },
            paused: true,
            created: 0,
            since: 0,
            last: None,
            failed: None,
        };
        let added = Reconciler::transaction().put(&snapshot_schedule_key("hourly"), json(&schedule));
        control.reconciler().unwrap().commit(added).await.unwrap();
        control.enter_cluster(place, 0).await
    });
    assert!(matches!(refusal(entered), EnterError::HasSchedules(name) if name == "hourly"));
    cluster.control(1, |control| async move { control.delete_snapshot_schedule("hourly").await.unwrap() });
    cluster.enter_one(1);
    assert_eq!(cluster.takes_part_as(), Some(2));
}

/// Its pool has it before the record does, and nobody holds the pool in between. Without the record that
/// confirmed it, no node would serve the volume.
#[test]
fn a_volume_that_is_created_while_a_node_switches_is_there_or_was_refused() {
    let mut made = 0;
    for cut in 0..30 {
        let (cluster, _, session) = about_to_join_from(in_its_own(cut));
        drop(session);
        let creates = cluster.world.spawn_on(cluster.servers[1], CoreId(0), || async {
            let new = NewVolume { name: "second".into(), ..new_volume(POOL, Shape::thick()) };
            Control::current().create_volume(new).await.is_ok()
        });
        cluster.world.run_for(Duration::from_micros(100 * cut * cut));
        cluster.enter_one(1);
        let is_made = cluster.world.wait_for(creates).unwrap();
        cluster.world.run_for(Duration::from_secs(3));
        assert_eq!(cluster.names().contains(&"second".to_owned()), is_made, "cut {cut}");
        made += u32::from(is_made);
    }
    assert!(made > 0);
}

/// What the record of the former cluster knows of a pool proves nothing in the new one.
#[test]
fn a_pool_is_compared_with_the_record_of_the_new_cluster() {
    const KNOWN: u64 = 1000;
    let (cluster, _, session) = about_to_join_from(in_its_own(1));
    drop(session);
    cluster.world.run_for(Duration::from_secs(3));
    let (pool, mark) = cluster.control(1, |control| async move { control.pool_mark(POOL).unwrap() });
    assert!((1..KNOWN).contains(&mark.count), "{mark:?}");
    cluster.control(0, move |control| async move {
        let entry = PoolMarkEntry { node: 1, count: KNOWN, at: 0 };
        let transaction = Reconciler::transaction().put(&pool_mark_key(pool), json(&entry));
        control.reconciler().unwrap().commit(transaction).await.unwrap();
    });
    cluster.enter_one(1);
    cluster.world.run_for(Duration::from_secs(3));
    let (_, mark) = cluster.control(1, |control| async move { control.pool_mark(POOL).unwrap() });
    assert!(mark.count > KNOWN, "{mark:?}");
    assert_eq!(cluster.names(), [Shape::thick().name]);
}

#[test]
fn a_node_does_not_leave_other_nodes() {
    let cluster = Cluster::new(1, 2, 1);
    let place = Place { cluster: "f".repeat(32), node: 3, ..cluster.place_in_cluster(1) };
    let entered = cluster.control(1, |control| async move { control.enter_cluster(place, 0).await });
    assert!(matches!(refusal(entered), EnterError::NotAlone));
    assert_eq!(cluster.takes_part_as(), Some(2));
}
