//! Logout request and response (RFC 7143 11.14, 11.15).

use super::header::{Field, pdu, start};
use super::{HEADER_LEN, HeaderError, InitiatorTag, Opcode, Serial, SerialNumbers};

base::numbered! {
    /// What to close, and why (RFC 7143 11.14.1).
    pub enum LogoutReason: u8 {
        CloseSession = 0,
        CloseConnection = 1,
        RemoveForRecovery = 2,
    }
}

pdu! {
    /// The initiator asks to log out.
    LogoutRequest = LogoutRequest() | 0x80 {
        immediate: bool = (0, 0x40),
        reason: LogoutReason = (1, 0x7f, "Reason Code"),
        initiator_tag: InitiatorTag = 16,
        /// The connection to close; it need not be the one that this request came on.
        cid: u16 = 20,
        cmd_sn: Serial = 24,
        exp_stat_sn: Serial = 28,
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

pdu! {
    /// The response to a logout request.
    LogoutResponse = LogoutResponse() | 0x80 {
        result: LogoutResult = (2, 0xff, "Response"),
        initiator_tag: InitiatorTag = 16,
        numbers: SerialNumbers = 24,
        /// Seconds to wait before the initiator tries to reconnect.
        time2wait: u16 = 40,
        /// Seconds after that for which the target keeps the session's state.
        time2retain: u16 = 42,
    }
}
