//! SNACK (RFC 7143 11.16). It belongs to higher error recovery levels; the target decodes it only to reject
//! it.

use super::header::{
    get_initiator_tag, get_lun, get_serial, get_target_tag, get_u32, put_lun, put_u32, start,
};
use super::{HEADER_LEN, InitiatorTag, Opcode, Serial, TargetTag};

/// An initiator asks for PDUs to be sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Snack {
    /// 11.16.1: data/R2T, status, data acknowledgement, R-data.
    pub kind: u8,
    /// Set in a data acknowledgement.
    pub lun: [u8; 8],
    pub initiator_tag: InitiatorTag,
    /// Set in a data acknowledgement; or the SNACK tag.
    pub target_tag: TargetTag,
    pub exp_stat_sn: Serial,
    pub begin: u32,
    pub run_length: u32,
}

impl Snack {
    pub fn decode(header: &[u8; HEADER_LEN]) -> Snack {
        Snack {
            kind: header[1] & 0x0f,
            lun: get_lun(header),
            initiator_tag: get_initiator_tag(header),
            target_tag: get_target_tag(header),
            exp_stat_sn: get_serial(header, 28),
            begin: get_u32(header, 40),
            run_length: get_u32(header, 44),
        }
    }

    pub fn encode(&self) -> [u8; HEADER_LEN] {
        let mut header = start(Opcode::Snack, false, 0x80 | (self.kind & 0x0f), 0);
        put_lun(&mut header, self.lun);
        put_u32(&mut header, 16, self.initiator_tag.0);
        put_u32(&mut header, 20, self.target_tag.0);
        put_u32(&mut header, 28, self.exp_stat_sn.0);
        put_u32(&mut header, 40, self.begin);
        put_u32(&mut header, 44, self.run_length);
        header
    }
}
