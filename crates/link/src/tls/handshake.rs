//! The handshake of a connection, which rustls does, as a function of bytes.
//!
//! rustls gets one record at a time. So it never takes what follows the handshake, which comes in the same
//! flight if the other side had no reason to wait. Those bytes are for [`Records`], which has the keys from
//! then on.

use rustls::client::UnbufferedClientConnection;
use rustls::pki_types::CertificateDer;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, EncodeError, EncodeTlsData, UnbufferedStatus};
use rustls::{CommonState, InvalidMessage};

use super::cipher::HEADER_BYTES;
use super::records::{Kernel, Records};

/// How much of a handshake under way is kept: the longest message that rustls takes (64 KiB), in as many
/// records.
const INCOMING_MAX: usize = 128 << 10;

/// One side of a handshake.
pub(super) enum Side {
    Client(UnbufferedClientConnection),
    Server(UnbufferedServerConnection),
}

/// A handshake under way. Arriving bytes go into [`Handshake::feed`] until it returns true; then comes
/// [`Handshake::finish`].
pub(super) struct Handshake {
    side: Side,
    /// Bytes that have arrived and that rustls has not discarded.
    incoming: Vec<u8>,
    /// How much of that are records that rustls has seen and still refers to: parts of an incomplete message.
    seen: usize,
}

/// The result of a handshake.
pub(super) struct Agreed {
    pub(super) records: Records,
    /// The certificates that the other side has shown.
    pub(super) peer_chain: Vec<CertificateDer<'static>>,
    /// The bytes that followed the handshake.
    pub(super) behind: Vec<u8>,
}

/// What rustls needs to continue.
enum Need {
    /// Nothing: call it again.
    Nothing,
    /// More bytes.
    Bytes,
}

impl Handshake {
    /// Begins a handshake; adds a client's first message to `output`.
    pub(super) fn begin(side: Side, output: &mut Vec<u8>) -> Result<Handshake, rustls::Error> {
        let mut handshake = Handshake { side, incoming: Vec::new(), seen: 0 };
        handshake.show(0, output)?;
        Ok(handshake)
    }

    /// Takes what has arrived, and adds what must be sent to `output`, an alert if this fails. Returns
    /// whether the handshake is done.
    ///
    /// # Errors
    /// If the other side violates the protocol. The handshake is unusable then.
    pub(super) fn feed(&mut self, bytes: &[u8], output: &mut Vec<u8>) -> Result<bool, rustls::Error> {
        self.incoming.extend_from_slice(bytes);
        while self.side.common().is_handshaking() {
            let unseen = &self.incoming[self.seen..];
            let record = whole_record(unseen);
            // A part of a record may already show that it is not one.
            let (shown, partial) = record.map_or((unseen.len(), unseen.len()), |len| (len, 0));
            let left = self.show(self.seen + shown, output)?;
            self.seen = left.saturating_sub(partial);
            if record.is_none() {
                break;
            }
        }
        let agreed = !self.side.common().is_handshaking();
        if !agreed && self.incoming.len() > INCOMING_MAX {
            return Err(InvalidMessage::HandshakePayloadTooLarge.into());
        }
        Ok(agreed)
    }

    /// Shows rustls the first `shown` bytes of what has arrived, and does what it wants until it needs more.
    /// Returns how many of these bytes rustls has not discarded.
    fn show(&mut self, mut shown: usize, output: &mut Vec<u8>) -> Result<usize, rustls::Error> {
        loop {
            let (done, need) = self.side.step(&mut self.incoming[..shown], output);
            self.incoming.drain(..done);
            shown -= done;
            match need {
                Ok(Need::Nothing) => {}
                Ok(Need::Bytes) => return Ok(shown),
                Err(error) => {
                    self.say_why(shown, output);
                    return Err(error);
                }
            }
        }
    }

    /// Adds the alert of a failed handshake to `output`.
    fn say_why(&mut self, shown: usize, output: &mut Vec<u8>) {
        // rustls returns what it wants to send before it looks at anything else.
        while self.side.common().wants_write() {
            let (_, Ok(Need::Nothing)) = self.side.step(&mut self.incoming[..shown], output) else { return };
        }
    }

    /// The result, once the handshake is done.
    pub(super) fn finish(mut self) -> Result<Agreed, rustls::Error> {
        let peer_chain = self.side.common().peer_certificates().unwrap_or_default().to_vec();
        let (secrets, kernel) = match self.side {
            Side::Client(client) => {
                let (secrets, kernel) = client.dangerous_into_kernel_connection()?;
                (secrets, Kernel::Client(kernel))
            }
            Side::Server(server) => {
                let (secrets, kernel) = server.dangerous_into_kernel_connection()?;
                (secrets, Kernel::Server(kernel))
            }
        };
        let behind = self.incoming.split_off(self.seen);
        Ok(Agreed { records: Records::new(secrets, kernel)?, peer_chain, behind })
    }
}

impl Side {
    fn common(&self) -> &CommonState {
        match self {
            Side::Client(client) => client,
            Side::Server(server) => server,
        }
    }

    /// One step of rustls, given all bytes that it has not discarded. Returns how many it discards now, and
    /// what it needs.
    fn step(&mut self, incoming: &mut [u8], output: &mut Vec<u8>) -> (usize, Result<Need, rustls::Error>) {
        match self {
            Side::Client(client) => taken(client.process_tls_records(incoming), output),
            Side::Server(server) => taken(server.process_tls_records(incoming), output),
        }
    }
}

/// Does what rustls wants.
fn taken<Data>(
    status: UnbufferedStatus<'_, '_, Data>,
    output: &mut Vec<u8>,
) -> (usize, Result<Need, rustls::Error>) {
    let need = match status.state {
        Ok(ConnectionState::EncodeTlsData(message)) => encode(message, output).map(|()| Need::Nothing),
        Ok(ConnectionState::TransmitTlsData(output_is_kept)) => {
            output_is_kept.done();
            Ok(Need::Nothing)
        }
        Ok(ConnectionState::BlockedHandshake | ConnectionState::WriteTraffic(_)) => Ok(Need::Bytes),
        // Data and a close come only after the handshake, and early data was not offered.
        Ok(_) => Err(rustls::Error::HandshakeNotComplete),
        Err(error) => Err(error),
    };
    (status.discard, need)
}

/// Adds a message to `output`.
fn encode<Data>(mut message: EncodeTlsData<'_, Data>, output: &mut Vec<u8>) -> Result<(), rustls::Error> {
    let start = output.len();
    // The first call returns the length.
    if let Err(EncodeError::InsufficientSize(needed)) = message.encode(&mut []) {
        output.resize(start + needed.required_size, 0);
        message.encode(&mut output[start..]).map_err(|_| rustls::Error::EncryptError)?;
    }
    Ok(())
}

/// The length of the record at the beginning of `bytes`, if all of it is there. Whether it is valid is up to
/// rustls.
fn whole_record(bytes: &[u8]) -> Option<usize> {
    let &[_, _, _, high, low, ..] = bytes else { return None };
    let len = HEADER_BYTES + usize::from(u16::from_be_bytes([high, low]));
    (len <= bytes.len()).then_some(len)
}
