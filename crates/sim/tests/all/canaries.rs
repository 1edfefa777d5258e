//! Mistakes are noticed, each by one of the first seeds: a simulation that misses one is broken.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};

use sim::{Canary, Plan, run};

/// Within so many seeds a mistake must be noticed.
const SEEDS: u64 = 250;

/// The seed that noticed it before is tried before all others.
fn one_that_notices(canary: Canary, before: u64) -> Option<u64> {
    let fails =
        |seed: &u64| catch_unwind(AssertUnwindSafe(|| run(&Plan::from_seed(*seed), Some(canary)))).is_err();
    std::iter::once(before).chain(0..SEEDS).find(fails)
}

#[test]
fn mistakes_are_noticed() {
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some((canary, before)) = Canary::NOTICED.get(next.fetch_add(1, Ordering::Relaxed)) {
            let seed = one_that_notices(*canary, *before);
            println!("{canary}: {seed:?}");
            assert!(seed.is_some(), "{canary} was not noticed in {SEEDS} seeds");
        }
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| (0..cores).for_each(|_| drop(scope.spawn(work))));
}
