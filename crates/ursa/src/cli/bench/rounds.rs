//! Runs on several things in turn, round by round: what changes slowly hits all alike.

use bench::record::Run;
use bench::{Driver, Workload};

use super::progress::ProgressLine;
use crate::cli::exit::CliError;

/// One of several things that are measured in turn.
pub struct Side {
    /// What it is called.
    pub name: String,
    /// How it is reached.
    pub driver: Driver,
    /// What is done with it, once a round.
    pub workloads: Vec<Workload>,
    /// What came of that, in the order of the rounds.
    pub runs: Vec<Run>,
}

impl Side {
    /// That nothing was done with yet.
    pub fn new(name: &str, driver: Driver, workloads: Vec<Workload>) -> Side {
        Side { name: name.to_owned(), driver, workloads, runs: Vec::new() }
    }
}

/// Makes the runs of all rounds. Each round makes every pattern of all sides, one after the other, and the
/// next begins with another side. The first run that does not come to its end is the last.
///
/// # Errors
/// [`CliError::Bench`].
pub fn take_turns(sides: &mut [Side], rounds: u32, line: &mut ProgressLine) -> Result<(), CliError> {
    let patterns = sides.iter().map(|side| side.workloads.len()).max().unwrap_or(0);
    let count = sides.len();
    for round in 0..rounds {
        for pattern in 0..patterns {
            for turn in 0..count {
                let side = &mut sides[(round as usize + turn) % count];
                let Some(workload) = side.workloads.get(pattern).cloned() else { continue };
                line.begin(format!("round {} of {rounds}: {}: {workload}: ", round + 1, side.name));
                let mut run = side.driver.run(&workload, &mut |progress| line.show(progress))?;
                run.name = format!("{}: {}", side.name, run.name);
                let clean = run.is_clean();
                side.runs.push(run);
                if !clean {
                    line.clear();
                    return Ok(());
                }
            }
        }
    }
    line.begin(String::new());
    line.clear();
    Ok(())
}
