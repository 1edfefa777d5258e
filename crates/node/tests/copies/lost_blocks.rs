//! Blocks that no copy in sync could read during the resync of another one (R27).

use super::bad_blocks::marked;
use super::*;

use rt::sim::DiskFaults;

/// MEDIUM ERROR, UNRECOVERED READ ERROR.
const UNREAD: Result<u64, Option<(u8, u16)>> = Err(Some((0x03, 0x1100)));

fn write_through(cluster: &Cluster, index: usize, lba: u64, value: u64) {
    let (client, portal) = (cluster.client("writer"), cluster.portal(index));
    cluster.world.block_on(client, CoreId(0), move || async move {
        write(&log_in(portal, "writer").await.unwrap(), lba, value).await.unwrap();
    });
}

/// One of two copies returns, and the other one's disk cannot read a block that it missed: it comes in sync
/// without the block.
fn lost_block(seed: u64, kind: VolumeKind, faults: DiskFaults) -> Cluster {
    lost_at(64, seed, kind, faults)
}

fn lost_at(lba: u64, seed: u64, kind: VolumeKind, faults: DiskFaults) -> Cluster {
    let cluster = Cluster::new(seed, 2, 2);
    cluster.add_volume(kind, 2);
    write_through(&cluster, 0, lba, 7);
    cluster.world.crash(cluster.servers[1]);
    cluster.world.run_for(Duration::from_secs(2));
    cluster.write_marked((0..40).map(|n| n * 32));
    cluster.spoil(0, [lba], faults);
    cluster.start(1);
    cluster
}

#[test]
fn a_bad_block_of_the_only_source_is_lost_and_keeps_no_copy_out_of_sync() {
    for kind in [VolumeKind::Thick, VolumeKind::Log] {
        let cluster = lost_block(1, kind, DiskFaults::default().remapping());
        cluster.wait_until_in_sync(0, 2);
        cluster.wait_until_all_serve();
        let told = cluster.told_of(1, &["blocks_lost"]);
        let [event] = &told[..] else { panic!("{told:?}") };
        assert!(event.text.starts_with("1 block of volume") && event.text.contains("(LBA 64)"), "{event:?}");
        assert!(cluster.read_faults(1).is_empty(), "the other node's disk failed");
        assert_eq!((cluster.lost_blocks(0), cluster.lost_blocks(1)), (vec![], vec![(1, 64)]));
        assert_eq!(cluster.read_faults(0)[0].2, Some(64));
        for by in 0..2 {
            let found = cluster.read_all(by, [32, 64, 96]);
            assert_eq!(found, [Ok(marked(32)), UNREAD, Ok(marked(96))], "by node {by}");
        }
        // The block is lost after a restart, too, and when the node is alone.
        cluster.world.crash(cluster.servers[1]);
        cluster.start(1);
        cluster.wait_until_in_sync(0, 2);
        cluster.wait_until_all_serve();
        assert_eq!(cluster.lost_blocks(1), [(1, 64)]);
        cluster.world.crash(cluster.servers[0]);
        cluster.world.run_for(Duration::from_secs(3));
        assert_eq!(cluster.read_all(1, [32, 64, 96]), [Ok(marked(32)), UNREAD, Ok(marked(96))]);
        cluster.start(0);
        cluster.wait_until_in_sync(1, 2);
        cluster.wait_until_all_serve();
        // A host's write ends it.
        cluster.write_marked([64]);
        assert_eq!(cluster.lost_blocks(1), []);
        for by in 0..2 {
            cluster.assert_reads(by, [32, 64, 96]);
        }
        cluster.world.run_for(Duration::from_secs(10));
        assert_eq!(cluster.in_sync(0), 2);
        assert_eq!(cluster.checksum(0), cluster.checksum(1));
    }
}

#[test]
fn a_lost_block_is_back_when_a_copy_can_read_it() {
    let cluster = lost_block(1, VolumeKind::Thick, DiskFaults::default().remapping());
    cluster.wait_until_in_sync(0, 2);
    cluster.wait_until_all_serve();
    assert_eq!(cluster.read_all(1, [64]), [UNREAD]);
    cluster.world.set_disk_faults(cluster.servers[0], DISK, DiskFaults::default());
    cluster.world.run_for(Duration::from_secs(8));
    cluster.world.crash(cluster.servers[0]);
    cluster.world.run_for(Duration::from_secs(3));
    cluster.assert_reads(1, [32, 64, 96]);
}

/// A disk retries for seconds before it reports a read error.
#[test]
fn a_block_whose_error_comes_late_counts_as_lost_too() {
    let late = DiskFaults::default().remapping().failing_after(Duration::from_secs(3));
    let cluster = lost_block(1, VolumeKind::Thick, late);
    assert!(
        cluster.world.run_until(|| cluster.in_sync(0) == 2, Duration::from_secs(60)),
        "one block keeps a copy out of sync"
    );
    cluster.wait_until_all_serve();
    assert_eq!(cluster.told_of(1, &["blocks_lost"]).len(), 1);
    cluster.assert_reads(1, [32, 96]);
}

/// Of two copies in sync, one fails to read the block at once, and the other one's disk retries for seconds.
#[test]
fn a_third_copy_resyncs_although_anothers_error_comes_late() {
    let cluster = Cluster::new(1, 3, 2);
    cluster.add_volume(VolumeKind::Thick, 3);
    cluster.write_marked([5]);
    cluster.world.crash(cluster.servers[2]);
    cluster.world.run_for(Duration::from_secs(2));
    cluster.write_marked((0..40).map(|n| n * 32));
    cluster.spoil(0, [64], DiskFaults::default().remapping());
    cluster.spoil(1, [64], DiskFaults::default().remapping().failing_after(Duration::from_secs(3)));
    cluster.start(2);
    let in_sync = || cluster.in_sync(0) == 3;
    assert!(cluster.world.run_until(in_sync, Duration::from_secs(120)), "one block keeps a copy out of sync");
    cluster.wait_until_all_serve();
    assert_eq!(cluster.lost_blocks(2), [(1, 64)]);
    cluster.assert_reads(2, [32, 96]);
}

/// The source's disk cannot read anything in a region, and another copy's disk cannot read a single block.
#[test]
fn a_region_that_only_another_copy_can_read_is_sent() {
    let cluster = Cluster::new(1, 3, 2);
    cluster.add_volume(VolumeKind::Thick, 3);
    cluster.write_marked([300]);
    cluster.world.crash(cluster.servers[2]);
    cluster.world.run_for(Duration::from_secs(2));
    cluster.write_marked(0..40);
    cluster.spoil(0, 16..32, DiskFaults::default().remapping());
    cluster.spoil(1, [16], DiskFaults::default().remapping());
    cluster.start(2);
    cluster.wait_until_in_sync(0, 3);
    cluster.wait_until_all_serve();
    assert_eq!(cluster.lost_blocks(2), [(1, 16)]);
    cluster.assert_reads(2, [15, 17, 31, 32]);
}

/// Lost blocks are requested again and again, but not so often that a disk that retries for seconds does
/// nothing else.
#[test]
fn a_disk_that_fails_slowly_is_rarely_asked_for_lost_blocks() {
    let late = DiskFaults::default().remapping().failing_after(Duration::from_secs(3));
    let cluster = lost_block(1, VolumeKind::Thick, late);
    assert!(cluster.world.run_until(|| cluster.in_sync(0) == 2, Duration::from_secs(60)));
    cluster.wait_until_all_serve();
    cluster.world.run_for(Duration::from_secs(20));
    let before = cluster.failed_reads();
    cluster.world.run_for(Duration::from_secs(300));
    let failed = cluster.failed_reads() - before;
    assert!((3..=40).contains(&failed), "{failed} reads of a bad block in five minutes, 3 s each");
    assert_eq!(cluster.in_sync(0), 2);
}

/// A disk that cannot read at all has not lost a block.
#[test]
fn a_source_that_reads_nothing_of_a_region_reports_nothing_as_lost() {
    let cluster = Cluster::new(1, 2, 2);
    cluster.add_volume(VolumeKind::Thick, 2);
    cluster.world.crash(cluster.servers[1]);
    cluster.world.run_for(Duration::from_secs(2));
    cluster.write_marked(0..40);
    cluster.spoil(0, 16..32, DiskFaults::default().remapping());
    cluster.start(1);
    cluster.world.run_for(Duration::from_secs(20));
    assert_eq!(cluster.in_sync(0), 1, "a region cannot be given");
    let left = || {
        cluster.control(0, |control| async move {
            control.reconciler().unwrap().volumes().remove(0).syncs[&1].left_bytes
        })
    };
    assert!(left() > 0 && left() <= 2 * (64 << 10), "{}", left());
    cluster.write_marked(40..60);
    cluster.write_marked(16..32);
    cluster.wait_until_in_sync(0, 2);
    assert_eq!(cluster.checksum(0), cluster.checksum(1));
}

/// The copy whose disk could not read a block goes out of sync, and its resync's source is the copy that lost
/// the block: the former keeps what it holds.
#[test]
fn a_copy_does_not_lose_what_its_own_disk_did_not_read() {
    for kind in [VolumeKind::Thick, VolumeKind::Log] {
        // The last of these is the latest write: nothing in a log says that it was durable.
        for (lba, reads_before) in [(64, true), (64, false), (1248, false)] {
            let cluster = lost_at(lba, 1, kind, DiskFaults::default().remapping());
            cluster.wait_until_in_sync(0, 2);
            cluster.wait_until_all_serve();
            resync_holder(&cluster, lba, reads_before);
            assert_eq!(cluster.lost_blocks(0), []);
            cluster.world.set_disk_faults(cluster.servers[0], DISK, DiskFaults::default());
            cluster.world.run_for(Duration::from_secs(8));
            assert_eq!(cluster.lost_blocks(1), []);
            for by in 0..2 {
                cluster.assert_reads(by, [lba - 32, lba, lba + 1]);
            }
            assert_eq!(cluster.checksum(0), cluster.checksum(1));
        }
    }
}

/// Node 0, whose disk could not read the block, crashes; the next block is written, and it is in sync again.
fn resync_holder(cluster: &Cluster, lba: u64, reads_before: bool) {
    if reads_before {
        cluster.world.set_disk_faults(cluster.servers[0], DISK, DiskFaults::default());
    }
    cluster.world.crash(cluster.servers[0]);
    cluster.world.run_for(Duration::from_secs(3));
    write_through(cluster, 1, lba + 1, marked(lba + 1));
    cluster.start(0);
    cluster.wait_until_in_sync(1, 2);
    cluster.wait_until_all_serve();
}

/// The same holds if another copy has the loss from the one that lost the block first, and is the source.
#[test]
fn holders_of_a_lost_block_are_handed_on() {
    let cluster = Cluster::new(1, 3, 2);
    cluster.add_volume(VolumeKind::Thick, 3);
    cluster.write_marked([5]);
    for index in [1, 2] {
        cluster.world.crash(cluster.servers[index]);
    }
    cluster.world.run_for(Duration::from_secs(3));
    cluster.write_marked((0..40).map(|n| n * 32));
    cluster.spoil(0, [64], DiskFaults::default().remapping());
    cluster.start(1);
    cluster.wait_until_in_sync(0, 2);
    for (lost, back) in [(0, 2), (1, 0)] {
        // Each is resynced from the one that was last.
        cluster.world.crash(cluster.servers[lost]);
        cluster.world.run_for(Duration::from_secs(3));
        cluster.start(back);
        cluster.wait_until_in_sync(back, 2);
    }
    assert_eq!((cluster.lost_blocks(0), cluster.lost_blocks(2)), (vec![], vec![(1, 64)]));
    cluster.world.set_disk_faults(cluster.servers[0], DISK, DiskFaults::default());
    cluster.start(1);
    cluster.wait_until_in_sync(0, 3);
    cluster.wait_until_all_serve();
    cluster.world.run_for(Duration::from_secs(8));
    for by in 0..3 {
        assert_eq!(cluster.lost_blocks(by), []);
        cluster.assert_reads(by, [32, 64, 96]);
    }
}

/// A new copy in place of the one that held the block holds nothing.
#[test]
fn a_new_copy_holds_nothing() {
    let cluster = lost_block(1, VolumeKind::Thick, DiskFaults::default().remapping());
    cluster.wait_until_in_sync(0, 2);
    cluster.wait_until_all_serve();
    cluster.remove_copy(1, 1).unwrap();
    cluster.wait_until("the copy is gone", || cluster.kept(0) == 0);
    cluster.world.set_disk_faults(cluster.servers[0], DISK, DiskFaults::default());
    cluster.add_copy(1, 1);
    cluster.wait_until_in_sync(1, 2);
    cluster.wait_until_all_serve();
    assert_eq!((cluster.lost_blocks(0), cluster.lost_blocks(1)), (vec![(1, 64)], vec![(1, 64)]));
    for by in 0..2 {
        assert_eq!(
            cluster.read_all(by, [32, 64, 96]),
            [Ok(marked(32)), UNREAD, Ok(marked(96))],
            "by node {by}"
        );
    }
}

/// These blocks are written while node 2 is away, and then node 1 cannot read block 64, at this place of its
/// disk: node 2 notes that it is lost. Then node 1 is lost.
fn lose_again(cluster: &Cluster, place: u64, blocks: impl IntoIterator<Item = u64>) {
    cluster.world.crash(cluster.servers[1]);
    cluster.world.run_for(Duration::from_secs(3));
    blocks.into_iter().for_each(|block| write_through(cluster, 0, block, 9));
    let faults = DiskFaults::default().remapping().with_unreadable(place..place + 512);
    cluster.world.set_disk_faults(cluster.servers[0], DISK, faults);
    cluster.start(1);
    cluster.wait_until_in_sync(0, 2);
    assert_eq!(cluster.lost_blocks(1), [(1, 64)]);
    cluster.world.crash(cluster.servers[0]);
    cluster.world.run_for(Duration::from_secs(3));
}

/// Nor does a pool that was set back to when the copy held the block: the block has been written since.
#[test]
fn a_copy_that_was_set_back_holds_nothing() {
    let cluster = lost_block(1, VolumeKind::Thick, DiskFaults::default().remapping());
    let place = cluster.place_of(0, marked(64));
    cluster.wait_until_in_sync(0, 2);
    cluster.world.run_for(Duration::from_secs(10));
    cluster.world.crash(cluster.servers[0]);
    let yesterday = cluster.image(0);
    cluster.start(0);
    cluster.wait_until_in_sync(1, 2);
    cluster.wait_until_all_serve();
    write_through(&cluster, 0, 64, 8);
    lose_again(&cluster, place, [64]);
    cluster.put_back(0, yesterday);
    cluster.start(0);
    cluster.wait_until_in_sync(1, 2);
    cluster.wait_until_all_serve();
    assert_eq!(cluster.read_all(0, [32, 64, 96]), [Ok(marked(32)), UNREAD, Ok(marked(96))]);
}

/// Nor does it hold what others say that it holds: it is resynced with a list from before it was set back.
#[test]
fn a_copy_that_was_set_back_and_accepted_names_no_holder() {
    let cluster = lost_block(1, VolumeKind::Thick, DiskFaults::default().remapping());
    let place = cluster.place_of(0, marked(64));
    cluster.wait_until_in_sync(0, 2);
    cluster.wait_until_all_serve();
    cluster.world.run_for(Duration::from_secs(10));
    cluster.world.crash(cluster.servers[1]);
    let yesterday = cluster.image(1);
    cluster.start(1);
    cluster.wait_until_in_sync(0, 2);
    cluster.wait_until_all_serve();
    write_through(&cluster, 0, 64, 8);
    lose_again(&cluster, place, [65, 64]);
    cluster.world.crash(cluster.servers[1]);
    cluster.put_back(1, yesterday);
    cluster.start(1);
    cluster.world.run_for(Duration::from_secs(5));
    cluster.control(1, |control| async move { control.accept_older(POOL).await }).unwrap();
    cluster.world.set_disk_faults(cluster.servers[0], DISK, DiskFaults::default());
    cluster.start(0);
    cluster.wait_until_in_sync(1, 2);
    cluster.wait_until_all_serve();
    for by in 0..2 {
        let found = cluster.read_all(by, [32, 64, 65]);
        assert_eq!(found[..2], [Ok(marked(32)), UNREAD], "by node {by}");
        assert_ne!(found[2], Ok(9), "by node {by}");
    }
}
