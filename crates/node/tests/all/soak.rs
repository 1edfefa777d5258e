//! Many seeds, for as long as wanted: see `docs/testing.md`.

use std::time::{Duration, Instant};

use crate::order::clients_on_hot_blocks;
use crate::power::cut_the_power_under_load;
use crate::rig::Shape;

/// From `URSA_SEEDS=first..end`, or the first thousand.
fn seeds() -> std::ops::Range<u64> {
    let Ok(text) = std::env::var("URSA_SEEDS") else { return 1..1001 };
    let (first, end) = text.split_once("..").expect("URSA_SEEDS is first..end");
    first.parse().expect("a number")..end.parse().expect("a number")
}

#[test]
#[ignore = "runs for minutes"]
fn soak() {
    let (seeds, began) = (seeds(), Instant::now());
    let mut told = began;
    let mut done = 0;
    for seed in seeds {
        println!(
            "seed {seed}: URSA_SEEDS={seed}..{} cargo test -p node --release -- --ignored soak",
            seed + 1
        );
        cut_the_power_under_load(seed, seed % 2 == 0);
        clients_on_hot_blocks(seed, Shape::thick(), seed % 2 == 0);
        done += 1;
        if told.elapsed() > Duration::from_secs(10) {
            told = Instant::now();
            eprintln!("{done} seeds, {:.0} a minute", f64::from(done) * 60.0 / began.elapsed().as_secs_f64());
        }
    }
    eprintln!("{done} seeds, {:.0} a minute", f64::from(done) * 60.0 / began.elapsed().as_secs_f64());
}
