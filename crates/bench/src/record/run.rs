//! One pattern on its targets.

use serde::{Deserialize, Serialize};

use super::{Cpu, Direction, Ending, Noise, Sample};
use crate::{Disks, Target, Workload};

/// One pattern on its targets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Its name: the pattern, or what the command chooses.
    pub name: String,
    /// The pattern.
    pub workload: Workload,
    /// The pattern in DISKSPD's letters.
    pub letters: String,
    /// The targets.
    pub subjects: Vec<Subject>,
    /// When it started (UTC).
    pub started: String,
    /// The length of the measurement, in seconds.
    pub seconds: f64,
    /// The reads.
    pub reads: Direction,
    /// The writes.
    pub writes: Direction,
    /// Both.
    pub total: Direction,
    /// The length of an interval of the series, in seconds.
    pub interval: f64,
    /// Intervals from the first request on, including the warm-up.
    pub series: Vec<Sample>,
    /// CPU time; `None` if the run ended before the measurement.
    pub cpu: Option<Cpu>,
    /// What may have disturbed the measurement.
    pub noise: Noise,
    /// The result of `--verify`.
    pub check: Option<Check>,
    /// Only for a run with a fixed rate.
    pub open_loop: Option<OpenLoop>,
    /// The most that the disks behind the targets can do.
    pub ceiling: Option<Ceiling>,
    /// How it ended.
    #[serde(flatten)]
    pub ending: Ending,
    /// What a reader of the figures should know.
    pub notes: Vec<String>,
}

/// A target and its properties.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subject {
    /// The target.
    pub target: Target,
    /// The unit's identity, or the kind of file at the path.
    pub identity: String,
    /// Size in bytes.
    pub size: u64,
    /// Block size in bytes.
    pub block: u32,
}

/// The result of `--verify`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// Reads that returned the expected data, each of their sectors.
    pub checked: u64,
    /// Reads of blocks whose content is unknown, because neither this run nor its preparation had written
    /// them.
    pub unchecked: u64,
}

/// How well a fixed rate was kept.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct OpenLoop {
    /// Requests per second that were due.
    pub rate: f64,
    /// Requests that were due and never sent. They count with the time that they had waited.
    pub never_begun: u64,
}

/// The most that the disks behind the targets can do.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ceiling {
    /// The disks.
    pub disks: Disks,
    /// The highest rate for this mix, in requests per second.
    pub iops: f64,
    /// The rate of the run, in percent of that.
    pub percent: f64,
}

impl Ceiling {
    /// The ceiling for a run; `None` if a figure of the disks is missing.
    pub fn of(disks: Disks, run: &Run) -> Option<Ceiling> {
        let iops = disks.ceiling(run.workload.write_percent)?;
        Some(Ceiling { disks, iops, percent: 100.0 * run.total.iops / iops })
    }
}

impl Run {
    /// Whether the run is complete and nothing failed.
    pub fn is_clean(&self) -> bool {
        self.ending.is_clean()
    }
}
