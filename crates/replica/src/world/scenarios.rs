//! Seeds, and rules left out.

use super::*;
use run::{first_failure, run};

/// How many seeds a test run takes; `URSA_SEEDS` sets another number, `URSA_SEED` one seed.
const SEEDS: u64 = 200;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn no_seed_breaks_a_rule() {
    if let Some(seed) = number("URSA_SEED") {
        println!("{:?}", run(seed, None));
        return;
    }
    let mut counts: BTreeMap<&'static str, u64> = BTreeMap::new();
    for seed in 0..number("URSA_SEEDS").unwrap_or(SEEDS) {
        println!("seed {seed}: URSA_SEED={seed} cargo test -p replica no_seed");
        for (what, count) in run(seed, None) {
            *counts.entry(what).or_default() += count;
        }
    }
    println!("{counts:?}");
    for what in [
        "write", "write of unknown outcome", "read", "read again", "crash", "restart", "cut", "black-out", "removal", "admission",
        "admission without bulk", "promotion", "recovery", "record out of reach",
    ] {
        assert!(counts.get(what).is_some_and(|count| *count > 10), "{what} hardly ever happened: {counts:?}");
    }
}

#[test]
fn a_seed_is_a_run() {
    assert_eq!(run(5, None), run(5, None));
}
