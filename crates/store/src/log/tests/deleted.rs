//! What deleted volumes leave in logs that other volumes use.

use std::time::Duration;

use base::{Buf, crc32c};
use rt::sim::{DiskFaults, Subsets, for_each_cut};

use super::super::place::Size;
use super::super::queue::Item;
use super::*;

/// Blocks of the volume that stays.
const STAYING: u64 = 100;

/// Two volumes of one slice each, in the same log.
async fn two_volumes(pool: &Pool, capacity: u64) -> [VolumeId; 2] {
    let stays = pool.create_volume(spec("stays", capacity, 1)).await.unwrap().id;
    [stays, pool.create_volume(spec("goes", capacity, 1)).await.unwrap().id]
}

async fn write_staying(slice: &Slice) {
    for at in 0..STAYING {
        write(slice, at, at + 1, Durability::Durable).await.unwrap();
    }
}

async fn assert_staying(slice: &Slice) {
    for at in 0..STAYING {
        assert_eq!(read(slice, at).await, Ok(at + 1));
    }
}

/// Writes blocks that are each the only one of their leaf.
async fn write_apart(slice: &Slice, leaves: u64) {
    for number in 0..leaves {
        write(slice, number * 512, number + 1, Durability::Durable).await.unwrap();
    }
}

/// Waits without writing anything.
async fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    for _ in 0..20_000 {
        if is_so() {
            return;
        }
        rt::sleep(Duration::from_millis(1)).await;
    }
    panic!("{what}");
}

/// Waits until the log's figures say that it holds only the volume that stays.
async fn wait_until_swept(pool: &Pool, slice: &Slice) {
    let live = || pool.log_figures()[0].1.live;
    wait_until("the deleted volume still takes space", || live() == STAYING * BLOCK).await;
    check(slice).await;
    assert_staying(slice).await;
}

/// Each checkpoint removes a part of the leaves only, so none takes long.
#[test]
fn the_space_of_a_deleted_volume_is_freed_in_steps_without_delay() {
    const LEAVES: u64 = 400;
    let world = World::new(1);
    let node = machine(&world, 1, 32 << 20, 1);
    world.block_on(node, CORE, || async {
        let pool = create(1).await;
        let [stays, goes] = two_volumes(&pool, LEAVES * 512 * BLOCK).await;
        let disks = pool.share_disks().attach();
        let slice = slices(&pool, &disks, stays).remove(0);
        write_staying(&slice).await;
        {
            let gone = slices(&pool, &disks, goes).remove(0);
            write_apart(&gone, LEAVES).await;
            // A merge of changes would remove their leaves, too.
            log_of(&gone).inner.merge_all().await.unwrap();
            check(&gone).await;
        }
        let checkpoints = || log_of(&slice).inner.state.borrow().checkpoints;
        let before = checkpoints();
        pool.delete_volume(goes).await.unwrap();
        wait_until_swept(&pool, &slice).await;
        // The cleaner drops blocks of deleted volumes, too, but no leaves.
        wait_until("the map still has leaves of it", || log_of(&slice).inner.gone().is_empty()).await;
        let steps = checkpoints() - before;
        let max = tuning().changes_max as u64 / 2;
        assert!(steps >= 2, "{steps} checkpoints, of which each removes {max} leaves");
        idle(&slice).await;
        log_of(&slice).merged().await;
        let rest = checkpoints();
        rt::sleep(Duration::from_secs(600)).await;
        assert_eq!(checkpoints(), rest, "a log that has nothing to remove is at rest");
    });
}

/// A machine whose disk reads slowly, a volume that stays, and one with many leaves.
fn with_slow_leaves() -> (World, NodeId, (Pool, CoreDisks, Rc<Slice>, VolumeId)) {
    const LEAVES: u64 = 2000;
    let world = World::new(1);
    let node = machine(&world, 1, 64 << 20, 1);
    let volumes = world.block_on(node, CORE, || async {
        let pool = create(1).await;
        pool.set_log_tuning(with_room());
        let [stays, goes] = two_volumes(&pool, LEAVES * 512 * BLOCK).await;
        let disks = pool.share_disks().attach();
        let slice = slices(&pool, &disks, stays).remove(0);
        write_staying(&slice).await;
        let gone = slices(&pool, &disks, goes).remove(0);
        write_leaves(&gone, LEAVES, 1).await;
        log_of(&gone).inner.merge_all().await.unwrap();
        idle(&gone).await;
        (pool, disks, slice, goes)
    });
    read_slowly(&world, node);
    (world, node, volumes)
}

/// Hosts write while the leaves of a deleted volume are read, however slow the disk is.
///
/// Before, the leaves were read while a table was frozen: when the other one was full, writes waited for all
/// of them.
#[test]
fn a_sweep_does_not_hold_up_hosts() {
    let (world, node, (pool, disks, slice, goes)) = with_slow_leaves();
    world.block_on(node, CORE, move || async move {
        pool.delete_volume(goes).await.unwrap();
        let leaves = || log_of(&slice).inner.state.borrow().leaves.len();
        let longest = longest_write(&slice, STAYING, || leaves() > 1).await;
        assert!(longest < 5 * STEP, "a write took {longest:?}");
        // What the last writes have overwritten counts until then.
        log_of(&slice).inner.merge_all().await.unwrap();
        wait_until_swept(&pool, &slice).await;
        drop(disks);
    });
}

/// The cleaner has found nothing to gain, and a host's write may wait for a segment.
///
/// Before, it looked again only after the sweep, which took as long as all the leaves of the checkpoint.
#[test]
fn the_cleaner_looks_at_once_at_what_a_sweep_has_freed() {
    let (world, node, (pool, disks, slice, goes)) = with_slow_leaves();
    world.block_on(node, CORE, move || async move {
        pool.delete_volume(goes).await.unwrap();
        let state = &log_of(&slice).inner.state;
        let before = state.borrow().leaves.len();
        state.borrow_mut().exhausted = true;
        wait_until("no leaf is removed", || state.borrow().leaves.len() < before).await;
        assert!(state.borrow().leaves.len() > 1000, "there are more to come");
        assert!(!state.borrow().exhausted);
        drop((pool, disks));
    });
}

/// A leaf of a deleted volume that cannot be read is dropped like the others, and its blocks when the cleaner
/// comes across them.
#[test]
fn an_unreadable_leaf_of_a_deleted_volume_does_not_stop_the_sweep() {
    let world = World::new(1);
    let node = machine(&world, 1, 16 << 20, 1);
    let (pool, disks, slice, goes) = world.block_on(node, CORE, || async {
        let pool = create(1).await;
        pool.set_log_memory(LogMemory::new(ByteLen(1)));
        let [stays, goes] = two_volumes(&pool, 1 << 30).await;
        let disks = pool.share_disks().attach();
        let slice = slices(&pool, &disks, stays).remove(0);
        write_staying(&slice).await;
        // So no slot has leaves of both.
        log_of(&slice).inner.merge_all().await.unwrap();
        let gone = slices(&pool, &disks, goes).remove(0);
        write_apart(&gone, 20).await;
        log_of(&gone).inner.merge_all().await.unwrap();
        idle(&gone).await;
        (pool, disks, slice, goes)
    });
    let (place, start) = {
        let inner = Rc::clone(&log_of(&slice).inner);
        let last = inner.state.borrow().leaves.last_key_value().map(|(_, place)| *place).unwrap();
        let segment = Place::new(last.segment, 0);
        (last, inner.locate(segment).unwrap().2)
    };
    let grain = super::super::leaf::LEAF_GRAIN as u64;
    let leaf =
        start + u64::from(place.at) * grain..start + (u64::from(place.at) + u64::from(place.len)) * grain;
    let sectors = leaf.start / 512 * 512..leaf.end.next_multiple_of(512);
    world.set_disk_faults(node, path(0), DiskFaults::default().with_unreadable(sectors));
    world.block_on(node, CORE, move || async move {
        pool.delete_volume(goes).await.unwrap();
        let leaves = || log_of(&slice).inner.state.borrow().leaves.len();
        wait_until("leaves of the deleted volume stay", || leaves() == 1).await;
        idle(&slice).await;
        assert_staying(&slice).await;
        drop((pool, disks));
    });
}

/// The pool can give the space to other volumes, although nothing is written to the log any more.
#[test]
fn the_zones_of_a_deleted_volume_go_back_though_the_log_is_idle() {
    const CHUNK: u64 = 64;
    let world = World::new(1);
    let node = machine(&world, 1, 48 << 20, 1);
    world.block_on(node, CORE, || async {
        let pool = create(1).await;
        let [stays, goes] = two_volumes(&pool, 1 << 30).await;
        let fresh = pool.usage().free;
        let disks = pool.share_disks().attach();
        let slice = slices(&pool, &disks, stays).remove(0);
        write_staying(&slice).await;
        {
            let gone = slices(&pool, &disks, goes).remove(0);
            for number in 1..=80 {
                let data = Chain::copy_of(&block(number).repeat(CHUNK as usize));
                gone.write(ByteOffset(number * CHUNK * BLOCK), data, Durability::Durable).await.unwrap();
            }
            idle(&gone).await;
        }
        let full = pool.usage().free;
        assert!(full.0 + (16 << 20) <= fresh.0, "{full:?} of {fresh:?}");
        pool.delete_volume(goes).await.unwrap();
        let free = || pool.usage().free;
        wait_until("zones stay in the log", || free().0 + (8 << 20) >= fresh.0).await;
        wait_until_swept(&pool, &slice).await;
        // The log takes what it needs again.
        for at in 0..1000 {
            write(&slice, STAYING + at, at + 1, Durability::Cached).await.unwrap();
        }
        check(&slice).await;
    });
}

/// The volume was deleted while the log was not open, as after a crash right after the deletion.
#[test]
fn leftovers_of_a_deleted_volume_are_removed_when_the_log_opens() {
    let world = World::new(1);
    let node = machine(&world, 1, 16 << 20, 1);
    world.block_on(node, CORE, || async {
        let pool = create(1).await;
        let [stays, goes] = two_volumes(&pool, 1 << 30).await;
        let disks = pool.share_disks().attach();
        for (id, is_staying) in [(stays, true), (goes, false)] {
            let slice = slices(&pool, &disks, id).remove(0);
            if is_staying {
                write_staying(&slice).await;
            } else {
                write_apart(&slice, 60).await;
            }
            idle(&slice).await;
        }
        pool.logs_ended().await;
        pool.delete_volume(goes).await.unwrap();
        drop((pool, disks));
        let pool = open(1).await;
        let disks = pool.share_disks().attach();
        let slice = slices(&pool, &disks, stays).remove(0);
        slice.ready().await.unwrap();
        wait_until_swept(&pool, &slice).await;
    });
}

/// A record that completes after its volume was deleted, and was swept, leaves nothing.
#[test]
fn a_late_record_of_a_deleted_volume_is_dropped_with_the_next_merge() {
    let world = World::new(1);
    let node = machine(&world, 1, 16 << 20, 1);
    world.block_on(node, CORE, || async {
        let (pool, _disks, _id, slice) = one_slice(4 << 20).await;
        write_staying(&slice).await;
        let inner = Rc::clone(&log_of(&slice).inner);
        let data = Buf::copy_of(&block(9)).share();
        let late = vec![Item::Blocks { first: 3, size: Size::Whole, crcs: vec![crc32c(&data)], data }];
        // No volume has this branch.
        inner.append(7, late, true).await.unwrap();
        inner.merge_all().await.unwrap();
        drop(inner);
        wait_until_swept(&pool, &slice).await;
    });
}

/// The catalog is older than the log, as if only some of the pool's disks had been set back: it has not given
/// this branch to any volume yet. The volume that has it was not deleted, and its data is not removed.
#[test]
fn the_data_of_a_volume_that_is_newer_than_the_catalog_is_not_removed() {
    let world = World::new(1);
    let node = machine(&world, 1, 16 << 20, 1);
    world.block_on(node, CORE, || async {
        let (pool, disks, id, slice) = one_slice(4 << 20).await;
        write(&slice, 1, 7, Durability::Durable).await.unwrap();
        idle(&slice).await;
        let inner = Rc::clone(&log_of(&slice).inner);
        let data = Buf::copy_of(&block(9)).share();
        let newer = vec![Item::Blocks { first: 3, size: Size::Whole, crcs: vec![crc32c(&data)], data }];
        inner.append(inner.handle.next_branch(), newer, true).await.unwrap();
        drop((inner, slice));
        pool.logs_ended().await;
        let slice = slices(&pool, &disks, id).remove(0);
        assert_eq!(slice.ready().await, Err(SliceError::Offline));
        drop(slice);
        pool.logs_ended().await;
        // When the right catalog is there, so is the data.
        let newer = pool.create_volume(spec("newer", 4 << 20, 1)).await.unwrap().id;
        assert_eq!(read(&slices(&pool, &disks, newer).remove(0), 3).await, Ok(9));
        assert_eq!(read(&slices(&pool, &disks, id).remove(0), 1).await, Ok(7));
    });
}

/// Power cuts at every point of a deletion: the volume is there as it was, or its space is free.
#[test]
fn a_deletion_ends_after_any_power_cut() {
    const LEAVES: u64 = 150;
    let world = World::new(1);
    let node = machine(&world, 1, 12 << 20, 1);
    let (pool, disks, slice, [stays, goes]) = world.block_on(node, CORE, || async {
        let pool = create(1).await;
        let ids = two_volumes(&pool, LEAVES * 512 * BLOCK).await;
        let disks = pool.share_disks().attach();
        let slice = slices(&pool, &disks, ids[0]).remove(0);
        write_staying(&slice).await;
        write_apart(&slices(&pool, &disks, ids[1]).remove(0), LEAVES).await;
        idle(&slice).await;
        (pool, disks, slice, ids)
    });
    let recording = world.record_disk(node, path(0));
    world.block_on(node, CORE, move || async move {
        pool.delete_volume(goes).await.unwrap();
        wait_until_swept(&pool, &slice).await;
        drop((pool, disks, slice));
    });
    let mut deleted = 0;
    let cuts = for_each_cut(&recording, Subsets { bits: 1, seed: 1 }, |cut| {
        let world = World::new(cut.at as u64);
        let node = world.add_node("node", 1, |_| std::future::pending());
        world.put_disk(node, path(0), cut.images[0].clone());
        let is_deleted = world.block_on(node, CORE, move || async move {
            let pool = open(1).await;
            let disks = pool.share_disks().attach();
            let slice = slices(&pool, &disks, stays).remove(0);
            slice.ready().await.unwrap();
            if pool.volume(goes).is_none() {
                wait_until_swept(&pool, &slice).await;
                return true;
            }
            let kept = slices(&pool, &disks, goes).remove(0);
            for number in 0..LEAVES {
                assert_eq!(read(&kept, number * 512).await, Ok(number + 1));
            }
            check(&slice).await;
            false
        });
        deleted += u64::from(is_deleted);
    });
    assert!(cuts > 10 && deleted > 5, "{cuts} cuts, {deleted} after the deletion");
}
