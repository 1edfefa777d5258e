//! Volumes with blocks smaller than the disk's.
//!
//! Several of their blocks share one of the disk's, and a change of one must not undo changes of its
//! neighbors.

use std::rc::Rc;

use base::Rng;
use rt::Durability;
use rt::sim::World;
use store::{Pool, VolumeSpec};

use crate::disk::{CORE, Volume, creating, existing, machine, thick};

const BLOCK: u64 = 512;
const DISK_BLOCK: u64 = 4096;
/// The disk blocks that all tasks work on.
const SHARED: u64 = 2;

/// UNMAP concurrent with writes of the same disk block: zeroing part of it reads, changes and writes it back,
/// like a write.
#[test]
fn zeroing_part_of_a_disk_block_does_not_undo_writes_next_to_it() {
    for seed in 0..20 {
        let world = World::new(seed);
        let node = machine(&world, &[(4 << 20, DISK_BLOCK as u32)]);
        world.block_on(node, CORE, move || async move {
            let pool = Pool::create(existing(1), creating()).await.unwrap();
            let spec = VolumeSpec { slices: Some(1), ..thick("mail", 64 << 10) };
            let info = pool.create_volume(spec).await.unwrap();
            let volume = Rc::new(Volume::open(&pool, info.id));
            let mut rng = Rng::new(seed);
            for round in 1..20u8 {
                let mut expected = Vec::new();
                let mut tasks = Vec::new();
                for block in 0..SHARED * DISK_BLOCK / BLOCK {
                    let byte = if rng.one_in(2) { 0 } else { round };
                    expected.extend([byte; BLOCK as usize]);
                    let volume = Rc::clone(&volume);
                    tasks.push(rt::spawn(async move {
                        let at = block * BLOCK;
                        match byte {
                            0 => volume.zero(at, BLOCK).await,
                            byte => volume.write(at, &[byte; BLOCK as usize], Durability::Cached).await,
                        }
                    }));
                }
                for task in tasks {
                    task.await.unwrap();
                }
                let found = volume.read(0, expected.len() as u64).await.unwrap();
                let wrong = (0..).zip(found.chunks(BLOCK as usize).zip(expected.chunks(BLOCK as usize)));
                let wrong: Vec<u64> = wrong
                    .filter(|(_, (found, expected))| found != expected)
                    .map(|(block, _)| block)
                    .collect();
                assert!(
                    wrong.is_empty(),
                    "seed {seed}, round {round}: blocks {wrong:?} lost what was done to them"
                );
            }
        });
    }
}
