//! Snapshots of sets of volumes: one instant on all copies, and everywhere or nowhere whatever crashes.

mod clones;
mod diffs;
mod expiry;
mod reading;
pub mod restores;
mod rot;
mod schedules;

use super::set_back::{log_in_at_last, with_image_of_yesterday};
use super::*;

use base::{ByteLen, ByteOffset};
use node::control::{ControlError, SnapshotSpec, SnapshotStatus, SnapshotUpdate, VolumeAt};
use node::copies::{
    DELETED_SNAPSHOTS, DeletedSnapshot, LAST_SNAPSHOT, Refused, SnapshotCopy, SnapshotEntry,
    SnapshotObstacle, SnapshotOf, SnapshotState, SnapshotStep, VolumeEntry, volume_key,
};
use node::member::{ClusterError, Reconciler, json};
use rt::sim::DiskLatency;

const NAME: &str = Shape::thick().name;
const OTHER: &str = "logs";
const OTHER_LUN: Lun = Lun(1);

impl Cluster {
    /// Crashes one of the first two nodes within this time, and starts it again within 8 s. Waits until both
    /// serve and are in sync.
    fn crash_one_within(&self, rng: &mut Rng, within: Duration) {
        self.world.run_for(Duration::from_micros(rng.below(within.as_micros() as u64)));
        let crashed = rng.below(2) as usize;
        self.world.crash(self.servers[crashed]);
        self.world.run_for(Duration::from_secs(rng.below(8)));
        self.start(crashed);
        self.wait_until_all_serve();
        self.wait_until_in_sync(0, 2);
    }

    /// Two nodes, the first of which has the sole copy of a log volume.
    fn with_sole_log() -> Cluster {
        let cluster = Cluster::new(1, 2, 1);
        cluster.control(0, |control| async move {
            let new = new_volume(POOL, Shape { kind: VolumeKind::Log, ..Shape::thick() });
            let copies = Some(Placement::Count(1));
            control.create_volume(node::control::NewVolume { copies, ..new }).await.unwrap();
        });
        cluster.world.run_for(Duration::from_secs(3));
        cluster
    }

    /// Exports the first node's pool.
    fn export_first(&self) {
        self.control(0, |control| async move { control.export_pool(POOL).await.unwrap() });
        self.world.run_for(Duration::from_secs(2));
    }

    /// Imports on the second node the pool that the first one has exported.
    fn import_on_second(&self) {
        let (image, moved) = (self.image(0), "/dev/moved");
        self.world.put_disk(self.servers[1], moved, image);
        self.control(1, move |control| async move {
            let (paths, name) = (vec![moved.into()], Some("moved".into()));
            let spec = node::control::ImportSpec { paths, name, force: false };
            control.import_pool(spec).await.map(drop).unwrap();
        });
        self.world.run_for(Duration::from_secs(5));
    }

    /// Adds a second log volume with copies on all nodes.
    fn add_other_volume(&self) {
        let shape = Shape { name: OTHER, kind: VolumeKind::Log, ..Shape::thick() };
        let copies = Some(Placement::Count(self.servers.len() as u8));
        self.control(0, move |control| async move {
            let new = node::control::NewVolume { copies, ..new_volume(POOL, shape) };
            control.create_volume(new).await.unwrap();
            map(&control, OTHER, OTHER_LUN.0).await.unwrap();
        });
        self.world.run_for(Duration::from_millis(100));
    }

    /// Writes these values to blocks through a node; 0 makes them zeros.
    fn write_values(&self, index: usize, values: Vec<(u64, u64)>) {
        let (client, portal) = (self.client("writer"), self.portal(index));
        self.world.block_on(client, CoreId(0), move || async move {
            let session = log_in_at_last(portal).await;
            for (lba, value) in values {
                while write(&session, lba, value).await.is_err() {
                    rt::sleep(Duration::from_millis(100)).await;
                }
            }
        });
    }

    /// Takes a snapshot through a node.
    fn take(&self, index: usize, volumes: &[&str], name: &str) -> Result<SnapshotStatus, ControlError> {
        let volumes = volumes.iter().map(|volume| (*volume).to_owned()).collect();
        let spec = SnapshotSpec { name: name.to_owned(), volumes, ..SnapshotSpec::default() };
        self.control(index, move |control| async move { control.create_snapshot(spec).await })
    }

    /// Begins snapshot 1 of these volumes, as a node would that is lost then.
    fn prepare(&self, volumes: Vec<SnapshotOf>) {
        let entry = SnapshotEntry {
            number: 1,
            name: "first".into(),
            at: 0,
            node: 1,
            incarnation: 0,
            state: SnapshotState::Preparing,
            volumes,
            pause_us: 0,
            held: false,
            expires: None,
            labels: BTreeMap::new(),
            restores: None,
            schedule: None,
        };
        self.control(0, move |control| async move {
            let transaction = Reconciler::transaction().put(&entry.key(), json(&entry));
            control.reconciler().unwrap().commit(transaction).await.unwrap();
        });
    }

    fn delete_snapshot(&self, index: usize, name: &'static str) -> Result<(), ControlError> {
        self.control(index, move |control| async move { control.delete_snapshot(name).await })
    }

    /// The snapshots that a node knows.
    fn snapshots(&self, index: usize) -> Vec<(String, SnapshotState)> {
        let all = self.control(index, |control| async move { control.snapshots(None).unwrap() });
        all.into_iter().map(|status| (status.entry.name, status.entry.state)).collect()
    }

    /// Of how many volumes the pool of a node has snapshots, each counted as often as there are snapshots.
    fn snapshots_in_pool(&self, index: usize) -> usize {
        let here = self.control(index, |control| async move { control.snapshots_here().await.unwrap() });
        here.iter().map(|of| of.has.len()).sum()
    }

    /// What a node's copy has of the first block of a volume in a snapshot.
    fn snapshot_block(&self, index: usize, name: &str, volume: &'static str) -> u64 {
        let name = name.to_owned();
        let block = self.control(index, move |control| async move {
            let (offset, len) = (ByteOffset(0), ByteLen(SIZE.bytes().into()));
            let at = VolumeAt { volume: volume.into(), snapshot: name };
            control.read_snapshot_here(&at, offset, len).await.unwrap().to_vec()
        });
        u64::from_le_bytes(block[..8].try_into().unwrap())
    }
}

/// Puts a snapshot on hold, or releases it.
fn hold(held: bool) -> SnapshotUpdate {
    SnapshotUpdate { held: Some(held), ..SnapshotUpdate::default() }
}

fn has(status: &SnapshotStatus) -> Vec<bool> {
    status.volumes.iter().flat_map(|of| &of.copies).map(|(_, has)| *has).collect()
}

#[test]
fn a_snapshot_is_on_all_copies_and_is_deleted_from_all() {
    each_seed(3, |seed| {
        let cluster = Cluster::new(seed, 3, 2);
        cluster.add_volume(VolumeKind::Log, 2);
        // Whether or not the node has a copy.
        let taken = cluster.take(2, &[NAME], "first").unwrap();
        assert_eq!((taken.entry.number, taken.entry.state), (1, SnapshotState::Complete));
        assert_eq!(has(&taken), [true, true]);
        assert!(taken.entry.pause_us > 0 && taken.entry.pause_us < 500_000, "{}", taken.entry.pause_us);
        cluster.world.run_for(Duration::from_secs(1));
        assert_eq!((0..3).map(|index| cluster.snapshots_in_pool(index)).sum::<usize>(), 2);
        for index in 0..3 {
            assert_eq!(cluster.snapshots(index), [("first".to_owned(), SnapshotState::Complete)]);
        }
        let again = cluster.take(0, &[NAME], "first");
        assert!(matches!(again, Err(ControlError::Exists { .. })), "{again:?}");
        cluster.delete_snapshot(1, "first").unwrap();
        cluster.world.run_for(Duration::from_secs(5));
        assert_eq!((0..3).map(|index| cluster.snapshots_in_pool(index)).sum::<usize>(), 0);
        assert!(cluster.snapshots(2).is_empty());
        assert_eq!(cluster.take(0, &[NAME], "first").unwrap().entry.number, 2, "numbers are not used again");
    });
}

#[test]
fn several_snapshots_are_taken_at_the_same_time() {
    let cluster = Cluster::new(1, 2, 2);
    cluster.add_volume(VolumeKind::Log, 2);
    cluster.add_other_volume();
    let taken = cluster.control(0, |control| async move {
        let take = |(volume, name): (&str, &str)| {
            let (name, volumes) = (name.into(), vec![volume.into()]);
            let spec = SnapshotSpec { name, volumes, ..SnapshotSpec::default() };
            let control = Rc::clone(&control);
            async move { control.create_snapshot(spec).await.map(|status| status.entry.number) }
        };
        rt::join_all([(NAME, "first"), (OTHER, "second"), (NAME, "third")].map(take)).await
    });
    assert!(matches!(&taken[..2], [Ok(1), Ok(2)]), "{taken:?}");
    // It comes before the first one is complete.
    let under_way =
        matches!(taken[2], Err(ControlError::SnapshotNotTaken { obstacle: SnapshotObstacle::UnderWay, .. }));
    assert!(under_way, "{taken:?}");
}

/// A host writes a number to one volume, and then to the other one, through either node in turn.
async fn write_in_turn(portals: Vec<SocketAddr>, stops: Rc<Cell<bool>>, written: Rc<Cell<u64>>) {
    let mut sessions = Vec::new();
    for portal in portals {
        let session = log_in(portal, "host").await.unwrap();
        session.make_ready(OTHER_LUN).await.unwrap();
        sessions.push(session);
    }
    let mut number = 0;
    while !stops.get() {
        number += 1;
        for (lun, by) in [(LUN, number), (OTHER_LUN, number / 2)] {
            let session = &sessions[by as usize % sessions.len()];
            attended(async || session.write(lun, Lba(0), block(number), SIZE).await).await.unwrap();
        }
        written.set(number);
    }
}

/// Takes snapshots of two volumes while a host writes to them in turn.
pub fn one_instant(seed: u64) {
    let cluster = Cluster::new(seed, 2, 2);
    cluster.add_volume(VolumeKind::Log, 2);
    cluster.add_other_volume();
    let (stops, written) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(0)));
    let (portals, client) = (cluster.portals(), cluster.client("host"));
    let (stops_too, written_too) = (Rc::clone(&stops), Rc::clone(&written));
    let host =
        cluster.world.spawn_on(client, CoreId(0), move || write_in_turn(portals, stops_too, written_too));
    cluster.world.run_for(Duration::from_secs(1));
    let mut rng = Rng::new(seed);
    let names: Vec<String> = (0..6).map(|number| format!("s{number}")).collect();
    let mut since = Vec::new();
    for (number, name) in names.iter().enumerate() {
        cluster.world.run_for(Duration::from_micros(rng.below(20_000)));
        since.push(written.get());
        cluster.take(number % 2, &[NAME, OTHER], name).unwrap();
    }
    cluster.world.run_for(Duration::from_millis(100));
    stops.set(true);
    cluster.world.wait_for(host).unwrap();
    for (name, since) in names.iter().zip(since) {
        let on_first = [NAME, OTHER].map(|volume| cluster.snapshot_block(0, name, volume));
        let on_second = [NAME, OTHER].map(|volume| cluster.snapshot_block(1, name, volume));
        assert_eq!(on_first, on_second, "{name}: the copies differ");
        let [first, then] = on_first;
        assert!(first == then || first == then + 1, "{name}: {first} and {then} were never there together");
        assert!(then >= since, "{name}: {since} had been acknowledged before, {then} is there");
    }
}

#[test]
fn a_set_of_volumes_is_one_instant_on_all_copies_while_a_host_writes() {
    each_seed(6, one_instant);
}

/// The same with volumes that have their only copies on different nodes.
#[test]
fn a_set_of_volumes_on_different_nodes_is_one_instant() {
    async fn session(portal: SocketAddr, lun: Lun) -> Session {
        let session = Session::connect(portal, TARGET, &named("host")).await.unwrap();
        session.make_ready(lun).await.unwrap();
        session
    }
    each_seed(3, |seed| {
        let cluster = Cluster::new(seed, 2, 2);
        for (index, name) in [NAME, OTHER].into_iter().enumerate() {
            cluster.control(index, move |control| async move {
                let shape = Shape { name, kind: VolumeKind::Log, ..Shape::thick() };
                let copies = Some(Placement::Nodes(vec![index as u16 + 1]));
                let new = node::control::NewVolume { copies, ..new_volume(POOL, shape) };
                control.create_volume(new).await.unwrap();
                map(&control, name, index as u16).await.unwrap();
            });
        }
        cluster.world.run_for(Duration::from_secs(3));
        let (stops, client) = (Rc::new(Cell::new(false)), cluster.client("host"));
        let (portals, stops_too) = (cluster.portals(), Rc::clone(&stops));
        let host = cluster.world.spawn_on(client, CoreId(0), move || async move {
            let sessions = [session(portals[0], LUN).await, session(portals[1], OTHER_LUN).await];
            let mut number = 0;
            while !stops_too.get() {
                number += 1;
                for (session, lun) in sessions.iter().zip([LUN, OTHER_LUN]) {
                    attended(async || session.write(lun, Lba(0), block(number), SIZE).await).await.unwrap();
                }
            }
        });
        cluster.world.run_for(Duration::from_secs(1));
        let mut rng = Rng::new(seed);
        let names: Vec<String> = (0..6).map(|number| format!("s{number}")).collect();
        for (number, name) in names.iter().enumerate() {
            cluster.world.run_for(Duration::from_micros(rng.below(20_000)));
            cluster.take(number % 2, &[NAME, OTHER], name).unwrap();
        }
        stops.set(true);
        cluster.world.wait_for(host).unwrap();
        for name in &names {
            let (first, then) =
                (cluster.snapshot_block(0, name, NAME), cluster.snapshot_block(1, name, OTHER));
            assert!(then > 0 && (first == then || first == then + 1), "{name}: {first} and {then}");
        }
    });
}

/// Takes a snapshot, and crashes a node at some moment: afterwards all copies have it, or none.
fn crash_while_taking(seed: u64) {
    let mut rng = Rng::new(seed);
    let cluster = Cluster::new(seed, 2, 2);
    cluster.add_volume(VolumeKind::Log, 2);
    let answer = Rc::new(Cell::new(None));
    let told = Rc::clone(&answer);
    drop(cluster.world.spawn_on(cluster.servers[0], CoreId(0), move || async move {
        let (name, volumes) = ("first".into(), vec![NAME.into()]);
        let spec = SnapshotSpec { name, volumes, ..SnapshotSpec::default() };
        told.set(Some(Control::current().create_snapshot(spec).await.is_ok()));
    }));
    cluster.crash_one_within(&mut rng, Duration::from_millis(8));
    cluster.world.run_for(Duration::from_secs(30));
    let known = cluster.snapshots(0);
    assert_eq!(known, cluster.snapshots(1));
    let in_pools = cluster.snapshots_in_pool(0) + cluster.snapshots_in_pool(1);
    match known.as_slice() {
        [] => assert_eq!((in_pools, answer.get().unwrap_or(false)), (0, false)),
        [(_, SnapshotState::Complete)] => {
            assert_ne!(answer.get(), Some(false), "it was refused, and exists");
            let status = cluster.control(0, |control| async move { control.snapshot("first").unwrap() });
            let recorded = has(&status).into_iter().filter(|has| *has).count();
            assert!(recorded > 0 && in_pools == recorded, "{in_pools} have it, {recorded} should");
        }
        other => panic!("it is neither taken nor undone: {other:?}"),
    }
}

#[test]
fn a_crash_while_it_is_taken_leaves_a_snapshot_everywhere_or_nowhere() {
    each_seed(24, crash_while_taking);
}

/// Deletes a volume, and takes a snapshot of it at some moment meanwhile: one of the two is refused.
#[test]
fn a_volume_is_not_deleted_with_a_snapshot_that_was_taken_meanwhile() {
    each_seed(24, |seed| {
        let mut rng = Rng::new(seed);
        let cluster = Cluster::new(seed, 2, 2);
        cluster.add_volume(VolumeKind::Log, 2);
        let deleted = Rc::new(Cell::new(None));
        let told = Rc::clone(&deleted);
        drop(cluster.world.spawn_on(cluster.servers[0], CoreId(0), move || async move {
            told.set(Some(Control::current().delete_volume(NAME, true).await.is_ok()));
        }));
        cluster.world.run_for(Duration::from_micros(rng.below(8_000)));
        let taken = cluster.take(1, &[NAME], "first").is_ok();
        cluster.world.run_for(Duration::from_secs(10));
        assert_eq!(deleted.get(), Some(!taken));
        assert_eq!(cluster.snapshots(0).len(), usize::from(taken));
    });
}

/// The node that coordinates has written the entry, and is gone: the snapshot is undone.
#[test]
fn a_copy_takes_no_snapshot_in_another_epoch_and_none_that_was_undone() {
    let cluster = Cluster::new(1, 2, 2);
    cluster.add_volume(VolumeKind::Log, 2);
    let volume = cluster.shown(0).unwrap().entry;
    let copies = volume.copies.iter().map(|copy| SnapshotCopy { node: copy.node, made: copy.made }).collect();
    let of = SnapshotOf { id: volume.id.clone(), name: volume.name.clone(), size: volume.size, copies };
    cluster.prepare(vec![of]);
    let mark = |epoch: u64| {
        let volumes = vec![(volume.id.clone(), Some(epoch))];
        cluster.control(0, move |control| async move {
            let reconciler = control.reconciler().unwrap();
            let ask = Ask::Snapshot { number: 1, step: SnapshotStep::Mark { volumes } };
            reconciler.ask(reconciler.me(), ask).await.map(drop)
        })
    };
    let refused = mark(volume.epoch + 1);
    let Err(ClusterError::Refused { reason: Refused::NoSnapshot { obstacle, .. }, .. }) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!((obstacle, cluster.snapshots_in_pool(0)), (SnapshotObstacle::Changed, 0));
    mark(volume.epoch).unwrap();
    assert_eq!(cluster.snapshots_in_pool(0), 1);
    cluster.world.run_for(Duration::from_secs(10));
    assert_eq!((cluster.snapshots(1), cluster.snapshots_in_pool(0)), (vec![], 0));
    assert!(mark(volume.epoch).is_err(), "that question was late");
    assert_eq!(cluster.snapshots_in_pool(0), 0);
}

#[test]
fn a_node_that_was_down_neither_loses_nor_resurrects_a_snapshot() {
    each_seed(3, |seed| {
        let cluster = Cluster::new(seed, 2, 2);
        cluster.add_volume(VolumeKind::Log, 2);
        cluster.take(0, &[NAME], "both").unwrap();
        cluster.take(0, &[NAME], "deleted").unwrap();
        cluster.world.crash(cluster.servers[1]);
        cluster.world.run_for(Duration::from_secs(5));
        assert_eq!(cluster.in_sync(0), 1);
        let taken = cluster.take(0, &[NAME], "alone").unwrap();
        assert_eq!(has(&taken), [true, false]);
        cluster.delete_snapshot(0, "deleted").unwrap();
        cluster.world.run_for(Duration::from_secs(5));
        let deleted = ("deleted".to_owned(), SnapshotState::Deleting);
        assert!(cluster.snapshots(0).contains(&deleted), "the other node may still have it");
        cluster.start(1);
        cluster.wait_until_all_serve();
        cluster.wait_until_in_sync(0, 2);
        cluster.world.run_for(Duration::from_secs(10));
        let names = |index| {
            let all = cluster.snapshots(index);
            assert!(all.iter().all(|(_, state)| *state == SnapshotState::Complete), "{all:?}");
            all.into_iter().map(|(name, _)| name).collect::<Vec<String>>()
        };
        assert_eq!((names(0), names(1)), (vec!["both".into(), "alone".into()], names(0)));
        assert_eq!((cluster.snapshots_in_pool(0), cluster.snapshots_in_pool(1)), (2, 1));
        // Only the first copy has all of them.
        let remove =
            |node| cluster.control(0, move |control| async move { control.remove_copy(NAME, node).await });
        let refused = remove(1);
        assert!(
            matches!(&refused, Err(ControlError::OnlyCopyOfSnapshot { snapshot, .. }) if snapshot == "alone"),
            "{refused:?}"
        );
        cluster.delete_snapshot(1, "alone").unwrap();
        // The other node hears of it.
        cluster.world.run_for(Duration::from_millis(100));
        remove(1).unwrap();
        // The other copy still has the rest.
        cluster.world.run_for(Duration::from_secs(5));
        assert_eq!((cluster.snapshots_in_pool(0), cluster.snapshots_in_pool(1)), (0, 1));
        assert!(matches!(remove(2), Err(ControlError::OnlyInSync { .. })));
    });
}

/// Otherwise the other copy could be removed, and the snapshot with it.
#[test]
fn a_copy_that_was_set_back_does_not_count_as_one_that_has_a_snapshot() {
    let (cluster, yesterday) = with_image_of_yesterday(1, VolumeKind::Log);
    cluster.wait_until_in_sync(0, 2);
    cluster.wait_until_all_serve();
    assert_eq!(has(&cluster.take(0, &[NAME], "today").unwrap()), [true, true]);
    cluster.fill(1, 0..64, 2);
    cluster.world.run_for(Duration::from_secs(20));
    cluster.world.crash(cluster.servers[1]);
    cluster.fill(0, 64..70, 3);
    cluster.put_back(1, yesterday);
    cluster.start(1);
    cluster.wait_until_in_sync(0, 2);
    let status = cluster.control(0, |control| async move { control.snapshot("today").unwrap() });
    assert_eq!(has(&status), [true, false]);
    assert_eq!((cluster.snapshots_in_pool(0), cluster.snapshots_in_pool(1)), (1, 0));
    let removed = cluster.control(0, |control| async move { control.remove_copy(NAME, 1).await });
    assert!(matches!(removed, Err(ControlError::OnlyCopyOfSnapshot { node: 1, .. })), "{removed:?}");
}

/// Otherwise it would lack what hosts have written behind its end before it was taken.
#[test]
fn a_volume_does_not_grow_while_its_snapshot_is_taken() {
    let cluster = Cluster::new(1, 2, 2);
    cluster.add_volume(VolumeKind::Log, 2);
    let volume = cluster.shown(0).unwrap().entry;
    let copies = volume.copies.iter().map(|copy| SnapshotCopy { node: copy.node, made: copy.made }).collect();
    // By its size in the record, which the node that holds it has not followed yet.
    let of =
        SnapshotOf { id: volume.id.clone(), name: volume.name.clone(), size: volume.size + 4096, copies };
    cluster.prepare(vec![of]);
    let larger = ByteLen(volume.size + MIB);
    let grow = move |control: Rc<Control>| async move { control.grow_volume(NAME, larger).await.map(drop) };
    let held = cluster.control(0, move |control| async move {
        let reconciler = control.reconciler().unwrap();
        let hold = SnapshotStep::Hold { ids: vec![volume.id] };
        reconciler.ask(reconciler.me(), Ask::Snapshot { number: 1, step: hold }).await.map(drop)
    });
    let Err(ClusterError::Refused { reason: Refused::NoSnapshot { obstacle, .. }, .. }) = held else {
        panic!("{held:?}");
    };
    assert_eq!(obstacle, SnapshotObstacle::Changed);
    let grown = cluster.control(0, grow);
    assert!(matches!(&grown, Err(ControlError::SnapshotPreparing(name)) if name == "first"), "{grown:?}");
    // Its node is gone, so it is undone.
    cluster.world.run_for(Duration::from_secs(10));
    cluster.control(0, grow).unwrap();
    let taken = cluster.take(1, &[NAME], "second").unwrap();
    assert_eq!(taken.entry.volumes[0].size, larger.0);
}

/// A node deletes what it has, however many snapshots wait for another one.
#[test]
fn deleted_snapshots_of_a_node_that_is_down_keep_no_others_waiting() {
    let cluster = Cluster::new(1, 2, 2);
    cluster.add_volume(VolumeKind::Log, 2);
    cluster.world.crash(cluster.servers[1]);
    cluster.world.run_for(Duration::from_secs(5));
    let volume = cluster.shown(0).unwrap().entry;
    let second = volume.copies.iter().filter(|copy| copy.node == 2);
    let copies = second.map(|copy| SnapshotCopy { node: copy.node, made: copy.made }).collect();
    let of = SnapshotOf { id: volume.id, name: volume.name, size: volume.size, copies };
    cluster.control(0, move |control| async move {
        let mut transaction = Reconciler::transaction().put(LAST_SNAPSHOT, json(&90));
        for number in 1..=90 {
            let entry = SnapshotEntry {
                number,
                name: format!("former-{number}"),
                at: 0,
                node: 1,
                incarnation: 0,
                state: SnapshotState::Deleting,
                volumes: vec![of.clone()],
                pause_us: 0,
                held: false,
                expires: None,
                labels: BTreeMap::new(),
                restores: None,
                schedule: None,
            };
            transaction = transaction.put(&entry.key(), json(&entry));
        }
        control.reconciler().unwrap().commit(transaction).await.unwrap();
    });
    assert_eq!(cluster.take(0, &[NAME], "last").unwrap().entry.number, 91);
    assert_eq!(cluster.snapshots_in_pool(0), 1);
    cluster.delete_snapshot(0, "last").unwrap();
    cluster.world.run_for(Duration::from_secs(5));
    assert_eq!((cluster.snapshots(0).len(), cluster.snapshots_in_pool(0)), (90, 0));
}

#[test]
fn what_cannot_have_snapshots_is_refused_and_what_has_some_stays() {
    let cluster = Cluster::new(1, 2, 2);
    cluster.add_volume(VolumeKind::Thick, 2);
    let refused = cluster.take(1, &[NAME], "first");
    assert!(matches!(&refused, Err(ControlError::NoSnapshotsOfKind(name)) if name == NAME), "{refused:?}");
    assert!(cluster.snapshots(0).is_empty());
    cluster.add_other_volume();
    let refused = cluster.take(1, &[OTHER, NAME], "first");
    assert!(matches!(refused, Err(ControlError::NoSnapshotsOfKind(_))), "all of them, or none");
    assert!(cluster.take(1, &[], "first").is_err() && cluster.take(1, &["none"], "first").is_err());

    cluster.take(1, &[OTHER], "first").unwrap();
    cluster.control(0, |control| async move {
        let converted = control.convert_volume(OTHER, VolumeKind::Thick).await.map(drop);
        assert!(matches!(converted, Err(ControlError::HasSnapshots { count: 1, .. })), "{converted:?}");
        let deleted = control.delete_volume(OTHER, true).await;
        assert!(matches!(deleted, Err(ControlError::HasSnapshots { .. })), "{deleted:?}");
        control.update_snapshot("first", hold(true)).await.unwrap();
        let deleted = control.delete_snapshot("1").await;
        assert!(matches!(deleted, Err(ControlError::SnapshotHeld(_))), "{deleted:?}");
        assert!(!control.update_snapshot("first", hold(false)).await.unwrap().entry.held);
        control.delete_snapshot("1").await.unwrap();
        control.delete_volume(OTHER, true).await.unwrap();
    });
    // Neither is left in the record.
    cluster.world.run_for(Duration::from_secs(10));
    assert!(cluster.snapshots(1).is_empty());
}

#[test]
fn snapshots_move_with_the_pool_of_a_sole_copy() {
    let cluster = Cluster::with_sole_log();
    assert_eq!(has(&cluster.take(1, &[NAME], "first").unwrap()), [true]);
    cluster.export_first();
    assert_eq!(cluster.snapshots(1).len(), 1, "its pool is elsewhere");
    cluster.import_on_second();
    let status = cluster.control(0, |control| async move { control.snapshot("first").unwrap() });
    assert_eq!(status.volumes[0].copies, [(2, true)]);
    assert_eq!(cluster.snapshot_block(1, "first", NAME), 0);
    cluster.delete_snapshot(0, "first").unwrap();
    cluster.world.run_for(Duration::from_secs(5));
    assert_eq!((cluster.snapshots_in_pool(1), cluster.snapshots(0)), (0, vec![]));
}

#[test]
fn a_snapshot_that_was_deleted_while_its_pool_was_nowhere_is_gone_when_the_pool_is_back() {
    let cluster = Cluster::with_sole_log();
    for name in ["deleted", "kept"] {
        cluster.take(0, &[NAME], name).unwrap();
    }
    cluster.export_first();
    cluster.delete_snapshot(1, "deleted").unwrap();
    cluster.world.run_for(Duration::from_secs(5));
    let kept = [("kept".to_owned(), SnapshotState::Complete)];
    assert_eq!(cluster.snapshots(1), kept, "nobody waits for the pool");
    cluster.import_on_second();
    cluster.world.run_for(Duration::from_secs(5));
    assert_eq!((cluster.snapshots(1), cluster.snapshots_in_pool(1)), (kept.into(), 1));
    assert_eq!(cluster.snapshot_block(1, "kept", NAME), 0);
}

#[test]
fn a_pool_that_was_set_back_does_not_keep_snapshots_that_were_deleted() {
    let cluster = Cluster::new(1, 2, 2);
    cluster.add_volume(VolumeKind::Log, 2);
    cluster.fill(0, 0..64, 1);
    for name in ["deleted", "kept"] {
        assert_eq!(has(&cluster.take(0, &[NAME], name).unwrap()), [true, true]);
    }
    cluster.world.run_for(Duration::from_secs(10));
    cluster.world.crash(cluster.servers[1]);
    let yesterday = cluster.image(1);
    cluster.start(1);
    cluster.wait_until_in_sync(0, 2);
    cluster.wait_until_all_serve();
    let in_pools = || (cluster.snapshots_in_pool(0), cluster.snapshots_in_pool(1));
    assert_eq!(in_pools(), (2, 2));
    cluster.delete_snapshot(0, "deleted").unwrap();
    cluster.fill(1, 0..64, 2);
    cluster.world.run_for(Duration::from_secs(20));
    assert_eq!(in_pools(), (1, 1));
    cluster.world.crash(cluster.servers[1]);
    cluster.fill(0, 64..70, 3);
    cluster.put_back(1, yesterday);
    cluster.start(1);
    cluster.wait_until_in_sync(0, 2);
    cluster.world.run_for(Duration::from_secs(30));
    assert_eq!(in_pools(), (1, 1));
    let kept = cluster.control(0, |control| async move { control.snapshot("kept").unwrap() });
    assert_eq!(has(&kept), [true, true]);
}

/// The disks hang when the nodes delete a snapshot that is left there. What is to be done about other
/// snapshots does not wait for that.
#[test]
fn a_left_snapshot_on_a_disk_that_hangs_keeps_no_others_waiting() {
    let cluster = Cluster::new(1, 2, 2);
    cluster.add_volume(VolumeKind::Log, 2);
    let taken = cluster.take(0, &[NAME], "left").unwrap().entry;
    cluster.world.run_for(Duration::from_secs(15));
    for server in &cluster.servers {
        let write = Duration::from_secs(120)..Duration::from_secs(121);
        cluster.world.set_disk_latency(*server, DISK, DiskLatency { write, ..DiskLatency::default() });
    }
    let begun = SnapshotEntry {
        number: 2,
        name: "begun".into(),
        incarnation: 0,
        state: SnapshotState::Preparing,
        ..taken.clone()
    };
    cluster.control(0, move |control| async move {
        let reconciler = control.reconciler().unwrap();
        let left = DeletedSnapshot { number: taken.number, at: taken.at, since: 0 };
        let key = volume_key(node::VolumeId::parse(&taken.volumes[0].id).unwrap());
        let (volume, _) = reconciler.get::<VolumeEntry>(&key).unwrap();
        // In another epoch, copies are looked at again.
        let next = VolumeEntry { epoch: volume.epoch + 1, ..volume };
        let transaction = Reconciler::transaction().delete(&taken.key()).put(&left.key(), json(&left));
        reconciler.commit(transaction.put(&key, json(&next))).await.unwrap();
    });
    cluster.world.run_for(Duration::from_secs(15));
    // A node that is lost then has begun another one.
    cluster.control(0, move |control| async move {
        let transaction = Reconciler::transaction().put(LAST_SNAPSHOT, json(&begun.number));
        let transaction = transaction.put(&begun.key(), json(&begun));
        control.reconciler().unwrap().commit(transaction).await.unwrap();
    });
    cluster.world.run_for(Duration::from_secs(5));
    assert_eq!(cluster.snapshots(0), [("begun".to_owned(), SnapshotState::Deleting)]);
}

/// A record that was set back may not know a snapshot that exists.
#[test]
fn a_snapshot_that_the_record_does_not_know_stays_until_its_volume_becomes_thick() {
    let cluster = Cluster::with_sole_log();
    cluster.take(0, &[NAME], "first").unwrap();
    cluster.export_first();
    cluster.delete_snapshot(1, "first").unwrap();
    cluster.world.run_for(Duration::from_secs(5));
    cluster.control(1, |control| async move {
        let reconciler = control.reconciler().unwrap();
        let known: Vec<DeletedSnapshot> = reconciler.list(DELETED_SNAPSHOTS);
        assert_eq!(known.iter().map(|deleted| deleted.number).collect::<Vec<u32>>(), [1]);
        let transaction = Reconciler::transaction().delete(&known[0].key());
        reconciler.commit(transaction).await.unwrap();
    });
    cluster.import_on_second();
    cluster.world.run_for(Duration::from_secs(30));
    assert_eq!((cluster.snapshots(1), cluster.snapshots_in_pool(1)), (vec![], 1));
    let kinds = || cluster.control(1, |control| async move { control.kinds_of_copy(NAME).unwrap() });
    cluster.control(1, |control| async move {
        control.convert_volume(NAME, VolumeKind::Thick).await.map(drop).unwrap();
    });
    let is_thick = || kinds() == (VolumeKind::Thick, None);
    assert!(cluster.world.run_until(is_thick, Duration::from_secs(60)), "{:?}", kinds());
}

/// A disk that is slow makes hosts wait, but not for longer than the limit.
#[test]
fn a_snapshot_that_would_hold_hosts_for_too_long_is_not_taken() {
    let cluster = Cluster::new(1, 2, 2);
    cluster.add_volume(VolumeKind::Log, 2);
    let slow = Duration::from_millis(800)..Duration::from_millis(801);
    let latency = DiskLatency { write: slow, ..DiskLatency::default() };
    cluster.world.set_disk_latency(cluster.servers[1], DISK, latency);
    let (client, portal) = (cluster.client("host"), cluster.portal(0));
    let host = cluster.world.spawn_on(client, CoreId(0), move || async move {
        let session = log_in(portal, "host").await.unwrap();
        write(&session, 0, 1).await.unwrap();
    });
    cluster.world.run_for(Duration::from_millis(200));
    let began = cluster.world.now();
    let refused = cluster.take(0, &[NAME], "first");
    assert!(matches!(refused, Err(ControlError::SnapshotTooSlow { limit_ms: 500 })), "{refused:?}");
    assert!(cluster.world.now() - began < Duration::from_secs(2), "hosts continue");
    cluster.world.wait_for(host).unwrap();
    cluster.world.set_disk_latency(cluster.servers[1], DISK, DiskLatency::default());
    cluster.world.run_for(Duration::from_secs(10));
    assert_eq!(
        (cluster.snapshots(0), cluster.snapshots_in_pool(0), cluster.snapshots_in_pool(1)),
        (vec![], 0, 0)
    );
    cluster.take(0, &[NAME], "first").unwrap();
}

#[test]
fn a_volume_that_has_never_had_a_second_copy_has_snapshots_too() {
    each_seed(2, |seed| {
        let cluster = Cluster::new(seed, 2, 2);
        cluster.add_volume(VolumeKind::Log, 1);
        cluster.world.run_for(Duration::from_secs(3));
        let (client, portal) = (cluster.client("host"), cluster.portal(0));
        let write_one = |value: u64| {
            cluster.world.block_on(client, CoreId(0), move || async move {
                let session = log_in(portal, "host").await.unwrap();
                write(&session, 0, value).await.unwrap();
            });
        };
        write_one(1);
        // By the other node, which has no copy.
        cluster.take(1, &[NAME], "first").unwrap();
        write_one(2);
        assert_eq!(cluster.snapshot_block(0, "first", NAME), 1);
        // It survives a power cut, with what had not been flushed by the host.
        cluster.world.crash(cluster.servers[0]);
        cluster.start(0);
        cluster.world.run_for(Duration::from_secs(5));
        assert_eq!(cluster.snapshot_block(0, "first", NAME), 1);
    });
}
