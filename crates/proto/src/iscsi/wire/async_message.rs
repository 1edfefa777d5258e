//! Asynchronous message (RFC 7143 11.9).

use super::header::{Field, pdu, start};
use super::{HEADER_LEN, HeaderError, Opcode, SerialNumbers};

/// The event (RFC 7143 11.9.1). Times are in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AsyncEvent {
    /// Sense data is in the data segment.
    Scsi,
    /// The target asks for a logout within `within`.
    LogoutRequested { within: u16 },
    /// The connection `cid` will be dropped.
    ConnectionDropped { cid: u16, time2wait: u16, time2retain: u16 },
    /// All connections will be dropped.
    SessionDropped { time2wait: u16, time2retain: u16 },
    /// The target wants to negotiate within `within`.
    NegotiationRequested { within: u16 },
    /// Tasks on a unit are being terminated (RFC 7144).
    TasksTerminated,
    /// Reserved, or vendor-specific.
    Unknown(u8),
}

pdu! {
    /// An unsolicited message of the target.
    AsyncMessage = AsyncMessage(data_len) | 0x80 {
        event: AsyncEvent = 36,
        /// The logical unit of a SCSI event.
        lun: [u8; 8] = 8,
        numbers: SerialNumbers = 24,
    }
}

impl Field<usize> for AsyncEvent {
    fn get(header: &[u8; HEADER_LEN], at: usize) -> Result<AsyncEvent, HeaderError> {
        let [first, second, third] =
            [Field::get(header, at + 2)?, Field::get(header, at + 4)?, Field::get(header, at + 6)?];
        Ok(match header[at] {
            0 => AsyncEvent::Scsi,
            1 => AsyncEvent::LogoutRequested { within: third },
            2 => AsyncEvent::ConnectionDropped { cid: first, time2wait: second, time2retain: third },
            3 => AsyncEvent::SessionDropped { time2wait: second, time2retain: third },
            4 => AsyncEvent::NegotiationRequested { within: third },
            5 => AsyncEvent::TasksTerminated,
            unknown => AsyncEvent::Unknown(unknown),
        })
    }

    fn put(self, header: &mut [u8; HEADER_LEN], at: usize) {
        let (number, parameters) = match self {
            AsyncEvent::Scsi => (0, [0, 0, 0]),
            AsyncEvent::LogoutRequested { within } => (1, [0, 0, within]),
            AsyncEvent::ConnectionDropped { cid, time2wait, time2retain } => {
                (2, [cid, time2wait, time2retain])
            }
            AsyncEvent::SessionDropped { time2wait, time2retain } => (3, [0, time2wait, time2retain]),
            AsyncEvent::NegotiationRequested { within } => (4, [0, 0, within]),
            AsyncEvent::TasksTerminated => (5, [0, 0, 0]),
            AsyncEvent::Unknown(number) => (number, [0, 0, 0]),
        };
        header[at] = number;
        for (place, parameter) in (at + 2..).step_by(2).zip(parameters) {
            parameter.put(header, place);
        }
    }
}
