//! Clones of whole volumes: parts of blocks, sizes that change, and conversions.

use base::ByteLen;
use rt::Durability;
use rt::sim::World;
use store::{
    CloneOf, CloneSpec, Compression, HeldSnapshot, LogTuning, Pool, SnapshotError, SpacePolicy, VolumeId,
    VolumeKind, VolumeSpec, ZeroingWatch,
};

use crate::disk::{CORE, Volume, creating, existing, machine, opening, paths, thick};

const MIB: u64 = 1 << 20;
const SECTOR: u64 = 512;

/// A pool with logs of which several fit in some MiB.
async fn create() -> Pool {
    let pool = Pool::create(existing(1), creating()).await.unwrap();
    bound_logs(&pool);
    pool
}

fn bound_logs(pool: &Pool) {
    let segment = Some(ByteLen(64 << 10));
    pool.set_log_tuning(LogTuning { segment, changes_min: 128, changes_max: 512, ..LogTuning::default() });
}

/// A log volume of two slices, with blocks of 512 bytes.
async fn create_volume(pool: &Pool, capacity: u64) -> Volume {
    let spec = VolumeSpec { kind: VolumeKind::Log, ..thick("a", capacity) };
    let id = pool.create_volume(spec).await.unwrap().id;
    Volume::open(pool, id)
}

/// Takes snapshot 1 of a volume, and has it held.
async fn hold(volume: &Volume) -> Vec<HeldSnapshot> {
    let mut held = Vec::new();
    for slice in &volume.slices {
        slice.take_snapshot(1, 1).await.unwrap();
        held.push(slice.hold_snapshot(1).await.unwrap());
    }
    held
}

/// A clone of snapshot 1 of a volume.
async fn clone(pool: &Pool, volume: VolumeId) -> Volume {
    let spec = CloneSpec {
        of: CloneOf { volume, snapshot: 1 },
        name: "b".into(),
        created: 0,
        id: None,
        copy: None,
        space: SpacePolicy::default(),
        compression: Compression::Off,
    };
    let id = pool.create_clone(spec).await.unwrap().id;
    Volume::open(pool, id)
}

fn sectors(from: u64, count: u64) -> Vec<u8> {
    (from..from + count).flat_map(|number| number.to_le_bytes().repeat(SECTOR as usize / 8)).collect()
}

/// What is not written of a block is that of the snapshot.
#[test]
fn parts_of_blocks_are_written_and_both_volumes_grow() {
    let world = World::new(30);
    let node = machine(&world, &[(24 * MIB, 512)]);
    world.block_on(node, CORE, || async {
        let pool = create().await;
        // The last block is cut off.
        let capacity = 3 * MIB - SECTOR;
        let mut volume = create_volume(&pool, capacity).await;
        let data = sectors(1, capacity / SECTOR);
        volume.write(0, &data, Durability::Durable).await.unwrap();
        let held = hold(&volume).await;
        let id = volume.info.id;
        pool.grow_volume(id, ByteLen(4 * MIB)).await.unwrap();
        volume.grow(&pool);
        volume.write(capacity, &sectors(7, 9), Durability::Durable).await.unwrap();
        let mut clone = clone(&pool, id).await;
        drop(held);
        assert_eq!(clone.info.capacity, ByteLen(4 * MIB), "as large as the volume is now");
        let mut expected = data.clone();
        expected.resize(4 * MIB as usize, 0);
        assert!(clone.read(0, 4 * MIB).await.unwrap() == expected);
        // Sectors that begin and end within blocks, of both slices and across them.
        for (at, count) in [(3, 1), (9, 2), (2047, 3), (4094, 5), (6143, 2)] {
            let written = sectors(90_000 + at, count);
            clone.write(at * SECTOR, &written, Durability::Cached).await.unwrap();
            let start = (at * SECTOR) as usize;
            expected[start..start + written.len()].copy_from_slice(&written);
        }
        for (at, count) in [(20, 1), (33, 7), (1000, 90)] {
            clone.zero(at * SECTOR, count * SECTOR).await.unwrap();
            expected[(at * SECTOR) as usize..((at + count) * SECTOR) as usize].fill(0);
        }
        assert!(clone.read(0, 4 * MIB).await.unwrap() == expected);
        pool.grow_volume(clone.info.id, ByteLen(5 * MIB)).await.unwrap();
        clone.grow(&pool);
        expected.resize(5 * MIB as usize, 0);
        let (id_of_clone, mut of_volume) = (clone.info.id, data);
        of_volume.extend(sectors(7, 9));
        of_volume.resize(4 * MIB as usize, 0);
        clone.flush().await.unwrap();
        drop((volume, clone));
        pool.logs_ended().await;
        drop(pool);
        let pool = Pool::open(&paths(1), opening(1)).await.unwrap();
        bound_logs(&pool);
        let clone = Volume::open(&pool, id_of_clone);
        assert!(clone.read(0, 5 * MIB).await.unwrap() == expected);
        let volume = Volume::open(&pool, id);
        assert!(volume.read(0, 4 * MIB).await.unwrap() == of_volume);
    });
}

/// Until then, it needs what it was made of.
#[test]
fn a_clone_that_was_converted_stands_alone() {
    let world = World::new(31);
    let node = machine(&world, &[(24 * MIB, 512)]);
    world.block_on(node, CORE, || async {
        let pool = create().await;
        let volume = create_volume(&pool, 2 * MIB).await;
        let mut data = sectors(1, MIB / SECTOR);
        volume.write(0, &data, Durability::Durable).await.unwrap();
        let held = hold(&volume).await;
        let clone = clone(&pool, volume.info.id).await;
        drop(held);
        volume.zero(0, MIB).await.unwrap();
        let written = sectors(9999, 1);
        clone.write(SECTOR, &written, Durability::Durable).await.unwrap();
        data[SECTOR as usize..2 * SECTOR as usize].copy_from_slice(&written);
        let (id, kind, watch) = (clone.info.id, VolumeKind::Thick, ZeroingWatch::default());
        pool.begin_conversion(id, kind, Compression::Off, false, watch).await.unwrap();
        clone.begin_conversion(&pool);
        for slice in &clone.slices {
            while slice.convert_some().await.unwrap().0 > 0 {}
            assert!(slice.become_equal().await.unwrap());
        }
        for slice in &volume.slices {
            assert_eq!(slice.delete_snapshots(&[1]).await, Err(SnapshotError::Cloned));
        }
        pool.switch_volume(id).await.unwrap();
        for slice in &clone.slices {
            assert!(slice.end_conversion(true).await);
        }
        pool.leave_layouts(id);
        pool.free_left_layouts(id, ZeroingWatch::default()).await.unwrap();
        let of = volume.info.id;
        assert!(pool.clones_of(of).is_empty());
        for slice in &volume.slices {
            slice.delete_snapshots(&[1]).await.unwrap();
        }
        drop(volume);
        pool.delete_volume(of).await.unwrap();
        data.resize(2 * MIB as usize, 0);
        assert!(clone.read(0, 2 * MIB).await.unwrap() == data);
    });
}
