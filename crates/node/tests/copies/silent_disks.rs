//! A node with two pools, one of them on a disk that does not answer: the copies in the other one work.

use cluster::memory::Fault;
use rt::sim::{DiskFaults, DiskLatency};

use super::failed_disks::write_to;
use super::forks::record_node;
use super::set_back::log_in_at_last;
use super::*;

/// The second pool of each node: by its name it comes after the first one.
const SECOND: &str = "second";
const SECOND_DISK: &str = "/dev/second";

/// How long the disk is silent: longer than all that a test waits for meanwhile.
const SILENCE: Duration = Duration::from_secs(300);

fn silence() -> std::ops::Range<Duration> {
    SILENCE..SILENCE + Duration::from_nanos(1)
}

/// Two nodes with two pools each: three volumes have copies in the first pools, and one in the second.
fn two_pools(seed: u64) -> Cluster {
    let cluster = Cluster::new(seed, 2, 2);
    (0..2).for_each(|index| cluster.add_pool(index, SECOND, SECOND_DISK));
    for (pool, name) in [(POOL, "one"), (POOL, "two"), (POOL, "three"), (SECOND, Shape::thick().name)] {
        cluster.add_to(pool, name);
    }
    cluster.control(0, |control| async move {
        map(&control, Shape::thick().name, 0).await.unwrap();
    });
    cluster.wait_until_all_serve();
    cluster
}

impl Cluster {
    /// Creates a volume with copies in these pools of both nodes.
    fn add_to(&self, pool: &'static str, name: &'static str) {
        self.control(0, move |control| async move {
            let new = new_volume(pool, Shape { name, mib: 4, ..Shape::thick() });
            let copies = Some(Placement::Count(2));
            control.create_volume(node::control::NewVolume { copies, ..new }).await.unwrap();
        });
    }

    /// Starts the second node. Its first pool's disk gets this latency when the pools are open, before the
    /// node has read the record.
    fn start_with_latency(&self, latency: DiskLatency) {
        self.world.crash(self.servers[1]);
        self.world.run_for(Duration::from_secs(5));
        assert_eq!(self.in_sync(0), 1);
        self.record.begin(record_node(1), Fault::Unreachable);
        self.start(1);
        self.world.set_disk_latency(self.servers[1], DISK, latency);
        self.record.end(record_node(1), Fault::Unreachable);
    }

    /// The disk answers again: nothing is missing.
    fn end_silence(&self) {
        self.world.set_disk_latency(self.servers[1], DISK, DiskLatency::default());
        self.world.run_for(2 * SILENCE);
        let volumes = self.control(0, |control| async move { control.reconciler().unwrap().volumes() });
        assert!(volumes.len() >= 4);
        for volume in volumes {
            let copies = volume.entry.copies;
            let all = copies.iter().all(|copy| copy.standing == node::copies::StandingEntry::InSync);
            assert!(all, "{}: {copies:?}", volume.entry.name);
        }
    }
}

#[test]
fn a_pool_whose_mark_cannot_be_written_keeps_no_other_pool_closed() {
    each_seed(3, |seed| {
        let cluster = two_pools(seed);
        cluster.start_with_latency(DiskLatency { write: silence(), ..DiskLatency::default() });
        cluster.wait_until_in_sync(0, 2);
        cluster.end_silence();
    });
}

/// The volumes are opened in the order of their random identities.
#[test]
fn a_copy_that_takes_long_to_open_keeps_none_in_another_pool_closed() {
    each_seed(4, |seed| {
        let cluster = two_pools(seed);
        // The mark of the pool is written, but the maps of its copies are not read.
        cluster.start_with_latency(DiskLatency { read: silence(), ..DiskLatency::default() });
        cluster.wait_until_in_sync(0, 2);
        cluster.end_silence();
    });
}

/// The node looks for copies to open every second, and with each change of the record.
#[test]
fn the_copies_of_a_slow_pool_are_opened_one_after_the_other() {
    let ms = Duration::from_millis;
    each_seed(3, |seed| {
        let cluster = two_pools(seed);
        cluster.start_with_latency(DiskLatency { read: silence(), ..DiskLatency::default() });
        let opening = || {
            cluster.control(1, |control| async move {
                let Ok(reconciler) = control.reconciler() else { return 0 };
                let others = reconciler.wanted_here().into_iter();
                let others = others.filter(|(_, wanted)| wanted.name != Shape::thick().name);
                others.filter(|(id, _)| reconciler.is_being_opened(*id)).count()
            })
        };
        // An attempt that ends at once, because the pool was not compared with the record yet, does not
        // count.
        let is_slow = || {
            let is_begun = opening() > 0;
            cluster.world.run_for(if is_begun { ms(50) } else { ms(10) });
            is_begun && opening() > 0
        };
        assert!((0..1000).any(|_| is_slow()), "the disk is silent");
        cluster.world.run_for(ms(1500));
        assert_eq!(opening(), 1, "each waits for two seconds for the one before it");
        cluster.end_silence();
    });
}

/// The second node's copy in the second pool fails a write, and its disk works again.
fn fail_second(cluster: &Cluster) {
    let server = cluster.servers[1];
    cluster.world.set_disk_faults(server, SECOND_DISK, DiskFaults::default().with_unwritable(0..64 * MIB));
    write_to(cluster, 0, 0, 1).unwrap();
    cluster.world.run_for(Duration::from_secs(2));
    assert_eq!(cluster.in_sync(0), 1, "the copy's disk has failed");
    cluster.world.set_disk_faults(server, SECOND_DISK, DiskFaults::default());
}

/// What waits for the first pool must not hold the second one: then it could not be opened again.
#[test]
fn a_pool_is_reopened_while_the_mark_of_another_one_is_not_written() {
    each_seed(3, |seed| {
        let cluster = two_pools(seed);
        let server = cluster.servers[1];
        let latency = DiskLatency { write: silence(), ..DiskLatency::default() };
        cluster.world.set_disk_latency(server, DISK, latency);
        // The marks of all pools advance, because a copy acts in another configuration.
        cluster.add_to(SECOND, "more");
        cluster.world.run_for(Duration::from_secs(5));
        fail_second(&cluster);
        let began = cluster.world.now();
        let reopened =
            cluster.control(1, |control| async move { control.reopen_pool(SECOND).await.map(drop) });
        assert!(reopened.is_ok(), "{reopened:?}");
        let took = cluster.world.now() - began;
        assert!(took < Duration::from_secs(5), "{took:?}");
        cluster.wait_until_in_sync(0, 2);
        cluster.end_silence();
    });
}

/// The change of the mark holds the disks of its pool until it ends, for longer than an opening waits for
/// them.
#[test]
fn a_pool_is_reopened_although_its_own_mark_is_being_written() {
    each_seed(3, |seed| {
        let cluster = two_pools(seed);
        let server = cluster.servers[1];
        let slow = Duration::from_secs(12)..Duration::from_millis(12_001);
        let latency = DiskLatency { write: slow, ..DiskLatency::default() };
        cluster.world.set_disk_latency(server, SECOND_DISK, latency);
        // The marks of all pools advance, because a copy acts in another configuration.
        cluster.add_to(POOL, "more");
        cluster.world.run_for(Duration::from_secs(3));
        cluster.world.set_disk_latency(server, SECOND_DISK, DiskLatency::default());
        fail_second(&cluster);
        let reopened =
            cluster.control(1, |control| async move { control.reopen_pool(SECOND).await.map(drop) });
        assert!(reopened.is_ok(), "{reopened:?}");
        cluster.wait_until_in_sync(0, 2);
    });
}

/// The new mark is on the disk, and the record has not answered yet, when the pool fails and is reopened. The
/// record's answer allows the pool's copies to be used: they are opened at once, not with the next look.
#[test]
fn the_copies_of_a_reopened_pool_are_opened_as_soon_as_the_record_knows_its_mark() {
    each_seed(6, |seed| {
        let cluster = Cluster::new(seed, 2, 2);
        cluster.add_volume(VolumeKind::Thick, 2);
        cluster.world.run_for(Duration::from_secs(5));
        let server = cluster.servers[0];
        // The mark advances, because the copy acts in another configuration.
        let slow = Duration::from_secs(3)..Duration::from_millis(3001);
        cluster.world.set_disk_latency(server, DISK, DiskLatency { write: slow, ..DiskLatency::default() });
        cluster.world.crash(cluster.servers[1]);
        cluster.world.run_for(Duration::from_secs(3));
        assert_eq!(cluster.in_sync(0), 1);
        for fault in [Fault::Unreachable, Fault::WatchHeld] {
            cluster.record.begin(record_node(0), fault);
        }
        cluster.world.set_disk_latency(server, DISK, DiskLatency::default());
        cluster.world.run_for(Duration::from_millis(3500));
        cluster.world.set_disk_faults(server, DISK, DiskFaults::default().with_unwritable(0..64 * MIB));
        let portal = cluster.portal(0);
        cluster.world.block_on(cluster.client("host"), CoreId(0), move || async move {
            let session = log_in_at_last(portal).await;
            assert!(write_durably(&session, 0, 1).await.is_err());
        });
        cluster.world.set_disk_faults(server, DISK, DiskFaults::default());
        cluster.control(0, |control| async move { control.reopen_pool(POOL).await.map(drop) }).unwrap();
        let is_open = || {
            cluster.control(0, |control| async move {
                let id = control.volume(Shape::thick().name).unwrap().info.id;
                control.reconciler().unwrap().is_open(id)
            })
        };
        assert!(!is_open(), "the pool has not been compared with the record");
        cluster.record.end(record_node(0), Fault::Unreachable);
        assert!(cluster.world.run_until(is_open, Duration::from_millis(300)));
    });
}

impl Cluster {
    /// Removes the second node's copy of a volume.
    fn remove_second(&self, name: &'static str) {
        self.control(0, move |control| async move { control.remove_copy(name, 2).await.map(drop).unwrap() });
    }

    /// Whether the second node has deleted its copy of a volume, and the record no longer has it.
    fn has_deleted(&self, name: &'static str) -> bool {
        self.control(0, move |control| async move {
            let entry = control.volume_entry(name).unwrap();
            entry.copies.len() == 1 && entry.dropped.is_empty()
        })
    }
}

/// Copies that were removed are deleted in the background.
#[test]
fn copies_that_a_silent_disk_does_not_delete_delay_nothing_in_another_pool() {
    each_seed(3, |seed| {
        let cluster = two_pools(seed);
        let latency = DiskLatency { write: silence(), ..DiskLatency::default() };
        cluster.world.set_disk_latency(cluster.servers[1], DISK, latency);
        let (silent, other) = (["one", "two"], Shape::thick().name);
        silent.into_iter().for_each(|name| cluster.remove_second(name));
        cluster.world.run_for(Duration::from_secs(3));
        cluster.remove_second(other);
        let deleted = cluster.world.run_until(|| cluster.has_deleted(other), Duration::from_secs(10));
        assert!(deleted, "it waits for the other pool");
        // One change for each copy, however often the node looks.
        for _ in 0..10 {
            cluster.world.run_for(Duration::from_secs(20));
            let changes = cluster.control(1, |control| async move { control.changes() });
            assert!(changes.len() <= silent.len(), "{changes:?}");
        }
        cluster.end_silence();
        assert!(silent.into_iter().all(|name| cluster.has_deleted(name)));
    });
}
