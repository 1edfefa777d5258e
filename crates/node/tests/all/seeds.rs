//! The seeds of a scenario.

/// Runs `scenario` with a few seeds, or with the one in `URSA_SEED`, and reports which one failed.
pub(crate) fn each_seed(count: u64, scenario: impl Fn(u64)) {
    if let Some(seed) = one_seed() {
        return scenario(seed);
    }
    (1..=count).for_each(scenario);
}

/// As [`each_seed`], but each seed runs twice: both runs must be equal, event by event.
///
/// `scenario` returns the hash of its log.
pub(crate) fn each_seed_twice(count: u64, scenario: impl Fn(u64) -> u64) {
    each_seed(count, |seed| {
        assert_eq!(scenario(seed), scenario(seed), "seed {seed} does not give the same run twice");
    });
}

fn one_seed() -> Option<u64> {
    let seed = std::env::var("URSA_SEED").ok()?;
    Some(seed.parse().expect("URSA_SEED is a number"))
}
