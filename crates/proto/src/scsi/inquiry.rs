//! INQUIRY: standard data (SPC-4 6.6.2), and the access to the vital product data pages.

use super::operations::{Operation, always};
use super::{Cdb, Identity, LogicalUnit, Outcome, Request, Sense, Step, operations, vpd};

pub(super) const INQUIRY: Operation = always("INQUIRY", inquiry, &[0x12, 0x01, 0xff, 0xff, 0xff, 0x04]);

/// PERIPHERAL QUALIFIER 3, type 1Fh: there is no unit at this LUN and cannot be one (SPC-4 table 142).
pub(super) const NO_UNIT: u8 = 0x7f;

/// VERSION DESCRIPTORs (SPC-4 annex G), none of which claims a revision.
const SAM_5: u16 = 0x00a0;
const SPC_4: u16 = 0x0460;
const SBC_3: u16 = 0x04c0;
const ISCSI: u16 = 0x0960;

const STANDARD_BYTES: usize = 96;

fn inquiry(unit: &mut LogicalUnit, request: Request) -> Result<Step, Sense> {
    let cdb = &request.cdb;
    let bytes = match page(cdb)? {
        None => standard(&unit.config().identity, 0x00),
        Some(page) => {
            let port = unit.nexus_name(request.nexus).map(|nexus| nexus.port);
            vpd::page(unit.config(), port, page).ok_or(Sense::invalid_field_in_cdb(2, 7))?
        }
    };
    Ok(Step::Done(Outcome::parameters(&bytes, allocation(cdb))))
}

/// The requested vital product data page; `None` for standard data.
pub(super) fn page(cdb: &Cdb) -> Result<Option<u8>, Sense> {
    if cdb.bit(1, 1) {
        return Err(Sense::invalid_field_in_cdb(1, 1)); // CMDDT, obsolete
    }
    match (cdb.bit(1, 0), cdb.u8(2)) {
        (true, page) => Ok(Some(page)),
        (false, 0) => Ok(None),
        (false, _) => Err(Sense::invalid_field_in_cdb(2, 7)),
    }
}

/// ALLOCATION LENGTH of INQUIRY.
pub(super) fn allocation(cdb: &Cdb) -> usize {
    usize::from(cdb.u16(3))
}

/// Standard INQUIRY data; `peripheral` is the qualifier with the device type.
pub(super) fn standard(identity: &Identity, peripheral: u8) -> Vec<u8> {
    // 3PC reports support of EXTENDED COPY: look it up in the table.
    let third_party_copy = u8::from(!operations::with_opcode(0x83).is_empty()) << 3;
    let mut bytes = vec![
        peripheral,
        0,    // not removable
        0x06, // SPC-4
        0x12, // HISUP, response data format 2
        (STANDARD_BYTES - 5) as u8,
        0x10 | third_party_copy, // TPGS: implicit asymmetric access only
        0x10,                    // MULTIP
        0x02,                    // CMDQUE
    ];
    bytes.extend_from_slice(&ascii::<8>(&identity.vendor));
    bytes.extend_from_slice(&ascii::<16>(&identity.product));
    bytes.extend_from_slice(&ascii::<4>(&identity.revision));
    bytes.resize(58, 0);
    for descriptor in [SAM_5, ISCSI, SPC_4, SBC_3] {
        bytes.extend_from_slice(&descriptor.to_be_bytes());
    }
    bytes.resize(STANDARD_BYTES, 0);
    bytes
}

/// Left-aligned ASCII, padded with spaces (SPC-4 4.4.1). Characters that are not printable become question
/// marks.
pub(super) fn ascii<const N: usize>(text: &str) -> [u8; N] {
    let mut field = [b' '; N];
    for (to, from) in field.iter_mut().zip(text.bytes()) {
        *to = if (0x20..0x7f).contains(&from) { from } else { b'?' };
    }
    field
}
