//! GET LBA STATUS (SBC-3 clause 5).

use base::{BlockCount, Lba};

use super::extent::Extent;
use super::pending;
use crate::block::Provisioning;
use crate::scsi::limits::LBA_STATUS_DESCRIPTORS_MAX;
use crate::scsi::{LogicalUnit, Outcome, Request, Sense, Step};

/// PARAMETER DATA LENGTH and four reserved bytes.
const HEADER: usize = 8;
/// LBA, number of blocks, provisioning status, three reserved bytes.
const DESCRIPTOR: usize = 16;

pub(super) fn get_lba_status(unit: &mut LogicalUnit, request: Request) -> Result<Step, Sense> {
    let lba = request.cdb.u64(2);
    // The first block must exist.
    Extent { lba, count: 1, count_at: 2 }.inside(unit.config())?;
    let allocation = request.cdb.u32(10) as usize;
    if allocation == 0 {
        return Ok(Step::Done(Outcome::good()));
    }
    let fitting = allocation.saturating_sub(HEADER) / DESCRIPTOR;
    Ok(pending::ask_status(Lba(lba), fitting.clamp(1, LBA_STATUS_DESCRIPTORS_MAX), allocation))
}

/// Encodes the parameter data. An extent whose number of blocks exceeds 32 bits is truncated and ends the
/// list, because the descriptors must be contiguous.
pub(super) fn encode(extents: &[(Lba, BlockCount, Provisioning)]) -> Vec<u8> {
    let mut data = vec![0; HEADER];
    for (lba, count, state) in extents {
        let shown = u32::try_from(count.0).unwrap_or(u32::MAX);
        data.extend_from_slice(&lba.0.to_be_bytes());
        data.extend_from_slice(&shown.to_be_bytes());
        data.extend_from_slice(&[provisioning_status(*state), 0, 0, 0]);
        if u64::from(shown) < count.0 {
            break;
        }
    }
    let following = (data.len() - 4) as u32;
    data[..4].copy_from_slice(&following.to_be_bytes());
    data
}

/// PROVISIONING STATUS.
fn provisioning_status(state: Provisioning) -> u8 {
    match state {
        Provisioning::Mapped => 0,
        Provisioning::Deallocated => 1,
    }
}
