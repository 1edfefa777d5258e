//! Logout request and response (RFC 7143 11.14, 11.15).

use super::header::{
    get_initiator_tag, get_serial, get_serial_numbers, get_u16, put_serial_numbers, put_u16, put_u32, start,
};
use super::{HEADER_LEN, HeaderError, InitiatorTag, Opcode, Serial, SerialNumbers, is_immediate};

/// RFC 7143 11.14.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum LogoutReason {
    CloseSession = 0,
    CloseConnection = 1,
    RemoveForRecovery = 2,
}

/// The initiator wants to leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogoutRequest {
    /// The I bit.
    pub immediate: bool,
    /// What is to be closed.
    pub reason: LogoutReason,
    /// The task's tag.
    pub initiator_tag: InitiatorTag,
    /// The connection that is to be closed; it need not be the one that this came on.
    pub cid: u16,
    /// CmdSN.
    pub cmd_sn: Serial,
    /// ExpStatSN.
    pub exp_stat_sn: Serial,
}

impl LogoutRequest {
    /// From a header with this opcode.
    ///
    /// # Errors
    /// A reason that does not exist.
    pub fn decode(header: &[u8; HEADER_LEN]) -> Result<LogoutRequest, HeaderError> {
        Ok(LogoutRequest {
            immediate: is_immediate(header),
            reason: match header[1] & 0x7f {
                0 => LogoutReason::CloseSession,
                1 => LogoutReason::CloseConnection,
                2 => LogoutReason::RemoveForRecovery,
                _ => return Err(HeaderError::Field("Reason Code")),
            },
            initiator_tag: get_initiator_tag(header),
            cid: get_u16(header, 20),
            cmd_sn: get_serial(header, 24),
            exp_stat_sn: get_serial(header, 28),
        })
    }

    /// The header; the request has no data.
    pub fn encode(&self) -> [u8; HEADER_LEN] {
        let mut header = start(Opcode::LogoutRequest, self.immediate, 0x80 | self.reason as u8, 0);
        put_u32(&mut header, 16, self.initiator_tag.0);
        put_u16(&mut header, 20, self.cid);
        put_u32(&mut header, 24, self.cmd_sn.0);
        put_u32(&mut header, 28, self.exp_stat_sn.0);
        header
    }
}

/// RFC 7143 11.15.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum LogoutResult {
    Closed = 0,
    CidNotFound = 1,
    RecoveryNotSupported = 2,
    CleanupFailed = 3,
}

/// The answer to a logout request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogoutResponse {
    /// What came of it.
    pub result: LogoutResult,
    /// The request's tag.
    pub initiator_tag: InitiatorTag,
    /// The target's numbers.
    pub numbers: SerialNumbers,
    /// Seconds before the initiator should try to come back.
    pub time2wait: u16,
    /// Seconds for which state is kept after that.
    pub time2retain: u16,
}

impl LogoutResponse {
    /// From a header with this opcode.
    ///
    /// # Errors
    /// A response that does not exist.
    pub fn decode(header: &[u8; HEADER_LEN]) -> Result<LogoutResponse, HeaderError> {
        Ok(LogoutResponse {
            result: match header[2] {
                0 => LogoutResult::Closed,
                1 => LogoutResult::CidNotFound,
                2 => LogoutResult::RecoveryNotSupported,
                3 => LogoutResult::CleanupFailed,
                _ => return Err(HeaderError::Field("Response")),
            },
            initiator_tag: get_initiator_tag(header),
            numbers: get_serial_numbers(header),
            time2wait: get_u16(header, 40),
            time2retain: get_u16(header, 42),
        })
    }

    /// The header; the response has no data.
    pub fn encode(&self) -> [u8; HEADER_LEN] {
        let mut header = start(Opcode::LogoutResponse, false, 0x80, 0);
        header[2] = self.result as u8;
        put_u32(&mut header, 16, self.initiator_tag.0);
        put_serial_numbers(&mut header, self.numbers);
        put_u16(&mut header, 40, self.time2wait);
        put_u16(&mut header, 42, self.time2retain);
        header
    }
}
