//! `ursa bench`.

mod ceiling;
mod compare;
mod copies;
mod fleet;
pub mod letters;
mod mail;
mod pack;
mod pattern;
mod progress;
mod raw;
mod report;
mod results;
mod rounds;
mod run;
mod series;
mod setup;
mod sweep;

use clap::Subcommand;
use cli::Output;

use crate::error::ToolError;

/// What to measure.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run one pattern on one or more targets
    Run(Box<run::Run>),
    /// Run one pattern over a range of threads and queue depths, and find the knee
    Sweep(Box<sweep::Sweep>),
    /// Run the patterns of a published test
    Pack(Box<pack::Pack>),
    /// Add clients, each with its own volume, until total IOPS stop growing
    Fleet(Box<fleet::Fleet>),
    /// Simulate a mail server: users whose tasks read databases and write a log
    Mail(Box<mail::Mail>),
    /// Compare one pattern on a raw disk and on volumes with different numbers of copies
    Copies(Box<copies::Copies>),
    /// Compare two results, or measure both again in alternation
    Compare(Box<compare::Compare>),
    /// Show a result as text or as an HTML page
    Report(report::Report),
}

impl Command {
    /// Runs the benchmark, and prints its results.
    pub fn run(self, output: &Output) -> Result<(), ToolError> {
        match self {
            Command::Run(run) => run.run(output),
            Command::Sweep(sweep) => sweep.run(output),
            Command::Pack(pack) => pack.run(output),
            Command::Fleet(fleet) => fleet.run(output),
            Command::Mail(mail) => mail.run(output),
            Command::Copies(copies) => copies.run(output),
            Command::Compare(compare) => compare.run(output),
            Command::Report(report) => report.run(output),
        }
    }
}
