//! Records that have rotted.

use base::Buf;

use super::super::append::Survivor;
use super::super::record::Stream;
use super::*;

/// A move of the cleaner that is not in the map yet is not needed: its block is where it was.
///
/// Once, recovery took such a move although what was moved had rotted, and gave up the good block.
#[test]
fn a_moved_block_that_has_rotted_is_read_where_it_was() {
    let world = World::new(1);
    let node = machine(&world, 1, 16 << 20, 1);
    let (pool, disks, id, slice, moved_to) = world.block_on(node, CORE, || async {
        let (pool, disks, id, slice) = one_slice(4 << 20).await;
        write(&slice, 1, 7, Durability::Durable).await.unwrap();
        let log = log_of(&slice);
        let inner = &log.inner;
        inner.merge_all().await.unwrap();
        idle(&slice).await;
        let (leaf_era, _) = *inner.state.borrow().leaves.first_key_value().unwrap().0;
        let (branch, era) = (leaf_era.branch, leaf_era.number);
        let stored = inner.spots(branch, 1..2).await.unwrap()[0].stored().unwrap();
        let (disk, _, at) = inner.locate(stored.place).unwrap();
        let data = disk.read(at, Buf::uncleared(BLOCK as usize)).await.unwrap().share();
        let generation = {
            let mut state = inner.state.borrow_mut();
            // No checkpoint merges the move.
            state.checkpointing = true;
            assert!(state.open_next(Stream::Survivors));
            state.segments.used[&stored.place.segment].generation
        };
        let (from, crc) = (stored.place, stored.crc);
        let moved =
            inner.survivors_record(vec![Survivor { branch, era, block: 1, from, generation, crc, data }]);
        let moved = moved.unwrap();
        let to = moved.0.place.next();
        inner.write_survivors(moved).await.unwrap();
        inner.flush().await.unwrap();
        // Its head says that the move is durable.
        write(&slice, 2, 8, Durability::Durable).await.unwrap();
        let (_, _, moved_to) = inner.locate(to).unwrap();
        drop(log);
        (pool, disks, id, slice, moved_to)
    });
    world.corrupt_disk(node, path(0), moved_to..moved_to + BLOCK);
    world.block_on(node, CORE, move || async move {
        drop(slice);
        pool.logs_ended().await;
        let slice = slices(&pool, &disks, id).remove(0);
        assert_eq!((read(&slice, 1).await, read(&slice, 2).await), (Ok(7), Ok(8)));
        idle(&slice).await;
        check(&slice).await;
    });
}
