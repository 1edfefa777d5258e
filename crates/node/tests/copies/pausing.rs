//! Resyncs that an administrator pauses: nothing is sent, nothing of what the copy misses is forgotten, and
//! the resync completes once it is resumed.

use node::copies::{Awaited, CopySync, Restraint, SyncPause};

use super::syncs::{REGION, sync_of, write_regions};
use super::*;

fn volume_name(cluster: &Cluster, by: usize) -> String {
    cluster
        .control(by, |control| async move { control.reconciler().unwrap().volumes()[0].entry.name.clone() })
}

pub(super) fn pause(cluster: &Cluster, by: usize, of: u16) {
    let volume = volume_name(cluster, by);
    cluster.control(by, move |control| async move { control.pause_sync(&volume, of, "eva").await }).unwrap();
}

pub(super) fn resume(cluster: &Cluster, by: usize, of: u16) {
    let volume = volume_name(cluster, by);
    cluster.control(by, move |control| async move { control.resume_sync(&volume, of).await }).unwrap();
}

/// By whom which slots were paused, as the node shows it.
fn paused(cluster: &Cluster, by: usize) -> Vec<(u8, String)> {
    cluster.control(by, |control| async move {
        let entry = control.reconciler().unwrap().volumes()[0].entry.clone();
        entry.paused.iter().map(|(slot, SyncPause { by, .. })| (*slot, by.clone())).collect()
    })
}

fn stands_still(sync: &CopySync, regions: u64) {
    assert_eq!(sync.copied_bytes, 0, "{sync:?}");
    assert!(sync.left_bytes >= regions * REGION, "{sync:?}");
}

#[test]
fn a_paused_resync_stays_paused_across_restarts_and_forgets_nothing() {
    each_seed(2, |seed| {
        let cluster = Cluster::new(seed, 3, 2);
        cluster.add_volume(VolumeKind::Thick, 3);
        let name = volume_name(&cluster, 0);
        let refused = cluster.control(0, move |control| async move {
            control.pause_sync(&name, 3, "eva").await.expect_err("it is in sync")
        });
        assert!(matches!(refused, node::control::ControlError::NothingToPause { node: 3, .. }), "{refused}");
        cluster.world.crash(cluster.servers[2]);
        cluster.world.run_for(Duration::from_secs(2));
        write_regions(&cluster, 0, 0..30);
        pause(&cluster, 1, 3);
        // Once is enough, and the first caller is remembered.
        pause(&cluster, 0, 3);
        cluster.start(2);
        cluster.world.run_for(Duration::from_secs(5));
        for by in 0..3 {
            let sync = sync_of(&cluster, by, 3).expect("it is not in sync");
            stands_still(&sync, 30);
            assert_eq!(sync.limited_by, Some(Restraint::Paused), "{sync:?}");
            assert_eq!(sync.waits_for, Some(Awaited::Resumption { by: "eva".into() }.into()));
            assert_eq!(paused(&cluster, by), [(2, "eva".to_owned())]);
            assert_eq!(cluster.in_sync(by), 2);
            let missed =
                cluster.control(by, |control| async move { control.reconciler().unwrap().missed_bytes() });
            assert_eq!(missed, sync.left_bytes, "of the whole cluster");
        }
        // Its node is restarted; then the others one after the other, so that the source is another process;
        // and hosts write.
        for index in [2, 0, 1] {
            cluster.world.crash(cluster.servers[index]);
            cluster.world.run_for(Duration::from_secs(2));
            let by = if index == 0 { 1 } else { 0 };
            let from = 30 + 10 * index as u64;
            write_regions(&cluster, by, from..from + 10);
            cluster.start(index);
            // The other copies come in sync meanwhile.
            cluster.wait_until_in_sync(by, 2);
            cluster.world.run_for(Duration::from_secs(3));
            assert_eq!(cluster.in_sync(by), 2, "it came in sync though it was paused");
            assert_eq!(sync_of(&cluster, by, 3).unwrap().copied_bytes, 0);
        }
        stands_still(&sync_of(&cluster, 0, 3).unwrap(), 60);
        resume(&cluster, 2, 3);
        cluster.wait_until_in_sync(0, 3);
        assert_eq!(paused(&cluster, 0), []);
        assert_eq!(cluster.checksum(0), cluster.checksum(1));
        assert_eq!(cluster.checksum(0), cluster.checksum(2));
    });
}

#[test]
fn a_running_resync_pauses_within_a_moment_and_resumes_where_it_was() {
    each_seed(2, |seed| {
        let config = Config { resync_bytes_per_second_max: MIB, ..Config::default() };
        let cluster = Cluster::with_config(seed, 2, 2, &config);
        cluster.add_volume(VolumeKind::Thick, 2);
        cluster.world.crash(cluster.servers[1]);
        cluster.world.run_for(Duration::from_secs(2));
        write_regions(&cluster, 0, 0..96);
        cluster.start(1);
        let copied = || sync_of(&cluster, 0, 2).map_or(0, |sync| sync.copied_bytes);
        let begun = cluster.world.now();
        while copied() < MIB {
            cluster.world.run_for(Duration::from_millis(50));
            assert!(cluster.world.now() - begun < Duration::from_secs(20), "it does not begin");
        }
        pause(&cluster, 1, 2);
        cluster.world.run_for(Duration::from_millis(300));
        let before = copied();
        cluster.world.run_for(Duration::from_secs(10));
        assert_eq!(copied(), before, "it goes on");
        assert_eq!(sync_of(&cluster, 1, 2).unwrap().limited_by, Some(Restraint::Paused));
        resume(&cluster, 0, 2);
        cluster.wait_until_in_sync(0, 2);
        let given: u64 = cluster
            .control(0, |control| async move { control.replication().await.unwrap().synced.values().sum() });
        assert!((96 * REGION..=112 * REGION).contains(&given), "{} regions", given / REGION);
        assert_eq!(cluster.checksum(0), cluster.checksum(1));
    });
}
