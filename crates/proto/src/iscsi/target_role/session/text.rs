//! Text requests: SendTargets, and the initiator's MaxRecvDataSegmentLength (RFC 7143 11.10, 11.11, 4.3,
//! appendix C).

use super::task::TaskKey;
use super::transmit::Output;
use super::{CommandId, ConnectionId, Event, Session, TargetRecord};
use crate::iscsi::keys::text::{Pair, TEXT_MAX, parse};
use crate::iscsi::wire::{HEADER_LEN, InitiatorTag, RejectReason, TargetTag, TextRequest};

/// The target transfer tag of all text exchanges. A connection has one exchange at a time, and R2Ts never use
/// the top bit.
const TEXT_TAG: TargetTag = TargetTag(0x8000_0000);

/// Keys of RFC 7143 sections 12 and 13 that are negotiated only in the login phase.
const LOGIN_ONLY: [&str; 20] = [
    "AuthMethod",
    "DataDigest",
    "DataPDUInOrder",
    "DataSequenceInOrder",
    "DefaultTime2Retain",
    "DefaultTime2Wait",
    "ErrorRecoveryLevel",
    "FirstBurstLength",
    "HeaderDigest",
    "IFMarker",
    "ImmediateData",
    "InitialR2T",
    "InitiatorName",
    "MaxBurstLength",
    "MaxConnections",
    "MaxOutstandingR2T",
    "OFMarker",
    "SessionType",
    "TargetName",
    "TaskReporting",
];

/// A text exchange of one connection. A new one ends the previous one.
#[derive(Debug)]
pub(super) struct TextExchange {
    tag: InitiatorTag,
    state: TextState,
}

/// The states of a text exchange.
#[derive(Debug)]
enum TextState {
    /// The request is not complete.
    Asking(Vec<u8>),
    /// The driver lists targets; the answers to other keys wait.
    Listing(TaskKey, Vec<u8>),
    /// The rest of a response that does not fit into one PDU.
    Answering(Vec<u8>),
}

impl Session {
    pub(super) fn carry_out_text(&mut self, id: ConnectionId, request: TextRequest, data: Vec<u8>) {
        let Some(at) = self.open_connection(id) else { return };
        let exchange = self.connections[at]
            .text
            .take()
            .filter(|exchange| request.target_tag == TEXT_TAG && exchange.tag == request.initiator_tag);
        let mut text = match exchange.map(|exchange| exchange.state) {
            Some(TextState::Answering(rest)) => return self.send_text(at, request.initiator_tag, rest),
            Some(TextState::Asking(text)) => text,
            Some(TextState::Listing(..)) => {
                return self.refuse_text(at, &request, RejectReason::ProtocolError);
            }
            None if request.target_tag != TargetTag::RESERVED => {
                return self.refuse_text(at, &request, RejectReason::ProtocolError);
            }
            None => Vec::new(),
        };
        if text.len() + data.len() > TEXT_MAX {
            return self.refuse_text(at, &request, RejectReason::OutOfResources);
        }
        text.extend_from_slice(&data);
        if request.more {
            let state = TextState::Asking(text);
            self.connections[at].text = Some(TextExchange { tag: request.initiator_tag, state });
            self.connections[at].queue(Output::Text {
                tag: request.initiator_tag,
                target_tag: TEXT_TAG,
                is_final: false,
                more: false,
                data: Vec::new(),
            });
            return;
        }
        match self.read_keys(at, &text) {
            Err(reason) => self.refuse_text(at, &request, reason),
            Ok((None, answers)) => self.send_text(at, request.initiator_tag, answers),
            Ok((Some(target), answers)) => {
                let key = TaskKey { slot: 0, generation: self.tasks.next_generation() };
                let state = TextState::Listing(key, answers);
                self.connections[at].text = Some(TextExchange { tag: request.initiator_tag, state });
                self.events.push_back(Event::SendTargets { id: CommandId::from(key), target });
            }
        }
    }

    /// Returns what SendTargets asks for (nothing, all, or one target), and the answers to other keys.
    #[allow(clippy::type_complexity)]
    fn read_keys(
        &mut self,
        at: usize,
        text: &[u8],
    ) -> Result<(Option<Option<String>>, Vec<u8>), RejectReason> {
        let mut answers = Vec::new();
        let mut answer = |key: &str, value: &str| {
            answers.extend_from_slice(format!("{key}={value}\0").as_bytes());
        };
        let mut asked = None;
        for Pair { key, value } in parse(text).map_err(|_| RejectReason::ProtocolError)? {
            match key {
                // Appendix C: All is for discovery sessions, the empty value (this session's target) for
                // normal ones.
                "SendTargets" => match (value, self.discovery) {
                    ("All", true) | ("", false) => asked = Some(None),
                    ("All", false) | ("", true) => answer(key, "Reject"),
                    (name, _) => asked = Some(Some(name.to_owned())),
                },
                // 13.12: it may be declared again at any time; declarations have no answer.
                "MaxRecvDataSegmentLength" => match parse_number(value) {
                    Some(length @ 512..=0xff_ffff) => self.connections[at].negotiated.max_transmit = length,
                    _ => answer(key, "Reject"),
                },
                "InitiatorAlias" => {}
                _ if LOGIN_ONLY.contains(&key) => answer(key, "Reject"),
                _ => answer(key, "NotUnderstood"),
            }
        }
        Ok((asked, answers))
    }

    /// Takes the driver's answer.
    pub(super) fn answer_send_targets(&mut self, id: TaskKey, targets: &[TargetRecord]) {
        let found = self.connections.iter_mut().enumerate().find_map(|(at, connection)| {
            match connection.text.as_mut()? {
                TextExchange { tag, state: TextState::Listing(key, answers) } if *key == id => {
                    Some((at, *tag, std::mem::take(answers)))
                }
                _ => None,
            }
        });
        let Some((at, tag, mut text)) = found else { return };
        for target in targets {
            text.extend_from_slice(format!("TargetName={}\0", target.name).as_bytes());
            for address in &target.addresses {
                text.extend_from_slice(format!("TargetAddress={address}\0").as_bytes());
            }
        }
        self.send_text(at, tag, text);
    }

    /// Sends as much as fits into one PDU; the initiator asks for the rest.
    fn send_text(&mut self, at: usize, tag: InitiatorTag, mut text: Vec<u8>) {
        let connection = &mut self.connections[at];
        let fits = (connection.negotiated.max_transmit as usize).min(text.len());
        let rest = text.split_off(fits);
        let is_final = rest.is_empty();
        connection.text = (!is_final).then_some(TextExchange { tag, state: TextState::Answering(rest) });
        connection.queue(Output::Text {
            tag,
            target_tag: if is_final { TargetTag::RESERVED } else { TEXT_TAG },
            is_final,
            more: !is_final,
            data: text,
        });
    }

    fn refuse_text(&mut self, at: usize, request: &TextRequest, reason: RejectReason) {
        let header: [u8; HEADER_LEN] = request.encode(0);
        self.reject(at, reason, &header);
    }
}

/// A decimal or hexadecimal constant (6.1).
fn parse_number(value: &str) -> Option<u32> {
    match value.strip_prefix("0x").or_else(|| value.strip_prefix("0X")) {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => value.parse().ok(),
    }
}
