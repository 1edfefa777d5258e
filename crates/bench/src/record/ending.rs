//! How a measurement ended.

use serde::{Deserialize, Serialize};

use crate::Target;

/// How a measurement ended.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Ending {
    /// Whether it ran to its end.
    pub complete: bool,
    /// The failures, in order of time.
    pub losses: Vec<Loss>,
    /// Reads that were under way when their target was lost.
    pub unanswered_reads: u64,
    /// Writes that were under way when their target was lost: it is unknown whether they took effect.
    pub unanswered_writes: u64,
}

/// The loss of a target, as one thread saw it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Loss {
    /// The target.
    pub target: Target,
    /// When, in seconds from the first request on.
    pub at: f64,
    /// The last answer before, in seconds from the first request on.
    pub last_answer: Option<f64>,
    /// The request that failed: a read or a write, and its offset.
    pub request: String,
    /// What happened.
    pub reason: String,
    /// Whether the target returned wrong data.
    pub wrong_data: bool,
}

impl Ending {
    /// Whether the measurement is complete and nothing failed.
    pub fn is_clean(&self) -> bool {
        self.complete && self.losses.is_empty()
    }
}
