//! Volumes with copies write through, even if they report a write cache (WCE=1, the default), and so also
//! with one copy left.

use std::ops::Range;

use super::*;

use base::LbaRange;

const WRITES: u64 = 24;

/// Number of blocks that lack acknowledged changes after a power loss of the copy that continued alone.
///
/// No host has sent a flush. `unmapped`: blocks that are unmapped last.
fn lost(seed: u64, unmapped: Range<u64>) -> usize {
    let cluster = Cluster::new(seed, 3, 1);
    cluster.add_volume(VolumeKind::Thick, 2);
    let change_all = |written: Range<u64>, unmapped: Range<u64>| {
        let (client, portal) = (cluster.client("writer"), cluster.portal(0));
        cluster.world.block_on(client, CoreId(0), move || async move {
            let session = log_in(portal, "writer").await.unwrap();
            for lba in written {
                write(&session, lba, lba + 1).await.unwrap();
            }
            for lba in unmapped {
                let range = LbaRange { start: Lba(lba), count: BlockCount(1) };
                attended(async || session.unmap(LUN, &[range]).await).await.unwrap();
            }
        });
    };
    change_all(0..WRITES, 0..0);
    cluster.world.crash(cluster.servers[1]);
    // The first of these waits until the other copy is removed.
    change_all(WRITES..2 * WRITES, unmapped.clone());
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
            let expected = if unmapped.contains(&lba) { 0 } else { lba + 1 };
            lost += usize::from(read(&session, lba).await.unwrap() != expected);
        }
        lost
    })
}

#[test]
fn the_last_copy_loses_nothing_that_was_acknowledged_when_its_power_fails() {
    each_seed(3, |seed| assert_eq!(lost(seed, 0..0), 0));
}

/// Zeros are on the disk like other data when they are acknowledged.
///
/// These are in regions whose dirty bits are set already, so nothing else flushes the disk after them.
#[test]
fn the_last_copy_loses_nothing_that_was_unmapped_when_its_power_fails() {
    each_seed(6, |seed| assert_eq!(lost(seed, WRITES..2 * WRITES), 0));
}

/// Writes that are acknowledged from the disk's cache are lost.
#[cfg(debug_assertions)]
#[test]
fn a_last_copy_that_could_lose_data_is_noticed() {
    use node::canary::{Canary, make};
    make(Some(Canary::NotDurable));
    let lost = (1..=3).map(|seed| lost(seed, 0..0)).sum::<usize>();
    make(None);
    assert!(lost > 0);
}
