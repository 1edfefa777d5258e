//! The parameter list of EXTENDED COPY (LID1): SPC-4 clause 6.

use base::{BlockCount, BlockSize, Lba, LbaRange};

use super::CopySegment;
use crate::scsi::limits::{COPY_DESCRIPTOR_BYTES_MAX, COPY_SEGMENTS_MAX, COPY_TARGETS_MAX};
use crate::scsi::sense::code;
use crate::scsi::{Sense, SenseKey};

/// Block device to block device.
pub(super) const SEGMENT_BLOCK_TO_BLOCK: u8 = 0x02;
/// Identification descriptor.
pub(super) const TARGET_IDENTIFICATION: u8 = 0xe4;

const HEADER: usize = 16;
/// The length of all supported target descriptors.
const TARGET: usize = 32;
const SEGMENT: usize = 28;

/// The longest accepted list. Longer ones are refused unread: this length has room for at least twice the
/// accepted descriptors.
pub(super) const LIST_BYTES_MAX: u64 = 1 << 16;
const _: () = assert!(HEADER as u64 + COPY_DESCRIPTOR_BYTES_MAX as u64 * 2 <= LIST_BYTES_MAX);

/// How the copy's results can be requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ListId {
    /// LIST ID USAGE 00b: until another copy with the same identifier begins, or the nexus ends.
    Held(u8),
    /// 10b: while the copy is running.
    WhileRunning(u8),
    /// 11b: never.
    None,
}

/// A parameter list.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct CopyList {
    pub(super) id: ListId,
    pub(super) segments: Vec<CopySegment>,
}

/// A unit to copy from or to.
#[derive(Clone, Copy)]
struct Target {
    naa: [u8; 16],
    block_size: BlockSize,
}

impl CopyList {
    /// Decodes a list. It checks lengths, numbers, targets, segments, in this order.
    pub(super) fn decode(bytes: &[u8]) -> Result<CopyList, Sense> {
        let Some((header, rest)) = bytes.split_first_chunk::<HEADER>() else {
            return Err(Sense::parameter_list_length_error());
        };
        let id = list_id(header)?;
        let targets = usize::from(u16::from_be_bytes([header[2], header[3]]));
        let segments = u32::from_be_bytes([header[8], header[9], header[10], header[11]]) as usize;
        let inline = u32::from_be_bytes([header[12], header[13], header[14], header[15]]);

        let descriptors = targets.saturating_add(segments);
        if descriptors > COPY_DESCRIPTOR_BYTES_MAX as usize || descriptors > rest.len() {
            return Err(Sense::parameter_list_length_error());
        }
        if inline > 0 {
            return Err(Sense::illegal(code::INLINE_DATA_LENGTH_EXCEEDED));
        }
        let (target_bytes, segment_bytes) = rest[..descriptors].split_at(targets);
        if targets / TARGET > usize::from(COPY_TARGETS_MAX) {
            return Err(Sense::illegal(code::TOO_MANY_TARGET_DESCRIPTORS));
        }
        if segments / SEGMENT > usize::from(COPY_SEGMENTS_MAX) {
            return Err(Sense::illegal(code::TOO_MANY_SEGMENT_DESCRIPTORS));
        }
        let targets = decode_targets(target_bytes)?;
        let segments = decode_segments(segment_bytes, HEADER + target_bytes.len(), &targets)?;
        Ok(CopyList { id, segments })
    }
}

/// LIST IDENTIFIER and LIST ID USAGE (SPC-4, LIST ID USAGE). PRIORITY is a hint; STR is for streams.
fn list_id(header: &[u8; HEADER]) -> Result<ListId, Sense> {
    match header[1] >> 3 & 3 {
        0 => Ok(ListId::Held(header[0])),
        2 => Ok(ListId::WhileRunning(header[0])),
        3 if header[0] == 0 => Ok(ListId::None),
        3 => Err(Sense::invalid_field_in_parameter_list(0, 7)),
        _ => Err(Sense::invalid_field_in_parameter_list(1, 4)),
    }
}

fn decode_targets(bytes: &[u8]) -> Result<Vec<Target>, Sense> {
    let mut targets = Vec::with_capacity(bytes.len() / TARGET);
    let mut rest = bytes;
    while let Some(kind) = rest.first() {
        if *kind != TARGET_IDENTIFICATION {
            return Err(Sense::illegal(code::UNSUPPORTED_TARGET_DESCRIPTOR_TYPE_CODE));
        }
        let at = HEADER + bytes.len() - rest.len();
        let Some((descriptor, following)) = rest.split_first_chunk::<TARGET>() else {
            return Err(Sense::invalid_field_in_parameter_list(2, 7));
        };
        targets.push(decode_target(descriptor, at)?);
        rest = following;
    }
    Ok(targets)
}

/// Decodes an identification descriptor; its last four bytes are specific to block devices. LU ID TYPE and
/// NUL are obsolete and ignored.
fn decode_target(descriptor: &[u8; TARGET], at: usize) -> Result<Target, Sense> {
    let wrong = |byte: usize| Sense::invalid_field_in_parameter_list((at + byte) as u16, 7);
    if descriptor[1] & 0x1f != 0 {
        return Err(Sense::new(SenseKey::CopyAborted, code::INCORRECT_COPY_TARGET_DEVICE_TYPE));
    }
    // Accept only a binary NAA designator of a logical unit, 16 bytes long: our units have no other names.
    let [code_set, kind, _, length] = [4, 5, 6, 7].map(|i| descriptor[i]);
    if (code_set & 0x0f, kind & 0x3f, length) != (1, 3, 16) {
        return Err(Sense::new(SenseKey::CopyAborted, code::COPY_TARGET_DEVICE_NOT_REACHABLE));
    }
    let naa = std::array::from_fn(|i| descriptor[8 + i]);
    let block_bytes = u32::from_be_bytes([0, descriptor[29], descriptor[30], descriptor[31]]);
    let block_size = BlockSize::from_bytes(block_bytes).ok_or(wrong(29))?;
    Ok(Target { naa, block_size })
}

fn decode_segments(bytes: &[u8], at: usize, targets: &[Target]) -> Result<Vec<CopySegment>, Sense> {
    let mut segments = Vec::with_capacity(bytes.len() / SEGMENT);
    let mut rest = bytes;
    while let Some(kind) = rest.first() {
        if *kind != SEGMENT_BLOCK_TO_BLOCK {
            return Err(Sense::illegal(code::UNSUPPORTED_SEGMENT_DESCRIPTOR_TYPE_CODE));
        }
        let place = at + bytes.len() - rest.len();
        let Some((descriptor, following)) = rest.split_first_chunk::<SEGMENT>() else {
            return Err(Sense::invalid_field_in_parameter_list(8, 7));
        };
        segments.push(decode_segment(descriptor, place, targets)?);
        rest = following;
    }
    Ok(segments)
}

/// Decodes a block device to block device segment.
fn decode_segment(d: &[u8; SEGMENT], at: usize, targets: &[Target]) -> Result<CopySegment, Sense> {
    let wrong = |byte: usize| Sense::invalid_field_in_parameter_list((at + byte) as u16, 7);
    if [d[2], d[3]] != [0x00, 0x18] {
        return Err(wrong(2));
    }
    let target_at = |high, low| {
        targets
            .get(usize::from(u16::from_be_bytes([high, low])))
            .ok_or(Sense::new(SenseKey::CopyAborted, code::UNREACHABLE_COPY_TARGET))
    };
    let (source, target) = (target_at(d[4], d[5])?, target_at(d[6], d[7])?);
    let count = u64::from(u16::from_be_bytes([d[10], d[11]]));
    let lba = |from: usize| u64::from_be_bytes(std::array::from_fn(|i| d[from + i]));
    // DC: the count is in the destination's blocks.
    let counted = if d[1] & 0x02 != 0 { target.block_size } else { source.block_size };
    let bytes = count << counted.shift();
    Ok(CopySegment {
        source: source.naa,
        source_block_size: source.block_size,
        source_range: range_of(lba(12), bytes, source.block_size)?,
        target: target.naa,
        target_block_size: target.block_size,
        target_range: range_of(lba(20), bytes, target.block_size)?,
    })
}

/// The blocks of one side of a segment. If the bytes do not fill the last block, they would be carried to the
/// next segment (CAT) or padded (PAD), which is not supported.
fn range_of(lba: u64, bytes: u64, size: BlockSize) -> Result<LbaRange, Sense> {
    if !bytes.is_multiple_of(u64::from(size.bytes())) {
        return Err(Sense::new(SenseKey::CopyAborted, code::INEXACT_SEGMENT));
    }
    // No volume is that large.
    LbaRange::new(Lba(lba), BlockCount(bytes >> size.shift()))
        .ok_or(Sense::new(SenseKey::CopyAborted, code::NO_ADDITIONAL_SENSE_INFORMATION))
}
