//! SYNCHRONIZE CACHE (10) and (16): SBC-3 clause 5.

use super::extent::Extent;
use super::pending;
use crate::block::BlockOp;
use crate::scsi::{LogicalUnit, Request, Sense, Step};

/// Flushes the whole volume, regardless of the range: disks cannot flush a part. IMMED would allow an early
/// response; it is sent only after the flush, so that the initiator learns of a failed one.
pub(super) fn synchronize_cache(unit: &mut LogicalUnit, request: Request) -> Result<Step, Sense> {
    Extent::of(&request.cdb).or_rest(unit.config())?;
    Ok(pending::carry_out(0, BlockOp::Flush))
}
