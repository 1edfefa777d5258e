//! Disks that fail or are full; invalid names, sizes and numbers.

use base::{ByteLen, ByteOffset};
use rt::sim::{DiskFaults, World};
use rt::{CoreId, Durability};
use store::{
    BadBlock, CreateOptions, MetadataState, NewDisk, Pool, RamBudget, ReadFailure, SliceError, StoreError,
    VolumeKind, VolumeSpec,
};

use crate::disk::{CORE, Volume, creating, existing, machine, opening, path, paths, ram, sevens, thick};

#[test]
fn the_block_that_cannot_be_read_is_named() {
    let world = World::new(1);
    let node = machine(&world, &[(4 << 20, 512)]);
    let (pool, volume) = world.block_on(node, CORE, || async {
        let pool = Pool::create(existing(1), creating()).await.unwrap();
        let spec = VolumeSpec { slices: Some(1), ..thick("mail", 1 << 20) };
        let info = pool.create_volume(spec).await.unwrap();
        let volume = Volume::open(&pool, info.id);
        volume.write(0, &vec![7; 1 << 20], Durability::Durable).await.unwrap();
        (pool, volume)
    });
    // Find where the volume lies: its bytes occur nowhere else on the disk.
    let mut disk = vec![0; 4 << 20];
    world.disk_image(node, path(0)).read(0, &mut disk);
    let start = disk.windows(4096).position(|bytes| bytes.iter().all(|byte| *byte == 7)).unwrap() as u64;
    let bad = start + 5 * 512;
    world.set_disk_faults(
        node,
        path(0),
        DiskFaults { unreadable: std::iter::once(bad..bad + 512).collect(), ..DiskFaults::default() },
    );
    world.block_on(node, CORE, move || async move {
        let slice = &volume.slices[0];
        let failed = slice.read(ByteOffset(1024), ByteLen(8192)).await.unwrap_err();
        let SliceError::Unreadable(found) = failed else { panic!("{failed}") };
        let expected =
            BadBlock { offset: ByteOffset(5 * 512), disk: 0, disk_offset: bad, cause: ReadFailure::Medium };
        assert_eq!(found, expected);
        assert_eq!(slice.read(ByteOffset(6 * 512), ByteLen(512)).await.unwrap().to_vec(), [7; 512]);
        slice.write(ByteOffset(0), vec_chain(3, 512), Durability::Durable).await.unwrap();
        drop(pool);
    });
}

fn vec_chain(byte: u8, len: usize) -> base::Chain {
    base::Chain::copy_of(&vec![byte; len])
}

#[test]
fn one_dead_disk_stops_changes_but_not_the_volumes_of_the_others() {
    let world = World::new(1);
    let node = machine(&world, &[(4 << 20, 512); 4]);
    let (pool, volume) = world.block_on(node, CORE, || async {
        let pool = Pool::create(existing(4), creating()).await.unwrap();
        // One slice per disk.
        let info =
            pool.create_volume(VolumeSpec { slices: Some(4), ..thick("mail", 1 << 20) }).await.unwrap();
        let volume = Volume::open(&pool, info.id);
        (pool, volume)
    });
    world.set_disk_dead(node, path(0), true);
    let id = volume.info.id;
    let pool = world.block_on(node, CORE, move || async move {
        let failed = pool.set_lu_state(id, vec![1]).await;
        assert!(matches!(failed, Err(StoreError::Disk { .. })), "{failed:?}");
        assert_eq!(pool.metadata_state(), MetadataState::Failed);
        assert!(matches!(pool.rename_volume(id, "post").await, Err(StoreError::MetadataReadOnly(_))));
        assert!(matches!(
            pool.create_volume(thick("more", 4096)).await,
            Err(StoreError::MetadataReadOnly(_))
        ));
        let mut alive = 0;
        for slice in &volume.slices {
            let write = slice.write(ByteOffset(0), vec_chain(9, 512), Durability::Durable).await;
            match write {
                Ok(()) => alive += 1,
                Err(error) => {
                    assert!(matches!(error, SliceError::Unwritable | SliceError::Offline), "{error}")
                }
            }
        }
        assert_eq!(alive, 3);
        drop(volume);
        pool
    });
    world.block_on(node, CORE, move || async move { drop(pool) });
    world.set_disk_dead(node, path(0), false);
    world.block_on(node, CORE, move || async move {
        let pool = Pool::open(&paths(4), opening(1)).await.unwrap();
        assert_eq!(pool.metadata_state(), MetadataState::Writable);
        pool.rename_volume(id, "post").await.unwrap();
    });
}

#[test]
fn a_full_file_system_is_reported_and_does_not_stop_changes() {
    let world = World::new(1);
    let node = machine(&world, &[]);
    world.block_on(node, CORE, || async {
        let disk = NewDisk { path: path(0), create: Some(ByteLen(16 << 20)), reserve: false };
        let pool = Pool::create(vec![disk], creating()).await.unwrap();
        pool.create_volume(thick("mail", 8 << 20)).await.unwrap();
    });
    world.set_space(node, Some(5 << 20));
    world.block_on(node, CORE, || async {
        let pool = Pool::open(&paths(1), opening(1)).await.unwrap();
        let id = pool.volumes()[0].id;
        let volume = Volume::open(&pool, id);
        let full = volume.write(0, &vec![1; 4 << 20], Durability::Cached).await;
        assert_eq!(full, Err(SliceError::Full));
        pool.set_lu_state(id, vec![2; 3000]).await.unwrap();
        volume.zero(0, 8 << 20).await.unwrap();
        volume.write(4096, &[1; 4096], Durability::Durable).await.unwrap();
    });
}

#[test]
fn memory_is_counted() {
    let world = World::new(1);
    let node = machine(&world, &[(4 << 20, 512)]);
    world.block_on(node, CORE, || async {
        let budget = RamBudget::new(ByteLen(10 << 20));
        let options = CreateOptions { ram: budget.clone(), ..creating() };
        let pool = Pool::create(existing(1), options).await.unwrap();
        let spec = |name: &str, capacity| VolumeSpec { kind: VolumeKind::Ram, ..thick(name, capacity) };
        let info = pool.create_volume(spec("scratch", 6 << 20)).await.unwrap();
        let refused = pool.create_volume(spec("more", 5 << 20)).await;
        assert!(matches!(refused, Err(StoreError::NoMemory { .. })));
        assert!(matches!(
            pool.grow_volume(info.id, ByteLen(11 << 20)).await,
            Err(StoreError::NoMemory { .. })
        ));
        pool.grow_volume(info.id, ByteLen(9 << 20)).await.unwrap();
        assert_eq!(budget.free(), ByteLen(1 << 20));
        drop(pool);
        assert_eq!(budget.free(), ByteLen(10 << 20));
        // With less memory than before, the pool opens and shows the volume, but the volume has no slices.
        let small = store::OpenPool { ram: RamBudget::new(ByteLen(1 << 20)), ..opening(1) };
        let pool = Pool::open(&paths(1), small).await.unwrap();
        assert!(matches!(pool.volume_slices(info.id, CORE, 1), Err(StoreError::NoMemory { .. })));
        pool.delete_volume(info.id).await.unwrap();
    });
}

#[test]
fn invalid_requests_are_refused() {
    let world = World::new(1);
    let node = machine(&world, &[(4 << 20, 512)]);
    world.block_on(node, CORE, || async {
        let pool = Pool::create(existing(1), creating()).await.unwrap();
        let info = pool.create_volume(thick("mail", 1 << 20)).await.unwrap();
        let free = pool.usage().free;
        let refusal = async |spec| pool.create_volume(spec).await.unwrap_err();
        assert!(matches!(refusal(thick("mail", 4096)).await, StoreError::NameTaken(_)));
        assert!(matches!(refusal(thick("a b", 4096)).await, StoreError::NameInvalid(_)));
        assert!(matches!(refusal(thick("", 4096)).await, StoreError::NameInvalid(_)));
        assert!(matches!(refusal(thick("x", 0)).await, StoreError::CapacityInvalid(_)));
        assert!(matches!(refusal(thick("x", 1000)).await, StoreError::CapacityInvalid(_)));
        assert!(matches!(refusal(thick("x", u64::MAX - 511)).await, StoreError::CapacityInvalid(_)));
        assert!(matches!(refusal(thick("x", 1 << 56)).await, StoreError::NoSpace { .. }));
        let three = VolumeSpec { slices: Some(3), ..thick("x", 1 << 20) };
        assert!(matches!(refusal(three).await, StoreError::SlicesInvalid(3)));
        assert!(matches!(pool.grow_volume(info.id, ByteLen(4096)).await, Err(StoreError::Shrink { .. })));
        let large = pool.set_lu_state(info.id, vec![0; (64 << 10) + 1]).await;
        assert!(matches!(large, Err(StoreError::LuStateTooLarge(65_537))));
        assert_eq!(pool.usage().free, free, "refusals take nothing");
        // States fill the metadata area long before the pool is full. Nothing breaks.
        let mut made = 0;
        let full = loop {
            let spec =
                VolumeSpec { kind: VolumeKind::Ram, slices: Some(1), ..thick(&format!("v{made}"), 4096) };
            let id = match pool.create_volume(spec).await {
                Ok(info) => info.id,
                Err(error) => break error,
            };
            made += 1;
            if let Err(error) = pool.set_lu_state(id, vec![5; 60 << 10]).await {
                break error;
            }
        };
        assert!(matches!(full, StoreError::MetadataFull { .. }), "{full}");
        assert_eq!(pool.metadata_state(), MetadataState::Writable);
        pool.delete_volume(info.id).await.unwrap();
        assert_eq!(pool.usage().free, pool.usage().total);
    });
}

/// A change continues even if its caller stops waiting.
#[test]
fn a_change_continues_without_its_caller() {
    let world = World::new(1);
    let node = machine(&world, &[(4 << 20, 512)]);
    let pool = world.block_on(node, CoreId(0), || async {
        let pool = Pool::create(existing(1), creating()).await.unwrap();
        for name in ["one", "two"] {
            let short = std::time::Duration::from_micros(1);
            assert!(rt::timeout(short, pool.create_volume(thick(name, 4096))).await.is_err());
        }
        pool
    });
    world.run_until_idle();
    world.block_on(node, CoreId(0), move || async move {
        let names: Vec<String> = pool.volumes().into_iter().map(|volume| volume.name).collect();
        assert_eq!(names, ["one", "two"]);
        drop(pool);
        let pool = Pool::open(&paths(1), store::OpenPool { ram: ram(), ..opening(1) }).await.unwrap();
        assert_eq!(pool.volumes().len(), 2);
    });
}

/// A volume of 512-byte blocks on a disk of 4096 that is full of sevens, and its offset on the disk.
fn small_blocks(world: &World, node: rt::sim::NodeId, blocks: u64) -> (Pool, Volume, u64) {
    sevens(world, node, VolumeSpec { slices: Some(1), ..thick("mail", blocks * 512) })
}

#[test]
fn a_write_of_a_part_of_a_bad_block_fails_and_nothing_else() {
    let world = World::new(1);
    let node = machine(&world, &[(4 << 20, 4096)]);
    let (pool, volume, start) = small_blocks(&world, node, 32);
    let faults = DiskFaults::default().with_unreadable(start + 4096..start + 8192).remapping();
    world.set_disk_faults(node, path(0), faults);
    world.block_on(node, CORE, move || async move {
        let slice = &volume.slices[0];
        let bytes = |blocks: u64| (ByteOffset(blocks * 512), vec_chain(3, 1024));
        let cannot = |found: Result<(), SliceError>, block: u64| {
            let Err(SliceError::Unreadable(bad)) = found else { panic!("{found:?}") };
            assert_eq!(
                (bad.offset.0, bad.disk_offset, bad.cause),
                (block * 512, start + 4096, ReadFailure::Medium)
            );
        };
        // Inside the bad block, across its beginning, and across its end.
        for (first, named) in [(10, 10), (7, 8), (15, 15)] {
            let (offset, data) = bytes(first);
            cannot(slice.read_edges(offset, ByteLen(1024)).await, named);
            cannot(slice.write(offset, data, Durability::Durable).await, named);
            cannot(slice.zero(offset, ByteLen(1024)).await, named);
        }
        // The disk is in service, and other blocks can be written, in part or as a whole.
        for first in [2, 16, 17] {
            let (offset, data) = bytes(first);
            slice.read_edges(offset, ByteLen(1024)).await.unwrap();
            slice.write(offset, data, Durability::Durable).await.unwrap();
        }
        // Whole blocks need nothing of what they replace.
        slice.read_edges(ByteOffset(4096), ByteLen(8192)).await.unwrap();
        slice.write(ByteOffset(4096), vec_chain(4, 4096), Durability::Durable).await.unwrap();
        let (offset, data) = bytes(10);
        slice.write(offset, data, Durability::Durable).await.unwrap();
        let found = slice.read(ByteOffset(4096), ByteLen(4096)).await.unwrap().to_vec();
        assert_eq!(found, [vec![4; 1024], vec![3; 1024], vec![4; 2048]].concat());
        drop(pool);
    });
}

/// The last block of a slice may be part of a disk block. What follows it belongs to no slice.
#[test]
fn the_last_block_is_written_without_its_rest_and_what_is_behind_it_stays_zero() {
    let world = World::new(1);
    let node = machine(&world, &[(4 << 20, 4096)]);
    let (pool, volume, start) = small_blocks(&world, node, 11);
    let faults = DiskFaults::default().with_unreadable(start + 4096..start + 8192).remapping();
    world.set_disk_faults(node, path(0), faults);
    world.block_on(node, CORE, move || async move {
        let slice = &volume.slices[0];
        let failed = slice.write(ByteOffset(9 * 512), vec_chain(3, 1024), Durability::Durable).await;
        assert!(
            matches!(failed, Err(SliceError::Unreadable(_))),
            "the block before it is not known: {failed:?}"
        );
        slice.rewrite(ByteOffset(8 * 512), vec_chain(3, 3 * 512)).await.unwrap();
        assert_eq!(slice.read(ByteOffset(8 * 512), ByteLen(3 * 512)).await.unwrap().to_vec(), [3; 3 * 512]);
        drop(pool);
    });
    let mut behind = vec![1; 5 * 512];
    world.disk_image(node, path(0)).read(start + 11 * 512, &mut behind);
    assert!(behind.iter().all(|byte| *byte == 0), "a slice that grows finds zeros there");
}
