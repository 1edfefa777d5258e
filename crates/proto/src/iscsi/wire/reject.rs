//! Reject (RFC 7143 11.17).

use super::header::{get_serial_numbers, get_u32, put_serial_numbers, put_u32, start};
use super::{HEADER_LEN, HeaderError, InitiatorTag, Opcode, SerialNumbers};

base::numbered! {
    /// Why a PDU was rejected (RFC 7143 11.17.1).
    #[derive(PartialOrd, Ord)]
    pub enum RejectReason: u8 {
        DataDigestError = 0x02,
        SnackReject = 0x03,
        ProtocolError = 0x04,
        CommandNotSupported = 0x05,
        TooManyImmediateCommands = 0x06,
        TaskInProgress = 0x07,
        InvalidDataAck = 0x08,
        InvalidPduField = 0x09,
        OutOfResources = 0x0a,
        WaitingForLogout = 0x0c,
    }
}

/// The target has rejected a PDU; the data segment contains the PDU's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reject {
    pub reason: RejectReason,
    pub numbers: SerialNumbers,
    /// After a data digest error in a task's data: the next DataSN or R2TSN.
    pub data_sn: u32,
}

impl Reject {
    pub fn decode(header: &[u8; HEADER_LEN]) -> Result<Reject, HeaderError> {
        Ok(Reject {
            reason: RejectReason::from_number(header[2]).ok_or(HeaderError::Field("Reason"))?,
            numbers: get_serial_numbers(header),
            data_sn: get_u32(header, 36),
        })
    }

    /// Encodes the header of a PDU with `data_len` bytes of data: 48, which is a complete rejected header.
    pub fn encode(&self, data_len: u32) -> [u8; HEADER_LEN] {
        let mut header = start(Opcode::Reject, false, 0x80, data_len);
        header[2] = self.reason as u8;
        put_u32(&mut header, 16, InitiatorTag::RESERVED.0);
        put_serial_numbers(&mut header, self.numbers);
        put_u32(&mut header, 36, self.data_sn);
        header
    }
}
