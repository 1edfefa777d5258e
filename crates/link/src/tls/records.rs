//! The records of a connection after its handshake (RFC 8446, 5), as a function of bytes.
//!
//! rustls copies data three times when it receives and twice when it sends. That was measured to cost more
//! than the encryption itself (0.7 to 1.5 µs for a frame of 4 KiB on each side; `docs/performance.md`). Here
//! a record is decrypted where it was received, and encrypted where it is sent from: one copy on each side,
//! of content to its place. Only a record that straddles two receives is first copied together.
//!
//! rustls does the handshake, certificates and the key schedule, including later keys (through
//! [`rustls::kernel`], its interface for connections whose records are done elsewhere). ring does the cipher;
//! rustls itself uses ring here.
//!
//! A peer sends mostly data, and rarely an alert or a handshake message (new keys). Everything else ends the
//! connection.

use std::io::IoSlice;

use base::SendBatch;
use rustls::client::ClientConnectionData;
use rustls::kernel::KernelConnection;
use rustls::server::ServerConnectionData;
use rustls::{
    AlertDescription, ContentType, ExtractedSecrets, HandshakeType, InvalidMessage, PeerMisbehaved,
};

use super::FeedError;
use super::cipher::{Cipher, HEADER_BYTES, TAG_BYTES};

/// The maximum content of a record (RFC 8446, 5.1).
pub(super) const CONTENT_MAX: usize = 1 << 14;
/// The maximum length of what follows a record's header (5.2).
const SEALED_MAX: usize = CONTENT_MAX + 256;
/// The minimum: a type and a tag.
const SEALED_MIN: usize = 1 + TAG_BYTES;
/// New keys are taken this many records before a suite's limit: room for what is sent besides data, and far
/// more.
const RECORDS_SPARED: u64 = 1 << 10;
/// How many records in a row may bring no data; rustls has the same limit.
const FRUITLESS_MAX: u8 = 32;

/// A record's version, which does not depend on the connection's (5.1).
const VERSION: [u8; 2] = [0x03, 0x03];
/// The first byte of an alert, which once meant that it is fatal (6).
const FATAL: u8 = 2;
/// A message that says that new keys follow, and requests none (4.6.3).
const KEY_UPDATE: [u8; 5] = [24, 0, 0, 1, 0];

/// What rustls keeps of the connection, to derive new keys from.
pub(super) enum Kernel {
    Client(KernelConnection<ClientConnectionData>),
    Server(KernelConnection<ServerConnectionData>),
}

impl Kernel {
    fn new_sender(&mut self) -> Result<Cipher, rustls::Error> {
        Cipher::new(match self {
            Kernel::Client(kernel) => kernel.update_tx_secret()?,
            Kernel::Server(kernel) => kernel.update_tx_secret()?,
        })
    }

    fn new_receiver(&mut self) -> Result<Cipher, rustls::Error> {
        Cipher::new(match self {
            Kernel::Client(kernel) => kernel.update_rx_secret()?,
            Kernel::Server(kernel) => kernel.update_rx_secret()?,
        })
    }

    /// For how many records one key may be used.
    fn records_max(&self) -> Result<u64, rustls::Error> {
        let suite = match self {
            Kernel::Client(kernel) => kernel.negotiated_cipher_suite(),
            Kernel::Server(kernel) => kernel.negotiated_cipher_suite(),
        };
        let suite = suite.tls13().ok_or(rustls::Error::HandshakeNotComplete)?;
        Ok(suite.common.confidentiality_limit)
    }
}

/// The records of one connection.
///
/// What arrives goes into [`Records::feed`]; what must be sent comes out of [`Records::seal`] and
/// [`Records::take_output`]. After an error of `feed` only the latter is called, while a connection is being
/// made, to send the other side an alert. A link ends at once.
pub(super) struct Records {
    kernel: Kernel,
    sender: Cipher,
    receiver: Cipher,
    /// After this many records with one key, the next key is taken.
    pub(super) renew_at: u64,
    /// The other side has requested new keys, and has not got them yet.
    renewal_owed: bool,
    /// The alert that says why this side gives up, until it is sent.
    alert: Option<AlertDescription>,
    /// The beginning of an incomplete record.
    begun: Vec<u8>,
    /// How many records in a row have brought no data.
    fruitless: u8,
    /// Whether the other side has announced that it sends no more.
    closed: bool,
}

impl Records {
    /// The records of a connection whose handshake is done.
    ///
    /// # Errors
    /// If the handshake has agreed on something that was not offered.
    pub(super) fn new(secrets: ExtractedSecrets, kernel: Kernel) -> Result<Records, rustls::Error> {
        Ok(Records {
            sender: Cipher::new(secrets.tx)?,
            receiver: Cipher::new(secrets.rx)?,
            renew_at: kernel.records_max()?.saturating_sub(RECORDS_SPARED),
            kernel,
            renewal_owed: false,
            alert: None,
            begun: Vec::new(),
            fruitless: 0,
            closed: false,
        })
    }

    /// Takes all of `bytes` and decrypts them in place; `plain` gets the content in pieces.
    ///
    /// Everything after the other side's close is ignored (6.1).
    ///
    /// # Errors
    /// If the bytes are not the records that come next, or `plain` fails. `plain` got nothing of a record
    /// that fails.
    pub(super) fn feed<E>(
        &mut self,
        bytes: &mut [u8],
        plain: &mut impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), FeedError<E>> {
        let fed = self.take_in(bytes, plain);
        if let Err(FeedError::Tls(error)) = &fed {
            self.alert = alert_for(error);
        }
        fed
    }

    fn take_in<E>(
        &mut self,
        mut bytes: &mut [u8],
        plain: &mut impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), FeedError<E>> {
        while !bytes.is_empty() && !self.closed {
            if !self.begun.is_empty() {
                let part = self.missing()?.min(bytes.len());
                let (part, rest) = bytes.split_at_mut(part);
                self.begun.extend_from_slice(part);
                bytes = rest;
                if self.missing()? == 0 {
                    let mut record = std::mem::take(&mut self.begun);
                    self.open(&mut record, plain)?;
                    record.clear();
                    self.begun = record;
                }
                continue;
            }
            match record_bytes(bytes)? {
                Some(len) if len <= bytes.len() => {
                    let (record, rest) = bytes.split_at_mut(len);
                    self.open(record, plain)?;
                    bytes = rest;
                }
                _ => {
                    self.begun.extend_from_slice(bytes);
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// How many bytes are missing of the header that has begun, or, if that is complete, of its record.
    fn missing(&self) -> Result<usize, rustls::Error> {
        let wanted = record_bytes(&self.begun)?.unwrap_or(HEADER_BYTES);
        Ok(wanted - self.begun.len())
    }

    /// Decrypts a whole record in place and acts on it.
    fn open<E>(
        &mut self,
        record: &mut [u8],
        plain: &mut impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), FeedError<E>> {
        let Some((header, sealed)) = record.split_first_chunk_mut() else {
            return Err(rustls::Error::DecryptError.into());
        };
        let inner = self.receiver.open(*header, sealed)?;
        if inner.len() > CONTENT_MAX + 1 {
            return Err(rustls::Error::PeerSentOversizedRecord.into());
        }
        // Zeros after the type are padding (5.4).
        let Some(at) = inner.iter().rposition(|byte| *byte != 0) else {
            return Err(rustls::Error::from(PeerMisbehaved::IllegalTlsInnerPlaintext).into());
        };
        let (content, content_type) = (&inner[..at], ContentType::from(inner[at]));
        if content_type == ContentType::ApplicationData && !content.is_empty() {
            self.fruitless = 0;
            return plain(content).map_err(FeedError::User);
        }
        self.fruitless += 1;
        if self.fruitless > FRUITLESS_MAX {
            return Err(rustls::Error::from(PeerMisbehaved::TooManyEmptyFragments).into());
        }
        match content_type {
            ContentType::ApplicationData => {}
            ContentType::Alert => self.take_alert(content)?,
            ContentType::Handshake => self.take_messages(content)?,
            other => return Err(inappropriate(other).into()),
        }
        Ok(())
    }

    /// Handles an alert, which has a record of its own (5.1). Its level has no meaning any more (6).
    fn take_alert(&mut self, content: &[u8]) -> Result<(), rustls::Error> {
        let &[_, description] = content else {
            return Err(InvalidMessage::MissingData("Alert").into());
        };
        match AlertDescription::from(description) {
            AlertDescription::CloseNotify => {
                self.closed = true;
                Ok(())
            }
            other => Err(rustls::Error::AlertReceived(other)),
        }
    }

    /// Handles handshake messages that may come after the handshake: new keys, and tickets, which were not
    /// requested and are ignored. No peer needs more than one record for them, so none may use more.
    fn take_messages(&mut self, mut messages: &[u8]) -> Result<(), rustls::Error> {
        if messages.is_empty() {
            return Err(InvalidMessage::InvalidEmptyPayload.into());
        }
        while let &[kind, high, middle, low, ref rest @ ..] = messages {
            let len = u32::from_be_bytes([0, high, middle, low]) as usize;
            let (body, rest) = rest.split_at_checked(len).ok_or(InvalidMessage::MessageTooShort)?;
            messages = rest;
            match HandshakeType::from(kind) {
                HandshakeType::KeyUpdate if !rest.is_empty() => {
                    return Err(PeerMisbehaved::KeyEpochWithPendingFragment.into());
                }
                HandshakeType::KeyUpdate => self.take_key_update(body)?,
                HandshakeType::NewSessionTicket if matches!(self.kernel, Kernel::Client(_)) => {}
                got_type => {
                    let expect_types = vec![HandshakeType::KeyUpdate];
                    return Err(rustls::Error::InappropriateHandshakeMessage { expect_types, got_type });
                }
            }
        }
        if messages.is_empty() { Ok(()) } else { Err(InvalidMessage::MessageTooShort.into()) }
    }

    fn take_key_update(&mut self, body: &[u8]) -> Result<(), rustls::Error> {
        match body {
            [0] => {}
            // One answer is enough for all earlier requests.
            [1] => self.renewal_owed = true,
            _ => return Err(InvalidMessage::InvalidKeyUpdate.into()),
        }
        self.receiver = self.kernel.new_receiver()?;
        Ok(())
    }

    /// Whether the other side has announced that it sends no more.
    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Whether something must be sent besides data.
    pub(super) fn has_output(&self) -> bool {
        self.renewal_owed || self.alert.is_some()
    }

    /// Adds to `batch` what must be sent besides data.
    pub(super) fn take_output(&mut self, batch: &mut SendBatch) -> Result<(), rustls::Error> {
        if self.renewal_owed {
            self.renew(batch)?;
        }
        if let Some(description) = self.alert.take() {
            self.push_record(ContentType::Alert, &[FATAL, u8::from(description)], batch)?;
        }
        Ok(())
    }

    /// Adds the records of `pieces` to `batch`, after whatever else must be sent.
    ///
    /// # Errors
    /// If they cannot be encrypted. Then `batch` is empty: nothing leaves unencrypted.
    pub(super) fn seal(
        &mut self,
        pieces: &[IoSlice<'_>],
        batch: &mut SendBatch,
    ) -> Result<(), rustls::Error> {
        self.take_output(batch)?;
        let mut left: usize = pieces.iter().map(|piece| piece.len()).sum();
        // For the record that is being filled: the length of its content, and the room left in it.
        let (mut content, mut room) = (0, 0);
        for piece in pieces {
            let mut piece: &[u8] = piece;
            while !piece.is_empty() {
                if room == 0 {
                    if self.sender.next() >= self.renew_at {
                        self.renew(batch)?;
                    }
                    content = left.min(CONTENT_MAX);
                    (left, room) = (left - content, content);
                    batch.push(&header(content));
                }
                let (now, later) = piece.split_at(piece.len().min(room));
                batch.push(now);
                (piece, room) = (later, room - now.len());
                if room == 0 {
                    self.end_record(ContentType::ApplicationData, content, batch)?;
                }
            }
        }
        Ok(())
    }

    /// Announces new keys, and takes them.
    fn renew(&mut self, batch: &mut SendBatch) -> Result<(), rustls::Error> {
        self.push_record(ContentType::Handshake, &KEY_UPDATE, batch)?;
        self.take_new_key().inspect_err(|_| batch.clear())
    }

    /// Encrypts with a new key from now on; the other side was notified.
    pub(super) fn take_new_key(&mut self) -> Result<(), rustls::Error> {
        self.sender = self.kernel.new_sender()?;
        self.renewal_owed = false;
        Ok(())
    }

    /// Adds a record of at most [`CONTENT_MAX`] bytes to `batch`.
    pub(super) fn push_record(
        &mut self,
        content_type: ContentType,
        content: &[u8],
        batch: &mut SendBatch,
    ) -> Result<(), rustls::Error> {
        batch.push(&header(content.len()));
        batch.push(content);
        self.end_record(content_type, content.len(), batch)
    }

    /// Encrypts the last bytes of `batch`, the content of a record, which follow its header.
    fn end_record(
        &mut self,
        content_type: ContentType,
        content: usize,
        batch: &mut SendBatch,
    ) -> Result<(), rustls::Error> {
        batch.push(&[u8::from(content_type)]);
        let sealed = self.sender.seal(header(content), batch.last_mut(content + 1));
        let tag = sealed.inspect_err(|_| batch.clear())?;
        batch.push(tag.as_ref());
        Ok(())
    }
}

/// The header of a record with this much content. From outside, all records look like data.
fn header(content: usize) -> [u8; HEADER_BYTES] {
    const { assert!(CONTENT_MAX + 1 + TAG_BYTES <= u16::MAX as usize, "a record's length has two bytes") };
    let [high, low] = ((content + 1 + TAG_BYTES) as u16).to_be_bytes();
    [ContentType::ApplicationData.into(), VERSION[0], VERSION[1], high, low]
}

/// The length of the record at the beginning of `bytes`, including its header: at most [`HEADER_BYTES`] and
/// [`SEALED_MAX`]. `None` while too few bytes have arrived.
fn record_bytes(bytes: &[u8]) -> Result<Option<usize>, rustls::Error> {
    // If someone changes the version of a record on its way, the record does not authenticate.
    let &[content_type, _, _, high, low, ..] = bytes else { return Ok(None) };
    let content_type = ContentType::from(content_type);
    if content_type != ContentType::ApplicationData {
        return Err(inappropriate(content_type));
    }
    match usize::from(u16::from_be_bytes([high, low])) {
        ..SEALED_MIN => Err(rustls::Error::DecryptError),
        len if len > SEALED_MAX => Err(rustls::Error::PeerSentOversizedRecord),
        len => Ok(Some(HEADER_BYTES + len)),
    }
}

fn inappropriate(got_type: ContentType) -> rustls::Error {
    let expect_types = vec![ContentType::ApplicationData, ContentType::Alert, ContentType::Handshake];
    rustls::Error::InappropriateMessage { expect_types, got_type }
}

/// The alert for an error; none for an alert of the other side.
fn alert_for(error: &rustls::Error) -> Option<AlertDescription> {
    Some(match error {
        rustls::Error::AlertReceived(_) => return None,
        rustls::Error::DecryptError => AlertDescription::BadRecordMac,
        rustls::Error::PeerSentOversizedRecord => AlertDescription::RecordOverflow,
        rustls::Error::InvalidMessage(InvalidMessage::InvalidKeyUpdate) => AlertDescription::IllegalParameter,
        rustls::Error::InvalidMessage(_) => AlertDescription::DecodeError,
        rustls::Error::InappropriateMessage { .. }
        | rustls::Error::InappropriateHandshakeMessage { .. }
        | rustls::Error::PeerMisbehaved(_) => AlertDescription::UnexpectedMessage,
        _ => AlertDescription::InternalError,
    })
}
