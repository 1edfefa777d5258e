//! The login phase of one connection: security and operational negotiation (RFC 7143 sections 6, 11.12,
//! 11.13, 12, 13).

mod operational;
mod security;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use base::{Instant, SendBatch};

use crate::iscsi::Negotiated;
use crate::iscsi::keys::rule;
use crate::iscsi::keys::text::{self, TEXT_MAX};
use crate::iscsi::keys::{Key, Rule, Text};
use crate::iscsi::name::IscsiName;
use crate::iscsi::wire::{
    Framing, HEADER_LEN, InitiatorTag, LoginRequestPdu, LoginResponsePdu, Opcode, Pdu, Serial, SerialNumbers,
    Stage,
};
use operational::Operational;
use security::Security;

/// What the initiator logs in for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionKind {
    /// SendTargets only.
    Discovery,
    /// SCSI commands.
    Normal,
}

/// The initiator has identified itself; the node must decide whether it may log in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoginRequest {
    /// InitiatorName.
    pub initiator: String,
    /// InitiatorAlias, if given.
    pub alias: Option<String>,
    /// TargetName; `None` for discovery.
    pub target: Option<String>,
    /// Discovery or normal.
    pub kind: SessionKind,
    /// The initiator's session identifier.
    pub isid: [u8; 6],
    /// The session to join (MC/S), or zero for a new one.
    pub tsih: u16,
    /// The connection's number in the session.
    pub cid: u16,
}

/// A name and a secret. `Debug` does not print the secret.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// CHAP_N.
    pub name: String,
    /// The CHAP secret.
    pub secret: Vec<u8>,
}

base::shows!(Debug for Credentials, |it| "Credentials({}, secret not shown)", it.name);

/// How the initiator must authenticate.
#[derive(Clone, Debug)]
pub struct Chap {
    /// The initiator may use any of these.
    pub initiator: Vec<Credentials>,
    /// What the target authenticates with if the initiator asks for it (mutual CHAP).
    pub target: Option<Credentials>,
    /// The challenge, from [`chap::challenge`](crate::iscsi::chap::challenge), made of random bytes that were
    /// never used before.
    pub challenge: Vec<u8>,
    /// A random identifier for the challenge.
    pub identifier: u8,
}

/// The node's decision.
#[derive(Clone, Debug)]
pub enum Authorization {
    /// The initiator may log in, after CHAP if `chap` is given.
    Allow {
        /// CHAP is required if given. Otherwise the target accepts AuthMethod=None only.
        chap: Option<Chap>,
        /// The portal group tag to report.
        portal_group: u16,
        /// TargetAlias to report.
        alias: Option<String>,
    },
    /// The initiator may not log in.
    Deny(LoginStatus),
}

base::numbered! {
    /// Login status class and detail (RFC 7143 11.13.5).
    #[allow(missing_docs)]
    pub enum LoginStatus: u16 {
        Success = 0x0000,
        TargetMovedTemporarily = 0x0101,
        TargetMovedPermanently = 0x0102,
        InitiatorError = 0x0200,
        AuthenticationFailure = 0x0201,
        AuthorizationFailure = 0x0202,
        NotFound = 0x0203,
        TargetRemoved = 0x0204,
        UnsupportedVersion = 0x0205,
        TooManyConnections = 0x0206,
        MissingParameter = 0x0207,
        CannotIncludeInSession = 0x0208,
        SessionTypeNotSupported = 0x0209,
        SessionDoesNotExist = 0x020a,
        InvalidDuringLogin = 0x020b,
        TargetError = 0x0300,
        ServiceUnavailable = 0x0301,
        OutOfResources = 0x0302,
    }
}

/// What the driver must do.
#[derive(Debug)]
pub enum LoginEvent {
    /// Decide whether the initiator may log in, and call [`Login::authorize`].
    Authorize(LoginRequest),
    /// The parameters are negotiated. Choose the session (create one, with a TSIH, if `tsih` was zero), call
    /// [`Login::accept`] with its TSIH, send the output of [`Login::poll_transmit`], then hand the connection
    /// to the session.
    Finish,
    /// The login failed: send the remaining output, then close the connection. The reason is for the log.
    Failed(LoginStatus, &'static str),
}

/// What a finished login hands to the session.
#[derive(Debug)]
pub struct LoginOutcome {
    /// The login request: initiator, target, kind of session.
    pub request: LoginRequest,
    /// The negotiated parameters of session and connection.
    pub negotiated: Negotiated,
    /// The next StatSN of this connection.
    pub stat_sn: u32,
    /// The next CmdSN that the initiator will use.
    pub exp_cmd_sn: u32,
    /// Bytes received after the last login PDU.
    pub leftover: Vec<u8>,
}

/// The most requests in one login. CHAP takes three, negotiation one or two, and a text of [`TEXT_MAX`] bytes
/// in pieces of 512 takes 16 more.
const ROUNDS_MAX: u32 = 32;

/// The most text in one login, in bytes over all of its exchanges. The login keeps it to detect repeated
/// keys.
const TEXT_TOTAL_MAX: usize = 2 * TEXT_MAX;

/// The most bytes that may wait to be read. An initiator sends the next PDU only after our response, so at
/// most one request of [`TEXT_MAX`] bytes waits; the rest is slack for an initiator that does not wait for
/// the final response.
const RECEIVED_MAX: usize = 64 << 10;

/// The only version of iSCSI (RFC 7143 11.12.4).
const VERSION: u8 = 0;

/// Why a login fails: the status for the initiator, and the reason for the log.
type Failure = (LoginStatus, &'static str);

/// The key=value pairs of one exchange, in order.
type Pairs = Vec<(String, String)>;

/// The login of one connection. Feed bytes with `handle_bytes`, then take events and output until there are
/// none.
pub struct Login {
    deadline: Instant,
    /// Bytes that have not been read yet.
    received: Vec<u8>,
    /// Responses that the driver has not taken yet.
    outgoing: SendBatch,
    event: Option<LoginEvent>,
    phase: Phase,
    /// CSG of the next request.
    stage: Stage,
    /// The first request: all later ones must repeat its ISID, TSIH, CID and tag.
    leading: Option<LoginRequestPdu>,
    /// The header of the last login request, valid or not: a failure is sent as the response to it.
    last_header: Option<[u8; HEADER_LEN]>,
    rounds: u32,
    /// Data of requests with the C bit, until the request without it.
    partial: Vec<u8>,
    text_total: usize,
    /// All keys received so far, to refuse repetitions.
    seen: BTreeMap<String, String>,
    /// The StatSN of the next response.
    stat_sn: Serial,
    /// Set when the initiator has identified itself.
    request: Option<LoginRequest>,
    /// What the first response after the authorization must declare; taken when it is sent.
    introduction: Option<Introduction>,
    security: Security,
    operational: Operational,
}

/// The phase of a login. Only `Login` changes it.
enum Phase {
    /// The login waits for the next request.
    Receiving,
    /// The initiator has identified itself. Its request is answered when the node has decided.
    Authorizing(LoginRequestPdu, Pairs),
    /// Everything is negotiated. This request is answered when the node has chosen the session's TSIH.
    Finishing(LoginRequestPdu, Text),
    /// The session has the connection, or the login failed. Nothing more is read.
    Over,
}

/// What a target declares about itself (RFC 7143 13.7, 13.9).
struct Introduction {
    portal_group: u16,
    alias: Option<String>,
}

impl Login {
    /// A login that must end before `deadline`.
    pub fn new(deadline: Instant) -> Login {
        Login {
            deadline,
            received: Vec::new(),
            outgoing: SendBatch::new(),
            event: None,
            phase: Phase::Receiving,
            stage: Stage::SecurityNegotiation,
            leading: None,
            last_header: None,
            rounds: 0,
            partial: Vec::new(),
            text_total: 0,
            seen: BTreeMap::new(),
            stat_sn: Serial(0),
            request: None,
            introduction: None,
            security: Security::default(),
            operational: Operational::default(),
        }
    }

    /// Processes bytes that arrived. Answer a pending event before feeding more: until then bytes only
    /// accumulate.
    pub fn handle_bytes(&mut self, bytes: &[u8]) {
        match self.phase {
            Phase::Over => return,
            Phase::Receiving if self.received.len() + bytes.len() > RECEIVED_MAX => {
                return self.fail((LoginStatus::InitiatorError, "too much data for a login"));
            }
            _ => {}
        }
        self.received.extend_from_slice(bytes);
        self.read_requests();
    }

    /// The next thing for the driver to do.
    pub fn poll_event(&mut self) -> Option<LoginEvent> {
        self.event.take()
    }

    /// The credentials with which the initiator has authenticated: one of those in [`Authorization::Allow`].
    pub fn proven(&self) -> Option<&Credentials> {
        self.security.proven()
    }

    /// Answers [`LoginEvent::Authorize`]. Ignored at any other time.
    pub fn authorize(&mut self, authorization: Authorization) {
        if !matches!(self.phase, Phase::Authorizing(..)) {
            return;
        }
        let Phase::Authorizing(pdu, pairs) = std::mem::replace(&mut self.phase, Phase::Receiving) else {
            unreachable!("just seen")
        };
        match authorization {
            Authorization::Allow { chap, portal_group, alias } => {
                self.security = Security::new(chap);
                self.introduction = Some(Introduction { portal_group, alias });
                self.answer(pdu, pairs);
                self.read_requests();
            }
            Authorization::Deny(status) => self.fail((status, "the node does not admit this initiator")),
        }
    }

    /// Answers [`LoginEvent::Finish`]: the final response carries this TSIH.
    ///
    /// # Panics
    /// If the login is not finished.
    pub fn accept(&mut self, tsih: u16) -> LoginOutcome {
        let Phase::Finishing(pdu, text) = std::mem::replace(&mut self.phase, Phase::Over) else {
            panic!("accept answers LoginEvent::Finish");
        };
        self.respond(&pdu, pdu.transit, tsih, text);
        LoginOutcome {
            request: self.request.take().expect("a login finishes after it was authorized"),
            negotiated: self.operational.settled(),
            stat_sn: self.stat_sn.0,
            exp_cmd_sn: pdu.cmd_sn.0,
            leftover: std::mem::take(&mut self.received),
        }
    }

    /// Answers [`LoginEvent::Finish`]: the session refuses this connection.
    pub fn refuse(&mut self, status: LoginStatus) {
        if !matches!(self.phase, Phase::Over) {
            self.fail((status, "the session does not accept this connection"));
            // The driver knows already; it needs no event.
            self.event = None;
        }
    }

    /// Moves the pending output into `batch`.
    pub fn poll_transmit(&mut self, batch: &mut SendBatch) {
        self.outgoing.iter().for_each(|piece| batch.push(piece));
        self.outgoing.clear();
    }

    /// When the login must have ended: the driver closes the connection then.
    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Reads requests while there are complete ones and no decision of the node is pending.
    fn read_requests(&mut self) {
        const FRAMING: Framing = Framing::without_digests(TEXT_MAX as u32);
        while matches!(self.phase, Phase::Receiving) {
            // Check the opcode before the rest has arrived: in a PDU that is no login request the lengths
            // mean nothing.
            if self.received.first().is_some_and(|first| first & 0x3f != Opcode::LoginRequest as u8) {
                return self.fail((LoginStatus::InvalidDuringLogin, "not a login request"));
            }
            let received = std::mem::take(&mut self.received);
            let (result, read) = match FRAMING.split(&received) {
                Ok(Some((pdu, read))) => (self.handle_request(pdu), read),
                Ok(None) => (Ok(()), 0),
                Err(_) => (Err((LoginStatus::InitiatorError, "a login request with too much data")), 0),
            };
            self.received = received;
            self.received.drain(..read);
            match result {
                Err(failure) => return self.fail(failure),
                Ok(()) if read == 0 => return,
                Ok(()) => {}
            }
        }
    }

    fn handle_request(&mut self, pdu: Pdu<'_>) -> Result<(), Failure> {
        let (request, data) = self.check_request(pdu)?;
        self.text_total += data.len();
        if self.partial.len() + data.len() > TEXT_MAX || self.text_total > TEXT_TOTAL_MAX {
            return Err((LoginStatus::InitiatorError, "too many keys for a login"));
        }
        self.partial.extend_from_slice(data);
        if request.more {
            // RFC 7143 11.13.2: an empty response asks for the rest.
            self.respond(&request, None, 0, Text::new());
            return Ok(());
        }
        let partial = std::mem::take(&mut self.partial);
        let pairs = self.read_pairs(&partial)?;
        if self.request.is_none() {
            let identity = identify(&request, &pairs)?;
            self.operational = Operational::new(identity.kind, identity.tsih == 0);
            self.request = Some(identity.clone());
            self.phase = Phase::Authorizing(request, pairs);
            self.event = Some(LoginEvent::Authorize(identity));
        } else {
            self.answer(request, pairs);
        }
        Ok(())
    }

    /// Checks the header of a request (RFC 7143 11.12).
    fn check_request<'a>(&mut self, pdu: Pdu<'a>) -> Result<(LoginRequestPdu, &'a [u8]), Failure> {
        self.rounds += 1;
        self.last_header = Some(*pdu.header);
        if self.leading.is_none() && pdu.header[3] > VERSION {
            return Err((LoginStatus::UnsupportedVersion, "an unsupported iSCSI version"));
        }
        let request = LoginRequestPdu::decode(pdu.header)
            .map_err(|_| (LoginStatus::InitiatorError, "invalid login stages"))?;
        if self.rounds > ROUNDS_MAX {
            return Err((LoginStatus::InitiatorError, "a login with too many exchanges"));
        }
        if !pdu.ahs.is_empty() {
            return Err((LoginStatus::InitiatorError, "additional headers in login"));
        }
        match &self.leading {
            None => {
                self.stage = request.stage;
                self.stat_sn = request.exp_stat_sn;
                self.leading = Some(request);
            }
            Some(leading) => {
                let same = |request: &LoginRequestPdu| {
                    (request.isid, request.tsih, request.cid, request.initiator_tag)
                };
                if same(leading) != same(&request) {
                    return Err((LoginStatus::InitiatorError, "ISID, TSIH, CID or tag changed during login"));
                }
                if request.stage != self.stage {
                    return Err((LoginStatus::InitiatorError, "not the agreed stage"));
                }
            }
        }
        Ok((request, pdu.data))
    }

    /// The pairs of a complete text. RFC 7143 6.3: a key must not be repeated. Declarations may be, with the
    /// same value: libiscsi sends them in both stages.
    fn read_pairs(&mut self, text: &[u8]) -> Result<Pairs, Failure> {
        let parsed =
            text::parse(text).map_err(|_| (LoginStatus::InitiatorError, "text that is not key=value"))?;
        let mut pairs = Vec::with_capacity(parsed.len());
        for pair in parsed {
            match self.seen.get(pair.key) {
                None => {
                    self.seen.insert(pair.key.to_owned(), pair.value.to_owned());
                    pairs.push((pair.key.to_owned(), pair.value.to_owned()));
                }
                Some(before) if before == pair.value && is_declaration(pair.key) => {}
                Some(_) => return Err((LoginStatus::InitiatorError, "a repeated key")),
            }
        }
        Ok(pairs)
    }

    /// Answers a complete exchange of an initiator that the node has authorized.
    fn answer(&mut self, request: LoginRequestPdu, pairs: Pairs) {
        if let Err(failure) = self.try_answer(request, pairs) {
            self.fail(failure);
        }
    }

    fn try_answer(&mut self, request: LoginRequestPdu, pairs: Pairs) -> Result<(), Failure> {
        let mut text = Text::new();
        self.introduce(&mut text);
        match self.stage {
            Stage::SecurityNegotiation => self.security.handle(pairs, &mut text)?,
            _ => {
                self.security.skip()?;
                self.operational.handle(pairs, &mut text)?;
            }
        }
        let transit = match (self.stage, request.transit) {
            (Stage::SecurityNegotiation, Some(next)) => self.security.may_leave()?.then_some(next),
            (_, next) => next,
        };
        match transit {
            Some(Stage::FullFeaturePhase) => {
                self.phase = Phase::Finishing(request, text);
                self.event = Some(LoginEvent::Finish);
            }
            Some(next) => {
                self.respond(&request, Some(next), 0, text);
                self.stage = next;
            }
            None => self.respond(&request, None, 0, text),
        }
        Ok(())
    }

    /// RFC 7143 13.9: the first response of a normal session carries the portal group tag.
    fn introduce(&mut self, text: &mut Text) {
        let normal = self.request.as_ref().is_some_and(|request| request.kind == SessionKind::Normal);
        let Some(introduction) = self.introduction.take() else { return };
        if normal {
            if let Some(alias) = &introduction.alias {
                text.push(Key::TargetAlias.name(), alias);
            }
            text.push(Key::TargetPortalGroupTag.name(), &introduction.portal_group.to_string());
        }
    }

    fn respond(&mut self, request: &LoginRequestPdu, transit: Option<Stage>, tsih: u16, text: Text) {
        let response = LoginResponsePdu {
            transit,
            more: false,
            stage: request.stage,
            version_max: VERSION,
            version_active: VERSION,
            isid: request.isid,
            tsih: if tsih == 0 { request.tsih } else { tsih },
            initiator_tag: request.initiator_tag,
            // Login requests are immediate, so CmdSN does not advance. The session opens the window.
            numbers: SerialNumbers {
                stat_sn: self.stat_sn,
                exp_cmd_sn: request.cmd_sn,
                max_cmd_sn: request.cmd_sn,
            },
            status: LoginStatus::Success as u16,
        };
        self.stat_sn = self.stat_sn.next();
        self.push(response, &text.into_bytes());
    }

    fn push(&mut self, response: LoginResponsePdu, data: &[u8]) {
        // PAIRS_MAX ensures that the answers fit; what we add ourselves is short.
        let data_len = u32::try_from(data.len()).expect("answers are short");
        Framing::without_digests(TEXT_MAX as u32).push(&mut self.outgoing, &response.encode(data_len), data);
    }

    /// Ends the login, and sends the failure to the initiator if it has sent at least one login request.
    fn fail(&mut self, (status, reason): Failure) {
        if let Some(header) = self.last_header {
            // RFC 7143 11.13: the ISID, TSIH and tag of the request, and no sequence numbers.
            let mut response = LoginResponsePdu {
                transit: None,
                more: false,
                stage: self.stage,
                version_max: VERSION,
                version_active: VERSION,
                isid: [0; 6],
                tsih: 0,
                initiator_tag: InitiatorTag::RESERVED,
                numbers: SerialNumbers::default(),
                status: status as u16,
            }
            .encode(0);
            response[8..20].copy_from_slice(&header[8..20]);
            Framing::without_digests(0).push(&mut self.outgoing, &response, &[]);
        }
        self.phase = Phase::Over;
        self.received = Vec::new();
        self.event = Some(LoginEvent::Failed(status, reason));
    }
}

/// Whether a key is a declaration; all other keys are negotiated.
fn is_declaration(name: &str) -> bool {
    Key::from_name(name).is_some_and(|key| key.definition().rule == Rule::Declared)
}

/// Reads from the first exchange who wants to log in to what (RFC 7143 6.3, 13.4, 13.5, 13.21).
fn identify(request: &LoginRequestPdu, pairs: &[(String, String)]) -> Result<LoginRequest, Failure> {
    let value = |key: Key| pairs.iter().find(|(name, _)| name == key.name()).map(|(_, value)| value.as_str());
    let initiator = value(Key::InitiatorName)
        .ok_or((LoginStatus::MissingParameter, "no InitiatorName in the first request"))?;
    let initiator = IscsiName::parse(initiator)
        .map_err(|_| (LoginStatus::InitiatorError, "InitiatorName is not an iSCSI name"))?;
    let kind = match value(Key::SessionType) {
        None | Some("Normal") => SessionKind::Normal,
        Some("Discovery") => SessionKind::Discovery,
        Some(_) => return Err((LoginStatus::SessionTypeNotSupported, "an unknown SessionType")),
    };
    let target = match (kind, value(Key::TargetName)) {
        (SessionKind::Discovery, _) => None,
        (SessionKind::Normal, Some(name)) => Some(
            IscsiName::parse(name)
                .map_err(|_| (LoginStatus::NotFound, "TargetName is not an iSCSI name"))?
                .into_string(),
        ),
        (SessionKind::Normal, None) => {
            return Err((LoginStatus::MissingParameter, "no TargetName in the first request"));
        }
    };
    if kind == SessionKind::Discovery && request.tsih != 0 {
        // 13.2: a discovery session has one connection.
        return Err((LoginStatus::CannotIncludeInSession, "a second connection for a discovery session"));
    }
    Ok(LoginRequest {
        initiator: initiator.into_string(),
        alias: value(Key::InitiatorAlias).map(str::to_owned),
        target,
        kind,
        isid: request.isid,
        tsih: request.tsih,
        cid: request.cid,
    })
}

/// Answers a key that is not allowed or not known at this point.
fn answer_misplaced(name: &str, value: &str, text: &mut Text) {
    match Key::from_name(name) {
        _ if rule::is_answer_only(value) => {}
        None => text.push(name, rule::NOT_UNDERSTOOD),
        Some(_) => text.push(name, rule::REJECT),
    }
}
