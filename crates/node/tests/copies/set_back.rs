//! Pools and nodes that return in an earlier state: a reverted snapshot, a restored image, a stale leg of a
//! mirror.

use cluster::memory::Fault;
use node::control::{ControlError, FaultKind, NotServed};
use rt::sim::{DiskFaults, DiskImage};
use store::{CopyState, MetadataState};

use super::bad_blocks::without_list;
use super::failed_disks::readiness_of;
use super::forks::{A, B, GOES_ON, record_node};
use super::*;

/// Written before the image is taken, while the pool counts, and while the other node is alone.
const BEFORE: u64 = 1;
const AFTER: u64 = 2;
const ALONE: u64 = 3;

/// Blocks of each of these writes.
const BLOCKS: std::ops::Range<u64> = 0..64;
/// Blocks that are written while the other node is alone.
const FEW: std::ops::Range<u64> = 1024..1030;

impl Cluster {
    pub(super) fn image(&self, index: usize) -> DiskImage {
        self.world.disk_image(self.servers[index], DISK)
    }

    pub(super) fn put_back(&self, index: usize, image: DiskImage) {
        self.world.remove_disk(self.servers[index], DISK);
        self.world.put_disk(self.servers[index], DISK, image);
    }

    /// Writes through a node, durably.
    pub(super) fn fill(&self, index: usize, blocks: std::ops::Range<u64>, value: u64) {
        let (client, portal) = (self.client("writer"), self.portal(index));
        self.world.block_on(client, CoreId(0), move || async move {
            let session = log_in_at_last(portal).await;
            for lba in blocks {
                while write(&session, lba, value).await.is_err() {
                    rt::sleep(Duration::from_millis(100)).await;
                }
            }
            // What the session missed comes first, as a unit attention.
            while session.flush(LUN).await.is_err() {
                rt::sleep(Duration::from_millis(100)).await;
            }
        });
    }

    /// The values of blocks, read through a node.
    pub(super) fn holds(&self, index: usize, blocks: std::ops::Range<u64>) -> Vec<u64> {
        let (client, portal) = (self.client("reader"), self.portal(index));
        self.world.block_on(client, CoreId(0), move || async move {
            let session = log_in_at_last(portal).await;
            let mut found = Vec::new();
            for lba in blocks {
                let mut value = read(&session, lba).await;
                for _ in 0..50 {
                    if value.is_ok() {
                        break;
                    }
                    // What the session missed comes first, as unit attentions.
                    rt::sleep(Duration::from_millis(100)).await;
                    value = read(&session, lba).await;
                }
                found.push(value.unwrap());
            }
            found.dedup();
            found
        })
    }
}

pub(super) async fn log_in_at_last(portal: SocketAddr) -> Rc<Session> {
    loop {
        match log_in(portal, "client").await {
            Some(session) => return session,
            None => rt::sleep(Duration::from_millis(100)).await,
        }
    }
}

/// Two copies in sync, and an earlier image of the second node's pool.
pub(super) fn with_image_of_yesterday(seed: u64, kind: VolumeKind) -> (Cluster, DiskImage) {
    let cluster = Cluster::new(seed, 2, 2);
    cluster.add_volume(kind, 2);
    cluster.fill(0, BLOCKS, BEFORE);
    cluster.world.run_for(Duration::from_secs(10));
    cluster.world.crash(cluster.servers[1]);
    let yesterday = cluster.image(1);
    cluster.start(1);
    cluster.wait_until_in_sync(0, 2);
    (cluster, yesterday)
}

/// Two copies. The second node's pool was set back by a day, and the node starts before or after the other
/// one.
fn set_back(seed: u64, black_out: bool, set_back_first: bool) {
    let (cluster, yesterday) = with_image_of_yesterday(seed, VolumeKind::Thick);
    cluster.fill(1, BLOCKS, AFTER);
    // Dirty bits are kept for a moment; then they say nothing about what was written.
    cluster.world.run_for(Duration::from_secs(20));
    cluster.world.crash(cluster.servers[1]);
    if black_out {
        cluster.world.crash(cluster.servers[0]);
    } else {
        cluster.fill(0, FEW, ALONE);
    }
    cluster.put_back(1, yesterday);
    if set_back_first {
        cluster.start(1);
        // Long enough for it to continue alone, if it would.
        cluster.world.run_for(Duration::from_secs(10));
        cluster.start(0);
    } else {
        if black_out {
            cluster.start(0);
        }
        cluster.start(1);
    }
    cluster.wait_until_in_sync(0, 2);
    cluster.wait_until_all_serve();
    for index in [0, 1] {
        assert_eq!(cluster.holds(index, BLOCKS), [AFTER], "through node {}", index + 1);
    }
    assert_eq!(cluster.checksum(0), cluster.checksum(1));
}

/// The newer disk is replaced by an older one while the node runs, and no other copy is there. Hosts find the
/// LUN missing then, and not busy: it may stay so for long.
#[test]
fn a_copy_that_is_not_opened_again_with_its_pool_is_not_busy() {
    let (cluster, yesterday) = with_image_of_yesterday(8, VolumeKind::Thick);
    cluster.world.crash(cluster.servers[0]);
    cluster.fill(1, FEW, ALONE);
    cluster.world.run_for(Duration::from_secs(20));
    let faults = DiskFaults::default().with_unwritable(0..64 * MIB);
    cluster.world.set_disk_faults(cluster.servers[1], DISK, faults);
    let portal = cluster.portal(1);
    cluster.world.block_on(cluster.client("host"), CoreId(0), move || async move {
        let session = log_in_at_last(portal).await;
        assert!(write_durably(&session, 0, ALONE).await.is_err());
    });
    cluster.put_back(1, yesterday);
    cluster.control(1, |control| async move { control.reopen_pool(POOL).await.map(drop).unwrap() });
    cluster.world.run_for(Duration::from_secs(5));
    let problem = cluster.control(1, |control| async move { control.volume("thick").unwrap().problem });
    let Some(NotServed::Unopened(error)) = problem else { panic!("{problem:?}") };
    assert!(matches!(*error, ControlError::OnlyOlder { .. }), "{error}");
    // LOGICAL UNIT NOT SUPPORTED.
    assert_eq!(readiness_of(&cluster, 1), Some((0x05, 0x2500)));
    cluster.control(1, |control| async move { control.accept_older(POOL).await.map(drop).unwrap() });
    cluster.wait_until("it is served", || cluster.shown(1).is_some_and(|volume| volume.serving));
    assert_eq!(cluster.holds(1, BLOCKS), [BEFORE]);
}

/// The slice that could not be opened has not recorded that it lacks everything: the pool counts as set back
/// until the slice has.
#[test]
fn a_pool_that_was_set_back_is_not_trusted_while_a_slice_is_not_open() {
    let (cluster, yesterday) = with_image_of_yesterday(7, VolumeKind::Thick);
    cluster.fill(1, BLOCKS, AFTER);
    cluster.world.run_for(Duration::from_secs(20));
    cluster.world.crash(cluster.servers[1]);
    cluster.fill(0, BLOCKS, ALONE);
    cluster.put_back(1, yesterday);
    cluster.world.set_disk_faults(cluster.servers[1], DISK, without_list(&cluster));
    cluster.start(1);
    cluster.world.run_for(Duration::from_secs(30));
    let copy = cluster.control(1, |control| async move { control.volumes().await.remove(0).info.copy });
    let state = copy.map(|copy| copy.state);
    assert!(state.is_some_and(CopyState::is_untrusted), "{state:?}");
    cluster.world.set_disk_faults(cluster.servers[1], DISK, DiskFaults::default());
    cluster.control(1, |control| async move { control.reopen_pool(POOL).await.unwrap() });
    cluster.wait_until_in_sync(0, 2);
    cluster.wait_until_all_serve();
    assert_eq!(cluster.holds(1, BLOCKS), [ALONE]);
    assert_eq!(cluster.checksum(0), cluster.checksum(1));
}

/// By part of a region, or by many.
#[test]
fn a_pool_that_was_set_back_to_before_its_volume_grew_gets_all_of_it() {
    for (seed, kind, more) in
        [(1, VolumeKind::Thick, 4096), (2, VolumeKind::Thick, 3 * MIB), (3, VolumeKind::Log, 3 * MIB)]
    {
        let (cluster, yesterday) = with_image_of_yesterday(seed, kind);
        let size = cluster.control(0, move |control| async move {
            let info = control.volumes().await.remove(0).info;
            control.grow_volume(&info.name, base::ByteLen(info.capacity.0 + more)).await.unwrap();
            info.capacity.0
        });
        let new = size / 4096..(size + more) / 4096;
        cluster.fill(1, new.clone(), AFTER);
        cluster.world.run_for(Duration::from_secs(20));
        cluster.world.crash(cluster.servers[1]);
        cluster.put_back(1, yesterday);
        cluster.start(1);
        cluster.wait_until_in_sync(0, 2);
        cluster.wait_until_all_serve();
        assert_eq!(cluster.holds(1, new), [AFTER]);
        assert_eq!(cluster.holds(1, BLOCKS), [BEFORE]);
        assert_eq!(cluster.checksum(0), cluster.checksum(1));
    }
}

#[test]
fn a_pool_that_was_set_back_while_its_node_was_down_is_copied_as_a_whole() {
    each_seed(3, |seed| set_back(seed, false, false));
}

#[test]
fn a_pool_that_was_set_back_in_a_black_out_is_copied_as_a_whole() {
    each_seed(3, |seed| set_back(seed, true, false));
}

#[test]
fn a_pool_that_was_set_back_never_continues_alone() {
    each_seed(3, |seed| set_back(seed, true, true));
}

impl Cluster {
    /// Codes and causes of a node's new events.
    fn told(&self, index: usize) -> Vec<(&'static str, Option<&'static str>)> {
        let taken = self.control(index, |control| control.next_events());
        taken.events.iter().map(|(_, event)| (event.code.as_str(), event.cause)).collect()
    }

    fn says_pool_set_back(&self, index: usize) -> bool {
        let faults = self.control(index, |control| async move { control.faults() });
        faults.iter().any(|fault| matches!(fault.kind, FaultKind::PoolSetBack { .. }))
    }

    fn says_node_set_back(&self, index: usize) -> bool {
        let faults = self.control(index, |control| async move { control.faults() });
        faults.iter().any(|fault| matches!(fault.kind, FaultKind::NodeSetBack { .. }))
    }

    fn mark(&self, index: usize) -> u64 {
        let mark = self.control(index, |control| async move { control.pool_mark(POOL) });
        mark.expect("the pool is open").1.count
    }
}

/// Events report what happened, and that it is over.
#[test]
fn a_pool_that_was_set_back_is_reported() {
    let cluster = Cluster::new(1, 2, 1);
    cluster.add_volume(VolumeKind::Thick, 2);
    cluster.fill(0, BLOCKS, BEFORE);
    cluster.world.crash(cluster.servers[1]);
    let yesterday = cluster.image(1);
    cluster.start(1);
    // The record still has its last incarnation in sync at first.
    cluster.world.run_for(Duration::from_secs(5));
    cluster.wait_until_in_sync(0, 2);
    cluster.world.crash(cluster.servers[1]);
    cluster.put_back(1, yesterday);
    // No other copy has what it misses.
    cluster.world.crash(cluster.servers[0]);
    cluster.start(1);
    cluster.world.run_for(Duration::from_secs(5));
    let told = cluster.told(1);
    assert_eq!(
        told.iter().filter(|told| **told == ("pool_set_back", Some("set-back"))).count(),
        1,
        "{told:?}"
    );
    assert!(cluster.says_pool_set_back(1));
    // After a restart it still knows that it waits.
    cluster.world.crash(cluster.servers[1]);
    cluster.start(1);
    cluster.world.run_for(Duration::from_secs(5));
    assert!(cluster.says_pool_set_back(1));
    cluster.start(0);
    // The record has both in sync until their new processes have joined.
    cluster.wait_until_all_serve();
    cluster.wait_until_in_sync(0, 2);
    cluster.world.run_for(Duration::from_secs(1));
    assert!(!cluster.says_pool_set_back(1), "it is over");
}

/// A pool with a large disk, which has the volume, and a small one.
const OF_TWO: &str = "of-two";
const LARGE: (&str, u64) = ("/dev/large", 64 * MIB);
const SMALL: (&str, u64) = ("/dev/small", 4 * MIB);

/// Two nodes with such pools, and a volume with two copies in them.
fn on_two_disks(seed: u64) -> Cluster {
    let cluster = Cluster::new(seed, 2, 2);
    for (index, server) in cluster.servers.iter().enumerate() {
        [LARGE, SMALL].iter().for_each(|(disk, size)| cluster.world.add_disk(*server, disk, *size, 512));
        cluster.control(index, |control| async move {
            let disk = |(disk, _): (&str, u64)| NewDisk { path: disk.into(), create: None, reserve: false };
            let disks = [LARGE, SMALL].map(disk).into();
            control.create_pool(PoolSpec { name: OF_TWO.into(), disks, wipe: false }).await.unwrap();
        });
    }
    cluster.control(0, |control| async move {
        let new = node::control::NewVolume {
            copies: Some(Placement::Count(2)),
            ..new_volume(OF_TWO, Shape::thick())
        };
        control.create_volume(new).await.unwrap();
        map(&control, Shape::thick().name, 0).await.unwrap();
    });
    cluster.wait_until_all_serve();
    cluster.fill(0, BLOCKS, BEFORE);
    cluster.world.run_for(Duration::from_secs(10));
    cluster
}

/// Starts the second node, whose small disk takes no superblocks from when the pool is open. The pool is
/// compared with the record after that.
fn start_without_superblocks(cluster: &Cluster) {
    const SUPERBLOCKS: std::ops::Range<u64> = 0..8192;
    cluster.record.begin(record_node(1), Fault::Unreachable);
    cluster.start(1);
    let faults = DiskFaults::default().with_unwritable(SUPERBLOCKS);
    cluster.world.set_disk_faults(cluster.servers[1], SMALL.0, faults);
    cluster.record.end(record_node(1), Fault::Unreachable);
}

/// The mark that a pool was set back cannot be written to one of its disks, so that its metadata still
/// describes its copies as they were.
///
/// None of these is used, although no other copy is there.
#[test]
fn a_pool_that_was_set_back_and_takes_no_changes_is_not_used() {
    each_seed(3, |seed| {
        let cluster = on_two_disks(seed);
        let server = cluster.servers[1];
        cluster.world.crash(server);
        let yesterday = [LARGE, SMALL].map(|(disk, _)| (disk, cluster.world.disk_image(server, disk)));
        cluster.start(1);
        cluster.wait_until_in_sync(0, 2);
        cluster.fill(1, BLOCKS, AFTER);
        cluster.world.run_for(Duration::from_secs(20));
        cluster.servers.iter().for_each(|server| cluster.world.crash(*server));
        for (disk, image) in yesterday {
            cluster.world.remove_disk(server, disk);
            cluster.world.put_disk(server, disk, image);
        }
        start_without_superblocks(&cluster);
        cluster.world.run_for(Duration::from_secs(10));
        let serves = |index| cluster.shown(index).is_some_and(|volume| volume.serving);
        assert!(!serves(1), "what it holds is older");
        cluster.world.set_disk_faults(server, SMALL.0, DiskFaults::default());
        cluster.control(1, |control| async move { control.reopen_pool(OF_TWO).await.unwrap() });
        cluster.start(0);
        cluster.wait_until_in_sync(0, 2);
        cluster.wait_until_all_serve();
        for index in [0, 1] {
            assert_eq!(cluster.holds(index, BLOCKS), [AFTER], "through node {}", index + 1);
        }
    });
}

/// The pool was not set back, but cannot store its next mark. Its copies may be the only ones: they are
/// served, and the pool says that it takes no changes.
#[test]
fn a_pool_whose_mark_cannot_be_written_serves_its_copies() {
    each_seed(3, |seed| {
        let cluster = on_two_disks(seed);
        cluster.servers.iter().for_each(|server| cluster.world.crash(*server));
        start_without_superblocks(&cluster);
        cluster.wait_until("it is served", || cluster.shown(1).is_some_and(|volume| volume.serving));
        assert_eq!(cluster.holds(1, BLOCKS), [BEFORE]);
        assert!(!cluster.says_pool_set_back(1));
        let metadata = || {
            let status = cluster.control(1, |control| async move { control.pool(OF_TWO).unwrap() });
            status.state.expect("it is open").metadata
        };
        assert_eq!(metadata(), MetadataState::Failed);
        cluster.fill(1, FEW, ALONE);
        // When it can be written it counts again, and nobody takes it for an older one.
        cluster.world.set_disk_faults(cluster.servers[1], SMALL.0, DiskFaults::default());
        cluster.control(1, |control| async move { control.reopen_pool(OF_TWO).await.unwrap() });
        cluster.start(0);
        cluster.wait_until_in_sync(0, 2);
        cluster.wait_until_all_serve();
        assert_eq!(metadata(), MetadataState::Writable);
        for index in [0, 1] {
            assert_eq!(cluster.holds(index, BLOCKS), [BEFORE], "through node {}", index + 1);
            assert_eq!(cluster.holds(index, FEW), [ALONE], "through node {}", index + 1);
        }
        assert!(!cluster.says_pool_set_back(1));
    });
}

/// The second node has continued alone, and its disk is set back while it is down. It cannot ask the record,
/// but has followed it far enough to know. Otherwise it would serve what hosts have overwritten, and the
/// first node would resync from that.
#[test]
fn a_node_does_not_continue_alone_with_a_disk_that_was_set_back_since() {
    each_seed(3, |seed| {
        let cluster = Cluster::of_two(seed);
        cluster.fill(A, BLOCKS, BEFORE);
        cluster.world.run_for(Duration::from_secs(10));
        cluster.world.crash(cluster.servers[B]);
        let yesterday = cluster.image(B);
        cluster.start(B);
        cluster.wait_until_in_sync(A, 2);
        cluster.fill(B, BLOCKS, AFTER);
        cluster.world.run_for(Duration::from_secs(20));
        cluster.lose_a();
        cluster.world.run_for(GOES_ON);
        assert!(cluster.serves(B) && cluster.fork(B).is_some());
        cluster.fill(B, FEW, ALONE);
        cluster.world.crash(cluster.servers[B]);
        cluster.put_back(B, yesterday);
        cluster.start(B);
        cluster.world.run_for(GOES_ON * 2);
        assert!(!cluster.serves(B), "hosts have seen newer data");
        cluster.return_a();
        cluster.wait_until("it says so", || cluster.says_pool_set_back(B));
        cluster.world.run_for(GOES_ON * 2);
        assert!(!cluster.serves(A) && !cluster.serves(B), "nobody has what was written alone");
        // An administrator accepts what is left.
        cluster.control(B, |control| async move { control.accept_older(POOL).await.map(drop).unwrap() });
        cluster.wait_until_one();
        for index in [A, B] {
            assert_eq!(cluster.holds(index, BLOCKS), [BEFORE], "through node {}", index + 1);
        }
    });
}

/// An image of a pool in use, taken by the node's latest process before the crash: other nodes know that the
/// pool's count has grown since.
#[test]
fn an_image_of_a_pool_in_use_is_noticed_when_it_is_old() {
    each_seed(3, |seed| {
        let cluster = Cluster::new(seed, 2, 2);
        cluster.add_volume(VolumeKind::Thick, 2);
        cluster.fill(0, BLOCKS, BEFORE);
        let earlier = cluster.image(1);
        // As long as it is written, its count grows once a minute.
        for second in 0..70 {
            cluster.fill(0, second..second + 1, AFTER);
            cluster.world.run_for(Duration::from_secs(1));
        }
        cluster.world.crash(cluster.servers[1]);
        cluster.put_back(1, earlier);
        cluster.start(1);
        cluster.wait_until_in_sync(0, 2);
        cluster.wait_until_all_serve();
        assert_eq!(cluster.holds(1, BLOCKS), [AFTER]);
    });
}

/// The cost: an idle pool writes nothing, and the loss of a node increases a pool's count once for all of its
/// volumes.
#[test]
fn a_pool_counts_on_once_for_many_volumes_and_never_when_idle() {
    const VOLUMES: u64 = 12;
    let cluster = Cluster::new(1, 2, 1);
    cluster.control(0, |control| async move {
        for number in 0..VOLUMES {
            let new = new_volume(POOL, Shape::thick());
            let (copies, name) = (Some(Placement::Count(2)), format!("volume-{number}"));
            let new = node::control::NewVolume { name, copies, size: base::ByteLen(MIB), ..new };
            control.create_volume(new).await.unwrap();
        }
    });
    cluster.world.run_for(Duration::from_secs(10));
    let before = cluster.mark(0);
    cluster.world.run_for(Duration::from_secs(300));
    assert_eq!(cluster.mark(0), before, "nothing was written");
    cluster.world.crash(cluster.servers[1]);
    cluster.world.run_for(Duration::from_secs(10));
    let counted = cluster.mark(0) - before;
    assert!((1..=2).contains(&counted), "{VOLUMES} volumes have changed: {counted}");
}

/// The only copy: no other node has its data, so an administrator has to accept that the older data are
/// served.
#[test]
fn older_data_of_the_only_copy_is_served_when_somebody_accepts_it() {
    each_seed(3, |seed| {
        let cluster = Cluster::new(seed, 2, 2);
        cluster.add_volume(VolumeKind::Thick, 2);
        cluster.fill(0, BLOCKS, BEFORE);
        cluster.world.run_for(Duration::from_secs(10));
        for index in [0, 1] {
            cluster.world.crash(cluster.servers[index]);
        }
        let images = [cluster.image(0), cluster.image(1)];
        for index in [0, 1] {
            cluster.start(index);
        }
        cluster.wait_until_in_sync(0, 2);
        cluster.fill(0, BLOCKS, AFTER);
        cluster.world.run_for(Duration::from_secs(10));
        for (index, image) in images.into_iter().enumerate() {
            cluster.world.crash(cluster.servers[index]);
            cluster.put_back(index, image);
        }
        for index in [0, 1] {
            cluster.start(index);
        }
        cluster.world.run_for(Duration::from_secs(10));
        assert!(cluster.says_pool_set_back(0) && cluster.says_pool_set_back(1));
        let serves = |index: usize| {
            cluster
                .control(index, |control| async move { control.reconciler().unwrap().volumes()[0].serving })
        };
        assert!(!serves(0) && !serves(1), "both are older");
        cluster.control(1, |control| async move { control.accept_older(POOL).await.unwrap() });
        cluster.wait_until_in_sync(1, 2);
        cluster.wait_until_all_serve();
        for index in [0, 1] {
            assert_eq!(cluster.holds(index, BLOCKS), [BEFORE]);
        }
        assert_eq!(cluster.checksum(0), cluster.checksum(1));
        assert!(!cluster.says_pool_set_back(0) && !cluster.says_pool_set_back(1));
    });
}

const RECORD: &str = "/ursa/record";

/// A whole machine that was set back: the incarnation that it chooses next was used already.
#[test]
fn a_machine_that_was_set_back_takes_no_part_until_it_has_its_own_incarnation() {
    each_seed(3, |seed| {
        let cluster = Cluster::new(seed, 2, 2);
        cluster.add_volume(VolumeKind::Thick, 2);
        cluster.fill(0, BLOCKS, BEFORE);
        cluster.world.run_for(Duration::from_secs(10));
        cluster.world.crash(cluster.servers[1]);
        let (disk, record) = (cluster.image(1), cluster.world.disk_image(cluster.servers[1], RECORD));
        // The incarnation that the set-back node will choose is the latest one, or an earlier one.
        for _ in 0..=seed % 2 {
            cluster.start(1);
            cluster.wait_until_in_sync(0, 2);
            cluster.fill(1, BLOCKS, AFTER);
            cluster.world.run_for(Duration::from_secs(20));
            cluster.world.crash(cluster.servers[1]);
        }
        cluster.put_back(1, disk);
        cluster.world.remove_disk(cluster.servers[1], RECORD);
        cluster.world.put_file(cluster.servers[1], RECORD, record);
        cluster.start(1);
        cluster.world.run_for(Duration::from_secs(10));
        assert!(cluster.says_node_set_back(1));
        assert!(cluster.told(1).contains(&("node_set_back", Some("set-back"))));
        assert_eq!(cluster.in_sync(0), 1);
        assert_eq!(cluster.holds(0, BLOCKS), [AFTER]);
        cluster.world.crash(cluster.servers[1]);
        cluster.start(1);
        cluster.wait_until_in_sync(0, 2);
        cluster.wait_until_all_serve();
        assert!(!cluster.says_node_set_back(1));
        assert_eq!(cluster.holds(1, BLOCKS), [AFTER]);
        assert_eq!(cluster.checksum(0), cluster.checksum(1));
    });
}

/// Checks whether the copies, and what hosts read, are right in the end.
#[cfg(debug_assertions)]
#[test]
fn trusting_a_pool_that_was_set_back_is_noticed() {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use node::canary::{Canary, make};

    for (black_out, first) in [(false, false), (true, false), (true, true)] {
        make(Some(Canary::TrustSetBack));
        let noticed = catch_unwind(AssertUnwindSafe(|| set_back(1, black_out, first)));
        make(None);
        assert!(noticed.is_err(), "black-out {black_out}, set back first {first}");
    }
}
