//! NOP-Out and NOP-In (RFC 7143 11.18, 11.19).

use super::header::{
    get_initiator_tag, get_lun, get_serial, get_serial_numbers, get_target_tag, put_lun, put_serial_numbers,
    put_u32, start,
};
use super::{HEADER_LEN, InitiatorTag, Opcode, Serial, SerialNumbers, TargetTag, is_immediate};

/// A ping of the initiator, or its answer to a ping of the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NopOut {
    pub immediate: bool,
    /// The LUN of the NOP-In that this PDU answers.
    pub lun: [u8; 8],
    /// If reserved, the initiator wants no answer.
    pub initiator_tag: InitiatorTag,
    /// The tag of the NOP-In that this PDU answers, else reserved.
    pub target_tag: TargetTag,
    pub cmd_sn: Serial,
    pub exp_stat_sn: Serial,
}

impl NopOut {
    pub fn decode(header: &[u8; HEADER_LEN]) -> NopOut {
        NopOut {
            immediate: is_immediate(header),
            lun: get_lun(header),
            initiator_tag: get_initiator_tag(header),
            target_tag: get_target_tag(header),
            cmd_sn: get_serial(header, 24),
            exp_stat_sn: get_serial(header, 28),
        }
    }

    pub fn encode(&self, data_len: u32) -> [u8; HEADER_LEN] {
        let mut header = start(Opcode::NopOut, self.immediate, 0x80, data_len);
        put_lun(&mut header, self.lun);
        put_u32(&mut header, 16, self.initiator_tag.0);
        put_u32(&mut header, 20, self.target_tag.0);
        put_u32(&mut header, 24, self.cmd_sn.0);
        put_u32(&mut header, 28, self.exp_stat_sn.0);
        header
    }
}

/// A ping of the target, or its answer to a ping of the initiator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NopIn {
    /// Must be returned with the answer.
    pub lun: [u8; 8],
    /// The tag of the NOP-Out that this PDU answers, else reserved.
    pub initiator_tag: InitiatorTag,
    /// If reserved, the target wants no answer.
    pub target_tag: TargetTag,
    /// The target's sequence numbers. A ping of the target does not advance StatSN.
    pub numbers: SerialNumbers,
}

impl NopIn {
    pub fn decode(header: &[u8; HEADER_LEN]) -> NopIn {
        NopIn {
            lun: get_lun(header),
            initiator_tag: get_initiator_tag(header),
            target_tag: get_target_tag(header),
            numbers: get_serial_numbers(header),
        }
    }

    pub fn encode(&self, data_len: u32) -> [u8; HEADER_LEN] {
        let mut header = start(Opcode::NopIn, false, 0x80, data_len);
        put_lun(&mut header, self.lun);
        put_u32(&mut header, 16, self.initiator_tag.0);
        put_u32(&mut header, 20, self.target_tag.0);
        put_serial_numbers(&mut header, self.numbers);
        header
    }
}
