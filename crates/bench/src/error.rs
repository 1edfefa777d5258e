//! Why a measurement was not made.

use std::io;
use std::path::PathBuf;

use crate::engine::{Misfit, RunError};
use crate::{Failure, InvalidTarget, NoWay, Target, WorkloadError};

/// Why a measurement was not made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The pattern makes no sense.
    #[error(transparent)]
    Workload(#[from] WorkloadError),
    /// The mail server makes no sense.
    #[error(transparent)]
    Mail(#[from] crate::MailProfileError),
    /// No such target.
    #[error(transparent)]
    Target(#[from] InvalidTarget),
    /// A portal's name.
    #[error("cannot find the portal {0}")]
    Resolve(String, #[source] io::Error),
    /// A file or a block device.
    #[error(transparent)]
    Open(#[from] rt::OpenError),
    /// A portal, or the target behind it.
    #[error("{target} cannot be used")]
    Connect {
        /// Which.
        target: Target,
        /// Why.
        #[source]
        source: NoWay,
    },
    /// It would be destroyed.
    #[error(
        "{target} holds data (the first that was found is at byte {offset}), and this would destroy it. Add --overwrite if that is meant; -w0 without --precondition only reads"
    )]
    HasData {
        /// Which.
        target: Target,
        /// Where the first byte was found that is not zero.
        offset: u64,
    },
    /// The pattern does not go together with a target.
    #[error("{target} does not fit: {misfit}")]
    Misfit {
        /// Which.
        target: Target,
        /// Why.
        misfit: Misfit,
    },
    /// A target failed before it was measured.
    #[error("{target} failed before it was measured")]
    Failed {
        /// Which.
        target: Target,
        /// How.
        #[source]
        source: Failure,
    },
    /// It was stopped before it was measured.
    #[error("stopped: nothing was measured, and what was filled is not complete")]
    Stopped,
    /// The cores do not start.
    #[error(transparent)]
    Start(#[from] rt::uring::StartError),
    /// A record cannot be read.
    #[error("cannot read {0}")]
    Read(PathBuf, #[source] io::Error),
    /// A record is none.
    #[error("{0} is no record of `ursa bench`")]
    Parse(PathBuf, #[source] serde_json::Error),
    /// A record is of another time.
    #[error(
        "{path} has format {format}, and this ursa reads format {}: use the ursa that wrote it",
        crate::record::FORMAT
    )]
    Format {
        /// Which.
        path: PathBuf,
        /// Its format.
        format: u32,
    },
    /// A record's runs cannot be made again one by one.
    #[error(
        "{0} is a record of a mail server, whose load is more than its patterns: leave out --rounds to compare records as they are"
    )]
    NotRepeatable(PathBuf),
    /// A report or a record cannot be written.
    #[error("cannot write {0}")]
    Write(PathBuf, #[source] io::Error),
}

impl Error {
    /// With the names of the targets.
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
