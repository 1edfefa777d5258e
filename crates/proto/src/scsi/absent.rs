//! Commands to a LUN that no unit is mapped to (SPC-4 5.?, SAM-5 5.12).

use super::sense::{Sense, code};
use super::{Cdb, Outcome, Step};

/// Answers a command to a LUN that is not there, or for which the node has no unit.
pub fn absent(cdb: &Cdb) -> Step {
    let _ = cdb;
    Step::Done(Outcome::check(Sense::illegal(code::LOGICAL_UNIT_NOT_SUPPORTED)))
}
