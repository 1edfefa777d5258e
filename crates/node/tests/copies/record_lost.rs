//! The cluster's record is unavailable, because it has no quorum, while all copies are in sync.

use cluster::memory::Fault;
use rt::sim::DiskLatency;

use super::*;

/// Neither I/O nor leases need the record: a node with its copies continues.
#[test]
fn hosts_do_not_feel_that_the_record_is_lost() {
    each_seed(3, |seed| {
        let cluster = Cluster::new(seed, 3, 2);
        cluster.add_volume(VolumeKind::Thick, 3);
        let writers = ["writer-a", "writer-b", "writer-c"];
        let longest: Vec<_> =
            writers.into_iter().enumerate().map(|(index, name)| cluster.keep_writing(name, index)).collect();
        cluster.world.run_for(Duration::from_secs(1));
        let nodes = || (1..=3).filter_map(cluster::NodeId::new);
        nodes().for_each(|node| cluster.record.begin(node, Fault::Unreachable));
        longest.iter().for_each(|longest| longest.set(Duration::ZERO));
        cluster.world.run_for(Duration::from_secs(15));
        for longest in &longest {
            // The simulated network sometimes takes up to 300 ms; without renewed leases a write would take
            // more than a second.
            let took = longest.get();
            assert!(!took.is_zero() && took < Duration::from_millis(500), "a write took {took:?}");
        }
        // Without the record no copy can be removed: writes that a lost node has not acknowledged wait until
        // the record is back.
        cluster.world.crash(cluster.servers[2]);
        cluster.world.run_for(Duration::from_secs(5));
        assert_eq!(cluster.in_sync(0), 3);
        nodes().for_each(|node| cluster.record.end(node, Fault::Unreachable));
        cluster.world.run_for(Duration::from_secs(3));
        assert_eq!(cluster.in_sync(0), 2);
        cluster.start(2);
        cluster.wait_until_in_sync(0, 3);
    });
}

/// All copies have the write, but when the host's node learns of that, it has no lease, and so does not know
/// whether the others have continued without it (R22).
#[test]
fn a_write_is_not_acknowledged_without_leases() {
    let slow = Duration::from_millis(1400);
    each_seed(3, |seed| {
        let cluster = Cluster::new(seed, 3, 1);
        cluster.add_volume(VolumeKind::Thick, 2);
        // The other node does not continue alone, and this one has no reason to.
        cluster.record.begin(cluster::NodeId::new(2).unwrap(), Fault::Unreachable);
        let (client, portal) = (cluster.client("writer"), cluster.portal(0));
        let [begun, answered] = [0; 2].map(|_| Rc::new(Cell::new(false)));
        let (begins, answers) = (Rc::clone(&begun), Rc::clone(&answered));
        drop(cluster.world.spawn_on(client, CoreId(0), move || async move {
            let session = log_in(portal, "writer").await.unwrap();
            // The region is marked dirty now, so that the second write to it is one write to each disk.
            write(&session, 0, 1).await.unwrap();
            begins.set(true);
            rt::sleep(Duration::from_millis(100)).await;
            write(&session, 0, 2).await.unwrap();
            answers.set(true);
        }));
        assert!(cluster.world.run_until(|| begun.get(), Duration::from_secs(5)));
        let latency = DiskLatency { write: slow..slow + Duration::from_millis(1), ..DiskLatency::default() };
        cluster.world.set_disk_latency(cluster.servers[1], DISK, latency);
        cluster.world.run_for(Duration::from_millis(450));
        cluster.world.cut_one_way(cluster.servers[0], cluster.servers[1]);
        // Before its host hears that the result is unknown.
        cluster.world.run_for(Duration::from_millis(1400));
        assert!(!answered.get(), "acknowledged, and nobody has promised anything");
        cluster.world.heal_all();
        // Lost packets are sent again after a while; the host would hear that the result is unknown two
        // seconds after the disk has finished.
        let is_answered = cluster.world.run_until(|| answered.get(), Duration::from_millis(1500));
        assert!(is_answered, "all have it, and the leases are back");
    });
}

/// It has joined, and nobody has sent it the record yet: hosts reach what only this node has.
#[test]
fn a_node_that_has_not_read_the_record_yet_keeps_to_the_rules_that_it_knew() {
    const OWN: &str = "iqn.2026-11.io.ursa:own";
    each_seed(2, |seed| {
        let cluster = Cluster::apart(seed, 2, 1, &Config::default(), &[512]);
        let second = cluster::NodeId::new(2).unwrap();
        cluster.control(1, |control| async move {
            let new = TargetSpec { name: OWN.to_owned(), alias: None, chap: None };
            control.create_target(new).await.unwrap();
        });
        cluster.record.begin(second, Fault::WatchHeld);
        cluster.enter();
        cluster.world.crash(cluster.servers[1]);
        cluster.start(1);
        let targets = || {
            cluster.control(1, |control| async move {
                let access = control.access();
                access.targets().map(|target| target.name.to_string()).collect::<Vec<String>>()
            })
        };
        assert_eq!(targets(), [OWN]);
        cluster.record.end(second, Fault::WatchHeld);
        cluster.world.run_for(Duration::from_secs(3));
        assert_eq!(targets(), [TARGET], "from then on only the record counts");
    });
}
