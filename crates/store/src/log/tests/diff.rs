//! What differs between two snapshots: only that, and whether it reads as zeros.

use base::Instant;

use super::clones::clone_one;
use super::snapshots::wait_until_freed;
use super::*;
use crate::log::{ChangedRange, DiffLimits, SnapshotError};

/// Blocks of the volume, in two leaves and a part of a third one.
const BLOCKS: u64 = 1200;

const ALL: DiffLimits = DiffLimits { ranges: 100, time: Instant(u64::MAX) };

fn range(start: u64, end: u64, is_zeroed: bool) -> ChangedRange {
    ChangedRange { offset: ByteOffset(start * BLOCK), len: ByteLen((end - start) * BLOCK), is_zeroed }
}

fn written(start: u64, end: u64) -> ChangedRange {
    range(start, end, false)
}

fn zeroed(start: u64, end: u64) -> ChangedRange {
    range(start, end, true)
}

/// Everything that differs, whatever the limits.
async fn diff(slice: &Slice, one: u64, other: u64, limits: DiffLimits) -> Vec<ChangedRange> {
    pages(slice, (Some(one), other), limits).await
}

/// The same; without a first snapshot: all that the second one has.
async fn pages(slice: &Slice, ids: (Option<u64>, u64), limits: DiffLimits) -> Vec<ChangedRange> {
    let (mut from, end, mut all) = (0, BLOCKS * BLOCK, Vec::new());
    while from < end {
        let (offset, len) = (ByteOffset(from), ByteLen(end - from));
        let page = slice.differences(ids, offset, len, limits).await.unwrap();
        assert!(page.until.0 > from && page.until.0 <= end);
        page.ranges.into_iter().for_each(|range| ChangedRange::add(&mut all, range));
        from = page.until.0;
    }
    all
}

async fn write_all(slice: &Slice, blocks: std::ops::Range<u64>, number: u64) {
    for at in blocks {
        write(slice, at, number + at, Durability::Cached).await.unwrap();
    }
}

/// Blocks 0 to 19 and 1000 to 1009 are written, then snapshot 1 is taken. Before snapshot 2, some of them get
/// what they have already, others something else, or zeros; and some are unmapped that read as zeros.
async fn two_snapshots(slice: &Slice) {
    write_all(slice, 0..20, 100).await;
    write_all(slice, 1000..1010, 100).await;
    slice.take_snapshot(1, 0).await.unwrap();
    write_all(slice, 0..5, 100).await;
    write_all(slice, 5..8, 200).await;
    slice.zero(ByteOffset(8 * BLOCK), ByteLen(2 * BLOCK)).await.unwrap();
    slice.zero(ByteOffset(30 * BLOCK), ByteLen(500 * BLOCK)).await.unwrap();
    write_all(slice, 600..602, 200).await;
    write_all(slice, 1005..1007, 200).await;
    slice.take_snapshot(2, 0).await.unwrap();
}

fn differences() -> Vec<ChangedRange> {
    vec![written(5, 8), zeroed(8, 10), written(600, 602), written(1005, 1007)]
}

#[test]
fn only_what_reads_differently_is_named() {
    for compression in [Compression::Off, Compression::Lz4] {
        let world = World::new(1);
        let node = machine(&world, 1, 16 << 20, 1);
        world.block_on(node, CORE, move || async move {
            let spec = VolumeSpec { compression, ..spec("v", BLOCKS * BLOCK, 1) };
            let (_pool, _disks, _id, slice) = one_slice_of(spec).await;
            two_snapshots(&slice).await;
            // The volume itself has changed since.
            slice.zero(ByteOffset(0), ByteLen(BLOCKS * BLOCK)).await.unwrap();
            for _ in 0..2 {
                assert_eq!(diff(&slice, 1, 2, ALL).await, differences());
                let back = vec![written(5, 10), zeroed(600, 602), written(1005, 1007)];
                assert_eq!(diff(&slice, 2, 1, ALL).await, back);
                assert!(diff(&slice, 1, 1, ALL).await.is_empty());
                log_of(&slice).inner.merge_all().await.unwrap();
            }
        });
    }
}

#[test]
fn a_comparison_ends_at_its_limits_and_is_continued() {
    let world = World::new(1);
    let node = machine(&world, 1, 16 << 20, 1);
    world.block_on(node, CORE, || async {
        let (_pool, _disks, _id, slice) = one_slice(BLOCKS * BLOCK).await;
        two_snapshots(&slice).await;
        let (start, len) = (ByteOffset(0), ByteLen(BLOCKS * BLOCK));
        // The ranges of a leaf come together.
        let few = DiffLimits { ranges: 1, ..ALL };
        let page = slice.differences((Some(1), 2), start, len, few).await.unwrap();
        assert_eq!((page.ranges, page.until), (differences()[..2].to_vec(), ByteOffset(512 * BLOCK)));
        let late = DiffLimits { time: Instant(0), ..ALL };
        let page = slice.differences((Some(1), 2), start, len, late).await.unwrap();
        assert_eq!((page.ranges.len(), page.until), (2, ByteOffset(512 * BLOCK)));
        for limits in [few, late] {
            assert_eq!(diff(&slice, 1, 2, limits).await, differences());
        }
        // In the middle of blocks.
        let (start, len) = (ByteOffset(6 * BLOCK + 512), ByteLen(2 * BLOCK));
        let page = slice.differences((Some(1), 2), start, len, ALL).await.unwrap();
        let [first, second] = page.ranges[..] else { panic!("{:?}", page.ranges) };
        assert_eq!((first.offset, first.len, first.is_zeroed), (start, ByteLen(2 * BLOCK - 512), false));
        assert_eq!(
            (second.offset, second.len, second.is_zeroed),
            (ByteOffset(8 * BLOCK), ByteLen(512), true)
        );
        assert_eq!(page.until, start + len);
    });
}

/// What is not zeros, whatever was written before or after, and wherever it lies since.
#[test]
fn what_a_snapshot_has_is_what_differs_from_zeros() {
    let world = World::new(1);
    let node = machine(&world, 1, 16 << 20, 1);
    world.block_on(node, CORE, || async {
        let (_pool, _disks, _id, slice) = one_slice(BLOCKS * BLOCK).await;
        slice.take_snapshot(9, 0).await.unwrap();
        two_snapshots(&slice).await;
        write_all(&slice, 700..710, 300).await;
        slice.zero(ByteOffset(0), ByteLen(7 * BLOCK)).await.unwrap();
        let few = DiffLimits { ranges: 1, time: Instant(0) };
        for _ in 0..2 {
            for limits in [ALL, few] {
                assert!(pages(&slice, (None, 9), limits).await.is_empty());
                let first = vec![written(0, 20), written(1000, 1010)];
                assert_eq!(pages(&slice, (None, 1), limits).await, first);
                let second = vec![written(0, 8), written(10, 20), written(600, 602), written(1000, 1010)];
                assert_eq!(pages(&slice, (None, 2), limits).await, second);
            }
            log_of(&slice).inner.merge_all().await.unwrap();
        }
        slice.restore_snapshot(1, 1).await.unwrap();
        write_all(&slice, 30..31, 300).await;
        slice.take_snapshot(3, 0).await.unwrap();
        for _ in 0..2 {
            let third = vec![written(0, 20), written(30, 31), written(1000, 1010)];
            assert_eq!(pages(&slice, (None, 3), ALL).await, third);
            log_of(&slice).inner.merge_all().await.unwrap();
        }
    });
}

/// Before, what a clone shares with the volume that it was made of was not named: an export of its snapshot
/// lacked it.
#[test]
fn what_a_snapshot_of_a_clone_has_is_also_what_it_shares() {
    let world = World::new(1);
    let node = machine(&world, 1, 16 << 20, 1);
    world.block_on(node, CORE, || async {
        let (pool, disks, id, slice) = one_slice(BLOCKS * BLOCK).await;
        two_snapshots(&slice).await;
        let (_, clone) = clone_one(&pool, &disks, id, &slice, 1, "c").await;
        write_all(&clone, 600..601, 300).await;
        clone.zero(ByteOffset(0), ByteLen(2 * BLOCK)).await.unwrap();
        clone.take_snapshot(7, 0).await.unwrap();
        clone.zero(ByteOffset(0), clone.len()).await.unwrap();
        for _ in 0..2 {
            let expected = vec![written(2, 20), written(600, 601), written(1000, 1010)];
            assert_eq!(pages(&clone, (None, 7), ALL).await, expected);
            assert_eq!(pages(&slice, (None, 1), ALL).await, [written(0, 20), written(1000, 1010)]);
            log_of(&slice).inner.merge_all().await.unwrap();
        }
    });
}

/// What has been written since a restore may be the same as in the snapshot that it did not go back to.
#[test]
fn restores_in_between_add_nothing() {
    let world = World::new(1);
    let node = machine(&world, 1, 16 << 20, 1);
    world.block_on(node, CORE, || async {
        let (_pool, _disks, _id, slice) = one_slice(BLOCKS * BLOCK).await;
        two_snapshots(&slice).await;
        slice.restore_snapshot(1, 1).await.unwrap();
        slice.take_snapshot(3, 0).await.unwrap();
        write_all(&slice, 5..7, 200).await;
        slice.take_snapshot(4, 0).await.unwrap();
        for _ in 0..2 {
            assert!(diff(&slice, 1, 3, ALL).await.is_empty());
            assert_eq!(diff(&slice, 3, 2, ALL).await, differences());
            let rest = vec![written(7, 8), zeroed(8, 10), written(600, 602), written(1005, 1007)];
            assert_eq!(diff(&slice, 4, 2, ALL).await, rest);
            log_of(&slice).inner.merge_all().await.unwrap();
        }
    });
}

#[test]
fn a_snapshot_that_is_not_there_is_compared_with_none() {
    let world = World::new(1);
    let node = machine(&world, 1, 16 << 20, 1);
    world.block_on(node, CORE, || async {
        let (_pool, _disks, _id, slice) = one_slice(BLOCKS * BLOCK).await;
        two_snapshots(&slice).await;
        slice.take_snapshot(3, 0).await.unwrap();
        slice.delete_snapshots(&[2]).await.unwrap();
        wait_until_freed(&slice).await;
        // What it had is with the one before.
        assert_eq!(diff(&slice, 1, 3, ALL).await, differences());
        for ids in [(Some(1), 2), (Some(2), 3), (Some(3), 9), (None, 2), (None, 9)] {
            let found = slice.differences(ids, ByteOffset(0), ByteLen(BLOCK), ALL).await;
            assert_eq!(found, Err(SnapshotError::Unknown));
        }
    });
}

/// Nobody knows what the block was. Whoever reads it because it is named learns that it cannot be read.
#[test]
fn a_block_that_cannot_be_read_counts_as_changed() {
    let world = World::new(1);
    let node = machine(&world, 1, 16 << 20, 1);
    let (slice, at, kept) = world.block_on(node, CORE, || async {
        let (pool, disks, _id, slice) = one_slice(BLOCKS * BLOCK).await;
        two_snapshots(&slice).await;
        log_of(&slice).inner.merge_all().await.unwrap();
        idle(&slice).await;
        let inner = Rc::clone(&log_of(&slice).inner);
        let spots = inner.spots(slice_branch(&slice), 2..3).await.unwrap();
        let (_, _, at) = inner.locate(spots[0].stored().unwrap().place).unwrap();
        (slice, at, (pool, disks))
    });
    world.corrupt_disk(node, path(0), at..at + 512);
    world.block_on(node, CORE, move || async move {
        let found = diff(&slice, 1, 2, ALL).await;
        // Blocks that are read together count together.
        assert_eq!(found, [vec![written(0, 8)], differences()[1..].to_vec()].concat());
        drop((slice, kept));
    });
}

fn slice_branch(slice: &Slice) -> u32 {
    match &*slice.layout() {
        Layout::Log(slice) => slice.branch(),
        _ => panic!("a log slice"),
    }
}
