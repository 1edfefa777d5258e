//! The state that a root names is there twice.

use rt::sim::DiskFaults;

use super::super::root::Root;
use super::*;
use crate::error::{BadBlock, ReadFailure};

/// So many leaves that the state takes several slots.
const LEAVES: u64 = 400;

const SECTOR: u64 = 512;

/// A disk with a closed log, and where the slots of both copies of its state lie.
fn closed() -> (DiskImage, VolumeId, [Vec<u64>; 2]) {
    let world = World::new(1);
    let node = machine(&world, 1, 32 << 20, 1);
    let (id, slots) = world.block_on(node, CORE, || async {
        let (pool, disks, id, slice) = one_slice(LEAVES * 512 * BLOCK).await;
        for number in 0..LEAVES {
            write(&slice, number * 512, number + 1, Durability::Durable).await.unwrap();
        }
        log_of(&slice).inner.merge_all().await.unwrap();
        idle(&slice).await;
        let slots = state_slots(&slice);
        drop((slice, disks));
        pool.logs_ended().await;
        (id, slots)
    });
    let slots = slots.map(|copy| copy.into_iter().map(|(_, at)| at).collect::<Vec<u64>>());
    assert!(slots[0].len() > 2 && slots[0].len() == slots[1].len(), "{slots:?}");
    assert_ne!(slots[0], slots[1]);
    (world.disk_image(node, path(0)), id, slots)
}

/// Opens the log and compares everything. Returns how much of the state was repaired; `None`: the log is
/// refused.
fn open_and_compare(image: &DiskImage, id: VolumeId, faults: DiskFaults) -> Option<u64> {
    let world = World::new(1);
    let node = world.add_node("node", 1, |_| std::future::pending());
    world.put_disk(node, path(0), image.clone());
    world.set_disk_faults(node, path(0), faults);
    world.block_on(node, CORE, move || async move {
        let pool = open(1).await;
        let disks = pool.share_disks().attach();
        let slice = slices(&pool, &disks, id).remove(0);
        if slice.ready().await.is_err() {
            assert!(slice.is_offline());
            return None;
        }
        for number in 0..LEAVES {
            assert_eq!(read(&slice, number * 512).await, Ok(number + 1));
        }
        check(&slice).await;
        assert!(state_slots(&slice).iter().all(|copy| !copy.is_empty()), "it is there twice again");
        Some(pool.log_figures()[0].1.state_repaired)
    })
}

/// Flips a bit of a sector.
fn flip(image: &mut DiskImage, at: u64) {
    let mut byte = [0];
    image.read(at, &mut byte);
    image.write(at, &[byte[0] ^ 1]);
}

/// A log whose state was there once was lost with any sector of it, and with it all volumes of its core.
#[test]
fn any_one_sector_of_the_state_may_be_lost() {
    let (image, id, slots) = closed();
    for (copy, slots) in slots.iter().enumerate() {
        for (number, slot) in slots.iter().enumerate() {
            for sector in 0..BLOCK / SECTOR {
                let at = slot + sector * SECTOR;
                let mut image = image.clone();
                let mut faults = DiskFaults::default();
                if sector % 2 == 0 {
                    flip(&mut image, at + 100);
                } else {
                    faults = faults.with_unreadable(at..at + SECTOR);
                }
                let repaired = open_and_compare(&image, id, faults);
                let expected = if copy == 0 { 1 } else { 0 };
                assert_eq!(repaired, Some(expected), "sector {sector} of slot {number} of copy {copy}");
            }
        }
    }
}

#[test]
fn each_part_of_the_state_comes_from_the_copy_that_has_it() {
    let (image, id, [first, second]) = closed();
    let lose = |lost: &[u64]| {
        let mut image = image.clone();
        lost.iter().for_each(|at| flip(&mut image, *at));
        open_and_compare(&image, id, DiskFaults::default())
    };
    assert_eq!(lose(&[first[0], second[1]]), Some(1));
    assert_eq!(lose(&[first[0], second[1], first[2]]), Some(2));
    assert_eq!(lose(&first), Some(first.len() as u64));
    assert_eq!(lose(&second), Some(0));
    assert_eq!(lose(&[first[1], second[1]]), None, "both copies of one part");
}

/// A write of the state that never reached the disk leaves what an earlier root had there.
#[test]
fn an_older_state_is_not_mistaken_for_the_newest_one() {
    let (image, id, [first, second]) = closed();
    let slot = |at: u64| {
        let mut slot = vec![0; BLOCK as usize];
        image.read(at, &mut slot);
        slot
    };
    let old = super::super::state::into_slots(&slot(first[0])[16..], 1, 0..1).to_vec();
    let mut stale = image.clone();
    stale.write(first[0], &old);
    assert_eq!(open_and_compare(&stale, id, DiskFaults::default()), Some(1));
    // The parts of the newest one are not in their places.
    let mut swapped = image.clone();
    swapped.write(first[0], &slot(first[1]));
    swapped.write(first[1], &slot(first[0]));
    assert_eq!(open_and_compare(&swapped, id, DiskFaults::default()), Some(2));
    stale.write(second[0], &old);
    assert_eq!(open_and_compare(&stale, id, DiskFaults::default()), None);
}

#[test]
fn the_second_copy_is_on_another_disk_if_possible() {
    let world = World::new(1);
    let node = machine(&world, 2, 8 << 20, 1);
    world.block_on(node, CORE, || async {
        let pool = create(2).await;
        let id = pool.create_volume(spec("v", 64 << 20, 1)).await.unwrap().id;
        let disks = pool.share_disks().attach();
        let slice = slices(&pool, &disks, id).remove(0);
        for number in 0..2000 {
            write(&slice, number % 300, number + 1, Durability::Cached).await.unwrap();
        }
        idle(&slice).await;
        let log = log_of(&slice);
        let mut state = log.inner.state.borrow_mut();
        let disk_of = |state: &super::super::Running, segment| state.segments.locate(segment).unwrap().0;
        let mut chosen = 0;
        for disk in 0..2 {
            let has_other = state.segments.free.iter().any(|segment| disk_of(&state, *segment) != disk);
            let on_it = (0..).take(256).find(|segment| {
                state.segments.locate(*segment).is_some_and(|(its_disk, _)| its_disk == disk)
            });
            let (true, Some(segment)) = (has_other, on_it) else { continue };
            let second = state.second_runs(2, &[Run { segment, slot: 0, slots: 2 }]);
            let [run] = second[..] else { panic!("{second:?}") };
            assert_ne!(disk_of(&state, run.segment), disk);
            chosen += 1;
        }
        assert!(chosen > 0, "the log has segments on both disks");
    });
}

/// A root without a second copy is better than none.
#[test]
fn without_room_the_state_is_there_once() {
    let world = World::new(1);
    let node = machine(&world, 1, 16 << 20, 1);
    world.block_on(node, CORE, || async {
        let (_pool, _disks, _id, slice) = one_slice(4 << 20).await;
        write(&slice, 1, 7, Durability::Durable).await.unwrap();
        idle(&slice).await;
        let log = log_of(&slice);
        let mut state = log.inner.state.borrow_mut();
        let free = std::mem::take(&mut state.segments.free);
        assert!(state.second_runs(2, &[]).is_empty());
        state.segments.free = free;
        assert_eq!(state.second_runs(2, &[]).len(), 1);
    });
}

/// Where the copies of the newest root and the slots of both copies of its state lie on the only disk.
async fn twice(slice: &Slice) -> Vec<u64> {
    let inner = Rc::clone(&log_of(slice).inner);
    let root = inner.state.borrow().root;
    let roots = inner.handle.use_roots().await.places.clone();
    let roots = roots.into_iter().map(|(_, offset)| offset + Root::offset(root));
    roots.chain(state_slots(slice).into_iter().flatten().map(|(_, at)| at)).collect()
}

/// Nothing else reads the second copy as long as the first one is intact: both could rot, one after the
/// other.
#[test]
fn a_scrub_finds_a_copy_of_the_root_or_of_its_state_that_has_rotted() {
    let world = World::new(1);
    let node = machine(&world, 1, 16 << 20, 1);
    let (pool, disks, _id, slice) = world.block_on(node, CORE, || async {
        let made = one_slice(4 << 20).await;
        write(&made.3, 1, 7, Durability::Durable).await.unwrap();
        log_of(&made.3).inner.merge_all().await.unwrap();
        made
    });
    for number in 0..4 {
        let here = Rc::clone(&slice);
        let copies = world.block_on(node, CORE, move || async move {
            idle(&here).await;
            twice(&here).await
        });
        assert_eq!(copies.len(), 4, "{copies:?}");
        world.corrupt_disk(node, path(0), copies[number]..copies[number] + SECTOR);
        let here = Rc::clone(&slice);
        let found = world
            .block_on(node, CORE, move || async move { [here.check_root().await, here.check_root().await] });
        let disk_offset = copies[number];
        let bad = BadBlock { offset: ByteOffset(0), disk: 0, disk_offset, cause: ReadFailure::Map };
        assert_eq!(found, [Ok(vec![(bad, true)]), Ok(Vec::new())], "copy {number}");
    }
    world.block_on(node, CORE, move || async move { drop((slice, pool, disks)) });
}

/// A log that is idle has the heads of its newest records for as long as it is, and needs each of them when
/// it is opened.
#[test]
fn heads_that_rot_after_a_scrub_do_no_harm() {
    for scrubs in [true, false] {
        let world = World::new(1);
        let node = machine(&world, 1, 16 << 20, 1);
        let (pool, disks, id, slice) = world.block_on(node, CORE, move || async move {
            let made = one_slice(4 << 20).await;
            for number in 1..4 {
                write(&made.3, number, number, Durability::Durable).await.unwrap();
            }
            // By then, a record says that they are durable.
            rt::sleep(std::time::Duration::from_secs(2)).await;
            if scrubs {
                assert_eq!(made.3.check_root().await, Ok(Vec::new()));
            }
            made
        });
        let image = world.disk_image(node, path(0));
        let is_head = |at: &u64| {
            let mut start = [0; 8];
            image.read(*at, &mut start);
            start == *b"URSALREC"
        };
        let heads: Vec<u64> = (0..image.size()).step_by(BLOCK as usize).filter(is_head).collect();
        assert!(heads.len() >= 3, "{heads:?}");
        world.corrupt_disk(node, path(0), heads[0]..heads[0] + SECTOR);
        world.block_on(node, CORE, move || async move {
            drop(slice);
            pool.logs_ended().await;
            let slice = slices(&pool, &disks, id).remove(0);
            assert_eq!(slice.ready().await.is_ok(), scrubs);
            for number in (1..4).filter(|_| scrubs) {
                assert_eq!(read(&slice, number).await, Ok(number));
            }
        });
    }
}
