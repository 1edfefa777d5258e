//! Ready To Transfer (RFC 7143 11.8).

use super::header::{
    get_initiator_tag, get_lun, get_serial_numbers, get_target_tag, get_u32, put_lun, put_serial_numbers,
    put_u32, start,
};
use super::{HEADER_LEN, HeaderError, InitiatorTag, Opcode, SerialNumbers, TargetTag};

/// The target requests a part of a write's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct R2t {
    /// Must be returned with the data.
    pub lun: [u8; 8],
    pub initiator_tag: InitiatorTag,
    /// Must be returned with the data.
    pub target_tag: TargetTag,
    /// The target's sequence numbers. StatSN is the next one; the R2T does not advance it.
    pub numbers: SerialNumbers,
    /// The R2T's number in the command.
    pub r2t_sn: u32,
    /// The offset of the requested data.
    pub buffer_offset: u32,
    /// The length of the requested data in bytes: not zero, at most MaxBurstLength.
    pub desired_length: u32,
}

impl R2t {
    /// # Errors
    /// A desired length of zero.
    pub fn decode(header: &[u8; HEADER_LEN]) -> Result<R2t, HeaderError> {
        let desired_length = get_u32(header, 44);
        if desired_length == 0 {
            return Err(HeaderError::Field("Desired Data Transfer Length"));
        }
        Ok(R2t {
            lun: get_lun(header),
            initiator_tag: get_initiator_tag(header),
            target_tag: get_target_tag(header),
            numbers: get_serial_numbers(header),
            r2t_sn: get_u32(header, 36),
            buffer_offset: get_u32(header, 40),
            desired_length,
        })
    }

    pub fn encode(&self) -> [u8; HEADER_LEN] {
        let mut header = start(Opcode::R2t, false, 0x80, 0);
        put_lun(&mut header, self.lun);
        put_u32(&mut header, 16, self.initiator_tag.0);
        put_u32(&mut header, 20, self.target_tag.0);
        put_serial_numbers(&mut header, self.numbers);
        put_u32(&mut header, 36, self.r2t_sn);
        put_u32(&mut header, 40, self.buffer_offset);
        put_u32(&mut header, 44, self.desired_length);
        header
    }
}
