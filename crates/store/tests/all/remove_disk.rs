//! Removing a disk from a pool while its volumes are in use.

use base::ByteLen;
use rt::sim::{DiskFaults, World};
use rt::{Durability, OpenError};
use store::{LogTuning, NewDisk, Pool, StoreError, VolumeKind, VolumeSpec};

use crate::disk::{CORE, Volume, creating, existing, machine, opening, path, paths, thick};

const MIB: u64 = 1 << 20;

fn disk(number: usize) -> NewDisk {
    NewDisk { path: path(number), create: None, reserve: false }
}

/// Its place is free for another disk, and the others keep theirs.
#[test]
fn a_disk_is_removed_and_another_one_takes_its_place() {
    let world = World::new(3);
    let node = machine(&world, &[(4 * MIB, 512); 4]);
    world.block_on(node, CORE, || async {
        let pool = Pool::create(existing(1), creating()).await.unwrap();
        pool.add_disk(disk(1), true).await.unwrap();
        pool.add_disk(disk(2), true).await.unwrap();
        let total = pool.usage().total.0;
        let would = pool.check_removal(&path(0)).unwrap();
        assert_eq!((would.total.0, would.left.0), (total / 3, total / 3 * 2));
        pool.remove_disk(&path(0)).await.unwrap();
        assert_eq!(pool.paths(), paths(3)[1..]);
        assert_eq!((pool.path_at(0), pool.path_at(1)), (None, Some(path(1))));
        assert_eq!(pool.usage().total.0, would.left.0);
        let info = pool.create_volume(thick("db", 4 * MIB)).await.unwrap();
        let volume = Volume::open(&pool, info.id);
        volume.write(0, &[7; 4 * MIB as usize], Durability::Durable).await.unwrap();
        drop((volume, pool));

        let with_it = Pool::open(&paths(3), opening(1)).await.map(drop);
        assert!(matches!(with_it, Err(StoreError::NotAPool { .. })), "it was wiped: {with_it:?}");
        let missing = Pool::open(&paths(2)[1..], opening(1)).await.map(drop);
        assert!(matches!(missing, Err(StoreError::DisksMissing { count: 2, .. })), "{missing:?}");

        let pool = Pool::open(&paths(3)[1..], opening(1)).await.unwrap();
        pool.add_disk(disk(3), true).await.unwrap();
        assert_eq!(pool.paths(), [path(3), path(1), path(2)]);
        let next = pool.create_volume(thick("next", 3 * MIB)).await.unwrap();
        let mut written = Volume::open(&pool, next.id);
        written.write(0, &[9; 3 * MIB as usize], Durability::Durable).await.unwrap();
        written.grow(&pool);
        drop((written, pool));
        let pool = Pool::open(&[path(1), path(2), path(3)], opening(1)).await.unwrap();
        assert_eq!(pool.paths(), [path(3), path(1), path(2)]);
        for (id, len, byte) in [(info.id, 4 * MIB, 7), (next.id, 3 * MIB, 9)] {
            let data = Volume::open(&pool, id).read(0, len).await.unwrap();
            assert!(data.iter().all(|found| *found == byte), "{byte}");
        }
    });
}

#[test]
fn a_disk_that_the_pool_needs_stays() {
    let world = World::new(3);
    let node = machine(&world, &[(4 * MIB, 512); 3]);
    world.block_on(node, CORE, || async {
        let pool = Pool::create(existing(1), creating()).await.unwrap();
        let only = pool.remove_disk(&path(0)).await;
        assert!(matches!(&only, Err(StoreError::OnlyDisk { path: at }) if *at == path(0)), "{only:?}");
        let info = pool.create_volume(thick("db", MIB)).await.unwrap();
        pool.add_disk(disk(1), true).await.unwrap();
        let before = pool.usage();
        let unknown = pool.remove_disk(&path(2)).await;
        assert!(matches!(unknown, Err(StoreError::NoSuchDisk { .. })), "{unknown:?}");
        match pool.remove_disk(&path(0)).await {
            Err(StoreError::DiskInUse { path: at, used, by }) => {
                assert_eq!((at, used, by), (path(0), ByteLen(MIB), vec!["volume db".to_owned()]));
            }
            other => panic!("{other:?}"),
        }
        assert!(matches!(pool.check_removal(&path(0)), Err(StoreError::DiskInUse { .. })));
        assert_eq!(pool.usage(), before);
        // It can still take volumes: the refusal has changed nothing.
        pool.grow_volume(info.id, ByteLen(5 * MIB)).await.unwrap();
        pool.delete_volume(info.id).await.unwrap();
        let segment = Some(ByteLen(64 << 10));
        pool.set_log_tuning(LogTuning { segment, zone_segments: 8, ..LogTuning::default() });
        let log = VolumeSpec { kind: VolumeKind::Log, slices: Some(1), ..thick("log", MIB) };
        let log = pool.create_volume(log).await.unwrap();
        let used = |at: usize| pool.usage().disks[at].free < pool.usage().disks[at].total;
        let in_use: Vec<usize> = (0..2).filter(|at| used(*at)).collect();
        for at in in_use {
            match pool.remove_disk(&path(at)).await {
                Err(StoreError::DiskInUse { by, .. }) => {
                    assert_eq!(by, ["the log of the log-structured volumes"]);
                }
                other => panic!("{other:?}"),
            }
        }
        pool.delete_volume(log.id).await.unwrap();
        pool.remove_disk(&path(0)).await.unwrap();
        pool.export().await.unwrap();
        let exported = pool.remove_disk(&path(1)).await;
        assert!(matches!(exported, Err(StoreError::Exported(_))), "{exported:?}");
    });
}

/// The cores of open volumes keep the disk open until they learn of it.
#[test]
fn open_volumes_let_go_of_a_removed_disk() {
    let world = World::new(3);
    let node = machine(&world, &[(4 * MIB, 512); 2]);
    world.block_on(node, CORE, || async {
        let pool = Pool::create(existing(1), creating()).await.unwrap();
        let info = pool.create_volume(thick("db", MIB)).await.unwrap();
        pool.add_disk(disk(1), true).await.unwrap();
        let mut volume = Volume::open(&pool, info.id);
        pool.remove_disk(&path(1)).await.unwrap();
        let held = pool.add_disk(disk(1), false).await;
        assert!(matches!(held, Err(StoreError::Open(OpenError::InUse(_)))), "{held:?}");
        volume.grow(&pool);
        // It was wiped, so it counts as empty.
        pool.add_disk(disk(1), false).await.unwrap();
        volume.write(0, &[7; 512], Durability::Durable).await.unwrap();
        assert_eq!(volume.read(0, 512).await.unwrap(), [7u8; 512]);
    });
}

/// A disk on which nothing lies is not needed for its own removal.
#[test]
fn a_failed_disk_is_removed() {
    let world = World::new(3);
    let node = machine(&world, &[(4 * MIB, 512); 2]);
    let pool = world.block_on(node, CORE, || async {
        let pool = Pool::create(existing(1), creating()).await.unwrap();
        pool.add_disk(disk(1), true).await.unwrap();
        pool
    });
    let faults = DiskFaults { write_error_one_in: 1, flush_error_one_in: 1, ..DiskFaults::default() };
    world.set_disk_faults(node, path(1), faults);
    world.block_on(node, CORE, move || async move {
        pool.remove_disk(&path(1)).await.unwrap();
        assert_eq!(pool.paths(), paths(1));
        pool.create_volume(thick("db", MIB)).await.unwrap();
        drop(pool);
        // It could not be wiped, and still claims to belong to the pool.
        let with_it = Pool::open(&paths(2), opening(1)).await.map(drop);
        assert!(matches!(with_it, Err(StoreError::NotInPool { .. })), "{with_it:?}");
        let uncertain = store::OpenPool { uncertain: Some(path(1)), ..opening(1) };
        let pool = Pool::open(&paths(1), uncertain).await.unwrap();
        assert_eq!((pool.paths(), pool.volumes().len()), (paths(1), 1));
    });
}
