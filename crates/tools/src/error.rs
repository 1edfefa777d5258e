//! Why a tool failed.

use std::path::PathBuf;

use cli::CliError;
use terms::exit::Outcome;

use crate::drill::DrillError;

/// Why a tool failed.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // The messages say it.
pub enum ToolError {
    /// An argument is invalid, or output cannot be written.
    #[error(transparent)]
    Cli(#[from] CliError),
    #[error(transparent)]
    Bench(#[from] bench::Error),
    #[error("the measurement is incomplete: see above")]
    BenchIncomplete,
    #[error(transparent)]
    Drill(#[from] DrillError),
    #[error("the cluster failed the drill: see above; the nodes' data and logs are in {0}")]
    DrillFailed(PathBuf),
}

impl Outcome for ToolError {
    fn code(&self) -> u8 {
        match self {
            ToolError::Cli(error) => error.code(),
            ToolError::Drill(error) => error.code(),
            ToolError::Bench(bench::Error::Workload(_) | bench::Error::Mail(_) | bench::Error::Target(_)) => {
                2
            }
            _ => 1,
        }
    }
}
