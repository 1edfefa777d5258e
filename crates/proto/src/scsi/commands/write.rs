//! WRITE (6) to (16), WRITE AND VERIFY (10) to (16), ORWRITE (16): SBC-3 clause 5; WRITE ATOMIC (16): SBC-4
//! clause 5.

use base::{Chain, LbaRange};

use super::extent::Extent;
use super::{gates, pending};
use crate::block::BlockOp;
use crate::scsi::{LogicalUnit, Outcome, Request, Sense, Step, data_out};

pub(super) const ATOMIC_OPCODE: u8 = 0x9c;

pub(super) fn write_6(unit: &mut LogicalUnit, request: Request) -> Result<Step, Sense> {
    let extent = Extent::of_six(&request.cdb);
    let fua = gates::durable(unit, false);
    blocks(unit, extent, request.data_out, |range, data| BlockOp::Write { range, data, fua })
}

pub(super) fn write(unit: &mut LogicalUnit, request: Request) -> Result<Step, Sense> {
    let cdb = &request.cdb;
    gates::no_protection(cdb)?;
    let fua = gates::durable(unit, gates::fua(cdb));
    blocks(unit, Extent::of(cdb), request.data_out, |range, data| BlockOp::Write { range, data, fua })
}

pub(super) fn write_and_verify(unit: &mut LogicalUnit, request: Request) -> Result<Step, Sense> {
    let cdb = &request.cdb;
    gates::no_protection(cdb)?;
    let compare = match cdb.u8(1) >> 1 & 3 {
        0 => false,
        1 => true,
        _ => return Err(Sense::invalid_field_in_cdb(1, 2)),
    };
    blocks(unit, Extent::of(cdb), request.data_out, |range, data| BlockOp::WriteAndVerify {
        range,
        data,
        compare,
    })
}

/// Writes atomically. The command exists only if the volume guarantees atomic writes.
pub(super) fn write_atomic(unit: &mut LogicalUnit, request: Request) -> Result<Step, Sense> {
    let cdb = &request.cdb;
    let atomic = unit.config().atomic;
    if atomic.blocks_max == 0 {
        return Err(Sense::invalid_opcode());
    }
    gates::no_protection(cdb)?;
    let extent = Extent { lba: cdb.u64(2), count: u64::from(cdb.u16(12)), count_at: 12 };
    extent.inside(unit.config())?;
    // ATOMIC BOUNDARY: MAXIMUM ATOMIC TRANSFER LENGTH WITH ATOMIC BOUNDARY is zero.
    if cdb.u16(10) != 0 {
        return Err(Sense::invalid_field_in_cdb(10, 7));
    }
    if !extent.lba.is_multiple_of(u64::from(atomic.alignment.max(1))) {
        return Err(Sense::invalid_field_in_cdb(2, 7));
    }
    let granularity = u64::from(atomic.granularity.max(1));
    if extent.count > u64::from(atomic.blocks_max) || !extent.count.is_multiple_of(granularity) {
        return Err(Sense::invalid_field_in_cdb(12, 7));
    }
    let fua = gates::durable(unit, gates::fua(cdb));
    blocks(unit, extent, request.data_out, |range, data| BlockOp::WriteAtomic { range, data, fua })
}

pub(super) fn orwrite(unit: &mut LogicalUnit, request: Request) -> Result<Step, Sense> {
    let cdb = &request.cdb;
    gates::no_protection(cdb)?;
    let fua = gates::durable(unit, gates::fua(cdb));
    blocks(unit, Extent::of(cdb), request.data_out, |range, data| BlockOp::OrWrite { range, data, fua })
}

/// The range to write, and its length in bytes; `None` if the command requests no blocks.
fn admit(unit: &LogicalUnit, extent: Extent) -> Result<Option<(LbaRange, u64)>, Sense> {
    let config = unit.config();
    gates::writable(unit)?;
    let range = extent.within(config, gates::transfer_max(config))?;
    Ok(range.map(|range| (range, gates::bytes_of(range, config.block_size))))
}

/// Writes all blocks, or none if the command is refused.
fn blocks(
    unit: &LogicalUnit,
    extent: Extent,
    data: Chain,
    op: impl FnOnce(LbaRange, Chain) -> BlockOp,
) -> Result<Step, Sense> {
    let Some((range, transfer)) = admit(unit, extent)? else { return Ok(Step::Done(Outcome::good())) };
    Ok(match data_out::take(data, transfer) {
        Ok(data) => pending::carry_out(transfer, op(range, data)),
        Err(refused) => Step::Done(refused),
    })
}
