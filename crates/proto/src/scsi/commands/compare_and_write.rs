//! COMPARE AND WRITE (SBC-3 clause 5), with which cluster file systems take their locks.

use super::extent::Extent;
use super::{gates, pending};
use crate::block::BlockOp;
use crate::scsi::{LogicalUnit, Outcome, Request, Sense, Step, data_out, limits};

pub(super) fn compare_and_write(unit: &mut LogicalUnit, request: Request) -> Result<Step, Sense> {
    let cdb = &request.cdb;
    let config = unit.config();
    gates::no_protection(cdb)?;
    gates::writable(unit)?;
    let extent = Extent { lba: cdb.u64(2), count: u64::from(cdb.u8(13)), count_at: 13 };
    let Some(range) = extent.within(config, u64::from(limits::COMPARE_AND_WRITE_BLOCKS_MAX))? else {
        // For 256 blocks the field is zero: the data shows that zero blocks were not intended.
        if !request.data_out.is_empty() {
            return Err(Sense::invalid_field_in_cdb(extent.count_at, 7));
        }
        return Ok(Step::Done(Outcome::good()));
    };
    // The Data-Out Buffer contains the data to compare, then the data to write.
    let half = gates::bytes_of(range, config.block_size);
    Ok(match data_out::take_exactly(request.data_out, 2 * half) {
        Ok(data) => {
            let (compare, write) =
                (data.slice(0..half as usize), data.slice(half as usize..2 * half as usize));
            let fua = gates::durable(unit, gates::fua(cdb));
            let op = BlockOp::CompareAndWrite { range, compare, write, fua };
            pending::carry_out(2 * half, op)
        }
        Err(refused) => Step::Done(refused),
    })
}
