//! Bits of a pool's disk flip all the time while hosts work: what has rotted is never returned, and is found
//! and repaired by those who read it.

use std::cell::Cell;

use super::*;
use crate::canary::{Canary, make};

const DISK: u64 = 16 << 20;
/// A quarter of the disk. What rots in segments keeps them from being cleaned until it is written again.
const BLOCKS: u64 = 1024;
const HOSTS: u64 = 4;

const FLIPS: u64 = 1000;
const FLIP_EVERY: Duration = Duration::from_millis(2);
/// The least number of flips that reads find. The others are where nothing is stored, or where it is not read
/// any more.
const FOUND_MIN: u64 = FLIPS / 33;

/// What hosts know together.
#[derive(Default)]
struct Shared {
    /// How many reads have found a bad block.
    bad: Cell<u64>,
    /// No more bits flip.
    ends: Cell<bool>,
}

/// A host that writes and reads blocks of its own.
struct Host {
    number: u64,
    slice: Rc<Slice>,
    shared: Rc<Shared>,
    /// What was written last, by block.
    written: BTreeMap<u64, u64>,
}

impl Host {
    async fn work(mut self) {
        let mut rng = Rng::new(self.number);
        let own: Vec<u64> = (self.number..BLOCKS).step_by(HOSTS as usize).collect();
        let mut number = self.number;
        while !self.shared.ends.get() {
            let at = own[rng.below(own.len() as u64) as usize];
            // First, each block is written once.
            let first = own.get(self.written.len()).copied();
            if first.is_none() && rng.one_in(2) {
                self.read(at).await;
                continue;
            }
            number += HOSTS;
            let durability = if rng.one_in(8) { Durability::Durable } else { Durability::Cached };
            let at = first.unwrap_or(at);
            write(&self.slice, at, number, durability).await.unwrap();
            self.written.insert(at, number);
        }
        // Twice, since a leaf that has rotted on the disk may still be in memory the first time.
        for at in own.iter().chain(&own) {
            self.read(*at).await;
        }
        let before = self.shared.bad.get();
        for at in &own {
            let found = read(&self.slice, *at).await;
            assert_eq!(found, Ok(self.written[at]), "block {at} was repaired, {before} bad ones in all");
        }
    }

    /// Reads a block. If it is bad, it is repaired with what another copy would have.
    async fn read(&self, at: u64) {
        let number = self.written[&at];
        match read(&self.slice, at).await {
            Ok(found) => assert_eq!(found, number, "block {at}"),
            Err(SliceError::Unreadable(_)) => {
                self.shared.bad.set(self.shared.bad.get() + 1);
                let data = Chain::copy_of(&block(number));
                self.slice.rewrite(ByteOffset(at * BLOCK), data).await.unwrap();
            }
            Err(error) => panic!("block {at}: {error}"),
        }
    }
}

/// Flips bits under hosts that work. Returns how many reads have found one.
fn flip(flips: u64, compression: Compression) -> u64 {
    let world = World::new(1);
    let node = machine(&world, 1, DISK, 1);
    let (pool, disks, slice) = world.block_on(node, CORE, move || async move {
        let pool = create(1).await;
        // No leaf stays in memory.
        pool.set_log_memory(LogMemory::new(ByteLen(1)));
        let spec = VolumeSpec { compression, ..spec("v", BLOCKS * BLOCK, 1) };
        let id = pool.create_volume(spec).await.unwrap().id;
        let disks = pool.share_disks().attach();
        let slice = slices(&pool, &disks, id).remove(0);
        (pool, disks, slice)
    });
    let shared = Rc::new(Shared::default());
    let host = |number: u64| {
        let (slice, shared) = (Rc::clone(&slice), Rc::clone(&shared));
        let host = Host { number, slice, shared, written: BTreeMap::new() };
        world.spawn_on(node, CORE, move || host.work())
    };
    let hosts: Vec<_> = (0..HOSTS).map(host).collect();
    let mut rng = Rng::new(1);
    for _ in 0..flips {
        world.run_for(FLIP_EVERY);
        world.flip_bit(node, path(0), rng.below(DISK));
    }
    shared.ends.set(true);
    for host in hosts {
        world.wait_for(host).unwrap();
    }
    world.block_on(node, CORE, move || async move { drop((slice, disks, pool)) });
    shared.bad.get()
}

#[test]
fn a_thousand_bits_flip_under_hosts_and_none_is_returned() {
    for compression in [Compression::Off, Compression::Lz4] {
        let found = flip(FLIPS, compression);
        println!("{compression:?}: {found} of {FLIPS} found");
        assert!(found >= FOUND_MIN, "{compression:?}: {found}");
    }
}

#[test]
fn a_flipped_bit_that_is_returned_is_noticed() {
    make(Some(Canary::RotReturned));
    let noticed = std::panic::catch_unwind(|| flip(FLIPS, Compression::Off)).is_err();
    make(None);
    assert!(noticed);
}
