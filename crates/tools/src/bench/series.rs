//! Several runs on the same targets, one after the other.

use bench::record::Run;
use bench::{Driver, Workload};

use super::progress::ProgressLine;
use crate::error::ToolError;

/// Makes the runs in order. After a run that does not complete, no more follow.
pub fn run_all(
    driver: &mut Driver,
    workloads: &[Workload],
    line: &mut ProgressLine,
) -> Result<Vec<Run>, ToolError> {
    let mut runs: Vec<Run> = Vec::new();
    for (number, workload) in workloads.iter().enumerate() {
        line.begin(format!("{} of {}: {workload}: ", number + 1, workloads.len()));
        runs.push(driver.run(workload, &mut |progress| line.show(progress))?);
        if runs.last().is_some_and(|run| !run.is_clean()) {
            break;
        }
    }
    line.begin(String::new());
    line.clear();
    Ok(runs)
}
