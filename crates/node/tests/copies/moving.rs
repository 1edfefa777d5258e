//! Copies that are added, removed and moved while hosts use the volume.

use node::control::{AddedCopy, ControlError, EndedWork, JobOutcome};
use node::copies::{Ask, CopyWork, NewCopy, StandingEntry};

use super::forks::record_node;
use super::*;

use cluster::memory::Fault;
use replica::Slot;
use rt::sim::DiskLatency;

impl Cluster {
    fn try_add_copy(&self, asked: usize, node: u16, instead_of: Option<u16>) -> Result<(), ControlError> {
        self.control(asked, move |control| async move {
            control.add_copy(&the_volume(&control), AddedCopy { node, pool: None, instead_of }).await
        })
    }

    pub(super) fn add_copy(&self, asked: usize, node: u16) {
        self.try_add_copy(asked, node, None).unwrap();
    }

    pub(super) fn remove_copy(&self, asked: usize, node: u16) -> Result<bool, ControlError> {
        self.control(
            asked,
            move |control| async move { control.remove_copy(&the_volume(&control), node).await },
        )
    }

    /// The nodes of the copies, as a node has followed the record.
    fn nodes_of_copies(&self, by: usize) -> Vec<u16> {
        self.control(by, |control| async move {
            let volumes = control.reconciler().unwrap().volumes();
            volumes[0].entry.copies.iter().map(|copy| copy.node).collect()
        })
    }

    /// How jobs with copies have ended, as a node has seen it, newest first.
    fn ends(&self, by: usize) -> Vec<(u16, CopyWork, JobOutcome)> {
        self.control(by, |control| async move {
            let end = |(_, job): (Duration, node::control::EndedJob)| match job.work {
                EndedWork::Copy { node, work, .. } => Some((node, work, job.outcome)),
                _ => None,
            };
            control.ended_jobs().into_iter().filter_map(end).collect()
        })
    }

    /// Number of volumes in a node's pools.
    pub(super) fn kept(&self, index: usize) -> usize {
        self.control(index, |control| async move { control.volumes().await.len() })
    }

    pub(super) fn wait_until(&self, what: &str, is_so: impl Fn() -> bool) {
        for _ in 0..300 {
            if is_so() {
                return;
            }
            self.world.run_for(Duration::from_millis(100));
        }
        panic!("not so after half a minute: {what}");
    }

    /// Writes `value` to every 16th block: one of each region.
    pub(super) fn write_all(&self, through: usize, value: u64) {
        let (client, portal) = (self.client(&format!("writer-{value}")), self.portal(through));
        self.world.block_on(client, CoreId(0), move || async move {
            let session = log_in(portal, &format!("writer-{value}")).await.expect("it serves");
            for lba in (0..2048).step_by(16) {
                write(&session, lba, value).await.unwrap();
            }
        });
    }

    pub(super) fn assert_all(&self, through: usize, value: u64) {
        let (client, portal) = (self.client(&format!("reader-{value}-{through}")), self.portal(through));
        self.world.block_on(client, CoreId(0), move || async move {
            let session = log_in(portal, &format!("reader-{value}-{through}")).await.expect("it serves");
            for lba in (0..2048).step_by(16) {
                assert_eq!(read(&session, lba).await.unwrap(), value, "block {lba}");
            }
        });
    }
}

/// The identity of the only volume.
pub(super) fn the_volume(control: &Control) -> String {
    control.reconciler().unwrap().volumes()[0].entry.id.clone()
}

#[test]
fn a_copy_is_added_and_another_removed_while_the_volume_is_used() {
    each_seed(3, |seed| {
        for kind in [VolumeKind::Thick, VolumeKind::Ram, VolumeKind::Log] {
            let cluster = Cluster::new(seed, 3, 2);
            cluster.add_volume(kind, 2);
            assert_eq!(cluster.nodes_of_copies(0), [1, 2]);
            cluster.write_all(0, 1);
            cluster.add_copy(0, 3);
            assert!(matches!(cluster.try_add_copy(0, 3, None), Err(ControlError::HasCopy { node: 3, .. })));
            cluster.wait_until_in_sync(0, 3);
            assert_eq!(cluster.checksum(0), cluster.checksum(2));
            cluster.write_all(2, 2);
            assert!(cluster.remove_copy(2, 1).unwrap(), "it is gone at once");
            assert_eq!(cluster.nodes_of_copies(2), [2, 3]);
            cluster.wait_until("node 1 deletes its copy", || cluster.kept(0) == 0);
            cluster.wait_until("it is not remembered forever", || {
                cluster.control(1, |control| async move {
                    control.reconciler().unwrap().volumes()[0].entry.dropped.is_empty()
                })
            });
            cluster.assert_all(1, 2);
            cluster.write_all(1, 3);
            cluster.assert_all(2, 3);
            cluster.wait_until("nothing is noted for anybody, be there a copy or not", || {
                [1, 2].iter().all(|index| cluster.dirty_regions(*index) == 0)
            });
            assert!(matches!(cluster.remove_copy(2, 1), Err(ControlError::HasNoCopy { node: 1, .. })));
        }
    });
}

/// A host is logged in at each node, and uses one of them: the idle sessions delay nothing.
#[test]
fn a_copy_is_removed_although_an_idle_host_is_logged_in_there() {
    each_seed(3, |seed| {
        let cluster = Cluster::new(seed, 3, 2);
        cluster.add_volume(VolumeKind::Thick, 2);
        let (client, portal) = (cluster.client("idle"), cluster.portal(1));
        let session = cluster.world.block_on(client, CoreId(0), move || async move {
            log_in(portal, "idle").await.expect("it serves")
        });
        assert!(cluster.remove_copy(0, 2).unwrap(), "it is gone at once");
        cluster.wait_until("node 2 deletes its copy", || cluster.kept(1) == 0);
        cluster.add_copy(0, 2);
        cluster.wait_until_in_sync(0, 2);
        // The host finds the volume again automatically.
        cluster.world.block_on(client, CoreId(0), move || async move {
            session.make_ready(LUN).await.unwrap();
            assert_eq!(read(&session, 0).await.unwrap(), 0);
        });
    });
}

/// Two callers request the same copy at the same time: one may give up a copy that the other one adds to the
/// record.
#[test]
fn a_copy_that_two_ask_for_is_there_when_one_gives_up() {
    each_seed(20, |seed| {
        let cluster = Cluster::new(seed, 3, 2);
        cluster.add_volume(VolumeKind::Thick, 2);
        let mut rng = Rng::new(seed);
        let added: Vec<_> = [0, 1]
            .map(|asked| {
                cluster.world.run_for(Duration::from_micros(rng.below(2000)));
                cluster.world.spawn_on(cluster.servers[asked], CoreId(0), move || async move {
                    let control = Control::current();
                    let added = AddedCopy { node: 3, pool: None, instead_of: None };
                    control.add_copy(&the_volume(&control), added).await.is_ok()
                })
            })
            .into();
        cluster.wait_until("one of them has added it", || cluster.nodes_of_copies(0) == [1, 2, 3]);
        cluster.wait_until_in_sync(0, 3);
        drop(added);
        assert_eq!(cluster.checksum(0), cluster.checksum(2));
    });
}

/// Two callers request the same copy, and know the record as of different moments: they want another slot,
/// size or name.
///
/// The record has what one of them wants. The other one, which came first or second, gives up.
#[test]
fn a_copy_that_two_ask_for_differently_is_the_one_that_the_record_has() {
    let differences: [fn(&mut NewCopy); 4] = [
        |copy| copy.slot = 3,
        |copy| copy.size -= 4096,
        |copy| copy.size += 3 * MIB,
        |copy| copy.name = "former".to_owned(),
    ];
    let cases = differences.into_iter().flat_map(|differ| [(differ, false), (differ, true)]);
    for (seed, (differ, comes_first)) in (7..).zip(cases) {
        let cluster = Cluster::new(seed, 3, 2);
        cluster.add_volume(VolumeKind::Thick, 2);
        cluster.write_all(0, 1);
        let mut other = cluster.control(0, |control| async move {
            NewCopy::blank(&control.volumes().await.remove(0).info, Slot::new(2).unwrap(), None)
        });
        differ(&mut other);
        let (id, asker) = (other.id.clone(), Some(other.asker));
        let ask = |ask| {
            cluster.control(2, |control| async move {
                let reconciler = control.reconciler().unwrap();
                reconciler.ask(reconciler.me(), ask).await.map(drop)
            })
        };
        if comes_first {
            ask(Ask::MakeCopy(other.clone())).unwrap();
        }
        let added = cluster.world.spawn_on(cluster.servers[0], CoreId(0), || async {
            let control = Control::current();
            let added = AddedCopy { node: 3, pool: None, instead_of: None };
            control.add_copy(&the_volume(&control), added).await.is_ok()
        });
        if !comes_first {
            while cluster.kept(2) == 0 {
                cluster.world.run_for(Duration::from_micros(10));
            }
            assert_eq!(cluster.nodes_of_copies(2), [1, 2], "the record does not have it yet");
            ask(Ask::MakeCopy(other)).unwrap();
        }
        cluster.wait_until("one of them has added it", || cluster.nodes_of_copies(0) == [1, 2, 3]);
        ask(Ask::DropCopy { id, asker }).unwrap();
        cluster.wait_until_in_sync(0, 3);
        drop(added);
        assert_eq!(cluster.checksum(0), cluster.checksum(2));
        cluster.world.crash(cluster.servers[2]);
        cluster.start(2);
        cluster.wait_until_in_sync(0, 3);
        cluster.wait_until_all_serve();
        cluster.assert_all(2, 1);
    }
}

/// Nobody adds it to the record then. Its node deletes it, whether the request to delete it waits for the
/// creation to end, or times out as well.
#[test]
fn a_copy_whose_node_answers_too_late_is_deleted() {
    for seconds in [35, 100] {
        let cluster = Cluster::new(seconds, 3, 2);
        cluster.add_volume(VolumeKind::Thick, 2);
        let slow = Duration::from_secs(seconds)..Duration::from_secs(seconds + 1);
        let slow = DiskLatency { write: slow, ..DiskLatency::default() };
        cluster.world.set_disk_latency(cluster.servers[2], DISK, slow);
        let added = cluster.world.spawn_on(cluster.servers[0], CoreId(0), || async {
            let control = Control::current();
            let added = AddedCopy { node: 3, pool: None, instead_of: None };
            control.add_copy(&the_volume(&control), added).await.is_ok()
        });
        cluster.world.run_for(Duration::from_secs(1));
        cluster.world.set_disk_latency(cluster.servers[2], DISK, DiskLatency::default());
        assert!(!cluster.world.wait_for(added).unwrap(), "the answer comes too late");
        cluster.world.run_for(Duration::from_secs(seconds));
        assert_eq!(cluster.kept(2), 0, "{seconds} seconds");
        cluster.add_copy(0, 3);
        cluster.wait_until_in_sync(0, 3);
    }
}

impl Cluster {
    /// Has the third node create a copy that nobody adds to the record.
    fn leave_a_copy(&self) {
        let new = self.control(0, |control| async move {
            NewCopy::blank(&control.volumes().await.remove(0).info, Slot::new(2).unwrap(), None)
        });
        self.control(2, |control| async move {
            let reconciler = control.reconciler().unwrap();
            reconciler.ask(reconciler.me(), Ask::MakeCopy(new)).await.map(drop).unwrap();
        });
        assert_eq!(self.kept(2), 1);
    }
}

/// The node that asked for it has crashed, say.
#[test]
fn a_copy_that_nobody_adds_is_deleted() {
    let cluster = Cluster::new(1, 3, 2);
    cluster.add_volume(VolumeKind::Thick, 2);
    cluster.leave_a_copy();
    cluster.world.run_for(Duration::from_secs(110));
    assert_eq!(cluster.kept(2), 1, "it may still be added");
    cluster.wait_until("its node deletes it", || cluster.kept(2) == 0);
    cluster.leave_a_copy();
    cluster.world.crash(cluster.servers[2]);
    cluster.start(2);
    cluster.wait_until("the next life of its node deletes it", || cluster.kept(2) == 0);
    cluster.add_copy(0, 3);
    cluster.wait_until_in_sync(0, 3);
    cluster.world.run_for(Duration::from_secs(130));
    assert_eq!((cluster.in_sync(0), cluster.kept(2)), (3, 1));
}

/// The transaction that adds a copy may take effect long after its caller has given up. If the copy's node
/// reaches the record first, it deletes the copy, and the transaction is too late.
#[test]
fn a_copy_that_is_added_late_exists() {
    for first in [0, 2] {
        let cluster = Cluster::new(1, 3, 2);
        cluster.add_volume(VolumeKind::Thick, 2);
        (0..3).for_each(|index| cluster.record.begin(record_node(index), Fault::Unreachable));
        assert!(cluster.try_add_copy(0, 3, None).is_err());
        cluster.world.run_for(Duration::from_secs(150));
        assert_eq!(cluster.kept(2), 1, "its node cannot know whether it is added");
        cluster.record.end(record_node(first), Fault::Unreachable);
        cluster.world.run_for(Duration::from_secs(10));
        (0..3).for_each(|index| cluster.record.end(record_node(index), Fault::Unreachable));
        cluster.world.run_for(Duration::from_secs(5));
        if first == 0 {
            cluster.wait_until_in_sync(0, 3);
        } else {
            assert_eq!((cluster.nodes_of_copies(0), cluster.kept(2)), (vec![1, 2], 0));
        }
    }
}

#[test]
fn a_copy_moves_and_leaves_when_the_new_one_is_in_sync() {
    each_seed(3, |seed| {
        let cluster = Cluster::new(seed, 3, 2);
        cluster.add_volume(VolumeKind::Thick, 1);
        cluster.write_all(0, 1);
        assert!(matches!(cluster.remove_copy(0, 1), Err(ControlError::OnlyInSync { node: 1, .. })));
        cluster.try_add_copy(0, 2, Some(1)).unwrap();
        cluster.wait_until("the copy has moved", || cluster.nodes_of_copies(1) == [2]);
        cluster.wait_until("node 1 deletes its copy", || cluster.kept(0) == 0);
        cluster.assert_all(1, 1);
        cluster.write_all(1, 2);
        // And on, to a node that it was on before.
        cluster.try_add_copy(1, 1, Some(2)).unwrap();
        cluster.wait_until("the copy has moved back", || cluster.nodes_of_copies(0) == [1]);
        cluster.assert_all(0, 2);
    });
}

/// Nodes without a copy have seen it, too.
#[test]
fn how_a_move_has_ended_every_node_remembers() {
    let cluster = Cluster::new(1, 3, 2);
    cluster.add_volume(VolumeKind::Thick, 1);
    cluster.try_add_copy(0, 2, Some(1)).unwrap();
    let has_moved = || (0..3).all(|by| cluster.nodes_of_copies(by) == [2]);
    cluster.wait_until("the copy has moved", has_moved);
    for by in 0..3 {
        let ends = cluster.ends(by);
        let moved = (2, CopyWork::Move { from: 1 }, JobOutcome::Done);
        assert_eq!(ends.iter().filter(|end| **end == moved).count(), 1, "node {}: {ends:?}", by + 1);
        assert!(ends.iter().all(|(.., outcome)| *outcome == JobOutcome::Done), "{ends:?}");
    }
}

/// Writes while a slot is empty are recorded for no copy. So a new copy in the slot must not take anything on
/// its disk, nor any dirty map, as a record of what it misses.
#[test]
fn a_slot_that_is_used_again_begins_blank() {
    each_seed(3, |seed| {
        let cluster = Cluster::new(seed, 3, 2);
        cluster.add_volume(VolumeKind::Thick, 2);
        cluster.write_all(0, 1);
        cluster.world.crash(cluster.servers[1]);
        cluster.world.run_for(Duration::from_secs(3));
        cluster.write_all(0, 2);
        assert!(cluster.remove_copy(0, 2).unwrap());
        cluster.write_all(0, 3);
        // Dirty bits of copies that are in sync are cleared after a while.
        cluster.world.run_for(Duration::from_secs(10));
        cluster.add_copy(0, 3);
        cluster.wait_until_in_sync(0, 2);
        assert_eq!(cluster.checksum(0), cluster.checksum(2));
        cluster.assert_all(2, 3);
        assert!(cluster.remove_copy(0, 3).unwrap());
        cluster.write_all(0, 4);
        // The node that was away has the slot's older copy, and deletes it. Only the record can tell it so.
        cluster.start(1);
        cluster.wait_until("node 2 deletes its old copy", || cluster.kept(1) == 0);
        cluster.add_copy(0, 2);
        cluster.wait_until_in_sync(0, 2);
        assert_eq!(cluster.checksum(0), cluster.checksum(1));
        cluster.assert_all(1, 4);
    });
}

/// Copies are added and removed, and nodes crash, during I/O through all of them.
///
/// What hosts saw is possible, and at the end all copies are equal.
fn moves_and_faults(seed: u64) {
    let mut rng = Rng::new(seed);
    let nodes = 3;
    let cluster = Cluster::new(seed, nodes, 1 + rng.below(2) as usize);
    cluster.add_volume(VolumeKind::Thick, 1 + rng.below(3) as u8);
    let history: History = Rc::new(RefCell::new(vec![Vec::new(); HOT as usize]));
    let time = Rc::new(Cell::new(0));
    for index in 0..nodes {
        let name = format!("client-{}", (b'a' + index as u8) as char);
        let client = cluster.client(&name);
        let (portal, history, time) = (cluster.portal(index), Rc::clone(&history), Rc::clone(&time));
        let rng = rng.fork();
        drop(cluster.world.spawn_on(client, CoreId(0), move || worker(portal, name, history, time, rng)));
    }
    let mut down: Option<usize> = None;
    for _ in 0..10 {
        cluster.world.run_for(Duration::from_millis(rng.below(2500)));
        let (node, other) = (1 + rng.below(3) as u16, 1 + rng.below(3) as u16);
        let asked = (0..nodes).find(|index| Some(*index) != down).unwrap();
        match rng.below(6) {
            // A refusal is fine: for the last copy in sync, for a node that is down, or for one that has a
            // copy.
            0 | 1 => drop(cluster.try_add_copy(asked, node, None)),
            2 => drop(cluster.try_add_copy(asked, node, Some(other))),
            3 => drop(cluster.remove_copy(asked, node)),
            _ => match down.take() {
                Some(index) => cluster.start(index),
                None => {
                    let index = usize::from(node) - 1;
                    cluster.world.crash(cluster.servers[index]);
                    down = Some(index);
                }
            },
        }
    }
    down.into_iter().for_each(|index| cluster.start(index));
    let settled = || {
        let entry = cluster
            .control(0, |control| async move { control.reconciler().unwrap().volumes().remove(0).entry });
        entry.dropped.is_empty()
            && entry.copies.iter().all(|copy| copy.standing == StandingEntry::InSync && copy.leaves.is_none())
    };
    cluster.wait_until("all copies are in sync", settled);
    cluster.world.run_for(Duration::from_secs(3));
    let all: Vec<usize> = cluster.nodes_of_copies(0).into_iter().map(|node| usize::from(node) - 1).collect();
    for (index, other) in all.iter().zip(&all[1..]) {
        assert_ne!(index, other);
    }
    for index in 0..nodes {
        assert_eq!(cluster.kept(index), usize::from(all.contains(&index)), "seed {seed}: node {}", index + 1);
    }
    for (lba, ops) in history.borrow().iter().enumerate() {
        if let Err(violation) = check(0, ops) {
            panic!("seed {seed}, block {lba}: {violation:?} in {} operations", ops.len());
        }
    }
    let count: usize = history.borrow().iter().map(Vec::len).sum();
    assert!(count > 200, "only {count} operations in {:?}", cluster.world.now());
}

#[test]
fn histories_are_linearizable_while_copies_come_and_go() {
    each_seed(12, moves_and_faults);
}

#[test]
fn a_cancelled_move_leaves_everything_as_it_was() {
    // In one seed of fifteen the new copy's node follows both changes, the addition and the removal, at once.
    each_seed(20, |seed| {
        let cluster = Cluster::new(seed, 3, 2);
        cluster.add_volume(VolumeKind::Thick, 2);
        cluster.write_all(0, 1);
        cluster.try_add_copy(0, 3, Some(2)).unwrap();
        let cancel = |by: usize, node: u16| {
            cluster.control(by, move |control| async move {
                control.cancel_copy(&the_volume(&control), node).await
            })
        };
        // By a node that has no copy, too, as soon as it knows of the new one.
        loop {
            match cancel(2, 3) {
                Ok(()) => break,
                Err(ControlError::HasNoCopy { .. }) => cluster.world.run_for(Duration::from_millis(1)),
                Err(ControlError::CopyInSync { node: 3, .. }) => return,
                Err(error) => panic!("{error}"),
            }
        }
        cluster.wait_until("the new copy is gone", || cluster.nodes_of_copies(0) == [1, 2]);
        cluster.wait_until("node 3 deletes it", || cluster.kept(2) == 0);
        assert!(matches!(cancel(0, 3), Err(ControlError::HasNoCopy { node: 3, .. })));
        assert!(matches!(cancel(0, 2), Err(ControlError::CopyInSync { node: 2, .. })));
        // The old one stays when there is a copy on node 3 again.
        cluster.add_copy(0, 3);
        cluster.wait_until_in_sync(0, 3);
        cluster.world.run_for(Duration::from_secs(3));
        assert_eq!(cluster.nodes_of_copies(0), [1, 2, 3]);
        cluster.assert_all(1, 1);
    });
}

/// A caller that cancels a copy and adds one there again must not be refused because of what the node is
/// about to delete automatically; and the node must never delete the new copy.
#[test]
fn a_copy_may_be_put_where_one_has_just_been_taken_off() {
    each_seed(8, |seed| {
        let mut rng = Rng::new(seed);
        let cluster = Cluster::new(seed, 3, 2);
        cluster.add_volume(VolumeKind::Thick, 2);
        cluster.write_all(0, 1);
        for round in 0..6 {
            cluster
                .try_add_copy(0, 3, None)
                .unwrap_or_else(|error| panic!("seed {seed}, round {round}: {error}"));
            // Before its pool trusts it, in the middle of its resync, or in sync.
            cluster.world.run_for(Duration::from_millis(rng.below([30, 300][round % 2])));
            let pauses = rng.one_in(2);
            cluster.control(0, move |control| async move {
                let volume = the_volume(&control);
                if pauses {
                    match control.pause_sync(&volume, 3, "eva").await {
                        Ok(()) | Err(ControlError::NothingToPause { .. }) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
                match control.cancel_copy(&volume, 3).await {
                    Err(ControlError::CopyInSync { .. }) => {
                        control.remove_copy(&volume, 3).await.map(drop).unwrap();
                    }
                    result => result.unwrap(),
                }
            });
            cluster.wait_until("the copy is none any more", || cluster.nodes_of_copies(0) == [1, 2]);
            if rng.one_in(2) {
                cluster.world.run_for(Duration::from_millis(rng.below(1500)));
            }
        }
        cluster.try_add_copy(0, 3, Some(2)).unwrap();
        cluster.wait_until("the copy has moved", || cluster.nodes_of_copies(0) == [1, 3]);
        cluster.wait_until_in_sync(0, 2);
        assert_eq!(cluster.checksum(0), cluster.checksum(2));
        cluster.assert_all(2, 1);
        cluster.wait_until("node 2 deletes its copy", || cluster.kept(1) == 0);
    });
}
