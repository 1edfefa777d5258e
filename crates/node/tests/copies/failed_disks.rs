//! A copy's disk that fails a write: other copies continue, the last one can still be read, and the pool is
//! reopened while the node runs.

use super::forks::{A, B, record_node};
use super::*;

use cluster::memory::Fault;
use initiator::Transfer;
use initiator::command::{PersistentReserveOut, ReadKeys};
use node::control::{ControlError, ImportSpec, PoolStatus};
use node::copies::{Awaited, Copies, KeptOut, NodeId};
use proto::scsi::Cdb;
use rt::sim::{DiskFaults, DiskLatency};
use store::MetadataState;

pub(super) fn fail_writes(cluster: &Cluster, index: usize) {
    let faults = DiskFaults::default().with_unwritable(0..64 * MIB);
    cluster.world.set_disk_faults(cluster.servers[index], DISK, faults);
}

fn mend(cluster: &Cluster, index: usize) -> Result<PoolStatus, ControlError> {
    cluster.world.set_disk_faults(cluster.servers[index], DISK, DiskFaults::default());
    cluster.control(index, |control| async move { control.reopen_pool(POOL).await })
}

/// Runs the work of a host that retries its login through a node.
fn with_host<T: 'static, F: Future<Output = T> + 'static>(
    cluster: &Cluster,
    by: usize,
    work: impl FnOnce(Rc<Session>) -> F + 'static,
) -> T {
    let portal = cluster.portal(by);
    cluster.world.block_on(cluster.client("host"), CoreId(0), move || async move {
        let session = Session::connect(portal, TARGET, &named("host")).await.unwrap();
        // A copy that accepts no writes is not ready, but can be read.
        let _ = session.make_ready(LUN).await;
        work(Rc::new(session)).await
    })
}

/// Sense key and code in the response to TEST UNIT READY.
pub(super) fn readiness_of(cluster: &Cluster, by: usize) -> Option<(u8, u16)> {
    with_host(cluster, by, |session| async move {
        let tested = session.command(LUN, Cdb([0; 16]), Transfer::None).await;
        tested.err().map(|error| error.sense().unwrap())
    })
}

/// LOGICAL UNIT NOT READY, MANUAL INTERVENTION REQUIRED.
const NEEDS_HELP: (u8, u16) = (0x02, 0x0403);

pub(super) fn write_to(cluster: &Cluster, by: usize, lba: u64, value: u64) -> Result<(), initiator::Error> {
    with_host(cluster, by, move |session| async move { write(&session, lba, value).await })
}

pub(super) fn read_from(cluster: &Cluster, by: usize, lba: u64) -> Result<u64, initiator::Error> {
    with_host(cluster, by, move |session| async move { read(&session, lba).await })
}

fn assert_equal(cluster: &Cluster) {
    cluster.wait_until_in_sync(0, 2);
    cluster.wait_until_all_serve();
    cluster.world.run_for(Duration::from_secs(1));
    assert_eq!(cluster.checksum(0), cluster.checksum(1));
}

#[test]
fn others_continue_at_once_and_the_copy_is_back_when_its_pool_is_reopened() {
    each_seed(3, |seed| {
        let cluster = Cluster::new(seed, 2, 2);
        cluster.add_volume(VolumeKind::Thick, 2);
        write_to(&cluster, 0, 3, 1).unwrap();
        fail_writes(&cluster, 1);
        let began = cluster.world.now();
        write_to(&cluster, 0, 3, 2).unwrap();
        let stall = cluster.world.now() - began;
        assert!(stall < Duration::from_millis(1500), "{stall:?}");
        assert_eq!(cluster.in_sync(0), 1);
        write_to(&cluster, 0, 4, 3).unwrap();
        cluster.world.run_for(Duration::from_secs(1));
        assert_eq!(readiness_of(&cluster, 0), None, "this path serves");
        assert!(matches!(readiness_of(&cluster, 1), Some((0x02, _))), "this one does not");
        mend(&cluster, 1).unwrap();
        assert_equal(&cluster);
        assert_eq!(readiness_of(&cluster, 1), None);
        assert_eq!(read_from(&cluster, 1, 3).unwrap(), 2);
        assert_eq!(read_from(&cluster, 1, 4).unwrap(), 3);
        assert!(matches!(mend(&cluster, 1), Err(ControlError::PoolWorks(_))));
    });
}

/// A host registers through a node, so that it survives a power loss, and tries again while the status is
/// BUSY.
fn reserve_within(cluster: &Cluster, by: usize, limit: Duration) {
    const BUSY: u8 = 0x08;
    let began = cluster.world.now();
    let register = PersistentReserveOut { survives: true, ..PersistentReserveOut::register(7) };
    with_host(cluster, by, move |session| async move {
        while let Err(error) = session.reserve(LUN, register).await {
            let is_busy = matches!(error, initiator::Error::Status { status: BUSY, .. });
            assert!(error.is_unit_attention() || is_busy, "{error}");
            rt::sleep(Duration::from_millis(100)).await;
        }
    });
    let took = cluster.world.now() - began;
    assert!(took < limit, "{took:?}");
}

/// Found by the simulator: hosts that a reservation excludes write nothing. So only changes of reservations
/// could reveal that a copy's disk had failed, and every path answered each of them with BUSY.
#[test]
fn a_copy_that_cannot_store_a_reservation_leaves() {
    each_seed(4, |seed| {
        let cluster = Cluster::new(seed, 2, 2);
        cluster.add_volume(VolumeKind::Thick, 2);
        let failing = usize::from(seed % 2 == 0);
        fail_writes(&cluster, failing);
        reserve_within(&cluster, 1 - failing, Duration::from_secs(3));
        assert_eq!(cluster.in_sync(1 - failing), 1);
        mend(&cluster, failing).unwrap();
        assert_equal(&cluster);
    });
}

/// Found by the simulator (seed 4000608): the pool failed to store a registration, but its next opening found
/// it stored.
///
/// Meanwhile the host, which was not registered as far as it knew, unregistered and got GOOD. After a restart
/// it was registered.
#[test]
fn nothing_is_answered_that_rests_on_a_change_that_could_not_be_stored() {
    for seed in 1..=4 {
        let cluster = Cluster::new(seed, 2, 2);
        cluster.add_volume(VolumeKind::Thick, 2);
        cluster.world.crash(cluster.servers[1]);
        cluster.world.run_for(Duration::from_secs(2));
        let faults = DiskFaults { flush_error_one_in: 1, ..DiskFaults::default() };
        cluster.world.set_disk_faults(cluster.servers[0], DISK, faults);
        let register = |key| PersistentReserveOut { survives: true, ..PersistentReserveOut::register(key) };
        let asked =
            |key| with_host(&cluster, 0, move |host| async move { host.reserve(LUN, register(key)).await });
        assert_eq!(asked(7).unwrap_err().sense().map(|(key, _)| key), Some(0x04), "HARDWARE ERROR");
        assert_eq!(asked(0).unwrap_err().sense().map(|(key, _)| key), Some(0x04), "it may be registered");
        mend(&cluster, 0).unwrap();
        cluster.world.run_for(Duration::from_secs(1));
        asked(0).unwrap();
        cluster.world.crash(cluster.servers[0]);
        cluster.start(0);
        cluster.start(1);
        cluster.wait_until_all_serve();
        let keys = with_host(&cluster, 0, |host| async move { host.send(LUN, &ReadKeys).await.unwrap() });
        assert_eq!(keys, Vec::<u64>::new());
    }
}

/// The same with a disk that does not answer.
#[test]
fn a_copy_whose_disk_hangs_while_it_stores_a_reservation_leaves() {
    each_seed(4, |seed| {
        let cluster = Cluster::new(seed, 2, 2);
        cluster.add_volume(VolumeKind::Thick, 2);
        let hanging = usize::from(seed % 2 == 0);
        let long = Duration::from_secs(60)..Duration::from_secs(61);
        let hangs = DiskLatency { write: long.clone(), flush: long, ..DiskLatency::default() };
        cluster.world.set_disk_latency(cluster.servers[hanging], DISK, hangs);
        // Commands that were decided meanwhile are tried for ten seconds, and then answered with BUSY.
        reserve_within(&cluster, 1 - hanging, Duration::from_secs(12));
        assert_eq!(cluster.in_sync(1 - hanging), 1);
    });
}

/// Found by the simulator: a node without hosts expects no acknowledgments and owes none. It added a copy
/// again at once that another node had removed because of a hanging disk.
#[test]
fn a_copy_whose_disk_hangs_is_not_admitted_by_a_node_that_did_not_notice() {
    let cluster = Cluster::new(1, 3, 1);
    cluster.add_volume(VolumeKind::Thick, 3);
    let long = Duration::from_secs(600)..Duration::from_secs(601);
    let hangs = DiskLatency { write: long.clone(), flush: long, ..DiskLatency::default() };
    cluster.world.set_disk_latency(cluster.servers[1], DISK, hangs);
    let portal = cluster.portal(2);
    let host = cluster.client("host");
    let slow = Rc::new(Cell::new(0));
    let late = Rc::clone(&slow);
    drop(cluster.world.spawn_on(host, CoreId(0), move || async move {
        let session = log_in(portal, "writes").await.unwrap();
        for value in 0.. {
            let began = rt::now();
            let _ = write(&session, value % 8, value).await;
            late.set(late.get() + u32::from(rt::now() - began > Duration::from_secs(1)));
            rt::sleep(Duration::from_millis(50)).await;
        }
    }));
    cluster.world.run_for(Duration::from_secs(25));
    assert_eq!(slow.get(), 1, "hosts wait for it once in half a minute");
}

/// Found by the simulator: slices whose disk had not failed, or that had not been written since, could be
/// resynced. So the copy came in sync and removed itself again, ten times a second.
#[test]
fn a_copy_whose_disk_failed_is_admitted_only_after_its_pool_was_reopened() {
    each_seed(3, |seed| {
        let cluster = Cluster::new(seed, 2, 2);
        cluster.add_volume(VolumeKind::Thick, 2);
        fail_writes(&cluster, 1);
        write_to(&cluster, 0, 3, 1).unwrap();
        cluster.world.run_for(Duration::from_secs(5));
        let (epoch, waits_for) = cluster.control(0, |control| async move {
            let volume = control.reconciler().unwrap().volumes().remove(0);
            (volume.entry.epoch, volume.syncs[&1].waits_for.clone())
        });
        assert!(epoch <= 4, "it was taken out at epoch 2, and is at {epoch}");
        assert_eq!(waits_for, Some(Awaited::KeptOut(KeptOut::Failed(NodeId(2))).into()));
        mend(&cluster, 1).unwrap();
        assert_equal(&cluster);
    });
}

#[test]
fn the_only_copy_in_sync_is_read_on_and_written_again_when_its_pool_is_opened_again() {
    each_seed(3, |seed| {
        let cluster = Cluster::new(seed, 2, 2);
        cluster.add_volume(VolumeKind::Thick, 2);
        cluster.world.crash(cluster.servers[1]);
        cluster.world.run_for(Duration::from_secs(2));
        write_to(&cluster, 0, 3, 1).unwrap();
        fail_writes(&cluster, 0);
        write_to(&cluster, 0, 4, 2).unwrap_err();
        assert_eq!(read_from(&cluster, 0, 3).unwrap(), 1);
        write_to(&cluster, 0, 3, 3).unwrap_err();
        assert_eq!(read_from(&cluster, 0, 3).unwrap(), 1, "it was not begun");
        assert_eq!(readiness_of(&cluster, 0), Some(NEEDS_HELP), "what writes are answered");
        mend(&cluster, 0).unwrap();
        cluster.world.run_for(Duration::from_secs(1));
        assert_eq!(readiness_of(&cluster, 0), None);
        write_to(&cluster, 0, 3, 4).unwrap();
        cluster.start(1);
        assert_equal(&cluster);
        assert_eq!(read_from(&cluster, 1, 3).unwrap(), 4);
    });
}

/// The copies of a pool that is forgotten while it is open must not stay members: the next start does not
/// find them. Nor may they keep its disks open: then the pool could not be imported again.
#[test]
fn a_copy_whose_pool_is_forgotten_leaves_and_returns_with_it() {
    for kind in [VolumeKind::Thick, VolumeKind::Log] {
        let cluster = Cluster::new(1, 2, 2);
        cluster.add_volume(kind, 2);
        write_to(&cluster, 0, 3, 1).unwrap();
        fail_writes(&cluster, 1);
        // The pools follow the name.
        cluster.control(0, |control| async move {
            control.rename_volume(Shape::thick().name, "mail").await.unwrap();
        });
        let metadata = || {
            cluster.control(1, |control| async move { control.pool(POOL).unwrap().state.unwrap().metadata })
        };
        cluster.wait_until("its metadata cannot be written", || metadata() == MetadataState::Failed);
        cluster.world.set_disk_faults(cluster.servers[1], DISK, DiskFaults::default());
        cluster.control(1, |control| async move { control.forget_pool(POOL, true).await.unwrap() });
        for core in 0..2 {
            let open = cluster
                .world
                .block_on(cluster.servers[1], CoreId(core), || async { Copies::current().slices().len() });
            assert_eq!(open, 0, "{kind:?}, core {core}");
        }
        cluster.wait_until("it is no member", || cluster.in_sync(0) == 1);
        write_to(&cluster, 0, 3, 2).unwrap();
        cluster.control(1, |control| async move {
            let import = ImportSpec { paths: vec![DISK.into()], ..ImportSpec::default() };
            control.import_pool(import).await.map(drop).unwrap();
        });
        assert_equal(&cluster);
        assert_eq!(read_from(&cluster, 1, 3).unwrap(), 2);
    }
}

/// A second disk of the second node's pool, and the size of it.
const SECOND: &str = "/dev/second";
const SECOND_BYTES: u64 = 128 * MIB;

/// Adds the second disk, and at LUN 1 a volume that only this node has. That volume lies on the second disk,
/// where most space is left.
fn add_second_disk(cluster: &Cluster) {
    cluster.world.add_disk(cluster.servers[B], SECOND, SECOND_BYTES, 512);
    cluster.control(B, |control| async move {
        let disk = NewDisk { path: SECOND.into(), create: None, reserve: false };
        control.add_disk(POOL, disk, false).await.unwrap();
        let other = node::control::NewVolume { name: "other".into(), ..new_volume(POOL, Shape::thick()) };
        control.create_volume(other).await.unwrap();
        map(&control, "other", 1).await.unwrap();
    });
    cluster.world.run_for(Duration::from_secs(2));
}

/// The second disk fails a write of a host of that volume, and is out of service; returns the host.
fn fail_second_disk(cluster: &Cluster, name: &'static str) -> (rt::sim::NodeId, Rc<Session>) {
    let (client, portal) = (cluster.client(name), cluster.portal(B));
    let session = cluster.world.block_on(client, CoreId(0), move || async move {
        let session = Session::connect(portal, TARGET, &named(name)).await.unwrap();
        session.make_ready(Lun(1)).await.unwrap();
        Rc::new(session)
    });
    let faults = DiskFaults::default().with_unwritable(0..SECOND_BYTES);
    cluster.world.set_disk_faults(cluster.servers[B], SECOND, faults);
    let writer = Rc::clone(&session);
    let failed = cluster.world.block_on(client, CoreId(0), move || async move {
        writer.write(Lun(1), Lba(0), block(1), SIZE).await
    });
    failed.unwrap_err();
    cluster.world.set_disk_faults(cluster.servers[B], SECOND, DiskFaults::default());
    (client, session)
}

/// A copy waits for the cluster's record after its pool was reopened. The pool fails again, and is being
/// closed when the record is back: the copy is not opened there, or it would keep the pool's disks open.
#[test]
fn a_copy_is_not_opened_in_a_pool_that_is_being_closed() {
    each_seed(3, |seed| {
        let cluster = Cluster::new(seed, 2, 2);
        cluster.add_volume(VolumeKind::Thick, 2);
        add_second_disk(&cluster);
        cluster.record.begin(record_node(B), Fault::Unreachable);
        let _first = fail_second_disk(&cluster, "first");
        cluster.control(B, |control| async move { control.reopen_pool(POOL).await.map(drop) }).unwrap();
        // The other node takes the copy out, and this one does not hear of it.
        let _ = write_to(&cluster, A, 3, 1);
        cluster.wait_until("it is no member", || cluster.in_sync(A) == 1);
        assert_eq!(cluster.in_sync(B), 2);
        let (client, session) = fail_second_disk(&cluster, "second");
        // The pool is not closed before this read has ended.
        let slow = Duration::from_secs(3)..Duration::from_secs(4);
        let latency = DiskLatency { read: slow, ..DiskLatency::default() };
        cluster.world.set_disk_latency(cluster.servers[B], SECOND, latency);
        let _read = cluster.world.spawn_on(client, CoreId(0), move || async move {
            attended(async || session.read(Lun(1), Lba(0), BlockCount(1), SIZE).await).await
        });
        cluster.world.run_for(Duration::from_millis(100));
        cluster.world.set_disk_latency(cluster.servers[B], SECOND, DiskLatency::default());
        let reopened = cluster.world.spawn_on(cluster.servers[B], CoreId(0), || async {
            Control::current().reopen_pool(POOL).await.map(drop)
        });
        cluster.world.run_for(Duration::from_millis(100));
        cluster.record.end(record_node(B), Fault::Unreachable);
        cluster.world.run_for(Duration::from_secs(2));
        assert_eq!(cluster.in_sync(B), 1, "it has heard that it may be opened");
        for core in 0..2 {
            let open = cluster
                .world
                .block_on(cluster.servers[B], CoreId(core), || async { Copies::current().slices().len() });
            assert_eq!(open, 0, "core {core}");
        }
        cluster.world.wait_for(reopened).unwrap().unwrap();
        assert_equal(&cluster);
        write_to(&cluster, A, 3, 2).unwrap();
        assert_eq!(read_from(&cluster, B, 3).unwrap(), 2);
    });
}

/// A pool that is closed loses its RAM volumes: it must not close while it has the only copy, and after that
/// the copy needs a full resync.
#[test]
fn a_copy_in_memory_is_not_forgotten_by_opening_its_pool_again() {
    let cluster = Cluster::new(1, 2, 2);
    cluster.add_volume(VolumeKind::Ram, 2);
    cluster.control(0, |control| async move {
        let thick = node::control::NewVolume { name: "other".into(), ..new_volume(POOL, Shape::thick()) };
        control.create_volume(thick).await.unwrap();
        map(&control, "other", 1).await.unwrap();
    });
    write_to(&cluster, 0, 3, 1).unwrap();
    // Until the node has written the new pool's mark: the pool must fail with a host's write.
    cluster.world.run_for(Duration::from_secs(2));
    fail_writes(&cluster, 0);
    let portal = cluster.portal(0);
    let failed = cluster.world.block_on(cluster.client("other"), CoreId(0), move || async move {
        let session = log_in(portal, "other").await.unwrap();
        session.make_ready(Lun(1)).await.unwrap();
        session.write(Lun(1), Lba(0), block(1), SIZE).await
    });
    failed.unwrap_err();
    cluster.world.crash(cluster.servers[1]);
    cluster.world.run_for(Duration::from_secs(3));
    let refused = mend(&cluster, 0).unwrap_err();
    assert!(matches!(refused, ControlError::OnlyInMemory { .. }), "{refused}");
    assert_eq!(read_from(&cluster, 0, 3).unwrap(), 1);
    cluster.start(1);
    assert_equal(&cluster);
    mend(&cluster, 0).unwrap();
    assert_equal(&cluster);
    assert_eq!(read_from(&cluster, 0, 3).unwrap(), 1);
}

/// At any moment of the other copy's resync.
#[test]
fn the_only_copy_in_sync_fails_while_it_gives_a_sync() {
    each_seed(6, |seed| {
        let cluster = Cluster::new(seed, 2, 2);
        cluster.add_volume(VolumeKind::Thick, 2);
        cluster.world.crash(cluster.servers[1]);
        cluster.world.run_for(Duration::from_secs(2));
        for region in 0..20 {
            write_to(&cluster, 0, region * 16, 1).unwrap();
        }
        cluster.start(1);
        cluster.world.run_for(Duration::from_millis(seed % 6 * 30));
        fail_writes(&cluster, 0);
        let failed = write_to(&cluster, 0, 1, 2).is_err();
        cluster.world.run_for(Duration::from_secs(3));
        // The other one may have been in sync by then.
        assert!(failed || cluster.in_sync(1) == 1);
        mend(&cluster, 0).unwrap();
        assert_equal(&cluster);
        write_to(&cluster, 0, 1, 3).unwrap();
        assert_eq!(read_from(&cluster, 1, 1).unwrap(), 3);
    });
}

/// The record already has the other copy's loss, and this node does not know of it yet.
#[test]
fn the_last_copy_fails_before_it_acts_alone() {
    const FAILS_AFTER: Duration = Duration::from_millis(2500);
    each_seed(3, |seed| {
        let cluster = Cluster::new(seed, 2, 2);
        cluster.add_volume(VolumeKind::Thick, 2);
        write_to(&cluster, 0, 3, 1).unwrap();
        let (client, portal) = (cluster.client("early"), cluster.portal(0));
        let session = cluster.world.block_on(client, CoreId(0), move || log_in(portal, "early")).unwrap();
        let slow = FAILS_AFTER..FAILS_AFTER + Duration::from_millis(1);
        let latency = DiskLatency { write: slow.clone(), flush: slow, ..DiskLatency::default() };
        cluster.world.set_disk_latency(cluster.servers[0], DISK, latency);
        fail_writes(&cluster, 0);
        drop(cluster.world.spawn_on(client, CoreId(0), move || async move { write(&session, 4, 2).await }));
        cluster.world.run_for(Duration::from_millis(10));
        for fault in [Fault::WatchHeld, Fault::AnswersLost] {
            cluster.record.begin(record_node(A), fault);
        }
        cluster.world.crash(cluster.servers[1]);
        cluster.world.run_for(FAILS_AFTER * 2);
        assert_eq!(cluster.in_sync(0), 2, "it does not know yet that it is alone");
        cluster.world.set_disk_latency(cluster.servers[0], DISK, DiskLatency::default());
        mend(&cluster, 0).unwrap();
        for fault in [Fault::WatchHeld, Fault::AnswersLost] {
            cluster.record.end(record_node(A), fault);
        }
        cluster.world.run_for(Duration::from_secs(3));
        assert_eq!(cluster.in_sync(0), 1);
        assert_eq!(read_from(&cluster, 0, 3).unwrap(), 1);
        write_to(&cluster, 0, 4, 3).unwrap();
        cluster.start(1);
        assert_equal(&cluster);
        assert_eq!(read_from(&cluster, 1, 4).unwrap(), 3);
    });
}
