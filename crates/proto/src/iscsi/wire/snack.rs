//! SNACK (RFC 7143 11.16). It belongs to higher error recovery levels; the target decodes it only to reject
//! it.

use super::header::{Field, pdu, start};
use super::{HEADER_LEN, HeaderError, InitiatorTag, Opcode, Serial, TargetTag};

pdu! {
    /// An initiator asks for PDUs to be sent again.
    Snack = Snack() | 0x80 {
        /// 11.16.1: data/R2T, status, data acknowledgement, R-data.
        kind: u8 = (1, 0x0f),
        /// Set in a data acknowledgement.
        lun: [u8; 8] = 8,
        initiator_tag: InitiatorTag = 16,
        /// Set in a data acknowledgement; or the SNACK tag.
        target_tag: TargetTag = 20,
        exp_stat_sn: Serial = 28,
        begin: u32 = 40,
        run_length: u32 = 44,
    }
}

impl Field<(usize, u8)> for u8 {
    fn get(header: &[u8; HEADER_LEN], (at, mask): (usize, u8)) -> Result<u8, HeaderError> {
        Ok(header[at] & mask)
    }

    fn put(self, header: &mut [u8; HEADER_LEN], (at, mask): (usize, u8)) {
        header[at] |= self & mask;
    }
}
