//! PRE-FETCH (10) and (16): SBC-3 clause 5.

use base::{BlockCount, LbaRange};

use super::extent::Extent;
use super::pending;
use crate::scsi::limits::{self, blocks_of};
use crate::scsi::{LogicalUnit, Outcome, Request, Sense, Status, Step};

/// IMMED is ignored: answering before the blocks have been loaded gains nothing. Excess blocks are cut, since
/// the command is only a hint; the response then says that not all blocks are in the cache.
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

/// CONDITION MET if all blocks are in the cache, else GOOD.
pub(super) fn answer(all_cached: bool) -> Outcome {
    Outcome::status(if all_cached { Status::ConditionMet } else { Status::Good })
}
