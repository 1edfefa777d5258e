//! The handshake of a connection, which rustls does: bytes in, bytes out.
//!
//! rustls is shown one record at a time. So it never takes in what follows the handshake, which comes in the
//! same flight where the other side had no reason to wait: those bytes are for [`Records`], which has the
//! keys from then on.

use rustls::client::UnbufferedClientConnection;
use rustls::pki_types::CertificateDer;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, EncodeError, EncodeTlsData, UnbufferedStatus};
use rustls::{CommonState, InvalidMessage};

use super::cipher::HEADER_BYTES;
use super::records::{Kernel, Records};

/// What is kept of a handshake that is under way: the longest message that rustls takes (64 KiB), in as many
/// records.
const INCOMING_MAX: usize = 128 << 10;

/// One side of a handshake.
pub(super) enum Side {
    Client(UnbufferedClientConnection),
    Server(UnbufferedServerConnection),
}

/// A handshake under way. Bytes that arrive go into [`Handshake::feed`] until it says that all is agreed;
/// then comes [`Handshake::finish`].
pub(super) struct Handshake {
    side: Side,
    /// What has come and rustls is not done with.
    incoming: Vec<u8>,
    /// How much of that are records which rustls has seen, and refers to: parts of a message whose end has
    /// not come.
    seen: usize,
}

/// What a handshake leads to.
pub(super) struct Agreed {
    pub(super) records: Records,
    /// The certificates that the other side has shown.
    pub(super) peer_chain: Vec<CertificateDer<'static>>,
    /// What came behind the handshake.
    pub(super) behind: Vec<u8>,
}

/// What rustls needs to go on.
enum Need {
    /// To be asked again.
    Nothing,
    /// More bytes.
    Bytes,
}

impl Handshake {
    /// Begins; what a client says first is added to `output`.
    ///
    /// # Errors
    /// If the configuration is of no use.
    pub(super) fn begin(side: Side, output: &mut Vec<u8>) -> Result<Handshake, rustls::Error> {
        let mut handshake = Handshake { side, incoming: Vec::new(), seen: 0 };
        handshake.show(0, output)?;
        Ok(handshake)
    }

    /// Takes in what has arrived, and adds to `output` what is to be sent: if it fails, an alert. Whether all
    /// is agreed.
    ///
    /// # Errors
    /// If the other side is not as it has to be. The handshake is of no further use.
    pub(super) fn feed(&mut self, bytes: &[u8], output: &mut Vec<u8>) -> Result<bool, rustls::Error> {
        self.incoming.extend_from_slice(bytes);
        while self.side.common().is_handshaking() {
            let unseen = &self.incoming[self.seen..];
            let record = whole_record(unseen);
            // A part may show already that it is no record.
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

    /// Shows rustls the first `shown` bytes of what has come, and does what it wants until it needs more. How
    /// many of them it is not done with.
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

    /// Adds the alert of a handshake that has failed to `output`.
    fn say_why(&mut self, shown: usize, output: &mut Vec<u8>) {
        // It gives what it wants to send before it looks at anything else.
        while self.side.common().wants_write() {
            let (_, Ok(Need::Nothing)) = self.side.step(&mut self.incoming[..shown], output) else { return };
        }
    }

    /// What it leads to, once all is agreed.
    ///
    /// # Errors
    /// If it is not.
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

    /// One step of rustls, given all that it is not done with: how many bytes it is done with now, and what
    /// it needs.
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
        // Data and the end of it come after the handshake, and early data was not offered.
        Ok(_) => Err(rustls::Error::HandshakeNotComplete),
        Err(error) => Err(error),
    };
    (status.discard, need)
}

/// Adds a message to `output`.
fn encode<Data>(mut message: EncodeTlsData<'_, Data>, output: &mut Vec<u8>) -> Result<(), rustls::Error> {
    let start = output.len();
    // It is asked for its length first.
    if let Err(EncodeError::InsufficientSize(needed)) = message.encode(&mut []) {
        output.resize(start + needed.required_size, 0);
        message.encode(&mut output[start..]).map_err(|_| rustls::Error::EncryptError)?;
    }
    Ok(())
}

/// How long the record is that `bytes` begin with, if they have all of it. Whether it may be as it is, rustls
/// says.
fn whole_record(bytes: &[u8]) -> Option<usize> {
    let &[_, _, _, high, low, ..] = bytes else { return None };
    let len = HEADER_BYTES + usize::from(u16::from_be_bytes([high, low]));
    (len <= bytes.len()).then_some(len)
}
