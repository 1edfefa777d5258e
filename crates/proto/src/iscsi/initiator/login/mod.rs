//! The login phase on the initiator's side (RFC 7143 sections 6, 11.12, 12, 13).
//!
//! Without credentials, one request suffices. With credentials, three CHAP requests precede it. The initiator
//! offers all parameters at once, and answers the target's offers in its next request.

#[cfg(test)]
mod tests;

use base::SendBatch;

use crate::iscsi::Negotiated;
use crate::iscsi::chap::{self, Algorithm};
use crate::iscsi::keys::rule;
use crate::iscsi::keys::text::{self, TEXT_MAX};
use crate::iscsi::keys::value::{binary, parse_binary, parse_number};
use crate::iscsi::keys::{Key, Pair, Rule, Text, Value};
use crate::iscsi::target_role::{Credentials, LoginStatus, SessionKind};
use crate::iscsi::wire::{
    Framing, InitiatorTag, LoginRequestPdu, LoginResponsePdu, Opcode, Pdu, Serial, Stage, opcode,
};

/// The most responses in one login: as many as the requests that our own target accepts.
const ROUNDS_MAX: u32 = 32;

/// The tag of all requests of a login.
const TAG: InitiatorTag = InitiatorTag(0);

/// The initiator, and the target that it logs in to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// InitiatorName.
    pub initiator: String,
    /// TargetName; `None` for discovery.
    pub target: Option<String>,
    /// The session's identifier. Using it again means reinstatement.
    pub isid: [u8; 6],
    /// The connection's number.
    pub cid: u16,
}

/// How the two sides authenticate.
#[derive(Clone, Debug)]
pub struct Proof {
    /// The initiator's credentials.
    pub initiator: Credentials,
    /// The credentials that the target must prove; `None`: it need not.
    pub target: Option<Credentials>,
    /// Random bytes for the challenge to the target, never used before.
    pub challenge: [u8; 16],
    /// A random identifier for that challenge.
    pub identifier: u8,
}

/// The parameters that the initiator offers. Digests are CRC32C, if the target supports it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // They are keys of the standard.
pub struct Wish {
    pub header_digest: bool,
    pub data_digest: bool,
    /// The most bytes of data that we accept in one PDU.
    pub max_receive: u32,
    pub initial_r2t: bool,
    pub immediate_data: bool,
    pub max_burst: u32,
    pub first_burst: u32,
    pub max_outstanding_r2t: u16,
}

impl Default for Wish {
    /// The cheapest parameters: no digests, data as early as allowed, long segments.
    fn default() -> Wish {
        Wish {
            header_digest: false,
            data_digest: false,
            max_receive: 1 << 20,
            initial_r2t: false,
            immediate_data: true,
            max_burst: 1 << 20,
            first_burst: 256 << 10,
            max_outstanding_r2t: 4,
        }
    }
}

/// Everything that a login needs.
#[derive(Clone, Debug)]
pub struct LoginOptions {
    /// The initiator, the target and the session.
    pub identity: Identity,
    /// CHAP, if any.
    pub proof: Option<Proof>,
    /// The parameters to offer.
    pub wish: Wish,
}

/// Why a login failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoginError {
    /// The target refused the login.
    #[error("the target refused the login: {}", refusal(*status))]
    Refused {
        /// Status class and detail (RFC 7143 11.13.5).
        status: u16,
    },
    /// The target is at another address.
    #[error("the target has moved to {address}: log in there")]
    Moved {
        /// TargetAddress.
        address: String,
    },
    /// The target does not accept CHAP, or failed to authenticate.
    #[error("authentication failed: {0}")]
    Authentication(&'static str),
    /// The target does not follow the standard.
    #[error("the target violated the login protocol: {0}")]
    Protocol(&'static str),
}

fn refusal(status: u16) -> String {
    match LoginStatus::from_number(status) {
        Some(known) => format!("{known:?} ({status:#06x})"),
        None => format!("unknown status {status:#06x}"),
    }
}

/// What a finished login hands to the connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoginOutcome {
    /// The negotiated parameters. `max_transmit` is what the target accepts, `max_receive` what we accept.
    pub negotiated: Negotiated,
    /// The session's number in the target.
    pub tsih: u16,
    /// The portal group, if the target sent it.
    pub portal_group: Option<u16>,
    /// The next CmdSN to use.
    pub cmd_sn: Serial,
    /// The last CmdSN that may be used.
    pub max_cmd_sn: Serial,
    /// The next expected StatSN.
    pub exp_stat_sn: Serial,
    /// Bytes received after the last login PDU.
    pub leftover: Vec<u8>,
}

/// The login of one connection. Send the output of `poll_transmit` and feed received bytes until there is a
/// `result`.
pub struct Login {
    options: LoginOptions,
    received: Vec<u8>,
    outgoing: SendBatch,
    /// Text of responses with the C bit, until the response without it.
    partial: Vec<u8>,
    stage: Stage,
    step: Step,
    /// The keys that we offered and that the target has not answered yet.
    offered: Vec<(Key, Value)>,
    negotiated: Negotiated,
    portal_group: Option<u16>,
    tsih: u16,
    exp_stat_sn: Serial,
    rounds: u32,
    result: Option<Result<LoginOutcome, LoginError>>,
}

/// What the login waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// AuthMethod.
    Method,
    /// The target's challenge.
    Challenge,
    /// The target's proof, or its permission to leave the stage.
    Proof(Algorithm),
    /// Answers to our offers.
    Parameters,
}

/// The first CmdSN of every session.
const FIRST_CMD_SN: Serial = Serial(1);

impl Login {
    /// A login whose first request is ready to be sent.
    pub fn new(options: LoginOptions) -> Login {
        let mut login = Login {
            received: Vec::new(),
            outgoing: SendBatch::new(),
            partial: Vec::new(),
            stage: Stage::OperationalNegotiation,
            step: Step::Parameters,
            offered: Vec::new(),
            negotiated: Negotiated::default(),
            portal_group: None,
            tsih: 0,
            exp_stat_sn: Serial(0),
            rounds: 0,
            result: None,
            options,
        };
        let mut text = Text::new();
        login.introduce(&mut text);
        if login.options.proof.is_some() {
            login.stage = Stage::SecurityNegotiation;
            login.step = Step::Method;
            text.push(Key::AuthMethod.name(), "CHAP");
            login.request(None, text);
        } else {
            login.offer(&mut text);
            login.request(Some(Stage::FullFeaturePhase), text);
        }
        login
    }

    /// Processes received bytes.
    pub fn handle_bytes(&mut self, bytes: &[u8]) {
        const FRAMING: Framing = Framing::without_digests(TEXT_MAX as u32);
        self.received.extend_from_slice(bytes);
        while self.result.is_none() {
            let received = std::mem::take(&mut self.received);
            let (result, read) = match FRAMING.split(&received) {
                Ok(Some((pdu, read))) => (self.handle_response(pdu), read),
                Ok(None) => (Ok(None), 0),
                Err(_) => (Err(LoginError::Protocol("a login response with too much data")), 0),
            };
            self.received = received;
            self.received.drain(..read);
            match result {
                Ok(Some(mut outcome)) => {
                    outcome.leftover = std::mem::take(&mut self.received);
                    self.result = Some(Ok(outcome));
                }
                Ok(None) if read == 0 => return,
                Ok(None) => {}
                Err(error) => self.result = Some(Err(error)),
            }
        }
    }

    /// The result, once the login has ended.
    pub fn result(&mut self) -> Option<Result<LoginOutcome, LoginError>> {
        self.result.take()
    }

    /// Moves the pending output into `batch`.
    pub fn poll_transmit(&mut self, batch: &mut SendBatch) {
        self.outgoing.iter().for_each(|piece| batch.push(piece));
        self.outgoing.clear();
    }

    fn kind(&self) -> SessionKind {
        match self.options.identity.target {
            Some(_) => SessionKind::Normal,
            None => SessionKind::Discovery,
        }
    }

    fn introduce(&self, text: &mut Text) {
        text.push(Key::InitiatorName.name(), &self.options.identity.initiator);
        match &self.options.identity.target {
            Some(target) => {
                text.push(Key::TargetName.name(), target);
                text.push(Key::SessionType.name(), "Normal");
            }
            None => text.push(Key::SessionType.name(), "Discovery"),
        }
    }

    /// Offers all parameters.
    fn offer(&mut self, text: &mut Text) {
        let discovery = self.kind() == SessionKind::Discovery;
        for key in Key::ALL.into_iter().filter(|key| !(discovery && key.definition().normal_only)) {
            if let Some(value) = self.wish(key) {
                text.push(key.name(), &value.text());
                self.offered.push((key, value));
            }
        }
        text.push(Key::MaxRecvDataSegmentLength.name(), &self.options.wish.max_receive.to_string());
        self.negotiated.max_receive = self.options.wish.max_receive;
    }

    fn wish(&self, key: Key) -> Option<Value> {
        let wish = &self.options.wish;
        let digest = |wanted| Value::Choices(if wanted { &["CRC32C", "None"] } else { &["None"] });
        Some(match key {
            Key::HeaderDigest => digest(wish.header_digest),
            Key::DataDigest => digest(wish.data_digest),
            Key::MaxConnections => Value::Number(1),
            Key::InitialR2T => Value::Boolean(wish.initial_r2t),
            Key::ImmediateData => Value::Boolean(wish.immediate_data),
            Key::MaxBurstLength => Value::Number(wish.max_burst),
            Key::FirstBurstLength => Value::Number(wish.first_burst.min(wish.max_burst)),
            Key::MaxOutstandingR2T => Value::Number(u32::from(wish.max_outstanding_r2t)),
            Key::DataPduInOrder | Key::DataSequenceInOrder => Value::Boolean(true),
            // We can reconnect at once; the target may want more time.
            Key::DefaultTime2Wait | Key::DefaultTime2Retain | Key::ErrorRecoveryLevel => Value::Number(0),
            _ => return None,
        })
    }

    fn request(&mut self, transit: Option<Stage>, text: Text) {
        let identity = &self.options.identity;
        let request = LoginRequestPdu {
            transit,
            more: false,
            stage: self.stage,
            version_max: 0,
            version_min: 0,
            isid: identity.isid,
            tsih: 0,
            initiator_tag: TAG,
            cid: identity.cid,
            cmd_sn: FIRST_CMD_SN,
            exp_stat_sn: self.exp_stat_sn,
        };
        let data = text.into_bytes();
        let data_len = u32::try_from(data.len()).expect("requests are short");
        Framing::without_digests(TEXT_MAX as u32).push(&mut self.outgoing, &request.encode(data_len), &data);
    }

    fn handle_response(&mut self, pdu: Pdu<'_>) -> Result<Option<LoginOutcome>, LoginError> {
        if opcode(pdu.header) != Opcode::LoginResponse as u8 {
            return Err(LoginError::Protocol("not a login response"));
        }
        let response =
            LoginResponsePdu::decode(pdu.header).map_err(|_| LoginError::Protocol("invalid login stages"))?;
        self.rounds += 1;
        if response.initiator_tag != TAG || response.isid != self.options.identity.isid {
            return Err(LoginError::Protocol("a response for another login"));
        }
        if self.partial.len() + pdu.data.len() > TEXT_MAX || self.rounds > ROUNDS_MAX {
            return Err(LoginError::Protocol("a login with too many exchanges"));
        }
        self.partial.extend_from_slice(pdu.data);
        if response.status != 0 {
            return Err(self.refused(response.status));
        }
        self.exp_stat_sn = response.numbers.stat_sn.next();
        if response.stage != self.stage {
            return Err(LoginError::Protocol("not the requested stage"));
        }
        if response.more {
            self.request(None, Text::new());
            return Ok(None);
        }
        let partial = std::mem::take(&mut self.partial);
        let pairs = text::parse(&partial).map_err(|_| LoginError::Protocol("text that is not key=value"))?;
        self.tsih = response.tsih;
        match self.stage {
            Stage::SecurityNegotiation => self.handle_security(&pairs, response.transit).map(|()| None),
            _ => self.handle_parameters(&pairs, &response),
        }
    }

    /// RFC 7143 11.13.5: a redirection contains the new address.
    fn refused(&self, status: u16) -> LoginError {
        let address = text::parse(&self.partial).ok().and_then(|pairs| {
            pairs.iter().find(|pair| pair.key == Key::TargetAddress.name()).map(|pair| pair.value.to_owned())
        });
        match (status >> 8, address) {
            (1, Some(address)) => LoginError::Moved { address },
            _ => LoginError::Refused { status },
        }
    }

    fn handle_security(&mut self, pairs: &[Pair<'_>], transit: Option<Stage>) -> Result<(), LoginError> {
        let value = |key: &str| pairs.iter().find(|pair| pair.key == key).map(|pair| pair.value);
        self.take_portal_group(value(Key::TargetPortalGroupTag.name()));
        let mut text = Text::new();
        match self.step {
            Step::Method => {
                if value(Key::AuthMethod.name()) != Some("CHAP") {
                    return Err(LoginError::Authentication("the target does not accept CHAP"));
                }
                text.push(chap::ALGORITHM, Algorithm::OFFERED);
                self.step = Step::Challenge;
                self.request(None, text);
            }
            Step::Challenge => {
                let algorithm = self.respond_to_challenge(&value, &mut text)?;
                self.step = Step::Proof(algorithm);
                self.request(Some(Stage::OperationalNegotiation), text);
            }
            Step::Proof(algorithm) => {
                if transit != Some(Stage::OperationalNegotiation) {
                    return Err(LoginError::Protocol("the target stays in the security stage"));
                }
                self.check_proof(algorithm, &value)?;
                self.stage = Stage::OperationalNegotiation;
                self.step = Step::Parameters;
                self.offer(&mut text);
                self.request(Some(Stage::FullFeaturePhase), text);
            }
            Step::Parameters => return Err(LoginError::Protocol("security after the security stage")),
        }
        Ok(())
    }

    fn respond_to_challenge<'a>(
        &self,
        value: &impl Fn(&str) -> Option<&'a str>,
        text: &mut Text,
    ) -> Result<Algorithm, LoginError> {
        let proof = self.proof()?;
        let algorithm = value(chap::ALGORITHM)
            .and_then(Algorithm::choose)
            .ok_or(LoginError::Authentication("no CHAP algorithm in common"))?;
        let identifier = value(chap::IDENTIFIER)
            .and_then(parse_number)
            .and_then(|identifier| u8::try_from(identifier).ok())
            .ok_or(LoginError::Authentication("a challenge without CHAP_I"))?;
        let challenge = value(chap::CHALLENGE)
            .and_then(|challenge| parse_binary(challenge, chap::BINARY_MAX))
            .ok_or(LoginError::Authentication("a challenge without CHAP_C"))?;
        text.push(chap::NAME, &proof.initiator.name);
        let response = algorithm.response(identifier, &proof.initiator.secret, &challenge);
        text.push(chap::RESPONSE, &binary(&response));
        if proof.target.is_some() {
            text.push(chap::IDENTIFIER, &proof.identifier.to_string());
            text.push(chap::CHALLENGE, &binary(&proof.challenge));
        }
        Ok(algorithm)
    }

    fn check_proof<'a>(
        &self,
        algorithm: Algorithm,
        value: &impl Fn(&str) -> Option<&'a str>,
    ) -> Result<(), LoginError> {
        let proof = self.proof()?;
        let Some(target) = &proof.target else { return Ok(()) };
        let expected = algorithm.response(proof.identifier, &target.secret, &proof.challenge);
        let response = value(chap::RESPONSE)
            .and_then(|response| parse_binary(response, chap::BINARY_MAX))
            .ok_or(LoginError::Authentication("the target did not authenticate itself"))?;
        if value(chap::NAME) != Some(&target.name) || !chap::is_same(&expected, &response) {
            return Err(LoginError::Authentication("wrong CHAP name or secret of the target"));
        }
        Ok(())
    }

    fn proof(&self) -> Result<&Proof, LoginError> {
        self.options.proof.as_ref().ok_or(LoginError::Protocol("unexpected CHAP keys"))
    }

    fn take_portal_group(&mut self, value: Option<&str>) {
        if let Some(tag) = value.and_then(parse_number) {
            self.portal_group = u16::try_from(tag).ok();
        }
    }

    fn handle_parameters(
        &mut self,
        pairs: &[Pair<'_>],
        response: &LoginResponsePdu,
    ) -> Result<Option<LoginOutcome>, LoginError> {
        let mut text = Text::new();
        for pair in pairs {
            self.handle_pair(pair, &mut text)?;
        }
        if response.transit == Some(Stage::FullFeaturePhase) {
            if text != Text::new() {
                return Err(LoginError::Protocol("an offer that can no longer be answered"));
            }
            let mut negotiated = self.negotiated.clone();
            negotiated.first_burst = negotiated.first_burst.min(negotiated.max_burst);
            return Ok(Some(LoginOutcome {
                negotiated,
                tsih: self.tsih,
                portal_group: self.portal_group,
                cmd_sn: FIRST_CMD_SN,
                max_cmd_sn: response.numbers.max_cmd_sn,
                exp_stat_sn: self.exp_stat_sn,
                leftover: Vec::new(),
            }));
        }
        self.request(Some(Stage::FullFeaturePhase), text);
        Ok(None)
    }

    fn handle_pair(&mut self, pair: &Pair<'_>, text: &mut Text) -> Result<(), LoginError> {
        let Some(key) = Key::from_name(pair.key) else {
            if !rule::is_answer_only(pair.value) {
                text.push(pair.key, rule::NOT_UNDERSTOOD);
            }
            return Ok(());
        };
        let rule = key.definition().rule;
        match (self.offered.iter().position(|(offered, _)| *offered == key), key) {
            (Some(at), _) => {
                let (_, offered) = self.offered.swap_remove(at);
                let result = rule
                    .settle(offered, pair.value)
                    .map_err(|_| LoginError::Protocol("an answer that does not follow from the offer"))?;
                if let Some(result) = result {
                    self.settle(key, result);
                }
            }
            (None, Key::MaxRecvDataSegmentLength) => {
                let length = parse_number(pair.value).filter(|length| *length >= 512);
                let length = length.ok_or(LoginError::Protocol("a MaxRecvDataSegmentLength below 512"))?;
                self.negotiated.max_transmit = u32::try_from(length).unwrap_or(u32::MAX).min((1 << 24) - 1);
            }
            (None, Key::TargetPortalGroupTag) => self.take_portal_group(Some(pair.value)),
            (None, _) if rule == Rule::Declared || rule::is_answer_only(pair.value) => {}
            (None, _) => {
                let answer = match self.wish(key) {
                    Some(wish) => rule.answer(wish, pair.value),
                    None => rule::Answer::Reject,
                };
                text.push(key.name(), &answer.text());
                if let rule::Answer::Result(result) = answer {
                    self.settle(key, result);
                }
            }
        }
        Ok(())
    }

    fn settle(&mut self, key: Key, result: Value) {
        self.negotiated.settle(key, result);
    }
}
