//! Snapshots: what is read of them, what they cost, and what their deletion frees.

use std::collections::BTreeSet;
use std::time::Duration;

use rt::sim::DiskLatency;

use super::super::marks::SNAPSHOTS_MAX;
use super::*;
use crate::log::{SnapshotError, SnapshotInfo};
use crate::pool::ZeroingWatch;

pub(super) async fn read_of(slice: &Slice, id: u64, at: u64) -> Result<u64, SnapshotError> {
    let bytes = slice.read_snapshot(id, ByteOffset(at * BLOCK), ByteLen(BLOCK)).await?.to_vec();
    let number = u64::from_le_bytes(bytes[..8].try_into().unwrap());
    assert_eq!(bytes, block(number), "block {at} of snapshot {id} is of one piece");
    Ok(number)
}

async fn assert_snapshot(slice: &Slice, id: u64, expected: impl Fn(u64) -> u64) {
    for at in 0..40 {
        assert_eq!(read_of(slice, id, at).await, Ok(expected(at)), "block {at} of snapshot {id}");
    }
}

pub(super) async fn ids(slice: &Slice) -> Vec<u64> {
    slice.snapshots().await.unwrap().iter().map(|info| info.id).collect()
}

/// Waits until nothing is left of deleted snapshots.
pub(super) async fn wait_until_freed(slice: &Slice) {
    for _ in 0..20_000 {
        if slice.held_by_deleted_snapshots() == ByteLen(0) {
            return;
        }
        rt::sleep(Duration::from_millis(1)).await;
    }
    panic!("deleted snapshots keep their space: {}", log_of(slice).at_what());
}

/// What the log's figures say is live, in blocks.
pub(super) async fn live(pool: &Pool, slice: &Slice) -> u64 {
    log_of(slice).inner.merge_all().await.unwrap();
    idle(slice).await;
    pool.log_figures()[0].1.live / BLOCK
}

/// Blocks 0 to 29 are written, then a snapshot is taken, three times; between them, some are overwritten,
/// unmapped, or written for the first time.
async fn three_snapshots(slice: &Slice, merges: bool) {
    for at in 0..30 {
        write(slice, at, 100 + at, Durability::Cached).await.unwrap();
    }
    slice.take_snapshot(1, 1000).await.unwrap();
    for at in 10..20 {
        write(slice, at, 200 + at, Durability::Durable).await.unwrap();
    }
    slice.zero(ByteOffset(20 * BLOCK), ByteLen(2 * BLOCK)).await.unwrap();
    slice.take_snapshot(2, 2000).await.unwrap();
    if merges {
        log_of(slice).inner.merge_all().await.unwrap();
    }
    for at in 15..35 {
        // Only the last of several versions between two snapshots is kept.
        write(slice, at, 299, Durability::Cached).await.unwrap();
        write(slice, at, 300 + at, Durability::Cached).await.unwrap();
    }
    slice.take_snapshot(3, 3000).await.unwrap();
    slice.zero(ByteOffset(0), ByteLen(40 * BLOCK)).await.unwrap();
}

fn first(at: u64) -> u64 {
    if at < 30 { 100 + at } else { 0 }
}

fn second(at: u64) -> u64 {
    match at {
        10..20 => 200 + at,
        20..22 => 0,
        _ => first(at),
    }
}

fn third(at: u64) -> u64 {
    if (15..35).contains(&at) { 300 + at } else { second(at) }
}

async fn assert_three(slice: &Slice) {
    assert_eq!(ids(slice).await, [1, 2, 3]);
    assert_snapshot(slice, 1, first).await;
    assert_snapshot(slice, 2, second).await;
    assert_snapshot(slice, 3, third).await;
    for at in 0..40 {
        assert_eq!(read(slice, at).await, Ok(0));
    }
}

#[test]
fn snapshots_read_as_the_slice_did_when_they_were_taken() {
    for merges in [false, true] {
        let world = World::new(1);
        let node = machine(&world, 1, 16 << 20, 1);
        world.block_on(node, CORE, move || async move {
            let (pool, disks, id, slice) = one_slice(4 << 20).await;
            three_snapshots(&slice, merges).await;
            assert_three(&slice).await;
            log_of(&slice).inner.merge_all().await.unwrap();
            assert_three(&slice).await;
            check(&slice).await;
            drop((slice, disks));
            pool.logs_ended().await;
            drop(pool);
            let pool = open(1).await;
            let disks = pool.share_disks().attach();
            let slice = slices(&pool, &disks, id).remove(0);
            assert_three(&slice).await;
            check(&slice).await;
            let infos = slice.snapshots().await.unwrap();
            assert_eq!(infos.iter().map(|info| info.time).collect::<Vec<u64>>(), [1000, 2000, 3000]);
            drop(disks);
        });
    }
}

/// Gives back the space of the file system that is set aside for the log's next records, as if the pool's
/// file had been copied without its zeros. With that space, no record finds the file system full.
async fn give_back_unwritten(slice: &Slice) {
    let inner = Rc::clone(&log_of(slice).inner);
    let unwritten: Vec<(u32, u16)> = {
        let segments = &inner.state.borrow().segments;
        let open = segments.hosts.map(|open| (open.segment, open.next));
        open.into_iter().chain(segments.ready.iter().map(|(segment, _)| (*segment, 0))).collect()
    };
    for (segment, next) in unwritten {
        let (disk, _, at) = inner.locate(Place::new(segment, next)).unwrap();
        let slots = u64::from(inner.handle.slots()) - u64::from(next);
        disk.zero(at, slots * BLOCK).await.unwrap();
    }
}

/// A deletion finds no space in the file system of the pool's file. When it is repeated, it is durable.
///
/// Before, the second one found nothing to delete and reported success, and after a crash the snapshot was
/// back.
#[test]
fn a_deletion_that_found_no_space_is_made_durable_by_the_next_one() {
    let world = World::new(1);
    let node = machine(&world, 0, 0, 1);
    let (pool, disks, id, slice) = world.block_on(node, CORE, || async {
        let disk = NewDisk { path: path(0), create: Some(ByteLen(16 << 20)), reserve: false };
        let extent = Some(ByteLen(64 << 10));
        let options = CreateOptions { name: "pool".into(), host: host(), extent, wipe: true, ram: ram() };
        let pool = Pool::create(vec![disk], options).await.unwrap();
        pool.set_log_tuning(tuning());
        let id = pool.create_volume(spec("v", 4 << 20, 1)).await.unwrap().id;
        let disks = pool.share_disks().attach();
        let slice = slices(&pool, &disks, id).remove(0);
        write(&slice, 0, 1, Durability::Durable).await.unwrap();
        slice.take_snapshot(1, 1000).await.unwrap();
        write(&slice, 0, 2, Durability::Durable).await.unwrap();
        idle(&slice).await;
        give_back_unwritten(&slice).await;
        (pool, disks, id, slice)
    });
    let delete = || {
        let slice = Rc::clone(&slice);
        world.block_on(node, CORE, move || async move { slice.delete_snapshots(&[1]).await })
    };
    world.leave_space(node, 0);
    assert_eq!(delete(), Err(SnapshotError::Slice(SliceError::Full)));
    world.set_space(node, None);
    assert_eq!(delete(), Ok(()));
    // As a crash would leave it: no checkpoint has ended since.
    let image = world.disk_image(node, path(0));
    world.block_on(node, CORE, move || async move { drop((slice, disks, pool)) });
    let world = World::new(2);
    let node = machine(&world, 0, 0, 1);
    world.put_file(node, path(0), image);
    world.block_on(node, CORE, move || async move {
        let pool = open(1).await;
        let disks = pool.share_disks().attach();
        let slice = slices(&pool, &disks, id).remove(0);
        assert!(ids(&slice).await.is_empty());
        assert_eq!(read(&slice, 0).await, Ok(2));
    });
}

/// Which blocks were changed after a snapshot, and before another one or until now.
async fn changed(slice: &Slice, id: u64, until: Option<u64>) -> Vec<u64> {
    let (start, len) = (ByteOffset(0), ByteLen(40 * BLOCK));
    let parts = slice.changed_since_snapshot(id, until, start, len, 9).await.unwrap();
    parts.iter().flat_map(|(from, len)| from.0 / BLOCK..(from.0 + len.0) / BLOCK).collect()
}

#[test]
fn changes_between_snapshots_are_found() {
    for merges in [false, true] {
        let world = World::new(1);
        let node = machine(&world, 1, 16 << 20, 1);
        world.block_on(node, CORE, move || async move {
            let (_pool, _disks, _id, slice) = one_slice(4 << 20).await;
            three_snapshots(&slice, merges).await;
            for is_merged in [false, true] {
                let blocks = |range: std::ops::Range<u64>| range.collect::<Vec<u64>>();
                assert_eq!(changed(&slice, 1, Some(2)).await, blocks(10..22));
                assert_eq!(changed(&slice, 2, Some(3)).await, blocks(15..35));
                assert_eq!(changed(&slice, 1, Some(3)).await, blocks(10..35));
                // An UNMAP of what reads as zeros counts until it is merged.
                let since = changed(&slice, 3, None).await;
                assert!(since == blocks(0..35) || !is_merged && since == blocks(0..40), "{since:?}");
                log_of(&slice).inner.merge_all().await.unwrap();
            }
            slice.delete_snapshots(&[2]).await.unwrap();
            wait_until_freed(&slice).await;
            assert_eq!(changed(&slice, 1, Some(3)).await, (10..35).collect::<Vec<u64>>());
            let (start, len) = (ByteOffset(12 * BLOCK + 512), ByteLen(BLOCK));
            let parts = slice.changed_since_snapshot(1, Some(3), start, len, 9).await;
            assert_eq!(parts, Ok(vec![(start, len)]));
            for (id, until) in [(3, Some(1)), (1, Some(1)), (1, Some(2)), (2, None)] {
                let parts = slice.changed_since_snapshot(id, until, start, len, 9).await;
                assert_eq!(parts, Err(SnapshotError::Unknown));
            }
        });
    }
}

/// In whichever order they are deleted, the others read as before, and in the end nothing is left of them.
#[test]
fn deleted_snapshots_give_back_what_nobody_else_needs() {
    for order in [[1, 2, 3], [1, 3, 2], [2, 1, 3], [2, 3, 1], [3, 1, 2], [3, 2, 1]] {
        let world = World::new(1);
        let node = machine(&world, 1, 16 << 20, 1);
        world.block_on(node, CORE, move || async move {
            let (pool, disks, id, slice) = one_slice(4 << 20).await;
            three_snapshots(&slice, true).await;
            let contents: [fn(u64) -> u64; 3] = [first, second, third];
            let mut left = vec![1, 2, 3];
            for gone in order {
                // How many different versions of blocks the snapshots have that are left.
                let versions = |left: &[u64]| -> u64 {
                    let of = |at: u64| left.iter().map(move |id| contents[*id as usize - 1](at));
                    (0..40)
                        .map(|at| of(at).filter(|number| *number > 0).collect::<BTreeSet<u64>>())
                        .map(|of| of.len() as u64)
                        .sum()
                };
                assert_eq!(live(&pool, &slice).await, versions(&left), "{left:?}");
                let infos = slice.snapshots().await.unwrap();
                let of_gone = infos.iter().position(|info| info.id == gone).unwrap();
                let SnapshotInfo { frees, is_exact, .. } = infos[of_gone];
                let before = versions(&left);
                left.retain(|id| *id != gone);
                let freed = (before - versions(&left)) * BLOCK;
                assert_eq!(is_exact, of_gone == 0);
                assert!(if is_exact { frees.0 == freed } else { frees.0 >= freed }, "{frees:?} {freed}");
                slice.delete_snapshots(&[gone, 77]).await.unwrap();
                assert_eq!(ids(&slice).await, left);
                assert_eq!(read_of(&slice, gone, 0).await, Err(SnapshotError::Unknown));
                wait_until_freed(&slice).await;
                for id in &left {
                    assert_snapshot(&slice, *id, contents[*id as usize - 1]).await;
                }
                check(&slice).await;
            }
            assert_eq!(live(&pool, &slice).await, 0);
            assert_eq!(log_of(&slice).inner.state.borrow().leaves.len(), 0);
            drop((slice, disks));
            pool.logs_ended().await;
            let disks = pool.share_disks().attach();
            let slice = slices(&pool, &disks, id).remove(0);
            assert!(ids(&slice).await.is_empty());
            check(&slice).await;
        });
    }
}

/// The instant is when it begins, whatever is written before it is durable.
#[test]
fn a_snapshot_is_of_the_moment_at_which_it_began() {
    let world = World::new(1);
    let node = machine(&world, 1, 16 << 20, 1);
    world.block_on(node, CORE, || async {
        let pool = create(1).await;
        let id = pool.create_volume(spec("v", 4 << 20, 2)).await.unwrap().id;
        let disks = pool.share_disks().attach();
        let [one, other] = <[Rc<Slice>; 2]>::try_from(slices(&pool, &disks, id)).ok().unwrap();
        for slice in [&one, &other] {
            write(slice, 3, 1, Durability::Cached).await.unwrap();
        }
        // Nobody writes between the first and the last one.
        let begun = [one.begin_snapshot(9, 5).await.unwrap(), other.begin_snapshot(9, 5).await.unwrap()];
        for slice in [&one, &other] {
            write(slice, 3, 2, Durability::Durable).await.unwrap();
            assert!(ids(slice).await.is_empty(), "it is not durable yet");
            assert_eq!(slice.take_snapshot(9, 6).await, Err(SnapshotError::Exists));
        }
        for new in begun {
            new.settle().await.unwrap();
        }
        for slice in [&one, &other] {
            assert_eq!((read_of(slice, 9, 3).await, read(slice, 3).await), (Ok(1), Ok(2)));
            check(slice).await;
        }
        // One that is given up leaves nothing.
        drop(one.begin_snapshot(10, 7).await.unwrap());
        write(&one, 3, 3, Durability::Durable).await.unwrap();
        assert_eq!((ids(&one).await, read_of(&one, 9, 3).await), (vec![9], Ok(1)));
        log_of(&one).inner.merge_all().await.unwrap();
        check(&one).await;
        assert_eq!(pool.log_figures()[0].1.live, 2 * BLOCK);
    });
}

/// A deleted snapshot leaves the list with a root. What is written before that root is durable comes after
/// what was written in the snapshot's era, also if the power fails then.
///
/// Before, recovery put it before that, and the older data was back.
#[test]
fn what_is_written_while_a_snapshot_is_removed_survives_a_power_cut() {
    let world = World::new(1);
    let node = machine(&world, 1, 16 << 20, 1);
    let (id, opened) = world.block_on(node, CORE, || async {
        let (pool, disks, id, slice) = one_slice(4 << 20).await;
        write(&slice, 3, 1, Durability::Durable).await.unwrap();
        log_of(&slice).inner.merge_all().await.unwrap();
        idle(&slice).await;
        (id, (pool, disks, slice))
    });
    // So that the state and the root take longer than a host's write.
    let write_time = Duration::from_millis(50)..Duration::from_millis(51);
    let latency = DiskLatency { write: write_time, spike_one_in: 0, ..DiskLatency::default() };
    world.set_disk_latency(node, path(0), latency);
    let opened = world.block_on(node, CORE, move || async move {
        let (pool, disks, slice) = opened;
        let inner = Rc::clone(&log_of(&slice).inner);
        slice.take_snapshot(1, 0).await.unwrap();
        write(&slice, 3, 2, Durability::Durable).await.unwrap();
        slice.delete_snapshots(&[1]).await.unwrap();
        let merging = Rc::clone(&inner);
        rt::spawn(async move { merging.merge_all().await }).detach();
        for _ in 0..10_000 {
            if inner.state.borrow().marks.is_empty() {
                break;
            }
            rt::sleep(Duration::from_millis(1)).await;
        }
        assert!(inner.state.borrow().marks.is_empty());
        let root = inner.state.borrow().root;
        write(&slice, 3, 3, Durability::Durable).await.unwrap();
        assert_eq!(inner.state.borrow().root, root, "no root says that the snapshot is gone");
        (pool, disks, slice)
    });
    world.crash(node);
    drop(opened);
    world.restart(node, |_| std::future::pending());
    world.block_on(node, CORE, move || async move {
        let pool = open(1).await;
        let disks = pool.share_disks().attach();
        let slice = slices(&pool, &disks, id).remove(0);
        assert_eq!(read(&slice, 3).await, Ok(3));
        assert!(ids(&slice).await.is_empty());
        check(&slice).await;
    });
}

/// A root knows the snapshot, but the power fails before a record says that it was taken. It does not exist,
/// and what was overwritten since is freed.
#[test]
fn nothing_is_left_of_a_snapshot_that_was_not_taken() {
    let world = World::new(1);
    let node = machine(&world, 1, 16 << 20, 1);
    let (id, opened) = world.block_on(node, CORE, || async {
        let (pool, disks, id, slice) = one_slice(4 << 20).await;
        write(&slice, 3, 1, Durability::Durable).await.unwrap();
        let begun = slice.begin_snapshot(1, 0).await.unwrap();
        write(&slice, 3, 2, Durability::Durable).await.unwrap();
        log_of(&slice).inner.merge_all().await.unwrap();
        let held = log_of(&slice).inner.state.borrow().held.keys().filter(|era| era.number > 0).count();
        assert_eq!(held, 1);
        (id, (pool, disks, slice, begun))
    });
    world.crash(node);
    drop(opened);
    world.restart(node, |_| std::future::pending());
    world.block_on(node, CORE, move || async move {
        let pool = open(1).await;
        let disks = pool.share_disks().attach();
        let slice = slices(&pool, &disks, id).remove(0);
        assert_eq!(read(&slice, 3).await, Ok(2));
        assert!(ids(&slice).await.is_empty());
        wait_until_freed(&slice).await;
        assert_eq!(live(&pool, &slice).await, 1);
        log_of(&slice).inner.merge_all().await.unwrap();
        assert!(log_of(&slice).inner.state.borrow().marks.is_empty());
        check(&slice).await;
    });
}

/// Taking a snapshot writes one record, and nothing else until something is overwritten: the same for 10
/// blocks as for 400.
#[test]
fn a_snapshot_costs_one_record_at_any_size() {
    let costs = [10, 400].map(|blocks| {
        let world = World::new(1);
        let node = machine(&world, 1, 16 << 20, 1);
        let (pool, disks, slice) = world.block_on(node, CORE, move || async move {
            let (pool, disks, _id, slice) = one_slice(4 << 20).await;
            for at in 0..blocks {
                write(&slice, at, at + 1, Durability::Durable).await.unwrap();
            }
            log_of(&slice).inner.merge_all().await.unwrap();
            idle(&slice).await;
            // So that the log has said that all of it is durable.
            rt::sleep(Duration::from_secs(3)).await;
            (pool, disks, slice)
        });
        let recording = world.record_disk(node, path(0));
        let (slice, took) = world.block_on(node, CORE, move || async move {
            let began = rt::now();
            slice.take_snapshot(1, 0).await.unwrap();
            let took = rt::now() - began;
            idle(&slice).await;
            (slice, took)
        });
        let events = recording.len();
        world.block_on(node, CORE, move || async move { drop((slice, disks, pool)) });
        assert!(took < Duration::from_secs(1), "{took:?}");
        events
    });
    assert_eq!(costs[0], costs[1]);
    assert_eq!(costs[0], 2, "a write has a beginning and an end");
}

/// A log without snapshots looks nothing up for them, and its map is as it was.
#[test]
fn a_log_without_snapshots_has_none_in_its_map() {
    let world = World::new(1);
    let node = machine(&world, 1, 16 << 20, 1);
    world.block_on(node, CORE, || async {
        let (_pool, _disks, _id, slice) = one_slice(4 << 20).await;
        slice.take_snapshot(1, 0).await.unwrap();
        write(&slice, 0, 1, Durability::Durable).await.unwrap();
        slice.delete_snapshots(&[1]).await.unwrap();
        for _ in 0..2 {
            log_of(&slice).inner.merge_all().await.unwrap();
        }
        idle(&slice).await;
        let inner = Rc::clone(&log_of(&slice).inner);
        let state = inner.state.borrow();
        assert!(state.marks.is_empty() && state.held.keys().all(|era| era.number == 0));
        assert!(state.leaves.keys().all(|(era, _)| era.number == 0));
        assert_eq!(state.marks.next(), 2, "no number is used again");
    });
}

#[test]
fn a_volume_has_a_limited_number_of_snapshots() {
    let world = World::new(1);
    let node = machine(&world, 1, 32 << 20, 1);
    world.block_on(node, CORE, || async {
        let (_pool, _disks, _id, slice) = one_slice(4 << 20).await;
        for id in 0..SNAPSHOTS_MAX as u64 {
            if id % 100 == 0 {
                write(&slice, id / 100, id + 1, Durability::Durable).await.unwrap();
            }
            slice.take_snapshot(id, id).await.unwrap();
        }
        assert_eq!(slice.take_snapshot(5000, 0).await, Err(SnapshotError::TooMany));
        log_of(&slice).inner.merge_all().await.unwrap();
        for id in [0, 99, 100, 500, 999] {
            for at in 0..10 {
                assert_eq!(read_of(&slice, id, at).await, Ok(if at <= id / 100 { 100 * at + 1 } else { 0 }));
            }
        }
        let all: Vec<u64> = (0..SNAPSHOTS_MAX as u64).collect();
        slice.delete_snapshots(&all).await.unwrap();
        wait_until_freed(&slice).await;
        slice.take_snapshot(5000, 0).await.unwrap();
        check(&slice).await;
    });
}

/// A pool with a volume whose one snapshot has many leaves, on a disk that reads slowly.
fn with_slow_leaves(leaves: u64) -> (World, NodeId, (Pool, CoreDisks, Rc<Slice>)) {
    let world = World::new(1);
    let node = machine(&world, 1, 64 << 20, 1);
    let opened = world.block_on(node, CORE, move || async move {
        let pool = create(1).await;
        pool.set_log_tuning(with_room());
        let id = pool.create_volume(spec("v", leaves * 512 * BLOCK, 1)).await.unwrap().id;
        let disks = pool.share_disks().attach();
        let slice = slices(&pool, &disks, id).remove(0);
        for round in 0..2 {
            write_leaves(&slice, leaves, 1000 * round + 1).await;
            if round == 0 {
                slice.take_snapshot(1, 0).await.unwrap();
            }
        }
        log_of(&slice).inner.merge_all().await.unwrap();
        idle(&slice).await;
        (pool, disks, slice)
    });
    read_slowly(&world, node);
    (world, node, opened)
}

/// Hosts write while a snapshot is deleted, however many leaves it has and however slow the disk is.
#[test]
fn deleting_a_snapshot_does_not_hold_up_hosts() {
    let (world, node, (pool, disks, slice)) = with_slow_leaves(1500);
    world.block_on(node, CORE, move || async move {
        assert_eq!(slice.snapshots().await.unwrap()[0].frees, ByteLen(1500 * BLOCK));
        let began = rt::now();
        slice.delete_snapshots(&[1]).await.unwrap();
        assert!(rt::now() - began < Duration::from_secs(1));
        let longest = longest_write(&slice, 300, || slice.held_by_deleted_snapshots() > ByteLen(0)).await;
        assert!(longest < 5 * STEP, "a write took {longest:?}");
        check(&slice).await;
        drop((pool, disks));
    });
}

/// What snapshots hold, and what is still to be freed of deleted ones, is known without asking a slice.
#[test]
fn a_pool_says_what_snapshots_hold() {
    let (world, node, (pool, disks, slice)) = with_slow_leaves(400);
    world.block_on(node, CORE, move || async move {
        let held = || {
            let space = pool.log_space().unwrap();
            (space.snapshots / BLOCK, space.freeing / BLOCK)
        };
        assert_eq!(held(), (400, 0));
        slice.pause_freeing(true);
        slice.delete_snapshots(&[1]).await.unwrap();
        assert_eq!(held(), (0, 400));
        slice.pause_freeing(false);
        wait_until_freed(&slice).await;
        idle(&slice).await;
        assert_eq!(held(), (0, 0));
        drop((pool, disks));
    });
}

/// Freeing can be paused, and continues when the log has been opened again.
#[test]
fn freeing_is_paused_and_continued() {
    let (world, node, (pool, disks, slice)) = with_slow_leaves(400);
    world.block_on(node, CORE, move || async move {
        slice.pause_freeing(true);
        slice.delete_snapshots(&[1]).await.unwrap();
        for at in 0..300 {
            write(&slice, 1 + at, 7, Durability::Durable).await.unwrap();
        }
        log_of(&slice).inner.merge_all().await.unwrap();
        // (The merge folds what it comes across.)
        assert!(slice.held_by_deleted_snapshots() >= ByteLen(390 * BLOCK));
        slice.pause_freeing(false);
        let held = || slice.held_by_deleted_snapshots();
        while held() > ByteLen(200 * BLOCK) {
            rt::sleep(Duration::from_millis(10)).await;
        }
        slice.pause_freeing(true);
        assert!(held() > ByteLen(0), "it is freed in steps");
        let id = pool.volumes()[0].id;
        drop(slice);
        pool.logs_ended().await;
        let slice = slices(&pool, &disks, id).remove(0);
        slice.ready().await.unwrap();
        wait_until_freed(&slice).await;
        for leaf in 0..400 {
            assert_eq!(read(&slice, leaf * 512).await, Ok(1000 + leaf + 1));
        }
        check(&slice).await;
    });
}

/// The cleaner moves blocks that only a snapshot has, and finds the leaf that names them.
#[test]
fn blocks_of_snapshots_are_moved() {
    let world = World::new(1);
    let node = machine(&world, 1, 8 << 20, 1);
    world.block_on(node, CORE, || async {
        let (pool, _disks, _id, slice) = one_slice(4 << 20).await;
        // Every second block is overwritten soon, so the segments have something to gain.
        for at in 0..400 {
            write(&slice, at, at + 1, Durability::Cached).await.unwrap();
        }
        slice.take_snapshot(1, 0).await.unwrap();
        for at in (0..400).step_by(3) {
            write(&slice, at, 1000 + at, Durability::Cached).await.unwrap();
        }
        slice.take_snapshot(2, 0).await.unwrap();
        for round in 0..40 {
            for at in (0..400).step_by(5) {
                write(&slice, at, 2000 + 1000 * round + at, Durability::Cached).await.unwrap();
            }
        }
        assert!(pool.log_figures()[0].1.written_moved > 0, "the cleaner was at work");
        for at in 0..400 {
            assert_eq!(read_of(&slice, 1, at).await, Ok(at + 1));
            let second = if at % 3 == 0 { 1000 + at } else { at + 1 };
            assert_eq!(read_of(&slice, 2, at).await, Ok(second));
        }
        check(&slice).await;
    });
}

/// A thick volume has no snapshots, so a log volume that has some is not switched to thick.
#[test]
fn a_volume_with_snapshots_stays_in_its_log() {
    let world = World::new(1);
    let node = machine(&world, 1, 16 << 20, 1);
    world.block_on(node, CORE, || async {
        let (pool, disks, id, slice) = one_slice(1 << 20).await;
        write(&slice, 3, 7, Durability::Durable).await.unwrap();
        slice.take_snapshot(1, 0).await.unwrap();
        let watch = ZeroingWatch::default();
        pool.begin_conversion(id, VolumeKind::Thick, Compression::Off, false, watch).await.unwrap();
        let spec = pool.volume_slices(id, CORE, 1).unwrap().remove(0);
        slice.begin_conversion(&spec, &disks);
        assert_eq!(slice.take_snapshot(2, 0).await, Err(SnapshotError::Converting));
        while slice.convert_some().await.unwrap().0 > 0 {}
        assert_eq!(slice.become_equal().await, Ok(false));
        assert_eq!(read_of(&slice, 1, 3).await, Ok(7));
        slice.delete_snapshots(&[1]).await.unwrap();
        while !slice.become_equal().await.unwrap() {
            slice.convert_some().await.unwrap();
        }
    });
}

/// A volume that is deleted takes its snapshots with it.
#[test]
fn a_deleted_volume_leaves_no_snapshots() {
    let world = World::new(1);
    let node = machine(&world, 1, 16 << 20, 1);
    world.block_on(node, CORE, || async {
        let pool = create(1).await;
        let stays = pool.create_volume(spec("stays", 4 << 20, 1)).await.unwrap().id;
        let goes = pool.create_volume(spec("goes", 4 << 20, 1)).await.unwrap().id;
        let disks = pool.share_disks().attach();
        let slice = slices(&pool, &disks, stays).remove(0);
        three_snapshots(&slice, true).await;
        let before = live(&pool, &slice).await;
        {
            let gone = slices(&pool, &disks, goes).remove(0);
            three_snapshots(&gone, true).await;
            assert_three(&gone).await;
            check(&gone).await;
        }
        pool.delete_volume(goes).await.unwrap();
        for _ in 0..20_000 {
            if pool.log_figures()[0].1.live / BLOCK == before {
                break;
            }
            rt::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(live(&pool, &slice).await, before);
        assert_three(&slice).await;
        check(&slice).await;
        assert_eq!(log_of(&slice).inner.state.borrow().marks.len(), 3);
    });
}
