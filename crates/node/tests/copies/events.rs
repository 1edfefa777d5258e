//! Events of nodes when one of them is lost and returns.

use super::*;

/// Codes, causes and nodes of a node's new events.
fn taken(cluster: &Cluster, by: usize) -> Vec<(&'static str, Option<&'static str>, Option<u16>)> {
    let taken = cluster.control(by, |control| control.next_events());
    assert_eq!(taken.missed, 0);
    taken.events.iter().map(|(_, event)| (event.code.as_str(), event.cause, event.node)).collect()
}

#[test]
fn every_node_reports_a_lost_node_and_the_cause_for_its_copy() {
    each_seed(3, |seed| {
        let cluster = Cluster::new(seed, 3, 2);
        cluster.add_volume(VolumeKind::Thick, 3);
        let made = taken(&cluster, 1);
        assert_eq!(made.iter().filter(|(code, ..)| *code == "volume_created").count(), 1, "{made:?}");
        // There is one event on the node that created it, too.
        let made = taken(&cluster, 0);
        assert_eq!(made.iter().filter(|(code, ..)| *code == "volume_created").count(), 1, "{made:?}");
        cluster.world.crash(cluster.servers[2]);
        cluster.world.run_for(Duration::from_secs(8));
        for by in 0..2 {
            let told = taken(&cluster, by);
            for expected in
                [("node_lost", Some("silent"), Some(3)), ("copy_out_of_sync", Some("silent"), Some(3))]
            {
                assert_eq!(
                    told.iter().filter(|told| **told == expected).count(),
                    1,
                    "{expected:?}: {told:?}"
                );
            }
        }
        cluster.start(2);
        cluster.wait_until_in_sync(0, 3);
        cluster.world.run_for(Duration::from_secs(1));
        for by in 0..2 {
            let told = taken(&cluster, by);
            for expected in [("node_returned", None, Some(3)), ("resync_completed", Some("silent"), Some(3))]
            {
                assert_eq!(
                    told.iter().filter(|told| **told == expected).count(),
                    1,
                    "{expected:?}: {told:?}"
                );
            }
            assert!(told.iter().all(|(code, ..)| *code != "node_lost"), "{told:?}");
        }
    });
}

#[test]
fn events_of_the_record_have_the_same_revision_on_all_nodes() {
    each_seed(3, |seed| {
        let cluster = Cluster::new(seed, 3, 2);
        cluster.add_volume(VolumeKind::Thick, 3);
        let made = |by: usize| -> Vec<(Option<u64>, String)> {
            let taken = cluster.control(by, |control| control.next_events());
            let made = taken.events.into_iter().filter(|(_, event)| event.code.as_str() == "volume_created");
            made.map(|(_, event)| (event.revision, event.text)).collect()
        };
        let [first, second] = [made(0), made(1)];
        assert!(matches!(first[..], [(Some(_), _)]), "{first:?}");
        assert_eq!(first, second);
        cluster.world.crash(cluster.servers[2]);
        cluster.world.run_for(Duration::from_secs(8));
        let taken = cluster.control(0, |control| control.next_events());
        let lost = taken.events.iter().find(|(_, event)| event.code.as_str() == "node_lost");
        let (_, lost) = lost.expect("it is told");
        assert_eq!(lost.revision, None, "a node sees that by itself");
    });
}
