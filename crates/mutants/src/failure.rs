//! What the output of a catcher says about its failure: which tests failed, and with which seed.

use std::fmt;

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Failure {
    /// The tests that failed, in the order of the output.
    tests: Vec<String>,
    /// The first seed that the output names.
    seed: Option<u64>,
}

impl Failure {
    /// Finds it in the output of `cargo test` or of the simulator, standard error included.
    pub fn find(output: &str) -> Failure {
        let name = |line: &str| line.strip_prefix("test ")?.strip_suffix(" ... FAILED").map(str::to_owned);
        let tests = output.lines().filter_map(name).collect();
        // From the surest to the vaguest: the simulator's last line, what tests say how to repeat a seed, and
        // the worlds of all simulations.
        let before_seed = ["to repeat: cargo run -p sim -- ", "URSA_SEED=", "seed "];
        Failure { tests, seed: before_seed.iter().find_map(|words| number_after(words, output)) }
    }
}

/// The first number that follows these words at once.
fn number_after(words: &str, output: &str) -> Option<u64> {
    output.split(words).skip(1).find_map(|rest| {
        let end = rest.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(rest.len());
        rest[..end].parse().ok()
    })
}

impl fmt::Display for Failure {
    /// Begins with a colon; empty if the output names neither a test nor a seed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let more = self.tests.len().saturating_sub(1);
        let test = self.tests.first().map(|test| match more {
            0 => test.clone(),
            _ => format!("{test} and {more} more"),
        });
        let seed = self.seed.map(|seed| format!("seed {seed}"));
        let parts: Vec<String> = test.into_iter().chain(seed).collect();
        if parts.is_empty() { Ok(()) } else { write!(f, ": {}", parts.join(", ")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(output: &str) -> String {
        Failure::find(output).to_string()
    }

    #[test]
    fn the_simulator_names_its_seed() {
        let output = "120 seeds, 560 per minute\n\
            thread 'main' panicked at crates/sim/src/history.rs:9:1:\nA1 at seed 17\n\
            Plan of seed 17\nto repeat: cargo run -p sim -- 17\n";
        assert_eq!(shown(output), ": seed 17");
    }

    #[test]
    fn tests_name_themselves_and_often_their_seed() {
        let output = "running 3 tests\ntest reservations::no_seed ... ok\n\
            test reservations::fencing ... FAILED\ntest reservations::both ... FAILED\n\nfailures:\n\n\
            ---- reservations::fencing stdout ----\nseed 4, the last events:\n\
            ---- reservations::both stdout ----\nseed 9, the last events:\n\n\
            failures:\n    reservations::fencing\n\ntest result: FAILED. 1 passed; 2 failed\n";
        assert_eq!(shown(output), ": reservations::fencing and 1 more, seed 4");
        assert_eq!(shown("test a::b ... FAILED\n"), ": a::b");
        assert_eq!(shown("seed 3: URSA_SEED=12 cargo test -p replica no_seed\n"), ": seed 12");
        assert_eq!(shown("too few of these events occurred:\n3 seeds, seed of nothing\n"), "");
    }
}
