//! Pools whose disks were set back to an earlier state.

use rt::sim::{DiskImage, NodeId, World};
use store::{ClusterId, CopyOf, CopyState, Pool, PoolMark, VolumeId, VolumeSpec};

use crate::disk::{CORE, creating, existing, machine, opening, path, paths, thick};

const ID: VolumeId = VolumeId([0x42; 16]);
const STATE: CopyState = CopyState::Trusted { epoch: 7 };

/// A pool of this many disks, with a copy and a volume that is not one.
fn pool_of(world: &World, disks: usize) -> NodeId {
    let node = machine(world, &vec![(4 << 20, 512); disks]);
    world.block_on(node, CORE, move || async move {
        let pool = Pool::create(existing(disks), creating()).await.unwrap();
        let copy = CopyOf { cluster: ClusterId([7; 16]), slot: 3, state: STATE };
        pool.create_volume(VolumeSpec { id: Some(ID), copy: Some(copy), ..thick("copy", 4096) })
            .await
            .unwrap();
        pool.create_volume(thick("other", 4096)).await.unwrap();
        pool.set_mark(PoolMark { count: 1, at: 10 }, false).await.unwrap();
    });
    node
}

fn images(world: &World, node: NodeId, disks: usize) -> Vec<DiskImage> {
    (0..disks).map(|disk| world.disk_image(node, path(disk))).collect()
}

/// The state of an opened pool: its mark, the state of its copy, and how many of its disks were set back.
fn opened(world: &World, node: NodeId, disks: usize) -> (u64, CopyState, usize) {
    world.block_on(node, CORE, move || async move {
        let pool = Pool::open(&paths(disks), opening(1)).await.unwrap();
        (pool.mark().count, pool.volume(ID).unwrap().copy.unwrap().state, pool.older_disks().len())
    })
}

#[test]
fn how_far_a_pool_has_come_is_kept() {
    let world = World::new(1);
    let node = pool_of(&world, 2);
    assert_eq!(opened(&world, node, 2), (1, STATE, 0));
    world.block_on(node, CORE, || async {
        let pool = Pool::open(&paths(2), opening(1)).await.unwrap();
        assert!(!pool.is_vouched_for(), "nobody was asked since it was opened");
        pool.vouch_for();
        assert!(pool.is_vouched_for());
        pool.doubt();
        assert!(!pool.is_vouched_for());
        pool.set_mark(PoolMark { count: 9, at: 20 }, true).await.unwrap();
        assert!(pool.volume_named("other").unwrap().copy.is_none());
        // The mark stays, even without copies.
        pool.delete_volume(ID).await.unwrap();
        drop(pool);
        let pool = Pool::open(&paths(2), opening(1)).await.unwrap();
        assert_eq!(pool.mark(), PoolMark { count: 9, at: 20 });
    });
}

#[test]
fn copies_of_a_pool_that_was_set_back_are_known_as_such() {
    let world = World::new(1);
    let node = pool_of(&world, 1);
    world.block_on(node, CORE, || async {
        let pool = Pool::open(&paths(1), opening(1)).await.unwrap();
        assert!(pool.set_back_copies().is_empty());
        pool.set_mark(PoolMark { count: 5, at: 20 }, true).await.unwrap();
        assert_eq!(pool.set_back_copies(), [ID], "not the volume that is no copy");
    });
    assert_eq!(opened(&world, node, 1), (5, CopyState::SetBack { epoch: 7 }, 0));
}

/// A stale disk of several, as from a mirror leg: the others have newer generations.
#[test]
fn one_disk_of_several_that_was_set_back_is_noticed() {
    // Only the first three disks have metadata. A disk that was set back has missed at least one opening and
    // one mark.
    for (older, missed) in (0..5).flat_map(|disk| [(disk, 1), (disk, 2)]) {
        let last = 1 + missed;
        let world = World::new(1);
        let node = pool_of(&world, 5);
        let before = images(&world, node, 5);
        for mark in 2..=last {
            world.block_on(node, CORE, move || async move {
                let pool = Pool::open(&paths(5), opening(1)).await.unwrap();
                pool.set_mark(PoolMark { count: mark, at: 20 }, false).await.unwrap();
            });
        }
        if missed > 1 {
            assert_eq!(opened(&world, node, 5), (last, STATE, 0));
        }
        world.remove_disk(node, path(older));
        world.put_disk(node, path(older), before[older].clone());
        let set_back = CopyState::SetBack { epoch: 7 };
        assert_eq!(opened(&world, node, 5), (last, set_back, 1), "disk {older} missed {missed}");
        assert_eq!(opened(&world, node, 5), (last, set_back, 0), "it stays so");
    }
}
