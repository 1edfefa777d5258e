//! What looks like a record of a log and must not count: blocks of a guest that knows all that a head must
//! say, and records that an earlier recovery has not seen.

use super::super::record::{Entry, Head, Stream, What};
use super::lost_leaf::first_block_of;
use super::*;
use crate::canary::{Canary, make};

const OLD: u64 = 7;
const NEW: u64 = 8;

/// A pool with a slice whose block 1 is [`OLD`], and in the map.
async fn merged() -> (Pool, CoreDisks, VolumeId, Rc<Slice>) {
    let opened = one_slice(4 << 20).await;
    write(&opened.3, 1, OLD, Durability::Durable).await.unwrap();
    log_of(&opened.3).inner.merge_all().await.unwrap();
    idle(&opened.3).await;
    opened
}

/// A record by which block 1 is unmapped: one of the next that the log writes.
fn unmapping(log: &Log, generation: u64, place: Place) -> Vec<u8> {
    let state = log.inner.state.borrow();
    let branch = state.leaves.first_key_value().expect("it is in the map").0.0.branch;
    let entry = Entry { branch, era: 0, block: 1, what: What::Zeros { count: 1 } };
    let head = Head {
        stream: Stream::Hosts,
        generation,
        sequence: state.append.next + 2,
        durable_below: 0,
        root: 0,
        place,
        entries: vec![entry],
    };
    head.encode().to_vec()
}

/// Kills the node's process, with what it had open, and starts it again.
fn restart<T>(world: &World, node: NodeId, opened: T) {
    world.kill(node);
    drop(opened);
    world.run_for(Duration::from_millis(200));
    world.restart(node, |_| std::future::pending());
}

#[test]
fn a_block_that_looks_like_a_head_is_not_taken_for_one() {
    for is_taken in [false, true] {
        make(is_taken.then_some(Canary::DataAsHead));
        let world = World::new(1);
        let node = machine(&world, 1, 8 << 20, 1);
        let (opened, id, head) = world.block_on(node, CORE, || async {
            let (pool, disks, id, slice) = merged().await;
            let log = log_of(&slice);
            let open = log.inner.state.borrow().segments.hosts.expect("it has written a record");
            let head = Place::new(open.segment, open.next);
            let forged = unmapping(&log, open.generation, head.next());
            let at = ByteOffset(2 * BLOCK);
            slice.write(at, Chain::copy_of(&forged), Durability::Cached).await.unwrap();
            assert_eq!(slice.read(at, ByteLen(BLOCK)).await.unwrap().to_vec(), forged);
            let (_, _, head) = log.inner.locate(head).unwrap();
            drop(log);
            ((pool, disks, slice), id, head)
        });
        restart(&world, node, opened);
        // Without the head, recovery looks for the next one slot by slot.
        world.corrupt_disk(node, path(0), head..head + 512);
        let found = first_block_of(world.disk_image(node, path(0)), id);
        make(None);
        assert_eq!(found, Ok(if is_taken { 0 } else { OLD }));
    }
}

/// The disk could not read it, or its write ended later than the process that had begun it. Meanwhile, the
/// log has continued.
#[test]
fn a_record_that_recovery_has_not_seen_does_not_count_at_the_next_one() {
    for counts in [false, true] {
        make(counts.then_some(Canary::GenerationKept));
        let world = World::new(1);
        let node = machine(&world, 1, 8 << 20, 1);
        let (opened, id, unseen) = world.block_on(node, CORE, || async {
            let (pool, disks, id, slice) = merged().await;
            let log = log_of(&slice);
            let announced = log.inner.state.borrow().segments.ready.clone();
            let record = |(segment, generation): (u32, u64)| {
                let place = Place::new(segment, 0);
                let (_, _, at) = log.inner.locate(place).unwrap();
                (segment, at, unmapping(&log, generation, place))
            };
            let unseen: Vec<(u32, u64, Vec<u8>)> = announced.into_iter().map(record).collect();
            drop(log);
            ((pool, disks, slice), id, unseen)
        });
        restart(&world, node, opened);
        let (opened, announced) = world.block_on(node, CORE, move || async move {
            let pool = open(1).await;
            let disks = pool.share_disks().attach();
            let slice = slices(&pool, &disks, id).remove(0);
            write(&slice, 1, NEW, Durability::Durable).await.unwrap();
            let announced = log_of(&slice).inner.state.borrow().segments.ready.clone();
            ((pool, disks, slice), announced)
        });
        restart(&world, node, opened);
        let mut image = world.disk_image(node, path(0));
        // Not where something else has been written since.
        let is_announced = |segment: u32| announced.iter().any(|(ready, _)| *ready == segment);
        let unseen: Vec<_> = unseen.into_iter().filter(|(segment, ..)| is_announced(*segment)).collect();
        assert!(!unseen.is_empty(), "the log has announced some of the segments again");
        for (_, at, record) in unseen {
            image.write(at, &record);
        }
        let found = first_block_of(image, id);
        make(None);
        assert_eq!(found, Ok(if counts { 0 } else { NEW }));
    }
}
