//! READ (6), (10), (12) and (16): SBC-3 clause 5; READ (6): SBC-2.

use super::extent::Extent;
use super::{gates, pending};
use crate::block::BlockOp;
use crate::scsi::{LogicalUnit, Outcome, Request, Sense, Step};

pub(super) fn read_6(unit: &mut LogicalUnit, request: Request) -> Result<Step, Sense> {
    blocks(unit, Extent::of_six(&request.cdb), false)
}

pub(super) fn read(unit: &mut LogicalUnit, request: Request) -> Result<Step, Sense> {
    let cdb = &request.cdb;
    gates::no_protection(cdb)?;
    blocks(unit, Extent::of(cdb), gates::fua(cdb))
}

fn blocks(unit: &LogicalUnit, extent: Extent, fua: bool) -> Result<Step, Sense> {
    let config = unit.config();
    let Some(range) = extent.within(config, gates::transfer_max(config))? else {
        return Ok(Step::Done(Outcome::good()));
    };
    Ok(pending::read(gates::bytes_of(range, config.block_size), BlockOp::Read { range, fua }))
}
