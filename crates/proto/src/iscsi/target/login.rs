//! The login phase of one connection: security and operational negotiation (RFC 7143 sections 6, 11.12, 11.13, 12, 13).

use base::{Instant, SendBatch};

use super::Negotiated;

/// What a login asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionKind {
    /// SendTargets only.
    Discovery,
    /// SCSI.
    Normal,
}

/// An initiator has said who it is; the node decides.
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

/// A name and a secret. `Debug` prints no secret.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// CHAP_N.
    pub name: String,
    /// The CHAP secret.
    pub secret: Vec<u8>,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Credentials({}, secret not shown)", self.name)
    }
}

/// How the initiator must prove itself.
#[derive(Clone, Debug)]
pub struct Chap {
    /// Any one of these is accepted.
    pub initiator: Vec<Credentials>,
    /// What the target proves itself with when the initiator asks for it (mutual CHAP).
    pub target: Option<Credentials>,
    /// Random bytes for the challenge, never used before. Sixteen at least.
    pub challenge: [u8; 16],
    /// A random identifier for the challenge.
    pub identifier: u8,
}

/// The node's decision.
#[derive(Clone, Debug)]
pub enum Authorization {
    /// It may log in, after CHAP if given.
    Allow {
        /// Required if given; refused (AuthMethod=None only) otherwise.
        chap: Option<Chap>,
        /// The portal group tag to report.
        portal_group: u16,
        /// TargetAlias to report.
        alias: Option<String>,
    },
    /// It may not.
    Deny(LoginStatus),
}

/// Login status class and detail (RFC 7143 11.13.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
#[allow(missing_docs)]
pub enum LoginStatus {
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

/// What the driver must see to.
#[derive(Debug)]
pub enum LoginEvent {
    /// Decide, and call [`Login::authorize`].
    Authorize(LoginRequest),
    /// The parameters are settled. Choose the session (make one and a TSIH if `tsih` was zero), call
    /// [`Login::accept`] with its TSIH, send what [`Login::poll_transmit`] gives, then hand the connection to the session.
    Finish,
    /// It failed: send what is to be sent, then close. The reason is for the log.
    Failed(LoginStatus, &'static str),
}

/// What a finished login hands to the session.
#[derive(Debug)]
pub struct LoginOutcome {
    /// Who, what and how.
    pub request: LoginRequest,
    /// The settled parameters of session and connection.
    pub negotiated: Negotiated,
    /// The next StatSN of this connection.
    pub stat_sn: u32,
    /// The next CmdSN that the initiator will use.
    pub exp_cmd_sn: u32,
    /// Bytes behind the last login PDU.
    pub leftover: Vec<u8>,
}

/// One connection's login. Feed bytes with `handle_bytes`, then take events and output until there are none.
pub struct Login {}

impl Login {
    /// A login that must be over by `deadline`.
    pub fn new(deadline: Instant) -> Login {
        let _ = deadline;
        todo!()
    }
    /// Takes in what arrived.
    pub fn handle_bytes(&mut self, bytes: &[u8]) {
        let _ = bytes;
        todo!()
    }
    /// The next thing for the driver to see to.
    pub fn poll_event(&mut self) -> Option<LoginEvent> {
        todo!()
    }
    /// Answers [`LoginEvent::Authorize`].
    pub fn authorize(&mut self, authorization: Authorization) {
        let _ = authorization;
        todo!()
    }
    /// Answers [`LoginEvent::Finish`]: the final response carries this TSIH.
    pub fn accept(&mut self, tsih: u16) -> LoginOutcome {
        let _ = tsih;
        todo!()
    }
    /// Answers [`LoginEvent::Finish`]: the session does not want this connection.
    pub fn refuse(&mut self, status: LoginStatus) {
        let _ = status;
        todo!()
    }
    /// Moves what is to be sent into `batch`.
    pub fn poll_transmit(&mut self, batch: &mut SendBatch) {
        let _ = batch;
        todo!()
    }
    /// When the login must be over: close the connection then.
    pub fn deadline(&self) -> Instant {
        todo!()
    }
}
