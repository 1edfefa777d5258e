//! One pattern on its targets.

use serde::{Deserialize, Serialize};

use super::{Cpu, Direction, Noise, Sample};
use crate::{Target, Workload};

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
    /// Whether it went on to its end.
    pub complete: bool,
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
    /// What went wrong, first things first.
    pub losses: Vec<Loss>,
    /// Reads that were under way when their target was lost.
    pub unanswered_reads: u64,
    /// Writes likewise: whether they took effect is not known.
    pub unanswered_writes: u64,
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
    /// Reads of blocks that nobody knows about, because neither this run nor its preparation had written them.
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

/// The end of a target, as one thread saw it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Loss {
    /// Which target.
    pub target: Target,
    /// When, in seconds from the first request on.
    pub at: f64,
    /// The last answer before, likewise.
    pub last_answer: Option<f64>,
    /// What was asked for: a read or a write, and where.
    pub request: String,
    /// What happened.
    pub reason: String,
    /// Whether the target gave wrong data.
    pub wrong_data: bool,
}

impl Run {
    /// Whether there is nothing to complain about.
    pub fn is_clean(&self) -> bool {
        self.complete && self.losses.is_empty()
    }
}
