//! Cutting a recording finds the bugs that it should, and no others.

use std::path::Path;

use base::Buf;

use super::one_node;
use crate::sim::{Recording, Subsets, World, for_each_cut};
use crate::{CoreId, Disk, Durability, OpenOptions};

#[derive(Clone, Copy, PartialEq)]
enum Bug {
    None,
    NoChecksum,
    AckBeforeFlush,
}

/// A toy store: each record is two sectors, its number and a checksum, then its payload.
async fn store(bug: Bug, recording: Recording) {
    let disk = Disk::open(Path::new("/d"), OpenOptions::default()).await.unwrap();
    for number in 1_u64..=4 {
        let mut record = Buf::zeroed(1024);
        record[512..].fill(number as u8);
        let sum = if bug == Bug::NoChecksum { 0 } else { 1 + 512 * number };
        record[..8].copy_from_slice(&number.to_le_bytes());
        record[8..16].copy_from_slice(&sum.to_le_bytes());
        disk.write((number - 1) * 1024, record.share(), Durability::Cached).await.unwrap();
        if bug == Bug::AckBeforeFlush {
            recording.ack(number);
        }
        disk.flush().await.unwrap();
        recording.ack(number);
    }
}

async fn recover() -> u64 {
    let disk = Disk::open(Path::new("/d"), OpenOptions::default()).await.unwrap();
    for number in 1_u64..=4 {
        let record = disk.read((number - 1) * 1024, Buf::zeroed(1024)).await.unwrap();
        let sum = u64::from_le_bytes(record[8..16].try_into().unwrap());
        let real = 1 + record[512..].iter().map(|byte| u64::from(*byte)).sum::<u64>();
        if record[..8] != number.to_le_bytes() || (sum != 0 && sum != real) {
            return number - 1;
        }
        assert!(record[512..].iter().all(|byte| u64::from(*byte) == number), "recovered a torn record");
    }
    4
}

fn cut_everywhere(bug: Bug) -> u64 {
    let (world, node) = one_node(1);
    world.add_disk(node, "/d", 4096, 512);
    let recording = world.record_disk(node, "/d");
    let acks = recording.clone();
    world.block_on(node, CoreId(0), move || store(bug, acks));
    for_each_cut(&recording, Subsets { bits: 8, seed: 1 }, |cut| {
        let world = World::new(2);
        let node = world.add_node("a", 1, |_| std::future::pending());
        world.put_disk(node, "/d", cut.images[0].clone());
        let found = world.block_on(node, CoreId(0), recover);
        assert!(found >= cut.acked, "lost an acknowledged record: {cut}");
    })
}

#[test]
fn a_correct_store_survives() {
    // At the start 1; for each record 4 after its write, 1 after its flush, 1 after its promise.
    assert_eq!(cut_everywhere(Bug::None), 1 + 4 * (4 + 1 + 1));
}

#[test]
#[should_panic(expected = "lost an acknowledged record")]
fn a_promise_before_the_flush_is_found() {
    cut_everywhere(Bug::AckBeforeFlush);
}

#[test]
#[should_panic(expected = "recovered a torn record")]
fn a_missing_checksum_is_found() {
    cut_everywhere(Bug::NoChecksum);
}

/// Everything that can be found in the first sector of the disk after `work`.
fn first_bytes<F: Future<Output = ()> + 'static>(work: impl FnOnce(Disk) -> F + 'static) -> Vec<u8> {
    let (world, node) = one_node(1);
    world.add_disk(node, "/d", 1 << 20, 512);
    let recording = world.record_disk(node, "/d");
    let end = recording.clone();
    world.block_on(node, CoreId(0), || async move {
        work(Disk::open(Path::new("/d"), OpenOptions::default()).await.unwrap()).await;
        end.ack(1);
    });
    let mut found = Vec::new();
    for_each_cut(&recording, Subsets::default(), |cut| {
        let mut byte = [0];
        cut.images[0].read(0, &mut byte);
        if cut.acked == 1 && !found.contains(&byte[0]) {
            found.push(byte[0]);
        }
    });
    found.sort_unstable();
    found
}

fn sector(byte: u8) -> base::SharedBuf {
    Buf::copy_of(&[byte; 512]).share()
}

#[test]
fn only_what_was_done_before_a_flush_began_is_bound_by_it() {
    let found = first_bytes(|disk| async move {
        disk.write(0, sector(1), Durability::Cached).await.unwrap();
        disk.flush().await.unwrap();
        disk.write(0, sector(2), Durability::Cached).await.unwrap();
        disk.write(0, sector(3), Durability::Cached).await.unwrap();
    });
    assert_eq!(found, [1, 2, 3]);
    // A write that the disk received before the flush, but completed after the flush began, is not bound.
    let found = first_bytes(|disk| async move {
        let disk = std::rc::Rc::new(disk);
        let writing = std::rc::Rc::clone(&disk);
        let write = crate::spawn(async move { writing.write(0, sector(1), Durability::Cached).await });
        crate::yield_now().await;
        disk.flush().await.unwrap();
        write.await.unwrap();
    });
    assert_eq!(found, [0, 1]);
}

#[test]
fn a_durable_write_is_above_the_cached_ones_before_it() {
    let found = first_bytes(|disk| async move {
        disk.write(0, sector(1), Durability::Cached).await.unwrap();
        disk.write(0, sector(2), Durability::Durable).await.unwrap();
    });
    assert_eq!(found, [2]);
    let found = first_bytes(|disk| async move {
        disk.write(0, sector(1), Durability::Durable).await.unwrap();
        disk.zero(0, 1 << 20).await.unwrap();
    });
    assert_eq!(found, [0, 1]);
}

#[test]
fn disks_are_cut_together_and_a_recording_may_begin_late() {
    let (world, node) = one_node(1);
    for path in ["/d", "/e"] {
        world.add_disk(node, path, 4096, 512);
    }
    let open = |path: &'static str| {
        world.block_on(node, CoreId(0), move || async move {
            Disk::open(Path::new(path), OpenOptions::default()).await.unwrap()
        })
    };
    let (d, e) = (open("/d"), open("/e"));
    let (d, e) = world.block_on(node, CoreId(0), || async move {
        d.write(0, sector(1), Durability::Cached).await.unwrap();
        e.write(0, sector(1), Durability::Durable).await.unwrap();
        (d, e)
    });
    let recording = world.record_disks(&[(node, Path::new("/d")), (node, Path::new("/e"))]);
    world.block_on(node, CoreId(0), || async move {
        e.write(0, sector(2), Durability::Cached).await.unwrap();
        d.flush().await.unwrap();
    });
    let mut found = std::collections::BTreeSet::new();
    for_each_cut(&recording, Subsets::default(), |cut| {
        let first = |disk: usize| {
            let mut byte = [0];
            cut.images[disk].read(0, &mut byte);
            byte[0]
        };
        found.insert((first(0), first(1)));
    });
    assert_eq!(found.into_iter().collect::<Vec<_>>(), [(0, 1), (0, 2), (1, 1), (1, 2)]);
}
