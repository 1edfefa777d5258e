//! SYNCHRONIZE CACHE (10) and (16): SBC-3 clause 5.

use super::extent::Extent;
use super::pending;
use crate::scsi::{BlockOp, LogicalUnit, Request, Sense, Step};

/// The whole volume is flushed, whatever the range is: disks know no other flush. With IMMED the answer might
/// come earlier; it is given when it is true, so that a failed flush is told to whom it concerns.
pub(super) fn synchronize_cache(unit: &mut LogicalUnit, request: Request) -> Result<Step, Sense> {
    Extent::of(&request.cdb).or_rest(unit.config())?;
    Ok(pending::carry_out(0, BlockOp::Flush))
}
