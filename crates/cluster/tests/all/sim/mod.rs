//! Nodes with the embedded engine under a seed: crashes at any boundary of messages and disks; lost, repeated
//! and late messages; partitions; changes of members; disks that are set back.

mod history;
mod scenarios;
mod world;

use std::num::NonZero;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

use world::{Faults, World};

/// The number of seeds in `URSA_SEEDS`, from 0, or the one in `URSA_SEED`.
fn seeds(count: u64) -> Vec<u64> {
    let number = |name| std::env::var(name).ok().map(|it| it.parse::<u64>().expect("a number"));
    match number("URSA_SEED") {
        Some(seed) => vec![seed],
        None => (0..number("URSA_SEEDS").unwrap_or(count)).collect(),
    }
}

fn run(seed: u64, faults: Faults) -> World {
    let mut world = World::new(seed, faults);
    for _ in 0..600 {
        world.round();
    }
    world.heal();
    world
}

/// Runs seeds on one thread per processor, and adds up their counts.
fn run_all(seeds: &[u64]) -> world::Counts {
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    let share = |first: usize| {
        let mut total = world::Counts::default();
        for seed in seeds.iter().copied().skip(first).step_by(threads) {
            let failed = catch_unwind(AssertUnwindSafe(|| total += run(seed, Faults::of(seed)).counts));
            assert!(failed.is_ok(), "URSA_SEED={seed}");
        }
        total
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|first| scope.spawn(move || share(first))).collect();
        let mut total = world::Counts::default();
        workers.into_iter().for_each(|worker| total += worker.join().expect("the seed is named above"));
        total
    })
}

#[test]
fn no_seed_forks_loses_or_repeats() {
    let total = run_all(&seeds(100));
    println!("{total:?}");
    if std::env::var_os("URSA_SEED").is_none() {
        assert!(total.committed > 5_000 && total.conflicts > 500 && total.reads > 2_000, "{total:?}");
        assert!(total.crashes > 500 && total.snapshots > 80 && total.members > 150, "{total:?}");
        assert!(total.set_back > 40 && total.noticed > 20, "{total:?}");
        assert!(total.unknown > 50 && total.elections > 300, "{total:?}");
    }
}

#[test]
fn a_seed_is_one_story() {
    let story = |seed| {
        let world = run(seed, Faults::of(seed));
        (world.counts, world.digest())
    };
    for seed in [3, 4] {
        assert_eq!(story(seed), story(seed));
    }
}

#[test]
fn a_disk_that_forgets_is_noticed() {
    let mut faults = Faults::of(1);
    faults.forgets = true;
    let noticed =
        (0..10).filter(|seed| catch_unwind(AssertUnwindSafe(|| run(*seed, faults))).is_err()).count();
    assert!(noticed > 0, "batches that were said to be durable were lost, and nobody noticed");
}
