//! Adding a disk to a pool while its volumes are in use.

use base::{BlockSize, ByteLen};
use rt::Durability;
use rt::sim::{DiskFaults, World};
use store::{CreateOptions, MetadataState, NewDisk, Pool, StoreError, VolumeSpec};

use crate::disk::{CORE, Volume, creating, existing, machine, opening, path, paths, thick};

const MIB: u64 = 1 << 20;

fn disk(number: usize) -> NewDisk {
    NewDisk { path: path(number), create: None, reserve: false }
}

/// Concurrent writes of one block each, all over the volume: some share a block of the disk.
async fn fill(volume: Volume, seed: u8) -> Volume {
    let volume = std::rc::Rc::new(volume);
    let blocks = volume.info.capacity.0 / 512;
    for first in (0..blocks).step_by(64) {
        let write = |block: u64| {
            let volume = std::rc::Rc::clone(&volume);
            rt::spawn(
                async move { volume.write(block * 512, &content(block, seed), Durability::Cached).await },
            )
        };
        let writes: Vec<_> = (first..(first + 64).min(blocks)).map(write).collect();
        for write in writes {
            write.await.unwrap();
        }
    }
    volume.flush().await.unwrap();
    std::rc::Rc::into_inner(volume).unwrap()
}

fn content(block: u64, seed: u8) -> Vec<u8> {
    (block + u64::from(seed) * 1_000_003).to_le_bytes().repeat(64)
}

async fn check(volume: &Volume, seed: u8) {
    let data = volume.read(0, volume.info.capacity.0).await.unwrap();
    for (block, found) in (0..).zip(data.chunks(512)) {
        assert!(found == content(block, seed), "block {block}");
    }
}

#[test]
fn a_volume_grows_onto_a_disk_with_larger_blocks_while_it_is_open() {
    let world = World::new(3);
    let node = machine(&world, &[(2 * MIB, 512), (4 * MIB, 4096)]);
    world.block_on(node, CORE, || async {
        let pool = Pool::create(existing(1), creating()).await.unwrap();
        // Of the volume's 512-byte blocks, two are in the last block of each extent of the new disk.
        let spec = VolumeSpec { block_size: BlockSize::B512, ..thick("db", MIB) };
        let info = pool.create_volume(spec).await.unwrap();
        let mut volume = fill(Volume::open(&pool, info.id), 1).await;
        let full = pool.grow_volume(info.id, ByteLen(3 * MIB)).await;
        assert!(matches!(full, Err(StoreError::NoSpace { .. })), "{full:?}");
        pool.add_disk(disk(1), true).await.unwrap();
        check(&volume, 1).await;
        pool.grow_volume(info.id, ByteLen(3 * MIB)).await.unwrap();
        volume.grow(&pool);
        let volume = fill(volume, 2).await;
        check(&volume, 2).await;
        drop((volume, pool));
        let pool = Pool::open(&paths(2), opening(1)).await.unwrap();
        check(&Volume::open(&pool, info.id), 2).await;
        drop(pool);
        let missing = Pool::open(&paths(1), opening(1)).await.map(drop);
        assert!(matches!(missing, Err(StoreError::DisksMissing { count: 2, .. })), "{missing:?}");
    });
}

#[test]
fn disks_that_cannot_be_added_are_refused_and_stay_as_they_were() {
    let world = World::new(3);
    let node = machine(&world, &[(4 * MIB, 512), (MIB / 2, 512), (4 * MIB, 512), (4 * MIB, 512)]);
    world.block_on(node, CORE, || async {
        let pool = Pool::create(existing(1), creating()).await.unwrap();
        let before = pool.usage();
        let small = pool.add_disk(disk(1), true).await;
        assert!(
            matches!(small, Err(StoreError::DiskTooSmall { needed, .. }) if needed > MIB / 2),
            "{small:?}"
        );
        let used = pool.add_disk(disk(2), false).await;
        assert!(matches!(used, Err(StoreError::NotEmpty { .. })), "{used:?}");
        let own = pool.add_disk(disk(0), true).await;
        assert!(matches!(own, Err(StoreError::Open(rt::OpenError::InUse(_)))), "{own:?}");
        let none = pool.add_disk(disk(7), true).await;
        assert!(matches!(none, Err(StoreError::Open(_))), "{none:?}");
        assert_eq!(pool.usage(), before);
        assert_eq!(pool.metadata_state(), MetadataState::Writable);
        // A disk of another pool.
        let options = CreateOptions { name: "other".into(), ..creating() };
        drop(Pool::create(vec![disk(3)], options).await.unwrap());
        let other = pool.add_disk(disk(3), false).await;
        assert!(matches!(other, Err(StoreError::NotEmpty { .. })), "{other:?}");
        pool.add_disk(disk(2), true).await.unwrap();
        pool.export().await.unwrap();
        let exported = pool.add_disk(disk(3), true).await;
        assert!(matches!(exported, Err(StoreError::Exported(_))), "{exported:?}");
    });
}

#[test]
fn a_new_disk_that_fails_does_no_harm_to_the_pool() {
    let world = World::new(3);
    let node = machine(&world, &[(4 * MIB, 512); 2]);
    let pool = world.block_on(node, CORE, || async { Pool::create(existing(1), creating()).await.unwrap() });
    let faults = DiskFaults { flush_error_one_in: 1, ..DiskFaults::default() };
    world.set_disk_faults(node, path(1), faults);
    let pool = world.block_on(node, CORE, move || async move {
        let failed = pool.add_disk(disk(1), true).await;
        assert!(matches!(&failed, Err(StoreError::Disk { path: at, .. }) if *at == path(1)), "{failed:?}");
        assert_eq!(pool.metadata_state(), MetadataState::Writable);
        pool.create_volume(thick("db", MIB)).await.unwrap();
        pool
    });
    world.set_disk_faults(node, path(1), DiskFaults::default());
    world.block_on(node, CORE, move || async move {
        pool.add_disk(disk(1), true).await.unwrap();
        drop(pool);
        let pool = Pool::open(&paths(2), opening(1)).await.unwrap();
        assert_eq!(pool.volumes().len(), 1);
    });
}

/// However many extents a pool gets, its volumes' reservations can be stored.
#[test]
fn extents_of_added_disks_leave_room_for_reservations() {
    const LU_STATE: usize = 2048;
    let world = World::new(3);
    // A slot of 212 KiB has room for 64 volumes with their reservations.
    let node = machine(&world, &[(2 * MIB, 512), (16 * MIB, 512)]);
    world.block_on(node, CORE, || async {
        let pool = Pool::create(existing(1), creating()).await.unwrap();
        pool.add_disk(disk(1), true).await.unwrap();
        let mut made = Vec::new();
        let refused = loop {
            let spec = VolumeSpec { slices: Some(1), ..thick(&format!("db-{}", made.len()), 512) };
            match pool.create_volume(spec).await {
                Ok(info) => made.push(info.id),
                Err(refused) => break refused,
            }
        };
        assert!(matches!(refused, StoreError::MetadataFull { .. }), "{refused:?}");
        assert!(made.len() >= 64, "{}", made.len());
        for id in &made {
            pool.set_lu_state(*id, vec![7; LU_STATE]).await.unwrap();
        }
        pool.rename_volume(made[0], "renamed").await.unwrap();
        pool.delete_volume(made[1]).await.unwrap();
        pool.export().await.unwrap();
        drop(pool);
        let long = store::Host { name: "h".repeat(63), ..opening(2).host };
        let pool = Pool::open(&paths(2), store::OpenPool { host: long, ..opening(2) }).await.unwrap();
        assert_eq!(pool.volumes().len(), made.len() - 1);
    });
}
