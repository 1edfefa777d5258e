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

use super::exit::CliError;
use super::output::Output;

/// What to measure.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Use one pattern on one target or several at once
    Run(Box<run::Run>),
    /// Use one pattern with many threads and depths, and find where more load stops paying
    Sweep(Box<sweep::Sweep>),
    /// Use the patterns of a published test
    Pack(Box<pack::Pack>),
    /// Add clients, each with a volume of its own, until the total stops growing
    Fleet(Box<fleet::Fleet>),
    /// Be a mail server: users whose tasks read databases and write a log
    Mail(Box<mail::Mail>),
    /// Use one pattern on a raw disk and on volumes with more and more copies, in turn
    Copies(Box<copies::Copies>),
    /// Compare two records, or measure both again in turn
    Compare(Box<compare::Compare>),
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
