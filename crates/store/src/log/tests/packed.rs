//! Compressed blocks: what they take, what is read, and what the cleaner makes of them.

use super::super::pack::Packer;
use super::super::place::{QUARTER_BYTES, SLOT_BYTES};
use super::*;
use crate::error::ReadFailure;

fn compressed(capacity: u64) -> VolumeSpec {
    VolumeSpec { compression: Compression::Lz4, ..spec("v", capacity, 1) }
}

/// A number whose block shrinks to a quarter.
fn small(number: u64) -> u64 {
    3 * number
}

/// Bytes that the log has written, for whatever reason.
fn written(slice: &Slice) -> u64 {
    log_of(slice).inner.state.borrow().written
}

#[test]
fn a_durable_write_of_a_block_that_shrinks_takes_one_slot() {
    let world = World::new(1);
    let node = machine(&world, 1, 16 << 20, 1);
    world.block_on(node, CORE, || async {
        let (pool, _disks, id, slice) = one_slice_of(compressed(4 << 20)).await;
        slice.ready().await.unwrap();
        let before = written(&slice);
        for at in 0..20 {
            write(&slice, at, small(at + 1), Durability::Durable).await.unwrap();
        }
        // A half fits behind the head, too.
        for at in 20..40 {
            write(&slice, at, small(at) + 1, Durability::Durable).await.unwrap();
        }
        assert_eq!(written(&slice) - before, 40 * BLOCK);
        write(&slice, 40, small(40) + 2, Durability::Durable).await.unwrap();
        assert_eq!(written(&slice) - before, 42 * BLOCK);
        for at in 0..20 {
            assert_eq!(read(&slice, at).await, Ok(small(at + 1)));
        }
        for at in 20..40 {
            assert_eq!(read(&slice, at).await, Ok(small(at) + 1));
        }
        assert_eq!(read(&slice, 40).await, Ok(small(40) + 2));
        check(&slice).await;
        let info = pool.volume(id).unwrap();
        assert_eq!(info.in_logs.mapped, ByteLen(41 * BLOCK));
        assert_eq!(info.in_logs.stored, ByteLen((20 + 2 * 20 + 4) * QUARTER_BYTES as u64));
        assert_eq!(info.reserved, info.in_logs.stored);
        slice.zero(ByteOffset(0), ByteLen(4 << 20)).await.unwrap();
        check(&slice).await;
        assert_eq!(pool.volume(id).unwrap().in_logs, crate::InLogs::default());
    });
}

/// A long write of all kinds of blocks is read as a whole, block by block, and after reopening.
#[test]
fn long_writes_take_what_their_blocks_need() {
    const BLOCKS: u64 = 600;
    let world = World::new(1);
    let node = machine(&world, 1, 16 << 20, 1);
    world.block_on(node, CORE, || async {
        let (pool, disks, id, slice) = one_slice_of(compressed(4 << 20)).await;
        slice.ready().await.unwrap();
        let before = written(&slice);
        let bytes: Vec<u8> = (1..=BLOCKS).flat_map(block).collect();
        slice.write(ByteOffset(0), Chain::copy_of(&bytes), Durability::Cached).await.unwrap();
        let quarters = BLOCKS / 3 * (1 + 2 + 4);
        assert!(written(&slice) - before < quarters * QUARTER_BYTES as u64 * 14 / 10, "few slots are wasted");
        check(&slice).await;
        assert_eq!(pool.volume(id).unwrap().in_logs.stored, ByteLen(quarters * QUARTER_BYTES as u64));
        let all = |slice: Rc<Slice>| async move {
            let read = slice.read(ByteOffset(0), ByteLen(BLOCKS * BLOCK)).await.unwrap();
            read.to_vec()
        };
        assert!(all(Rc::clone(&slice)).await == bytes);
        // A part of a block is written.
        slice
            .write(ByteOffset(5 * BLOCK + 512), Chain::copy_of(&[9; 512]), Durability::Durable)
            .await
            .unwrap();
        let mut bytes = bytes;
        bytes[5 * BLOCK as usize + 512..][..512].fill(9);
        drop((slice, disks));
        pool.logs_ended().await;
        drop(pool);
        let pool = open(1).await;
        let disks = pool.share_disks().attach();
        let slice = slices(&pool, &disks, id).remove(0);
        assert!(all(Rc::clone(&slice)).await == bytes);
        for at in 6..BLOCKS {
            assert_eq!(read(&slice, at).await, Ok(at + 1));
        }
        check(&slice).await;
    });
}

/// A log is full of blocks that do not shrink, and some are overwritten by blocks that do: a write that finds
/// no room has this merged.
#[test]
fn blocks_that_shrink_more_than_those_before_make_room() {
    const SHRUNK: u64 = 60;
    const MORE: u64 = 80;
    let world = World::new(1);
    let node = machine(&world, 1, 16 << 20, 1);
    world.block_on(node, CORE, || async {
        let (_pool, _disks, _id, slice) = one_slice_of(compressed(64 << 20)).await;
        // Mostly blocks that do not shrink, but not so many in a row that compression is given up for a
        // while.
        let mixed = |number| small(number) + if number % 20 == 19 { 0 } else { 2 };
        let mut filled = 0;
        let full = loop {
            match write(&slice, filled, mixed(filled), Durability::Durable).await {
                Ok(()) => filled += 1,
                Err(error) => break error,
            }
        };
        assert_eq!(full, SliceError::Full);
        // Room for what shrinks, and not for all of the rest.
        slice.zero(ByteOffset(0), ByteLen(64 * BLOCK)).await.unwrap();
        log_of(&slice).inner.merge_all().await.unwrap();
        let bytes: Vec<u8> = (1..=SHRUNK).flat_map(|number| block(small(number))).collect();
        slice.write(ByteOffset(64 * BLOCK), Chain::copy_of(&bytes), Durability::Durable).await.unwrap();
        let bytes: Vec<u8> = (filled..filled + MORE).flat_map(|number| block(mixed(number))).collect();
        let written = slice.write(ByteOffset(filled * BLOCK), Chain::copy_of(&bytes), Durability::Durable);
        assert_eq!(written.await, Ok(()));
        for at in 0..SHRUNK {
            assert_eq!(read(&slice, 64 + at).await, Ok(small(at + 1)));
        }
        for at in 64 + SHRUNK..filled + MORE {
            assert_eq!(read(&slice, at).await, Ok(mixed(at)));
        }
        check(&slice).await;
    });
}

/// Corrupts the only block on a disk of this size that begins with `number`, and shrinks.
fn rot(world: &World, node: NodeId, disk: usize, number: u64) {
    let mut stored = Vec::new();
    let written: [u8; SLOT_BYTES] = block(number).try_into().unwrap();
    Packer::default().pack(&written, &mut stored);
    let mut bytes = vec![0; disk];
    world.disk_image(node, path(0)).read(0, &mut bytes);
    let parts = (0..).zip(bytes.chunks(QUARTER_BYTES));
    let found: Vec<usize> = parts.filter(|(_, part)| *part == stored).map(|(at, _)| at).collect();
    let [part] = found[..] else { panic!("{found:?}") };
    let at = (part * QUARTER_BYTES) as u64;
    // What follows the compressed block in its quarter is nobody's.
    let len = stored.iter().rposition(|byte| *byte != 0).unwrap() + 1;
    let mut now = stored[..len].to_vec();
    while now == stored[..len] {
        world.corrupt_disk(node, path(0), at..at + 512);
        world.disk_image(node, path(0)).read(at, &mut now);
    }
}

/// One block of a slot rots: the others of the slot are still read.
#[test]
fn rot_of_a_part_of_a_slot_is_told_and_never_returned() {
    const BAD: u64 = 5;
    let world = World::new(1);
    let node = machine(&world, 1, 16 << 20, 1);
    let (pool, slice) = world.block_on(node, CORE, || async {
        let (pool, _disks, _id, slice) = one_slice_of(compressed(4 << 20)).await;
        let bytes: Vec<u8> = (0..60).flat_map(|at| block(small(at + 1))).collect();
        slice.write(ByteOffset(0), Chain::copy_of(&bytes), Durability::Durable).await.unwrap();
        idle(&slice).await;
        (pool, slice)
    });
    rot(&world, node, 16 << 20, small(BAD + 1));
    world.block_on(node, CORE, move || async move {
        let error = read(&slice, BAD).await.unwrap_err();
        let SliceError::Unreadable(bad) = error else { panic!("{error}") };
        assert_eq!((bad.offset.0, bad.cause), (BAD * BLOCK, ReadFailure::Medium));
        let all = slice.read(ByteOffset(0), ByteLen(60 * BLOCK)).await;
        assert!(matches!(all, Err(SliceError::Unreadable(bad)) if bad.offset.0 == BAD * BLOCK));
        for other in (0..60).filter(|at| *at != BAD) {
            assert_eq!(read(&slice, other).await, Ok(small(other + 1)));
        }
        slice.rewrite(ByteOffset(BAD * BLOCK), Chain::copy_of(&block(small(BAD + 1)))).await.unwrap();
        assert_eq!(read(&slice, BAD).await, Ok(small(BAD + 1)));
        drop((pool, slice));
    });
}

/// A block behind a head rots, and so the head does not count any more: nothing says which block is live
/// there. The cleaner leaves the segment alone until that block is repaired.
#[test]
fn a_segment_whose_head_has_rotted_is_not_cleaned_again_and_again() {
    const LOST: u64 = 600;
    let world = World::new(1);
    let node = machine(&world, 1, 8 << 20, 1);
    let (pool, disks, slice) = world.block_on(node, CORE, || async {
        let (pool, disks, _id, slice) = one_slice_of(compressed(4 << 20)).await;
        write(&slice, LOST, small(1), Durability::Durable).await.unwrap();
        for at in 0..30 {
            write(&slice, at, small(at + 2), Durability::Durable).await.unwrap();
        }
        log_of(&slice).inner.merge_all().await.unwrap();
        idle(&slice).await;
        (pool, disks, slice)
    });
    rot(&world, node, 8 << 20, small(1));
    world.block_on(node, CORE, move || async move {
        let stuck = || log_of(&slice).inner.state.borrow().segments.stuck;
        let mut rng = Rng::new(1);
        let mut expected = [0; LOST as usize];
        for number in 100..6000 {
            let at = rng.below(LOST);
            write(&slice, at, small(number), Durability::Cached).await.unwrap();
            expected[at as usize] = small(number);
        }
        for (at, number) in (30..).zip(&expected[30..]) {
            assert_eq!(read(&slice, at).await, Ok(*number));
        }
        check(&slice).await;
        assert_eq!(stuck(), 1);
        assert!(matches!(read(&slice, LOST).await, Err(SliceError::Unreadable(_))));
        slice.rewrite(ByteOffset(LOST * BLOCK), Chain::copy_of(&block(small(1)))).await.unwrap();
        assert_eq!(read(&slice, LOST).await, Ok(small(1)));
        for _ in 0..2 {
            log_of(&slice).inner.merge_all().await.unwrap();
        }
        check(&slice).await;
        assert_eq!(stuck(), 0);
        drop((pool, disks, slice));
    });
}

/// A volume that is larger than the pool is overwritten at random: slots keep one or two of their blocks, and
/// the cleaner puts these together.
#[test]
fn the_cleaner_packs_what_is_left_of_slots() {
    for seed in 0..4 {
        let world = World::new(seed);
        let node = machine(&world, 1, 8 << 20, 1);
        world.block_on(node, CORE, move || async move {
            let blocks: u64 = if seed % 2 == 0 { 2400 } else { 1000 };
            let (_pool, _disks, _id, slice) = one_slice_of(compressed(blocks * BLOCK)).await;
            let mut rng = Rng::new(seed);
            let mut expected = vec![0; blocks as usize];
            for number in 1..8000 {
                let at = rng.below(blocks);
                // Only blocks that shrink to a quarter, or blocks of all kinds.
                let number = if seed % 2 == 0 { small(number) } else { number };
                write(&slice, at, number, Durability::Cached).await.unwrap();
                expected[at as usize] = number;
            }
            for (at, number) in (0..).zip(&expected) {
                assert_eq!(read(&slice, at).await, Ok(*number));
            }
            check(&slice).await;
        });
    }
}

/// How many quarters of slots a volume takes.
async fn stored(slice: &Slice, pool: &Pool) -> u64 {
    check(slice).await;
    let volumes = pool.volumes();
    let [volume] = &volumes[..] else { panic!("one volume") };
    volume.in_logs.stored.0 / QUARTER_BYTES as u64
}

/// The setting holds for what is written from then on.
#[test]
fn compression_can_be_turned_off_and_on() {
    let world = World::new(1);
    let node = machine(&world, 1, 16 << 20, 1);
    world.block_on(node, CORE, || async {
        let (pool, disks, id, slice) = one_slice_of(compressed(4 << 20)).await;
        for at in 0..30 {
            write(&slice, at, small(1), Durability::Cached).await.unwrap();
        }
        assert_eq!(stored(&slice, &pool).await, 30);
        let info = pool.set_compression(id, Compression::Off).await.unwrap();
        assert_eq!(info.compression, Compression::Off);
        for at in 20..30 {
            write(&slice, at, small(2), Durability::Cached).await.unwrap();
        }
        log_of(&slice).inner.merge_all().await.unwrap();
        assert_eq!(stored(&slice, &pool).await, 20 + 4 * 10);
        drop(slice);
        pool.logs_ended().await;
        let slice = slices(&pool, &disks, id).remove(0);
        write(&slice, 0, small(3), Durability::Cached).await.unwrap();
        log_of(&slice).inner.merge_all().await.unwrap();
        assert_eq!(stored(&slice, &pool).await, 19 + 4 * 11);
        pool.set_compression(id, Compression::Lz4).await.unwrap();
        write(&slice, 0, small(4), Durability::Cached).await.unwrap();
        log_of(&slice).inner.merge_all().await.unwrap();
        assert_eq!(stored(&slice, &pool).await, 20 + 4 * 10);
        assert_eq!(read(&slice, 0).await, Ok(small(4)));
    });
}
