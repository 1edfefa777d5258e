//! Errors of sessions and commands.

use std::io;
use std::net::SocketAddr;

use proto::iscsi::initiator::{ConnectionError, LoginError};

/// Why an operation failed.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // The messages say it.
pub enum Error {
    #[error("cannot connect to portal {portal}")]
    Connect {
        portal: SocketAddr,
        #[source]
        source: io::Error,
    },
    #[error("cannot log in to portal {portal}")]
    Login {
        portal: SocketAddr,
        #[source]
        source: LoginError,
    },
    /// The portal did not finish the login in time, or closed the connection.
    #[error("portal {portal} did not complete the login")]
    NoLogin { portal: SocketAddr },
    /// The session has ended. Whether a command that was under way took effect is unknown.
    #[error("session ended: {0}")]
    Ended(Ended),
    /// The session had ended before the command was sent: the command has had no effect.
    #[error("command not sent, session ended: {0}")]
    NotSent(Ended),
    /// Task management ended the command. It may have had an effect before; it has none from now on.
    #[error("command aborted")]
    Aborted,
    /// The command was not answered in time and was aborted. It may have had an effect before; it has none
    /// from now on.
    #[error("command timed out and was aborted")]
    TimedOut,
    /// The command ended with a status other than GOOD.
    #[error("the target returned status {status:#04x}, sense {}", sense_text(sense))]
    Status {
        status: u8,
        /// The sense data, if any.
        sense: Vec<u8>,
    },
    /// The target could not execute the command (RFC 7143 11.4.3).
    #[error("target failure (response {0:#04x})")]
    TargetFailure(u8),
    /// The target reported GOOD, but its data is shorter than requested or violates the standard.
    #[error("invalid response to {0}")]
    BadAnswer(&'static str),
}

/// Why a session has ended.
#[allow(missing_docs)] // The messages say it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Ended {
    #[error("logged out")]
    LoggedOut,
    #[error("the target closed the connection")]
    Closed,
    #[error("connection lost ({0})")]
    Broken(io::ErrorKind),
    /// The protocol failed: the connection could not continue.
    #[error("{0}")]
    Failed(ConnectionError),
    #[error("the target stopped responding")]
    Silent,
    #[error("the target neither answered nor aborted commands")]
    Unresponsive,
    /// We logged out then.
    #[error("the target requested a logout")]
    AskedToLeave,
    #[error("the target dropped the session")]
    Dropped,
    #[error("closed by the initiator")]
    GivenUp,
}

impl Error {
    /// Sense key and additional sense code, as in `(6, 0x2900)`, of a command that ended with CHECK
    /// CONDITION.
    pub fn sense(&self) -> Option<(u8, u16)> {
        let Error::Status { status: 0x02, sense } = self else { return None };
        sense_codes(sense)
    }

    /// Whether a COMPARE AND WRITE or a VERIFY found other data than expected.
    pub fn is_miscompare(&self) -> bool {
        self.sense().is_some_and(|(key, _)| key == 0x0e)
    }

    /// Whether the unit does not support the command, or there is no unit.
    pub fn is_illegal_request(&self) -> bool {
        self.sense().is_some_and(|(key, _)| key == 0x05)
    }

    /// Whether an administrator must look after the unit (NOT READY, MANUAL INTERVENTION REQUIRED).
    ///
    /// Ursa reports this for a disk that accepts no more writes and can still be read.
    pub fn needs_help(&self) -> bool {
        self.sense() == Some((0x02, 0x0403))
    }

    /// Whether the unit has no space for a write (DATA PROTECT, SPACE ALLOCATION FAILED WRITE PROTECT).
    pub fn is_out_of_space(&self) -> bool {
        self.sense() == Some((0x07, 0x2707))
    }

    /// Whether this is a unit attention: the target reports a change, and the command can be sent again.
    pub fn is_unit_attention(&self) -> bool {
        self.sense().is_some_and(|(key, _)| key == 0x06)
    }
}

/// An error with its causes, in one line.
pub(crate) fn told(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {}", told(source)),
        None => error.to_string(),
    }
}

/// SPC-4 4.5: sense data has two formats, fixed and descriptor.
fn sense_codes(sense: &[u8]) -> Option<(u8, u16)> {
    let (key, code) = match sense.first()? & 0x7f {
        0x70 | 0x71 => (*sense.get(2)?, [*sense.get(12)?, *sense.get(13)?]),
        0x72 | 0x73 => (*sense.get(1)?, [*sense.get(2)?, *sense.get(3)?]),
        _ => return None,
    };
    Some((key & 0x0f, u16::from_be_bytes(code)))
}

fn sense_text(sense: &[u8]) -> String {
    match sense_codes(sense) {
        Some((key, code)) => format!("key {key:#x}, code {code:#06x}"),
        None => "none".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_formats_of_sense() {
        let fixed = [0x70, 0, 0x06, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x29, 0x00, 0, 0, 0, 0];
        let error = Error::Status { status: 2, sense: fixed.to_vec() };
        assert_eq!(error.sense(), Some((6, 0x2900)));
        assert!(error.is_unit_attention());
        assert!(!error.is_out_of_space());
        let full = Error::Status { status: 2, sense: vec![0x72, 0x07, 0x27, 0x07, 0, 0, 0, 0] };
        assert!(full.is_out_of_space());
        let descriptor = [0x72, 0x05, 0x24, 0x00, 0, 0, 0, 0];
        let error = Error::Status { status: 2, sense: descriptor.to_vec() };
        assert_eq!(error.sense(), Some((5, 0x2400)));
        assert_eq!(error.to_string(), "the target returned status 0x02, sense key 0x5, code 0x2400");
        assert_eq!(Error::Status { status: 8, sense: vec![] }.sense(), None);
    }
}
