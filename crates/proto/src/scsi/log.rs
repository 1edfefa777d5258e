//! LOG SENSE (SPC-4 clause 6) and its pages: the list of pages, and for units that may run out of space how
//! much of it there is.

use super::operations::{Access, Operation, unready};
use super::{LogicalUnit, LuConfig, Outcome, Request, Sense, Step, Thresholds, commands};
use crate::block::Space;

pub(super) const LOG_SENSE: Operation =
    unready("LOG SENSE", Access::Free, log_sense, &[0x4d, 0x01, 0x3f, 0xff, 0, 0xff, 0xff, 0xff, 0xff, 0x04]);

const SUPPORTED_PAGES: u8 = 0x00;
const LOGICAL_BLOCK_PROVISIONING: u8 = 0x0c;

/// The parameter with the highest code in the Logical Block Provisioning page.
const LAST_PARAMETER: u16 = 0x0003;

/// The codes of a unit's pages, in ascending order.
fn pages(config: &LuConfig) -> &'static [u8] {
    if config.thresholds.is_some() {
        &[SUPPORTED_PAGES, LOGICAL_BLOCK_PROVISIONING]
    } else {
        &[SUPPORTED_PAGES]
    }
}

/// PC is ignored, as it has no meaning for these pages: they contain no counters.
fn log_sense(unit: &mut LogicalUnit, request: Request) -> Result<Step, Sense> {
    let cdb = &request.cdb;
    if cdb.bit(1, 0) {
        return Err(Sense::invalid_field_in_cdb(1, 0)); // SP: nothing can be saved
    }
    let (code, pages) = (cdb.u8(2) & 0x3f, pages(unit.config()));
    if !pages.contains(&code) {
        return Err(Sense::invalid_field_in_cdb(2, 5));
    }
    if cdb.u8(3) != 0 {
        return Err(Sense::invalid_field_in_cdb(3, 7)); // SUBPAGE CODE
    }
    let allocation = usize::from(cdb.u16(7));
    if code == SUPPORTED_PAGES {
        return Ok(Step::Done(Outcome::parameters(&with_header(code, pages), allocation)));
    }
    let first = cdb.u16(5);
    if first > LAST_PARAMETER {
        return Err(Sense::invalid_field_in_cdb(5, 7));
    }
    Ok(commands::tell_space(first, allocation))
}

/// A page with its header (SPC-4, log page format). SPF 0.
fn with_header(first_byte: u8, body: &[u8]) -> Vec<u8> {
    let [high, low] = (body.len() as u16).to_be_bytes();
    let mut bytes = vec![first_byte, 0, high, low];
    bytes.extend_from_slice(body);
    bytes
}

/// DS: the parameters cannot be saved.
const DISABLE_SAVE: u8 = 0x80;

/// The parameter control byte: TSD, because the parameter is not saved; a list in binary format.
const BINARY_LIST: u8 = 0x23;

/// SCOPE: a resource of this unit alone.
const DEDICATED: u8 = 1;
/// SCOPE: a resource that other units use, too.
const SHARED: u8 = 2;

/// The Logical Block Provisioning page (SBC-4 clause 6), from the parameter `first` on.
///
/// Counts are in threshold sets: what is available is rounded down, what is used is rounded up.
pub(super) fn provisioning(space: &Space, first: u16) -> Vec<u8> {
    let sets = |count: u64| u32::try_from(count).unwrap_or(u32::MAX).to_be_bytes();
    let parameters = [
        (0x0001, sets(space.available.0 / Thresholds::SET_BYTES), SHARED),
        (0x0002, sets(space.used.0.div_ceil(Thresholds::SET_BYTES)), DEDICATED),
        (LAST_PARAMETER, [0, space.available_percent, 0, 0], SHARED),
    ];
    let mut list = Vec::new();
    for (code, count, scope) in parameters.into_iter().filter(|(code, ..)| *code >= first) {
        let [high, low] = code.to_be_bytes();
        list.extend_from_slice(&[high, low, BINARY_LIST, 8]);
        list.extend_from_slice(&count);
        list.extend_from_slice(&[scope, 0, 0, 0]);
    }
    with_header(DISABLE_SAVE | LOGICAL_BLOCK_PROVISIONING, &list)
}
