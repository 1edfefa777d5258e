//! The result of a login, the same for both roles.

use super::keys::{Key, Value};

/// The parameters that a login negotiated (RFC 7143 section 13). Digests are CRC32C, times in seconds.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // They are keys of the standard.
pub struct Negotiated {
    pub header_digest: bool,
    pub data_digest: bool,
    /// The most bytes of data that the other side accepts in one PDU on this connection.
    pub max_transmit: u32,
    /// The most bytes of data that this side accepts in one PDU, as it declared.
    pub max_receive: u32,
    pub max_connections: u16,
    pub initial_r2t: bool,
    pub immediate_data: bool,
    pub max_burst: u32,
    pub first_burst: u32,
    pub max_outstanding_r2t: u16,
    pub time2wait: u16,
    pub time2retain: u16,
}

impl Default for Negotiated {
    /// The standard's defaults, for keys that neither side sends.
    fn default() -> Negotiated {
        Negotiated {
            header_digest: false,
            data_digest: false,
            max_transmit: 8192,
            max_receive: 8192,
            max_connections: 1,
            initial_r2t: true,
            immediate_data: true,
            max_burst: 262_144,
            first_burst: 65536,
            max_outstanding_r2t: 1,
            time2wait: 2,
            time2retain: 20,
        }
    }
}

impl Negotiated {
    /// The parameters of a further connection of a session. It negotiates its own digests and lengths; the
    /// leading connection negotiated everything else (RFC 7143 13, "Use: LO").
    pub(super) fn in_session_of(self, leading: &Negotiated) -> Negotiated {
        Negotiated {
            header_digest: self.header_digest,
            data_digest: self.data_digest,
            max_transmit: self.max_transmit,
            max_receive: self.max_receive,
            ..leading.clone()
        }
    }

    /// Stores the result of one key. Keys whose result we implement anyway change nothing.
    pub(super) fn settle(&mut self, key: Key, result: Value) {
        match (key, result) {
            (Key::HeaderDigest, Value::Choice(choice)) => self.header_digest = choice == "CRC32C",
            (Key::DataDigest, Value::Choice(choice)) => self.data_digest = choice == "CRC32C",
            (Key::MaxConnections, Value::Number(number)) => self.max_connections = short(number),
            (Key::InitialR2T, Value::Boolean(value)) => self.initial_r2t = value,
            (Key::ImmediateData, Value::Boolean(value)) => self.immediate_data = value,
            (Key::MaxBurstLength, Value::Number(number)) => self.max_burst = number,
            (Key::FirstBurstLength, Value::Number(number)) => self.first_burst = number,
            (Key::DefaultTime2Wait, Value::Number(number)) => self.time2wait = short(number),
            (Key::DefaultTime2Retain, Value::Number(number)) => self.time2retain = short(number),
            (Key::MaxOutstandingR2T, Value::Number(number)) => self.max_outstanding_r2t = short(number),
            _ => {}
        }
    }
}

/// Converts the value of a key whose rule limits it to 65535 or less.
fn short(number: u32) -> u16 {
    u16::try_from(number).unwrap_or(u16::MAX)
}
