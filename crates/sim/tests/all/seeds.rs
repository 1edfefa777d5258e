//! The seeds of a test run; `cargo run -p sim` runs more.

use std::collections::BTreeMap;

use rt::sim::FaultCounts;
use sim::{Plan, floors, run};

/// Number of seeds of a test run.
const SEEDS: u64 = floors::SEEDS;

/// Number of seeds that run twice.
const TWICE: u64 = 6;

/// Runs every `of`th seed from `first` on.
fn run_part(first: u64, of: u64) -> (BTreeMap<&'static str, u64>, FaultCounts) {
    let (mut counts, mut faults) = (BTreeMap::new(), FaultCounts::default());
    for seed in (first..SEEDS).step_by(of as usize) {
        println!("seed {seed}: cargo run -p sim -- {seed}");
        let outcome = run(&Plan::from_seed(seed), None);
        outcome.counts.iter().for_each(|(what, count)| *counts.entry(*what).or_default() += count);
        faults.merge(&outcome.faults);
    }
    (counts, faults)
}

#[test]
fn no_seed_breaks_a_rule() {
    let parts = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64);
    let (mut counts, mut faults) = (BTreeMap::<&str, u64>::new(), FaultCounts::default());
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..parts).map(|first| scope.spawn(move || run_part(first, parts))).collect();
        for part in running {
            let (more, happened) = part.join().unwrap();
            more.iter().for_each(|(what, count)| *counts.entry(what).or_default() += count);
            faults.merge(&happened);
        }
    });
    println!("{counts:?} {faults:?}");
    let missed = floors::missed(&counts, &faults);
    assert!(missed.is_empty(), "too little happened:\n{}", missed.join("\n"));
}

#[test]
fn a_seed_is_a_run() {
    for seed in 0..TWICE {
        let plan = Plan::from_seed(seed);
        assert_eq!(run(&plan, None), run(&plan, None), "seed {seed}");
    }
}
