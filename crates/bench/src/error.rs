//! Errors of measurements.

use std::io;
use std::path::PathBuf;

use crate::engine::{Misfit, RunError};
use crate::{Failure, InvalidTarget, NoWay, Target, WorkloadError};

/// Why a measurement could not be made.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // The messages say it.
pub enum Error {
    /// The pattern is invalid.
    #[error(transparent)]
    Workload(#[from] WorkloadError),
    /// The mail server's profile is invalid.
    #[error(transparent)]
    Mail(#[from] crate::MailProfileError),
    /// The target is invalid.
    #[error(transparent)]
    Target(#[from] InvalidTarget),
    #[error("cannot resolve portal {0}")]
    Resolve(String, #[source] io::Error),
    /// A file or a block device could not be opened.
    #[error(transparent)]
    Open(#[from] rt::OpenError),
    #[error("cannot use {target}")]
    Connect {
        target: Target,
        #[source]
        source: NoWay,
    },
    #[error(
        "{target} holds data (first found at byte {offset}), which this run would destroy. Use --overwrite to destroy it; -w0 without --precondition only reads"
    )]
    HasData {
        target: Target,
        /// The offset of the first nonzero byte that was found.
        offset: u64,
    },
    #[error("{target} does not fit: {misfit}")]
    Misfit { target: Target, misfit: Misfit },
    #[error("{target} failed before the measurement")]
    Failed {
        target: Target,
        #[source]
        source: Failure,
    },
    #[error("stopped: nothing was measured, and the fill is incomplete")]
    Stopped,
    /// The cores could not be started.
    #[error(transparent)]
    Start(#[from] rt::uring::StartError),
    #[error("cannot read {0}")]
    Read(PathBuf, #[source] io::Error),
    #[error("{0} is not a result of `ursa bench`")]
    Parse(PathBuf, #[source] serde_json::Error),
    #[error(
        "{path} has format {format}, this ursa reads format {}; use the version that wrote it",
        crate::record::FORMAT
    )]
    Format { path: PathBuf, format: u32 },
    #[error(
        "{0} is the result of a mail server, which cannot be measured in rounds; omit --rounds to compare the results as they are"
    )]
    NotRepeatable(PathBuf),
    #[error("cannot write {0}")]
    Write(PathBuf, #[source] io::Error),
}

impl Error {
    /// Adds the names of the targets to an engine's error.
    pub(crate) fn of_run(error: RunError, targets: &[Target]) -> Error {
        let target = |place: usize| targets[place].clone();
        match error {
            RunError::Open(error) => Error::Open(error),
            RunError::Connect { place, error } => Error::Connect { target: target(place), source: error },
            RunError::HasData { place, offset } => Error::HasData { target: target(place), offset },
            RunError::Misfit { place, misfit } => Error::Misfit { target: target(place), misfit },
            RunError::Failed { place, failure } => Error::Failed { target: target(place), source: failure },
            RunError::Stopped => Error::Stopped,
        }
    }
}
