//! A disk that leaves a pool while its volumes are in use.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use base::{ByteLen, ByteOffset, Chain};
use rt::Durability;
use rt::sim::{DiskFaults, DiskLatency, World};
use store::{
    CoreDisks, LogTuning, Moved, NewDisk, Pool, Slice, SliceError, StoreError, VolumeId, VolumeKind,
    VolumeSpec,
};

use crate::disk::{CORE, Volume, creating, existing, machine, opening, path, paths, thick};

const MIB: u64 = 1 << 20;
const BLOCK: u64 = 512;

fn disk(number: usize) -> NewDisk {
    NewDisk { path: path(number), create: None, reserve: false }
}

/// The slices of a volume, which stay open while parts of it move.
struct Open {
    id: VolumeId,
    disks: Cell<Option<CoreDisks>>,
    slices: Vec<Slice>,
}

impl Open {
    fn of(pool: &Pool, id: VolumeId) -> Rc<Open> {
        let disks = pool.share_disks().attach();
        let specs = pool.volume_slices(id, CORE, 1).unwrap();
        let slices = specs.into_iter().map(|spec| spec.open(&disks)).collect();
        Rc::new(Open { id, disks: Cell::new(Some(disks)), slices })
    }

    /// Gives the slices their present places.
    fn follow(&self, pool: &Pool) {
        let disks = pool.share_disks().attach_added(&self.disks.take().unwrap());
        let specs = pool.volume_slices(self.id, CORE, 1).unwrap();
        self.slices.iter().zip(specs).for_each(|(slice, spec)| slice.grow(spec, &disks));
        self.disks.set(Some(disks));
    }

    async fn write(&self, at: u64, number: u64) -> Result<(), SliceError> {
        let (slice, block) = (&self.slices[(at % 2) as usize], at / 2);
        let data = Chain::copy_of(&number.to_le_bytes().repeat(BLOCK as usize / 8));
        slice.write(ByteOffset(block * BLOCK), data, Durability::Cached).await
    }

    async fn read(&self, at: u64) -> Result<u64, SliceError> {
        let (slice, block) = (&self.slices[(at % 2) as usize], at / 2);
        let data = slice.read(ByteOffset(block * BLOCK), ByteLen(BLOCK)).await?.to_vec();
        assert!(data.chunks(8).all(|chunk| *chunk == data[..8]), "block {at} is of one piece");
        Ok(u64::from_le_bytes(data[..8].try_into().unwrap()))
    }
}

/// Moves what lies on the leaving disk. Returns how many parts there were.
async fn evacuate(pool: &Pool, open: &Open) -> Result<u64, StoreError> {
    let mut parts = 0;
    while let Some(moving) = pool.next_move().await? {
        assert_eq!(moving.volume, open.id);
        for slice in &open.slices {
            slice.hold_part(&moving.part).await.unwrap();
        }
        let (moving, moved) = pool.move_part(moving, open.slices.len()).await;
        if let Moved::Done = moved {
            open.follow(pool);
        }
        match &moved {
            Moved::Unknown(_) => open.slices.iter().for_each(Slice::lose_part),
            Moved::Done | Moved::Not(_) => open.slices.iter().for_each(Slice::let_go),
        }
        pool.end_move(moving, &moved).await;
        match moved {
            Moved::Done => parts += 1,
            Moved::Not(error) | Moved::Unknown(error) => return Err(error),
        }
    }
    Ok(parts)
}

/// Of each block, the last value that was written remains, whether it was written before, while or after its
/// part moved.
#[test]
fn a_disk_is_emptied_while_its_volume_is_written() {
    (0..8).for_each(|seed| empty_under_load(seed, seed % 2 == 1));
}

#[test]
#[cfg(debug_assertions)]
fn moves_that_hold_nothing_back_are_noticed() {
    use store::canary::{Canary, make};
    make(Some(Canary::MoveUnheld));
    let noticed = (0..8).find(|seed| std::panic::catch_unwind(|| empty_under_load(*seed, false)).is_err());
    make(None);
    assert!(noticed.is_some());
}

fn empty_under_load(seed: u64, checksums: bool) {
    let world = World::new(seed);
    let node = machine(&world, &[(4 * MIB, 512), (4 * MIB, 4096), (4 * MIB, 512)]);
    world.block_on(node, CORE, move || async move {
        let pool = Pool::create(existing(1), creating()).await.unwrap();
        let spec = VolumeSpec { checksums, ..thick("db", MIB) };
        let id = pool.create_volume(spec).await.unwrap().id;
        pool.add_disk(disk(1), true).await.unwrap();
        pool.add_disk(disk(2), true).await.unwrap();
        let open = Open::of(&pool, id);
        open.follow(&pool);
        let blocks = MIB / BLOCK;
        for at in 0..blocks {
            open.write(at, at + 1).await.unwrap();
        }
        let of_checksums = if checksums { pool.usage().extent.0 } else { 0 };
        assert_eq!(pool.check_leave(&path(0)).unwrap().moves, ByteLen(MIB + of_checksums));
        pool.leave(&path(0)).await.unwrap();
        let ends = Rc::new(Cell::new(false));
        let writer = |first: u64| {
            let (open, ends) = (Rc::clone(&open), Rc::clone(&ends));
            rt::spawn(async move {
                let mut round = 1;
                while !ends.get() {
                    for at in (first..blocks).step_by(4) {
                        open.write(at, round * blocks + at + 1).await.unwrap();
                        assert_eq!(open.read(at).await.unwrap(), round * blocks + at + 1);
                    }
                    round += 1;
                }
                round - 1
            })
        };
        let writers: Vec<_> = (0..4).map(writer).collect();
        let parts = evacuate(&pool, &open).await.unwrap();
        assert!(parts >= 2, "one a slice at least: {parts}");
        ends.set(true);
        let mut rounds = Vec::new();
        for writer in writers {
            rounds.push(writer.await);
        }
        assert_eq!(pool.leaving().unwrap().left, ByteLen(0));
        pool.remove_disk(&path(0)).await.unwrap();
        assert_eq!(pool.leaving(), None);
        open.follow(&pool);
        for slice in &open.slices {
            slice.flush().await.unwrap();
        }
        drop((open, pool));
        let pool = Pool::open(&paths(3)[1..], opening(1)).await.unwrap();
        let open = Open::of(&pool, id);
        for at in 0..blocks {
            let round = rounds[(at % 4) as usize];
            assert_eq!(open.read(at).await.unwrap(), round * blocks + at + 1, "block {at}");
        }
    });
}

#[test]
fn a_disk_that_leaves_takes_nothing_new_until_it_stays() {
    let world = World::new(1);
    let node = machine(&world, &[(4 * MIB, 512); 3]);
    world.block_on(node, CORE, || async {
        let pool = Pool::create(existing(2), creating()).await.unwrap();
        let id = pool.create_volume(thick("db", 2 * MIB)).await.unwrap().id;
        let free = pool.usage().disks.iter().map(|disk| disk.free.0).min().unwrap();
        let used = |pool: &Pool| pool.usage().total.0 - pool.usage().free.0;
        let (total, used_before) = (pool.usage().total.0, used(&pool));
        pool.leave(&path(0)).await.unwrap();
        assert!(pool.usage().disks[0].leaving && !pool.usage().disks[1].leaving);
        assert_eq!(pool.usage().free.0, free);
        assert_eq!(used(&pool), used_before, "the pool is smaller, and no fuller");
        assert!(pool.usage().total.0 < total);
        let other = pool.leave(&path(1)).await;
        assert!(matches!(other, Err(StoreError::OtherDiskLeaving { .. })), "{other:?}");
        let still = pool.remove_disk(&path(0)).await;
        assert!(matches!(still, Err(StoreError::DiskInUse { .. })), "{still:?}");
        // It still leaves after the pool was opened again.
        drop(pool);
        let pool = Pool::open(&paths(2), opening(1)).await.unwrap();
        assert_eq!(pool.leaving().map(|disk| disk.path), Some(path(0)));
        assert_eq!(pool.usage().free.0, free);
        let new = pool.create_volume(thick("new", MIB)).await.unwrap();
        pool.delete_volume(new.id).await.unwrap();
        assert_eq!(pool.usage().free.0, free);
        let full = pool.create_volume(thick("full", free + MIB)).await;
        assert!(matches!(full, Err(StoreError::NoSpace { .. })), "{full:?}");
        pool.stay().await.unwrap();
        assert_eq!(pool.leaving(), None);
        assert_eq!(pool.usage().total.0, total);
        pool.create_volume(thick("full", free + MIB)).await.unwrap();
        let no_space = pool.leave(&path(0)).await;
        assert!(matches!(no_space, Err(StoreError::NoSpace { .. })), "{no_space:?}");
        pool.add_disk(disk(2), true).await.unwrap();
        pool.leave(&path(0)).await.unwrap();
        let volume = pool.volume(id).unwrap();
        assert_eq!(volume.capacity, ByteLen(2 * MIB));
    });
}

/// A log empties its zones itself, while a slice of it is open.
#[test]
fn a_disk_with_a_zone_of_a_log_is_emptied() {
    let world = World::new(1);
    let node = machine(&world, &[(16 * MIB, 512), (16 * MIB, 512)]);
    world.block_on(node, CORE, || async {
        let pool = Pool::create(existing(1), creating()).await.unwrap();
        let segment = Some(ByteLen(64 << 10));
        pool.set_log_tuning(LogTuning { segment, zone_segments: 16, ..LogTuning::default() });
        let log = VolumeSpec { kind: VolumeKind::Log, slices: Some(1), ..thick("log", MIB) };
        let id = pool.create_volume(log).await.unwrap().id;
        pool.add_disk(disk(1), true).await.unwrap();
        assert!(matches!(pool.check_removal(&path(0)), Err(StoreError::DiskInUse { .. })));
        pool.leave(&path(0)).await.unwrap();
        assert!(pool.next_move().await.unwrap().is_none(), "volumes have nothing there");
        let closed = pool.empty_logs().await;
        assert!(matches!(closed, Err(StoreError::VolumeNotHeld(volume)) if volume == id), "{closed:?}");
        let open = Open::of(&pool, id);
        open.slices[0]
            .write(ByteOffset(BLOCK), Chain::copy_of(&[7; 512]), Durability::Durable)
            .await
            .unwrap();
        let mut looks = 0;
        while pool.empty_logs().await.unwrap() {
            rt::sleep(Duration::from_millis(100)).await;
            looks += 1;
            assert!(looks < 100, "{:?} are left", pool.leaving());
        }
        pool.remove_disk(&path(0)).await.unwrap();
        assert_eq!(pool.leaving(), None);
        open.follow(&pool);
        let read = open.slices[0].read(ByteOffset(BLOCK), ByteLen(BLOCK)).await.unwrap();
        assert_eq!(read.to_vec(), [7; 512]);
    });
}

/// What cannot be copied stays where it is, and is served from there.
#[test]
fn a_part_that_cannot_be_moved_stays() {
    let world = World::new(1);
    let node = machine(&world, &[(4 * MIB, 512); 2]);
    let (pool, open) = world.block_on(node, CORE, || async {
        let pool = Pool::create(existing(1), creating()).await.unwrap();
        let id = pool.create_volume(thick("db", MIB)).await.unwrap().id;
        pool.add_disk(disk(1), true).await.unwrap();
        let open = Open::of(&pool, id);
        for at in 0..MIB / BLOCK {
            open.write(at, at + 1).await.unwrap();
        }
        pool.leave(&path(0)).await.unwrap();
        (pool, open)
    });
    let used = pool.usage();
    // A specification that is not used yet would lead to the old place.
    let (pool, open) = world.block_on(node, CORE, move || async move {
        let stray = pool.volume_slices(open.id, CORE, 1).unwrap();
        let in_use = evacuate(&pool, &open).await;
        assert!(matches!(in_use, Err(StoreError::VolumeNotHeld(_))), "{in_use:?}");
        drop(stray);
        (pool, open)
    });
    assert_eq!(pool.usage(), used);
    let faults = DiskFaults { read_error_one_in: 1, ..DiskFaults::default() };
    world.set_disk_faults(node, path(0), faults);
    let (pool, open) = world.block_on(node, CORE, move || async move {
        let unreadable = evacuate(&pool, &open).await;
        assert!(matches!(unreadable, Err(StoreError::Disk { .. })), "{unreadable:?}");
        (pool, open)
    });
    world.set_disk_faults(node, path(0), DiskFaults::default());
    assert_eq!(pool.usage(), used);
    world.block_on(node, CORE, move || async move {
        open.write(5, 77).await.unwrap();
        evacuate(&pool, &open).await.unwrap();
        let read = open.read(5).await.unwrap();
        assert_eq!((read, open.read(6).await.unwrap()), (77, 7));
    });
}

/// The slice lies on two disks, and one of them leaves the pool while the other one is being flushed.
#[test]
fn a_flush_outlives_a_disk_that_it_has_yet_to_flush() {
    let world = World::new(1);
    let node = machine(&world, &[(4 * MIB, 512); 3]);
    let (pool, open) = world.block_on(node, CORE, || async {
        let pool = Pool::create(existing(2), creating()).await.unwrap();
        let spec = VolumeSpec { slices: Some(1), ..thick("db", 2 * MIB) };
        let id = pool.create_volume(spec).await.unwrap().id;
        pool.add_disk(disk(2), true).await.unwrap();
        let open = Open::of(&pool, id);
        open.follow(&pool);
        let data = || Chain::copy_of(&[7; BLOCK as usize]);
        for at in [0, 2 * MIB - BLOCK] {
            open.slices[0].write(ByteOffset(at), data(), Durability::Cached).await.unwrap();
        }
        pool.leave(&path(1)).await.unwrap();
        (pool, open)
    });
    let seconds = Duration::from_secs;
    let slow = DiskLatency { flush: seconds(60)..seconds(61), ..DiskLatency::default() };
    world.set_disk_latency(node, path(0), slow);
    let (pool, open, flush) = world.block_on(node, CORE, move || async move {
        let flush = {
            let open = Rc::clone(&open);
            rt::spawn(async move { open.slices[0].flush().await })
        };
        rt::sleep(Duration::from_millis(1)).await;
        (pool, open, flush)
    });
    world.set_disk_latency(node, path(0), DiskLatency::default());
    world.block_on(node, CORE, move || async move {
        evacuate(&pool, &open).await.unwrap();
        pool.remove_disk(&path(1)).await.unwrap();
        open.follow(&pool);
        assert!(!flush.is_finished());
        flush.await.unwrap();
    });
}

/// It would write to the old place, which is no longer copied.
#[test]
fn a_slice_that_is_opened_while_a_part_moves_is_offline() {
    let world = World::new(1);
    let node = machine(&world, &[(4 * MIB, 512); 2]);
    world.block_on(node, CORE, || async {
        let pool = Pool::create(existing(1), creating()).await.unwrap();
        let id = pool.create_volume(thick("db", MIB)).await.unwrap().id;
        pool.add_disk(disk(1), true).await.unwrap();
        let open = Open::of(&pool, id);
        pool.leave(&path(0)).await.unwrap();
        let moving = pool.next_move().await.unwrap().unwrap();
        for slice in &open.slices {
            slice.hold_part(&moving.part).await.unwrap();
        }
        let moves = {
            let pool = pool.clone();
            rt::spawn(async move { pool.move_part(moving, 2).await })
        };
        // It copies by now.
        for _ in 0..8 {
            rt::yield_now().await;
        }
        let late = Volume::open(&pool, id);
        assert!(late.slices.iter().all(Slice::is_offline));
        drop(late);
        let (moving, moved) = moves.await;
        if let Moved::Done = moved {
            open.follow(&pool);
        }
        open.slices.iter().for_each(Slice::let_go);
        pool.end_move(moving, &moved).await;
        // Afterwards it is as before.
        open.write(0, 1).await.unwrap();
        let late = Volume::open(&pool, id);
        assert!(!late.slices.iter().any(Slice::is_offline));
        drop(late);
        evacuate(&pool, &open).await.unwrap();
        assert_eq!(open.read(0).await, Ok(1));
    });
}

/// If it is unknown which place counts, nothing is written to either.
#[test]
fn a_part_whose_place_is_unknown_is_offline() {
    let world = World::new(1);
    let node = machine(&world, &[(4 * MIB, 512); 2]);
    let (pool, open) = world.block_on(node, CORE, || async {
        let pool = Pool::create(existing(1), creating()).await.unwrap();
        let id = pool.create_volume(thick("db", MIB)).await.unwrap().id;
        pool.add_disk(disk(1), true).await.unwrap();
        let open = Open::of(&pool, id);
        open.write(0, 1).await.unwrap();
        pool.leave(&path(0)).await.unwrap();
        (pool, open)
    });
    world.block_on(node, CORE, move || async move {
        let moving = pool.next_move().await.unwrap().unwrap();
        for slice in &open.slices {
            slice.hold_part(&moving.part).await.unwrap();
        }
        let waiting = {
            let open = Rc::clone(&open);
            rt::spawn(async move { open.write(0, 2).await })
        };
        open.slices.iter().for_each(Slice::lose_part);
        assert_eq!(waiting.await, Err(SliceError::Offline));
        assert_eq!(open.read(0).await, Err(SliceError::Offline));
        assert!(open.slices[0].is_offline());
        // The other slice has nothing of the part.
        assert!(!open.slices[1].is_offline());
        assert_eq!(open.read(1).await, Ok(0));
        drop((moving, open));
        let volume = Volume::open(&pool, pool.volume_named("db").unwrap().id);
        assert_eq!(volume.slices[0].read(ByteOffset(0), ByteLen(BLOCK)).await.unwrap().to_vec()[0], 1);
    });
}
