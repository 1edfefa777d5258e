//! A volume with a single copy gets a copy on another node, while hosts use it.

use base::ByteLen;
use initiator::command::PersistentReserveOut;
use node::control::{AddedCopy, ControlError, ImportSpec, SpaceChange};
use node::copies::NewCopy;
use replica::Slot;
use rt::sim::{DiskFaults, DiskLatency};
use rt::sync::Receiver;

use super::reservations::{keys, reserve};
use super::set_back::log_in_at_last;
use super::*;
use crate::rig::RECORD;

const BLOCKS: std::ops::Range<u64> = 0..64;

impl Cluster {
    /// Creates a volume of 8 MiB that only the first node has, and maps it.
    fn add_alone(&self, kind: VolumeKind) {
        self.control(0, move |control| async move {
            let shape = Shape { kind, ..Shape::thick() };
            control.create_volume(new_volume(POOL, shape)).await.unwrap();
            map(&control, shape.name, 0).await.unwrap();
        });
        self.world.run_for(Duration::from_millis(100));
    }

    fn replicate(&self) -> Result<(), ControlError> {
        self.control(0, |control| async move { control.add_copy(Shape::thick().name, second_node()).await })
    }

    /// Creates a volume with copies on both nodes.
    fn add_other(&self) {
        self.control(0, |control| async move {
            let shape = Shape { name: "other", ..Shape::thick() };
            let new = new_volume(POOL, shape);
            let copies = Some(Placement::Count(2));
            control.create_volume(node::control::NewVolume { copies, ..new }).await.unwrap();
        });
        self.world.run_for(Duration::from_secs(1));
    }

    /// Whether the first node's pool calls the volume one of several copies.
    fn is_copy(&self) -> bool {
        self.control(0, |control| async move { !control.volume(Shape::thick().name).unwrap().info.is_sole() })
    }

    /// Whether the slices of the first node's copy are open, and those of a copy.
    fn is_open_as_copy(&self) -> bool {
        self.control(0, |control| async move {
            let id = control.volume(Shape::thick().name).unwrap().info.id;
            control.reconciler().unwrap().is_open(id)
        })
    }

    fn copies_in_record(&self) -> usize {
        self.control(
            0,
            |control| async move { control.reconciler().unwrap().volumes()[0].entry.copies.len() },
        )
    }
}

/// A host of the first node writes blocks until it is ended, each once: a later write would hide the loss of
/// an earlier one. Then it flushes, and returns how many blocks it has written.
fn write_each_once(cluster: &Cluster, pause: Duration) -> (Rc<Cell<bool>>, Receiver<u64>) {
    let (client, portal) = (cluster.client("host"), cluster.portal(0));
    let ended = Rc::new(Cell::new(false));
    let ends = Rc::clone(&ended);
    let host = cluster.world.spawn_on(client, CoreId(0), move || async move {
        let session = log_in(portal, "host").await.unwrap();
        let mut written = 0;
        while !ends.get() && written < 2048 {
            write(&session, written, 5).await.unwrap();
            written += 1;
            rt::sleep(pause).await;
        }
        // The first command after the volume has got copies may get the unit attention for the path's new
        // state instead.
        attended(async || session.flush(LUN).await).await.unwrap();
        written
    });
    (ended, host)
}

/// Writes the blocks in turn until it is ended, each time with the next number, and reads each back, which
/// nothing may hold up for long. Returns the last number.
pub(super) async fn write_in_turn(session: &Session, ended: &Cell<bool>) -> u64 {
    let mut last = 0;
    while !ended.get() {
        last += 1;
        let (lba, began) = (last % BLOCKS.end, rt::now());
        write(session, lba, last).await.unwrap();
        assert_eq!(read(session, lba).await.unwrap(), last);
        let took = rt::now() - began;
        assert!(took < Duration::from_millis(500), "{took:?}");
    }
    assert!(last > 100, "{last} writes");
    last
}

fn second_node() -> AddedCopy {
    AddedCopy { node: 2, pool: None, instead_of: None }
}

#[test]
fn a_volume_that_a_node_has_alone_gets_a_copy_while_hosts_use_it() {
    each_seed(6, |seed| {
        let kind = if seed % 2 == 0 { VolumeKind::Thick } else { VolumeKind::Ram };
        let cluster = Cluster::new(seed, 2, 2);
        cluster.add_alone(kind);
        let [portal, other] = [0, 1].map(|index| cluster.portal(index));
        let (client, ended) = (cluster.client("host"), Rc::new(Cell::new(false)));
        let ends = Rc::clone(&ended);
        let host = cluster.world.spawn_on(client, CoreId(0), move || async move {
            let session = log_in(portal, "host").await.unwrap();
            // The registration does not survive a power loss: only the unit knows of it.
            reserve(&session, PersistentReserveOut::register(7)).await.unwrap();
            write_in_turn(&session, &ends).await
        });
        cluster.world.run_for(Duration::from_millis(200));
        cluster.replicate().unwrap();
        cluster.wait_until_in_sync(0, 2);
        cluster.world.run_for(Duration::from_millis(500));
        ended.set(true);
        let last = cluster.world.wait_for(host).unwrap();
        let found = cluster.world.block_on(client, CoreId(0), move || async move {
            let session = log_in(other, "host").await.unwrap();
            assert_eq!(keys(&session).await, [7].into());
            let mut found = Vec::new();
            for lba in BLOCKS {
                found.push(read(&session, lba).await.unwrap());
            }
            found
        });
        let newest = |lba| (0..=last).rev().find(|value| value % BLOCKS.end == lba).unwrap();
        assert_eq!(found, BLOCKS.map(newest).collect::<Vec<u64>>());
        assert_eq!(cluster.checksum(0), cluster.checksum(1));
    });
}

#[test]
fn a_crash_while_a_volume_gets_its_first_copy_loses_nothing() {
    let (mut sole, mut between, mut several) = (0, 0, 0);
    for cut in 0..40 {
        let cluster = Cluster::new(cut, 2, 1);
        cluster.add_alone(VolumeKind::Thick);
        cluster.fill(0, BLOCKS, 1);
        drop(cluster.world.spawn_on(cluster.servers[0], CoreId(0), || async {
            let _ = Control::current().add_copy(Shape::thick().name, second_node()).await;
        }));
        cluster.world.run_for(Duration::from_micros(150 * cut * cut));
        match (cluster.is_copy(), cluster.copies_in_record() > 1) {
            (false, _) => sole += 1,
            (true, false) => between += 1,
            (true, true) => several += 1,
        }
        cluster.world.crash(cluster.servers[0]);
        cluster.start(0);
        assert_eq!(cluster.holds(0, BLOCKS), [1], "cut {cut}");
        cluster.fill(0, 0..BLOCKS.end / 2, 2);
        cluster.world.run_for(Duration::from_secs(3));
        match cluster.replicate() {
            Ok(()) | Err(ControlError::HasCopy { .. }) => {}
            Err(error) => panic!("cut {cut}: {error}"),
        }
        cluster.wait_until_in_sync(0, 2);
        cluster.wait_until_all_serve();
        assert_eq!(cluster.holds(1, BLOCKS), [2, 1], "cut {cut}");
    }
    assert!(
        sole > 3 && between > 3 && several > 3,
        "{sole} sole, {between} in between, {several} with several copies"
    );
}

/// A process that ends loses its RAM volume. What hosts write after that is kept.
#[test]
fn a_crash_while_a_volume_in_memory_gets_its_first_copy_ends_well() {
    let mut sole = 0;
    for cut in 0..20 {
        let cluster = Cluster::new(cut, 2, 1);
        cluster.add_alone(VolumeKind::Ram);
        drop(cluster.world.spawn_on(cluster.servers[0], CoreId(0), || async {
            let _ = Control::current().add_copy(Shape::thick().name, second_node()).await;
        }));
        cluster.world.run_for(Duration::from_micros(5 * cut * cut));
        cluster.world.crash(cluster.servers[0]);
        cluster.start(0);
        // The only copy, and it was in memory.
        if cluster.is_copy() {
            continue;
        }
        sole += 1;
        cluster.fill(0, BLOCKS, 3);
        cluster.world.run_for(Duration::from_secs(3));
        assert_eq!(cluster.holds(0, BLOCKS), [3], "cut {cut}");
        match cluster.replicate() {
            Ok(()) | Err(ControlError::HasCopy { .. }) => {}
            Err(error) => panic!("cut {cut}: {error}"),
        }
        cluster.wait_until_in_sync(0, 2);
        assert_eq!(cluster.holds(1, BLOCKS), [3], "cut {cut}");
    }
    assert!(sole > 1, "{sole}");
}

/// Otherwise hosts would use the earlier state of the volume beside that of the cluster: it has the same
/// identity.
#[test]
fn a_pool_that_was_set_back_is_not_served_where_the_volume_has_no_copy_any_more() {
    let cluster = Cluster::new(1, 2, 2);
    cluster.add_alone(VolumeKind::Thick);
    cluster.fill(0, BLOCKS, 1);
    let image = cluster.image(0);
    cluster.replicate().unwrap();
    cluster.wait_until_in_sync(0, 2);
    cluster.fill(1, BLOCKS, 2);
    cluster.control(1, |control| async move { control.remove_copy(Shape::thick().name, 1).await.unwrap() });
    cluster.world.run_for(Duration::from_secs(5));
    cluster.world.crash(cluster.servers[0]);
    cluster.put_back(0, image);
    cluster.start(0);
    cluster.world.run_for(Duration::from_secs(1));
    let portal = cluster.portal(0);
    let served = cluster.world.block_on(cluster.client("host"), CoreId(0), move || async move {
        match log_in(portal, "host").await {
            Some(session) => read(&session, 0).await.is_ok(),
            None => false,
        }
    });
    assert!(!served);
    assert_eq!(cluster.holds(1, BLOCKS), [2]);
}

/// Earlier writes may be in a cache, and a flush of a volume with copies does nothing.
#[test]
fn earlier_writes_are_on_the_disk_after_the_flush() {
    each_seed(6, |seed| {
        let cluster = Cluster::new(seed, 2, 2);
        cluster.add_alone(VolumeKind::Thick);
        let (ended, host) = write_each_once(&cluster, Duration::ZERO);
        cluster.world.run_for(Duration::from_millis(5));
        cluster.replicate().unwrap();
        ended.set(true);
        let written = cluster.world.wait_for(host).unwrap();
        cluster.servers.iter().for_each(|server| cluster.world.crash(*server));
        (0..2).for_each(|index| cluster.start(index));
        assert_eq!(cluster.holds(0, 0..written), [5], "{written} blocks");
    });
}

/// A volume is flushed before hosts have to wait for it to become a copy. What they write while that flush is
/// under way is only in the cache.
#[test]
fn writes_during_the_previous_flush_are_on_the_disk_too() {
    let ms = Duration::from_millis;
    each_seed(6, |seed| {
        let cluster = Cluster::new(seed, 2, 1);
        cluster.add_alone(VolumeKind::Thick);
        let slow = DiskLatency { flush: ms(100)..ms(101), ..DiskLatency::default() };
        cluster.world.set_disk_latency(cluster.servers[0], DISK, slow);
        let (ended, host) = write_each_once(&cluster, ms(2));
        cluster.world.run_for(ms(5));
        drop(cluster.world.spawn_on(cluster.servers[0], CoreId(0), || async {
            let _ = Control::current().add_copy(Shape::thick().name, second_node()).await;
        }));
        let is_open = (0..5000).any(|_| {
            cluster.world.run_for(ms(1));
            cluster.is_open_as_copy()
        });
        assert!(is_open);
        // At once: the next change of the pool's metadata flushes all of its disk.
        ended.set(true);
        let written = cluster.world.wait_for(host).unwrap();
        cluster.world.crash(cluster.servers[0]);
        cluster.start(0);
        assert_eq!(cluster.holds(0, 0..written), [5], "{written} blocks");
    });
}

/// The pool says then that no other node has the volume.
#[test]
fn a_pool_that_was_set_back_to_before_a_volume_got_copies_is_not_served() {
    each_seed(3, |seed| {
        let cluster = Cluster::new(seed, 2, 2);
        cluster.add_alone(VolumeKind::Thick);
        if seed % 2 == 0 {
            // Another copy, too, makes the node compare the pool with the record.
            cluster.add_other();
        }
        cluster.fill(0, BLOCKS, 1);
        let image = cluster.image(0);
        cluster.replicate().unwrap();
        cluster.wait_until_in_sync(0, 2);
        cluster.fill(0, BLOCKS, 2);
        cluster.world.crash(cluster.servers[0]);
        cluster.world.run_for(Duration::from_secs(2));
        cluster.put_back(0, image);
        cluster.start(0);
        assert_eq!(cluster.holds(0, BLOCKS), [2]);
        cluster.wait_until_in_sync(1, 2);
        assert_eq!(cluster.checksum(0), cluster.checksum(1));
    });
}

/// The first node's pool is set back to when only this node had the volume.
///
/// The node cannot take part in its cluster at first, so it serves the volume. When it has read the record, a
/// host's write is still at its disk.
///
/// `before` happens while both nodes have copies in sync.
fn set_back_with_a_write_at_the_disk(seed: u64, takes: Duration, before: impl FnOnce(&Cluster)) -> Cluster {
    let cluster = Cluster::new(seed, 2, 2);
    cluster.add_alone(VolumeKind::Thick);
    cluster.fill(0, BLOCKS, 1);
    let image = cluster.image(0);
    cluster.replicate().unwrap();
    cluster.wait_until_in_sync(0, 2);
    cluster.fill(1, BLOCKS, 2);
    before(&cluster);
    // Long enough for the node to store which hosts may use the volume.
    cluster.world.run_for(Duration::from_secs(10));
    let server = cluster.servers[0];
    cluster.world.crash(server);
    cluster.world.run_for(Duration::from_secs(2));
    cluster.put_back(0, image);
    let faults = DiskFaults { write_error_one_in: 1, ..DiskFaults::default() };
    cluster.world.set_disk_faults(server, RECORD, faults);
    cluster.start(0);
    let (client, portal) = (cluster.client("host"), cluster.portal(0));
    let session = cluster.world.block_on(client, CoreId(0), move || log_in_at_last(portal));
    let slow = takes..takes + Duration::from_nanos(1);
    cluster.world.set_disk_latency(server, DISK, DiskLatency { write: slow, ..DiskLatency::default() });
    drop(cluster.world.spawn_on(client, CoreId(0), move || async move { write(&session, 0, 3).await }));
    cluster.world.run_for(Duration::from_millis(500));
    cluster.world.set_disk_latency(server, DISK, DiskLatency::default());
    cluster.world.set_disk_faults(server, RECORD, DiskFaults::default());
    cluster.world.run_for(Duration::from_secs(25));
    assert!(cluster.shown(0).is_some(), "the node takes part in its cluster");
    cluster
}

/// The write must not come after the resync.
#[test]
fn a_pool_that_was_set_back_is_not_resynced_while_an_earlier_write_is_at_its_disk() {
    const TAKES: Duration = Duration::from_secs(120);
    each_seed(3, |seed| {
        let cluster = set_back_with_a_write_at_the_disk(seed, TAKES, |_| {});
        cluster.world.run_for(Duration::from_secs(30));
        assert_eq!(cluster.in_sync(1), 1, "the write may still overwrite what is copied");
        cluster.world.run_for(TAKES);
        cluster.wait_until_in_sync(1, 2);
        cluster.wait_until_all_serve();
        assert_eq!(cluster.holds(0, BLOCKS), [2]);
        assert_eq!(cluster.checksum(0), cluster.checksum(1));
    });
}

#[test]
fn a_pool_is_closed_only_after_the_commands_of_a_volume_that_is_not_served_any_more() {
    each_seed(3, |seed| {
        let cluster = set_back_with_a_write_at_the_disk(seed, Duration::from_secs(60), |cluster| {
            let name = Shape::thick().name;
            cluster.control(1, move |control| async move { control.remove_copy(name, 1).await.unwrap() });
        });
        let problem = cluster.control(0, |control| async move {
            let volumes = control.volumes().await;
            volumes.into_iter().next().and_then(|volume| volume.problem)
        });
        assert!(problem.is_some(), "it is not served");
        cluster.control(1, |control| async move { control.unmap(TARGET, 0, None).await.unwrap() });
        cluster.world.run_for(Duration::from_secs(1));
        let began = cluster.world.now();
        cluster.control(0, |control| async move { control.export_pool(POOL).await }).unwrap();
        let took = cluster.world.now() - began;
        assert!(took > Duration::from_secs(5), "{took:?}");
    });
}

#[test]
fn a_volume_that_cannot_get_copies_is_unchanged() {
    let cluster = Cluster::new(1, 2, 1);
    cluster.add_alone(VolumeKind::Thick);
    cluster.fill(0, BLOCKS, 1);
    let itself = AddedCopy { node: 1, ..second_node() };
    let refused =
        cluster.control(0, |control| async move { control.add_copy(Shape::thick().name, itself).await });
    assert!(matches!(refused, Err(ControlError::HasCopy { node: 1, .. })), "{refused:?}");
    let nobody = AddedCopy { node: 3, ..second_node() };
    let refused =
        cluster.control(0, |control| async move { control.add_copy(Shape::thick().name, nobody).await });
    assert!(matches!(refused, Err(ControlError::NodeNotThere(3))), "{refused:?}");
    // There is no space for its dirty map.
    cluster.control(0, |control| async move {
        let free = control.pool(POOL).unwrap().state.unwrap().usage.free;
        let fills =
            node::control::NewVolume { name: "fills".into(), size: free, ..new_volume(POOL, Shape::thick()) };
        control.create_volume(fills).await.unwrap();
        let refused = control.add_copy(Shape::thick().name, second_node()).await;
        assert!(
            matches!(refused, Err(ControlError::Store(store::StoreError::NoSpace { .. }))),
            "{refused:?}"
        );
    });
    assert!(!cluster.is_copy());
    assert_eq!(cluster.holds(0, BLOCKS), [1]);
    cluster.control(0, |control| async move {
        control.delete_volume("fills", false).await.unwrap();
        control.add_copy(Shape::thick().name, second_node()).await.unwrap();
    });
    cluster.wait_until_in_sync(0, 2);
}

/// A second pool of the first node. By its name it comes after the other one.
const SECOND: &str = "second";
const SECOND_DISK: &str = "/dev/second";

/// A volume that the first node has alone, and that its second pool holds, too: as a new one.
fn with_a_new_one_in_a_second_pool() -> Cluster {
    let cluster = Cluster::new(1, 2, 1);
    cluster.add_alone(VolumeKind::Thick);
    cluster.fill(0, BLOCKS, 1);
    cluster.add_pool(0, SECOND, SECOND_DISK);
    cluster.control(0, |control| async move {
        let info = control.volume(Shape::thick().name).unwrap().info;
        let new = NewCopy::blank(&info, Slot::new(0).unwrap(), Some(SECOND.into()));
        let new = NewCopy { blank: false, sole: true, ..new };
        let reconciler = control.reconciler().unwrap();
        reconciler.ask(reconciler.me(), Ask::MakeCopy(new)).await.map(drop).unwrap();
    });
    cluster
}

/// What the first node's pools hold of the volume: whether each says that it is the only copy.
fn sole_copies(cluster: &Cluster) -> Vec<bool> {
    cluster.control(0, |control| async move {
        control.volumes().await.iter().map(|volume| volume.info.is_sole()).collect()
    })
}

#[test]
fn a_new_copy_in_a_second_pool_is_not_mistaken_for_the_volume() {
    let cluster = with_a_new_one_in_a_second_pool();
    let server = cluster.servers[0];
    cluster.world.crash(server);
    let lost = cluster.image(0);
    cluster.world.remove_disk(server, DISK);
    cluster.start(0);
    cluster.world.run_for(Duration::from_secs(5));
    assert_eq!(sole_copies(&cluster), [false], "its pool may come back");
    cluster.world.crash(server);
    cluster.world.put_disk(server, DISK, lost);
    cluster.start(0);
    cluster.world.run_for(Duration::from_secs(5));
    assert_eq!(sole_copies(&cluster), [true, false]);
    assert_eq!(cluster.holds(0, BLOCKS), [1]);
    cluster.replicate().unwrap();
    cluster.wait_until_in_sync(0, 2);
    assert_eq!(cluster.holds(1, BLOCKS), [1]);
}

/// A volume with the name `renamed`, whose only copy two pools hold, as far as anybody can tell. It is served
/// from the second one, which was open first, and is not mapped.
fn sole_in_two_pools() -> Cluster {
    let cluster = with_a_new_one_in_a_second_pool();
    let server = cluster.servers[0];
    cluster.control(0, |control| async move { control.unmap(TARGET, 0, None).await.unwrap() });
    cluster.world.crash(server);
    let lost = cluster.image(0);
    cluster.world.remove_disk(server, DISK);
    cluster.start(0);
    // The first pool is forgotten, so the new copy in the second one is used. Then the first pool returns.
    cluster.control(0, |control| async move { control.forget_pool(POOL, false).await.unwrap() });
    cluster.world.crash(server);
    cluster.start(0);
    cluster.wait_until("the new copy is used", || sole_copies(&cluster) == [true]);
    cluster.control(0, |control| async move {
        control.rename_volume(Shape::thick().name, "renamed").await.unwrap();
    });
    cluster.world.put_disk(server, DISK, lost);
    cluster.control(0, |control| async move {
        let import = ImportSpec { paths: vec![DISK.into()], ..ImportSpec::default() };
        control.import_pool(import).await.map(drop).unwrap();
    });
    assert_eq!(sole_copies(&cluster), [true, true]);
    cluster
}

/// A change would be made in the pool whose name comes first, whichever the open slices lie in.
#[test]
fn a_volume_that_two_pools_hold_is_not_changed() {
    let cluster = sole_in_two_pools();
    cluster.control(0, |control| async move {
        let larger = ByteLen(9 * MIB);
        let space = SpaceChange { reserve: Some(ByteLen(0)), ..SpaceChange::default() };
        for refused in [
            control.grow_volume("renamed", larger).await.map(drop),
            control.rename_volume("renamed", "again").await.map(drop),
            control.set_space("renamed", space).await.map(drop),
            control.convert_volume("renamed", VolumeKind::Log).await.map(drop),
            control.delete_volume("renamed", true).await,
            control.check_change("renamed", None, Some(larger)).map(drop),
            control.check_deletion("renamed"),
        ] {
            let Err(ControlError::InSeveralPools { pools, .. }) = &refused else { panic!("{refused:?}") };
            assert_eq!(*pools, format!("{POOL}, {SECOND}"));
        }
    });
    cluster.control(0, |control| async move { control.export_pool(POOL).await.map(drop) }).unwrap();
    cluster.world.run_for(Duration::from_secs(3));
    let size = cluster.control(0, |control| async move {
        control.grow_volume("renamed", ByteLen(9 * MIB)).await.map(|volume| volume.info.capacity)
    });
    assert_eq!(size.unwrap(), ByteLen(9 * MIB), "only one pool is left");
    cluster.control(0, |control| async move { control.delete_volume("renamed", false).await }).unwrap();
}

/// The volume of two pools is served from the one that was open first, whatever their names.
#[test]
fn a_volume_is_not_mapped_while_one_of_the_pools_that_hold_it_is_exported() {
    let cluster = sole_in_two_pools();
    let server = cluster.servers[0];
    let slow = Duration::from_millis(700)..Duration::from_millis(800);
    let latency = DiskLatency { write: slow, ..DiskLatency::default() };
    cluster.world.set_disk_latency(server, SECOND_DISK, latency);
    let exported = cluster
        .world
        .spawn_on(server, CoreId(0), || async { Control::current().export_pool(SECOND).await.map(drop) });
    cluster.world.run_for(Duration::from_millis(100));
    let is_mapped = Rc::new(Cell::new(false));
    let mapped = {
        let is_mapped = Rc::clone(&is_mapped);
        cluster.world.spawn_on(server, CoreId(0), move || async move {
            map(&Control::current(), "renamed", 0).await.unwrap();
            is_mapped.set(true);
        })
    };
    cluster.world.run_for(Duration::from_millis(500));
    assert!(!is_mapped.get(), "what a host wrote now would leave with the pool");
    cluster.world.wait_for(exported).unwrap().unwrap();
    cluster.world.wait_for(mapped).unwrap();
    assert_eq!(cluster.holds(0, BLOCKS), [1], "from the pool that is left");
    let refused = cluster.control(0, |control| async move { control.export_pool(POOL).await });
    assert!(matches!(refused, Err(ControlError::MappedInPool { .. })), "{refused:?}");
}

/// The first node's copy has moved to a second pool, and is the only one in sync. The first pool is set back
/// to when only this node had the volume.
fn set_back_beside_the_present_copy(seed: u64) -> Cluster {
    let cluster = Cluster::new(seed, 2, 2);
    cluster.add_alone(VolumeKind::Thick);
    cluster.fill(0, BLOCKS, 1);
    let image = cluster.image(0);
    cluster.replicate().unwrap();
    cluster.wait_until_in_sync(0, 2);
    let name = Shape::thick().name;
    cluster.control(1, move |control| async move { control.remove_copy(name, 1).await.map(drop).unwrap() });
    cluster.wait_until("node 1 deletes its copy", || cluster.kept(0) == 0);
    cluster.add_pool(0, SECOND, SECOND_DISK);
    cluster.control(1, move |control| async move {
        let added = AddedCopy { node: 1, pool: Some(SECOND.into()), instead_of: None };
        control.add_copy(name, added).await.unwrap();
    });
    cluster.wait_until_in_sync(0, 2);
    cluster.fill(0, BLOCKS, 2);
    cluster.world.run_for(Duration::from_secs(10));
    cluster.world.crash(cluster.servers[1]);
    cluster.world.run_for(Duration::from_secs(2));
    cluster.fill(0, BLOCKS, 3);
    cluster.world.crash(cluster.servers[0]);
    cluster.put_back(0, image);
    cluster.start(0);
    cluster.wait_until("it is served", || cluster.shown(0).is_some_and(|volume| volume.serving));
    cluster
}

#[test]
fn a_pool_that_was_set_back_does_not_take_the_place_of_the_present_copy() {
    each_seed(3, |seed| {
        let cluster = set_back_beside_the_present_copy(seed);
        assert_eq!(cluster.holds(0, BLOCKS), [3]);
        // Nor after a restart.
        cluster.world.crash(cluster.servers[0]);
        cluster.start(0);
        cluster.wait_until("it is served", || cluster.shown(0).is_some_and(|volume| volume.serving));
        assert_eq!(cluster.holds(0, BLOCKS), [3]);
        cluster.start(1);
        cluster.wait_until_in_sync(0, 2);
        assert_eq!(cluster.checksum(0), cluster.checksum(1));
    });
}

/// Two pools of the first node are set back to when they had its copy. Only the second node has one now.
#[test]
fn a_volume_of_another_node_is_changed_although_two_pools_have_old_copies() {
    let cluster = Cluster::new(1, 2, 2);
    let (server, name) = (cluster.servers[0], Shape::thick().name);
    cluster.add_alone(VolumeKind::Thick);
    let first = cluster.image(0);
    cluster.replicate().unwrap();
    cluster.wait_until_in_sync(0, 2);
    let remove = || {
        cluster.control(1, move |control| async move { control.remove_copy(name, 1).await.unwrap() });
        cluster.wait_until("node 1 deletes its copy", || cluster.kept(0) == 0);
        // The record hears of that.
        cluster.world.run_for(Duration::from_secs(5));
    };
    remove();
    cluster.add_pool(0, SECOND, SECOND_DISK);
    cluster.control(1, move |control| async move {
        let added = AddedCopy { node: 1, pool: Some(SECOND.into()), instead_of: None };
        control.add_copy(name, added).await.unwrap();
    });
    cluster.wait_until_in_sync(0, 2);
    let second = cluster.world.disk_image(server, SECOND_DISK);
    remove();
    cluster.world.crash(server);
    cluster.put_back(0, first);
    cluster.world.remove_disk(server, SECOND_DISK);
    cluster.world.put_disk(server, SECOND_DISK, second);
    cluster.start(0);
    cluster.wait_until("both pools have an old copy", || cluster.kept(0) == 2);
    cluster.wait_until("it is served", || cluster.shown(1).is_some_and(|volume| volume.serving));
    cluster.world.run_for(Duration::from_secs(3));
    let size = cluster.control(0, move |control| async move {
        control.check_change(name, None, Some(ByteLen(9 * MIB)))?;
        control.grow_volume(name, ByteLen(9 * MIB)).await.map(|volume| volume.info.capacity)
    });
    assert_eq!(size.unwrap(), ByteLen(9 * MIB));
}

/// The pool with the old copy is exported, which its disk makes slow.
#[test]
fn a_copy_is_opened_again_while_a_pool_with_an_old_one_is_closed() {
    each_seed(3, |seed| {
        let cluster = set_back_beside_the_present_copy(seed);
        let server = cluster.servers[0];
        let faults = DiskFaults::default().with_unwritable(0..64 * MIB);
        cluster.world.set_disk_faults(server, SECOND_DISK, faults);
        let portal = cluster.portal(0);
        cluster.world.block_on(cluster.client("host"), CoreId(0), move || async move {
            let session = log_in_at_last(portal).await;
            assert!(write_durably(&session, 0, 4).await.is_err());
        });
        cluster.world.set_disk_faults(server, SECOND_DISK, DiskFaults::default());
        let slow = Duration::from_secs(60)..Duration::from_secs(61);
        cluster.world.set_disk_latency(server, DISK, DiskLatency { write: slow, ..DiskLatency::default() });
        let _exporting = cluster
            .world
            .spawn_on(server, CoreId(0), || async { Control::current().export_pool(POOL).await.map(drop) });
        cluster.world.run_for(Duration::from_millis(100));
        cluster.control(0, |control| async move { control.reopen_pool(SECOND).await.map(drop) }).unwrap();
        let serves = || cluster.shown(0).is_some_and(|volume| volume.serving);
        assert!(cluster.world.run_until(serves, Duration::from_secs(10)));
        assert_eq!(cluster.holds(0, 1..BLOCKS.end), [3]);
    });
}
