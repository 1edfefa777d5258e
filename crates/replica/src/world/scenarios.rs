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
        "admission without bulk", "promotion", "recovery", "record out of reach", "isolation",
    ] {
        assert!(counts.get(what).is_some_and(|count| *count > 10), "{what} hardly ever happened: {counts:?}");
    }
}

#[test]
fn a_seed_is_a_run() {
    assert_eq!(run(5, None), run(5, None));
}

/// Every rule that the model found to be needed is found to be needed here, too.
#[test]
fn every_rule_left_out_is_noticed() {
    let silent = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let found: Vec<(Canary, Option<(u64, String)>)> =
        CANARIES.iter().map(|canary| (*canary, first_failure(0, number("URSA_SEEDS").unwrap_or(SEEDS), *canary))).collect();
    std::panic::set_hook(silent);
    for (canary, failure) in &found {
        match failure {
            Some((seed, message)) => println!("{canary:?}: seed {seed}: {}", message.chars().take(120).collect::<String>()),
            None => println!("{canary:?}: not noticed"),
        }
    }
    let missed: Vec<Canary> = found.iter().filter(|(_, failure)| failure.is_none()).map(|(canary, _)| *canary).collect();
    assert!(missed.is_empty(), "not noticed: {missed:?}");
}

const CANARIES: [Canary; 17] = [
    Canary::AckSuperseded,
    Canary::NoIntent,
    Canary::CoordinatorIntent,
    Canary::NoJoinerAck,
    Canary::NoEpoch,
    Canary::NoLease,
    Canary::NoJoinerLease,
    Canary::NoRevision,
    Canary::NoWait,
    Canary::NoBootWait,
    Canary::NoConfirm,
    Canary::PromoteEarly,
    Canary::NoIncarnation,
    Canary::NoOwnDirty,
    Canary::NoInherit,
    Canary::NoSyncTimestamp,
    Canary::OldWriteFresh,
];
