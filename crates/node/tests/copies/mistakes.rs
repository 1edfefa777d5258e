//! Mistakes that are too rare in the simulation of whole nodes under any fault (`crates/sim`): scenarios notice them.

use std::panic::{AssertUnwindSafe, catch_unwind};

use node::canary::{Canary, make};

use super::reservations::lost_and_back;

/// Within so many seeds a mistake must be noticed.
const SEEDS: u64 = 200;

#[test]
fn that_a_command_goes_on_after_a_loss_is_noticed() {
    make(Some(Canary::GoOnAfterLoss));
    let noticed = (1..=SEEDS).find(|seed| catch_unwind(AssertUnwindSafe(|| lost_and_back(*seed))).is_err());
    make(None);
    println!("{noticed:?}");
    assert!(noticed.is_some());
}
