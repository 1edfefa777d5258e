//! What is not opened, and why; and what is opened although it is damaged.

use rt::sim::{DiskImage, NodeId, World};
use store::{MissingDisk, Pool, StoreError, probe};

use crate::disk::{CORE, creating, existing, host, machine, opening, path, paths, thick};

/// A machine with a pool of this many disks and one volume, which was closed without an export.
fn pool(world: &World, disks: usize) -> NodeId {
    let node = machine(world, &vec![(4 << 20, 512); disks]);
    world.block_on(node, CORE, move || async move {
        let pool = Pool::create(existing(disks), creating()).await.unwrap();
        pool.create_volume(thick("mail", 1 << 20)).await.unwrap();
    });
    node
}

/// The result of opening these disks.
fn open(world: &World, node: NodeId, disks: Vec<usize>, by: u8) -> Result<usize, StoreError> {
    world.block_on(node, CORE, move || async move {
        let paths: Vec<_> = disks.into_iter().map(path).collect();
        Pool::open(&paths, opening(by)).await.map(|pool| pool.volumes().len())
    })
}

/// The first bytes of a disk, as a disk of `size`.
fn resized(image: &DiskImage, size: u64) -> DiskImage {
    let mut bytes = vec![0; size.min(image.size()) as usize];
    image.read(0, &mut bytes);
    let mut resized = DiskImage::new(size, image.block());
    resized.write(0, &bytes);
    resized
}

#[test]
fn all_disks_are_needed_in_any_order() {
    let world = World::new(1);
    let node = pool(&world, 3);
    assert_eq!(open(&world, node, vec![2, 0, 1], 1).unwrap(), 1);
    let second = world.block_on(node, CORE, || async { probe(&path(1)).await.unwrap() });
    assert_eq!((second.index, second.count), (1, 3));
    let missing = open(&world, node, vec![2, 0], 1).unwrap_err();
    let expected = MissingDisk { index: 1, disk: Some(second.disk) };
    assert!(matches!(&missing, StoreError::DisksMissing { missing, count: 3, .. } if *missing == [expected]));
    assert!(missing.to_string().contains(&second.disk.to_string()), "{missing}");
    assert!(matches!(open(&world, node, vec![], 1), Err(StoreError::NoDisks)));
}

#[test]
fn images_and_foreign_disks_are_refused() {
    let world = World::new(1);
    let node = pool(&world, 2);
    let other = pool(&world, 1);
    world.put_disk(node, path(7), world.disk_image(node, path(1)));
    world.put_disk(node, path(8), world.disk_image(other, path(0)));
    assert!(matches!(open(&world, node, vec![0, 1, 7], 1), Err(StoreError::DuplicateDisk { .. })));
    assert!(matches!(open(&world, node, vec![0, 8], 1), Err(StoreError::OtherPool { .. })));
    world.put_disk(node, path(9), DiskImage::new(4 << 20, 512));
    let nothing = open(&world, node, vec![0, 9], 1).unwrap_err();
    assert!(nothing.to_string().contains("/disk9 is not a disk of a pool, it holds nothing"), "{nothing}");
}

#[test]
fn another_server_needs_an_export_or_force() {
    let world = World::new(1);
    let node = pool(&world, 1);
    let refused = open(&world, node, vec![0], 2).unwrap_err();
    assert!(matches!(&refused, StoreError::UsedElsewhere { host: by, .. } if *by == host(1)));
    assert!(refused.to_string().contains("host-1"), "{refused}");
    world.block_on(node, CORE, || async {
        let forced = store::OpenPool { force: true, ..opening(2) };
        let pool = Pool::open(&paths(1), forced).await.unwrap();
        pool.export().await.unwrap();
        assert!(matches!(pool.create_volume(thick("late", 4096)).await, Err(StoreError::Exported(_))));
    });
    assert_eq!(open(&world, node, vec![0], 3).unwrap(), 1);
    assert!(matches!(open(&world, node, vec![0], 2), Err(StoreError::UsedElsewhere { .. })));
}

#[test]
fn a_pool_is_not_made_over_another() {
    let world = World::new(1);
    let node = pool(&world, 1);
    let refused = world.block_on(node, CORE, || async {
        let options = store::CreateOptions { wipe: false, ..creating() };
        Pool::create(existing(1), options).await.map(drop)
    });
    assert!(matches!(refused, Err(StoreError::NotEmpty { found: store::Content::Pool, .. })));
    // Nor if the start was cleared, and only the end shows it.
    let mut image = world.disk_image(node, path(0));
    image.zero(0, 1 << 20);
    world.put_disk(node, path(1), image);
    let refused = world.block_on(node, CORE, || async {
        let options = store::CreateOptions { wipe: false, ..creating() };
        let disk = store::NewDisk { path: path(1), create: None, reserve: false };
        Pool::create(vec![disk], options).await.map(drop)
    });
    assert!(matches!(refused, Err(StoreError::NotEmpty { .. })));
}

#[test]
fn a_damaged_start_or_end_is_survived_and_repaired() {
    for range in [0..1 << 20, 3 << 20..4 << 20] {
        let world = World::new(1);
        let node = pool(&world, 1);
        world.corrupt_disk(node, path(0), range.clone());
        assert_eq!(open(&world, node, vec![0], 1).unwrap(), 1);
        // Opening repaired the damaged end. Next, the other end is damaged.
        assert_eq!(open(&world, node, vec![0], 1).unwrap(), 1);
        let other = if range.start == 0 { 3 << 20..4 << 20 } else { 0..1 << 20 };
        world.corrupt_disk(node, path(0), other);
        assert_eq!(open(&world, node, vec![0], 1).unwrap(), 1);
        world.corrupt_disk(node, path(0), 0..4 << 20);
        assert!(open(&world, node, vec![0], 1).is_err());
    }
}

#[test]
fn damage_everywhere_is_distinguished_from_foreign_data() {
    let world = World::new(1);
    let node = pool(&world, 1);
    for end in [0, (4 << 20) - 8192] {
        for copy in [end, end + 4096] {
            // Not the magic, so that it can be seen that this was a pool.
            world.corrupt_disk(node, path(0), copy + 512..copy + 1024);
        }
    }
    assert!(matches!(open(&world, node, vec![0], 1), Err(StoreError::SuperblockDamaged { .. })));

    let node = pool(&world, 1);
    // A flipped bit may be beyond the catalog, where it does not matter.
    for _ in 0..20 {
        world.corrupt_disk(node, path(0), 64 << 10..1 << 20);
        world.corrupt_disk(node, path(0), 3 << 20..(4 << 20) - 8192);
    }
    let refused = open(&world, node, vec![0], 1).unwrap_err();
    assert!(matches!(refused, StoreError::MetadataDamaged { found: None, .. }), "{refused}");
}

#[test]
fn a_disk_that_was_cut_off_is_refused_and_one_that_grew_is_not() {
    let world = World::new(1);
    let node = pool(&world, 1);
    let image = world.disk_image(node, path(0));
    world.put_disk(node, path(1), resized(&image, 3 << 20));
    let refused = open(&world, node, vec![1], 1).unwrap_err();
    assert!(
        matches!(refused, StoreError::DiskShrunk { expected: 4_194_304, found: 3_145_728, .. }),
        "{refused}"
    );
    world.put_disk(node, path(2), resized(&image, 5 << 20));
    assert_eq!(open(&world, node, vec![2], 1).unwrap(), 1);
}
