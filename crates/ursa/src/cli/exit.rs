//! How the program ends, and what it says then.

use std::error::Error;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use api::ClientError;

use crate::drill::DrillError;

/// What `ursa --help` says about exit codes.
pub const HELP: &str = "\
Exit codes:
  0  success
  1  refused or failed; the message says why
  2  invalid arguments or settings
  3  no node answered
  4  the node was stopped by a bug in the program (ursa serve)
ursa status --check has its own exit codes: see its --help.";

/// What a command ends with.
pub trait Outcome: Error {
    /// The exit code.
    fn code(&self) -> u8;
}

/// A command has failed.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// The node refused, or none answers.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// What is to be trusted cannot be.
    #[error(transparent)]
    Trust(#[from] api::TrustError),
    /// A secret could not be read.
    #[error("cannot read the secret from {0}")]
    Secret(PathBuf, #[source] io::Error),
    /// The two secrets typed in differ.
    #[error("the two entries do not match")]
    SecretsDiffer,
    /// Nobody can be asked.
    #[error("confirmation required: {0}; add --yes to confirm, or --dry-run to see what would be done")]
    Unconfirmed(String),
    /// It was asked, and the answer was no.
    #[error("nothing was changed")]
    Declined,
    /// A file could not be read.
    #[error("cannot read {0}")]
    File(PathBuf, #[source] io::Error),
    /// It says what makes no sense.
    #[error("{0}: {1}")]
    Declared(PathBuf, String),
    /// What it says cannot be had by changing what there is.
    #[error("nothing was changed:\n  {}", .0.join("\n  "))]
    Conflict(Vec<String>),
    /// It would leave nothing.
    #[error("{0} is empty, and --prune would delete everything: is this the right file?")]
    PruneAll(PathBuf),
    /// Some of it was done.
    #[error(
        "{done} of {all} changes applied, then this one failed: {step}; fix the cause and apply the file again"
    )]
    Unapplied {
        /// What failed.
        step: String,
        /// How many were made before.
        done: usize,
        /// Of how many.
        all: usize,
        /// Why.
        #[source]
        error: ClientError,
    },
    /// So much is to be changed, as `--exit-code` asks.
    #[error("{0} changes to apply")]
    Differs(usize),
    /// They were compared.
    #[error(
        "the copies of volume {0:?} could not be verified as equal: see above; host writes during the check can cause differences, so run it again while no host writes"
    )]
    CopiesDiffer(String),
    /// The two do not fit.
    #[error(
        "--copies {0} does not match the {1} nodes in --on: list as many nodes, or omit one of the two options"
    )]
    CopiesOnNodes(u8, usize),
    /// Manual pages could not be written.
    #[error("cannot write manual pages to {0}")]
    Manual(PathBuf, #[source] io::Error),
    /// A path could not be made absolute.
    #[error("cannot resolve the path {0:?}")]
    Path(PathBuf, #[source] io::Error),
    /// It is on another machine.
    #[error("{0:?}: use an absolute path on node {1}, such as /dev/disk/by-id/...")]
    PathThere(PathBuf, u16),
    /// Nothing was measured.
    #[error(transparent)]
    Bench(#[from] bench::Error),
    /// Something was measured, and not all.
    #[error("the measurement is incomplete: see above")]
    BenchIncomplete,
    /// A drill could not be carried out.
    #[error(transparent)]
    Drill(#[from] DrillError),
    /// It was carried out.
    #[error("the cluster failed the drill: see above; the nodes' data and logs are in {0}")]
    DrillFailed(PathBuf),
    /// There is no terminal to take over.
    #[error("standard output is not a terminal: use --once to print one reading as text")]
    NoTerminal,
    /// The terminal does not do what it should.
    #[error("cannot use the terminal")]
    Terminal(#[source] io::Error),
    /// Standard output is gone.
    #[error("cannot write to standard output")]
    Print(#[source] io::Error),
}

impl Outcome for CliError {
    fn code(&self) -> u8 {
        match self {
            CliError::Client(ClientError::Unreachable { .. } | ClientError::NoAnswer { .. }) => 3,
            CliError::Client(ClientError::Address { .. } | ClientError::Unknown { .. }) => 2,
            CliError::Trust(_) | CliError::Unconfirmed(_) => 2,
            CliError::CopiesOnNodes(..)
            | CliError::File(..)
            | CliError::Declared(..)
            | CliError::PathThere(..)
            | CliError::PruneAll(_) => 2,
            CliError::Drill(error) => error.code(),
            CliError::Bench(bench::Error::Workload(_) | bench::Error::Mail(_) | bench::Error::Target(_)) => 2,
            _ => 1,
        }
    }
}

/// The exit code, after the message is on standard error.
pub fn code<E: Outcome>(result: Result<(), E>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ursa: {}", with_causes(&error));
            ExitCode::from(error.code())
        }
    }
}

/// The exit code for arguments that are wrong, after the message is on standard error.
pub fn wrong_arguments(error: &dyn Error) -> ExitCode {
    eprintln!("ursa: {}", with_causes(error));
    ExitCode::from(2)
}

/// An error and what caused it.
fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let this = error.to_string();
        // Some errors say what their cause says.
        if !text.contains(&this) {
            text = format!("{text}: {}", this.trim_end());
        }
        cause = error.source();
    }
    text
}
