//! Third-party copy with a list identifier of one byte: EXTENDED COPY (LID1), and RECEIVE COPY RESULTS (SPC-4
//! clause 6).
//!
//! A copy goes from block device to block device (segment type 02h). The units are named by their NAA
//! designators (descriptor type E4h). [`list`] decodes the parameter list into [`CopySegment`]s; the node,
//! which has the units, executes them. [`results`] keeps the result of a copy for the nexus that requested
//! it.

mod failure;
mod list;
mod page;
mod results;

use base::{BlockSize, LbaRange};

use super::gates;
use crate::scsi::limits::{
    COPY_DESCRIPTOR_BYTES_MAX, COPY_RESULTS_HELD_MAX, COPY_SEGMENT_BYTES_MAX, COPY_SEGMENTS_MAX,
    COPY_TARGETS_MAX,
};
use crate::scsi::{LogicalUnit, NexusId, Outcome, Request, Sense, Step, data_out};
use list::CopyList;
use results::Started;

pub use failure::{CopyError, CopyFailure, CopyFault};
pub(in crate::scsi) use page::third_party_copy;
pub(super) use results::Copies;

/// A block-to-block segment of an EXTENDED COPY.
///
/// The units are unknown here. Before it copies a segment, the node finds them, compares their block sizes
/// and capacities, and fails the copy with a [`CopyFault`] if they do not match. The ranges may be empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopySegment {
    /// The NAA designator of the unit to read.
    pub source: [u8; 16],
    /// The source's block size according to the command.
    pub source_block_size: BlockSize,
    /// The range to read, in the source's blocks.
    pub source_range: LbaRange,
    /// The NAA designator of the unit to write.
    pub target: [u8; 16],
    /// The target's block size according to the command.
    pub target_block_size: BlockSize,
    /// The range to write, in the target's blocks; it has as many bytes as the source's range.
    pub target_range: LbaRange,
}

/// What the response to a copy needs to know about the command.
#[derive(Debug)]
pub struct PendingCopy {
    /// The length of the parameter list in bytes.
    transfer: u64,
    /// The result for RECEIVE COPY RESULTS.
    started: Started,
}

/// EXTENDED COPY (LID1).
pub(super) fn extended_copy(unit: &mut LogicalUnit, request: Request) -> Result<Step, Sense> {
    let transfer = u64::from(request.cdb.u32(10));
    if transfer == 0 {
        return Ok(Step::Done(Outcome::good()));
    }
    if transfer > list::LIST_BYTES_MAX {
        return Err(Sense::parameter_list_length_error());
    }
    let data = match data_out::take(request.data_out, transfer) {
        Ok(data) => data.contiguous(),
        Err(refused) => return Ok(Step::Done(refused)),
    };
    let CopyList { id, segments } = CopyList::decode(&data)?;
    if segments.is_empty() {
        return Ok(Step::Done(Outcome::good_out(transfer)));
    }
    let lengths = segments.iter().map(|s| gates::bytes_of(s.source_range, s.source_block_size)).collect();
    Ok(match unit.block.copies.start(request.nexus, id, lengths) {
        Ok(started) => Step::Copy(PendingCopy { transfer, started }, segments),
        Err(refused) => Step::Done(refused),
    })
}

/// The response to a command whose copy has ended.
pub(in crate::scsi) fn finish(
    unit: &mut LogicalUnit,
    pending: PendingCopy,
    result: Result<(), CopyError>,
) -> Outcome {
    let PendingCopy { transfer, started } = pending;
    unit.block.copies.finish(started, result);
    match result {
        Ok(()) => Outcome::good_out(transfer),
        Err(error) => Outcome { transfer, ..Outcome::check(error.sense()) },
    }
}

/// COPY STATUS: the progress or result of a copy.
pub(super) fn copy_status(unit: &mut LogicalUnit, request: Request) -> Result<Step, Sense> {
    let data = find(unit, &request)?.status();
    Ok(answer(&request, &data))
}

/// RECEIVE DATA: always empty, since no supported segment type holds data.
pub(super) fn receive_data(unit: &mut LogicalUnit, request: Request) -> Result<Step, Sense> {
    find(unit, &request)?;
    Ok(answer(&request, &[0; 4]))
}

/// FAILED SEGMENT DETAILS: the sense data of a copy that failed.
pub(super) fn failed_segment_details(unit: &mut LogicalUnit, request: Request) -> Result<Step, Sense> {
    let data = find(unit, &request)?.failed_segment();
    Ok(answer(&request, &data))
}

/// OPERATING PARAMETERS: the limits of EXTENDED COPY.
pub(super) fn operating_parameters(_: &mut LogicalUnit, request: Request) -> Result<Step, Sense> {
    let types = [list::SEGMENT_BLOCK_TO_BLOCK, list::TARGET_IDENTIFICATION];
    let mut data = [0; 44 + 2];
    let available = (data.len() - 4) as u32;
    data[0..4].copy_from_slice(&available.to_be_bytes());
    data[4] = 0x01; // SNLID: a copy need not have a list identifier
    data[8..10].copy_from_slice(&COPY_TARGETS_MAX.to_be_bytes());
    data[10..12].copy_from_slice(&COPY_SEGMENTS_MAX.to_be_bytes());
    data[12..16].copy_from_slice(&COPY_DESCRIPTOR_BYTES_MAX.to_be_bytes());
    data[16..20].copy_from_slice(&COPY_SEGMENT_BYTES_MAX.to_be_bytes());
    // No inline data, no held data, no stream devices: 20 to 31 are zero.
    data[34..36].copy_from_slice(&(COPY_RESULTS_HELD_MAX as u16).to_be_bytes());
    data[36] = COPY_RESULTS_HELD_MAX as u8;
    data[37] = 9; // a segment is a multiple of 512 bytes
    data[43] = types.len() as u8;
    data[44..].copy_from_slice(&types);
    Ok(answer(&request, &data))
}

const _: () = assert!(COPY_RESULTS_HELD_MAX <= u8::MAX as usize, "it fits into the field");

/// The result of the copy with the LIST IDENTIFIER of the CDB.
fn find<'a>(unit: &'a LogicalUnit, request: &Request) -> Result<&'a results::CopyResult, Sense> {
    let nexus: NexusId = request.nexus;
    unit.block.copies.find(nexus, request.cdb.u8(2)).ok_or(Sense::invalid_field_in_cdb(2, 7))
}

fn answer(request: &Request, data: &[u8]) -> Step {
    Step::Done(Outcome::parameters(data, request.cdb.u32(10) as usize))
}
