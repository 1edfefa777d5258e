//! Text request and response (RFC 7143 11.10, 11.11). `keys::text` parses the pairs in their data.

use super::header::{Field, pdu, start};
use super::{HEADER_LEN, HeaderError, InitiatorTag, Opcode, Serial, SerialNumbers, TargetTag};

/// The place of the C bit. A text that continues is not final.
struct Continues;

impl Field<Continues> for bool {
    fn get(header: &[u8; HEADER_LEN], _: Continues) -> Result<bool, HeaderError> {
        match header[1] & 0xc0 {
            0xc0 => Err(HeaderError::Field("F and C bits")),
            bits => Ok(bits & 0x40 != 0),
        }
    }

    fn put(self, header: &mut [u8; HEADER_LEN], _: Continues) {
        header[1] |= if self { 0x40 } else { 0 };
    }
}

pdu! {
    /// A text request.
    TextRequest = TextRequest(data_len) | 0 {
        immediate: bool = (0, 0x40),
        /// The F bit: the initiator has nothing more to ask.
        is_final: bool = (1, 0x80),
        /// The C bit: the key=value pairs continue in the next request.
        more: bool = Continues,
        /// The LUN of the response that this request continues.
        lun: [u8; 8] = 8,
        initiator_tag: InitiatorTag = 16,
        /// The tag of the response that this request continues, else reserved.
        target_tag: TargetTag = 20,
        cmd_sn: Serial = 24,
        exp_stat_sn: Serial = 28,
    }
}

pdu! {
    /// A text response.
    TextResponse = TextResponse(data_len) | 0 {
        /// The F bit: the exchange has ended.
        is_final: bool = (1, 0x80),
        /// The C bit: the key=value pairs continue in the next response.
        more: bool = Continues,
        /// Must be returned with the next request.
        lun: [u8; 8] = 8,
        initiator_tag: InitiatorTag = 16,
        /// Must be returned with the next request; reserved in the final response.
        target_tag: TargetTag = 20,
        numbers: SerialNumbers = 24,
    }
}
