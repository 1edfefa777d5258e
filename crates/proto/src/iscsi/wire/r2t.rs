//! Ready To Transfer (RFC 7143 11.8).

use super::header::{Field, pdu, start};
use super::{HEADER_LEN, HeaderError, InitiatorTag, Opcode, SerialNumbers, TargetTag};

/// The place of a length that is not zero.
struct NotZero(usize);

impl Field<NotZero> for u32 {
    fn get(header: &[u8; HEADER_LEN], NotZero(at): NotZero) -> Result<u32, HeaderError> {
        match <u32 as Field<usize>>::get(header, at)? {
            0 => Err(HeaderError::Field("Desired Data Transfer Length")),
            length => Ok(length),
        }
    }

    fn put(self, header: &mut [u8; HEADER_LEN], NotZero(at): NotZero) {
        <u32 as Field<usize>>::put(self, header, at);
    }
}

pdu! {
    /// The target requests a part of a write's data.
    R2t = R2t() | 0x80 {
        /// Must be returned with the data.
        lun: [u8; 8] = 8,
        initiator_tag: InitiatorTag = 16,
        /// Must be returned with the data.
        target_tag: TargetTag = 20,
        /// The target's sequence numbers. StatSN is the next one; the R2T does not advance it.
        numbers: SerialNumbers = 24,
        /// The R2T's number in the command.
        r2t_sn: u32 = 36,
        /// The offset of the requested data.
        buffer_offset: u32 = 40,
        /// The length of the requested data in bytes: not zero, at most MaxBurstLength.
        desired_length: u32 = NotZero(44),
    }
}
