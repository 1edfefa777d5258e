//! Blocks that only snapshots have: scrubs find what has rotted, and it is repaired.

use std::collections::BTreeSet;

use super::snapshots::read_of;
use super::*;
use crate::error::BadBlock;
use crate::log::{BadVersion, PastCursor};

/// All of a scrub of what only snapshots have.
#[derive(Default)]
struct Scrubbed {
    read: u64,
    parts: Vec<(BadBlock, bool)>,
    blocks: Vec<BadVersion>,
}

impl Scrubbed {
    /// The number of each bad block, and of the snapshot that has it.
    fn bad(&self) -> BTreeSet<(u64, u64)> {
        named(&self.blocks)
    }
}

fn named(blocks: &[BadVersion]) -> BTreeSet<(u64, u64)> {
    blocks.iter().map(|bad| (bad.block.offset.0 / BLOCK, bad.snapshot)).collect()
}

async fn scrub(slice: &Slice) -> Scrubbed {
    let (mut all, mut from) = (Scrubbed::default(), Some(PastCursor::default()));
    while let Some(at) = from {
        let step = slice.check_snapshots(ByteOffset(0), slice.len(), at).await.unwrap();
        assert!(step.read <= 64 * BLOCK, "a step is short");
        all.read += step.read;
        all.parts.extend(step.parts);
        all.blocks.extend(step.blocks);
        from = step.next;
    }
    all
}

pub(super) fn branch_of(slice: &Slice) -> u32 {
    match &*slice.layout() {
        Layout::Log(slice) => slice.branch(),
        _ => panic!("a log slice"),
    }
}

/// Where a block lies on the first disk, now or in a snapshot.
async fn place_of(slice: &Slice, snapshot: Option<u64>, at: u64) -> (Place, u64) {
    let (inner, branch) = (Rc::clone(&log_of(slice).inner), branch_of(slice));
    let era = snapshot.map(|id| inner.state.borrow().marks.kept(branch, id).unwrap().era);
    let (spots, _pinned) = inner.resolve_in(branch, era, at..at + 1).await.unwrap();
    let place = spots[0].stored().unwrap().place;
    (place, inner.locate(place).unwrap().2)
}

/// A byte of each of these blocks, which its checksum covers.
async fn bytes_of(slice: &Slice, blocks: &[(u64, u64)]) -> Vec<u64> {
    let mut found = Vec::new();
    for (at, snapshot) in blocks {
        found.push(place_of(slice, Some(*snapshot), *at).await.1 + 8);
    }
    found
}

/// Puts back these blocks with what `number` says that they hold. Returns whether each can be read now.
async fn put_back(slice: &Slice, blocks: &[BadVersion], number: impl Fn(u64, u64) -> u64) -> Vec<bool> {
    let data = |bad: &BadVersion| {
        let bytes = block(number(bad.block.offset.0 / BLOCK, bad.snapshot));
        (*bad, Chain::copy_of(&bytes))
    };
    slice.put_back(blocks.iter().map(data).collect()).await.unwrap()
}

/// Blocks 0 to 39 are overwritten after each of two snapshots, half of them after the second one.
async fn two_snapshots(slice: &Slice) {
    for at in 0..40 {
        write(slice, at, content(at, 1), Durability::Durable).await.unwrap();
    }
    slice.take_snapshot(1, 1).await.unwrap();
    for at in 0..40 {
        write(slice, at, content(at, 2), Durability::Durable).await.unwrap();
    }
    slice.take_snapshot(2, 2).await.unwrap();
    for at in 0..20 {
        write(slice, at, content(at, 3), Durability::Durable).await.unwrap();
    }
}

/// What a block holds in a snapshot; after 2: now.
fn content(at: u64, snapshot: u64) -> u64 {
    let since = if at < 20 { snapshot } else { snapshot.min(2) };
    100 * since + at
}

async fn assert_all(slice: &Slice) {
    for at in 0..40 {
        assert_eq!(read(slice, at).await, Ok(content(at, 3)), "block {at}");
        for id in [1, 2] {
            assert_eq!(read_of(slice, id, at).await, Ok(content(at, id)), "block {at} of snapshot {id}");
        }
    }
}

/// Before, a scrub read of snapshots only the map.
#[test]
fn a_scrub_finds_rot_in_what_only_snapshots_have_and_it_is_repaired() {
    for compression in [Compression::Off, Compression::Lz4] {
        for merges in [false, true] {
            let world = World::new(1);
            let node = machine(&world, 1, 16 << 20, 1);
            let bad = [(3, 1), (5, 2), (30, 1)];
            let (pool, disks, id, slice, bytes) = world.block_on(node, CORE, move || async move {
                let spec = VolumeSpec { compression, ..spec("v", 4 << 20, 1) };
                let (pool, disks, id, slice) = one_slice_of(spec).await;
                two_snapshots(&slice).await;
                if merges {
                    log_of(&slice).inner.merge_all().await.unwrap();
                }
                let nothing = scrub(&slice).await;
                assert!(nothing.parts.is_empty() && nothing.blocks.is_empty());
                assert_eq!(nothing.read, 60 * BLOCK, "each block is read once");
                let bytes = bytes_of(&slice, &bad).await;
                (pool, disks, id, slice, bytes)
            });
            bytes.into_iter().for_each(|at| world.flip_bit(node, path(0), at));
            world.block_on(node, CORE, move || async move {
                let found = scrub(&slice).await;
                assert_eq!(found.bad(), BTreeSet::from(bad));
                assert!(found.parts.is_empty());
                for (at, snapshot) in bad {
                    assert!(read_of(&slice, snapshot, at).await.is_err());
                }
                let older = put_back(&slice, &found.blocks, |at, _| at + 1).await;
                assert_eq!(older, [false; 3], "the checksum says that these are not its bytes");
                assert_eq!(put_back(&slice, &found.blocks, content).await, [true; 3]);
                assert_all(&slice).await;
                assert!(scrub(&slice).await.blocks.is_empty());
                idle(&slice).await;
                check(&slice).await;
                // Once is enough.
                assert_eq!(put_back(&slice, &found.blocks, content).await, [false; 3]);
                drop(slice);
                pool.logs_ended().await;
                let slice = slices(&pool, &disks, id).remove(0);
                assert_all(&slice).await;
                idle(&slice).await;
                check(&slice).await;
            });
        }
    }
}

/// What nobody needs is not reported, and what was deleted meanwhile is not stored again.
#[test]
fn rot_in_what_only_deleted_snapshots_have_is_no_news() {
    let world = World::new(1);
    let node = machine(&world, 1, 16 << 20, 1);
    let bad = [(3, 1), (5, 2)];
    let (pool, disks, slice, bytes) = world.block_on(node, CORE, move || async move {
        let (pool, disks, _id, slice) = one_slice(4 << 20).await;
        two_snapshots(&slice).await;
        slice.pause_freeing(true);
        let bytes = bytes_of(&slice, &bad).await;
        (pool, disks, slice, bytes)
    });
    bytes.into_iter().for_each(|at| world.flip_bit(node, path(0), at));
    world.block_on(node, CORE, move || async move {
        let found = scrub(&slice).await;
        assert_eq!(found.bad(), BTreeSet::from(bad));
        slice.delete_snapshots(&[1]).await.unwrap();
        assert_eq!(scrub(&slice).await.bad(), BTreeSet::from([(5, 2)]));
        slice.pause_freeing(false);
        super::snapshots::wait_until_freed(&slice).await;
        let repaired = put_back(&slice, &found.blocks, content).await;
        let of = |snapshot| found.blocks.iter().position(|bad| bad.snapshot == snapshot).unwrap();
        assert_eq!((repaired[of(1)], repaired[of(2)]), (false, true));
        idle(&slice).await;
        check(&slice).await;
        drop((pool, disks));
    });
}

/// The slice reads it through the snapshot that it went back to, so the scrub of the slice has read it. After
/// it was repaired there, only the snapshot has what has rotted.
#[test]
fn what_a_restored_slice_reads_is_not_read_twice() {
    let world = World::new(1);
    let node = machine(&world, 1, 16 << 20, 1);
    let (pool, disks, slice, bytes) = world.block_on(node, CORE, || async {
        let (pool, disks, _id, slice) = one_slice(4 << 20).await;
        two_snapshots(&slice).await;
        slice.restore_snapshot(1, 9).await.unwrap();
        assert_eq!(read(&slice, 3).await, Ok(content(3, 1)));
        let bytes = bytes_of(&slice, &[(3, 1)]).await;
        (pool, disks, slice, bytes)
    });
    bytes.into_iter().for_each(|at| world.flip_bit(node, path(0), at));
    world.block_on(node, CORE, move || async move {
        assert!(scrub(&slice).await.blocks.is_empty());
        assert!(read(&slice, 3).await.is_err());
        slice.rewrite(ByteOffset(3 * BLOCK), Chain::copy_of(&block(content(3, 1)))).await.unwrap();
        assert_eq!(read(&slice, 3).await, Ok(content(3, 1)));
        let found = scrub(&slice).await;
        assert_eq!(found.bad(), BTreeSet::from([(3, 1)]));
        assert_eq!(put_back(&slice, &found.blocks, content).await, [true]);
        assert_eq!(read_of(&slice, 1, 3).await, Ok(content(3, 1)));
        idle(&slice).await;
        check(&slice).await;
        drop((pool, disks));
    });
}

/// A snapshot keeps what a repair replaces.
#[test]
fn a_repair_of_what_a_snapshot_has_too_is_noted_for_the_snapshot() {
    let world = World::new(1);
    let node = machine(&world, 1, 16 << 20, 1);
    let (pool, disks, id, slice, bytes) = world.block_on(node, CORE, || async {
        let (pool, disks, id, slice) = one_slice(4 << 20).await;
        two_snapshots(&slice).await;
        let bytes = bytes_of(&slice, &[(30, 2)]).await;
        (pool, disks, id, slice, bytes)
    });
    bytes.into_iter().for_each(|at| world.flip_bit(node, path(0), at));
    world.block_on(node, CORE, move || async move {
        assert!(read(&slice, 30).await.is_err());
        slice.rewrite(ByteOffset(30 * BLOCK), Chain::copy_of(&block(content(30, 3)))).await.unwrap();
        assert_eq!(read(&slice, 30).await, Ok(content(30, 3)));
        assert!(read_of(&slice, 2, 30).await.is_err());
        assert_eq!(pool.volumes_with_bad_blocks(), [id]);
        let found = slice.take_noted().await.unwrap();
        assert!(found.now.is_empty());
        assert_eq!(named(&found.past), BTreeSet::from([(30, 2)]));
        assert_eq!(put_back(&slice, &found.past, content).await, [true]);
        assert_all(&slice).await;
        idle(&slice).await;
        check(&slice).await;
        drop(disks);
    });
}

/// Before, only the next read of a block by a host or a scrub noticed what the cleaner had found.
#[test]
fn bad_blocks_that_the_cleaner_finds_are_noted() {
    let world = World::new(1);
    let node = machine(&world, 1, 16 << 20, 1);
    let (pool, disks, id, slice, places) = world.block_on(node, CORE, || async {
        let (pool, disks, id, slice) = one_slice(4 << 20).await;
        two_snapshots(&slice).await;
        let log = log_of(&slice);
        log.inner.merge_all().await.unwrap();
        idle(&slice).await;
        log.inner.state.borrow_mut().segments.seal_hosts();
        let places = [place_of(&slice, Some(1), 3).await, place_of(&slice, None, 4).await];
        drop(log);
        (pool, disks, id, slice, places)
    });
    places.into_iter().for_each(|(_, at)| world.flip_bit(node, path(0), at + 8));
    world.block_on(node, CORE, move || async move {
        let inner = Rc::clone(&log_of(&slice).inner);
        assert!(pool.volumes_with_bad_blocks().is_empty());
        let victims: BTreeSet<u32> = places.into_iter().map(|(place, _)| place.segment).collect();
        for victim in &victims {
            inner.clean(*victim, &mut Vec::new()).await.unwrap();
        }
        assert_eq!(inner.state.borrow().segments.stuck, victims.len() as u64);
        assert_eq!(pool.volumes_with_bad_blocks(), [id]);
        let found = slice.take_noted().await.unwrap();
        assert_eq!(found.now.iter().map(|bad| bad.offset.0).collect::<Vec<_>>(), [4 * BLOCK]);
        assert_eq!(named(&found.past), BTreeSet::from([(3, 1)]));
        assert!(pool.volumes_with_bad_blocks().is_empty(), "it is told once");
        assert_eq!(put_back(&slice, &found.past, content).await, [true]);
        slice.rewrite(ByteOffset(4 * BLOCK), Chain::copy_of(&block(content(4, 3)))).await.unwrap();
        log_of(&slice).inner.merge_all().await.unwrap();
        assert_eq!(inner.state.borrow().segments.stuck, 0, "its segments can be cleaned now");
        assert_all(&slice).await;
        idle(&slice).await;
        check(&slice).await;
        drop((disks, inner));
    });
}
