//! Leaves that the disk cannot read.

use std::ops::Range;
use std::time::Duration;

use base::Rng;
use rt::sim::DiskFaults;

use super::super::leaf::{LEAF_GRAIN, encode};
use super::super::place::Place;
use super::*;
use crate::canary::{Canary, make};
use crate::error::{BadBlock, ReadFailure};

/// Blocks of the first leaf, which becomes unreadable.
const FIRST: u64 = 200;

/// Blocks of other leaves.
const OTHERS: Range<u64> = 512..1012;

/// A pool with a slice, all of which is in the map. No leaf is in memory.
async fn merged() -> (Pool, CoreDisks, VolumeId, Rc<Slice>) {
    merged_with(ByteLen(1)).await
}

/// The same with this memory.
async fn merged_with(memory: ByteLen) -> (Pool, CoreDisks, VolumeId, Rc<Slice>) {
    let pool = create(1).await;
    pool.set_log_memory(LogMemory::new(memory));
    let id = pool.create_volume(spec("v", 4 << 20, 1)).await.unwrap().id;
    let disks = pool.share_disks().attach();
    let slice = slices(&pool, &disks, id).remove(0);
    // Blocks of both share segments: those of the others die, and the cleaner comes for the rest.
    let pairs = (0..FIRST).zip(OTHERS).flat_map(|(first, other)| [first, other]);
    for at in pairs.chain(OTHERS.skip(FIRST as usize)) {
        write(&slice, at, at + 1, Durability::Durable).await.unwrap();
    }
    log_of(&slice).inner.merge_all().await.unwrap();
    check(&slice).await;
    (pool, disks, id, slice)
}

/// Where the first leaf lies on the disk.
pub(super) fn first_leaf(slice: &Slice) -> Range<u64> {
    let inner = Rc::clone(&log_of(slice).inner);
    let first = inner.state.borrow().leaves.first_key_value().map(|(key, place)| (*key, *place));
    let ((_, number), place) = first.expect("it is in the map");
    assert_eq!(number, 0);
    let (_, _, segment) = inner.locate(Place::new(place.segment, 0)).unwrap();
    let start = segment + u64::from(place.at) * LEAF_GRAIN as u64;
    start..start + u64::from(place.len) * LEAF_GRAIN as u64
}

fn is_unreadable(read: Result<u64, SliceError>) -> bool {
    matches!(read, Err(SliceError::Unreadable(_)))
}

/// Nothing says where the blocks of a lost leaf were. The cleaner comes across them, and the merge of its
/// moves finds that nothing points there.
///
/// Before, these slots stayed live for good. The cleaner moved them again and again, and gained nothing.
#[test]
fn the_space_of_blocks_whose_leaf_was_lost_is_freed() {
    for writes_again in [true, false] {
        let world = World::new(1);
        let node = machine(&world, 1, 8 << 20, 1);
        let (pool, disks, id, slice) = world.block_on(node, CORE, merged);
        let leaf = first_leaf(&slice);
        world.corrupt_disk(node, path(0), leaf.start..leaf.start + 512);
        world.block_on(node, CORE, move || async move {
            // The error says where the map lies.
            let offset = ByteOffset(BLOCK);
            let bad = BadBlock { offset, disk: 0, disk_offset: leaf.start, cause: ReadFailure::Map };
            assert_eq!(read(&slice, 1).await, Err(SliceError::Unreadable(bad)));
            write(&slice, 0, 1000, Durability::Durable).await.unwrap();
            log_of(&slice).inner.merge_all().await.unwrap();
            assert_eq!(read(&slice, 0).await, Ok(1000));
            assert!(is_unreadable(read(&slice, 1).await));
            assert_eq!(read(&slice, OTHERS.start).await, Ok(OTHERS.start + 1));
            if writes_again {
                for at in 0..FIRST {
                    write(&slice, at, at + 1, Durability::Durable).await.unwrap();
                }
                slice.zero(ByteOffset(FIRST * BLOCK), ByteLen((512 - FIRST) * BLOCK)).await.unwrap();
            }
            drop(slice);
            pool.logs_ended().await;
            let slice = slices(&pool, &disks, id).remove(0);
            slice.ready().await.unwrap();
            // The cleaner comes to all segments.
            let mut rng = Rng::new(1);
            let mut expected: Vec<u64> = OTHERS.map(|at| at + 1).collect();
            for number in 0..8000 {
                let at = rng.below(expected.len() as u64);
                let written = write(&slice, OTHERS.start + at, 5000 + number, Durability::Cached);
                let written = rt::timeout(Duration::from_secs(60), written).await;
                written.expect("it is not stuck").unwrap();
                expected[at as usize] = 5000 + number;
            }
            if !writes_again {
                assert!(is_unreadable(read(&slice, 1).await), "it is lost until it is written");
                slice.zero(ByteOffset(0), ByteLen(512 * BLOCK)).await.unwrap();
            }
            log_of(&slice).inner.merge_all().await.unwrap();
            // No slot is live that nothing points at.
            check(&slice).await;
            for at in 0..FIRST {
                assert_eq!(read(&slice, at).await, Ok(if writes_again { at + 1 } else { 0 }));
            }
            for (at, number) in OTHERS.zip(expected) {
                assert_eq!(read(&slice, at).await, Ok(number));
            }
        });
    }
}

/// A checkpoint notes that the blocks of a leaf are lost. Their errors still name the disk of the leaf, also
/// after a restart.
#[test]
fn the_blocks_of_a_lost_leaf_name_its_disk() {
    let world = World::new(1);
    let node = machine(&world, 1, 5 << 20, 1);
    // The log's zones are on the disk with more room.
    world.put_disk(node, path(1), DiskImage::new(16 << 20, 512));
    let (pool, disks, id, slice) = world.block_on(node, CORE, || async {
        let pool = create(2).await;
        pool.set_log_memory(LogMemory::new(ByteLen(1)));
        let id = pool.create_volume(spec("v", 4 << 20, 1)).await.unwrap().id;
        let disks = pool.share_disks().attach();
        let slice = slices(&pool, &disks, id).remove(0);
        // What was merged last stays in memory, so there are leaves besides.
        for at in (0..FIRST).chain(OTHERS) {
            write(&slice, at, at + 1, Durability::Durable).await.unwrap();
        }
        log_of(&slice).inner.merge_all().await.unwrap();
        check(&slice).await;
        (pool, disks, id, slice)
    });
    let leaf = first_leaf(&slice);
    world.corrupt_disk(node, path(1), leaf.start..leaf.start + 512);
    world.block_on(node, CORE, move || async move {
        let bad = |disk_offset| -> Result<u64, SliceError> {
            let offset = ByteOffset(BLOCK);
            Err(SliceError::Unreadable(BadBlock { offset, disk: 1, disk_offset, cause: ReadFailure::Map }))
        };
        assert_eq!(read(&slice, 1).await, bad(leaf.start));
        write(&slice, 0, 1000, Durability::Durable).await.unwrap();
        log_of(&slice).inner.merge_all().await.unwrap();
        assert_eq!(read(&slice, 1).await, bad(0));
        drop(slice);
        pool.logs_ended().await;
        let slice = slices(&pool, &disks, id).remove(0);
        assert_eq!(read(&slice, 0).await, Ok(1000));
        assert_eq!(read(&slice, 1).await, bad(0));
    });
}

/// A leaf maps 512 blocks, and the slice ends before.
///
/// Once, all of them were lost with it: when the slice had grown, hosts got errors for blocks that nobody had
/// ever written.
#[test]
fn blocks_by_which_a_slice_grows_are_not_lost() {
    const BLOCKS: u64 = 100;
    let world = World::new(1);
    let node = machine(&world, 1, 8 << 20, 1);
    let (pool, disks, id, slice) = world.block_on(node, CORE, || async {
        let (pool, disks, id, slice) = one_slice(BLOCKS * BLOCK).await;
        for at in 0..50 {
            write(&slice, at, at + 1, Durability::Durable).await.unwrap();
        }
        log_of(&slice).inner.merge_all().await.unwrap();
        idle(&slice).await;
        super::leaving::forget_leaves(&slice);
        (pool, disks, id, slice)
    });
    let leaf = first_leaf(&slice);
    world.corrupt_disk(node, path(0), leaf.start..leaf.start + 512);
    world.block_on(node, CORE, move || async move {
        write(&slice, 0, 1000, Durability::Durable).await.unwrap();
        log_of(&slice).inner.merge_all().await.unwrap();
        pool.grow_volume(id, ByteLen(2 * BLOCKS * BLOCK)).await.unwrap();
        slice.grow(pool.volume_slices(id, CORE, 1).unwrap().remove(0), &disks);
        let mut slice = slice;
        for is_opened_again in [false, true] {
            if is_opened_again {
                drop(slice);
                pool.logs_ended().await;
                slice = slices(&pool, &disks, id).remove(0);
            }
            assert_eq!(read(&slice, 0).await, Ok(1000));
            assert!(is_unreadable(read(&slice, 1).await) && is_unreadable(read(&slice, BLOCKS - 1).await));
            for at in [BLOCKS, 2 * BLOCKS - 1] {
                assert_eq!(read(&slice, at).await, Ok(0), "block {at}");
            }
        }
    });
}

/// A write of a leaf that never reached the disk leaves there what an earlier use of the segment has written:
/// perhaps the same leaf, intact, as it was then.
#[test]
fn a_leaf_that_an_earlier_use_of_its_segment_has_left_does_not_count() {
    const OLD: u64 = 2;
    const NEW: u64 = 5;
    let world = World::new(1);
    let node = machine(&world, 1, 8 << 20, 1);
    let (id, at, left) = world.block_on(node, CORE, || async {
        let (pool, disks, id, slice) = one_slice(4 << 20).await;
        let log = log_of(&slice);
        write(&slice, 1, OLD, Durability::Durable).await.unwrap();
        log.inner.merge_all().await.unwrap();
        let key = *log.inner.state.borrow().leaves.first_key_value().unwrap().0;
        let old = log.inner.leaf(key).await.unwrap().unwrap().spots();
        write(&slice, 1, NEW, Durability::Durable).await.unwrap();
        log.inner.merge_all().await.unwrap();
        idle(&slice).await;
        let segment = log.inner.state.borrow().leaves[&key].segment;
        let generation = log.inner.state.borrow().segments.used[&segment].generation;
        let left = encode(key, !generation, &old).unwrap();
        let at = first_leaf(&slice).start;
        drop((log, slice, disks));
        pool.logs_ended().await;
        (id, at, left)
    });
    let mut image = world.disk_image(node, path(0));
    image.write(at, &left);
    for counts in [false, true] {
        make(counts.then_some(Canary::LeafOfEarlierUse));
        let found = first_block_of(image.clone(), id);
        make(None);
        assert_eq!(found.ok(), counts.then_some(OLD));
    }
}

/// What block 1 reads as when the log on this disk is opened.
pub(super) fn first_block_of(image: DiskImage, id: VolumeId) -> Result<u64, SliceError> {
    let world = World::new(1);
    let node = world.add_node("node", 1, |_| std::future::pending());
    world.put_disk(node, path(0), image);
    world.block_on(node, CORE, move || async move {
        let pool = open(1).await;
        let disks = pool.share_disks().attach();
        let slice = slices(&pool, &disks, id).remove(0);
        slice.ready().await.unwrap();
        read(&slice, 1).await
    })
}

/// A merge would lose what the leaf says for good, so it reads the leaf again first.
#[test]
fn a_leaf_that_cannot_be_read_for_a_moment_is_not_lost() {
    let world = World::new(1);
    let node = machine(&world, 1, 8 << 20, 1);
    let (pool, disks, _id, slice) = world.block_on(node, CORE, merged);
    let faults = DiskFaults::default().with_unreadable(first_leaf(&slice));
    world.set_disk_faults(node, path(0), faults);
    let merging = world.spawn_on(node, CORE, move || async move {
        write(&slice, 0, 1000, Durability::Durable).await.unwrap();
        log_of(&slice).inner.merge_all().await.unwrap();
        slice
    });
    world.run_for(Duration::from_millis(400));
    world.set_disk_faults(node, path(0), DiskFaults::default());
    let slice = world.wait_for(merging).unwrap();
    world.block_on(node, CORE, move || async move {
        for at in 1..FIRST {
            assert_eq!(read(&slice, at).await, Ok(at + 1));
        }
        check(&slice).await;
        drop((pool, disks));
    });
}

/// Reads take what is in memory, so that only the next start would notice that the disk has lost it.
#[test]
fn a_leaf_in_memory_that_has_rotted_on_the_disk_is_written_again() {
    let world = World::new(1);
    let node = machine(&world, 1, 8 << 20, 1);
    let (pool, disks, id, slice) = world.block_on(node, CORE, || merged_with(ByteLen(1 << 20)));
    let leaf = first_leaf(&slice);
    world.corrupt_disk(node, path(0), leaf.start..leaf.start + 512);
    world.block_on(node, CORE, move || async move {
        assert_eq!(read(&slice, 1).await, Ok(2), "it is in memory");
        let offset = ByteOffset(BLOCK);
        let bad = BadBlock { offset, disk: 0, disk_offset: leaf.start, cause: ReadFailure::Map };
        assert_eq!(slice.check_map(offset).await, Ok(Some((bad, true))));
        assert_eq!(slice.check_map(offset).await, Ok(None));
        assert_ne!(first_leaf(&slice), leaf);
        check(&slice).await;
        drop(slice);
        pool.logs_ended().await;
        let slice = slices(&pool, &disks, id).remove(0);
        for at in 0..FIRST {
            assert_eq!(read(&slice, at).await, Ok(at + 1));
        }
        check(&slice).await;
    });
}
