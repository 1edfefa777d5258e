//! Volumes with copies write through, even if they report a write cache (WCE=1, the default), and so also
//! with one copy left.

use super::*;

const WRITES: u64 = 24;

/// Number of blocks that lack acknowledged writes after a power loss of the copy that went on alone.
///
/// No host has sent a flush.
fn lost(seed: u64) -> usize {
    let cluster = Cluster::new(seed, 3, 1);
    cluster.add_volume(VolumeKind::Thick, 2);
    let write_all = |blocks: std::ops::Range<u64>| {
        let (client, portal) = (cluster.client("writer"), cluster.portal(0));
        cluster.world.block_on(client, CoreId(0), move || async move {
            let session = log_in(portal, "writer").await.unwrap();
            for lba in blocks {
                write(&session, lba, lba + 1).await.unwrap();
            }
        });
    };
    write_all(0..WRITES);
    cluster.world.crash(cluster.servers[1]);
    // The first of these waits until the other copy is removed.
    write_all(WRITES..2 * WRITES);
    assert_eq!(cluster.in_sync(0), 1);
    cluster.world.crash(cluster.servers[0]);
    cluster.world.run_for(Duration::from_secs(1));
    cluster.start(0);
    let (client, portal) = (cluster.client("reader"), cluster.portal(0));
    cluster.world.block_on(client, CoreId(0), move || async move {
        let session = loop {
            match log_in(portal, "reader").await {
                Some(session) => break session,
                None => rt::sleep(Duration::from_millis(100)).await,
            }
        };
        let mut lost = 0;
        for lba in 0..2 * WRITES {
            lost += usize::from(read(&session, lba).await.unwrap() != lba + 1);
        }
        lost
    })
}

#[test]
fn the_last_copy_loses_nothing_that_was_acknowledged_when_its_power_fails() {
    each_seed(3, |seed| assert_eq!(lost(seed), 0));
}

/// Writes that are acknowledged from the disk's cache are lost.
#[cfg(debug_assertions)]
#[test]
fn that_the_last_copy_could_lose_something_is_noticed() {
    use node::canary::{Canary, make};
    make(Some(Canary::NotDurable));
    let lost = (1..=3).map(lost).sum::<usize>();
    make(None);
    assert!(lost > 0);
}
