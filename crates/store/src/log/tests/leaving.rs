//! Disks that leave the pool though zones and roots of logs lie there.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use base::Instant;
use rt::sim::{DiskFaults, Recording, Subsets, for_each_cut};

use super::super::Stays;
use super::super::segment::Zone;
use super::*;
use crate::canary::{Canary, make};
use crate::error::StoreError;

pub(super) const BLOCKS: u64 = 1200;

pub(super) fn disk(number: usize) -> NewDisk {
    NewDisk { path: path(number), create: None, reserve: false }
}

/// Waits until the logs have left the disk that is leaving, and removes it.
pub(super) async fn empty(pool: &Pool) -> Result<(), StoreError> {
    let leaving = pool.leaving().expect("a disk is leaving").path;
    assert!(pool.next_move().await?.is_none(), "no volume has extents of its own there");
    let mut looks = 0;
    while pool.empty_logs().await? {
        rt::sleep(Duration::from_millis(20)).await;
        looks += 1;
        assert!(looks < 3000, "{:?} never leaves: {:?}", leaving, pool.leaving());
    }
    pool.remove_disk(&leaving).await
}

/// The same after an error: what has failed is tried again.
pub(super) async fn empty_again(pool: &Pool) {
    let _ = pool.empty_logs().await;
    rt::sleep(Duration::from_millis(500)).await;
    empty(pool).await.unwrap();
}

/// Checks that the slice is consistent and has what [`filled`] has written.
async fn check_filled(slice: &Slice) {
    check(slice).await;
    for at in 0..BLOCKS {
        assert_eq!(read(slice, at).await, Ok(at + 1), "block {at}");
    }
}

/// A pool on the first disk, with a volume whose blocks have been written and merged, and then further disks.
pub(super) async fn filled(disks: usize) -> (Pool, CoreDisks, VolumeId, Rc<Slice>) {
    let (pool, core_disks, id, slice) = one_slice(1 << 30).await;
    for at in 0..BLOCKS {
        write(&slice, at, at + 1, Durability::Cached).await.unwrap();
    }
    log_of(&slice).inner.merge_all().await.unwrap();
    idle(&slice).await;
    for number in 1..disks {
        pool.add_disk(disk(number), true).await.unwrap();
    }
    (pool, core_disks, id, slice)
}

pub(super) async fn open_without_first(disks: usize) -> Pool {
    let options = OpenPool { host: host(), force: false, ram: ram(), uncertain: None };
    let paths: Vec<PathBuf> = (1..disks).map(path).collect();
    let pool = Pool::open(&paths, options).await.unwrap();
    pool.set_log_tuning(tuning());
    pool.set_log_memory(LogMemory::new(MEMORY));
    pool
}

/// No write waits for long, and each block has what was written last.
#[test]
fn a_disk_is_emptied_while_its_log_is_written() {
    for seed in 0..6 {
        let world = World::new(seed);
        let node = machine(&world, 3, 12 << 20, 1);
        world.block_on(node, CORE, move || async move {
            let (pool, disks, id, slice) = filled(3).await;
            assert!(pool.check_leave(&path(0)).unwrap().moves.0 > 5 << 20);
            pool.leave(&path(0)).await.unwrap();
            let (ends, longest) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(Duration::ZERO)));
            let writer = |first: u64| {
                let (slice, ends, longest) = (Rc::clone(&slice), Rc::clone(&ends), Rc::clone(&longest));
                let mut rng = Rng::new(seed * 10 + first);
                rt::spawn(async move {
                    let mut last: Vec<(u64, u64)> =
                        (first..BLOCKS).step_by(4).map(|at| (at, at + 1)).collect();
                    let mut number = 10_000 + first;
                    while !ends.get() {
                        let one = rng.below(last.len() as u64) as usize;
                        number += 4;
                        let began: Instant = rt::now();
                        write(&slice, last[one].0, number, Durability::Durable).await.unwrap();
                        longest.set(longest.get().max(rt::now().since(began)));
                        last[one].1 = number;
                        rt::sleep(Duration::from_micros(rng.below(800))).await;
                    }
                    last
                })
            };
            let writers: Vec<_> = (0..4).map(writer).collect();
            empty(&pool).await.unwrap();
            ends.set(true);
            let mut expected = Vec::new();
            for writer in writers {
                expected.extend(writer.await);
            }
            assert!(longest.get() < Duration::from_secs(1), "a write took {:?}", longest.get());
            assert_eq!(pool.paths(), [path(1), path(2)]);
            for (at, number) in &expected {
                assert_eq!(read(&slice, *at).await, Ok(*number), "block {at}");
            }
            check(&slice).await;
            let handle = log_of(&slice).handle();
            assert!(handle.zones().values().all(|(disk, _)| *disk > 0), "{:?}", handle.zones());
            drop((slice, disks, handle));
            pool.logs_ended().await;
            drop(pool);
            let pool = open_without_first(3).await;
            let disks = pool.share_disks().attach();
            let slice = slices(&pool, &disks, id).remove(0);
            for (at, number) in &expected {
                assert_eq!(read(&slice, *at).await, Ok(*number), "block {at}");
            }
            check(&slice).await;
        });
    }
}

/// An administrator changes his mind at any moment; later the disk leaves after all.
#[test]
fn a_disk_that_stays_keeps_its_zones() {
    for wait in [0, 1, 4, 10, 30, 80, 200] {
        let world = World::new(wait);
        let node = machine(&world, 2, 16 << 20, 1);
        world.block_on(node, CORE, move || async move {
            let (pool, _disks, _id, slice) = filled(2).await;
            pool.leave(&path(0)).await.unwrap();
            assert!(pool.empty_logs().await.unwrap());
            rt::sleep(Duration::from_millis(wait)).await;
            pool.stay().await.unwrap();
            assert_eq!(pool.leaving(), None);
            idle(&slice).await;
            check_filled(&slice).await;
            // Both disks are in use again.
            for at in 0..2 * BLOCKS {
                write(&slice, at, at + 7, Durability::Cached).await.unwrap();
            }
            check(&slice).await;
            for at in 0..2 * BLOCKS {
                assert_eq!(read(&slice, at).await, Ok(at + 7), "block {at}");
            }
        });
    }
}

/// While a checkpoint is under way, its half of the table is for hosts. If the next one begins at once, as it
/// does while hosts write much, a step is moved all the same. And below high water, the cleaner makes room
/// instead of waiting.
#[test]
fn moves_wait_for_one_checkpoint() {
    let world = World::new(1);
    let node = machine(&world, 1, 16 << 20, 1);
    world.block_on(node, CORE, || async {
        let (_pool, _disks, _id, slice) = one_slice(4 << 20).await;
        slice.ready().await.unwrap();
        idle(&slice).await;
        let inner = Rc::clone(&log_of(&slice).inner);
        {
            let mut state = inner.state.borrow_mut();
            // So that no other one begins.
            state.checkpointing = true;
            while state.stock() < state.high() {
                state.segments.ready.push_back((0, 0));
            }
        }
        let wait = || {
            let inner = Rc::clone(&inner);
            rt::spawn(async move { inner.may_empty_more().await })
        };
        let waits = wait();
        rt::sleep(Duration::from_millis(1)).await;
        inner.changed.notify();
        rt::sleep(Duration::from_millis(1)).await;
        assert!(!waits.is_finished());
        inner.state.borrow_mut().checkpoints += 1;
        inner.changed.notify();
        assert!(waits.await);
        let waits = wait();
        rt::sleep(Duration::from_millis(1)).await;
        assert!(!waits.is_finished(), "the next checkpoint is under way");
        {
            let mut state = inner.state.borrow_mut();
            state.segments.free.clear();
            let few = state.low() as usize + 1;
            state.segments.ready.resize(few, (0, 0));
            assert!(state.stock() > state.low() && state.stock() < state.high());
        }
        inner.changed.notify();
        assert!(!waits.await, "it makes room first");
    });
}

/// The cleaner leaves a segment halfway because segments are short. After the next root it is its turn again,
/// even if no host has written anything.
#[test]
fn a_segment_that_was_left_halfway_has_its_turn_again() {
    let world = World::new(1);
    let node = machine(&world, 2, 16 << 20, 1);
    world.block_on(node, CORE, || async {
        let (_pool, _disks, _id, slice) = filled(2).await;
        // What is durable has been said then, so the log writes no record by itself.
        rt::sleep(Duration::from_secs(2)).await;
        log_of(&slice).inner.merge_all().await.unwrap();
        idle(&slice).await;
        let inner = Rc::clone(&log_of(&slice).inner);
        // The cleaner looks there after each segment.
        log_of(&slice).handle().set_leaving(Some(0));
        {
            let mut state = inner.state.borrow_mut();
            assert!(state.segments.set_leaving_disk(Some(0)));
            state.segments.retire_zone(0);
            // So many that the cleaner need not make room. They are not used.
            while state.stock() < state.high() {
                state.segments.ready.push_back((0, 0));
            }
            assert!(state.victim_to_empty().is_some());
            // It waits for the end of a checkpoint.
            state.checkpointing = true;
            state.cleaning = true;
            // No zone arrives: with one, segments would not be short.
            state.asking = true;
        }
        let cleaner = rt::spawn(Rc::clone(&inner).run_cleaner());
        rt::sleep(Duration::from_millis(1)).await;
        assert!(!cleaner.is_finished());
        let next = {
            let mut state = inner.state.borrow_mut();
            let (need, few) = (state.map_need() as usize, state.low() as usize);
            state.segments.free.truncate(need);
            state.segments.ready.truncate(few);
            state.exhausted = true;
            state.append.next
        };
        inner.changed.notify();
        cleaner.await;
        let is_left = |state: &Running| state.segments.used_in(0).any(|(_, used)| used.cleaned > 0);
        assert!(is_left(&inner.state.borrow()) && inner.state.borrow().append.next == next);
        inner.checkpoint().await.unwrap();
        assert!(!is_left(&inner.state.borrow()));
    });
}

/// The others have too little space, or no run of extents for a zone: then nothing begins.
#[test]
fn a_disk_stays_if_the_others_have_too_little_space() {
    let world = World::new(1);
    let node = machine(&world, 3, 12 << 20, 1);
    world.block_on(node, CORE, || async {
        let pool = create(2).await;
        let id = pool.create_volume(spec("v", 1 << 30, 1)).await.unwrap().id;
        let disks = pool.share_disks().attach();
        let slice = slices(&pool, &disks, id).remove(0);
        for at in 0..2500 {
            write(&slice, at, at + 1, Durability::Cached).await.unwrap();
        }
        for number in [0, 1] {
            match pool.leave(&path(number)).await {
                Err(StoreError::NoSpace { wanted, free }) => assert!(wanted > free, "{wanted} of {free}"),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(pool.leaving(), None);
        pool.add_disk(disk(2), true).await.unwrap();
        pool.leave(&path(0)).await.unwrap();
        empty(&pool).await.unwrap();
        check(&slice).await;
        for at in 0..2500 {
            assert_eq!(read(&slice, at).await, Ok(at + 1), "block {at}");
        }
    });
}

/// While the log empties its zones, others take the space that it needs. It says so, hosts go on, and when
/// there is space again, so does the log.
#[test]
fn a_log_that_finds_no_space_to_leave_waits_for_it() {
    let world = World::new(1);
    let node = machine(&world, 2, 16 << 20, 1);
    world.block_on(node, CORE, || async {
        let (pool, _disks, _id, slice) = filled(2).await;
        pool.leave(&path(0)).await.unwrap();
        let taken = loop {
            let thick =
                VolumeSpec { kind: VolumeKind::Thick, ..spec("thick", pool.usage().free.0 - (512 << 10), 1) };
            match pool.create_volume(thick).await {
                Ok(info) => break info.id,
                // The log was faster.
                Err(StoreError::NoSpace { .. }) => rt::sleep(Duration::from_millis(1)).await,
                Err(error) => panic!("{error}"),
            }
        };
        let mut looks = 0;
        let error = loop {
            match pool.empty_logs().await {
                Ok(left) => assert!(left && looks < 1000, "the log needs as much as it has there"),
                Err(error) => break error,
            }
            looks += 1;
            rt::sleep(Duration::from_millis(10)).await;
        };
        assert!(matches!(error, StoreError::NoSpace { .. }), "{error}");
        for at in 0..300 {
            write(&slice, at, at + 9, Durability::Durable).await.unwrap();
        }
        check(&slice).await;
        pool.delete_volume(taken).await.unwrap();
        empty_again(&pool).await;
        check(&slice).await;
        for at in 0..BLOCKS {
            assert_eq!(read(&slice, at).await, Ok(if at < 300 { at + 9 } else { at + 1 }), "block {at}");
        }
    });
}

/// Also those that the root frees. A log that is overwritten all the time would use them over and over
/// otherwise, and could give up none of its zones there.
#[test]
fn segments_on_the_disk_are_announced_last() {
    let world = World::new(1);
    let node = machine(&world, 2, 16 << 20, 1);
    world.block_on(node, CORE, || async {
        let (_pool, _disks, _id, slice) = filled(2).await;
        for at in BLOCKS..2 * BLOCKS {
            write(&slice, at, at + 1, Durability::Cached).await.unwrap();
        }
        idle(&slice).await;
        let inner = Rc::clone(&log_of(&slice).inner);
        let mut state = inner.state.borrow_mut();
        let of_disk = |zones: &BTreeMap<u32, Zone>, number: u16| -> Vec<u32> {
            let zones = zones.iter().filter(|(_, zone)| zone.disk == number);
            zones.flat_map(|(zone, _)| zone * 16..(zone + 1) * 16).collect()
        };
        let (there, elsewhere) = (of_disk(&state.segments.zones, 0), of_disk(&state.segments.zones, 1));
        assert!(there.len() >= 32 && elsewhere.len() >= 32);
        assert!(state.segments.set_leaving_disk(Some(0)));
        state.since_freeze = 0;
        state.segments.ready.clear();
        state.segments.free.clone_from(&elsewhere);
        let announced = state.to_announce(&there);
        assert!(announced.len() > 10, "{announced:?}");
        assert!(announced.iter().all(|(segment, _)| elsewhere.contains(segment)), "{announced:?}");
        // If there are no others, those.
        state.segments.free.clear();
        assert!(!state.to_announce(&there).is_empty());
    });
}

/// An administrator keeps the disk, and later it leaves after all: what was in the way then is not reported
/// now.
#[test]
fn what_was_in_the_way_is_not_reported_later() {
    let world = World::new(1);
    let node = machine(&world, 1, 16 << 20, 1);
    world.block_on(node, CORE, || async {
        let (_pool, _disks, _id, slice) = one_slice(4 << 20).await;
        slice.ready().await.unwrap();
        idle(&slice).await;
        let handle = log_of(&slice).handle();
        handle.set_stays(Some(Stays::NoSpace));
        handle.set_leaving(None);
        rt::sleep(Duration::from_millis(1)).await;
        assert_eq!(handle.stays(), None);
    });
}

/// What the disk cannot read stays, and is there when the disk reads it again: neither blocks nor leaves are
/// given up for that.
#[test]
fn what_cannot_be_read_keeps_the_disk() {
    let world = World::new(1);
    let node = machine(&world, 2, 16 << 20, 1);
    let (pool, disks, slice) = world.block_on(node, CORE, || async {
        let (pool, disks, _id, slice) = filled(2).await;
        (pool, disks, slice)
    });
    let zones = log_of(&slice).handle().zones();
    let unreadable = zones.values().filter(|(disk, _)| *disk == 0).map(|(_, at)| *at..*at + (1 << 20));
    let faults = DiskFaults { unreadable: unreadable.collect(), ..DiskFaults::default() };
    world.set_disk_faults(node, path(0), faults);
    let (pool, disks, slice) = world.block_on(node, CORE, move || async move {
        pool.leave(&path(0)).await.unwrap();
        let mut looks = 0;
        let error = loop {
            match pool.empty_logs().await {
                Ok(left) => assert!(left && looks < 1000),
                Err(error) => break error,
            }
            looks += 1;
            rt::sleep(Duration::from_millis(10)).await;
        };
        assert!(matches!(error, StoreError::LogUnreadable { .. }), "{error}");
        assert!(!slice.is_offline());
        idle(&slice).await;
        (pool, disks, slice)
    });
    world.set_disk_faults(node, path(0), DiskFaults::default());
    world.block_on(node, CORE, move || async move {
        for at in 0..BLOCKS {
            assert_eq!(read(&slice, at).await, Ok(at + 1), "block {at}");
        }
        empty_again(&pool).await;
        check_filled(&slice).await;
        drop((pool, disks, slice));
    });
}

/// Has no leaf in memory: those that are needed are read from the disk.
pub(super) fn forget_leaves(slice: &Slice) {
    log_of(slice).inner.state.borrow_mut().cache.clear();
}

/// The same if it is only a leaf, whose blocks could be moved.
#[test]
fn a_leaf_that_cannot_be_read_keeps_the_disk() {
    let world = World::new(1);
    let node = machine(&world, 2, 16 << 20, 1);
    let (pool, disks, slice) = world.block_on(node, CORE, || async {
        let (pool, disks, _id, slice) = filled(2).await;
        forget_leaves(&slice);
        (pool, disks, slice)
    });
    let leaf = super::lost_leaf::first_leaf(&slice);
    let sectors = leaf.start / 512 * 512..leaf.end.next_multiple_of(512);
    world.set_disk_faults(node, path(0), DiskFaults { unreadable: vec![sectors], ..DiskFaults::default() });
    let (pool, disks, slice) = world.block_on(node, CORE, move || async move {
        pool.leave(&path(0)).await.unwrap();
        let mut looks = 0;
        let error = loop {
            match pool.empty_logs().await {
                Ok(left) => assert!(left && looks < 1000),
                Err(error) => break error,
            }
            looks += 1;
            rt::sleep(Duration::from_millis(100)).await;
        };
        assert!(matches!(error, StoreError::LogUnreadable { .. }), "{error}");
        idle(&slice).await;
        (pool, disks, slice)
    });
    world.set_disk_faults(node, path(0), DiskFaults::default());
    world.block_on(node, CORE, move || async move {
        empty_again(&pool).await;
        check_filled(&slice).await;
        drop((pool, disks, slice));
    });
}

/// Room does not shrink when what could not be read is tried again.
#[test]
fn unread_leaves_keep_their_room() {
    let world = World::new(1);
    let node = machine(&world, 2, 16 << 20, 1);
    world.block_on(node, CORE, || async {
        let (_pool, _disks, _id, slice) = filled(2).await;
        let inner = Rc::clone(&log_of(&slice).inner);
        let mut state = inner.state.borrow_mut();
        let leaf = state.leaves.first_key_value().expect("it is in the map").1.segment;
        let zone = state.segments.zone_of(leaf);
        let before = state.evacuated_from(zone);
        assert!(before > 0);
        state.segments.set_stuck(leaf);
        assert_eq!(state.evacuated_from(zone), before);
        assert!(state.segments.set_leaving_disk(Some(0)));
        state.segments.retire_zone(zone);
        assert_eq!(state.evacuated_from(zone), before);
    });
}

/// The log ends after some of the leaf's blocks were moved, and before a merge. The replay finds the moves,
/// and does not know which zone was being emptied.
#[test]
fn a_leaf_that_cannot_be_read_is_not_lost_to_replayed_moves() {
    let world = World::new(1);
    let node = machine(&world, 2, 16 << 20, 1);
    let (pool, disks, id, slice) = world.block_on(node, CORE, || async {
        let (pool, disks, id, slice) = filled(2).await;
        forget_leaves(&slice);
        (pool, disks, id, slice)
    });
    let leaf = super::lost_leaf::first_leaf(&slice);
    let sectors = leaf.start / 512 * 512..leaf.end.next_multiple_of(512);
    world.set_disk_faults(node, path(0), DiskFaults { unreadable: vec![sectors], ..DiskFaults::default() });
    let (pool, disks, slice) = world.block_on(node, CORE, move || async move {
        pool.leave(&path(0)).await.unwrap();
        let is_moved = || {
            let log = log_of(&slice);
            let state = log.inner.state.borrow();
            let (era, number) = *state.leaves.first_key_value().expect("it is in the map").0;
            !state.checkpointing && state.active.moves_of((era.branch, number)).next().is_some()
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
        check_filled(&slice).await;
        drop((pool, disks, slice));
    });
}

/// A mirror of the roots moves to the disk that has the other one only if there is no other disk. What its
/// disk cannot read comes from the other mirror.
#[test]
fn roots_move_to_a_disk_of_their_own() {
    for is_readable in [true, false] {
        let world = World::new(1);
        let node = machine(&world, 3, 12 << 20, 1);
        let (pool, disks, slice, roots) = world.block_on(node, CORE, || async {
            let pool = create(2).await;
            let id = pool.create_volume(spec("v", 4 << 20, 1)).await.unwrap().id;
            pool.add_disk(disk(2), true).await.unwrap();
            let disks = pool.share_disks().attach();
            let slice = slices(&pool, &disks, id).remove(0);
            write(&slice, 3, 7, Durability::Durable).await.unwrap();
            idle(&slice).await;
            let roots = log_of(&slice).handle().use_roots().await.places.clone();
            (pool, disks, slice, roots)
        });
        let (left, at) = roots[0];
        let kept = roots[1];
        assert_ne!(left, kept.0);
        let unreadable = (!is_readable).then(|| at..at + 8192).into_iter().collect();
        let faults = DiskFaults { unreadable, ..DiskFaults::default() };
        world.set_disk_faults(node, path(left.into()), faults);
        world.block_on(node, CORE, move || async move {
            pool.leave(&path(left.into())).await.unwrap();
            empty(&pool).await.unwrap();
            let roots = log_of(&slice).handle().use_roots().await.places.clone();
            assert_eq!(roots, [(2, roots[0].1), kept]);
            log_of(&slice).inner.merge_all().await.unwrap();
            drop(slice);
            pool.logs_ended().await;
            assert_eq!(reopened(&pool, &disks).await, Ok(7));
        });
    }
}

/// What block 3 of the only volume holds.
async fn reopened(pool: &Pool, disks: &CoreDisks) -> Result<u64, SliceError> {
    let id = pool.volumes()[0].id;
    let slice = slices(pool, &pool.share_disks().attach_added(disks), id).remove(0);
    read(&slice, 3).await
}

#[test]
fn no_root_is_written_while_a_mirror_moves() {
    let world = World::new(1);
    let node = machine(&world, 1, 16 << 20, 1);
    world.block_on(node, CORE, || async {
        let (_pool, _disks, _id, slice) = one_slice(4 << 20).await;
        write(&slice, 3, 7, Durability::Durable).await.unwrap();
        idle(&slice).await;
        let handle = log_of(&slice).handle();
        let used = handle.use_roots().await;
        let begun = rt::timeout(Duration::from_millis(5), handle.hold_roots()).await;
        assert!(begun.is_err(), "somebody is writing them");
        drop((begun, used));
        let held = handle.hold_roots().await;
        let inner = Rc::clone(&log_of(&slice).inner);
        let merged = rt::spawn(async move { inner.merge_all().await });
        let root = log_of(&slice).inner.state.borrow().root;
        rt::sleep(Duration::from_secs(1)).await;
        assert!(!merged.is_finished());
        // Hosts do not wait for that.
        write(&slice, 4, 8, Durability::Durable).await.unwrap();
        drop(held);
        merged.await.unwrap();
        assert!(log_of(&slice).inner.state.borrow().root > root);
        assert_eq!((read(&slice, 3).await, read(&slice, 4).await), (Ok(7), Ok(8)));
    });
}

/// It is unknown whether the catalog has the new place of a mirror, because its commit failed. The next
/// opening finds the newest root, whichever place counts.
#[test]
fn roots_are_written_to_both_places_if_it_is_unknown_which_counts() {
    let world = World::new(1);
    // The metadata takes 15.8 MiB of each disk, and no run of eight extents is left on the small one.
    let node = machine(&world, 1, 16 << 20, 1);
    for disk in 1..4 {
        world.put_disk(node, path(disk), DiskImage::new(32 << 20, 512));
    }
    let (pool, disks, id, handle) = world.block_on(node, CORE, || async {
        let pool = create(4).await;
        let id = pool.create_volume(spec("v", 4 << 20, 1)).await.unwrap().id;
        let disks = pool.share_disks().attach();
        let slice = slices(&pool, &disks, id).remove(0);
        write(&slice, 3, 7, Durability::Durable).await.unwrap();
        // If it were open, it would ask for a zone, and that commit would fail.
        let handle = log_of(&slice).handle();
        drop(slice);
        pool.logs_ended().await;
        let (left, _) = handle.use_roots().await.places[0];
        assert!(left > 0, "on the small disk, which fails, there is only metadata");
        pool.leave(&path(left.into())).await.unwrap();
        (pool, disks, id, handle)
    });
    let left = pool.leaving().map(|leaving| leaving.path);
    world.set_disk_faults(node, path(0), DiskFaults::default().with_unwritable(0..16 << 20));
    world.block_on(node, CORE, move || async move {
        let failed = pool.empty_logs().await;
        assert!(failed.is_err() && pool.metadata_state() == crate::pool::MetadataState::Failed);
        let places = handle.use_roots().await.places.clone();
        assert!(places.len() == 3 && places.iter().all(|(disk, _)| *disk > 0), "{places:?}");
        let slice = slices(&pool, &disks, id).remove(0);
        write(&slice, 3, 8, Durability::Durable).await.unwrap();
        log_of(&slice).inner.merge_all().await.unwrap();
        drop((slice, disks, handle));
        pool.logs_ended().await;
        drop(pool);
    });
    world.set_disk_faults(node, path(0), DiskFaults::default());
    world.block_on(node, CORE, move || async move {
        let pool = open(4).await;
        assert_eq!(pool.leaving().map(|leaving| leaving.path), left);
        let disks = pool.share_disks().attach();
        let slice = slices(&pool, &disks, id).remove(0);
        assert_eq!(read(&slice, 3).await, Ok(8));
        empty(&pool).await.unwrap();
        check(&slice).await;
        assert_eq!(read(&slice, 3).await, Ok(8));
    });
}

/// How many blocks are written while power cuts are recorded.
const CUT_BLOCKS: u64 = 150;

/// What was written to each block: the act, from which on it is durable once acknowledged, and the number.
type Writes = Vec<Vec<(u64, u64)>>;

/// Records how a disk leaves while its log is written.
fn record(seed: u64) -> (Recording, Rc<RefCell<Writes>>, VolumeId) {
    let world = World::new(seed);
    let node = machine(&world, 2, 8 << 20, 1);
    let writes = Rc::new(RefCell::new(Vec::new()));
    let shared = Rc::clone(&writes);
    let (pool, disks, id, slice) = world.block_on(node, CORE, move || async move {
        let (pool, disks, id, slice) = one_slice(CUT_BLOCKS * BLOCK).await;
        for number in [1, 1001] {
            for at in 0..CUT_BLOCKS {
                write(&slice, at, number + at, Durability::Durable).await.unwrap();
            }
        }
        *shared.borrow_mut() = (0..CUT_BLOCKS).map(|at| vec![(0, 1001 + at)]).collect();
        pool.add_disk(disk(1), true).await.unwrap();
        idle(&slice).await;
        (pool, disks, id, slice)
    });
    let (first, second) = (path(0), path(1));
    let recording = world.record_disks(&[(node, &first), (node, &second)]);
    let (acks, shared) = (recording.clone(), Rc::clone(&writes));
    world.block_on(node, CORE, move || async move {
        let mut rng = Rng::new(seed);
        let mut act = 0;
        let mut has_left = false;
        // With some seeds, no root is written while both mirrors move: what a cut finds then was copied.
        let pauses = seed.is_multiple_of(2);
        let inner = Rc::clone(&log_of(&slice).inner);
        inner.state.borrow_mut().checkpointing |= pauses;
        pool.leave(&path(0)).await.unwrap();
        if pauses {
            assert!(pool.empty_logs().await.unwrap());
            inner.state.borrow_mut().checkpointing = false;
            inner.settle();
        }
        drop(inner);
        for round in 0.. {
            for _ in 0..3 {
                act += 1;
                let at = rng.below(CUT_BLOCKS);
                shared.borrow_mut()[at as usize].push((act, 10_000 + act));
                write(&slice, at, 10_000 + act, Durability::Durable).await.unwrap();
                acks.ack(act);
            }
            if has_left {
                break;
            }
            assert!(round < 2000, "{:?}", pool.leaving());
            if !pool.empty_logs().await.unwrap() {
                pool.remove_disk(&path(0)).await.unwrap();
                has_left = true;
            }
            rt::sleep(Duration::from_millis(2)).await;
        }
        idle(&slice).await;
        drop((slice, disks));
    });
    (recording, writes, id)
}

/// What is wrong with the blocks, if anything.
async fn wrong(slice: &Slice, writes: &Writes, acked: u64) -> Option<String> {
    for (at, writes) in (0..).zip(writes) {
        let durable = writes.iter().rposition(|(act, _)| *act <= acked).expect("it was filled");
        match read(slice, at).await {
            Ok(found) if writes[durable..].iter().any(|(_, number)| *number == found) => {}
            found => return Some(format!("block {at} reads as {found:?}, of {writes:?}")),
        }
    }
    None
}

/// What is wrong after a cut, if anything. The disk leaves after all.
fn judge(images: Vec<DiskImage>, writes: &Rc<RefCell<Writes>>, id: VolumeId, acked: u64) -> Option<String> {
    let world = World::new(acked);
    let node = world.add_node("node", 1, |_| std::future::pending());
    for (number, image) in images.into_iter().enumerate() {
        world.put_disk(node, path(number), image);
    }
    let writes = writes.borrow().clone();
    world.block_on(node, CORE, move || async move {
        let options = OpenPool { host: host(), force: false, ram: ram(), uncertain: Some(path(0)) };
        let pool = match Pool::open(&[path(1)], options).await {
            Ok(pool) => pool,
            Err(error) => return Some(format!("the pool does not open: {error}")),
        };
        pool.set_log_tuning(tuning());
        pool.set_log_memory(LogMemory::new(MEMORY));
        let disks = pool.share_disks().attach();
        let slice = slices(&pool, &disks, id).remove(0);
        if slice.ready().await.is_err() {
            return Some("the log does not open".to_owned());
        }
        let found = wrong(&slice, &writes, acked).await;
        if found.is_some() {
            return found;
        }
        // From here on, each block has one value.
        let mut now = Writes::new();
        for at in 0..CUT_BLOCKS {
            now.push(vec![(0, read(&slice, at).await.unwrap())]);
        }
        check(&slice).await;
        if pool.leaving().is_some() {
            empty(&pool).await.unwrap();
            check(&slice).await;
        }
        wrong(&slice, &now, 0).await
    })
}

#[test]
fn every_cut_is_survived_while_a_disk_leaves() {
    for seed in 0..3 {
        let (recording, writes, id) = record(seed);
        let cuts = for_each_cut(&recording, Subsets { bits: 1, seed }, |cut| {
            if cut.at as u64 % 7 == seed {
                let wrong = judge(cut.images.clone(), &writes, id, cut.acked);
                assert_eq!(wrong, None, "seed {seed}, {cut}");
            }
        });
        assert!(cuts > 300, "{cuts}");
    }
}

/// Roots that are not copied are noticed.
#[test]
fn canary_roots_that_are_not_copied_are_noticed() {
    make(Some(Canary::MoveUncopied));
    let found = (0..3).any(|seed| {
        let Ok((recording, writes, id)) = std::panic::catch_unwind(|| record(seed)) else { return true };
        let mut found = None;
        for_each_cut(&recording, Subsets { bits: 1, seed }, |cut| {
            if found.is_none() {
                let (images, writes) = (cut.images.clone(), &writes);
                let judged = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                    judge(images, writes, id, cut.acked)
                }));
                found = judged.unwrap_or_else(|_| Some("a panic".to_owned()));
            }
        });
        found.is_some()
    });
    make(None);
    assert!(found);
}
