//! Space that only one volume can use.

use super::super::place::QUARTER_BYTES;
use super::*;
use crate::error::StoreError;

const MIB: u64 = 1 << 20;

fn reserve(bytes: u64) -> SpacePolicy {
    SpacePolicy { reserve: ByteLen(bytes), ..SpacePolicy::default() }
}

/// Writes blocks from `from` on until there is no room; returns the first that found none.
async fn fill(slice: &Slice, from: u64) -> u64 {
    for at in from.. {
        match write(slice, at, at + 1, Durability::Durable).await {
            Ok(()) => {}
            Err(error) => {
                assert_eq!(error, SliceError::Full);
                return at;
            }
        }
    }
    unreachable!("the volume is larger than the pool")
}

/// Another volume finds the pool full earlier, and then the reserve can be written, and overwritten again and
/// again.
#[test]
fn others_leave_what_is_reserved() {
    const RESERVED: u64 = MIB / BLOCK;
    let world = World::new(1);
    let node = machine(&world, 1, 16 << 20, 1);
    world.block_on(node, CORE, || async {
        let pool = create(1).await;
        let kept = pool.create_volume(VolumeSpec { space: reserve(MIB), ..spec("kept", 4 * MIB, 1) });
        let kept = kept.await.unwrap().id;
        let other = pool.create_volume(spec("other", 64 * MIB, 1)).await.unwrap().id;
        let disks = pool.share_disks().attach();
        let (mine, its) = (slices(&pool, &disks, kept).remove(0), slices(&pool, &disks, other).remove(0));
        let filled = fill(&its, 0).await;
        assert!(filled > 1000, "{filled} blocks");
        let space = pool.log_space().unwrap();
        assert!(space.reserved >= MIB && space.room < 64 * BLOCK, "{space:?}");
        for round in 0..4 {
            for at in 0..RESERVED {
                assert_eq!(write(&mine, at, at + round, Durability::Durable).await, Ok(()), "{round} {at}");
            }
            assert_eq!(mine.reserve(ByteOffset(0), ByteLen(BLOCK)).await, Ok(()));
        }
        assert_eq!(write(&its, filled, 1, Durability::Durable).await, Err(SliceError::Full));
        check(&mine).await;
        // Without the reserve, the other volume gets the room that overwriting needed.
        assert_eq!(pool.set_space(kept, SpacePolicy::default()).await.unwrap().space, SpacePolicy::default());
        idle(&its).await;
        rt::sleep(std::time::Duration::from_millis(10)).await;
        let more = fill(&its, filled).await - filled;
        assert!(more >= RESERVED / 2, "{more} blocks");
        for at in 0..RESERVED {
            assert_eq!(read(&mine, at).await, Ok(at + 3));
        }
        check(&its).await;
    });
}

/// A log that recovers gives up none of the zones that were lent for a reserve: the pool might have no others
/// any more.
#[test]
fn a_log_that_recovers_keeps_the_zones_of_a_reserve() {
    let world = World::new(1);
    let node = machine(&world, 1, 24 << 20, 1);
    world.block_on(node, CORE, || async {
        let pool = create(1).await;
        let kept = pool.create_volume(VolumeSpec { space: reserve(4 * MIB), ..spec("kept", 8 * MIB, 1) });
        let kept = kept.await.unwrap().id;
        let disks = pool.share_disks().attach();
        let slice = slices(&pool, &disks, kept).remove(0);
        slice.ready().await.unwrap();
        let inner = Rc::clone(&log_of(&slice).inner);
        let state = inner.state.borrow();
        let zones = &state.segments.zones;
        assert!(zones.len() > 8 && zones.values().all(|zone| !zone.leaving), "{zones:?}");
    });
}

/// A reserve is space: more blocks than it has room for fit into it if they shrink.
#[test]
fn blocks_that_shrink_take_less_of_a_reserve() {
    const BLOCKS: u64 = 2 * MIB / BLOCK;
    let world = World::new(1);
    let node = machine(&world, 1, 16 << 20, 1);
    world.block_on(node, CORE, || async {
        let pool = create(1).await;
        let compressed = VolumeSpec { compression: Compression::Lz4, ..spec("kept", 4 * MIB, 1) };
        let kept = pool.create_volume(VolumeSpec { space: reserve(MIB), ..compressed }).await.unwrap().id;
        let other = pool.create_volume(spec("other", 64 * MIB, 1)).await.unwrap().id;
        let disks = pool.share_disks().attach();
        let (mine, its) = (slices(&pool, &disks, kept).remove(0), slices(&pool, &disks, other).remove(0));
        let filled = fill(&its, 0).await;
        for at in 0..BLOCKS {
            // Each shrinks to a quarter.
            assert_eq!(write(&mine, at, 3 * (at + 1), Durability::Durable).await, Ok(()), "{at}");
        }
        check(&mine).await;
        assert_eq!(pool.volume(kept).unwrap().in_logs.stored, ByteLen(BLOCKS * QUARTER_BYTES as u64));
        let more = fill(&its, filled).await - filled;
        assert!(more < 64, "the rest is still reserved: {more} blocks");
        for at in 0..BLOCKS {
            assert_eq!(read(&mine, at).await, Ok(3 * (at + 1)));
        }
        check(&its).await;
    });
}

/// Writes that find no room are tried again and again, while another volume overwrites its reserve. They cost
/// nothing, and find room as soon as there is some.
///
/// Before, each of them asked the pool for a zone, and had two checkpoints made.
#[test]
fn writes_without_room_keep_nobody_busy() {
    const TRIES: u64 = 12;
    let world = World::new(1);
    let node = machine(&world, 1, 24 << 20, 1);
    world.block_on(node, CORE, || async {
        let pool = create(1).await;
        let filler = VolumeSpec { kind: VolumeKind::Thick, ..spec("filler", 4 * MIB, 1) };
        let filler = pool.create_volume(filler).await.unwrap().id;
        let kept = pool.create_volume(VolumeSpec { space: reserve(MIB), ..spec("kept", 4 * MIB, 1) });
        let kept = kept.await.unwrap().id;
        let other = pool.create_volume(spec("other", 64 * MIB, 1)).await.unwrap().id;
        let disks = pool.share_disks().attach();
        let (mine, its) = (slices(&pool, &disks, kept).remove(0), slices(&pool, &disks, other).remove(0));
        for at in 0..4 {
            write(&mine, at, 2, Durability::Durable).await.unwrap();
        }
        let filled = fill(&its, 0).await;
        check(&its).await;
        let filled = fill(&its, filled).await;
        let made = || {
            let log = log_of(&its);
            let state = log.inner.state.borrow();
            (state.checkpoints, state.asks)
        };
        let (checkpoints, asks) = made();
        for number in 0..TRIES {
            // None of these can be compressed, so overwriting makes no room.
            write(&mine, number % 4, 3 * number + 2, Durability::Durable).await.unwrap();
            let refused = rt::join_all((0..8).map(|more| write(&its, filled + more, 1, Durability::Durable)));
            assert_eq!(refused.await, [Err(SliceError::Full); 8], "{number}");
        }
        let after = made();
        assert!(after.0 <= checkpoints + TRIES / 2, "{} checkpoints", after.0 - checkpoints);
        assert!(after.1 <= asks + 2, "{} requests: the pool has said that it has no space", after.1 - asks);
        its.zero(ByteOffset(0), ByteLen(64 * BLOCK)).await.unwrap();
        for at in filled..filled + 32 {
            assert_eq!(write(&its, at, at, Durability::Durable).await, Ok(()), "as soon as some is unmapped");
        }
        let filled = fill(&its, filled + 32).await;
        pool.delete_volume(filler).await.unwrap();
        for at in filled..filled + 256 {
            assert_eq!(write(&its, at, at, Durability::Durable).await, Ok(()), "space of the pool");
        }
        check(&its).await;
    });
}

/// A reserve is set only if its space is there, and lasts.
#[test]
fn a_reserve_is_there_or_is_refused() {
    let world = World::new(1);
    let node = machine(&world, 1, 16 << 20, 1);
    world.block_on(node, CORE, || async {
        let pool = create(1).await;
        let new = |bytes| VolumeSpec { space: reserve(bytes), ..spec("v", 64 * MIB, 1) };
        let free = pool.usage().free;
        let refused = pool.create_volume(new(32 * MIB)).await.unwrap_err();
        assert!(matches!(refused, StoreError::NoSpace { .. }), "{refused}");
        assert_eq!((pool.usage().free, pool.volumes().len()), (free, 0));
        assert!(matches!(pool.create_volume(new(65 * MIB)).await, Err(StoreError::SpaceInvalid)));
        let id = pool.create_volume(new(0)).await.unwrap().id;
        let before = pool.usage().free;
        let refused = pool.set_space(id, reserve(32 * MIB)).await.unwrap_err();
        assert!(matches!(refused, StoreError::NoSpace { .. }), "{refused}");
        assert_eq!((pool.usage().free, pool.volume(id).unwrap().space), (before, reserve(0)));
        let kept = SpacePolicy { when_full: crate::catalog::WhenFull::Pause, ..reserve(2 * MIB) };
        pool.set_space(id, kept).await.unwrap();
        assert!(pool.usage().free.0 + 2 * MIB <= before.0, "zones were lent for it");
        let disks = pool.share_disks().attach();
        let slice = slices(&pool, &disks, id).remove(0);
        write(&slice, 0, 1, Durability::Durable).await.unwrap();
        drop((slice, disks));
        pool.logs_ended().await;
        drop(pool);
        let pool = open(1).await;
        assert_eq!(pool.volume(id).unwrap().space, kept);
        let disks = pool.share_disks().attach();
        let slice = slices(&pool, &disks, id).remove(0);
        assert_eq!(read(&slice, 0).await, Ok(1));
        check(&slice).await;
        let space = pool.log_space().unwrap();
        assert!(space.reserved >= 2 * MIB - BLOCK, "{space:?}");
        // Nobody needs the zones any more once the volume is gone.
        drop((slice, disks));
        pool.logs_ended().await;
        pool.delete_volume(id).await.unwrap();
        assert_eq!(pool.usage().free, free);
    });
}

/// What was prepared for it would stay allocated in the file system.
#[test]
fn a_reserve_that_is_refused_prepares_no_space() {
    let world = World::new(1);
    let node = world.add_node("node", 1, |_| std::future::pending());
    let (pool, id) = world.block_on(node, CORE, || async {
        let disk = NewDisk { path: path(0), create: Some(ByteLen(16 << 20)), reserve: false };
        let extent = Some(ByteLen(64 << 10));
        let options = CreateOptions { name: "pool".into(), host: host(), extent, wipe: true, ram: ram() };
        let pool = Pool::create(vec![disk], options).await.unwrap();
        pool.set_log_tuning(tuning());
        let id = pool.create_volume(spec("v", 64 * MIB, 1)).await.unwrap().id;
        (pool, id)
    });
    let allocated = || world.disk_image(node, path(0)).allocated_bytes();
    let before = allocated();
    let refused =
        world.block_on(node, CORE, move || async move { pool.set_space(id, reserve(32 * MIB)).await });
    assert!(matches!(refused, Err(StoreError::NoSpace { .. })), "{refused:?}");
    assert_eq!(allocated(), before);
}
