//! The cluster's record is out of reach, for its quorum is lost, while all copies are well.

use cluster::memory::Fault;

use super::*;

/// Neither I/O nor leases need the record: who has its copies goes on.
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
            // The simulated network takes up to 300 ms now and then; leases that nobody renews would cost more than a second.
            let took = longest.get();
            assert!(!took.is_zero() && took < Duration::from_millis(500), "a write took {took:?}");
        }
        // Without the record nobody is taken out: what a lost node has not acknowledged waits until the record is back.
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
