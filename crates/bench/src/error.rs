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
    #[error("cannot resolve portal {0}")]
    Resolve(String, #[source] io::Error),
    /// A file or a block device.
    #[error(transparent)]
    Open(#[from] rt::OpenError),
    /// A portal, or the target behind it.
    #[error("cannot use {target}")]
    Connect {
        /// Which.
        target: Target,
        /// Why.
        #[source]
        source: NoWay,
    },
    /// It would be destroyed.
    #[error(
        "{target} holds data (first found at byte {offset}), which this run would destroy. Use --overwrite to destroy it; -w0 without --precondition only reads"
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
    #[error("{target} failed before the measurement")]
    Failed {
        /// Which.
        target: Target,
        /// How.
        #[source]
        source: Failure,
    },
    /// It was stopped before it was measured.
    #[error("stopped: nothing was measured, and the fill is incomplete")]
    Stopped,
    /// The cores do not start.
    #[error(transparent)]
    Start(#[from] rt::uring::StartError),
    /// A record cannot be read.
    #[error("cannot read {0}")]
    Read(PathBuf, #[source] io::Error),
    /// A record is none.
    #[error("{0} is not a record of `ursa bench`")]
    Parse(PathBuf, #[source] serde_json::Error),
    /// A record is of another time.
    #[error(
        "{path} has format {format}, this ursa reads format {}; use the version that wrote it",
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
        "{0} is a record of a mail server, which cannot be measured in rounds; omit --rounds to compare the records as they are"
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
