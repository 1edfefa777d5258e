//! Why a command failed.

use std::io;
use std::path::PathBuf;

use api::ClientError;
use terms::exit::Outcome;

use super::snapshot::hooks::HookFailure;
use super::snapshot::{ExportError, ImportError, ServeError};

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // The messages say it.
pub enum CliError {
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error(transparent)]
    Trust(#[from] api::TrustError),
    #[error("cannot read the secret from {0}")]
    Secret(PathBuf, #[source] io::Error),
    #[error("the two entries do not match")]
    SecretsDiffer,
    #[error("confirmation required: {0}; add --yes to confirm, or --dry-run to see what would be done")]
    Unconfirmed(String),
    #[error("nothing was changed")]
    Declined,
    #[error("cannot read {0}")]
    File(PathBuf, #[source] io::Error),
    #[error("{0}: {1}")]
    Declared(PathBuf, String),
    /// A file describes something that changes cannot lead to.
    #[error("nothing was changed:\n  {}", .0.join("\n  "))]
    Conflict(Vec<String>),
    #[error("{0} is empty, and --prune would delete everything: is this the right file?")]
    PruneAll(PathBuf),
    #[error(
        "{done} of {all} changes applied, then this one failed: {step}; fix the cause and apply the file again"
    )]
    Unapplied {
        step: String,
        done: usize,
        all: usize,
        #[source]
        error: ClientError,
    },
    /// The number of changes to make, with `--exit-code`.
    #[error("{0} changes to apply")]
    Differs(usize),
    #[error(
        "the copies of volume {0:?} could not be verified as equal: see above; host writes during the check can cause differences, so run it again while no host writes"
    )]
    CopiesDiffer(String),
    #[error("volume {0:?} is not being converted: `ursa volume show {0}` shows which kind it is")]
    NotConverted(String),
    #[error(
        "what volume {0:?} holds now is not compared, because it changes meanwhile: take a snapshot (`ursa snapshot create {0} --name NAME`), and compare with that ({0}@NAME)"
    )]
    DiffWithNow(String),
    #[error(transparent)]
    Export(#[from] ExportError),
    #[error(transparent)]
    Import(#[from] ImportError),
    #[error(transparent)]
    Serve(#[from] ServeError),
    #[error("both snapshots must be of the same volume, not of {0:?} and {1:?}")]
    DiffOfVolumes(String, String),
    #[error("no snapshot was taken: the command before it {0}")]
    HookBefore(HookFailure),
    /// The name of the snapshot.
    #[error("interrupted: `ursa snapshot list` shows whether snapshot {0} was taken all the same")]
    SnapshotUnknown(String),
    /// The name of the snapshot.
    #[error("snapshot {0} was taken, but the command after it {1}: check that what --before froze continues")]
    HookAfter(String, HookFailure),
    #[error("cannot wait for signals")]
    Signals(#[source] io::Error),
    #[error(
        "--copies {0} does not match the {1} nodes in --on: list as many nodes, or omit one of the two options"
    )]
    CopiesOnNodes(u8, usize),
    #[error("cannot write manual pages to {0}")]
    Manual(PathBuf, #[source] io::Error),
    #[error("cannot resolve the path {0:?}")]
    Path(PathBuf, #[source] io::Error),
    #[error("{0:?}: use an absolute path on node {1}, such as /dev/disk/by-id/...")]
    PathThere(PathBuf, u16),
    #[error("standard output is not a terminal: use --once to print one reading as text")]
    NoTerminal,
    #[error("cannot use the terminal")]
    Terminal(#[source] io::Error),
    #[error("cannot write to standard output")]
    Print(#[source] io::Error),
}

impl Outcome for CliError {
    fn code(&self) -> u8 {
        match self {
            CliError::Client(ClientError::Unreachable { .. } | ClientError::NoAnswer { .. }) => 3,
            CliError::Client(ClientError::Address { .. } | ClientError::Unknown { .. }) => 2,
            CliError::Export(error) => error.code(),
            CliError::Import(error) => error.code(),
            CliError::Serve(error) => error.code(),
            CliError::Trust(_) | CliError::Unconfirmed(_) => 2,
            CliError::CopiesOnNodes(..)
            | CliError::DiffWithNow(_)
            | CliError::DiffOfVolumes(..)
            | CliError::File(..)
            | CliError::Declared(..)
            | CliError::PathThere(..)
            | CliError::PruneAll(_) => 2,
            _ => 1,
        }
    }
}
