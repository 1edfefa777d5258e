//! The block commands (SBC-3) and third-party copy: what needs the medium.

use base::LbaRange;

use super::operations::Operation;
use super::{BlockDone, BlockError, LogicalUnit, Outcome};

/// The rows of the operation table for these commands.
pub(super) const OPERATIONS: &[Operation] = &[];

/// What `finish` needs of the command.
#[derive(Debug)]
pub struct Pending {}

/// What the commands of this folder keep in a unit on one core (results of copies for RECEIVE COPY RESULTS).
#[derive(Debug, Default)]
pub(super) struct BlockState {}

/// A part of an EXTENDED COPY: block to block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopySegment {
    /// The NAA designator of the unit to read.
    pub source: [u8; 16],
    /// What to read, in the source's blocks.
    pub source_range: LbaRange,
    /// The NAA designator of the unit to write.
    pub target: [u8; 16],
    /// What to write, in the target's blocks; as many bytes as the source's range.
    pub target_range: LbaRange,
}

/// The answer to a command whose step was carried out.
pub(super) fn finish(
    unit: &mut LogicalUnit,
    pending: Pending,
    result: Result<BlockDone, BlockError>,
) -> Outcome {
    let _ = (unit, pending, result);
    Outcome::good()
}
