//! Logs that lack records which were acknowledged, because their disk cannot read them.

use node::control::{ControlError, NotServed, SnapshotSpec};
use rt::sim::DiskFaults;
use store::CopyState;

use super::failed_disks::readiness_of;
use super::*;

/// Blocks that are written, in this order.
const BLOCKS: std::ops::Range<u64> = 0..8;

impl Cluster {
    /// Two nodes with a log volume, all of whose records are known to be durable, and needed by the next
    /// start.
    fn with_records(seed: u64) -> Cluster {
        let cluster = Cluster::new(seed, 2, 2);
        cluster.add_volume(VolumeKind::Log, 2);
        cluster.write_marked(BLOCKS);
        cluster.say_what_is_durable();
        cluster
    }

    /// Waits until logs have reported all records as durable, but not until they merge them.
    fn say_what_is_durable(&self) {
        self.world.run_for(Duration::from_secs(2));
    }

    /// The first sector of the last record but one on a node's disk.
    fn last_head_but_one(&self, index: usize) -> std::ops::Range<u64> {
        let image = self.world.disk_image(self.servers[index], DISK);
        let number = |at: u64| {
            let mut number = [0; 8];
            image.read(at + 24, &mut number);
            u64::from_le_bytes(number)
        };
        let heads = self.places_of(index, *b"URSALREC").map(|at| (number(at), at));
        let mut heads: Vec<(u64, u64)> = heads.collect();
        heads.sort_unstable();
        let (_, at) = heads[heads.len() - 2];
        at..at + 512
    }

    /// Lets the head of that record rot while the node is down.
    fn lose_record(&self, index: usize) {
        self.world.corrupt_disk(self.servers[index], DISK, self.last_head_but_one(index));
    }

    /// Takes a snapshot of the volume through a node.
    fn take_snapshot(&self, index: usize) {
        self.control(index, |control| async move {
            let volumes = vec![Shape::thick().name.to_owned()];
            let spec = SnapshotSpec { name: "first".to_owned(), volumes, ..SnapshotSpec::default() };
            control.create_snapshot(spec).await.unwrap();
        });
    }

    /// How many snapshots a node's copy has.
    fn snapshots_of(&self, index: usize) -> usize {
        let here = self.control(index, |control| async move { control.snapshots_here().await.unwrap() });
        here.iter().map(|of| of.has.len()).sum()
    }

    /// Whether the pool of a node calls its copy one that holds all that it has acknowledged.
    fn trusts_copy(&self, index: usize) -> bool {
        let copy = self.control(index, |control| async move { control.volumes().await.remove(0).info.copy });
        copy.is_some_and(|copy| matches!(copy.state, CopyState::Trusted { .. }))
    }
}

/// Once, such a copy stayed offline until an administrator rebuilt it in another pool.
#[test]
fn a_copy_in_a_log_that_lacks_a_record_is_resynced_in_full() {
    each_seed(3, |seed| {
        let cluster = Cluster::with_records(seed);
        cluster.world.crash(cluster.servers[1]);
        cluster.lose_record(1);
        cluster.start(1);
        cluster.wait_until_all_serve();
        cluster.wait_until_in_sync(0, 2);
        (0..2).for_each(|index| cluster.assert_reads(index, BLOCKS));
        assert_eq!(cluster.checksum(0), cluster.checksum(1));
        assert_eq!(cluster.told_of(1, &["log_damaged", "pool_set_back"]).len(), 1);
        assert!(cluster.told_of(0, &["log_damaged"]).is_empty(), "the other node's disk is well");
        assert!(cluster.world.run_until(|| cluster.trusts_copy(1), Duration::from_secs(10)));
        // Its log opens as any other from now on, and what was resynced is there without the other copy.
        cluster.world.run_for(Duration::from_secs(3));
        cluster.world.crash(cluster.servers[1]);
        cluster.start(1);
        cluster.wait_until_all_serve();
        cluster.wait_until_in_sync(0, 2);
        assert!(cluster.told_of(1, &["log_damaged"]).is_empty());
        cluster.world.crash(cluster.servers[0]);
        cluster.world.run_for(Duration::from_secs(3));
        cluster.assert_reads(1, BLOCKS);
    });
}

/// What a snapshot has may be in the record that is missing, and the resync does not change it. Once, such a
/// copy had a snapshot with older data.
#[test]
fn a_copy_in_a_log_that_lacks_a_record_loses_its_snapshots() {
    let cluster = Cluster::with_records(1);
    cluster.take_snapshot(0);
    cluster.world.run_for(Duration::from_secs(3));
    assert_eq!([0, 1].map(|index| cluster.snapshots_of(index)), [1, 1]);
    cluster.world.crash(cluster.servers[1]);
    cluster.lose_record(1);
    cluster.start(1);
    cluster.wait_until_all_serve();
    cluster.wait_until_in_sync(0, 2);
    assert_eq!(cluster.told_of(1, &["log_damaged"]).len(), 1);
    assert_eq!([0, 1].map(|index| cluster.snapshots_of(index)), [1, 0]);
}

/// Only the copy in that log has the snapshot: the other one was out of sync when it was taken.
#[test]
fn a_log_that_lacks_a_record_stays_closed_while_a_snapshot_is_nowhere_else() {
    let cluster = Cluster::with_records(1);
    cluster.world.crash(cluster.servers[0]);
    cluster.world.run_for(Duration::from_secs(3));
    cluster.take_snapshot(1);
    cluster.start(0);
    cluster.wait_until_all_serve();
    cluster.wait_until_in_sync(1, 2);
    // The log has merged what is older.
    cluster.write_marked(BLOCKS);
    cluster.say_what_is_durable();
    cluster.world.crash(cluster.servers[1]);
    cluster.lose_record(1);
    cluster.start(1);
    cluster.world.run_for(Duration::from_secs(30));
    assert!(cluster.trusts_copy(1));
    assert_eq!(cluster.in_sync(0), 1);
    cluster.control(0, |control| async move { control.delete_snapshot("first").await.unwrap() });
    cluster.wait_until_all_serve();
    cluster.wait_until_in_sync(0, 2);
    (0..2).for_each(|index| cluster.assert_reads(index, BLOCKS));
}

/// Both nodes lose power, and neither disk reads all that it has acknowledged. Either may have what the other
/// one lacks, so neither is given up. As soon as one of them has everything again, it serves, and the other
/// one is resynced from it.
#[test]
fn copies_in_logs_that_all_lack_records_are_kept() {
    let cluster = Cluster::with_records(1);
    cluster.servers.iter().for_each(|server| cluster.world.crash(*server));
    let unread = DiskFaults::default().with_unreadable(cluster.last_head_but_one(0));
    cluster.world.set_disk_faults(cluster.servers[0], DISK, unread);
    cluster.lose_record(1);
    (0..2).for_each(|index| cluster.start(index));
    cluster.world.run_for(Duration::from_secs(30));
    for index in 0..2 {
        assert!(cluster.trusts_copy(index), "node {}", index + 1);
        assert!(!cluster.shown(index).unwrap().serving, "node {}", index + 1);
        let told = cluster.told_of(index, &["volume_unavailable", "log_damaged"]);
        let codes: Vec<_> = told.iter().map(|event| event.code.as_str()).collect();
        assert_eq!(codes, ["volume_unavailable"], "node {}", index + 1);
    }
    cluster.world.crash(cluster.servers[0]);
    cluster.world.set_disk_faults(cluster.servers[0], DISK, DiskFaults::default());
    cluster.start(0);
    cluster.wait_until_all_serve();
    cluster.wait_until_in_sync(0, 2);
    (0..2).for_each(|index| cluster.assert_reads(index, BLOCKS));
    assert_eq!(cluster.told_of(1, &["log_damaged"]).len(), 1);
}

/// The other copy is in sync in the record, but in an earlier life of its node, which is down.
#[test]
fn a_copy_in_a_log_that_lacks_a_record_is_kept_until_another_one_serves() {
    let cluster = Cluster::with_records(1);
    cluster.servers.iter().for_each(|server| cluster.world.crash(*server));
    cluster.lose_record(1);
    cluster.start(1);
    cluster.world.run_for(Duration::from_secs(30));
    assert!(cluster.trusts_copy(1));
    assert_ne!(readiness_of(&cluster, 1), None, "it is not served");
    cluster.start(0);
    cluster.wait_until_all_serve();
    cluster.wait_until_in_sync(0, 2);
    (0..2).for_each(|index| cluster.assert_reads(index, BLOCKS));
}

/// The log also has the only copy of a volume, which would lose what is missing without anybody noticing.
#[test]
fn a_log_that_lacks_a_record_stays_closed_if_a_volume_is_nowhere_else() {
    let cluster = Cluster::with_records(1);
    cluster.control(1, |control| async move {
        let alone = Shape { name: "alone", kind: VolumeKind::Log, ..Shape::thick() };
        let new = new_volume(POOL, alone);
        let copies = Some(Placement::Count(1));
        control.create_volume(node::control::NewVolume { copies, ..new }).await.unwrap();
    });
    cluster.world.crash(cluster.servers[1]);
    cluster.lose_record(1);
    cluster.start(1);
    cluster.world.run_for(Duration::from_secs(30));
    assert_eq!(cluster.in_sync(0), 1);
    cluster.assert_reads(0, BLOCKS);
    assert!(cluster.told_of(1, &["log_damaged"]).is_empty());
    for volume in ["thick", "alone"] {
        let problem =
            cluster.control(1, move |control| async move { control.volume(volume).unwrap().problem });
        let is_damaged = |error: &ControlError| matches!(error, ControlError::LogDamaged { .. });
        let is_told = matches!(&problem, Some(NotServed::Unopened(error)) if is_damaged(error));
        assert!(is_told, "{problem:?}");
    }
    // The log opens when that volume is gone.
    cluster.control(1, |control| async move { control.delete_volume("alone", false).await.unwrap() });
    cluster.wait_until_all_serve();
    cluster.wait_until_in_sync(0, 2);
    (0..2).for_each(|index| cluster.assert_reads(index, BLOCKS));
}
