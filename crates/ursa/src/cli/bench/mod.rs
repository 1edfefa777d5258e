//! `ursa bench`.

pub mod letters;
mod pattern;
mod progress;
mod report;
mod results;
mod run;
mod setup;

use clap::Subcommand;

use super::exit::CliError;
use super::output::Output;

/// What to measure.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Use one pattern on one target or several at once
    Run(Box<run::Run>),
    /// Show a record again, as text or as a page
    Report(report::Report),
}

impl Command {
    /// Does it.
    ///
    /// # Errors
    /// See [`CliError`].
    pub fn run(self, output: &Output) -> Result<(), CliError> {
        match self {
            Command::Run(run) => run.run(output),
            Command::Report(report) => report.run(output),
        }
    }
}
