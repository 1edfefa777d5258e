//! UNMAP (SBC-3 clause 5).

use base::LbaRange;

use super::extent::Extent;
use super::{gates, pending};
use crate::block::BlockOp;
use crate::scsi::limits::{UNMAP_BLOCKS_MAX, UNMAP_DESCRIPTORS_MAX};
use crate::scsi::{LogicalUnit, LuConfig, Outcome, Request, Sense, Step, data_out};

pub(super) const OPCODE: u8 = 0x42;

/// UNMAP DATA LENGTH, UNMAP BLOCK DESCRIPTOR DATA LENGTH, four reserved bytes.
const HEADER: usize = 8;
/// LBA, number of blocks, four reserved bytes.
const DESCRIPTOR: usize = 16;

pub(super) fn unmap(unit: &mut LogicalUnit, request: Request) -> Result<Step, Sense> {
    let cdb = &request.cdb;
    if !unit.config().unmap {
        return Err(Sense::invalid_opcode());
    }
    // ANCHOR needs ANC_SUP, which is zero.
    if cdb.bit(1, 0) {
        return Err(Sense::invalid_field_in_cdb(1, 0));
    }
    gates::writable(unit)?;
    let length = cdb.u16(7);
    if length == 0 {
        return Ok(Step::Done(Outcome::good()));
    }
    if usize::from(length) < HEADER {
        return Err(Sense::parameter_list_length_error());
    }
    let transfer = u64::from(length);
    let list = match data_out::take(request.data_out, transfer) {
        Ok(data) => data.contiguous(),
        Err(refused) => return Ok(Step::Done(refused)),
    };
    let ranges = ranges_of(&list, unit.config())?;
    if ranges.is_empty() {
        return Ok(Step::Done(Outcome::good_out(transfer)));
    }
    let fua = gates::durable(unit, false);
    Ok(pending::carry_out(transfer, BlockOp::Unmap { ranges, fua }))
}

/// All ranges of a parameter list except empty ones: all of them are checked before any is unmapped. The
/// standard requires that an incomplete descriptor is ignored.
fn ranges_of(list: &[u8], config: &LuConfig) -> Result<Vec<LbaRange>, Sense> {
    let Some((header, rest)) = list.split_first_chunk::<HEADER>() else {
        return Err(Sense::parameter_list_length_error());
    };
    let described = usize::from(u16::from_be_bytes([header[2], header[3]]));
    let descriptors = &rest[..described.min(rest.len())];
    if descriptors.len() / DESCRIPTOR > UNMAP_DESCRIPTORS_MAX as usize {
        return Err(Sense::invalid_field_in_parameter_list(2, 7));
    }
    let mut ranges = Vec::with_capacity(descriptors.len() / DESCRIPTOR);
    let mut total = 0;
    for (index, descriptor) in descriptors.as_chunks::<DESCRIPTOR>().0.iter().enumerate() {
        let [lba @ .., c0, c1, c2, c3, _, _, _, _] = descriptor;
        let count = u64::from(u32::from_be_bytes([*c0, *c1, *c2, *c3]));
        let range = Extent { lba: u64::from_be_bytes(*lba), count, count_at: 0 }.inside(config)?;
        total += count;
        if total > u64::from(UNMAP_BLOCKS_MAX) {
            return Err(Sense::invalid_field_in_parameter_list((HEADER + index * DESCRIPTOR + 8) as u16, 7));
        }
        if count > 0 {
            ranges.push(range);
        }
    }
    Ok(ranges)
}
