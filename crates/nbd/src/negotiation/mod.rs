//! What comes before requests (sections *Fixed newstyle negotiation*, *TLS support* and *Option types*).

mod contexts;
mod options;

use std::mem;

pub use self::contexts::Contexts;
use self::options::{ContextRequest, InfoRequest};
use crate::answer::READ_BYTES_MAX;
use crate::export::Export;
use crate::violation::Violation;
use crate::wire::{
    EXPORT_NAME_ZEROES, INIT_MAGIC, OPTION_MAGIC, OPTION_REPLY_MAGIC, handshake, info, option, option_reply,
    transmission,
};

/// The most bytes of an option that are kept: a name and a dozen queries of the greatest length. Longer ones
/// are skipped as they arrive.
pub const OPTION_BYTES_MAX: usize = 64 << 10;
/// The head of an option.
const OPTION_HEAD_BYTES: usize = 16;

/// The size constraints that clients learn (section *Size constraints*). They are the protocol's defaults, so
/// it does not matter whether a client asks.
const BLOCK_BYTES_MIN: u32 = 1;
const BLOCK_BYTES_PREFERRED: u32 = 4096;

/// Whether clients must use TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Security {
    /// They cannot use it (*NOTLS*).
    Plain,
    /// They must use it, and learn nothing before (*FORCEDTLS*).
    Tls,
}

/// What a client and the server have agreed on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Negotiated {
    /// Replies are structured.
    pub is_structured: bool,
    /// What the client can ask about ranges.
    pub contexts: Contexts,
}

/// What the negotiation needs, or has come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NegotiationEvent {
    /// TLS begins behind what is to be sent: then [`Negotiation::tls_has_begun`].
    StartTls,
    /// Requests follow; [`Negotiation::into_rest`] has those that have come already.
    Transmit(Negotiated),
    /// The client ends the connection in the way that it should.
    Abort,
    /// The connection must be ended.
    Violation(Violation),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The client's flags are next.
    Flags,
    /// An option is next.
    Options,
    /// Waits for TLS.
    BeforeTls,
    Over,
}

/// The negotiation with one client.
///
/// After [`Negotiation::new`] and after each call of [`Negotiation::handle_bytes`], call
/// [`Negotiation::poll_event`] until it returns `None`, and send what [`Negotiation::take_output`] returns
/// before acting on an event. Then it needs memory for one option and the bytes of one call.
#[derive(Debug)]
pub struct Negotiation<'a> {
    export: &'a Export,
    stage: Stage,
    /// TLS is required, and has not begun.
    lacks_tls: bool,
    /// TLS has begun.
    is_encrypted: bool,
    omits_zeroes: bool,
    negotiated: Negotiated,
    input: Vec<u8>,
    /// How many more bytes belong to an option that was too long.
    skips: u32,
    output: Vec<u8>,
}

impl<'a> Negotiation<'a> {
    /// Begins with the server's greeting.
    pub fn new(export: &'a Export, security: Security) -> Negotiation<'a> {
        let flags = handshake::FIXED_NEWSTYLE | handshake::NO_ZEROES;
        let mut output = INIT_MAGIC.to_be_bytes().to_vec();
        output.extend(OPTION_MAGIC.to_be_bytes());
        output.extend(flags.to_be_bytes());
        Negotiation {
            export,
            stage: Stage::Flags,
            lacks_tls: security == Security::Tls,
            is_encrypted: false,
            omits_zeroes: false,
            negotiated: Negotiated::default(),
            input: Vec::new(),
            skips: 0,
            output,
        }
    }

    /// Takes bytes of the client.
    pub fn handle_bytes(&mut self, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
    }

    /// TLS has begun: what comes now is what TLS has decrypted.
    pub fn tls_has_begun(&mut self) {
        assert_eq!(self.stage, Stage::BeforeTls, "it begins after an event");
        self.stage = Stage::Options;
        (self.lacks_tls, self.is_encrypted) = (false, true);
    }

    /// The next event; `None`: more bytes are needed, or it is over.
    pub fn poll_event(&mut self) -> Option<NegotiationEvent> {
        let event = loop {
            match self.stage {
                Stage::Flags => {
                    let flags = u32::from_be_bytes(self.take()?);
                    if let Err(violation) = self.handle_flags(flags) {
                        break NegotiationEvent::Violation(violation);
                    }
                }
                Stage::Options => {
                    if let Some(event) = self.handle_option()? {
                        break event;
                    }
                }
                Stage::BeforeTls | Stage::Over => return None,
            }
        };
        self.stage = match event {
            NegotiationEvent::StartTls => Stage::BeforeTls,
            _ => Stage::Over,
        };
        Some(event)
    }

    /// What is to be sent.
    pub fn take_output(&mut self) -> Vec<u8> {
        mem::take(&mut self.output)
    }

    /// The bytes behind the negotiation.
    pub fn into_rest(self) -> Vec<u8> {
        self.input
    }

    /// How many bytes of the client are kept.
    pub fn kept_bytes(&self) -> usize {
        self.input.len()
    }

    /// The first bytes; `None`: they have not all come.
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let taken = *self.input.first_chunk::<N>()?;
        self.input.drain(..N);
        Some(taken)
    }

    fn handle_flags(&mut self, flags: u32) -> Result<(), Violation> {
        let known = handshake::CLIENT_FIXED_NEWSTYLE | handshake::CLIENT_NO_ZEROES;
        if flags & !known != 0 {
            return Err(Violation::ClientFlags(flags));
        }
        // Clients without it may use options all the same, but not TLS.
        if self.lacks_tls && flags & handshake::CLIENT_FIXED_NEWSTYLE == 0 {
            return Err(Violation::NotFixedNewstyle);
        }
        self.omits_zeroes = flags & handshake::CLIENT_NO_ZEROES != 0;
        self.stage = Stage::Options;
        Ok(())
    }

    /// Handles one option. `None`: it has not all come. `Some(None)`: the negotiation continues.
    fn handle_option(&mut self) -> Option<Option<NegotiationEvent>> {
        let skipped = self.input.len().min(self.skips as usize);
        self.input.drain(..skipped);
        self.skips -= skipped as u32;
        let head = *self.input.first_chunk::<OPTION_HEAD_BYTES>()?;
        let [.., c0, c1, c2, c3, l0, l1, l2, l3] = head;
        let (code, len) = (u32::from_be_bytes([c0, c1, c2, c3]), u32::from_be_bytes([l0, l1, l2, l3]));
        let magic = u64::from_be_bytes(*head.first_chunk().expect("the head is longer"));
        if magic != OPTION_MAGIC {
            return Some(Some(NegotiationEvent::Violation(Violation::OptionMagic(magic))));
        }
        if len as usize > OPTION_BYTES_MAX {
            self.input.drain(..OPTION_HEAD_BYTES);
            self.skips = len;
            return Some(self.refuse_long(code));
        }
        let end = OPTION_HEAD_BYTES + len as usize;
        let data = self.input.get(OPTION_HEAD_BYTES..end)?.to_vec();
        self.input.drain(..end);
        Some(self.execute(code, &data))
    }

    fn refuse_long(&mut self, code: u32) -> Option<NegotiationEvent> {
        match code {
            option::EXPORT_NAME if self.lacks_tls => {
                return Some(NegotiationEvent::Violation(Violation::NotEncrypted));
            }
            option::EXPORT_NAME => return Some(NegotiationEvent::Violation(Violation::UnknownExport)),
            // The server should ignore its data.
            option::ABORT => return Some(self.abort()),
            option::STARTTLS => self.fail(code, option_reply::ERR_INVALID, "this option has no data"),
            _ if self.lacks_tls => self.fail(code, option_reply::ERR_TLS_REQD, TLS_REQUIRED),
            option::LIST..=option::SET_META_CONTEXT => {
                // A selection that fails selects nothing.
                if code == option::SET_META_CONTEXT {
                    self.negotiated.contexts = Contexts::default();
                }
                self.fail(code, option_reply::ERR_TOO_BIG, "this option is too long");
            }
            _ => self.fail(code, option_reply::ERR_UNSUP, ""),
        }
        None
    }

    fn execute(&mut self, code: u32, data: &[u8]) -> Option<NegotiationEvent> {
        match code {
            option::ABORT => return Some(self.abort()),
            option::STARTTLS => return self.start_tls(data),
            option::EXPORT_NAME if self.lacks_tls => {
                return Some(NegotiationEvent::Violation(Violation::NotEncrypted));
            }
            _ if self.lacks_tls => self.fail(code, option_reply::ERR_TLS_REQD, TLS_REQUIRED),
            option::EXPORT_NAME => return Some(self.enter_by_name(data)),
            option::LIST => self.list(data),
            option::INFO | option::GO => return self.inform(code, data),
            option::STRUCTURED_REPLY => match data.is_empty() {
                true => {
                    self.negotiated.is_structured = true;
                    self.reply(code, option_reply::ACK, &[]);
                }
                false => self.fail(code, option_reply::ERR_INVALID, "this option has no data"),
            },
            option::LIST_META_CONTEXT | option::SET_META_CONTEXT => self.handle_contexts(code, data),
            _ => self.fail(code, option_reply::ERR_UNSUP, ""),
        }
        None
    }

    fn abort(&mut self) -> NegotiationEvent {
        self.reply(option::ABORT, option_reply::ACK, &[]);
        NegotiationEvent::Abort
    }

    fn start_tls(&mut self, data: &[u8]) -> Option<NegotiationEvent> {
        let code = option::STARTTLS;
        if !data.is_empty() || self.is_encrypted {
            self.fail(code, option_reply::ERR_INVALID, "TLS has begun already, or the option has data");
            return None;
        }
        if !self.lacks_tls {
            self.fail(code, option_reply::ERR_POLICY, "this server has no certificate for TLS");
            return None;
        }
        // Somebody in between could have sent it, and it must not count as encrypted.
        if !self.input.is_empty() {
            return Some(NegotiationEvent::Violation(Violation::BehindStartTls));
        }
        // Nothing was negotiated before.
        debug_assert_eq!(self.negotiated, Negotiated::default());
        self.reply(code, option_reply::ACK, &[]);
        Some(NegotiationEvent::StartTls)
    }

    fn enter_by_name(&mut self, name: &[u8]) -> NegotiationEvent {
        if !self.export.is_called(name) {
            return NegotiationEvent::Violation(Violation::UnknownExport);
        }
        self.output.extend(self.export.size.to_be_bytes());
        self.output.extend(self.transmission_flags().to_be_bytes());
        if !self.omits_zeroes {
            self.output.extend([0; EXPORT_NAME_ZEROES]);
        }
        NegotiationEvent::Transmit(self.negotiated.clone())
    }

    fn list(&mut self, data: &[u8]) {
        if !data.is_empty() {
            return self.fail(option::LIST, option_reply::ERR_INVALID, "this option has no data");
        }
        let Export { name, description, .. } = self.export;
        let len = (name.len() as u32).to_be_bytes();
        let server = [&len[..], name.as_bytes(), description.as_bytes()].concat();
        self.reply(option::LIST, option_reply::SERVER, &server);
        self.reply(option::LIST, option_reply::ACK, &[]);
    }

    /// `NBD_OPT_INFO` and `NBD_OPT_GO`.
    fn inform(&mut self, code: u32, data: &[u8]) -> Option<NegotiationEvent> {
        let Some(request) = InfoRequest::parse(data) else {
            self.fail(code, option_reply::ERR_INVALID, "the option is malformed");
            return None;
        };
        if !self.export.is_called(request.name) {
            self.fail(code, option_reply::ERR_UNKNOWN, UNKNOWN_EXPORT);
            return None;
        }
        let (size, flags) = (self.export.size.to_be_bytes(), self.transmission_flags().to_be_bytes());
        self.reply_info(code, info::EXPORT, &[&size[..], &flags].concat());
        let sizes = [BLOCK_BYTES_MIN, BLOCK_BYTES_PREFERRED, READ_BYTES_MAX];
        self.reply_info(code, info::BLOCK_SIZE, &sizes.map(u32::to_be_bytes).concat());
        let export = self.export;
        for (info, text) in [(info::NAME, &export.name), (info::DESCRIPTION, &export.description)] {
            if request.wants(info) {
                self.reply_info(code, info, text.as_bytes());
            }
        }
        self.reply(code, option_reply::ACK, &[]);
        (code == option::GO).then(|| NegotiationEvent::Transmit(self.negotiated.clone()))
    }

    /// `NBD_OPT_LIST_META_CONTEXT` and `NBD_OPT_SET_META_CONTEXT`. There is one export, so these contexts are
    /// always those of the export that the client uses later.
    fn handle_contexts(&mut self, code: u32, data: &[u8]) {
        let sets = code == option::SET_META_CONTEXT;
        if sets {
            self.negotiated.contexts = Contexts::default();
        }
        if !self.negotiated.is_structured {
            return self.fail(code, option_reply::ERR_INVALID, "this requires structured replies");
        }
        let Some(request) = ContextRequest::parse(data) else {
            return self.fail(code, option_reply::ERR_INVALID, "the option is malformed");
        };
        if !self.export.is_called(request.name) {
            return self.fail(code, option_reply::ERR_UNKNOWN, UNKNOWN_EXPORT);
        }
        let export = self.export;
        let contexts = match sets {
            true => Contexts::selected(export, request.queries()),
            false => Contexts::listed(export, request.queries()),
        };
        for (id, name) in contexts.named(export) {
            // In a list the ID is reserved.
            let id = if sets { id } else { 0 };
            self.reply(code, option_reply::META_CONTEXT, &[&id.to_be_bytes(), name.as_bytes()].concat());
        }
        self.reply(code, option_reply::ACK, &[]);
        if sets {
            self.negotiated.contexts = contexts;
        }
    }

    fn transmission_flags(&self) -> u16 {
        let unfragmented = if self.negotiated.is_structured { transmission::SEND_DF } else { 0 };
        // Nothing changes, so all connections see the same.
        transmission::HAS_FLAGS | transmission::READ_ONLY | transmission::CAN_MULTI_CONN | unfragmented
    }

    fn reply_info(&mut self, code: u32, info: u16, data: &[u8]) {
        self.reply(code, option_reply::INFO, &[&info.to_be_bytes(), data].concat());
    }

    fn fail(&mut self, code: u32, error: u32, message: &str) {
        self.reply(code, error, message.as_bytes());
    }

    fn reply(&mut self, code: u32, kind: u32, data: &[u8]) {
        self.output.extend(OPTION_REPLY_MAGIC.to_be_bytes());
        for field in [code, kind, data.len() as u32] {
            self.output.extend(field.to_be_bytes());
        }
        self.output.extend_from_slice(data);
    }
}

const TLS_REQUIRED: &str = "this server requires TLS";
const UNKNOWN_EXPORT: &str = "this server has no export of that name";
