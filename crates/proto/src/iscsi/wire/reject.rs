//! Reject (RFC 7143 11.17).

use super::header::{Field, pdu, start};
use super::{HEADER_LEN, HeaderError, Opcode, SerialNumbers};

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

pdu! {
    /// The target has rejected a PDU; the data segment contains the PDU's header.
    Reject = Reject(data_len) | 0x80 {
        reason: RejectReason = (2, 0xff, "Reason"),
        numbers: SerialNumbers = 24,
        /// After a data digest error in a task's data: the next DataSN or R2TSN.
        data_sn: u32 = 36,
    }
}
