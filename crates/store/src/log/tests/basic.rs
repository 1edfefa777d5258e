use super::*;

#[test]
fn writes_are_read_back_even_after_reopening() {
    let world = World::new(1);
    let node = machine(&world, 1, 16 << 20, 1);
    world.block_on(node, CORE, || async {
        let pool = create(1).await;
        let before = pool.usage().free;
        let id = pool.create_volume(spec("v", 4 << 20, 1)).await.unwrap().id;
        let disks = pool.share_disks().attach();
        {
            let slices = slices(&pool, &disks, id);
            let slice = &slices[0];
            for at in 0..200 {
                assert_eq!(read(slice, at).await, Ok(0));
                write(slice, at, at + 1, Durability::Durable).await.unwrap();
                assert_eq!(read(slice, at).await, Ok(at + 1));
            }
            slice.zero(ByteOffset(50 * BLOCK), ByteLen(50 * BLOCK)).await.unwrap();
            // Write parts of blocks.
            slice.write(ByteOffset(BLOCK / 2), Chain::copy_of(&block(7)), Durability::Durable).await.unwrap();
            check(slice).await;
            let all = slice.read(ByteOffset(0), ByteLen(4 << 20)).await.unwrap().to_vec();
            assert_eq!(all[..BLOCK as usize / 2], block(1)[..BLOCK as usize / 2]);
            assert_eq!(all[BLOCK as usize / 2..BLOCK as usize * 3 / 2], block(7));
            let ranges = slice.allocated(ByteOffset(0), ByteLen(4 << 20), 9).await.unwrap();
            assert_eq!(
                ranges,
                [(ByteOffset(0), ByteLen(50 * BLOCK)), (ByteOffset(100 * BLOCK), ByteLen(100 * BLOCK))]
            );
        }
        pool.logs_ended().await;
        drop((pool, disks));
        let pool = open(1).await;
        let disks = pool.share_disks().attach();
        {
            let slices = slices(&pool, &disks, id);
            let slice = &slices[0];
            slice.ready().await.unwrap();
            for at in 2..200 {
                let expected = if (50..100).contains(&at) { 0 } else { at + 1 };
                assert_eq!(read(slice, at).await, Ok(expected), "block {at}");
            }
            check(slice).await;
            assert_eq!(pool.volume(id).unwrap().reserved, ByteLen(150 * BLOCK));
            assert!(matches!(pool.delete_volume(id).await, Err(crate::StoreError::VolumeOpen(_))));
        }
        pool.delete_volume(id).await.unwrap();
        assert_eq!(pool.usage().free, before, "the last log volume leaves nothing");
        pool.export().await.unwrap();
    });
}

/// Otherwise a check would find what the recovery has not merged yet.
#[test]
fn a_log_that_is_being_recovered_is_not_at_rest() {
    let world = World::new(1);
    let node = machine(&world, 1, 16 << 20, 1);
    world.block_on(node, CORE, || async {
        let (pool, disks, id, slice) = one_slice(4 << 20).await;
        for at in 0..200 {
            write(&slice, at, at + 1, Durability::Durable).await.unwrap();
        }
        drop(slice);
        pool.logs_ended().await;
        drop((pool, disks));
        let pool = open(1).await;
        let disks = pool.share_disks().attach();
        let slice = slices(&pool, &disks, id).remove(0);
        assert!(!log_of(&slice).is_idle());
        check(&slice).await;
        assert!(log_of(&slice).is_idle());
    });
}

#[test]
fn a_durable_write_of_a_block_is_one_device_write() {
    let world = World::new(1);
    let node = machine(&world, 1, 16 << 20, 1);
    let (pool, slice) = world.block_on(node, CORE, || async {
        let (pool, _disks, _id, slice) = one_slice(4 << 20).await;
        slice.ready().await.unwrap();
        (pool, slice)
    });
    let recording = world.record_disk(node, path(0));
    let slice = world.block_on(node, CORE, || async move {
        for at in 0..5 {
            write(&slice, at, 1 + at, Durability::Durable).await.unwrap();
        }
        slice
    });
    // One write each: its start and its completion are recorded.
    assert_eq!(recording.len(), 10);
    world.block_on(node, CORE, || async move { drop((pool, slice)) });
}

#[test]
fn bit_rot_is_reported_and_never_returned() {
    for seed in 0..20 {
        let world = World::new(seed);
        let node = machine(&world, 1, 16 << 20, 1);
        let (pool, slice) = world.block_on(node, CORE, || async {
            let (pool, _disks, _id, slice) = one_slice(4 << 20).await;
            for at in 0..100 {
                write(&slice, at, at + 1, Durability::Durable).await.unwrap();
            }
            idle(&slice).await;
            (pool, slice)
        });
        let mut disk = vec![0; 16 << 20];
        world.disk_image(node, path(0)).read(0, &mut disk);
        let target = seed * 5 % 100;
        let wanted = block(target + 1);
        let found: Vec<usize> =
            disk.chunks(4096).enumerate().filter(|(_, slot)| *slot == wanted).map(|(at, _)| at).collect();
        for slot in found {
            let at = (slot * 4096) as u64 + 512 * (seed % 8);
            world.corrupt_disk(node, path(0), at..at + 512);
        }
        world.block_on(node, CORE, move || async move {
            let error = read(&slice, target).await.unwrap_err();
            let SliceError::Unreadable(bad) = error else { panic!("{error}") };
            assert_eq!((bad.offset.0, bad.cause), (target * BLOCK, crate::ReadFailure::Medium));
            // Other blocks are not affected, and the bad one can be written again.
            let other = (target + 1) % 100;
            assert_eq!(read(&slice, other).await, Ok(other + 1));
            slice.rewrite(ByteOffset(target * BLOCK), Chain::copy_of(&block(target + 1))).await.unwrap();
            assert_eq!(read(&slice, target).await, Ok(target + 1));
            drop((pool, slice));
        });
    }
}

/// The error names the disk of the part of the map, and its place there.
#[test]
fn a_part_of_the_map_that_cannot_be_read_is_named() {
    const BYTES: usize = 32 << 20;
    let world = World::new(1);
    let node = machine(&world, 1, 8 << 20, 1);
    // The log lies where most space is left.
    world.put_disk(node, path(1), DiskImage::new(BYTES as u64, 512));
    let id = world.block_on(node, CORE, || async {
        let pool = create(2).await;
        let id = pool.create_volume(spec("v", 4 << 20, 1)).await.unwrap().id;
        let disks = pool.share_disks().attach();
        let slice = slices(&pool, &disks, id).remove(0);
        for at in 0..200 {
            write(&slice, at, at + 1, Durability::Durable).await.unwrap();
        }
        drop((slice, disks));
        pool.logs_ended().await;
        id
    });
    let (pool, slice) = world.block_on(node, CORE, move || async move {
        let pool = open(2).await;
        // No part of the map stays in memory.
        pool.set_log_memory(LogMemory::new(ByteLen(1)));
        let disks = pool.share_disks().attach();
        let slice = slices(&pool, &disks, id).remove(0);
        slice.ready().await.unwrap();
        idle(&slice).await;
        (pool, slice)
    });
    let mut disk = vec![0; BYTES];
    world.disk_image(node, path(1)).read(0, &mut disk);
    let has_leaf =
        |slot: &[u8]| slot.chunks(super::super::leaf::LEAF_GRAIN).any(|grain| grain.starts_with(b"ULEF"));
    let slots = (0..).step_by(BLOCK as usize).zip(disk.chunks(BLOCK as usize));
    let leaves: Vec<u64> = slots.filter(|(_, slot)| has_leaf(slot)).map(|(at, _)| at).collect();
    let spoil = |faults: rt::sim::DiskFaults, at: &u64| faults.with_unreadable(*at..*at + BLOCK);
    world.set_disk_faults(node, path(1), leaves.iter().fold(rt::sim::DiskFaults::default(), spoil));
    world.block_on(node, CORE, move || async move {
        let found = slice.allocated(ByteOffset(0), ByteLen(4 << 20), 9).await;
        let Err(SliceError::Unreadable(bad)) = found else { panic!("{found:?}") };
        assert_eq!((bad.offset.0, bad.disk, bad.cause), (0, 1, crate::ReadFailure::Map));
        assert!(leaves.contains(&(bad.disk_offset / BLOCK * BLOCK)), "{bad:?}");
        drop((pool, slice));
    });
}

/// Rot of the last record, after which the log has written a record without entries.
///
/// The rotted record was durable, so its block is bad, and does not revert to its previous content.
#[test]
fn rot_of_the_last_record_does_not_bring_back_what_was_there_before() {
    for durability in [Durability::Durable, Durability::Cached] {
        let world = World::new(1);
        let node = machine(&world, 1, 16 << 20, 1);
        let id = world.block_on(node, CORE, move || async move {
            let (_pool, _disks, id, slice) = one_slice(4 << 20).await;
            write(&slice, 7, 1, Durability::Durable).await.unwrap();
            write(&slice, 7, 2, durability).await.unwrap();
            slice.flush().await.unwrap();
            rt::sleep(2 * super::super::append::SAY_AFTER).await;
            id
        });
        world.crash(node);
        let image = world.disk_image(node, path(0));
        let mut slot = vec![0; BLOCK as usize];
        let is_it = |at: &u64| {
            image.read(*at, &mut slot);
            slot == block(2)
        };
        let at = (0..16 << 20).step_by(BLOCK as usize).find(is_it).unwrap();
        world.corrupt_disk(node, path(0), at..at + 512);
        world.restart(node, |_| std::future::pending());
        world.block_on(node, CORE, move || async move {
            let pool = open(1).await;
            let disks = pool.share_disks().attach();
            let slice = slices(&pool, &disks, id).remove(0);
            let found = read(&slice, 7).await;
            assert!(matches!(found, Err(SliceError::Unreadable(_))), "{durability:?}: {found:?}");
        });
    }
}

/// Slice s of every log volume belongs to one core, however many cores there are; no log is opened twice.
#[test]
fn three_cores_have_a_log_each() {
    let world = World::new(3);
    let node = machine(&world, 1, 32 << 20, 3);
    let (pool, ids) = world.block_on(node, CORE, || async {
        let pool = create(1).await;
        let mut ids = Vec::new();
        for name in ["a", "b"] {
            ids.push(pool.create_volume(spec(name, 4 << 20, 4)).await.unwrap().id);
        }
        (pool, ids)
    });
    let mut open = Vec::new();
    for core in 0..3 {
        let (specs, disks) = world.inspect(node, CORE, || {
            let specs: Vec<_> =
                ids.iter().flat_map(|id| pool.volume_slices(*id, CoreId(core), 3).unwrap()).collect();
            (specs, pool.share_disks())
        });
        let slices = world.block_on(node, CoreId(core), move || async move {
            let disks = disks.attach();
            let slices: Vec<Slice> = specs.into_iter().map(|spec| spec.open(&disks)).collect();
            for (number, slice) in slices.iter().enumerate() {
                for at in 0..40 {
                    write(slice, at, at + 100 * number as u64 + 1, Durability::Durable).await.unwrap();
                }
            }
            for (number, slice) in slices.iter().enumerate() {
                for at in 0..40 {
                    assert_eq!(read(slice, at).await, Ok(at + 100 * number as u64 + 1));
                }
                check(slice).await;
            }
            slices
        });
        open.push((core, slices));
    }
    // Slice 1 belongs to core 1.
    let spec = world.inspect(node, CORE, || pool.volume_slices(ids[0], CoreId(1), 3).unwrap().remove(0));
    let (disks, handle) = world.inspect(node, CORE, || (pool.share_disks(), pool.share_disks()));
    drop(handle);
    let refused = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        world.inspect(node, CORE, || drop(spec.open(&disks.attach())));
    }));
    assert!(refused.is_err(), "the log is open on core 1");
    for (core, slices) in open {
        world.inspect(node, CoreId(core), || drop(slices));
    }
    world.block_on(node, CORE, || async move { pool.export().await.unwrap() });
}

/// What a guest writes is data, even if it looks like a record, or like a whole pool.
#[test]
fn a_guest_may_write_records() {
    let world = World::new(1);
    let node = machine(&world, 1, 16 << 20, 1);
    world.block_on(node, CORE, || async {
        let pool = create(1).await;
        let id = pool.create_volume(spec("v", 4 << 20, 1)).await.unwrap().id;
        let disks = pool.share_disks().attach();
        let mut looks = crate::fuzzing::head_example().encode();
        let several = [block(5), looks.to_vec(), block(6)].concat();
        {
            let slice = slices(&pool, &disks, id).remove(0);
            slice.write(ByteOffset(0), Chain::copy_of(&looks), Durability::Durable).await.unwrap();
            looks[..8].iter_mut().for_each(|byte| *byte = !*byte);
            slice.write(ByteOffset(BLOCK), Chain::copy_of(&looks), Durability::Durable).await.unwrap();
            let written = Chain::copy_of(&several);
            slice.write(ByteOffset(2 * BLOCK), written.clone(), Durability::Durable).await.unwrap();
            assert_eq!(written.to_vec(), several, "the host's memory remains as it is");
        }
        pool.logs_ended().await;
        let slice = slices(&pool, &disks, id).remove(0);
        assert_eq!(slice.read(ByteOffset(BLOCK), ByteLen(BLOCK)).await.unwrap().to_vec(), looks.to_vec());
        looks[..8].iter_mut().for_each(|byte| *byte = !*byte);
        assert_eq!(slice.read(ByteOffset(0), ByteLen(BLOCK)).await.unwrap().to_vec(), looks.to_vec());
        assert_eq!(slice.read(ByteOffset(2 * BLOCK), ByteLen(3 * BLOCK)).await.unwrap().to_vec(), several);
    });
}

/// A recovery looks for records in windows of 1 MiB.
///
/// Once, each window began where the longest record might not have fitted into the last one: of short
/// records, it read nearly three times as much as it scanned.
#[test]
fn a_recovery_reads_once_what_it_scans() {
    /// Each has four windows.
    const SEGMENT: ByteLen = ByteLen(4 << 20);
    /// Roots and the state of the map.
    const OTHER_READS: u32 = 12;
    let world = World::new(1);
    let node = world.add_node("node", 1, |_| std::future::pending());
    world.put_disk(node, path(0), DiskImage::new(96 << 20, 512));
    let (pool, disks, id, slice) = world.block_on(node, CORE, || async {
        let pool = create(1).await;
        pool.set_log_tuning(LogTuning { segment: Some(SEGMENT), ..tuning() });
        let id = pool.create_volume(spec("v", 4 << 20, 1)).await.unwrap().id;
        let disks = pool.share_disks().attach();
        let slice = slices(&pool, &disks, id).remove(0);
        for number in 1..10 {
            write(&slice, number, number, Durability::Durable).await.unwrap();
        }
        idle(&slice).await;
        (pool, disks, id, slice)
    });
    read_slowly(&world, node);
    world.block_on(node, CORE, move || async move {
        // Those that are announced, and the one with the records.
        let scanned = log_of(&slice).inner.state.borrow().segments.ready.len() as u32 + 1;
        assert!(scanned > 5, "{scanned} segments");
        drop(slice);
        pool.logs_ended().await;
        let began = rt::now();
        let slice = slices(&pool, &disks, id).remove(0);
        slice.ready().await.unwrap();
        let took = rt::now() - began;
        assert!(took < STEP * (4 * scanned + OTHER_READS), "{took:?} for {scanned} segments");
        assert_eq!(read(&slice, 9).await, Ok(9));
    });
}
