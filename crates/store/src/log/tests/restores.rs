//! Restores: what a slice reads as afterwards, what they cost, and what becomes of the state before.

use std::time::Duration;

use super::snapshots::{ids, live, read_of, wait_until_freed};
use super::*;
use crate::log::SnapshotError;

/// Overwrites blocks 10 to 19, unmaps 20 and 21, and writes 30 to 34 for the first time.
async fn change(slice: &Slice, base: u64) {
    for at in (10..20).chain(30..35) {
        write(slice, at, base + at, Durability::Cached).await.unwrap();
    }
    slice.zero(ByteOffset(20 * BLOCK), ByteLen(2 * BLOCK)).await.unwrap();
}

fn changed(at: u64, base: u64) -> u64 {
    match at {
        20 | 21 => 0,
        10..20 | 30..35 => base + at,
        _ => first(at),
    }
}

fn first(at: u64) -> u64 {
    if at < 30 { 100 + at } else { 0 }
}

/// A slice with snapshot 1 of its first 30 blocks, which were then changed. Snapshot 2 has that.
async fn two_snapshots(slice: &Slice, merges: bool) {
    for at in 0..30 {
        write(slice, at, first(at), Durability::Cached).await.unwrap();
    }
    slice.take_snapshot(1, 1000).await.unwrap();
    change(slice, 200).await;
    slice.take_snapshot(2, 2000).await.unwrap();
    if merges {
        log_of(slice).inner.merge_all().await.unwrap();
    }
}

async fn assert_now(slice: &Slice, expected: impl Fn(u64) -> u64) {
    for at in 0..40 {
        assert_eq!(read(slice, at).await, Ok(expected(at)), "block {at}");
    }
}

async fn assert_past(slice: &Slice, id: u64, expected: impl Fn(u64) -> u64) {
    for at in 0..40 {
        assert_eq!(read_of(slice, id, at).await, Ok(expected(at)), "block {at} of snapshot {id}");
    }
}

/// Merges as often as it takes to remove the last of what is deleted.
async fn settle(slice: &Slice) {
    wait_until_freed(slice).await;
    for _ in 0..6 {
        log_of(slice).inner.merge_all().await.unwrap();
        idle(slice).await;
    }
    check(slice).await;
}

#[test]
fn a_restored_slice_reads_as_its_snapshot_and_goes_on() {
    for merges in [false, true] {
        let world = World::new(1);
        let node = machine(&world, 1, 16 << 20, 1);
        world.block_on(node, CORE, move || async move {
            let (pool, disks, id, slice) = one_slice(4 << 20).await;
            two_snapshots(&slice, merges).await;
            slice.restore_snapshot(1, 7).await.unwrap();
            assert_now(&slice, first).await;
            // As it goes on, snapshots that are taken now have what it was restored to, and its own.
            slice.take_snapshot(3, 3000).await.unwrap();
            change(&slice, 300).await;
            slice.zero(ByteOffset(0), ByteLen(BLOCK)).await.unwrap();
            let third = |at: u64| if at == 0 { 0 } else { changed(at, 300) };
            for _ in 0..3 {
                assert_now(&slice, third).await;
                assert_past(&slice, 1, first).await;
                assert_past(&slice, 2, |at| changed(at, 200)).await;
                assert_past(&slice, 3, first).await;
                log_of(&slice).inner.merge_all().await.unwrap();
            }
            // What it was restored to counts as allocated, and nothing else does.
            let parts = slice.allocated(ByteOffset(0), ByteLen(40 * BLOCK), 9).await.unwrap();
            assert_eq!(
                parts,
                [(1, 19), (22, 13)].map(|(at, len)| (ByteOffset(at * BLOCK), ByteLen(len * BLOCK)))
            );
            settle(&slice).await;
            drop((slice, disks));
            pool.logs_ended().await;
            drop(pool);
            let pool = open(1).await;
            let disks = pool.share_disks().attach();
            let slice = slices(&pool, &disks, id).remove(0);
            assert_eq!(slice.last_restore().await, Ok(Some(7)));
            assert_now(&slice, third).await;
            // Forward to the one that it has come from, and back again.
            slice.restore_snapshot(2, 8).await.unwrap();
            assert_now(&slice, |at| changed(at, 200)).await;
            slice.restore_snapshot(3, 9).await.unwrap();
            assert_now(&slice, first).await;
            assert_past(&slice, 2, |at| changed(at, 200)).await;
            assert_eq!(ids(&slice).await, [1, 2, 3]);
            settle(&slice).await;
            // What the third one has of the first, it gets.
            slice.delete_snapshots(&[1]).await.unwrap();
            settle(&slice).await;
            assert_past(&slice, 2, |at| changed(at, 200)).await;
            assert_past(&slice, 3, first).await;
            assert_now(&slice, first).await;
            drop(disks);
        });
    }
}

/// What the slice was before is gone if no snapshot has it, and so is all that is left of snapshots that are
/// deleted, although the slice was restored to one of them.
#[test]
fn nothing_is_kept_that_nobody_needs() {
    let world = World::new(1);
    let node = machine(&world, 1, 16 << 20, 1);
    world.block_on(node, CORE, || async {
        let (pool, _disks, _id, slice) = one_slice(4 << 20).await;
        two_snapshots(&slice, true).await;
        // 30 of the first snapshot, and 15 of the second.
        assert_eq!(live(&pool, &slice).await, 45);
        change(&slice, 300).await;
        assert_eq!(live(&pool, &slice).await, 60);
        for restore in 1..5 {
            slice.restore_snapshot(1, restore).await.unwrap();
            settle(&slice).await;
            assert_eq!(live(&pool, &slice).await, 45);
            change(&slice, 400).await;
            assert_eq!(live(&pool, &slice).await, 60);
        }
        slice.delete_snapshots(&[2]).await.unwrap();
        settle(&slice).await;
        assert_eq!(live(&pool, &slice).await, 45);
        // Of the first one, 18 blocks are needed by the slice: all but those that were changed.
        let info = slice.snapshots().await.unwrap()[0];
        assert!(info.frees >= ByteLen(12 * BLOCK) && !info.is_exact, "{info:?}");
        slice.delete_snapshots(&[1]).await.unwrap();
        settle(&slice).await;
        assert_eq!(live(&pool, &slice).await, 33);
        assert_now(&slice, |at| changed(at, 400)).await;
        let inner = Rc::clone(&log_of(&slice).inner);
        let state = inner.state.borrow();
        assert!(state.marks.iter().next().is_none());
        assert_eq!(state.marks.restores().map(|(_, restore)| restore.to).collect::<Vec<u32>>(), [0]);
    });
}

/// A restored slice reads most of its blocks in what snapshots hold: that is not theirs alone.
#[test]
fn what_a_restored_slice_may_read_does_not_count_as_held_by_snapshots() {
    let world = World::new(1);
    let node = machine(&world, 1, 16 << 20, 1);
    world.block_on(node, CORE, || async {
        let (pool, _disks, _id, slice) = one_slice(4 << 20).await;
        let held = || {
            let space = pool.log_space().unwrap();
            (space.snapshots / BLOCK, space.freeing / BLOCK)
        };
        two_snapshots(&slice, true).await;
        assert_eq!(live(&pool, &slice).await, 45);
        assert_eq!(held(), (12, 0), "what was changed after the first one");
        slice.restore_snapshot(1, 1).await.unwrap();
        settle(&slice).await;
        assert_eq!((live(&pool, &slice).await, held()), (45, (0, 0)));
        slice.delete_snapshots(&[1, 2]).await.unwrap();
        settle(&slice).await;
        assert_eq!((live(&pool, &slice).await, held()), (30, (0, 0)));
    });
}

/// Before, the last snapshot of its line got what it reads there. That one needed it no more, and freed it.
#[test]
fn a_snapshot_keeps_what_it_has_of_the_parent_though_a_later_one_has_handed_on_its_own() {
    let world = World::new(1);
    let node = machine(&world, 1, 16 << 20, 1);
    world.block_on(node, CORE, || async {
        let (_pool, _disks, _id, slice) = one_slice(4 << 20).await;
        let written = async |at: u64, number: u64| {
            write(&slice, at, number, Durability::Cached).await.unwrap();
        };
        written(3, 7).await;
        slice.take_snapshot(1, 0).await.unwrap();
        slice.restore_snapshot(1, 1).await.unwrap();
        // The second one has block 3 of the first, and the third its own. Both have block 5.
        written(5, 8).await;
        slice.take_snapshot(2, 0).await.unwrap();
        written(3, 9).await;
        slice.take_snapshot(3, 0).await.unwrap();
        slice.restore_snapshot(3, 2).await.unwrap();
        for deleted in [3, 1] {
            settle(&slice).await;
            slice.delete_snapshots(&[deleted]).await.unwrap();
        }
        settle(&slice).await;
        assert_eq!((read_of(&slice, 2, 3).await, read_of(&slice, 2, 5).await), (Ok(7), Ok(8)));
        assert_eq!((read(&slice, 3).await, read(&slice, 5).await), (Ok(9), Ok(8)));
    });
}

/// Before, each block that was unmapped was noted. So UNMAP made the map of a sparse volume many times as
/// large, and a log that was nearly full ended, because it had no room to write that.
#[test]
fn only_what_the_snapshot_has_is_noted_when_a_restored_volume_is_unmapped() {
    const LEAVES: u64 = 40;
    let world = World::new(1);
    let node = machine(&world, 1, 16 << 20, 1);
    world.block_on(node, CORE, || async {
        let (_pool, _disks, _id, slice) = one_slice(LEAVES * 512 * BLOCK).await;
        write_leaves(&slice, LEAVES, 1).await;
        slice.take_snapshot(1, 0).await.unwrap();
        slice.restore_snapshot(1, 1).await.unwrap();
        slice.take_snapshot(2, 0).await.unwrap();
        log_of(&slice).inner.merge_all().await.unwrap();
        let map = || log_of(&slice).inner.state.borrow().segments.live_map;
        let before = map();
        write(&slice, 3 * 512 + 1, 9, Durability::Cached).await.unwrap();
        slice.zero(ByteOffset(0), ByteLen(LEAVES * 512 * BLOCK)).await.unwrap();
        for _ in 0..2 {
            for leaf in 0..LEAVES {
                assert_eq!(read(&slice, leaf * 512).await, Ok(0));
                assert_eq!(read_of(&slice, 1, leaf * 512).await, Ok(1 + leaf));
                assert_eq!(read_of(&slice, 2, leaf * 512).await, Ok(1 + leaf));
            }
            assert_eq!(read(&slice, 3 * 512 + 1).await, Ok(0));
            log_of(&slice).inner.merge_all().await.unwrap();
        }
        assert!(map() <= 3 * before, "{} grains after {before}", map());
        check(&slice).await;
    });
}

/// A restore writes one record, whatever the size of the volume.
#[test]
fn a_restore_costs_one_record_at_any_size() {
    let costs = [10, 400].map(|blocks| {
        let world = World::new(1);
        let node = machine(&world, 1, 16 << 20, 1);
        let (pool, disks, slice) = world.block_on(node, CORE, move || async move {
            let (pool, disks, _id, slice) = one_slice(4 << 20).await;
            for round in 0..2 {
                for at in 0..blocks {
                    write(&slice, at, 1000 * round + at + 1, Durability::Durable).await.unwrap();
                }
                slice.take_snapshot(round, 0).await.unwrap();
            }
            log_of(&slice).inner.merge_all().await.unwrap();
            idle(&slice).await;
            // So that the log has said that all of it is durable.
            rt::sleep(Duration::from_secs(3)).await;
            (pool, disks, slice)
        });
        let recording = world.record_disk(node, path(0));
        world.block_on(node, CORE, move || async move {
            // So that nothing else is written.
            slice.pause_freeing(true);
            let began = rt::now();
            slice.restore_snapshot(0, 1).await.unwrap();
            assert!(rt::now() - began < Duration::from_secs(1));
            drop((slice, disks, pool));
            recording.len()
        })
    });
    assert_eq!(costs[0], costs[1]);
    assert_eq!(costs[0], 2, "a write has a beginning and an end");
}

/// The volume keeps its size, and what is behind the snapshot's end reads as zeros.
#[test]
fn a_volume_that_has_grown_since_keeps_its_size() {
    let world = World::new(1);
    let node = machine(&world, 1, 16 << 20, 1);
    world.block_on(node, CORE, || async {
        // The end is in the middle of a block.
        let (pool, disks, id, slice) = one_slice(20 * BLOCK + 512).await;
        for at in 0..20 {
            write(&slice, at, first(at), Durability::Cached).await.unwrap();
        }
        slice.write(ByteOffset(20 * BLOCK), Chain::copy_of(&[7; 512]), Durability::Cached).await.unwrap();
        slice.take_snapshot(1, 0).await.unwrap();
        pool.grow_volume(id, ByteLen(40 * BLOCK)).await.unwrap();
        let spec = pool.volume_slices(id, CORE, 1).unwrap().remove(0);
        slice.grow(spec, &disks);
        for at in 15..40 {
            write(&slice, at, 500 + at, Durability::Cached).await.unwrap();
        }
        slice.restore_snapshot(1, 1).await.unwrap();
        for _ in 0..2 {
            for at in (0..40).filter(|at| *at != 20) {
                assert_eq!(read(&slice, at).await, Ok(if at < 20 { first(at) } else { 0 }));
            }
            let edge = slice.read(ByteOffset(20 * BLOCK), ByteLen(BLOCK)).await.unwrap().to_vec();
            assert!(edge[..512] == [7; 512] && edge[512..].iter().all(|byte| *byte == 0));
            log_of(&slice).inner.merge_all().await.unwrap();
        }
        check(&slice).await;
    });
}

/// Whoever has restored one of several slices may repeat it for all of them.
#[test]
fn a_restore_can_be_repeated_and_may_fail() {
    let world = World::new(1);
    let node = machine(&world, 1, 16 << 20, 1);
    world.block_on(node, CORE, || async {
        let (_pool, _disks, _id, slice) = one_slice(4 << 20).await;
        two_snapshots(&slice, true).await;
        assert_eq!(slice.last_restore().await, Ok(None));
        assert_eq!(slice.restore_snapshot(9, 1).await, Err(SnapshotError::Unknown));
        slice.restore_snapshot(1, 1).await.unwrap();
        write(&slice, 3, 9, Durability::Durable).await.unwrap();
        slice.restore_snapshot(1, 1).await.unwrap();
        slice.restore_snapshot(9, 1).await.unwrap();
        assert_eq!((read(&slice, 3).await, slice.last_restore().await), (Ok(9), Ok(Some(1))));
        slice.restore_snapshot(1, 2).await.unwrap();
        assert_eq!((read(&slice, 3).await, slice.last_restore().await), (Ok(103), Ok(Some(2))));
        assert_eq!((slice.was_restored_by(2).await, slice.was_restored_by(3).await), (Ok(true), Ok(false)));
        slice.delete_snapshots(&[1]).await.unwrap();
        assert_eq!(slice.restore_snapshot(1, 3).await, Err(SnapshotError::Unknown));
        assert_now(&slice, first).await;
        settle(&slice).await;
        assert_now(&slice, first).await;
    });
}

/// Writes that are under way count before; what begins meanwhile counts after. A snapshot is taken before or
/// after, and the one that it goes back to may be deleted meanwhile.
#[test]
fn writes_wait_for_a_restore() {
    let world = World::new(1);
    let node = machine(&world, 1, 16 << 20, 1);
    world.block_on(node, CORE, || async {
        let (_pool, _disks, _id, slice) = one_slice(4 << 20).await;
        two_snapshots(&slice, false).await;
        let layout = slice.layout();
        let Layout::Log(of_log) = &*layout else { panic!("a log slice") };
        let (inner, branch) = (Rc::clone(&of_log.log().inner), of_log.branch());
        let spawn = |at: u64, number: u64| {
            let slice = Rc::clone(&slice);
            rt::spawn(async move { write(&slice, at, number, Durability::Durable).await.unwrap() })
        };
        let before = spawn(3, 7);
        rt::yield_now().await;
        let restoring = Rc::clone(&slice);
        let restored = rt::spawn(async move { restoring.restore_snapshot(1, 1).await });
        let mut after = None;
        while inner.state.borrow().marks.now(branch) == 0 {
            let is_restoring = inner.state.borrow().marks.is_restoring(branch);
            if is_restoring && after.is_none() {
                assert_eq!(slice.take_snapshot(3, 0).await, Err(SnapshotError::Restoring));
                after = Some(spawn(4, 8));
                slice.delete_snapshots(&[1]).await.unwrap();
            }
            rt::sleep(Duration::from_micros(1)).await;
        }
        before.await;
        after.expect("the disk takes a while").await;
        restored.await.unwrap();
        for _ in 0..2 {
            assert_now(&slice, |at| if at == 4 { 8 } else { first(at) }).await;
            settle(&slice).await;
        }
        assert_eq!(ids(&slice).await, [2]);
    });
}

/// More may be named than differs, never less.
#[test]
fn changes_across_restores_are_found() {
    for merges in [false, true] {
        let world = World::new(1);
        let node = machine(&world, 1, 16 << 20, 1);
        world.block_on(node, CORE, move || async move {
            let (_pool, _disks, _id, slice) = one_slice(4 << 20).await;
            two_snapshots(&slice, merges).await;
            slice.restore_snapshot(1, 1).await.unwrap();
            write(&slice, 5, 9, Durability::Cached).await.unwrap();
            slice.take_snapshot(3, 0).await.unwrap();
            let changed = async |id: u64, until: Option<u64>| {
                let (start, len) = (ByteOffset(0), ByteLen(40 * BLOCK));
                let parts = slice.changed_since_snapshot(id, until, start, len, 9).await.unwrap();
                parts
                    .iter()
                    .flat_map(|(from, len)| from.0 / BLOCK..(from.0 + len.0) / BLOCK)
                    .collect::<Vec<u64>>()
            };
            for _ in 0..2 {
                assert_eq!(changed(1, None).await, [5]);
                let blocks = [5].into_iter().chain(10..22).chain(30..35);
                assert_eq!(changed(2, Some(3)).await, blocks.collect::<Vec<u64>>());
                log_of(&slice).inner.merge_all().await.unwrap();
            }
        });
    }
}

/// Before, what was written between a restore and the first snapshot after it was not found once the volume
/// had been restored again: the leaf of the former line had been folded into its last snapshot.
#[test]
fn changes_up_to_a_snapshot_of_a_former_line_are_found() {
    let world = World::new(1);
    let node = machine(&world, 1, 16 << 20, 1);
    world.block_on(node, CORE, || async {
        let (_pool, _disks, _id, slice) = one_slice(4 << 20).await;
        write(&slice, 3, 7, Durability::Cached).await.unwrap();
        slice.take_snapshot(1, 0).await.unwrap();
        slice.restore_snapshot(1, 1).await.unwrap();
        write(&slice, 5, 8, Durability::Cached).await.unwrap();
        slice.take_snapshot(2, 0).await.unwrap();
        write(&slice, 6, 9, Durability::Cached).await.unwrap();
        slice.take_snapshot(3, 0).await.unwrap();
        // So that the last snapshot has a leaf.
        write(&slice, 7, 10, Durability::Cached).await.unwrap();
        slice.restore_snapshot(1, 2).await.unwrap();
        for _ in 0..2 {
            for (id, until) in [(1, Some(2)), (2, None)] {
                let (start, len) = (ByteOffset(0), ByteLen(40 * BLOCK));
                let parts = slice.changed_since_snapshot(id, until, start, len, 9).await.unwrap();
                let is_in =
                    |(from, len): &(ByteOffset, ByteLen)| (from.0..from.0 + len.0).contains(&(5 * BLOCK));
                assert!(parts.iter().any(is_in), "{parts:?} since {id}");
            }
            settle(&slice).await;
        }
    });
}
