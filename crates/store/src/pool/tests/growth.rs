//! Disks that grow: the crash cuts, and what a growth that fails leaves.

use super::*;
use crate::geometry::SUPERBLOCK_BYTES;
use crate::superblock::Superblock;

/// The disks of a new pool, enlarged by the end of a larger and older pool.
pub(super) fn grown_disks(count: usize, block: u32) -> Vec<DiskImage> {
    let with_pool = |size: u64, changes: u64| {
        let mut images = used_disks(count, block);
        images.iter_mut().for_each(|image| image.grow(size));
        let world = World::new(10);
        let node = machine(&world, images);
        world.block_on(node, CORE, move || async move {
            let pool = create(count).await;
            for at in 0..changes {
                pool.set_mark(PoolMark { count: at, at: 0 }, false).await.unwrap();
            }
        });
        (0..count).map(|disk| world.disk_image(node, path(disk))).collect::<Vec<_>>()
    };
    let (mut disks, older) = (with_pool(2 << 20, 0), with_pool(6 << 20, 50));
    for (image, older) in disks.iter_mut().zip(older) {
        let mut rest = vec![0; 4 << 20];
        older.read(2 << 20, &mut rest);
        image.grow(6 << 20);
        image.write(2 << 20, &rest);
    }
    disks
}

#[test]
fn disks_that_grow_survive_every_cut() {
    assert!(cut_everywhere(Life::that_grows(1), 3, None) > 300);
    assert!(cut_everywhere(Life::that_grows(4), 2, None) > 300);
}

/// A disk's new end may hold another pool's metadata, which is ignored. Growing by less than the metadata
/// takes is not enough.
#[test]
fn a_pool_grows_when_its_disk_has_grown_enough() {
    let world = World::new(1);
    let node = machine(&world, used_disks(1, 512));
    let pool = world.block_on(node, CORE, || create(1));
    let needed = {
        let pool = pool.clone();
        match world.block_on(node, CORE, move || async move { pool.grow().await }) {
            Err(StoreError::NotGrown { needed }) => needed,
            other => panic!("{other:?}"),
        }
    };
    let totals = [needed - 4096, needed].map(|more| {
        world.grow_disk(node, path(0), (2 << 20) + more);
        let pool = pool.clone();
        world.block_on(node, CORE, move || async move {
            let foreseen = pool.check_growth();
            let grown = pool.grow().await;
            assert_eq!(foreseen.ok(), grown.ok());
            pool.usage().total.0
        })
    });
    // The disk had less than one extent to spare.
    let more = (totals[1] - totals[0]) / EXTENT;
    assert!((needed / EXTENT..=needed.div_ceil(EXTENT)).contains(&more), "{totals:?}, {needed}");
    drop(pool);
    let reopened = world.block_on(node, CORE, || async { open(1).await.unwrap().usage().total.0 });
    assert_eq!(reopened, totals[1]);
}

/// No superblock leads to the old tail, which belongs to volumes now: also where growing was cut off.
#[test]
fn all_superblocks_of_grown_disks_lead_to_the_new_tail() {
    let life = Life { acts: &[Act::GrowDisks], ..Life::that_grows(4) };
    let (recording, history) = record(life, None);
    let total = *history.borrow().totals.last().unwrap();
    let mut grown = 0;
    for_each_cut(&recording, Subsets { bits: 1, seed: 3 }, |cut| {
        let world = World::new(12);
        let node = machine(&world, cut.images.clone());
        let found =
            world.block_on(node, CORE, move || async move { life.open().await.unwrap().usage().total });
        if found != total {
            return;
        }
        grown += 1;
        for disk in 0..4 {
            let image = world.disk_image(node, path(disk));
            for offset in [0, SUPERBLOCK_BYTES] {
                let mut bytes = vec![0; SUPERBLOCK_BYTES as usize];
                image.read(offset, &mut bytes);
                let superblock = Superblock::decode(&bytes).unwrap();
                assert_eq!(superblock.geometry.disk_bytes, 6 << 20, "{cut}: disk {disk}");
            }
        }
    });
    assert!(grown > 10, "{grown}");
}

/// What the new part of a disk does says nothing of the old one, nor does looking at it.
#[test]
fn a_growth_that_fails_leaves_the_disk_in_service() {
    let world = World::new(1);
    let node = machine(&world, used_disks(1, 512));
    let pool = world.block_on(node, CORE, || create(1));
    let before = pool.0.layout().geometry[0].disk_bytes;
    world.grow_disk(node, path(0), 6 << 20);
    let grow = |pool: &Pool| {
        let pool = pool.clone();
        world.block_on(node, CORE, move || async move {
            pool.check_growth().unwrap();
            pool.grow().await.map(|grown| grown.len())
        })
    };
    let bad = DiskFaults { write_error_one_in: 1, ..DiskFaults::default() };
    world.set_disk_faults(node, path(0), bad);
    assert!(matches!(grow(&pool), Err(StoreError::Disk { .. })));
    world.set_disk_faults(node, path(0), DiskFaults::default());
    let disk = Rc::clone(pool.0.layout().disks.disk(0));
    assert_eq!((disk.size(), disk.failure()), (before, None));
    assert_eq!(grow(&pool).unwrap(), 1);
    assert!(disk.size() > before);
}
