//! Restores: all copies end at the state before or at that of the snapshot, whatever crashes; and copies that
//! are away bring back nothing.

use std::ops::Range;

use cluster::memory::Fault;
use node::control::{AddedCopy, FaultKind, RestoreSpec, Restored};
use node::copies::Restores;

use super::*;

const BLOCKS: Range<u64> = 0..8;
/// UNIT ATTENTION, NOT READY TO READY CHANGE, MEDIUM MAY HAVE CHANGED.
const CONTENT_REPLACED: (u8, u16) = (0x06, 0x2800);

fn spec(snapshot: &str, discard: bool) -> RestoreSpec {
    RestoreSpec { snapshot: snapshot.to_owned(), volumes: Vec::new(), discard }
}

impl Cluster {
    /// Two copies of a log volume. Snapshot "first" has 1 in all blocks.
    fn with_first(seed: u64) -> Cluster {
        let cluster = Cluster::new(seed, 2, 2);
        cluster.add_volume(VolumeKind::Log, 2);
        cluster.fill(0, BLOCKS, 1);
        cluster.take(0, &[NAME], "first").unwrap();
        cluster
    }

    /// Restores all volumes of a snapshot through a node.
    fn restore(&self, index: usize, snapshot: &str, discard: bool) -> Result<Restored, ControlError> {
        let spec = spec(snapshot, discard);
        self.control(index, move |control| async move { control.restore_snapshot(spec).await })
    }

    /// Checks that both copies hold the same, and that both nodes show this value.
    fn check_both(&self, value: u64) {
        assert_eq!(self.checksum(0), self.checksum(1), "the copies differ");
        for index in 0..2 {
            assert_eq!(self.holds(index, BLOCKS), [value], "through node {}", index + 1);
        }
    }

    /// Writes to the record what a node would have written that is lost then: hosts are stopped for restore 2
    /// to a snapshot of the volumes of snapshot 1, which discards the state before.
    fn stop_for_restore(&self, snapshot: u32, state: SnapshotState) {
        self.control(0, move |control| async move {
            let reconciler = control.reconciler().unwrap();
            let status = control.snapshot("1").unwrap();
            let mut transaction = Reconciler::transaction().put(LAST_SNAPSHOT, json(&2));
            let restores = Some(Restores { snapshot, discards: true, stopped: true });
            let entry = SnapshotEntry {
                number: 2,
                name: "before".into(),
                incarnation: 0,
                state,
                restores,
                ..status.entry.clone()
            };
            transaction = transaction.put(&entry.key(), json(&entry));
            for of in &status.entry.volumes {
                let key = volume_key(node::VolumeId::parse(&of.id).unwrap());
                let (volume, _) = reconciler.get::<VolumeEntry>(&key).unwrap();
                let epoch = volume.epoch + 1;
                let stopped = VolumeEntry { restoring: Some(2), epoch, ..volume };
                transaction = transaction.put(&key, json(&stopped));
            }
            reconciler.commit(transaction).await.unwrap();
        });
    }
}

#[test]
fn volumes_are_restored_on_all_copies_as_often_as_wanted() {
    each_seed(3, |seed| {
        let cluster = Cluster::with_first(seed);
        cluster.fill(1, BLOCKS, 2);
        cluster.fill(1, 100..104, 3);
        let restored = cluster.restore(1, "first", false).unwrap();
        assert_eq!((restored.snapshot.as_str(), restored.volumes), ("first", vec![NAME.to_owned()]));
        assert!(restored.pause_us > 0 && restored.pause_us < 500_000, "{}", restored.pause_us);
        cluster.check_both(1);
        assert_eq!(cluster.holds(0, 100..104), [0], "it was written later");
        let kept = restored.kept.unwrap();
        assert_eq!((kept.entry.number, kept.entry.state), (2, SnapshotState::Complete));
        assert_eq!((kept.entry.name.as_str(), has(&kept)), ("before-restore-of-first-2", vec![true, true]));
        assert_eq!([0, 1].map(|index| cluster.snapshot_block(index, &kept.entry.name, NAME)), [2, 2]);
        // There and back.
        cluster.fill(0, BLOCKS, 4);
        cluster.restore(0, "before-restore-of-first-2", false).unwrap();
        cluster.check_both(2);
        assert_eq!(cluster.holds(1, 100..104), [3]);
        assert!(cluster.restore(1, "first", true).unwrap().kept.is_none());
        cluster.check_both(1);
        let names: Vec<String> = cluster.snapshots(1).into_iter().map(|(name, _)| name).collect();
        assert_eq!(
            names,
            ["first", "before-restore-of-first-2", "before-restore-of-before-restore-of-first-2-3"]
        );
        // No copy is resynced for it.
        assert_eq!(cluster.in_sync(0), 2);
        let volume = cluster.shown(0).unwrap().entry;
        assert_eq!((volume.restoring, volume.restored), (None, Some(4)));
    });
}

/// Longest time until a host that takes unit attentions, and tries again, has written after a restore.
const CONTINUES_WITHIN: Duration = Duration::from_secs(2);

/// Volumes are restored while a host writes to both of them in turn.
fn restores_while_a_host_writes(seed: u64) {
    let cluster = Cluster::new(seed, 2, 2);
    cluster.add_volume(VolumeKind::Log, 2);
    cluster.add_other_volume();
    cluster.fill(0, 16..24, 7);
    cluster.take(0, &[NAME, OTHER], "first").unwrap();
    let (stops, written) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(0)));
    let (portals, client) = (cluster.portals(), cluster.client("host"));
    let (stops_too, written_too) = (Rc::clone(&stops), Rc::clone(&written));
    let host =
        cluster.world.spawn_on(client, CoreId(0), move || write_in_turn(portals, stops_too, written_too));
    cluster.world.run_for(Duration::from_secs(1));
    let mut rng = Rng::new(seed);
    for round in 0..4 {
        cluster.fill(round % 2, 16..24, 100 + round as u64);
        cluster.world.run_for(Duration::from_micros(rng.below(20_000)));
        let before = written.get();
        let restored = cluster.restore(round % 2, "first", false).unwrap();
        for index in 0..2 {
            assert_eq!(cluster.holds(index, 16..24), [7], "through node {}", index + 1);
        }
        let kept = restored.kept.unwrap().entry.name;
        let on_first = [NAME, OTHER].map(|volume| cluster.snapshot_block(0, &kept, volume));
        let on_second = [NAME, OTHER].map(|volume| cluster.snapshot_block(1, &kept, volume));
        assert_eq!(on_first, on_second, "the copies differ in what they were before");
        let [one, other] = on_first;
        assert!(one == other || one == other + 1, "{one} and {other} were never there together");
        assert!(other >= before, "{before} had been acknowledged before, {other} is there");
        // What was acknowledged after the restore is not lost.
        let since = written.get();
        assert!(cluster.world.run_until(|| written.get() > since, CONTINUES_WITHIN), "the host continues");
    }
    stops.set(true);
    cluster.world.wait_for(host).unwrap();
    cluster.world.run_for(Duration::from_secs(1));
    assert_eq!(cluster.checksum(0), cluster.checksum(1));
    assert_eq!(cluster.holds(0, 0..1), [written.get()]);
}

#[test]
fn a_set_of_volumes_is_restored_at_one_instant_while_a_host_writes() {
    each_seed(6, restores_while_a_host_writes);
}

/// Restores a volume, and crashes a node at some moment: afterwards all copies are as before, or restored.
fn crash_while_restoring(seed: u64) {
    let mut rng = Rng::new(seed);
    let cluster = Cluster::with_first(seed);
    cluster.fill(0, BLOCKS, 2);
    let answer = Rc::new(Cell::new(None));
    let told = Rc::clone(&answer);
    drop(cluster.world.spawn_on(cluster.servers[0], CoreId(0), move || async move {
        let restored = Control::current().restore_snapshot(spec("first", false)).await;
        // If it is decided, or the record did not answer, it may be restored all the same.
        let is_open = matches!(restored, Err(ControlError::RestoreUnfinished(_) | ControlError::Cluster(_)));
        told.set((!is_open).then_some(restored.is_ok()));
    }));
    cluster.crash_one_within(&mut rng, Duration::from_millis(40));
    cluster.world.run_for(Duration::from_secs(30));
    let known = cluster.snapshots(0);
    assert_eq!(known, cluster.snapshots(1));
    let volume = cluster.shown(0).unwrap().entry;
    assert_eq!(volume.restoring, None, "hosts are stopped for good");
    match known.as_slice() {
        [(first, SnapshotState::Complete)] if first == "first" => {
            assert_ne!(answer.get(), Some(true), "it was restored");
            cluster.check_both(2);
        }
        [(_, SnapshotState::Complete), (kept, SnapshotState::Complete)] => {
            assert_ne!(answer.get(), Some(false), "it was refused");
            cluster.check_both(1);
            assert_eq!(volume.restored, Some(2));
            let name = kept.clone();
            let status = cluster.control(0, move |control| async move { control.snapshot(&name).unwrap() });
            for (index, _) in has(&status).into_iter().enumerate().filter(|(_, has)| *has) {
                assert_eq!(cluster.snapshot_block(index, kept, NAME), 2);
            }
        }
        other => panic!("the restore is neither complete nor undone: {other:?}"),
    }
}

#[test]
fn a_crash_leaves_all_copies_restored_or_none() {
    each_seed(32, crash_while_restoring);
}

/// Longest time until a restore is answered: half a minute after it was decided.
const ANSWERED_WITHIN: Duration = Duration::from_secs(60);

/// The node that coordinates gets no changes of the record from some moment on.
fn restores_without_news(seed: u64) {
    let mut rng = Rng::new(seed);
    let cluster = Cluster::with_first(seed);
    cluster.fill(0, BLOCKS, 2);
    let key = volume_key(node::VolumeId::parse(&cluster.shown(0).unwrap().entry.id).unwrap());
    let answer = Rc::new(Cell::new(None));
    let told = Rc::clone(&answer);
    drop(cluster.world.spawn_on(cluster.servers[0], CoreId(0), move || async move {
        let restored = Control::current().restore_snapshot(spec("first", true)).await;
        told.set(Some(restored.is_ok()));
    }));
    cluster.world.run_for(Duration::from_micros(rng.below(40_000)));
    let first = cluster::NodeId::new(1).unwrap();
    cluster.record.begin(first, Fault::WatchHeld);
    assert!(cluster.world.run_until(|| answer.get().is_some(), ANSWERED_WITHIN), "nobody answers");
    let is_done = answer.get() == Some(true);
    let volume: VolumeEntry = serde_json::from_slice(&cluster.record.value(&key).unwrap()).unwrap();
    assert!(!is_done || volume.restoring.is_none(), "it is not over: {volume:?}");
    cluster.record.end(first, Fault::WatchHeld);
    cluster.wait_until_all_serve();
    cluster.wait_until_in_sync(0, 2);
    cluster.world.run_for(Duration::from_secs(30));
    let value = cluster.holds(0, BLOCKS)[0];
    assert!(value == 1 || value == 2 && !is_done, "{value}");
    cluster.check_both(value);
}

/// Before, a node that had not followed the record to the decision took the restore for complete.
#[test]
fn a_restore_is_answered_as_done_when_it_is_over() {
    each_seed(24, restores_without_news);
}

/// The node that coordinates is gone after it has stopped hosts.
#[test]
fn hosts_continue_if_a_restore_is_not_decided() {
    let cluster = Cluster::with_first(1);
    cluster.fill(0, BLOCKS, 2);
    cluster.stop_for_restore(1, SnapshotState::Preparing);
    cluster.world.run_for(Duration::from_secs(10));
    cluster.check_both(2);
    assert_eq!(cluster.snapshots(1), [("first".to_owned(), SnapshotState::Complete)]);
    assert_eq!(cluster.shown(1).unwrap().entry.restoring, None);
}

/// The node that coordinates is gone after the record has decided. Until then the snapshot is not deleted.
#[test]
fn a_restore_that_is_decided_is_completed_by_any_node() {
    let cluster = Cluster::with_first(1);
    cluster.fill(0, BLOCKS, 2);
    cluster.stop_for_restore(1, SnapshotState::Restoring);
    let deleted = cluster.delete_snapshot(0, "first");
    assert!(matches!(&deleted, Err(ControlError::SnapshotRestored(name)) if name == "first"), "{deleted:?}");
    let again = cluster.restore(0, "first", false).map(drop);
    let restoring =
        matches!(again, Err(ControlError::NotRestored { obstacle: SnapshotObstacle::Restoring, .. }));
    assert!(restoring, "{again:?}");
    cluster.world.run_for(Duration::from_secs(10));
    cluster.check_both(1);
    assert_eq!(cluster.shown(1).unwrap().entry.restored, Some(2));
    cluster.delete_snapshot(0, "first").unwrap();
}

/// A copy lacks the snapshot although it is in sync: a restore is decided then only if its pool has lost it
/// since.
#[test]
fn a_copy_that_cannot_be_restored_does_not_keep_hosts_stopped() {
    let cluster = Cluster::with_first(1);
    cluster.control(0, |control| async move { control.remove_copy(NAME, 2).await.map(drop).unwrap() });
    cluster.world.run_for(Duration::from_secs(10));
    cluster.control(0, |control| async move {
        let second = AddedCopy { node: 2, pool: None, instead_of: None };
        control.add_copy(NAME, second).await.unwrap();
    });
    cluster.wait_until_in_sync(0, 2);
    cluster.fill(0, BLOCKS, 2);
    let refused = cluster.restore(0, "first", true).map(drop);
    assert!(matches!(refused, Err(ControlError::CopyLacksSnapshot { node: 2, .. })), "{refused:?}");
    cluster.stop_for_restore(1, SnapshotState::Restoring);
    cluster.world.run_for(Duration::from_secs(20));
    assert_eq!(cluster.holds(0, BLOCKS), [1]);
    assert_eq!(cluster.in_sync(0), 1, "the other one has left");
    cluster.world.crash(cluster.servers[1]);
    cluster.start(1);
    cluster.wait_until_all_serve();
    cluster.wait_until_in_sync(0, 2);
    cluster.check_both(1);
}

/// The copies would take the second restore for the first one, and do nothing.
#[test]
fn a_number_that_is_used_again_restores_nothing() {
    let cluster = Cluster::with_first(1);
    cluster.restore(0, "first", true).unwrap();
    cluster.fill(0, BLOCKS, 2);
    // As after the record was set back.
    cluster.control(0, |control| async move {
        let transaction = Reconciler::transaction().put(LAST_SNAPSHOT, json(&1));
        control.reconciler().unwrap().commit(transaction).await.unwrap();
    });
    let refused = cluster.restore(0, "first", true).map(drop);
    let is_changed =
        matches!(refused, Err(ControlError::NotRestored { obstacle: SnapshotObstacle::Changed, .. }));
    assert!(is_changed, "{refused:?}");
    cluster.check_both(2);
    cluster.restore(0, "first", true).unwrap();
    cluster.check_both(1);
}

#[test]
fn hosts_that_are_stopped_for_long_are_reported() {
    let cluster = Cluster::new(1, 2, 2);
    cluster.add_volume(VolumeKind::Log, 2);
    cluster.take(0, &[NAME], "first").unwrap();
    let reported = || {
        let of = |index| cluster.control(index, |control| async move { control.faults() });
        let faults = [0, 1].map(of).concat();
        faults.into_iter().any(|fault| matches!(fault.kind, FaultKind::RestoreUnfinished { .. }))
    };
    // No copy has it.
    cluster.stop_for_restore(99, SnapshotState::Restoring);
    cluster.world.run_for(Duration::from_secs(2));
    assert!(!reported(), "it may still end");
    cluster.world.run_for(Duration::from_secs(8));
    assert!(reported());
}

/// A volume is restored while a copy is away. The bits of that copy say only what was written meanwhile.
pub fn away_while_restored(seed: u64) {
    let cluster = Cluster::with_first(seed);
    cluster.fill(0, BLOCKS, 2);
    // No bit is left of that.
    cluster.world.run_for(Duration::from_secs(20));
    cluster.world.crash(cluster.servers[1]);
    cluster.world.run_for(Duration::from_secs(5));
    assert_eq!(cluster.in_sync(0), 1);
    cluster.restore(0, "first", false).unwrap();
    assert_eq!(cluster.holds(0, BLOCKS), [1]);
    cluster.start(1);
    cluster.wait_until_all_serve();
    cluster.wait_until_in_sync(0, 2);
    cluster.check_both(1);
    // It still has the snapshot, but not what was kept meanwhile.
    let refused = cluster.restore(1, "before-restore-of-first-2", false).map(drop);
    let lacks = matches!(refused, Err(ControlError::CopyLacksSnapshot { node: 2, .. }));
    assert!(lacks, "{refused:?}");
    cluster.fill(0, BLOCKS, 3);
    cluster.restore(1, "first", false).unwrap();
    cluster.check_both(1);
}

#[test]
fn a_copy_that_was_away_brings_nothing_back() {
    each_seed(3, away_while_restored);
}

/// The other copy is being resynced when its source is restored.
#[test]
fn a_copy_that_is_resynced_meanwhile_brings_nothing_back() {
    each_seed(12, |seed| {
        let mut rng = Rng::new(seed);
        let cluster = Cluster::with_first(seed);
        cluster.fill(0, BLOCKS, 2);
        cluster.world.run_for(Duration::from_secs(20));
        cluster.world.crash(cluster.servers[1]);
        cluster.world.run_for(Duration::from_secs(5));
        cluster.fill(0, 64..512, 3);
        cluster.start(1);
        cluster.world.run_for(Duration::from_micros(rng.below(3_000_000)));
        // It may be about to be in sync just now.
        let mut tries = 0;
        while let Err(error) = cluster.restore(0, "first", true) {
            tries += 1;
            assert!(tries < 50, "{error}");
            cluster.world.run_for(Duration::from_millis(100));
        }
        cluster.wait_until_all_serve();
        cluster.wait_until_in_sync(0, 2);
        cluster.check_both(1);
        assert_eq!(cluster.holds(1, 64..512), [0]);
    });
}

#[test]
fn sessions_are_told_that_the_content_has_changed() {
    let cluster = Cluster::with_first(1);
    let (client, portals) = (cluster.client("host"), cluster.portals());
    let is_restored = Rc::new(Cell::new(false));
    let told = Rc::clone(&is_restored);
    let host = cluster.world.spawn_on(client, CoreId(0), move || async move {
        let mut sessions = Vec::new();
        for portal in portals {
            let session = log_in(portal, "host").await.unwrap();
            assert_eq!(read(&session, 0).await.unwrap(), 1);
            sessions.push(session);
        }
        while !told.get() {
            rt::sleep(Duration::from_millis(50)).await;
        }
        let mut found = Vec::new();
        for session in sessions {
            let first = session.read(LUN, Lba(0), BlockCount(1), SIZE).await;
            found.push(first.err().and_then(|error| error.sense()));
            assert_eq!(read(&session, 0).await.unwrap(), 1);
        }
        found
    });
    cluster.world.run_for(Duration::from_secs(2));
    cluster.restore(0, "first", false).unwrap();
    cluster.world.run_for(Duration::from_secs(1));
    is_restored.set(true);
    let found = cluster.world.wait_for(host).unwrap();
    assert_eq!(found, [Some(CONTENT_REPLACED); 2]);
}

#[test]
fn a_volume_that_has_never_had_a_second_copy_is_restored_too() {
    each_seed(2, |seed| {
        let cluster = Cluster::new(seed, 2, 2);
        cluster.add_volume(VolumeKind::Log, 1);
        cluster.world.run_for(Duration::from_secs(3));
        cluster.fill(0, BLOCKS, 1);
        // By the other node, which has no copy.
        cluster.take(1, &[NAME], "first").unwrap();
        cluster.fill(0, BLOCKS, 2);
        let kept = cluster.restore(1, "first", false).unwrap().kept.unwrap();
        assert_eq!(cluster.holds(0, BLOCKS), [1]);
        assert_eq!(cluster.snapshot_block(0, &kept.entry.name, NAME), 2);
        cluster.world.crash(cluster.servers[0]);
        cluster.start(0);
        cluster.world.run_for(Duration::from_secs(5));
        assert_eq!(cluster.holds(0, BLOCKS), [1]);
    });
}

#[test]
fn a_volume_that_has_grown_keeps_its_size() {
    let cluster = Cluster::new(1, 2, 2);
    cluster.add_volume(VolumeKind::Log, 2);
    cluster.add_other_volume();
    cluster.fill(0, BLOCKS, 1);
    let size = cluster.take(0, &[NAME, OTHER], "first").unwrap().entry.volumes[0].size;
    let larger = ByteLen(size + MIB);
    cluster
        .control(0, move |control| async move { control.grow_volume(NAME, larger).await.map(drop).unwrap() });
    let behind = size / u64::from(SIZE.bytes());
    cluster.fill(0, behind..behind + 2, 5);
    let of_one = |volume: &str| RestoreSpec { volumes: vec![volume.to_owned()], ..spec("first", true) };
    let (none, one) = (of_one("none"), of_one(NAME));
    cluster.control(0, move |control| async move {
        let refused = control.restore_snapshot(none).await.map(drop);
        assert!(matches!(refused, Err(ControlError::NotFound { .. })), "{refused:?}");
        let restored = control.restore_snapshot(one).await.unwrap();
        assert_eq!(restored.volumes, [NAME]);
    });
    cluster.check_both(1);
    assert_eq!(cluster.holds(1, behind..behind + 2), [0]);
    assert_eq!(cluster.shown(0).unwrap().entry.size, larger.0);
}

/// What a host has tried to write, by block.
type Tried = Rc<RefCell<BTreeMap<u64, BTreeSet<u64>>>>;

/// Writes to blocks in turn, each time another number and through any node, whatever the answer is.
async fn write_anyhow(portals: Vec<SocketAddr>, stops: Rc<Cell<bool>>, tried: Tried, mut rng: Rng) {
    let mut number = 10;
    while !stops.get() {
        let portal = portals[rng.below(portals.len() as u64) as usize];
        let Some(session) = log_in(portal, "host").await else {
            rt::sleep(Duration::from_millis(50)).await;
            continue;
        };
        for _ in 0..20 {
            number += 1;
            let lba = number % BLOCKS.end;
            tried.borrow_mut().entry(lba).or_default().insert(number);
            if write(&session, lba, number).await.is_err() || stops.get() {
                break;
            }
            rt::sleep(Duration::from_micros(rng.below(5000))).await;
        }
    }
}

/// Restores a volume again and again while a host writes, and nodes crash and are cut off.
fn restores_whatever_fails(seed: u64) {
    let mut rng = Rng::new(seed);
    let cluster = Cluster::new(seed, 3, 2);
    cluster.add_volume(VolumeKind::Log, 3);
    cluster.fill(0, BLOCKS, 1);
    cluster.take(0, &[NAME], "first").unwrap();
    cluster.fill(0, BLOCKS, 2);
    let (stops, tried) = (Rc::new(Cell::new(false)), Tried::default());
    let (portals, client) = (cluster.portals(), cluster.client("host"));
    let (stops_too, tried_too, its_rng) = (Rc::clone(&stops), Rc::clone(&tried), Rng::new(rng.next()));
    let host = cluster
        .world
        .spawn_on(client, CoreId(0), move || write_anyhow(portals, stops_too, tried_too, its_rng));
    let mut down: Option<usize> = None;
    for _ in 0..8 {
        cluster.world.run_for(Duration::from_millis(rng.below(2000)));
        let index = rng.below(3) as usize;
        if down != Some(index) {
            let spec = spec("first", rng.one_in(2));
            drop(cluster.world.spawn_on(cluster.servers[index], CoreId(0), move || async move {
                if let Some(control) = Control::try_current() {
                    let _ = control.restore_snapshot(spec).await;
                }
            }));
            cluster.world.run_for(Duration::from_micros(rng.below(40_000)));
        }
        let (one, other) = (rng.below(3) as usize, rng.below(3) as usize);
        match rng.below(4) {
            0 | 1 if down.is_none() => {
                cluster.world.crash(cluster.servers[one]);
                down = Some(one);
            }
            2 if one != other => cluster.world.cut(cluster.servers[one], cluster.servers[other]),
            _ => cluster.world.heal_all(),
        }
        if let Some(index) = down.filter(|_| rng.one_in(2)) {
            cluster.start(index);
            down = None;
        }
    }
    cluster.world.heal_all();
    if let Some(index) = down {
        cluster.start(index);
    }
    cluster.wait_until_all_serve();
    cluster.wait_until_in_sync(0, 3);
    stops.set(true);
    cluster.world.wait_for(host).unwrap();
    cluster.world.run_for(Duration::from_secs(40));
    assert_eq!(cluster.shown(0).unwrap().entry.restoring, None, "hosts are stopped for good");
    let known = cluster.snapshots(0);
    assert!(known.iter().all(|(_, state)| *state == SnapshotState::Complete), "{known:?}");
    for index in 1..3 {
        assert_eq!(cluster.checksum(0), cluster.checksum(index), "the copy on node {} differs", index + 1);
    }
    for lba in BLOCKS {
        let found = cluster.holds(2, lba..lba + 1);
        let is_possible =
            found[0] == 1 || tried.borrow().get(&lba).is_some_and(|all| all.contains(&found[0]));
        assert!(is_possible || found[0] == 2, "block {lba} is {}", found[0]);
    }
}

#[test]
fn copies_are_equal_after_restores_whatever_fails() {
    each_seed(12, restores_whatever_fails);
}
