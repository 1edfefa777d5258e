//! Text request and response (RFC 7143 11.10, 11.11). `keys::text` parses the pairs in their data.

use super::header::{
    get_initiator_tag, get_lun, get_serial, get_serial_numbers, get_target_tag, put_lun, put_serial_numbers,
    put_u32, start,
};
use super::{HEADER_LEN, HeaderError, InitiatorTag, Opcode, Serial, SerialNumbers, TargetTag, is_immediate};

fn flags(is_final: bool, more: bool) -> u8 {
    (u8::from(is_final) << 7) | (u8::from(more) << 6)
}

/// Checks the F and C bits: a text that continues is not final.
fn check_flags(header: &[u8; HEADER_LEN]) -> Result<(bool, bool), HeaderError> {
    match (header[1] & 0x80 != 0, header[1] & 0x40 != 0) {
        (true, true) => Err(HeaderError::Field("F and C bits")),
        bits => Ok(bits),
    }
}

/// A text request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextRequest {
    pub immediate: bool,
    /// The F bit: the initiator has nothing more to ask.
    pub is_final: bool,
    /// The C bit: the key=value pairs continue in the next request.
    pub more: bool,
    /// The LUN of the response that this request continues.
    pub lun: [u8; 8],
    pub initiator_tag: InitiatorTag,
    /// The tag of the response that this request continues, else reserved.
    pub target_tag: TargetTag,
    pub cmd_sn: Serial,
    pub exp_stat_sn: Serial,
}

impl TextRequest {
    /// # Errors
    /// The F and the C bit at once.
    pub fn decode(header: &[u8; HEADER_LEN]) -> Result<TextRequest, HeaderError> {
        let (is_final, more) = check_flags(header)?;
        Ok(TextRequest {
            immediate: is_immediate(header),
            is_final,
            more,
            lun: get_lun(header),
            initiator_tag: get_initiator_tag(header),
            target_tag: get_target_tag(header),
            cmd_sn: get_serial(header, 24),
            exp_stat_sn: get_serial(header, 28),
        })
    }

    pub fn encode(&self, data_len: u32) -> [u8; HEADER_LEN] {
        let mut header =
            start(Opcode::TextRequest, self.immediate, flags(self.is_final, self.more), data_len);
        put_lun(&mut header, self.lun);
        put_u32(&mut header, 16, self.initiator_tag.0);
        put_u32(&mut header, 20, self.target_tag.0);
        put_u32(&mut header, 24, self.cmd_sn.0);
        put_u32(&mut header, 28, self.exp_stat_sn.0);
        header
    }
}

/// A text response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextResponse {
    /// The F bit: the exchange has ended.
    pub is_final: bool,
    /// The C bit: the key=value pairs continue in the next response.
    pub more: bool,
    /// Must be returned with the next request.
    pub lun: [u8; 8],
    pub initiator_tag: InitiatorTag,
    /// Must be returned with the next request; reserved in the final response.
    pub target_tag: TargetTag,
    pub numbers: SerialNumbers,
}

impl TextResponse {
    /// # Errors
    /// The F and the C bit at once.
    pub fn decode(header: &[u8; HEADER_LEN]) -> Result<TextResponse, HeaderError> {
        let (is_final, more) = check_flags(header)?;
        Ok(TextResponse {
            is_final,
            more,
            lun: get_lun(header),
            initiator_tag: get_initiator_tag(header),
            target_tag: get_target_tag(header),
            numbers: get_serial_numbers(header),
        })
    }

    pub fn encode(&self, data_len: u32) -> [u8; HEADER_LEN] {
        let mut header = start(Opcode::TextResponse, false, flags(self.is_final, self.more), data_len);
        put_lun(&mut header, self.lun);
        put_u32(&mut header, 16, self.initiator_tag.0);
        put_u32(&mut header, 20, self.target_tag.0);
        put_serial_numbers(&mut header, self.numbers);
        header
    }
}
