//! How a measurement ended.

use serde::{Deserialize, Serialize};

use crate::Target;

/// How a measurement ended.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Ending {
    /// Whether it went on to its end.
    pub complete: bool,
    /// What went wrong, first things first.
    pub losses: Vec<Loss>,
    /// Reads that were under way when their target was lost.
    pub unanswered_reads: u64,
    /// Writes likewise: whether they took effect is not known.
    pub unanswered_writes: u64,
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

impl Ending {
    /// Whether there is nothing to complain about.
    pub fn is_clean(&self) -> bool {
        self.complete && self.losses.is_empty()
    }
}
