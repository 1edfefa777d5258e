//! READ CAPACITY (10) and (16): SBC-3 clause 5.

use crate::scsi::{LogicalUnit, LuConfig, Outcome, Request, Sense, Step};

/// LOGICAL BLOCK ADDRESS and PMI are obsolete and ignored.
pub(super) fn read_capacity_10(unit: &mut LogicalUnit, _: Request) -> Result<Step, Sense> {
    let config = unit.config();
    // FFFFFFFFh refers the initiator to READ CAPACITY (16).
    let last = u32::try_from(last_block(config)).unwrap_or(u32::MAX);
    let mut data = [0; 8];
    data[0..4].copy_from_slice(&last.to_be_bytes());
    data[4..8].copy_from_slice(&config.block_size.bytes().to_be_bytes());
    Ok(Step::Done(Outcome::parameters(&data, data.len())))
}

/// No protection information. The lowest aligned LBA is zero, because volumes begin on a physical block.
pub(super) fn read_capacity_16(unit: &mut LogicalUnit, request: Request) -> Result<Step, Sense> {
    let config = unit.config();
    let mut data = [0; 32];
    data[0..8].copy_from_slice(&last_block(config).to_be_bytes());
    data[8..12].copy_from_slice(&config.block_size.bytes().to_be_bytes());
    data[13] = config.physical_exponent & 0x0f;
    if config.unmap {
        // LBPME, and LBPRZ: unmapped blocks read as zeros.
        data[14] = 0xc0;
    }
    Ok(Step::Done(Outcome::parameters(&data, request.cdb.u32(10) as usize)))
}

/// The number of the last block; zero for a volume without blocks, since the field cannot express that.
fn last_block(config: &LuConfig) -> u64 {
    config.blocks.0.saturating_sub(1)
}
