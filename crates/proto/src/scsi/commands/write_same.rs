//! WRITE SAME (10) and (16): SBC-3 clause 5.

use base::{Buf, Chain};

use super::extent::Extent;
use super::{gates, pending};
use crate::block::BlockOp;
use crate::scsi::limits::{self, WRITE_SAME_NON_ZERO, blocks_of};
use crate::scsi::{Cdb, LogicalUnit, Request, Sense, Step, data_out};

/// Flags in byte 1.
struct Flags {
    /// Blocks may be unmapped if they then read as the data to be written.
    unmap: bool,
    /// There is no data; zeros are written.
    no_data: bool,
}

pub(super) fn write_same_10(unit: &mut LogicalUnit, request: Request) -> Result<Step, Sense> {
    // SBC-2's PBDATA and LBDATA would write numbers into the blocks: obsolete, but they must not be ignored.
    if request.cdb.u8(1) & 0x06 != 0 {
        return Err(Sense::invalid_field_in_cdb(1, if request.cdb.bit(1, 2) { 2 } else { 1 }));
    }
    let flags = Flags { unmap: request.cdb.bit(1, 3), no_data: false };
    write_same(unit, request, flags)
}

pub(super) fn write_same_16(unit: &mut LogicalUnit, request: Request) -> Result<Step, Sense> {
    let flags = Flags { unmap: request.cdb.bit(1, 3), no_data: request.cdb.bit(1, 0) };
    write_same(unit, request, flags)
}

fn write_same(unit: &LogicalUnit, request: Request, flags: Flags) -> Result<Step, Sense> {
    let cdb = &request.cdb;
    let config = unit.config();
    gates::no_protection(cdb)?;
    check_unmap_bits(unit, cdb)?;
    gates::writable(unit)?;
    let extent = Extent::of(cdb);
    let max = blocks_of(limits::WRITE_SAME_BYTES_MAX, config.block_size).0;
    // Zero blocks would extend to the end of the volume (WSNZ is one).
    const { assert!(WRITE_SAME_NON_ZERO) };
    let Some(range) = extent.within(config, max)? else {
        return Err(Sense::invalid_field_in_cdb(extent.count_at, 7));
    };
    let block = u64::from(config.block_size.bytes());
    let (transfer, pattern) = if flags.no_data {
        (0, Buf::zeroed(block as usize).into())
    } else {
        match data_out::take_exactly(request.data_out, block) {
            Ok(pattern) => (block, pattern),
            Err(refused) => return Ok(Step::Done(refused)),
        }
    };
    // SBC-3 clause 4, WRITE SAME and unmap operations: with LBPRZ, a block may be unmapped only if it has to
    // read as zeros.
    let fua = gates::durable(unit, false);
    let op = if flags.unmap && is_zero(&pattern) {
        BlockOp::Unmap { ranges: vec![range], fua }
    } else {
        BlockOp::WriteSame { range, pattern, fua }
    };
    Ok(pending::carry_out(transfer, op))
}

/// Checks that ANCHOR is zero, since ANC_SUP is, and that UNMAP is set only if the volume can unmap.
fn check_unmap_bits(unit: &LogicalUnit, cdb: &Cdb) -> Result<(), Sense> {
    if cdb.bit(1, 4) {
        return Err(Sense::invalid_field_in_cdb(1, 4));
    }
    if cdb.bit(1, 3) && !unit.config().unmap {
        return Err(Sense::invalid_field_in_cdb(1, 3));
    }
    Ok(())
}

fn is_zero(data: &Chain) -> bool {
    data.parts().iter().all(|part| part.iter().all(|byte| *byte == 0))
}
