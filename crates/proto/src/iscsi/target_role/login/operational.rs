//! The operational stage of a target: parameters of session and connection (RFC 7143 13).
//!
//! The target offers nothing itself: it answers, and declares how much it can receive. Keys that the
//! initiator does not mention keep the standard's default.

use super::{Failure, LoginStatus, Pairs, SessionKind, answer_misplaced};
use crate::iscsi::Negotiated;
use crate::iscsi::keys::rule::{self, Answer};
use crate::iscsi::keys::value::parse_number;
use crate::iscsi::keys::{Key, Rule, Text, Value};

/// The longest data segment that we receive. It is as long as a burst, so that a burst can be one PDU and be
/// received in place.
const MAX_RECEIVE: u32 = 1 << 20;
/// The most bytes that one R2T asks for.
const MAX_BURST: u32 = 1 << 20;
/// The most unsolicited data per command. All commands of the window may bring it at once: with 128 commands,
/// 16 MiB per session.
const FIRST_BURST: u32 = 128 << 10;
const _: () = assert!(FIRST_BURST <= MAX_BURST);
/// The most connections per session. Beyond that, more sessions serve as well.
const MAX_CONNECTIONS: u32 = 8;
/// The most open R2Ts per command.
const MAX_OUTSTANDING_R2T: u32 = 8;
/// RFC 7144: level 1 is RFC 7143 without the additions of RFC 7144.
const PROTOCOL_LEVEL: u32 = 1;
/// RFC 7143 13.12.
const RECEIVE_MIN: u32 = 512;
const RECEIVE_MAX: u32 = (1 << 24) - 1;
/// RFC 7143 13.15: an initiator that has lost its session may return at once. Its login waits for the pending
/// commands of the old session anyway, so a delay would gain nothing, and a host that changes its path would
/// stall for it.
const TIME2WAIT: u32 = 0;
/// RFC 7143 13.16: the standard's default.
const TIME2RETAIN: u32 = 20;

pub(super) struct Operational {
    kind: SessionKind,
    /// Whether this is the first connection of its session, which negotiates the session-wide keys.
    leading: bool,
    /// Whether we have declared how much we receive.
    declared: bool,
    negotiated: Negotiated,
}

impl Default for Operational {
    fn default() -> Operational {
        Operational::new(SessionKind::Normal, true)
    }
}

impl Operational {
    pub(super) fn new(kind: SessionKind, leading: bool) -> Operational {
        Operational { kind, leading, declared: false, negotiated: Negotiated::default() }
    }

    /// The negotiated parameters. RFC 7143 13.14: FirstBurstLength must not exceed MaxBurstLength.
    pub(super) fn settled(&self) -> Negotiated {
        let mut negotiated = self.negotiated.clone();
        negotiated.first_burst = negotiated.first_burst.min(negotiated.max_burst);
        negotiated
    }

    /// Answers one exchange.
    pub(super) fn handle(&mut self, mut pairs: Pairs, text: &mut Text) -> Result<(), Failure> {
        // The answer to FirstBurstLength depends on MaxBurstLength, wherever the latter is in the text.
        pairs.sort_by_key(|(name, _)| name == Key::FirstBurstLength.name());
        for (name, value) in &pairs {
            match Key::from_name(name) {
                _ if rule::is_answer_only(value) => {}
                Some(key) if key.definition().rule == Rule::Declared => {
                    self.take_declaration(key, value, text)?
                }
                Some(key) => {
                    let answer = self.answer(key, value);
                    text.push(name, &answer.text());
                    if let Answer::Result(result) = answer {
                        self.negotiated.settle(key, result);
                    }
                }
                None => answer_misplaced(name, value, text),
            }
        }
        if !std::mem::replace(&mut self.declared, true) {
            text.push(Key::MaxRecvDataSegmentLength.name(), &MAX_RECEIVE.to_string());
            self.negotiated.max_receive = MAX_RECEIVE;
        }
        Ok(())
    }

    fn take_declaration(&mut self, key: Key, value: &str, text: &mut Text) -> Result<(), Failure> {
        match key {
            Key::MaxRecvDataSegmentLength => {
                let length = parse_number(value).filter(|length| *length >= u64::from(RECEIVE_MIN)).ok_or(
                    (LoginStatus::InitiatorError, "MaxRecvDataSegmentLength is not a number of at least 512"),
                )?;
                let length = u32::try_from(length).unwrap_or(RECEIVE_MAX);
                self.negotiated.max_transmit = length.min(RECEIVE_MAX);
            }
            // Already read when the initiator identified itself.
            Key::InitiatorName | Key::InitiatorAlias | Key::TargetName | Key::SessionType => {}
            _ => answer_misplaced(key.name(), value, text),
        }
        Ok(())
    }

    fn answer(&self, key: Key, offered: &str) -> Answer {
        let definition = key.definition();
        let session_wide = definition.used == crate::iscsi::keys::Use::LeadingOnly;
        if definition.normal_only && self.kind == SessionKind::Discovery || session_wide && !self.leading {
            return Answer::Irrelevant;
        }
        match self.wish(key) {
            Some(ours) => definition.rule.answer(ours, offered),
            None => Answer::Reject,
        }
    }

    /// The value that the target prefers, or its maximum. `None`: the key is not allowed here.
    fn wish(&self, key: Key) -> Option<Value> {
        Some(match key {
            Key::HeaderDigest | Key::DataDigest => Value::Choices(&["CRC32C", "None"]),
            Key::MaxConnections => Value::Number(MAX_CONNECTIONS),
            Key::InitialR2T => Value::Boolean(false),
            Key::ImmediateData => Value::Boolean(true),
            Key::MaxBurstLength => Value::Number(MAX_BURST),
            Key::FirstBurstLength => Value::Number(FIRST_BURST.min(self.negotiated.max_burst)),
            Key::DefaultTime2Wait => Value::Number(TIME2WAIT),
            Key::DefaultTime2Retain => Value::Number(TIME2RETAIN),
            Key::MaxOutstandingR2T => Value::Number(MAX_OUTSTANDING_R2T),
            // Only higher error recovery levels need sequences and PDUs out of order.
            Key::DataPduInOrder | Key::DataSequenceInOrder => Value::Boolean(true),
            Key::ErrorRecoveryLevel => Value::Number(0),
            Key::ProtocolLevel => Value::Number(PROTOCOL_LEVEL),
            Key::TaskReporting => Value::Choices(&["RFC3720"]),
            // 13.25: "No" is allowed and is what open-iscsi expects.
            Key::OfMarker | Key::IfMarker => Value::Boolean(false),
            _ => return None,
        })
    }
}
