//! The simulation detects mistakes, each in one of the first seeds.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};

use sim::{Canary, PARTS, Plan, harm, run};

/// Number of seeds within which a mistake must be detected.
const SEEDS: u64 = 250;

fn notices(plan: &Plan, canary: Canary) -> bool {
    catch_unwind(AssertUnwindSafe(|| run(plan, Some(canary)))).is_err()
}

/// Tries the seed that detected it before, and then the others.
fn one_that_notices(canary: Canary, before: u64) -> Option<u64> {
    std::iter::once(before).chain(0..SEEDS).find(|seed| notices(&Plan::from_seed(*seed), canary))
}

/// A seed whose plan has the part, and which detects the mistake because of it.
fn one_that_shows(part: &str, canary: Canary, before: u64) -> Option<u64> {
    let shows = |seed: &u64| {
        let plan = Plan::from_seed(*seed);
        plan.has(part) && notices(&plan, canary) && !notices(&plan.without(part), canary)
    };
    std::iter::once(before).chain(0..SEEDS).find(shows)
}

/// Calls `work` for each of these, on all cores.
fn for_each<T: Sync>(all: &[T], work: impl Fn(&T) + Sync) {
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some(one) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
            work(one);
        }
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| (0..cores).for_each(|_| drop(scope.spawn(work))));
}

#[test]
fn mistakes_are_noticed() {
    for_each(&Canary::NOTICED, |(canary, before)| {
        let seed = one_that_notices(*canary, *before);
        println!("{canary}: {seed:?}");
        assert!(seed.is_some(), "{canary} was not noticed in {SEEDS} seeds");
    });
}

#[test]
fn faults_show_mistakes() {
    for_each(&Canary::SHOWN_BY, |(part, canary, before)| {
        let seed = one_that_shows(part, *canary, *before);
        println!("{part}: {canary}, {seed:?}");
        assert!(seed.is_some(), "{part} did not show {canary} in {SEEDS} seeds");
    });
}

#[test]
fn each_fault_and_part_of_a_plan_shows_a_mistake_or_is_known_to_show_none() {
    for part in harm::ALL.iter().map(|harm| harm.name).chain(PARTS) {
        let shows = Canary::SHOWN_BY.iter().any(|(shown, ..)| *shown == part);
        assert!(shows != Canary::UNSHOWN.contains(&part), "{part}");
    }
}
