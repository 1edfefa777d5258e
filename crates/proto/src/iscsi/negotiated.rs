//! What a login settles, the same for both roles.

use super::keys::{Key, Value};

/// The parameters that login settled (RFC 7143 section 13).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Negotiated {
    /// CRC32C over headers of this connection.
    pub header_digest: bool,
    /// CRC32C over data of this connection.
    pub data_digest: bool,
    /// What the other side receives at most in one PDU on this connection.
    pub max_transmit: u32,
    /// What this side receives at most in one PDU: what it declared.
    pub max_receive: u32,
    /// MaxConnections of the session.
    pub max_connections: u16,
    /// InitialR2T.
    pub initial_r2t: bool,
    /// ImmediateData.
    pub immediate_data: bool,
    /// MaxBurstLength.
    pub max_burst: u32,
    /// FirstBurstLength.
    pub first_burst: u32,
    /// MaxOutstandingR2T.
    pub max_outstanding_r2t: u16,
    /// DefaultTime2Wait, seconds.
    pub time2wait: u16,
    /// DefaultTime2Retain, seconds.
    pub time2retain: u16,
}

impl Default for Negotiated {
    /// What holds if nobody says anything.
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
    /// What holds on a further connection of a session: it settles digests and lengths of its own, all else
    /// was settled by the leading connection (RFC 7143 13, "Use: LO").
    pub(super) fn in_session_of(self, leading: &Negotiated) -> Negotiated {
        Negotiated {
            header_digest: self.header_digest,
            data_digest: self.data_digest,
            max_transmit: self.max_transmit,
            max_receive: self.max_receive,
            ..leading.clone()
        }
    }

    /// Takes in the result of one key. Keys that settle what we do anyway change nothing.
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

/// The rules of these keys end at 65535 or below.
fn short(number: u32) -> u16 {
    u16::try_from(number).unwrap_or(u16::MAX)
}
