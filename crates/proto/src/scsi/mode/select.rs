//! MODE SELECT(6) and MODE SELECT(10) (SPC-4 6.9, 6.10).

use super::{Mode, Page, pages_of};
use crate::scsi::change::{Change, Decision, Notice};
use crate::scsi::operations::{Access, Operation, unready};
use crate::scsi::{
    Affected, ItNexus, LogicalUnit, LuConfig, LuState, Request, Sense, Step, UnitAttention, data_out,
};

pub(in crate::scsi) const MODE_SELECT_6: Operation = unready(
    "MODE SELECT(6)",
    Access::Exclusive,
    |unit, request| {
        let list = usize::from(request.cdb.u8(4));
        select(unit, request, Header { bytes: 4, list, list_at: 4 })
    },
    &[0x15, 0x11, 0, 0, 0xff, 0x04],
);

pub(in crate::scsi) const MODE_SELECT_10: Operation = unready(
    "MODE SELECT(10)",
    Access::Exclusive,
    |unit, request| {
        let list = usize::from(request.cdb.u16(7));
        select(unit, request, Header { bytes: 8, list, list_at: 7 })
    },
    &[0x55, 0x11, 0, 0, 0, 0, 0, 0xff, 0xff, 0x04],
);

/// The differences between the two commands.
struct Header {
    /// The length of the mode parameter header: four or eight bytes.
    bytes: usize,
    /// PARAMETER LIST LENGTH, and its position in the CDB.
    list: usize,
    list_at: u16,
}

/// What a MODE SELECT requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::scsi) struct ModeChange {
    write_cache: Option<bool>,
    descriptor_sense: Option<bool>,
    write_protected: Option<bool>,
    /// SP: save the parameters, so that they survive a reset.
    save: bool,
}

fn select(unit: &mut LogicalUnit, request: Request, header: Header) -> Result<Step, Sense> {
    let cdb = &request.cdb;
    if cdb.bit(1, 1) {
        return Err(Sense::invalid_field_in_cdb(1, 1)); // RTD
    }
    if header.list == 0 {
        return Ok(Step::Done(crate::scsi::Outcome::good()));
    }
    if !cdb.bit(1, 4) {
        return Err(Sense::invalid_field_in_cdb(1, 4)); // PF: vendor-specific pages
    }
    // There are few pages; a longer list can only be wrong.
    if header.list > LIST_BYTES_MAX {
        return Err(Sense::invalid_field_in_cdb(header.list_at, 7));
    }
    let list = match data_out::take(request.data_out.clone(), header.list as u64) {
        Ok(list) => list.to_vec(),
        Err(refused) => return Ok(Step::Done(refused)),
    };
    let mut change = ModeChange { save: cdb.bit(1, 0), ..ModeChange::default() };
    parse(unit.config(), &list, header.bytes, &mut change)?;
    unit.change(&request, Change::Mode(change), header.list as u64)
}

/// The longest accepted list. A MODE SELECT of all pages with the longest header and block descriptor takes
/// less than 200 bytes.
const LIST_BYTES_MAX: usize = 4096;

/// Checks the whole list before anything is changed (SPC-4 7.5.4 to 7.5.6).
fn parse(config: &LuConfig, list: &[u8], header: usize, change: &mut ModeChange) -> Result<(), Sense> {
    let (block_len, long) = match (header, list) {
        (4, [_, _, _, len, ..]) => (usize::from(*len), false),
        (8, [_, _, _, _, flags, _, high, low, ..]) => {
            (usize::from(u16::from_be_bytes([*high, *low])), flags & 1 != 0)
        }
        _ => return Err(Sense::parameter_list_length_error()),
    };
    let descriptor = list.get(header..header + block_len).ok_or(Sense::parameter_list_length_error())?;
    check_descriptor(config, descriptor, long, header)?;
    let mut at = header + block_len;
    while let Some(rest) = list.get(at..).filter(|rest| !rest.is_empty()) {
        at += parse_page(config, rest, at, change)?;
    }
    Ok(())
}

/// Checks that the block descriptor matches the unit: neither the capacity nor the block size can be set
/// (SBC-3 6.5.2). A number of blocks of zero or all ones keeps the capacity.
fn check_descriptor(config: &LuConfig, descriptor: &[u8], long: bool, at: usize) -> Result<(), Sense> {
    let invalid = |field: usize| Err(Sense::invalid_field_in_parameter_list((at + field) as u16, 7));
    let (blocks, none, size, size_at) = match (descriptor, long) {
        ([], _) => return Ok(()),
        ([a, b, c, d, _, size @ ..], false) if size.len() == 3 => {
            let blocks = u64::from(u32::from_be_bytes([*a, *b, *c, *d]));
            (blocks, u64::from(u32::MAX), u32::from_be_bytes([0, size[0], size[1], size[2]]), 5)
        }
        ([blocks @ .., _, _, _, _, s0, s1, s2, s3], true) if blocks.len() == 8 => {
            let blocks = blocks.iter().fold(0, |value, byte| value << 8 | u64::from(*byte));
            (blocks, u64::MAX, u32::from_be_bytes([*s0, *s1, *s2, *s3]), 12)
        }
        // The length in the header does not match LONGLBA.
        _ => return Err(Sense::invalid_field_in_parameter_list(if at == 4 { 3 } else { 6 }, 7)),
    };
    if blocks != 0 && blocks != none && blocks != config.blocks.0 {
        return invalid(0);
    }
    if size != config.block_size.bytes() {
        return invalid(size_at);
    }
    Ok(())
}

/// Parses one page at the start of `rest`, which begins at offset `at` of the list. Returns the page's
/// length.
fn parse_page(config: &LuConfig, rest: &[u8], at: usize, change: &mut ModeChange) -> Result<usize, Sense> {
    let invalid = |byte: usize, bit: u8| Sense::invalid_field_in_parameter_list((at + byte) as u16, bit);
    let (subpage, header, length) = match rest {
        [code, subpage, high, low, ..] if code & 0x40 != 0 => {
            (*subpage, 4, usize::from(u16::from_be_bytes([*high, *low])))
        }
        [code, length, ..] if code & 0x40 == 0 => (0, 2, usize::from(*length)),
        _ => return Err(Sense::parameter_list_length_error()),
    };
    let code = rest[0] & 0x3f;
    let page = pages_of(config).find(|page| page.code == code && page.subpage == subpage);
    let page = page.filter(|page| (page.subpage != 0) == (header == 4)).ok_or(invalid(0, 5))?;
    let mask = page.changeable(config);
    if mask.len() != header + length {
        return Err(invalid(header / 2, 7));
    }
    let bytes = rest.get(..mask.len()).ok_or(Sense::parameter_list_length_error())?;
    let fixed = page.encode(config, &Mode::default());
    for (i, byte) in bytes.iter().enumerate().skip(header) {
        let wrong = (byte ^ fixed[i]) & !mask[i];
        if wrong != 0 {
            return Err(invalid(i, 7 - wrong.leading_zeros() as u8));
        }
    }
    change.set(page, bytes);
    Ok(mask.len())
}

impl ModeChange {
    /// Stores the changeable bits of a page.
    fn set(&mut self, page: &Page, bytes: &[u8]) {
        match (page.code, page.subpage) {
            (0x08, 0) => self.write_cache = Some(bytes[2] & 0x04 != 0),
            (0x0a, 0) => {
                self.descriptor_sense = Some(bytes[2] & 0x04 != 0);
                self.write_protected = Some(bytes[4] & 0x08 != 0);
            }
            _ => {}
        }
    }

    /// `mode` with the requested changes.
    fn applied_to(&self, mode: &Mode) -> Mode {
        Mode {
            write_cache: self.write_cache.unwrap_or(mode.write_cache),
            descriptor_sense: self.descriptor_sense.unwrap_or(mode.descriptor_sense),
            write_protected: self.write_protected.unwrap_or(mode.write_protected),
        }
    }

    /// Decides the change against the newest state.
    pub(in crate::scsi) fn decide(&self, state: &LuState, from: &ItNexus, decision: &mut Decision) {
        let mut new = state.clone();
        new.mode = self.applied_to(&state.mode);
        if self.save {
            new.saved_mode = self.applied_to(&state.saved_mode);
        }
        if new == *state {
            return;
        }
        if new.mode != state.mode {
            let to = Affected::AllBut(from.clone());
            decision.notices.push(Notice { to, attention: UnitAttention::ModeParametersChanged });
        }
        // Writes that were answered out of the write cache must become as durable as later ones.
        decision.flush = state.mode.write_cache && !new.mode.write_cache;
        decision.durable = new.saved_mode != state.saved_mode;
        decision.state = Some(new);
    }
}
