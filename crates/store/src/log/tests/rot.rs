//! Records that have rotted.

use base::Buf;
use rt::sim::DiskFaults;

use super::super::append::Survivor;
use super::super::record::Stream;
use super::snapshots::{ids as snapshots_of, read_of};
use super::*;
use crate::canary::{Canary, make};
use crate::copy::{CopyOf, CopyState};
use crate::id::ClusterId;
use crate::log::SnapshotError;

/// A copy of a log volume that has all that it has acknowledged.
fn of_cluster(name: &str) -> VolumeSpec {
    let state = CopyState::Trusted { epoch: 1 };
    VolumeSpec {
        copy: Some(CopyOf { cluster: ClusterId([7; 16]), slot: 0, state }),
        ..spec(name, 4 << 20, 1)
    }
}

/// Loses the first head on the disk.
fn lose_record(world: &World, node: NodeId) {
    let image = world.disk_image(node, path(0));
    let is_head = |at: &u64| {
        let mut start = [0; 8];
        image.read(*at, &mut start);
        start == *b"URSALREC"
    };
    let first = (0..image.size()).step_by(BLOCK as usize).find(is_head).unwrap();
    world.corrupt_disk(node, path(0), first..first + 512);
}

/// Marks a copy as one that is resynced in full.
async fn set_back(pool: &Pool, id: VolumeId) {
    pool.set_copy(id, 0, CopyState::SetBack { epoch: 1 }).await.unwrap();
}

/// A head that a recovery needs cannot be read any more. What it said is lost to this copy, and nobody may
/// take what is left for the newest data. Once the catalog says durably of all volumes in the log that they
/// are resynced in full, the log does without.
///
/// Once, all volumes of such a log were offline until somebody rebuilt each of their copies elsewhere.
#[test]
fn a_log_that_lacks_a_record_is_opened_only_for_copies_that_are_resynced_in_full() {
    let world = World::new(1);
    let node = machine(&world, 1, 32 << 20, 1);
    let (one, other) = (of_cluster("one"), of_cluster("other"));
    let (pool, disks, ids, open) = world.block_on(node, CORE, move || async move {
        let pool = create(1).await;
        let mut ids = Vec::new();
        for spec in [one, other] {
            ids.push(pool.create_volume(spec).await.unwrap().id);
        }
        let disks = pool.share_disks().attach();
        let open: Vec<_> = ids.iter().map(|id| slices(&pool, &disks, *id).remove(0)).collect();
        for number in 1..4 {
            write(&open[0], number, number, Durability::Durable).await.unwrap();
        }
        write(&open[1], 1, 5, Durability::Durable).await.unwrap();
        // By then, a record says that they are durable.
        rt::sleep(std::time::Duration::from_secs(2)).await;
        (pool, disks, ids, open)
    });
    lose_record(&world, node);
    world.block_on(node, CORE, move || async move {
        drop(open);
        let open_again = async || {
            pool.logs_ended().await;
            let open: Vec<_> = ids.iter().map(|id| slices(&pool, &disks, *id).remove(0)).collect();
            let is_ready = open[0].ready().await.is_ok();
            assert_eq!(open[1].ready().await.is_ok(), is_ready);
            is_ready.then_some(open)
        };
        assert!(open_again().await.is_none());
        let mut lacking = pool.volumes_lacking_records();
        lacking.iter_mut().for_each(|of_log| of_log.sort());
        let mut all = ids.clone();
        all.sort();
        assert_eq!(lacking, [all]);
        set_back(&pool, ids[0]).await;
        assert!(open_again().await.is_none(), "somebody relies on the other one");
        // A slice without blocks would do the same.
        let keeps_it_open = slices(&pool, &disks, ids[1]).remove(0);
        assert!(keeps_it_open.ready().await.is_err());
        set_back(&pool, ids[1]).await;
        let open = open_again().await.expect("nobody needs what it lacks");
        drop(keeps_it_open);
        assert!(pool.volumes_lacking_records().is_empty());
        assert_eq!(read(&open[0], 1).await, Ok(0), "as before the record that is lost");
        assert_eq!((read(&open[0], 2).await, read(&open[0], 3).await), (Ok(2), Ok(3)));
        assert_eq!(read(&open[1], 1).await, Ok(5));
        idle(&open[0]).await;
        check(&open[0]).await;
        write(&open[0], 1, 9, Durability::Durable).await.unwrap();
        drop(open);
        // What it lacks is behind the root now, and it needs nobody's permission any more.
        for id in &ids {
            pool.set_copy(*id, 0, CopyState::Trusted { epoch: 1 }).await.unwrap();
        }
        let open = open_again().await.unwrap();
        assert_eq!((read(&open[0], 1).await, read(&open[0], 2).await), (Ok(9), Ok(2)));
    });
}

/// A block of a durable record that has rotted cannot be read. It does not become what it was before.
#[test]
fn rot_in_a_record_brings_nothing_older_back_and_a_record_that_is_dropped_for_it_is_noticed() {
    const OLD: u64 = 2;
    const NEW: u64 = 5;
    for drops in [false, true] {
        let world = World::new(1);
        let node = machine(&world, 1, 8 << 20, 1);
        let (pool, disks, id, slice) = world.block_on(node, CORE, || async {
            let (pool, disks, id, slice) = one_slice(4 << 20).await;
            for number in [OLD, NEW] {
                write(&slice, 1, number, Durability::Durable).await.unwrap();
            }
            // By then, a record says that they are durable.
            rt::sleep(Duration::from_secs(2)).await;
            (pool, disks, id, slice)
        });
        let (image, data) = (world.disk_image(node, path(0)), block(NEW));
        let is_it = |at: &u64| {
            let mut found = vec![0; BLOCK as usize];
            image.read(*at, &mut found);
            found == data
        };
        let at = (0..image.size()).step_by(BLOCK as usize).find(is_it).expect("it is stored as it is");
        world.corrupt_disk(node, path(0), at..at + 512);
        make(drops.then_some(Canary::RotDropped));
        let found = world.block_on(node, CORE, move || async move {
            drop(slice);
            pool.logs_ended().await;
            let slice = slices(&pool, &disks, id).remove(0);
            slice.ready().await.unwrap();
            let found = read(&slice, 1).await;
            drop((pool, disks, slice));
            found
        });
        make(None);
        assert_eq!(found.ok(), drops.then_some(OLD));
    }
}

/// What a snapshot has may be in the record that is missing, and a resync changes only what is there now. So
/// a snapshot would show older data for good, on this copy only.
#[test]
fn a_log_that_lacks_a_record_has_no_snapshots() {
    let world = World::new(1);
    let node = machine(&world, 1, 32 << 20, 1);
    let (pool, disks, id, slice) = world.block_on(node, CORE, || async {
        let pool = create(1).await;
        let id = pool.create_volume(of_cluster("one")).await.unwrap().id;
        let disks = pool.share_disks().attach();
        let slice = slices(&pool, &disks, id).remove(0);
        write(&slice, 1, 1, Durability::Durable).await.unwrap();
        slice.take_snapshot(7, 100).await.unwrap();
        write(&slice, 2, 2, Durability::Durable).await.unwrap();
        rt::sleep(std::time::Duration::from_secs(2)).await;
        (pool, disks, id, slice)
    });
    lose_record(&world, node);
    world.block_on(node, CORE, move || async move {
        drop(slice);
        let open_again = async || {
            pool.logs_ended().await;
            let slice = slices(&pool, &disks, id).remove(0);
            slice.ready().await.is_ok().then_some(slice)
        };
        assert!(open_again().await.is_none());
        set_back(&pool, id).await;
        let slice = open_again().await.expect("nobody needs what it lacks");
        assert_eq!((read(&slice, 1).await, read(&slice, 2).await), (Ok(0), Ok(2)));
        assert_eq!(read_of(&slice, 7, 1).await, Err(SnapshotError::Unknown));
        // They do not come back.
        drop(slice);
        let slice = open_again().await.unwrap();
        assert!(snapshots_of(&slice).await.is_empty());
        slice.take_snapshot(7, 200).await.unwrap();
        assert_eq!((read_of(&slice, 7, 2).await, snapshots_of(&slice).await), (Ok(2), vec![7]));
        idle(&slice).await;
        check(&slice).await;
    });
}

/// The cleaner leaves a segment alone as long as a block in it cannot be read.
///
/// Once, it did so for good, and left all blocks there that lay before the bad one.
#[test]
fn a_segment_with_a_bad_block_is_cleaned_when_that_block_was_written_again() {
    const STAY: u64 = 100;
    const BAD: u64 = 50;
    const OTHERS: u64 = 512;
    let world = World::new(1);
    let node = machine(&world, 1, 8 << 20, 1);
    let (pool, disks, slice, at) = world.block_on(node, CORE, || async {
        let (pool, disks, _id, slice) = one_slice(4 << 20).await;
        for number in 0..STAY {
            write(&slice, number, number + 1, Durability::Durable).await.unwrap();
            write(&slice, OTHERS + number, number + 1, Durability::Durable).await.unwrap();
        }
        let log = log_of(&slice);
        log.inner.merge_all().await.unwrap();
        idle(&slice).await;
        let branch = log.inner.state.borrow().leaves.first_key_value().unwrap().0.0.branch;
        let stored = log.inner.spots(branch, BAD..BAD + 1).await.unwrap()[0].stored().unwrap();
        let (_, _, at) = log.inner.locate(stored.place).unwrap();
        drop(log);
        (pool, disks, slice, at)
    });
    world.set_disk_faults(node, path(0), DiskFaults::default().with_unreadable(at..at + 512).remapping());
    world.block_on(node, CORE, move || async move {
        let mut rng = base::Rng::new(1);
        for is_written_again in [false, true] {
            if is_written_again {
                write(&slice, BAD, BAD + 1, Durability::Durable).await.unwrap();
            }
            // The cleaner comes to all segments.
            for number in 0..8000 {
                let at = OTHERS + rng.below(STAY);
                write(&slice, at, number, Durability::Cached).await.unwrap();
            }
            idle(&slice).await;
            let stuck = log_of(&slice).inner.state.borrow().segments.stuck;
            assert_eq!(stuck, u64::from(!is_written_again));
        }
        for number in 0..STAY {
            assert_eq!(read(&slice, number).await, Ok(number + 1));
        }
        check(&slice).await;
        drop((pool, disks, slice));
    });
}

/// A move of the cleaner that is not in the map yet is not needed: its block is where it was.
///
/// Once, recovery took such a move although what was moved had rotted, and gave up the good block.
#[test]
fn a_moved_block_that_has_rotted_is_read_where_it_was() {
    let world = World::new(1);
    let node = machine(&world, 1, 16 << 20, 1);
    let (pool, disks, id, slice, moved_to) = world.block_on(node, CORE, || async {
        let (pool, disks, id, slice) = one_slice(4 << 20).await;
        write(&slice, 1, 7, Durability::Durable).await.unwrap();
        let log = log_of(&slice);
        let inner = &log.inner;
        inner.merge_all().await.unwrap();
        idle(&slice).await;
        let (leaf_era, _) = *inner.state.borrow().leaves.first_key_value().unwrap().0;
        let (branch, era) = (leaf_era.branch, leaf_era.number);
        let stored = inner.spots(branch, 1..2).await.unwrap()[0].stored().unwrap();
        let (disk, _, at) = inner.locate(stored.place).unwrap();
        let data = disk.read(at, Buf::uncleared(BLOCK as usize)).await.unwrap().share();
        let generation = {
            let mut state = inner.state.borrow_mut();
            // No checkpoint merges the move.
            state.checkpointing = true;
            assert!(state.open_next(Stream::Survivors));
            state.segments.used[&stored.place.segment].generation
        };
        let (from, crc) = (stored.place, stored.crc);
        let moved =
            inner.survivors_record(vec![Survivor { branch, era, block: 1, from, generation, crc, data }]);
        let moved = moved.unwrap();
        let to = moved.0.place.next();
        inner.write_survivors(moved).await.unwrap();
        inner.flush().await.unwrap();
        // Its head says that the move is durable.
        write(&slice, 2, 8, Durability::Durable).await.unwrap();
        let (_, _, moved_to) = inner.locate(to).unwrap();
        drop(log);
        (pool, disks, id, slice, moved_to)
    });
    world.corrupt_disk(node, path(0), moved_to..moved_to + BLOCK);
    world.block_on(node, CORE, move || async move {
        drop(slice);
        pool.logs_ended().await;
        let slice = slices(&pool, &disks, id).remove(0);
        assert_eq!((read(&slice, 1).await, read(&slice, 2).await), (Ok(7), Ok(8)));
        idle(&slice).await;
        check(&slice).await;
    });
}
