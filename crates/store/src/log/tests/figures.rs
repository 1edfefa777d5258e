//! What volumes and pools report as used.

use super::super::Changes;
use super::super::leaf::Era;
use super::super::rest::MERGE_AFTER;
use super::*;
use crate::copy::{CopyOf, CopyState};
use crate::id::ClusterId;

/// Blocks of two leaves.
const BLOCKS: u64 = 1024;

/// A pool, and a slice of one volume of `blocks` blocks. The logs have `memory` for leaves.
async fn with_memory(memory: ByteLen, blocks: u64) -> (Pool, CoreDisks, VolumeId, Rc<Slice>) {
    let pool = create(1).await;
    pool.set_log_memory(LogMemory::new(memory));
    let id = pool.create_volume(spec("v", blocks * BLOCK, 1)).await.unwrap().id;
    let disks = pool.share_disks().attach();
    let slice = slices(&pool, &disks, id).remove(0);
    (pool, disks, id, slice)
}

/// How many blocks the volume, and all volumes of the pool, are reported to use.
fn used(pool: &Pool, id: VolumeId) -> (u64, u64) {
    let info = pool.volume(id).unwrap();
    assert_eq!(info.reserved, info.in_logs.mapped, "they are not compressed");
    (info.reserved.0 / BLOCK, pool.log_space().unwrap().live / BLOCK)
}

async fn fill(slice: &Slice, blocks: u64) {
    for at in 0..blocks {
        write(slice, at, at + 1, Durability::Cached).await.unwrap();
    }
    log_of(slice).merged().await;
}

/// Before, an overwritten block counted twice until a checkpoint, and the figure exceeded the volume's size.
#[test]
fn a_block_whose_leaf_is_in_memory_counts_once_when_it_is_overwritten() {
    let world = World::new(1);
    let node = machine(&world, 1, 32 << 20, 1);
    world.block_on(node, CORE, || async {
        let (pool, _disks, id, slice) = with_memory(ByteLen(4 << 20), 2 * BLOCKS).await;
        fill(&slice, BLOCKS).await;
        assert_eq!(used(&pool, id), (BLOCKS, BLOCKS));
        // So many that checkpoints merge them meanwhile, and some of them twice before a merge.
        let mut rng = Rng::new(1);
        for number in 1..2000 {
            write(&slice, rng.below(BLOCKS / 4), number, Durability::Cached).await.unwrap();
            assert_eq!(used(&pool, id), (BLOCKS, BLOCKS), "write {number}");
        }
        write(&slice, BLOCKS, 1, Durability::Cached).await.unwrap();
        assert_eq!(used(&pool, id), (BLOCKS + 1, BLOCKS + 1), "one that was not written before");
        check(&slice).await;
        log_of(&slice).merged().await;
        assert_eq!(used(&pool, id), (BLOCKS + 1, BLOCKS + 1));
        check(&slice).await;
    });
}

/// Before, a log that hosts left alone merged nothing. What they had overwritten counted twice for good.
#[test]
fn a_log_that_hosts_leave_alone_merges_and_then_rests() {
    let world = World::new(1);
    let node = machine(&world, 1, 32 << 20, 1);
    world.block_on(node, CORE, || async {
        // No leaf is in memory, so it is not known what is overwritten.
        let (pool, _disks, id, slice) = with_memory(ByteLen(0), BLOCKS).await;
        fill(&slice, BLOCKS).await;
        for at in 0..100 {
            write(&slice, at, at + 2, Durability::Cached).await.unwrap();
            assert_eq!(used(&pool, id).0, BLOCKS, "a volume has no more blocks than its size");
        }
        idle(&slice).await;
        let checkpoints = || log_of(&slice).inner.state.borrow().checkpoints;
        rt::sleep(10 * MERGE_AFTER).await;
        assert_eq!(used(&pool, id), (BLOCKS, BLOCKS));
        let merged = checkpoints();
        rt::sleep(Duration::from_secs(1800)).await;
        assert_eq!(checkpoints(), merged, "it rests");
        check(&slice).await;
    });
}

/// Before, less than 1 MiB of UNMAP changed no figure until something else needed a checkpoint.
#[test]
fn what_is_unmapped_is_not_used_any_more() {
    for memory in [4 << 20, 0] {
        let world = World::new(1);
        let node = machine(&world, 1, 32 << 20, 1);
        world.block_on(node, CORE, move || async move {
            let (pool, _disks, id, slice) = with_memory(ByteLen(memory), 2 * BLOCKS).await;
            fill(&slice, BLOCKS).await;
            // All of a leaf: the directory knows how many blocks it has.
            slice.zero(ByteOffset(0), ByteLen(512 * BLOCK)).await.unwrap();
            assert_eq!(used(&pool, id), (512, 512));
            slice.zero(ByteOffset(0), ByteLen(512 * BLOCK)).await.unwrap();
            assert_eq!(used(&pool, id), (512, 512), "a second time");
            log_of(&slice).merged().await;
            slice.zero(ByteOffset(600 * BLOCK), ByteLen(3 * BLOCK)).await.unwrap();
            // If the leaf is not in memory, the merge has to read it.
            let expected = if memory > 0 { 509 } else { 512 };
            assert_eq!(used(&pool, id), (expected, expected));
            write(&slice, 601, 7, Durability::Cached).await.unwrap();
            check(&slice).await;
            log_of(&slice).merged().await;
            assert_eq!(used(&pool, id), (510, 510));
        });
    }
}

#[test]
fn a_large_volume_takes_what_was_written() {
    let world = World::new(1);
    let node = machine(&world, 1, 64 << 20, 1);
    world.block_on(node, CORE, || async {
        let pool = create(1).await;
        let before = pool.usage().free.0;
        let id = pool.create_volume(spec("v", 10 << 40, 1)).await.unwrap().id;
        let disks = pool.share_disks().attach();
        let slice = slices(&pool, &disks, id).remove(0);
        slice.ready().await.unwrap();
        assert_eq!(used(&pool, id), (0, 0));
        let last = (10 << 40) / BLOCK - 1;
        for (written, at) in [(1, 0), (2, last / 2), (3, last)] {
            write(&slice, at, 9, Durability::Durable).await.unwrap();
            assert_eq!(used(&pool, id), (written, written));
        }
        check(&slice).await;
        // A few zones, and the roots.
        let taken = before - pool.usage().free.0;
        assert!(taken <= 4 << 20, "{taken} bytes of the pool");
        // One of several copies has its dirty map, too: 8 MiB for each TiB.
        let copy = CopyOf { cluster: ClusterId([7; 16]), slot: 0, state: CopyState::Trusted { epoch: 1 } };
        let copied = VolumeSpec { copy: Some(copy), ..spec("copied", 1 << 40, 1) };
        let copied = pool.create_volume(copied).await.unwrap().id;
        let info = pool.volume(copied).unwrap();
        assert_eq!(info.in_logs, crate::InLogs::default());
        assert!(info.reserved.0 <= 9 << 20, "{} bytes", info.reserved.0);
    });
}

/// The state of a large log is not written again for each pause in which little has changed.
#[test]
fn a_little_waits_longer_in_a_large_log() {
    let mut state = without_pool(20, LogMemory::new(ByteLen(1 << 30)));
    let after = |state: &Running, times: u32| assert_eq!(state.merges_after(), times * MERGE_AFTER);
    state.state_len = 5 * BLOCK as usize;
    state.active.zero(Era::first(1), 0, 1, &mut Vec::new());
    after(&state, 10);
    state.active.zero(Era::first(1), 100, 4, &mut Vec::new());
    after(&state, 2);
    state.active.zero(Era::first(1), 200, 1000, &mut Vec::new());
    after(&state, 1);
    state.state_len = 50 << 20;
    state.active = Changes::default();
    state.active.zero(Era::first(1), 0, 1, &mut Vec::new());
    after(&state, 1200);
}
