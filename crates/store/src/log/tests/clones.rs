//! Clones: what they read as, what they cost, and what they keep from being deleted.

use super::snapshots::{ids, live, read_of, wait_until_freed};
use super::*;
use crate::catalog::CLONE_DEPTH_MAX;
use crate::error::StoreError;
use crate::log::SnapshotError;
use crate::pool::{CloneOf, CloneSpec, ZeroingWatch};

/// The specification of a clone without compression.
pub(super) fn clone_spec(name: &str, volume: VolumeId, snapshot: u64) -> CloneSpec {
    CloneSpec {
        of: CloneOf { volume, snapshot },
        name: name.into(),
        created: 0,
        id: None,
        copy: None,
        space: SpacePolicy::default(),
        compression: Compression::Off,
    }
}

/// Creates a clone of a snapshot that these slices of the volume have, and opens it.
async fn clone_of(
    pool: &Pool,
    disks: &CoreDisks,
    (volume, of): (VolumeId, &[Rc<Slice>]),
    snapshot: u64,
    name: &str,
) -> (VolumeId, Vec<Rc<Slice>>) {
    let mut held = Vec::new();
    for slice in of {
        held.push(slice.hold_snapshot(snapshot).await.unwrap());
    }
    let id = pool.create_clone(clone_spec(name, volume, snapshot)).await.unwrap().id;
    drop(held);
    (id, slices(pool, disks, id))
}

/// The only slice of a clone.
pub(super) async fn clone_one(
    pool: &Pool,
    disks: &CoreDisks,
    volume: VolumeId,
    of: &Rc<Slice>,
    snapshot: u64,
    name: &str,
) -> (VolumeId, Rc<Slice>) {
    let of = std::slice::from_ref(of);
    let (id, mut slices) = clone_of(pool, disks, (volume, of), snapshot, name).await;
    (id, slices.remove(0))
}

async fn merge(slice: &Slice) {
    log_of(slice).inner.merge_all().await.unwrap();
}

fn first(at: u64) -> u64 {
    if at < 30 { 100 + at } else { 0 }
}

/// Blocks 10 to 19 were overwritten since, 20 and 21 unmapped, and 30 to 34 written for the first time.
fn later(at: u64) -> u64 {
    match at {
        20 | 21 => 0,
        10..20 | 30..35 => 200 + at,
        _ => first(at),
    }
}

/// Of the clone, 5 to 14 and 33 to 36 were written since, and 0, 1 and 25 to 31 unmapped.
fn cloned(at: u64) -> u64 {
    match at {
        0 | 1 | 25..=31 => 0,
        5..15 | 33..37 => 300 + at,
        _ => first(at),
    }
}

async fn change_to(slice: &Slice, is: impl Fn(u64) -> u64, was: impl Fn(u64) -> u64) {
    for at in (0..40).filter(|at| is(*at) != was(*at)) {
        match is(at) {
            0 => slice.zero(ByteOffset(at * BLOCK), ByteLen(BLOCK)).await.unwrap(),
            number => write(slice, at, number, Durability::Cached).await.unwrap(),
        }
    }
}

async fn assert_now(slice: &Slice, expected: impl Fn(u64) -> u64) {
    for at in 0..40 {
        assert_eq!(read(slice, at).await, Ok(expected(at)), "block {at}");
    }
}

async fn assert_past(slice: &Slice, id: u64, expected: impl Fn(u64) -> u64) {
    for at in 0..40 {
        assert_eq!(read_of(slice, id, at).await, Ok(expected(at)), "block {at} of snapshot {id}");
    }
}

/// A pool with a volume, its snapshot 1, and what the volume became later.
async fn with_snapshot(merges: bool) -> (Pool, CoreDisks, VolumeId, Rc<Slice>) {
    let (pool, disks, id, slice) = one_slice(4 << 20).await;
    change_to(&slice, first, |_| 0).await;
    slice.take_snapshot(1, 1000).await.unwrap();
    if merges {
        merge(&slice).await;
    }
    change_to(&slice, later, first).await;
    if merges {
        merge(&slice).await;
    }
    (pool, disks, id, slice)
}

#[test]
fn a_clone_reads_as_its_snapshot_and_goes_its_own_way() {
    for merges in [false, true] {
        let world = World::new(1);
        let node = machine(&world, 1, 16 << 20, 1);
        world.block_on(node, CORE, move || async move {
            let (pool, disks, id, slice) = with_snapshot(merges).await;
            let (clone_id, clone) = clone_one(&pool, &disks, id, &slice, 1, "c").await;
            assert_now(&clone, first).await;
            assert!(ids(&clone).await.is_empty(), "the snapshots of the other one are not its own");
            let parts = clone.allocated(ByteOffset(0), ByteLen(40 * BLOCK), 9).await.unwrap();
            assert_eq!(parts, [(ByteOffset(0), ByteLen(30 * BLOCK))]);
            change_to(&clone, cloned, first).await;
            clone.take_snapshot(1, 2000).await.unwrap();
            for at in 3..8 {
                write(&clone, at, 900, Durability::Cached).await.unwrap();
            }
            for _ in 0..3 {
                let now = |at| if (3..8).contains(&at) { 900 } else { cloned(at) };
                assert_now(&clone, now).await;
                assert_past(&clone, 1, cloned).await;
                assert_now(&slice, later).await;
                assert_past(&slice, 1, first).await;
                merge(&slice).await;
            }
            let parts = clone.allocated(ByteOffset(0), ByteLen(40 * BLOCK), 9).await.unwrap();
            let parts: Vec<(u64, u64)> =
                parts.into_iter().map(|(at, len)| (at.0 / BLOCK, len.0 / BLOCK)).collect();
            assert_eq!(parts, [(2, 23), (33, 4)]);
            check(&slice).await;
            // Back to its own snapshot, and on from there.
            clone.restore_snapshot(1, 7).await.unwrap();
            assert_now(&clone, cloned).await;
            clone.zero(ByteOffset(0), ByteLen(40 * BLOCK)).await.unwrap();
            assert_now(&clone, |_| 0).await;
            merge(&slice).await;
            assert_now(&clone, |_| 0).await;
            assert_past(&clone, 1, cloned).await;
            clone.restore_snapshot(1, 8).await.unwrap();
            // The line of its own is all that it has, and it is still a clone.
            clone.delete_snapshots(&[1]).await.unwrap();
            wait_until_freed(&clone).await;
            for _ in 0..6 {
                merge(&slice).await;
                idle(&slice).await;
            }
            assert_now(&clone, cloned).await;
            check(&slice).await;
            drop((slice, clone, disks));
            pool.logs_ended().await;
            drop(pool);
            let pool = open(1).await;
            let disks = pool.share_disks().attach();
            // The clone first: its log must know that it is one.
            let clone = slices(&pool, &disks, clone_id).remove(0);
            assert_now(&clone, cloned).await;
            assert_eq!(clone.last_restore().await, Ok(Some(8)));
            let slice = slices(&pool, &disks, id).remove(0);
            assert_now(&slice, later).await;
            assert_past(&slice, 1, first).await;
            check(&slice).await;
        });
    }
}

#[test]
fn what_is_cloned_cannot_be_deleted() {
    let world = World::new(2);
    let node = machine(&world, 1, 16 << 20, 1);
    world.block_on(node, CORE, || async {
        let (pool, disks, id, slice) = with_snapshot(true).await;
        slice.take_snapshot(2, 2000).await.unwrap();
        let held = slice.hold_snapshot(1).await.unwrap();
        assert_eq!(slice.delete_snapshots(&[1, 2]).await, Err(SnapshotError::Cloned));
        drop(held);
        assert!(matches!(slice.hold_snapshot(3).await, Err(SnapshotError::Unknown)));
        let (clone_id, clone) = clone_one(&pool, &disks, id, &slice, 1, "c").await;
        assert_eq!(pool.clone_of(clone_id), Some(CloneOf { volume: id, snapshot: 1 }));
        assert_eq!((pool.clones_of(id), pool.clone_of(id)), (vec![clone_id], None));
        assert_eq!(slice.delete_snapshots(&[2, 1]).await, Err(SnapshotError::Cloned));
        assert_eq!(ids(&slice).await, [1, 2], "not even the other one");
        assert!(!slice.snapshots().await.unwrap()[0].is_exact);
        slice.delete_snapshots(&[2]).await.unwrap();
        let watch = ZeroingWatch::default();
        let refused = pool.begin_conversion(id, VolumeKind::Thick, Compression::Off, false, watch).await;
        assert!(matches!(refused, Err(StoreError::HasClones(of)) if of == id));
        // Whatever the volume becomes, the clone stays as it is.
        change_to(&clone, cloned, first).await;
        slice.zero(ByteOffset(0), slice.len()).await.unwrap();
        wait_until_freed(&slice).await;
        merge(&slice).await;
        check(&slice).await;
        assert_now(&clone, cloned).await;
        let branch = branch_of(&clone);
        drop(slice);
        assert!(matches!(pool.delete_volume(id).await, Err(StoreError::HasClones(of)) if of == id));
        let slice = slices(&pool, &disks, id).remove(0);
        assert_past(&slice, 1, first).await;
        // What the clone has is its own, and nothing else.
        let used = log_of(&slice).inner.state.borrow().used[&branch];
        assert_eq!(used.blocks, (0..40).filter(|at| cloned(*at) >= 300).count() as u64);
        drop(clone);
        pool.delete_volume(clone_id).await.unwrap();
        assert!(pool.clones_of(id).is_empty());
        slice.delete_snapshots(&[1]).await.unwrap();
        wait_until_freed(&slice).await;
        merge(&slice).await;
        idle(&slice).await;
        check(&slice).await;
        assert_eq!(live(&pool, &slice).await, 0);
        drop(slice);
        pool.delete_volume(id).await.unwrap();
        drop(disks);
    });
}

/// The branch of a slice.
pub(super) fn branch_of(slice: &Slice) -> u32 {
    match &*slice.layout() {
        Layout::Log(slice) => slice.branch(),
        _ => panic!("a log slice"),
    }
}

/// A clone costs a commit of the catalog: the log writes nothing.
#[test]
fn creating_a_clone_writes_nothing_to_the_log() {
    let world = World::new(3);
    let node = machine(&world, 1, 16 << 20, 1);
    world.block_on(node, CORE, || async {
        let (pool, disks, id, slice) = with_snapshot(true).await;
        // An idle log says once that its last records are durable.
        rt::sleep(Duration::from_secs(3)).await;
        idle(&slice).await;
        let written = || log_of(&slice).inner.state.borrow().written;
        let before = written();
        let (_, clone) = clone_one(&pool, &disks, id, &slice, 1, "c").await;
        assert_now(&clone, first).await;
        assert_eq!(written(), before);
    });
}

/// The leaves of the clone and of the volume are written by the same checkpoint. If they were merged in the
/// same step, the clone would not know yet what it has to hide.
#[test]
fn what_was_not_merged_when_a_clone_unmapped_it_is_hidden() {
    let world = World::new(4);
    let node = machine(&world, 1, 16 << 20, 1);
    world.block_on(node, CORE, || async {
        let (pool, disks, id, slice) = one_slice(4 << 20).await;
        for at in [0, 512] {
            write(&slice, at, 100 + at, Durability::Cached).await.unwrap();
        }
        merge(&slice).await;
        // The leaves are there, and lack these.
        for at in [3, 515] {
            write(&slice, at, 100 + at, Durability::Cached).await.unwrap();
        }
        slice.take_snapshot(1, 1000).await.unwrap();
        let (_, clone) = clone_one(&pool, &disks, id, &slice, 1, "c").await;
        clone.zero(ByteOffset(0), clone.len()).await.unwrap();
        merge(&slice).await;
        for at in [0, 3, 512, 515] {
            assert_eq!(read(&clone, at).await, Ok(0));
            assert_eq!(read(&slice, at).await, Ok(100 + at));
        }
        check(&slice).await;
        // It notes what is there, and not every block: a leaf with two entries takes two grains.
        let branch = branch_of(&clone);
        let log = log_of(&slice);
        let state = log.inner.state.borrow();
        let of_clone = state.leaves.iter().filter(|((era, _), _)| era.branch == branch);
        let lens: Vec<(u64, u8)> = of_clone.map(|((_, number), place)| (*number, place.len)).collect();
        assert_eq!(lens, [(0, 2), (1, 2)]);
    });
}

#[test]
fn clones_of_clones_are_read_through_all_of_them() {
    let world = World::new(5);
    let node = machine(&world, 1, 16 << 20, 1);
    world.block_on(node, CORE, || async {
        let (pool, disks, id, slice) = with_snapshot(true).await;
        let mut chain = vec![(id, slice)];
        for depth in 1..=CLONE_DEPTH_MAX as u64 {
            let (of, parent) = chain.last().unwrap();
            let (clone_id, clone) = clone_one(&pool, &disks, *of, parent, 1, &format!("c{depth}")).await;
            // Each has a block of its own, and unmaps one.
            write(&clone, depth, 1000 * depth, Durability::Cached).await.unwrap();
            clone.zero(ByteOffset((10 + depth) * BLOCK), ByteLen(BLOCK)).await.unwrap();
            clone.take_snapshot(1, 1000).await.unwrap();
            // What comes later is not in the next one.
            write(&clone, 20, 5, Durability::Cached).await.unwrap();
            chain.push((clone_id, clone));
        }
        let expected = |depth: u64| {
            move |at: u64| match at {
                20 if depth > 0 => 5,
                at if (1..=depth).contains(&at) => 1000 * at,
                at if (11..=10 + depth).contains(&at) => 0,
                at => first(at),
            }
        };
        for _ in 0..2 {
            for (depth, (_, clone)) in (0..).zip(&chain).skip(1) {
                assert_now(clone, expected(depth)).await;
            }
            merge(&chain[0].1).await;
        }
        check(&chain[0].1).await;
        let (last, of_last) = chain.last().unwrap();
        let _held = of_last.hold_snapshot(1).await.unwrap();
        let refused = pool.create_clone(clone_spec("deep", *last, 1)).await;
        assert!(matches!(refused, Err(StoreError::CloneTooDeep(of)) if of == *last));
        let (middle, _) = chain[2];
        drop(chain.remove(2));
        assert!(matches!(pool.delete_volume(middle).await, Err(StoreError::HasClones(of)) if of == middle));
        assert_now(&chain[2].1, expected(3)).await;
    });
}

/// Slice by slice, each in a log of its own.
#[test]
fn all_slices_of_a_volume_are_cloned() {
    let world = World::new(6);
    let node = machine(&world, 1, 32 << 20, 1);
    world.block_on(node, CORE, || async {
        let pool = create(1).await;
        let id = pool.create_volume(spec("v", 8 << 20, 4)).await.unwrap().id;
        let disks = pool.share_disks().attach();
        let all = slices(&pool, &disks, id);
        for (index, slice) in (0..).zip(&all) {
            write(slice, 7, 100 + index, Durability::Cached).await.unwrap();
            slice.take_snapshot(1, 1000).await.unwrap();
            write(slice, 7, 200 + index, Durability::Cached).await.unwrap();
        }
        let (clone_id, clones) = clone_of(&pool, &disks, (id, &all[..]), 1, "c").await;
        let info = pool.volume(clone_id).unwrap();
        assert_eq!((info.capacity, info.stripe), (ByteLen(8 << 20), pool.volume(id).unwrap().stripe));
        assert_eq!(clones.len(), 4);
        for (index, (slice, clone)) in (0..).zip(all.iter().zip(&clones)) {
            assert_eq!(read(clone, 7).await, Ok(100 + index));
            assert_eq!(read(slice, 7).await, Ok(200 + index));
            assert_eq!(slice.delete_snapshots(&[1]).await, Err(SnapshotError::Cloned));
            check(slice).await;
        }
    });
}

/// Nobody has held it, and it is not there. Nothing of such a clone may read as zeros.
#[test]
fn a_clone_of_a_snapshot_that_is_not_there_is_offline() {
    let world = World::new(7);
    let node = machine(&world, 1, 16 << 20, 1);
    world.block_on(node, CORE, || async {
        let (pool, disks, id, slice) = with_snapshot(false).await;
        let clone_id = pool.create_clone(clone_spec("c", id, 2)).await.unwrap().id;
        for _ in 0..2 {
            let clone = slices(&pool, &disks, clone_id).remove(0);
            assert_eq!(read(&clone, 0).await, Err(SliceError::Offline));
            assert_eq!(write(&clone, 0, 1, Durability::Cached).await, Err(SliceError::Offline));
            assert_eq!(clone.take_snapshot(1, 1).await, Err(SnapshotError::Slice(SliceError::Offline)));
            assert!(clone.is_offline());
        }
        assert_now(&slice, later).await;
        pool.delete_volume(clone_id).await.unwrap();
        check(&slice).await;
    });
}

/// What a clone is made of cannot be a volume without snapshots.
#[test]
fn only_log_volumes_are_cloned() {
    let world = World::new(8);
    let node = machine(&world, 1, 16 << 20, 1);
    world.block_on(node, CORE, || async {
        let pool = create(1).await;
        let thick = VolumeSpec { kind: VolumeKind::Thick, ..spec("t", 1 << 20, 1) };
        let id = pool.create_volume(thick).await.unwrap().id;
        let refused = pool.create_clone(clone_spec("c", id, 1)).await;
        assert!(matches!(refused, Err(StoreError::NotCloneable(of)) if of == id));
        let unknown = VolumeId([9; 16]);
        let refused = pool.create_clone(clone_spec("c", unknown, 1)).await;
        assert!(matches!(refused, Err(StoreError::NoSuchVolume(of)) if of == unknown));
        let disks = pool.share_disks().attach();
        let slice = slices(&pool, &disks, id).remove(0);
        assert!(matches!(slice.hold_snapshot(1).await, Err(SnapshotError::NotLog)));
    });
}
