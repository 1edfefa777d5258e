//! VERIFY (10), (12) and (16): SBC-3 clause 5.

use super::extent::Extent;
use super::{gates, pending};
use crate::block::BlockOp;
use crate::scsi::{LogicalUnit, Outcome, Request, Sense, Step, data_out};

/// What BYTCHK requests (SBC-3 clause 5, VERIFY (10)).
enum Check {
    /// 00b: check that the medium can be read.
    Medium,
    /// 01b: compare all blocks with the data.
    Blocks,
    /// 11b: compare each block with the one block in the data.
    Same,
}

pub(super) fn verify(unit: &mut LogicalUnit, request: Request) -> Result<Step, Sense> {
    let cdb = &request.cdb;
    let config = unit.config();
    gates::no_protection(cdb)?;
    let check = match cdb.u8(1) >> 1 & 3 {
        0 => Check::Medium,
        1 => Check::Blocks,
        3 => Check::Same,
        _ => return Err(Sense::invalid_field_in_cdb(1, 2)),
    };
    // The limit also applies without data: it bounds the time of one command.
    let Some(range) = Extent::of(cdb).within(config, gates::transfer_max(config))? else {
        return Ok(Step::Done(Outcome::good()));
    };
    let (all, one) = (gates::bytes_of(range, config.block_size), u64::from(config.block_size.bytes()));
    Ok(match check {
        Check::Medium => pending::carry_out(0, BlockOp::Verify { range }),
        Check::Blocks => match data_out::take(request.data_out, all) {
            Ok(data) => pending::carry_out(all, BlockOp::Compare { range, data }),
            Err(refused) => Step::Done(refused),
        },
        Check::Same => match data_out::take(request.data_out, one) {
            Ok(data) => pending::compare_each(range, data),
            Err(refused) => Step::Done(refused),
        },
    })
}
