//! Asynchronous message (RFC 7143 11.9).

use super::header::{
    get_lun, get_serial_numbers, get_u16, put_lun, put_serial_numbers, put_u16, put_u32, start,
};
use super::{HEADER_LEN, InitiatorTag, Opcode, SerialNumbers};

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

/// An unsolicited message of the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AsyncMessage {
    pub event: AsyncEvent,
    /// The logical unit of a SCSI event.
    pub lun: [u8; 8],
    pub numbers: SerialNumbers,
}

impl AsyncMessage {
    pub fn decode(header: &[u8; HEADER_LEN]) -> AsyncMessage {
        let [first, second, third] = [38, 40, 42].map(|at| get_u16(header, at));
        AsyncMessage {
            event: match header[36] {
                0 => AsyncEvent::Scsi,
                1 => AsyncEvent::LogoutRequested { within: third },
                2 => AsyncEvent::ConnectionDropped { cid: first, time2wait: second, time2retain: third },
                3 => AsyncEvent::SessionDropped { time2wait: second, time2retain: third },
                4 => AsyncEvent::NegotiationRequested { within: third },
                5 => AsyncEvent::TasksTerminated,
                unknown => AsyncEvent::Unknown(unknown),
            },
            lun: get_lun(header),
            numbers: get_serial_numbers(header),
        }
    }

    pub fn encode(&self, data_len: u32) -> [u8; HEADER_LEN] {
        let mut header = start(Opcode::AsyncMessage, false, 0x80, data_len);
        put_lun(&mut header, self.lun);
        put_u32(&mut header, 16, InitiatorTag::RESERVED.0);
        put_serial_numbers(&mut header, self.numbers);
        let (number, parameters) = match self.event {
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
        header[36] = number;
        for (at, parameter) in [38, 40, 42].into_iter().zip(parameters) {
            put_u16(&mut header, at, parameter);
        }
        header
    }
}
