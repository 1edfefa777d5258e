//! PRE-FETCH (10) and (16): SBC-3 clause 5.

use base::{BlockCount, LbaRange};

use super::extent::Extent;
use super::pending;
use crate::scsi::limits::{self, blocks_of};
use crate::scsi::{LogicalUnit, Outcome, Request, Sense, Status, Step};

/// IMMED is ignored: nothing is gained by an answer before the blocks are there. Too many blocks are cut, as
/// this is a hint; the answer then is that not all of them are in the cache.
pub(super) fn prefetch(unit: &mut LogicalUnit, request: Request) -> Result<Step, Sense> {
    let config = unit.config();
    let range = Extent::of(&request.cdb).or_rest(config)?;
    let max = blocks_of(limits::PREFETCH_BYTES_MAX, config.block_size);
    if range.count == BlockCount(0) {
        return Ok(Step::Done(Outcome::good()));
    }
    let fetched = LbaRange { start: range.start, count: range.count.min(max) };
    Ok(pending::fetch(fetched, fetched != range))
}

/// CONDITION MET if all the blocks are in the cache, GOOD if not all.
pub(super) fn answer(all_cached: bool) -> Outcome {
    Outcome::status(if all_cached { Status::ConditionMet } else { Status::Good })
}
