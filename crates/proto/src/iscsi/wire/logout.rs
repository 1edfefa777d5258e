//! Logout request and response (RFC 7143 11.14, 11.15).

use super::header::{
    get_initiator_tag, get_serial, get_serial_numbers, get_u16, put_serial_numbers, put_u16, put_u32, start,
};
use super::{HEADER_LEN, HeaderError, InitiatorTag, Opcode, Serial, SerialNumbers, is_immediate};

base::numbered! {
    /// What to close, and why (RFC 7143 11.14.1).
    pub enum LogoutReason: u8 {
        CloseSession = 0,
        CloseConnection = 1,
        RemoveForRecovery = 2,
    }
}

/// The initiator asks to log out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogoutRequest {
    pub immediate: bool,
    pub reason: LogoutReason,
    pub initiator_tag: InitiatorTag,
    /// The connection to close; it need not be the one that this request came on.
    pub cid: u16,
    pub cmd_sn: Serial,
    pub exp_stat_sn: Serial,
}

impl LogoutRequest {
    pub fn decode(header: &[u8; HEADER_LEN]) -> Result<LogoutRequest, HeaderError> {
        Ok(LogoutRequest {
            immediate: is_immediate(header),
            reason: LogoutReason::from_number(header[1] & 0x7f).ok_or(HeaderError::Field("Reason Code"))?,
            initiator_tag: get_initiator_tag(header),
            cid: get_u16(header, 20),
            cmd_sn: get_serial(header, 24),
            exp_stat_sn: get_serial(header, 28),
        })
    }

    pub fn encode(&self) -> [u8; HEADER_LEN] {
        let mut header = start(Opcode::LogoutRequest, self.immediate, 0x80 | self.reason as u8, 0);
        put_u32(&mut header, 16, self.initiator_tag.0);
        put_u16(&mut header, 20, self.cid);
        put_u32(&mut header, 24, self.cmd_sn.0);
        put_u32(&mut header, 28, self.exp_stat_sn.0);
        header
    }
}

base::numbered! {
    /// The result of a logout (RFC 7143 11.15.1).
    pub enum LogoutResult: u8 {
        Closed = 0,
        CidNotFound = 1,
        RecoveryNotSupported = 2,
        CleanupFailed = 3,
    }
}

/// The response to a logout request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogoutResponse {
    pub result: LogoutResult,
    pub initiator_tag: InitiatorTag,
    pub numbers: SerialNumbers,
    /// Seconds to wait before the initiator tries to reconnect.
    pub time2wait: u16,
    /// Seconds after that for which the target keeps the session's state.
    pub time2retain: u16,
}

impl LogoutResponse {
    pub fn decode(header: &[u8; HEADER_LEN]) -> Result<LogoutResponse, HeaderError> {
        Ok(LogoutResponse {
            result: LogoutResult::from_number(header[2]).ok_or(HeaderError::Field("Response"))?,
            initiator_tag: get_initiator_tag(header),
            numbers: get_serial_numbers(header),
            time2wait: get_u16(header, 40),
            time2retain: get_u16(header, 42),
        })
    }

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
