//! One pattern on its targets.

use serde::{Deserialize, Serialize};

use super::{Cpu, Direction, Ending, Noise, Sample};
use crate::{Disks, Target, Workload};

/// One pattern on its targets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// What it is called: the pattern, or what the command that made it says.
    pub name: String,
    /// The pattern.
    pub workload: Workload,
    /// The pattern in DISKSPD's letters.
    pub letters: String,
    /// What it was used on.
    pub subjects: Vec<Subject>,
    /// When it began (UTC).
    pub started: String,
    /// How long it was measured, seconds.
    pub seconds: f64,
    /// The reads.
    pub reads: Direction,
    /// The writes.
    pub writes: Direction,
    /// Both.
    pub total: Direction,
    /// The length of an interval of the series, seconds.
    pub interval: f64,
    /// Intervals from the first request on, the warm-up included.
    pub series: Vec<Sample>,
    /// CPU time; `None` if the run ended before it was measured.
    pub cpu: Option<Cpu>,
    /// What may have disturbed it.
    pub noise: Noise,
    /// What `--verify` has found right.
    pub check: Option<Check>,
    /// Of a run with a rate.
    pub open_loop: Option<OpenLoop>,
    /// What the disks behind the targets could do at best.
    pub ceiling: Option<Ceiling>,
    /// How it ended.
    #[serde(flatten)]
    pub ending: Ending,
    /// What a reader of the figures should know.
    pub notes: Vec<String>,
}

/// A target as it was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subject {
    /// Which.
    pub target: Target,
    /// What it says that it is, or what is at the path.
    pub identity: String,
    /// Bytes.
    pub size: u64,
    /// Bytes of a block.
    pub block: u32,
}

/// What was verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// Reads that gave what they must, each sector of them.
    pub checked: u64,
    /// Reads of blocks that nobody knows about, because neither this run nor its preparation had written
    /// them.
    pub unchecked: u64,
}

/// How a fixed rate was kept.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct OpenLoop {
    /// Requests a second that were due.
    pub rate: f64,
    /// Requests that were due and never got their turn. They count with the time that they have waited.
    pub never_begun: u64,
}

/// What the disks behind the targets could do at best.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ceiling {
    /// The disks.
    pub disks: Disks,
    /// Requests a second at best, of this mix.
    pub iops: f64,
    /// What the run reached, in percent of it.
    pub percent: f64,
}

impl Ceiling {
    /// Of a run; `None` if a figure of the disks is missing.
    pub fn of(disks: Disks, run: &Run) -> Option<Ceiling> {
        let iops = disks.ceiling(run.workload.write_percent)?;
        Some(Ceiling { disks, iops, percent: 100.0 * run.total.iops / iops })
    }
}

impl Run {
    /// Whether there is nothing to complain about.
    pub fn is_clean(&self) -> bool {
        self.ending.is_clean()
    }
}
