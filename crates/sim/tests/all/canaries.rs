//! Mistakes are noticed, each by one of the first seeds: a simulation that misses one is broken.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};

use sim::{Canary, Plan, run};

/// Within so many seeds a mistake must be noticed.
const SEEDS: u64 = 200;

fn first_that_notices(canary: Canary) -> Option<u64> {
    let fails =
        |seed: &u64| catch_unwind(AssertUnwindSafe(|| run(&Plan::from_seed(*seed), Some(canary)))).is_err();
    (0..SEEDS).find(fails)
}

#[test]
fn mistakes_are_noticed() {
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some(canary) = Canary::NOTICED.get(next.fetch_add(1, Ordering::Relaxed)) {
            let seed = first_that_notices(*canary);
            println!("{canary}: {seed:?}");
            assert!(seed.is_some(), "{canary} was not noticed in {SEEDS} seeds");
        }
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| (0..cores).for_each(|_| drop(scope.spawn(work))));
}
