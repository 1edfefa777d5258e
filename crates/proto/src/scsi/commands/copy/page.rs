//! The Third-party Copy VPD page, 8Fh (SPC-4 clause 7), which repeats what EXTENDED COPY and RECEIVE COPY
//! RESULTS support.

use super::list::{SEGMENT_BLOCK_TO_BLOCK, TARGET_IDENTIFICATION};
use crate::scsi::limits::{
    COPY_DESCRIPTOR_BYTES_MAX, COPY_RESULTS_HELD_MAX, COPY_SEGMENT_BYTES_MAX, COPY_SEGMENTS_MAX,
    COPY_TARGETS_MAX,
};

/// The body of the page: third-party copy descriptors by ascending type.
pub(in crate::scsi) fn third_party_copy() -> Vec<u8> {
    let mut page = Vec::with_capacity(128);
    // Operation code, number of service actions, service actions.
    let commands = [0x83, 1, 0x00, 0x84, 4, 0x00, 0x01, 0x03, 0x04];
    descriptor(&mut page, SUPPORTED_COMMANDS, &with_length(&commands));
    descriptor(&mut page, PARAMETER_DATA, &parameter_data());
    let types = [SEGMENT_BLOCK_TO_BLOCK, TARGET_IDENTIFICATION];
    descriptor(&mut page, SUPPORTED_DESCRIPTORS, &with_length(&types));
    // CSCD descriptors have no identifiers of their own.
    descriptor(&mut page, SUPPORTED_CSCD_IDS, &[0, 0]);
    descriptor(&mut page, GENERAL_COPY_OPERATIONS, &general());
    page
}

const SUPPORTED_COMMANDS: u16 = 0x0001;
const PARAMETER_DATA: u16 = 0x0004;
const SUPPORTED_DESCRIPTORS: u16 = 0x0008;
const SUPPORTED_CSCD_IDS: u16 = 0x000c;
const GENERAL_COPY_OPERATIONS: u16 = 0x8001;

/// Appends type, length, and the body padded to a multiple of four bytes.
fn descriptor(page: &mut Vec<u8>, kind: u16, body: &[u8]) {
    let length = body.len().next_multiple_of(4);
    page.extend_from_slice(&kind.to_be_bytes());
    page.extend_from_slice(&(length as u16).to_be_bytes());
    page.extend_from_slice(body);
    page.resize(page.len() + length - body.len(), 0);
}

fn with_length(list: &[u8]) -> Vec<u8> {
    let mut body = vec![list.len() as u8];
    body.extend_from_slice(list);
    body
}

fn parameter_data() -> [u8; 28] {
    let mut body = [0; 28];
    body[4..6].copy_from_slice(&COPY_TARGETS_MAX.to_be_bytes());
    body[6..8].copy_from_slice(&COPY_SEGMENTS_MAX.to_be_bytes());
    body[8..12].copy_from_slice(&COPY_DESCRIPTOR_BYTES_MAX.to_be_bytes());
    // No inline data: 12 to 15 are zero.
    body
}

fn general() -> [u8; 32] {
    let mut body = [0; 32];
    let copies = COPY_RESULTS_HELD_MAX as u32;
    body[0..4].copy_from_slice(&copies.to_be_bytes());
    body[4..8].copy_from_slice(&copies.to_be_bytes());
    body[8..12].copy_from_slice(&COPY_SEGMENT_BYTES_MAX.to_be_bytes());
    body[12] = 9; // a segment is a multiple of 512 bytes
    body
}
