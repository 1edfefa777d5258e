//! Zones that the pool lends to logs, and gets back.

use super::super::Request;
use super::super::queue::Item;
use super::*;

/// Writes until the log has borrowed zones, unmaps everything, and waits until it has returned the unneeded
/// ones.
#[test]
fn zones_go_back_to_the_pool() {
    let world = World::new(1);
    let node = machine(&world, 1, 24 << 20, 1);
    world.block_on(node, CORE, || async {
        let pool = create(1).await;
        let id = pool.create_volume(spec("v", 1 << 30, 1)).await.unwrap().id;
        let fresh = pool.usage().free;
        let disks = pool.share_disks().attach();
        let slice = slices(&pool, &disks, id).remove(0);
        for at in 0..3000 {
            write(&slice, at, at + 1, Durability::Cached).await.unwrap();
        }
        let full = pool.usage().free;
        assert!(full.0 + (12 << 20) <= fresh.0, "{full:?} of {fresh:?}");
        slice.zero(ByteOffset(0), ByteLen(1 << 30)).await.unwrap();
        // Each zone is returned with a root of its own, and each root takes a record that finds the log in
        // this state.
        for at in 0..400 {
            slice.zero(ByteOffset(0), ByteLen(512 * BLOCK)).await.unwrap();
            write(&slice, at % 3, at + 1, Durability::Cached).await.unwrap();
            idle(&slice).await;
        }
        check(&slice).await;
        let free = pool.usage().free;
        assert!(free.0 >= fresh.0 - (4 << 20), "{free:?} of {fresh:?}");
        assert_eq!(read(&slice, 0).await, Ok(400));
    });
}

/// If the file system under a pool's file is full, there is no zone, hence no room. Nothing fails, and writes
/// continue when there is room.
#[test]
fn a_full_file_system_yields_no_zone_and_no_failure() {
    let world = World::new(1);
    let node = machine(&world, 0, 0, 1);
    world.set_space(node, Some(16 << 20));
    let (pool, slice) = world.block_on(node, CORE, || async {
        let disk = NewDisk { path: path(0), create: Some(ByteLen(64 << 20)), reserve: false };
        let extent = Some(ByteLen(64 << 10));
        let options = CreateOptions { name: "pool".into(), host: host(), extent, wipe: false, ram: ram() };
        let pool = Pool::create(vec![disk], options).await.unwrap();
        pool.set_log_tuning(tuning());
        let id = pool.create_volume(spec("v", 1 << 30, 1)).await.unwrap().id;
        let disks = pool.share_disks().attach();
        let slice = slices(&pool, &disks, id).remove(0);
        let mut at = 0;
        let full = loop {
            match write(&slice, at, at + 1, Durability::Durable).await {
                Ok(()) => at += 1,
                Err(error) => break error,
            }
        };
        assert_eq!(full, SliceError::Full);
        assert!(at > 500, "{at} blocks");
        for at in 0..at {
            assert_eq!(read(&slice, at).await, Ok(at + 1));
        }
        slice.zero(ByteOffset(0), ByteLen(BLOCK)).await.unwrap();
        check(&slice).await;
        assert!(!slice.is_offline());
        (pool, slice)
    });
    world.set_space(node, Some(32 << 20));
    world.block_on(node, CORE, || async move {
        for at in 0..1500 {
            write(&slice, at, at + 7, Durability::Durable).await.unwrap();
        }
        check(&slice).await;
        drop((pool, slice));
    });
}

/// Zones may lie on a disk that was added, although the core that runs the log was not informed of it.
#[test]
fn zones_may_lie_on_a_disk_that_was_added() {
    let world = World::new(1);
    let node = machine(&world, 2, 5 << 20, 1);
    world.block_on(node, CORE, || async {
        let (pool, _disks, _id, slice) = one_slice(1 << 30).await;
        pool.add_disk(NewDisk { path: path(1), create: None, reserve: false }, true).await.unwrap();
        for at in 0..600 {
            write(&slice, at, at + 1, Durability::Durable).await.unwrap();
        }
        for at in 0..600 {
            assert_eq!(read(&slice, at).await, Ok(at + 1));
        }
        check(&slice).await;
        assert!(pool.usage().disks[1].free < pool.usage().disks[1].total);
    });
}

/// A log that has found no space looks again when the disk that was leaving stays.
#[test]
fn zones_may_lie_on_a_disk_that_stays_after_all() {
    let world = World::new(1);
    let node = machine(&world, 2, 5 << 20, 1);
    world.block_on(node, CORE, || async {
        let pool = create(1).await;
        pool.add_disk(NewDisk { path: path(1), create: None, reserve: false }, true).await.unwrap();
        pool.leave(&path(1)).await.unwrap();
        let id = pool.create_volume(spec("v", 1 << 30, 1)).await.unwrap().id;
        let disks = pool.share_disks().attach();
        let slice = slices(&pool, &disks, id).remove(0);
        let mut filled = 0;
        let full = loop {
            match write(&slice, filled, filled + 1, Durability::Durable).await {
                Ok(()) => filled += 1,
                Err(error) => break error,
            }
        };
        assert_eq!(full, SliceError::Full);
        check(&slice).await;
        pool.stay().await.unwrap();
        for at in filled..filled + 256 {
            write(&slice, at, at + 1, Durability::Durable).await.unwrap();
        }
        check(&slice).await;
        assert!(pool.usage().disks[1].free < pool.usage().disks[1].total);
    });
}

/// The core that runs the log still knows the removed disk that had the place.
#[test]
fn zones_may_lie_on_a_disk_that_took_the_place_of_a_removed_one() {
    let world = World::new(1);
    let node = machine(&world, 3, 5 << 20, 1);
    world.block_on(node, CORE, || async {
        let pool = create(1).await;
        let id = pool.create_volume(spec("v", 1 << 30, 1)).await.unwrap().id;
        let disk = |number| NewDisk { path: path(number), create: None, reserve: false };
        pool.add_disk(disk(1), true).await.unwrap();
        let former = pool.share_disks().attach();
        pool.remove_disk(&path(1)).await.unwrap();
        pool.add_disk(disk(2), true).await.unwrap();
        let slice = slices(&pool, &former, id).remove(0);
        for at in 0..600 {
            write(&slice, at, at + 1, Durability::Durable).await.unwrap();
        }
        check(&slice).await;
        assert!(pool.usage().disks[1].free < pool.usage().disks[1].total);
        drop((slice, former));
        pool.logs_ended().await;
        drop(pool);
        let options = OpenPool { host: host(), force: false, ram: ram(), uncertain: None };
        let pool = Pool::open(&[path(0), path(2)], options).await.unwrap();
        pool.set_log_tuning(tuning());
        pool.set_log_memory(LogMemory::new(MEMORY));
        let disks = pool.share_disks().attach();
        let slice = slices(&pool, &disks, id).remove(0);
        for at in 0..600 {
            assert_eq!(read(&slice, at).await, Ok(at + 1));
        }
    });
}

/// The pool waits for the logs of its last log volume to end before it drops them, and answers no log
/// meanwhile: a log that waited for its answer would never end, and the pool would accept no change any more.
#[test]
fn a_volume_is_deleted_while_its_logs_wait_for_zones() {
    for seed in 0..8 {
        let world = World::new(seed);
        let node = machine(&world, 1, 24 << 20, 1);
        world.block_on(node, CORE, || async {
            let pool = create(1).await;
            let fresh = pool.usage().free;
            let id = pool.create_volume(spec("v", 1 << 30, 2)).await.unwrap().id;
            let disks = pool.share_disks().attach();
            let slices = slices(&pool, &disks, id);
            let is_asking = |slice: &Rc<Slice>| log_of(slice).inner.state.borrow().asking;
            for slice in &slices {
                write(slice, 1, 1, Durability::Durable).await.unwrap();
                idle(slice).await;
            }
            for slice in &slices {
                let inner = Rc::clone(&log_of(slice).inner);
                // It asks for one zone after the other, until it has room for 4 GiB.
                rt::spawn(async move { inner.reserve(1, 1 << 20).await }).detach();
            }
            let asked = async {
                while !slices.iter().all(is_asking) {
                    rt::sleep(Duration::from_micros(1)).await;
                }
            };
            let asked = rt::timeout(Duration::from_secs(1), asked).await;
            asked.expect("both ask at the same time before the pool is full");
            drop((slices, disks));
            let deleted = rt::timeout(std::time::Duration::from_secs(60), pool.delete_volume(id)).await;
            deleted.expect("it is not stuck").unwrap();
            assert_eq!(pool.usage().free, fresh);
        });
    }
}

/// A log is closed when a task of its own has not been given a record yet.
#[test]
fn a_log_ends_though_one_of_its_tasks_waits_for_a_record() {
    let world = World::new(1);
    let node = machine(&world, 1, 16 << 20, 1);
    world.block_on(node, CORE, || async {
        let (pool, disks, _id, slice) = one_slice(4 << 20).await;
        slice.ready().await.unwrap();
        idle(&slice).await;
        // As after a request whose caller is gone.
        let inner = Rc::clone(&log_of(&slice).inner);
        let zeros = vec![Item::Zeros { block: 0, count: 9 }];
        let zeroed = rt::spawn(async move { inner.append(7, zeros, false).await });
        drop((slice, disks));
        let ended = async {
            assert_eq!(zeroed.await, Err(SliceError::Offline));
            pool.logs_ended().await;
        };
        rt::timeout(std::time::Duration::from_secs(10), ended).await.expect("the log ends");
    });
}

/// The last log volume is deleted while a log's request to take a zone back is in the queue, and a new volume
/// is created: the new log has the same number, and a zone of the same number.
#[test]
fn a_zone_is_not_reclaimed_from_another_log() {
    let world = World::new(1);
    let node = machine(&world, 1, 16 << 20, 1);
    world.block_on(node, CORE, || async {
        let (pool, _disks, _id, slice) = one_slice(4 << 20).await;
        write(&slice, 1, 7, Durability::Durable).await.unwrap();
        let free = pool.usage().free;
        let handle = log_of(&slice).handle();
        let (reply, answer) = rt::sync::oneshot();
        handle.lender.ask(Request::Return { log: 0, identity: [9; 16], zone: 0, reply });
        answer.await.unwrap();
        assert_eq!(pool.usage().free, free);
        assert_eq!(read(&slice, 1).await, Ok(7));
    });
}

/// The pool accepts no changes, because a disk that has only metadata has failed. The log keeps its zones.
///
/// Before, it gave up one with each checkpoint. The pool did not take it, and the log could not use it
/// either.
#[test]
fn a_log_keeps_zones_that_the_pool_cannot_reclaim() {
    let world = World::new(1);
    let node = machine(&world, 1, 12 << 20, 1);
    for disk in [1, 2] {
        world.put_disk(node, path(disk), DiskImage::new(32 << 20, 512));
    }
    let (pool, disks, slice) = world.block_on(node, CORE, || async {
        let pool = create(3).await;
        let id = pool.create_volume(spec("v", 1 << 30, 1)).await.unwrap().id;
        let disks = pool.share_disks().attach();
        let slice = slices(&pool, &disks, id).remove(0);
        for at in 0..3000 {
            write(&slice, at, at + 1, Durability::Cached).await.unwrap();
        }
        idle(&slice).await;
        let handle = log_of(&slice).handle();
        assert!(handle.zones().values().all(|(disk, _)| *disk > 0), "the small disk has only metadata");
        (pool, disks, slice)
    });
    world.set_disk_faults(node, path(0), rt::sim::DiskFaults::default().with_unwritable(0..12 << 20));
    world.block_on(node, CORE, move || async move {
        let handle = log_of(&slice).handle();
        let before = handle.zones().len();
        slice.zero(ByteOffset(0), ByteLen(1 << 30)).await.unwrap();
        for round in 0..3 {
            for at in 0..100 {
                slice.zero(ByteOffset(0), ByteLen(512 * BLOCK)).await.unwrap();
                write(&slice, at % 3, at + 1, Durability::Cached).await.unwrap();
                idle(&slice).await;
            }
            // The outcome of the first commit is unknown; the later ones were not made.
            rt::sleep(std::time::Duration::from_secs(601)).await;
            assert!(
                handle.zones().len() + 2 >= before,
                "round {round}: {} of {before}",
                handle.zones().len()
            );
        }
        check(&slice).await;
        assert!(handle.zones().len() + 1 >= before, "{} of {before}", handle.zones().len());
        assert_eq!(read(&slice, 0).await, Ok(100));
        drop((pool, disks));
    });
}

/// If both slots of one mirror are damaged, the other mirror counts. If those of both are, the log and its
/// volumes are refused.
#[test]
fn roots_are_there_twice() {
    for mirrors in [1, 2] {
        let world = World::new(1);
        let node = machine(&world, 1, 16 << 20, 1);
        let (pool, id) = world.block_on(node, CORE, || async {
            let (pool, _disks, id, slice) = one_slice(4 << 20).await;
            write(&slice, 1, 7, Durability::Durable).await.unwrap();
            drop(slice);
            pool.logs_ended().await;
            (pool, id)
        });
        let mut disk = vec![0; 16 << 20];
        world.disk_image(node, path(0)).read(0, &mut disk);
        let roots = disk.chunks(4096).enumerate().filter(|(_, slot)| slot.starts_with(b"URSALOGR"));
        let roots: Vec<u64> = roots.map(|(slot, _)| slot as u64 * 4096).collect();
        assert_eq!(roots.len(), 4, "two slots in each mirror");
        for root in &roots[..2 * mirrors] {
            world.corrupt_disk(node, path(0), *root..*root + 512);
        }
        world.block_on(node, CORE, move || async move {
            let disks = pool.share_disks().attach();
            let slice = slices(&pool, &disks, id).remove(0);
            let expected = if mirrors == 1 { Ok(7) } else { Err(SliceError::Offline) };
            assert_eq!(read(&slice, 1).await, expected);
            assert_eq!(slice.is_offline(), mirrors == 2);
        });
    }
}

/// The catalog is older than the log, as if the pool had been set back: the log's segments belong to
/// something else.
#[test]
fn a_log_whose_segments_are_somebody_elses_is_refused() {
    let world = World::new(1);
    let node = machine(&world, 1, 16 << 20, 1);
    world.block_on(node, CORE, || async {
        let (pool, disks, id, slice) = one_slice(1 << 30).await;
        for at in 0..900 {
            write(&slice, at, at + 1, Durability::Durable).await.unwrap();
        }
        idle(&slice).await;
        let handle = log_of(&slice).handle();
        drop(slice);
        pool.logs_ended().await;
        let zones = handle.zones();
        assert!(zones.len() > 1);
        zones.keys().skip(1).for_each(|zone| handle.remove_zone(*zone));
        let slice = slices(&pool, &disks, id).remove(0);
        assert_eq!(slice.ready().await, Err(SliceError::Offline));
        assert_eq!(write(&slice, 1, 1, Durability::Durable).await, Err(SliceError::Offline));
    });
}

/// A failed write takes the log out of service, as it does the disk.
#[test]
fn a_log_is_out_of_service_after_a_failed_write() {
    let world = World::new(1);
    let node = machine(&world, 1, 16 << 20, 1);
    let (pool, slice) = world.block_on(node, CORE, || async {
        let (pool, _disks, _id, slice) = one_slice(4 << 20).await;
        write(&slice, 1, 7, Durability::Durable).await.unwrap();
        (pool, slice)
    });
    let faults = rt::sim::DiskFaults::default().with_unwritable(0..16 << 20);
    world.set_disk_faults(node, path(0), faults);
    world.block_on(node, CORE, || async move {
        assert_eq!(write(&slice, 2, 8, Durability::Durable).await, Err(SliceError::Unwritable));
        assert_eq!(write(&slice, 2, 8, Durability::Durable).await, Err(SliceError::Offline));
        assert_eq!(slice.flush().await, Err(SliceError::Offline));
        assert!(slice.is_offline());
        drop((pool, slice));
    });
}

/// A disk whose reads fail for a moment while a log is opened does not keep the log closed.
#[test]
fn a_log_opens_though_its_disk_fails_reads_for_a_moment() {
    let world = World::new(1);
    let node = machine(&world, 1, 16 << 20, 1);
    let (pool, id) = world.block_on(node, CORE, || async {
        let (pool, disks, id, slice) = one_slice(4 << 20).await;
        write(&slice, 1, 7, Durability::Durable).await.unwrap();
        drop((slice, disks));
        pool.logs_ended().await;
        (pool, id)
    });
    let faults = rt::sim::DiskFaults::default().with_unreadable(0..16 << 20);
    world.set_disk_faults(node, path(0), faults);
    let disks = pool.share_disks().attach();
    let slice = world.block_on(node, CORE, move || async move { slices(&pool, &disks, id).remove(0) });
    world.run_for(std::time::Duration::from_millis(400));
    world.set_disk_faults(node, path(0), rt::sim::DiskFaults::default());
    world.block_on(node, CORE, move || async move {
        slice.ready().await.unwrap();
        assert_eq!(read(&slice, 1).await, Ok(7));
    });
}
