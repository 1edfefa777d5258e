//! Disks that leave the pool though snapshots need what lies there, and leaves of snapshots that the disk
//! cannot read.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::Duration;

use rt::sim::DiskFaults;

use super::super::leaf::{Era, LEAF_GRAIN, LeafKey};
use super::super::place::Place;
use super::leaving::{BLOCKS, disk, empty_again, filled, forget_leaves, open_without_first};
use super::*;
use crate::error::{BadBlock, ReadFailure, StoreError};
use crate::log::{PastCursor, SnapshotError};

/// What the volume, and each snapshot, reads as.
#[derive(Clone, Default)]
struct Contents {
    now: Vec<u64>,
    snapshots: BTreeMap<u64, Vec<u64>>,
}

async fn read_of(slice: &Slice, id: u64, at: u64) -> Result<u64, SnapshotError> {
    let bytes = slice.read_snapshot(id, ByteOffset(at * BLOCK), ByteLen(BLOCK)).await?.to_vec();
    let number = u64::from_le_bytes(bytes[..8].try_into().unwrap());
    assert_eq!(bytes, block(number), "block {at} of snapshot {id} is of one piece");
    Ok(number)
}

impl Contents {
    /// Those of a volume that was just filled.
    fn filled() -> Contents {
        Contents { now: (0..BLOCKS).map(|at| at + 1).collect(), ..Contents::default() }
    }

    async fn write(&mut self, slice: &Slice, at: u64, number: u64) {
        write(slice, at, number, Durability::Cached).await.unwrap();
        self.now[at as usize] = number;
    }

    async fn unmap(&mut self, slice: &Slice, blocks: Range<u64>) {
        let len = ByteLen((blocks.end - blocks.start) * BLOCK);
        slice.zero(ByteOffset(blocks.start * BLOCK), len).await.unwrap();
        self.now[blocks.start as usize..blocks.end as usize].fill(0);
    }

    async fn take(&mut self, slice: &Slice, id: u64) {
        slice.take_snapshot(id, id).await.unwrap();
        self.snapshots.insert(id, self.now.clone());
    }

    async fn delete(&mut self, slice: &Slice, id: u64) {
        slice.delete_snapshots(&[id]).await.unwrap();
        self.snapshots.remove(&id);
    }

    async fn check(&self, slice: &Slice) {
        check(slice).await;
        let ids: Vec<u64> = slice.snapshots().await.unwrap().iter().map(|info| info.id).collect();
        assert_eq!(ids, self.snapshots.keys().copied().collect::<Vec<u64>>());
        for at in 0..BLOCKS {
            assert_eq!(read(slice, at).await, Ok(self.now[at as usize]), "block {at}");
            for (id, content) in &self.snapshots {
                assert_eq!(read_of(slice, *id, at).await, Ok(content[at as usize]), "block {at} of {id}");
            }
        }
    }
}

/// Three snapshots: between them blocks are overwritten, unmapped, and written for the first time.
async fn three(slice: &Slice) -> Contents {
    let mut contents = Contents::filled();
    contents.unmap(slice, 900..1000).await;
    contents.take(slice, 1).await;
    for at in (0..BLOCKS).step_by(3) {
        contents.write(slice, at, 2000 + at).await;
    }
    contents.unmap(slice, 500..700).await;
    contents.take(slice, 2).await;
    for at in (0..BLOCKS).step_by(2) {
        contents.write(slice, at, 4000 + at).await;
    }
    contents.take(slice, 3).await;
    contents.unmap(slice, 0..300).await;
    log_of(slice).inner.merge_all().await.unwrap();
    idle(slice).await;
    contents
}

/// Meanwhile hosts write, snapshots are taken and deleted, and the pool is closed once.
#[test]
fn what_only_snapshots_have_leaves_with_the_disk() {
    for seed in 0..6 {
        let world = World::new(seed);
        let node = machine(&world, 3, 20 << 20, 1);
        world.block_on(node, CORE, move || async move {
            let (pool, disks, id, slice) = filled(3).await;
            let mut contents = three(&slice).await;
            let mut rng = Rng::new(seed);
            pool.leave(&path(0)).await.unwrap();
            let mut looks = 0;
            while pool.empty_logs().await.unwrap() {
                for _ in 0..rng.below(4) {
                    let (at, number) = (rng.below(BLOCKS), 10_000 + rng.below(1 << 30));
                    contents.write(&slice, at, number).await;
                }
                match looks % 40 {
                    5 => contents.take(&slice, 100 + looks).await,
                    15 => {
                        let ids: Vec<u64> = contents.snapshots.keys().copied().collect();
                        contents.delete(&slice, ids[rng.below(ids.len() as u64) as usize]).await;
                    }
                    35 => contents.check(&slice).await,
                    _ => {}
                }
                rt::sleep(Duration::from_millis(5)).await;
                looks += 1;
                assert!(looks < 10_000, "it never leaves: {:?}", pool.leaving());
            }
            pool.remove_disk(&path(0)).await.unwrap();
            contents.check(&slice).await;
            drop((slice, disks));
            pool.logs_ended().await;
            drop(pool);
            let pool = open_without_first(3).await;
            let disks = pool.share_disks().attach();
            let slice = slices(&pool, &disks, id).remove(0);
            contents.check(&slice).await;
            let all: Vec<u64> = contents.snapshots.keys().copied().collect();
            for id in all {
                contents.delete(&slice, id).await;
            }
            contents.check(&slice).await;
        });
    }
}

/// The first leaf of a snapshot.
fn leaf_of(slice: &Slice, id: u64) -> LeafKey {
    let inner = Rc::clone(&log_of(slice).inner);
    let state = inner.state.borrow();
    let (branch, mark) = state.marks.iter().find(|(_, mark)| mark.id == id).expect("it exists");
    (Era::new(branch, mark.era), 0)
}

/// The sectors of the first disk that it fills.
fn sectors_of(slice: &Slice, id: u64) -> Range<u64> {
    let inner = Rc::clone(&log_of(slice).inner);
    let place = inner.state.borrow().leaves[&leaf_of(slice, id)];
    let (_, disk, segment) = inner.locate(Place::new(place.segment, 0)).unwrap();
    assert_eq!(disk, 0);
    let start = segment + u64::from(place.at) * LEAF_GRAIN as u64;
    let end = start + u64::from(place.len) * LEAF_GRAIN as u64;
    let sectors = start.next_multiple_of(512)..end / 512 * 512;
    assert!(!sectors.is_empty());
    sectors
}

fn unreadable(sectors: Range<u64>) -> DiskFaults {
    DiskFaults { unreadable: vec![sectors], ..DiskFaults::default() }
}

/// A pool with three snapshots, no leaf of which is in memory.
async fn opened() -> (Pool, CoreDisks, VolumeId, Rc<Slice>, Contents) {
    let (pool, disks, id, slice) = filled(1).await;
    let contents = three(&slice).await;
    pool.add_disk(disk(1), true).await.unwrap();
    forget_leaves(&slice);
    (pool, disks, id, slice, contents)
}

/// It stays, and so do the blocks that it may name, until the disk reads it again. Hosts overwrite what it
/// maps meanwhile, and the snapshot after it is deleted.
#[test]
fn a_leaf_of_a_snapshot_that_cannot_be_read_keeps_the_disk() {
    for bad in [1, 2, 3] {
        let world = World::new(bad);
        let node = machine(&world, 2, 20 << 20, 1);
        let (pool, disks, _id, slice, mut contents) = world.block_on(node, CORE, opened);
        world.set_disk_faults(node, path(0), unreadable(sectors_of(&slice, bad)));
        let (pool, disks, slice, contents) = world.block_on(node, CORE, move || async move {
            pool.leave(&path(0)).await.unwrap();
            let mut looks = 0;
            let error = loop {
                match pool.empty_logs().await {
                    Ok(left) => assert!(left && looks < 1000),
                    Err(error) => break error,
                }
                looks += 1;
                // What is overwritten goes to the third one.
                if bad < 3 {
                    contents.write(&slice, looks % 20, 20_000 + looks).await;
                }
                if looks == 3 {
                    contents.delete(&slice, 2).await;
                }
                rt::sleep(Duration::from_millis(100)).await;
            };
            assert!(matches!(error, StoreError::LogUnreadable { .. }), "{error}");
            idle(&slice).await;
            (pool, disks, slice, contents)
        });
        world.set_disk_faults(node, path(0), DiskFaults::default());
        world.block_on(node, CORE, move || async move {
            empty_again(&pool).await;
            contents.check(&slice).await;
            assert_eq!(slice.held_by_deleted_snapshots(), ByteLen(0));
            drop((pool, disks, slice));
        });
    }
}

/// Nothing else reads the map of a snapshot before somebody needs the snapshot. A leaf that is still in
/// memory is written again.
#[test]
fn a_scrub_finds_leaves_of_snapshots_that_cannot_be_read() {
    for in_memory in [false, true] {
        let world = World::new(1);
        let node = machine(&world, 2, 20 << 20, 1);
        let (pool, disks, _id, slice, contents) = world.block_on(node, CORE, opened);
        let key = leaf_of(&slice, 2);
        let slice = world.block_on(node, CORE, move || async move {
            if in_memory {
                assert!(log_of(&slice).inner.leaf(key).await.unwrap().is_some());
            }
            slice
        });
        let bad = sectors_of(&slice, 2).start;
        world.corrupt_disk(node, path(0), bad..bad + 512);
        world.block_on(node, CORE, move || async move {
            let checked = async || {
                let (mut found, mut next) = (Vec::new(), Some(PastCursor::default()));
                while let Some(from) = next {
                    let step = slice.check_snapshots(ByteOffset(0), slice.len(), from).await.unwrap();
                    assert!(step.blocks.is_empty(), "blocks are well");
                    found.extend(step.parts);
                    next = step.next;
                }
                let of = |(bad, is_mended): (BadBlock, bool)| (bad.offset.0, bad.cause, is_mended);
                found.into_iter().map(of).collect::<Vec<_>>()
            };
            assert_eq!(checked().await, [(0, ReadFailure::Map, in_memory)]);
            if in_memory {
                assert!(checked().await.is_empty());
                forget_leaves(&slice);
                contents.check(&slice).await;
            }
            drop((pool, disks));
        });
    }
}

/// The same if the log ends after some of the leaf's blocks were moved, and before a merge.
#[test]
fn a_leaf_of_a_snapshot_is_not_lost_to_replayed_moves() {
    let world = World::new(1);
    let node = machine(&world, 2, 20 << 20, 1);
    let (pool, disks, id, slice, contents) = world.block_on(node, CORE, opened);
    let key = leaf_of(&slice, 1);
    let (pool, disks, slice, named) = world.block_on(node, CORE, move || async move {
        let leaf = log_of(&slice).inner.leaf(key).await.unwrap().expect("it is in the map");
        let stored = leaf.spots().into_iter().filter_map(|spot| spot.stored());
        let named: BTreeSet<Place> = stored.map(|stored| stored.place).collect();
        forget_leaves(&slice);
        (pool, disks, slice, named)
    });
    world.set_disk_faults(node, path(0), unreadable(sectors_of(&slice, 1)));
    let (pool, disks, slice) = world.block_on(node, CORE, move || async move {
        pool.leave(&path(0)).await.unwrap();
        let is_moved = || {
            let log = log_of(&slice);
            let state = log.inner.state.borrow();
            let mut moves = state.active.moves_of((key.0.branch, key.1));
            !state.checkpointing && moves.any(|(_, _, moved)| named.contains(&moved.from))
        };
        let mut looks = 0;
        while !is_moved() {
            rt::sleep(Duration::from_micros(20)).await;
            looks += 1;
            assert!(looks < 100_000, "no block of the leaf is moved");
        }
        drop(slice);
        pool.logs_ended().await;
        let slice = slices(&pool, &disks, id).remove(0);
        slice.ready().await.unwrap();
        idle(&slice).await;
        (pool, disks, slice)
    });
    world.set_disk_faults(node, path(0), DiskFaults::default());
    world.block_on(node, CORE, move || async move {
        empty_again(&pool).await;
        contents.check(&slice).await;
        drop((pool, disks, slice));
    });
}

/// What a deleted snapshot had goes to the one before it. If either cannot be read, that waits.
#[test]
fn a_leaf_that_cannot_be_read_is_not_lost_when_a_snapshot_is_deleted() {
    for bad in [1, 2] {
        let world = World::new(bad);
        let node = machine(&world, 2, 20 << 20, 1);
        let (pool, disks, id, slice, mut contents) = world.block_on(node, CORE, opened);
        world.set_disk_faults(node, path(0), unreadable(sectors_of(&slice, bad)));
        let (pool, disks, slice, contents) = world.block_on(node, CORE, move || async move {
            contents.delete(&slice, 2).await;
            idle(&slice).await;
            assert!(slice.held_by_deleted_snapshots() > ByteLen(0), "one leaf is left");
            (pool, disks, slice, contents)
        });
        world.set_disk_faults(node, path(0), DiskFaults::default());
        world.block_on(node, CORE, move || async move {
            contents.check(&slice).await;
            drop(slice);
            pool.logs_ended().await;
            let slice = slices(&pool, &disks, id).remove(0);
            slice.ready().await.unwrap();
            idle(&slice).await;
            contents.check(&slice).await;
            assert_eq!(slice.held_by_deleted_snapshots(), ByteLen(0), "it has continued");
        });
    }
}

/// Hosts overwrite what goes into such a leaf: it is lost, for its snapshot and those before it.
#[test]
fn a_leaf_that_cannot_be_read_is_lost_when_it_changes() {
    let world = World::new(1);
    let node = machine(&world, 2, 20 << 20, 1);
    let (pool, disks, slice, mut contents) = world.block_on(node, CORE, || async {
        let (pool, disks, _id, slice, mut contents) = opened().await;
        // The volume's own leaf is written elsewhere.
        contents.write(&slice, 5, 19_000).await;
        log_of(&slice).inner.merge_all().await.unwrap();
        forget_leaves(&slice);
        (pool, disks, slice, contents)
    });
    world.set_disk_faults(node, path(0), unreadable(sectors_of(&slice, 3)));
    let (pool, disks, slice, contents) = world.block_on(node, CORE, move || async move {
        contents.write(&slice, 0, 20_000).await;
        log_of(&slice).inner.merge_all().await.unwrap();
        idle(&slice).await;
        (pool, disks, slice, contents)
    });
    world.set_disk_faults(node, path(0), DiskFaults::default());
    world.block_on(node, CORE, move || async move {
        for at in 0..BLOCKS {
            assert_eq!(read(&slice, at).await, Ok(contents.now[at as usize]), "block {at}");
            for (id, content) in &contents.snapshots {
                match read_of(&slice, *id, at).await {
                    Ok(found) => assert_eq!(found, content[at as usize], "block {at} of {id}"),
                    Err(SnapshotError::Slice(SliceError::Unreadable(_))) => {
                        assert!(at < 512 && (*id == 3 || at % 6 != 0), "block {at} of {id}");
                    }
                    Err(error) => panic!("block {at} of {id}: {error}"),
                }
            }
        }
        drop((pool, disks));
    });
}
