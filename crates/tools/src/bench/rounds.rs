//! Measures several sides in turns, round by round, so that slow changes of the environment affect all
//! equally.

use bench::record::Run;
use bench::{Driver, Workload};

use super::progress::ProgressLine;
use crate::error::ToolError;

/// One of several sides that are measured in turns.
pub struct Side {
    pub name: String,
    /// The driver that reaches it.
    pub driver: Driver,
    /// The patterns that it runs in each round.
    pub workloads: Vec<Workload>,
    /// Their results, in the order of the rounds.
    pub runs: Vec<Run>,
}

impl Side {
    pub fn new(name: &str, driver: Driver, workloads: Vec<Workload>) -> Side {
        Side { name: name.to_owned(), driver, workloads, runs: Vec::new() }
    }
}

/// Makes the runs of all rounds.
///
/// Each round runs every pattern on all sides, one after the other, and the next round begins with another
/// side. After a run that does not complete, no more follow.
pub fn take_turns(sides: &mut [Side], rounds: u32, line: &mut ProgressLine) -> Result<(), ToolError> {
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
