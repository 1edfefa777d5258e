//! MODE SENSE(6) and MODE SENSE(10) (SPC-4 6.11, 6.12).

use super::{Mode, Page, pages_of};
use crate::scsi::operations::{Access, Operation, unready};
use crate::scsi::{Cdb, LogicalUnit, LuConfig, Outcome, Request, Sense, Step};

pub(in crate::scsi) const MODE_SENSE_6: Operation =
    unready("MODE SENSE(6)", Access::Exclusive, mode_sense_6, &[0x1a, 0x08, 0xff, 0xff, 0xff, 0x04]);

pub(in crate::scsi) const MODE_SENSE_10: Operation = unready(
    "MODE SENSE(10)",
    Access::Exclusive,
    mode_sense_10,
    &[0x5a, 0x18, 0xff, 0xff, 0, 0, 0, 0xff, 0xff, 0x04],
);

const ALL_PAGES: u8 = 0x3f;
const ALL_SUBPAGES: u8 = 0xff;

fn mode_sense_6(unit: &mut LogicalUnit, request: Request) -> Result<Step, Sense> {
    let cdb = &request.cdb;
    let pages = pages(unit, cdb)?;
    let block = if cdb.bit(1, 3) { Vec::new() } else { short_descriptor(unit.config()) };
    // MODE DATA LENGTH does not count itself. All pages together take far less than 255 bytes.
    let length = (3 + block.len() + pages.len()) as u8;
    let mut bytes = vec![length, 0, device_specific(unit), block.len() as u8];
    bytes.extend(block);
    bytes.extend(pages);
    Ok(Step::Done(Outcome::parameters(&bytes, usize::from(cdb.u8(4)))))
}

fn mode_sense_10(unit: &mut LogicalUnit, request: Request) -> Result<Step, Sense> {
    let cdb = &request.cdb;
    let pages = pages(unit, cdb)?;
    let long = cdb.bit(1, 4);
    let block = match (cdb.bit(1, 3), long) {
        (true, _) => Vec::new(),
        (false, false) => short_descriptor(unit.config()),
        (false, true) => long_descriptor(unit.config()),
    };
    let [high, low] = ((6 + block.len() + pages.len()) as u16).to_be_bytes();
    let long_lba = u8::from(long && !block.is_empty());
    let mut bytes = vec![high, low, 0, device_specific(unit), long_lba, 0, 0, block.len() as u8];
    bytes.extend(block);
    bytes.extend(pages);
    Ok(Step::Done(Outcome::parameters(&bytes, usize::from(cdb.u16(7)))))
}

/// The DEVICE-SPECIFIC PARAMETER (SBC-3 6.5.1): WP; and DPOFUA, because DPO and FUA are accepted.
fn device_specific(unit: &LogicalUnit) -> u8 {
    let protected = unit.config().read_only || unit.state().write_protected();
    u8::from(protected) << 7 | 0x10
}

/// SBC-3 6.5.2.2: a number of blocks that exceeds the field is reported as all ones.
fn short_descriptor(config: &LuConfig) -> Vec<u8> {
    let blocks = u32::try_from(config.blocks.0).unwrap_or(u32::MAX);
    let mut bytes = blocks.to_be_bytes().to_vec();
    bytes.extend_from_slice(&config.block_size.bytes().to_be_bytes()); // the first byte is reserved, and zero
    bytes
}

/// SBC-3 6.5.2.3.
fn long_descriptor(config: &LuConfig) -> Vec<u8> {
    let mut bytes = config.blocks.0.to_be_bytes().to_vec();
    bytes.extend_from_slice(&[0; 4]);
    bytes.extend_from_slice(&config.block_size.bytes().to_be_bytes());
    bytes
}

/// The pages that the CDB requests (SPC-4 table 166).
fn pages(unit: &LogicalUnit, cdb: &Cdb) -> Result<Vec<u8>, Sense> {
    let (code, subpage) = (cdb.u8(2) & 0x3f, cdb.u8(3));
    let wanted = |page: &&Page| {
        (code == ALL_PAGES || page.code == code) && (subpage == ALL_SUBPAGES || page.subpage == subpage)
    };
    if code == ALL_PAGES && subpage != 0 && subpage != ALL_SUBPAGES {
        return Err(Sense::invalid_field_in_cdb(3, 7));
    }
    let config = unit.config();
    if !pages_of(config).any(|page| wanted(&page)) {
        let known = pages_of(config).any(|page| page.code == code);
        return Err(if known {
            Sense::invalid_field_in_cdb(3, 7)
        } else {
            Sense::invalid_field_in_cdb(2, 5)
        });
    }
    let state = unit.state();
    let encode = |page: &Page| match cdb.u8(2) >> 6 {
        0 => page.encode(config, &state.mode),
        1 => page.changeable(config),
        2 => page.encode(config, &Mode::default()),
        _ => page.encode(config, &state.saved_mode),
    };
    Ok(pages_of(config).filter(wanted).flat_map(encode).collect())
}
