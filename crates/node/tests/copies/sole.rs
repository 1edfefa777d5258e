//! A volume with a sole copy: its node serves it, whichever other nodes are there.

use node::control::{AddedCopy, ControlError, FaultKind};
use node::events::code::POOL_SET_BACK;
use rt::sim::DiskLatency;

use super::set_back::log_in_at_last;
use super::*;

const BLOCKS: std::ops::Range<u64> = 0..64;

/// Longer than a node takes to store the cluster's targets and hosts.
const ACCESS_KEPT: Duration = Duration::from_secs(6);

impl Cluster {
    fn is_sole(&self) -> bool {
        let of_pool = self.control(0, |control| async move { control.volumes().await[0].info.is_sole() });
        let of_record = self.entry().sole;
        assert_eq!(of_pool, of_record);
        of_pool
    }

    fn entry(&self) -> node::copies::VolumeEntry {
        self.control(0, |control| async move { control.reconciler().unwrap().volumes().remove(0).entry })
    }

    fn set_record(&self, fault: impl Fn(&cluster::memory::Memory, cluster::NodeId)) {
        (1..=3).filter_map(cluster::NodeId::new).for_each(|node| fault(&self.record, node));
    }

    fn crash_all(&self) {
        self.servers.iter().for_each(|server| self.world.crash(*server));
    }

    fn change<F: Future<Output = ()> + 'static>(&self, change: impl FnOnce(Rc<Control>) -> F + 'static) {
        self.control(0, change);
        self.world.run_for(Duration::from_millis(200));
    }

    /// The capacity that a host sees, and the one in the record.
    fn sizes(&self) -> (u64, u64) {
        let portal = self.portal(0);
        let seen = self.world.block_on(self.client("sizes"), CoreId(0), move || async move {
            let session = log_in_at_last(portal).await;
            let capacity = session.read_capacity(LUN).await.unwrap();
            capacity.blocks.0 * u64::from(SIZE.bytes())
        });
        (seen, self.entry().size)
    }
}

/// All nodes crash, and the record is unavailable: one of them starts and serves its sole copy.
#[test]
fn a_sole_copy_is_served_without_the_record() {
    each_seed(4, |seed| {
        let cluster = Cluster::new(seed, 3, 2);
        cluster.add_volume(VolumeKind::Thick, 1);
        assert!(cluster.is_sole());
        cluster.fill(0, BLOCKS, 1);
        cluster.world.run_for(ACCESS_KEPT);
        cluster.crash_all();
        cluster.set_record(|record, node| record.begin(node, cluster::memory::Fault::Unreachable));
        let began = cluster.world.now();
        cluster.start(0);
        assert_eq!(cluster.holds(0, BLOCKS), [1]);
        let took = cluster.world.now() - began;
        assert!(took < Duration::from_secs(8), "{took:?}");
        cluster.fill(0, BLOCKS, 2);
        cluster.set_record(|record, node| record.end(node, cluster::memory::Fault::Unreachable));
        (1..3).for_each(|index| cluster.start(index));
        cluster.world.run_for(Duration::from_secs(15));
        assert_eq!(cluster.holds(0, BLOCKS), [2]);
        assert!(cluster.is_sole());
        // The record has the copy with an earlier incarnation, which is no reason to refuse another copy.
        cluster.control(0, |control| async move {
            let added = AddedCopy { node: 2, pool: None, instead_of: None };
            control.add_copy(Shape::thick().name, added).await.unwrap();
        });
        cluster.wait_until_in_sync(0, 2);
        cluster.world.run_for(Duration::from_secs(1));
        assert_eq!(cluster.holds(1, BLOCKS), [2]);
        assert!(!cluster.is_sole());
    });
}

/// A host may use the volume as soon as it is mapped.
#[test]
fn a_new_sole_copy_is_served_without_the_record() {
    each_seed(4, |seed| {
        let cluster = Cluster::new(seed, 3, 2);
        // Less than a second has passed since it was mapped.
        cluster.add_volume(VolumeKind::Thick, 1);
        cluster.crash_all();
        cluster.set_record(|record, node| record.begin(node, cluster::memory::Fault::Unreachable));
        cluster.start(0);
        let (client, portal) = (cluster.client("host"), cluster.portal(0));
        let is_served = cluster.world.block_on(client, CoreId(0), move || async move {
            rt::timeout(Duration::from_secs(8), log_in_at_last(portal)).await.is_ok()
        });
        assert!(is_served);
    });
}

/// It is a volume with one copy then, not a sole copy again: the other copy may come back.
#[test]
fn a_volume_that_had_another_copy_is_not_served_without_the_record() {
    let cluster = Cluster::new(1, 3, 1);
    cluster.add_volume(VolumeKind::Thick, 2);
    cluster.fill(0, BLOCKS, 1);
    cluster.control(0, |control| async move {
        let node = control.reconciler().unwrap().volumes()[0]
            .entry
            .copies
            .iter()
            .find(|copy| copy.node != 1)
            .unwrap()
            .node;
        control.remove_copy(Shape::thick().name, node).await.unwrap();
    });
    cluster.world.run_for(ACCESS_KEPT);
    assert!(!cluster.is_sole());
    cluster.crash_all();
    cluster.set_record(|record, node| record.begin(node, cluster::memory::Fault::Unreachable));
    cluster.start(0);
    cluster.world.run_for(Duration::from_secs(20));
    let portal = cluster.portal(0);
    let served = cluster.world.block_on(cluster.client("host"), CoreId(0), move || async move {
        match log_in(portal, "host").await {
            Some(session) => read(&session, 0).await.is_ok(),
            None => false,
        }
    });
    assert!(!served);
}

#[test]
fn a_sole_copy_is_grown_renamed_and_deleted_like_any_other() {
    let cluster = Cluster::new(1, 2, 2);
    cluster.add_volume(VolumeKind::Thick, 1);
    let (client, portal) = (cluster.client("host"), cluster.portal(0));
    let session = cluster
        .world
        .block_on(client, CoreId(0), move || async move { log_in(portal, "host").await.unwrap() });
    cluster.change(|control| async move {
        control.grow_volume(Shape::thick().name, base::ByteLen(16 * MIB)).await.unwrap();
        control.rename_volume(Shape::thick().name, "mail").await.unwrap();
    });
    let last = 16 * MIB / 4096 - 1;
    cluster.world.block_on(client, CoreId(0), move || async move {
        write(&session, last, 7).await.unwrap();
        assert_eq!(read(&session, last).await.unwrap(), 7);
    });
    assert_eq!((cluster.entry().name, cluster.sizes()), ("mail".into(), (16 * MIB, 16 * MIB)));
    assert!(cluster.is_sole());
    cluster.change(|control| async move {
        let mapped = control.delete_volume("mail", false).await;
        assert!(matches!(mapped, Err(ControlError::Mapped { .. })), "{mapped:?}");
        control.delete_volume("mail", true).await.unwrap();
        assert!(control.volumes().await.is_empty());
        assert!(control.reconciler().unwrap().volumes().is_empty());
    });
}

/// If its pool has it and the record does not, its creation is completed: nothing stays that nobody can use.
#[test]
fn a_crash_while_a_sole_copy_is_created_leaves_it_in_pool_and_record_or_in_neither() {
    let (mut neither, mut both) = (0, 0);
    for cut in 0..30 {
        let cluster = Cluster::apart(cut, 1, 1, &Config::default(), &[512]);
        drop(cluster.world.spawn_on(cluster.servers[0], CoreId(0), || async {
            let _ = Control::current().create_volume(own("db")).await;
        }));
        cluster.world.run_for(Duration::from_micros(100 * cut * cut));
        cluster.world.crash(cluster.servers[0]);
        cluster.start(0);
        cluster.world.run_for(Duration::from_secs(5));
        let volumes = cluster.control(0, |control| async move { control.volumes().await });
        match volumes.as_slice() {
            [] => neither += 1,
            [volume] => {
                both += 1;
                assert!(volume.problem.is_none(), "cut {cut}: {:?}", volume.problem);
                assert!(volume.copies.as_ref().is_some_and(|copies| copies.serving), "cut {cut}");
            }
            several => panic!("cut {cut}: {several:?}"),
        }
        assert_eq!(recorded(&cluster, 0).len(), volumes.len(), "cut {cut}");
    }
    assert!(neither > 0 && both > 0, "{neither} in neither, {both} in both");
}

/// Hosts see the size that its pool has when the node starts. The record must catch up; otherwise hosts would
/// see the volume shrink.
#[test]
fn a_crash_while_it_grows_shrinks_nothing() {
    let mut between = 0;
    for cut in 0..24 {
        let cluster = Cluster::new(cut, 2, 1);
        cluster.add_volume(VolumeKind::Thick, 1);
        drop(cluster.world.spawn_on(cluster.servers[0], CoreId(0), || async {
            let _ = Control::current().grow_volume(Shape::thick().name, base::ByteLen(16 * MIB)).await;
        }));
        cluster.world.run_for(Duration::from_micros(100 * cut * cut));
        let of_record = cluster.entry().size;
        cluster.world.crash(cluster.servers[0]);
        cluster.start(0);
        let (seen, _) = cluster.sizes();
        between += u32::from(seen > of_record);
        cluster.world.run_for(Duration::from_secs(3));
        assert_eq!(cluster.sizes(), (seen, seen), "cut {cut}");
    }
    assert!(between > 0, "never in between");
}

/// It holds all the data that there is.
#[test]
fn a_pool_that_was_set_back_is_reported_and_serves_the_sole_copy() {
    let cluster = Cluster::new(1, 2, 1);
    cluster.add_volume(VolumeKind::Thick, 1);
    cluster.fill(0, BLOCKS, 1);
    cluster.world.run_for(Duration::from_secs(2));
    let image = cluster.image(0);
    cluster.world.crash(cluster.servers[0]);
    cluster.start(0);
    cluster.fill(0, BLOCKS, 2);
    cluster.world.run_for(Duration::from_secs(2));
    cluster.world.crash(cluster.servers[0]);
    cluster.put_back(0, image);
    cluster.start(0);
    cluster.world.run_for(Duration::from_secs(3));
    let told = cluster.control(0, |control| control.next_events()).events;
    assert!(told.iter().any(|(_, event)| event.code == POOL_SET_BACK), "{told:?}");
    assert_eq!(cluster.holds(0, BLOCKS), [1]);
    assert!(cluster.is_sole());
}

#[test]
fn one_in_memory_is_empty_after_a_start_and_served() {
    let cluster = Cluster::new(1, 2, 1);
    cluster.add_volume(VolumeKind::Ram, 1);
    cluster.fill(0, BLOCKS, 1);
    cluster.world.crash(cluster.servers[0]);
    cluster.start(0);
    assert_eq!(cluster.holds(0, BLOCKS), [0]);
    cluster.fill(0, BLOCKS, 2);
    assert!(cluster.is_sole());
}

#[test]
fn a_sole_copy_is_back_when_its_pool_is() {
    let cluster = Cluster::new(1, 2, 2);
    cluster.add_volume(VolumeKind::Thick, 1);
    cluster.fill(0, BLOCKS, 1);
    let faults = rt::sim::DiskFaults::default().with_unwritable(0..64 * MIB);
    cluster.world.set_disk_faults(cluster.servers[0], DISK, faults);
    let portal = cluster.portal(0);
    cluster.world.block_on(cluster.client("host"), CoreId(0), move || async move {
        let session = log_in_at_last(portal).await;
        assert!(write_durably(&session, 0, 2).await.is_err());
    });
    cluster.world.set_disk_faults(cluster.servers[0], DISK, rt::sim::DiskFaults::default());
    cluster.change(|control| async move { control.reopen_pool(POOL).await.map(drop).unwrap() });
    assert_eq!(cluster.holds(0, BLOCKS.start + 1..BLOCKS.end), [1]);
    cluster.fill(0, BLOCKS, 3);
    let serving = cluster.control(0, |control| async move { control.volumes().await[0].copies.clone() });
    assert!(serving.is_some_and(|copies| copies.serving));
    assert!(cluster.is_sole());
}

/// The record is to note a new size, which takes as long as its deadline, and does not answer. Meanwhile the
/// volume is served, and afterwards it is still.
#[test]
fn a_sole_copy_is_back_with_its_pool_without_the_record() {
    let cluster = Cluster::new(1, 3, 2);
    cluster.add_volume(VolumeKind::Thick, 1);
    cluster.fill(0, BLOCKS, 1);
    cluster.world.run_for(ACCESS_KEPT);
    cluster.set_record(|record, node| record.begin(node, cluster::memory::Fault::Unreachable));
    let grown = cluster.control(0, |control| async move {
        control.grow_volume(Shape::thick().name, base::ByteLen(16 * MIB)).await.map(drop)
    });
    assert!(grown.is_err(), "only the pool has the new size");
    let faults = rt::sim::DiskFaults::default().with_unwritable(0..64 * MIB);
    cluster.world.set_disk_faults(cluster.servers[0], DISK, faults);
    let (client, portal) = (cluster.client("host"), cluster.portal(0));
    let session = cluster.world.block_on(client, CoreId(0), move || async move {
        let session = log_in_at_last(portal).await;
        assert!(write_durably(&session, 0, 2).await.is_err());
        session
    });
    cluster.world.set_disk_faults(cluster.servers[0], DISK, rt::sim::DiskFaults::default());
    cluster.change(|control| async move { control.reopen_pool(POOL).await.map(drop).unwrap() });
    let reads = || {
        let session = Rc::clone(&session);
        cluster.world.block_on(client, CoreId(0), move || async move { read(&session, 1).await })
    };
    assert_eq!(reads().unwrap(), 1, "without the record");
    cluster.world.run_for(Duration::from_secs(10));
    assert_eq!(reads().unwrap(), 1);
    cluster.set_record(|record, node| record.end(node, cluster::memory::Fault::Unreachable));
    cluster.world.run_for(Duration::from_secs(10));
    assert_eq!(reads().unwrap(), 1, "with the record again");
    assert_eq!(cluster.sizes(), (16 * MIB, 16 * MIB));
}

/// A volume that its node has before it is in a cluster.
fn own(name: &str) -> node::control::NewVolume {
    node::control::NewVolume { name: name.into(), ..new_volume(POOL, Shape::thick()) }
}

/// Volumes of the record by name, as a node has followed it, with the nodes of their copies.
fn recorded(cluster: &Cluster, by: usize) -> Vec<(String, Vec<u16>)> {
    cluster.control(by, |control| async move {
        let volumes = control.reconciler().unwrap().volumes();
        assert!(volumes.iter().all(|volume| volume.entry.sole));
        let nodes =
            |volume: &node::member::CopiesStatus| volume.entry.copies.iter().map(|copy| copy.node).collect();
        let mut all: Vec<_> =
            volumes.iter().map(|volume| (volume.entry.name.clone(), nodes(volume))).collect();
        all.sort();
        all
    })
}

fn named(name: &str, node: u16) -> (String, Vec<u16>) {
    (name.into(), vec![node])
}

#[test]
fn volumes_from_before_the_cluster_are_added_to_its_record() {
    let cluster = Cluster::apart(1, 2, 1, &Config::default(), &[512]);
    for (index, names) in [["db", "logs"], ["db", "mail"]].into_iter().enumerate() {
        cluster.control(index, move |control| async move {
            for name in names {
                control.create_volume(own(name)).await.unwrap();
            }
        });
    }
    cluster.enter();
    cluster.world.run_for(Duration::from_secs(3));
    for index in 0..2 {
        let all = recorded(&cluster, index);
        assert_eq!(all.len(), 3, "{all:?}");
        assert!(all.contains(&named("logs", 1)) && all.contains(&named("mail", 2)), "{all:?}");
    }
    // Of two volumes with the same name, one is not in the cluster's record, and its node reports so.
    let other = usize::from(recorded(&cluster, 0).contains(&named("db", 1)));
    let taken = || {
        let faults = cluster.control(other, |control| async move { control.faults() }).into_iter();
        let ids = faults.filter_map(|fault| match fault.kind {
            FaultKind::VolumeNameTaken { id, .. } => Some(id),
            _ => None,
        });
        ids.collect::<Vec<_>>()
    };
    let id = taken().remove(0);
    cluster.control(other, |control| async move { control.rename_volume(&id, "db2").await.unwrap() });
    cluster.world.run_for(Duration::from_secs(3));
    assert!(recorded(&cluster, 0).contains(&named("db2", other as u16 + 1)));
    assert!(taken().is_empty());
    // Both nodes can have copies of each now.
    cluster.control(0, |control| async move {
        control.add_copy("logs", AddedCopy { node: 2, pool: None, instead_of: None }).await.unwrap();
    });
}

/// The first pool of a node cannot note that its volume is the cluster's, because its disk hangs.
#[test]
fn a_pool_that_hangs_keeps_no_volume_of_another_pool_out_of_the_record() {
    let cluster = Cluster::apart(1, 2, 1, &Config::default(), &[512]);
    cluster.add_pool(1, "second", "/dev/second");
    cluster.control(1, |control| async move {
        control.create_volume(own("db")).await.unwrap();
        let logs = node::control::NewVolume { pool: Some("second".into()), ..own("logs") };
        control.create_volume(logs).await.unwrap();
    });
    let hangs = Duration::from_secs(600);
    let latency = DiskLatency { write: hangs..hangs + Duration::from_nanos(1), ..DiskLatency::default() };
    cluster.world.set_disk_latency(cluster.servers[1], DISK, latency);
    cluster.enter();
    let is_there = || recorded(&cluster, 1) == [named("logs", 2)];
    assert!(cluster.world.run_until(is_there, Duration::from_secs(120)), "{:?}", recorded(&cluster, 1));
}

#[test]
fn a_sole_copy_moves_with_its_pool_to_another_node() {
    let cluster = Cluster::new(1, 2, 1);
    cluster.control(0, |control| async move { control.create_volume(own("mail")).await.unwrap() });
    cluster.world.run_for(Duration::from_secs(2));
    let (image, moved) = (cluster.image(0), "/dev/moved");
    cluster.world.put_disk(cluster.servers[1], moved, image);
    let import = |force| {
        cluster.control(1, move |control| async move {
            let paths = vec![moved.into()];
            control
                .import_pool(node::control::ImportSpec { paths, name: Some("moved".into()), force })
                .await
                .map(drop)
        })
    };
    // As long as the other node has the pool, this is an image of it, and not the pool.
    import(true).unwrap();
    cluster.world.run_for(Duration::from_secs(5));
    assert_eq!(recorded(&cluster, 1), [named("mail", 1)]);
    cluster.control(1, |control| async move { control.export_pool("moved").await.unwrap() });
    cluster.world.remove_disk(cluster.servers[1], moved);
    cluster.control(0, |control| async move { control.export_pool(POOL).await.unwrap() });
    cluster.world.run_for(Duration::from_secs(2));
    assert_eq!(recorded(&cluster, 0), []);
    let image = cluster.image(0);
    cluster.world.put_disk(cluster.servers[1], moved, image);
    import(false).unwrap();
    cluster.world.run_for(Duration::from_secs(3));
    assert_eq!(recorded(&cluster, 0), [named("mail", 2)]);
    let serving = cluster.control(1, |control| async move { control.volume("mail").unwrap() });
    assert!(serving.copies.unwrap().serving, "{:?}", serving.problem);
}

/// A name in a command means the cluster's volume, never an unrecorded one of the node.
#[test]
fn a_name_of_the_cluster_is_not_that_of_an_unrecorded_volume() {
    let cluster = Cluster::apart(1, 2, 1, &Config::default(), &[512]);
    for index in 0..2 {
        cluster.control(index, |control| async move { control.create_volume(own("db")).await.unwrap() });
    }
    cluster.enter();
    cluster.world.run_for(Duration::from_secs(3));
    let other = usize::from(recorded(&cluster, 0) == [named("db", 1)]);
    let found = cluster.control(other, |control| async move { control.volume("db").map(drop) });
    assert!(matches!(found, Err(ControlError::NotFound { .. })), "{found:?}");
    let refused = cluster.control(other, |control| async move { control.delete_volume("db", true).await });
    assert!(matches!(refused, Err(ControlError::NotFound { .. })), "{refused:?}");
    assert_eq!(cluster.control(other, |control| async move { control.volumes().await.len() }), 1);
}
