//! Frames as bytes: `docs/formats/replication-link.md`.

use base::{Buf, Chain, Crc32c, SendBatch};

/// Bytes of a frame's header.
pub const HEADER_BYTES: usize = 24;
/// The maximum length of a head: a message of a copy that lists all regions of the largest slice, with its
/// own header.
pub const HEAD_MAX: usize = (256 << 20) + 4096;
/// The maximum length of a payload: the largest write in one piece, and a region more.
pub const PAYLOAD_MAX: usize = (8 << 20) + (64 << 10);

/// Memory for a head is allocated in steps of this size as it arrives: a header alone never costs more.
const HEAD_STEP: usize = 64 << 10;

const MAGIC: [u8; 2] = *b"UF";

/// A frame: what a link carries. Everything except the lengths is up to the link's user.
#[derive(Debug)]
pub struct Frame {
    /// The receiver at the other side: for example, a volume and slice.
    pub channel: u64,
    /// The kind of message, defined by the link's user.
    pub kind: u8,
    /// The message: at most [`HEAD_MAX`] bytes.
    pub head: Vec<u8>,
    /// Data, never copied on its way: at most [`PAYLOAD_MAX`] bytes. Received data is in one piece, and
    /// aligned.
    pub payload: Chain,
}

/// Why bytes are not a frame. The connection over which they came is unusable then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // The messages say it.
pub enum Malformed {
    #[error("something that is not a frame")]
    Magic,
    #[error("a frame of unknown type {0}")]
    Type(u8),
    #[error("a frame that is too long")]
    Length,
    #[error("a frame with a wrong CRC32C")]
    Checksum,
}

mod frame_type {
    pub(super) const USER: u8 = 0;
    pub(super) const KEEP_ALIVE: u8 = 1;
}

/// Adds the frame to a batch.
///
/// # Panics
/// If head or payload is too long, which is an error of the caller.
pub fn encode(frame: &Frame, batch: &mut SendBatch) {
    assert!(
        frame.head.len() <= HEAD_MAX && frame.payload.len() <= PAYLOAD_MAX,
        "a frame of kind {} with a head of {} bytes and a payload of {} is too long",
        frame.kind,
        frame.head.len(),
        frame.payload.len()
    );
    batch.push(&header(frame_type::USER, frame));
    batch.push(&frame.head);
    batch.push_chain(&frame.payload);
}

/// Adds a frame to a batch that is only a sign of life.
pub fn encode_keep_alive(batch: &mut SendBatch) {
    let nothing = Frame { channel: 0, kind: 0, head: Vec::new(), payload: Chain::new() };
    batch.push(&header(frame_type::KEEP_ALIVE, &nothing));
}

fn header(frame_type: u8, frame: &Frame) -> [u8; HEADER_BYTES] {
    let mut bytes = [0; HEADER_BYTES];
    bytes[0..2].copy_from_slice(&MAGIC);
    bytes[2] = frame_type;
    bytes[3] = frame.kind;
    bytes[4..8].copy_from_slice(&(frame.head.len() as u32).to_le_bytes());
    bytes[8..16].copy_from_slice(&frame.channel.to_le_bytes());
    bytes[16..20].copy_from_slice(&(frame.payload.len() as u32).to_le_bytes());
    let mut crc = Crc32c::new();
    crc.update(&bytes[..20]);
    crc.update(&frame.head);
    bytes[20..24].copy_from_slice(&crc.value().to_le_bytes());
    bytes
}

/// The content of a header.
#[derive(Clone, Copy, Debug)]
struct Header {
    frame_type: u8,
    kind: u8,
    channel: u64,
    head_bytes: usize,
    payload_bytes: usize,
    crc: u32,
    /// The CRC32C of the header's own bytes, to be continued with the head.
    crc_so_far: Crc32c,
}

impl Header {
    fn parse(bytes: &[u8; HEADER_BYTES]) -> Result<Header, Malformed> {
        let u32_at = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        if bytes[..2] != MAGIC {
            return Err(Malformed::Magic);
        }
        let mut crc_so_far = Crc32c::new();
        crc_so_far.update(&bytes[..20]);
        let header = Header {
            frame_type: bytes[2],
            kind: bytes[3],
            channel: u64::from(u32_at(8)) | u64::from(u32_at(12)) << 32,
            head_bytes: u32_at(4) as usize,
            payload_bytes: u32_at(16) as usize,
            crc: u32_at(20),
            crc_so_far,
        };
        let is_empty = header.head_bytes == 0 && header.payload_bytes == 0;
        match header.frame_type {
            frame_type::USER if header.head_bytes > HEAD_MAX || header.payload_bytes > PAYLOAD_MAX => {
                Err(Malformed::Length)
            }
            frame_type::KEEP_ALIVE if !is_empty => Err(Malformed::Length),
            frame_type::USER | frame_type::KEEP_ALIVE => Ok(header),
            unknown => Err(Malformed::Type(unknown)),
        }
    }

    fn check(&self, head: &[u8]) -> Result<(), Malformed> {
        let mut crc = self.crc_so_far;
        crc.update(head);
        if crc.value() == self.crc { Ok(()) } else { Err(Malformed::Checksum) }
    }
}

/// Decodes frames from bytes that arrive in any pieces.
///
/// Call [`Decoder::next`] until it returns no frame. If much of a payload is missing, receive it in place
/// between [`Decoder::take_payload`] and [`Decoder::give_payload`] instead.
pub struct Decoder(State);

enum State {
    /// A part of a header.
    Header { bytes: [u8; HEADER_BYTES], filled: usize },
    /// A part of a head.
    Head { header: Header, head: Vec<u8> },
    /// A part of a payload.
    Payload { begun: Begun, buf: Buf, filled: usize },
    /// The payload is being received in place, by the caller.
    Away(Begun),
    /// A frame was malformed, and so nothing after it can be decoded.
    Broken(Malformed),
}

/// A frame whose payload is missing.
struct Begun {
    channel: u64,
    kind: u8,
    head: Vec<u8>,
}

impl Begun {
    fn with(self, payload: Chain) -> Frame {
        Frame { channel: self.channel, kind: self.kind, head: self.head, payload }
    }
}

const BETWEEN_FRAMES: State = State::Header { bytes: [0; HEADER_BYTES], filled: 0 };

impl Default for Decoder {
    fn default() -> Decoder {
        Decoder(BETWEEN_FRAMES)
    }
}

impl Decoder {
    /// Takes bytes from the front of `bytes` until a frame is complete or none is left.
    ///
    /// # Errors
    /// Why the bytes are not a frame; all later calls return the same.
    pub fn next(&mut self, bytes: &mut &[u8]) -> Result<Option<Frame>, Malformed> {
        let next = self.step(bytes);
        if let Err(malformed) = next {
            self.0 = State::Broken(malformed);
        }
        next
    }

    fn step(&mut self, bytes: &mut &[u8]) -> Result<Option<Frame>, Malformed> {
        loop {
            match &mut self.0 {
                State::Header { bytes: header, filled } => {
                    *filled += move_bytes(bytes, &mut header[*filled..]);
                    if *filled < HEADER_BYTES {
                        return Ok(None);
                    }
                    let header = Header::parse(header)?;
                    let head = Vec::with_capacity(header.head_bytes.min(HEAD_STEP));
                    self.0 = State::Head { header, head };
                }
                State::Head { header, head } => {
                    let count = (header.head_bytes - head.len()).min(bytes.len());
                    let (taken, rest) = bytes.split_at(count);
                    head.extend_from_slice(taken);
                    *bytes = rest;
                    if head.len() < header.head_bytes {
                        return Ok(None);
                    }
                    header.check(head)?;
                    let (header, head) = (*header, std::mem::take(head));
                    self.0 = BETWEEN_FRAMES;
                    if header.frame_type == frame_type::KEEP_ALIVE {
                        continue;
                    }
                    let begun = Begun { channel: header.channel, kind: header.kind, head };
                    if header.payload_bytes == 0 {
                        return Ok(Some(begun.with(Chain::new())));
                    }
                    self.0 = State::Payload { begun, buf: Buf::uncleared(header.payload_bytes), filled: 0 };
                }
                State::Payload { buf, filled, .. } => {
                    *filled += move_bytes(bytes, &mut buf[*filled..]);
                    if *filled < buf.len() {
                        return Ok(None);
                    }
                    let State::Payload { begun, buf, .. } = std::mem::replace(&mut self.0, BETWEEN_FRAMES)
                    else {
                        unreachable!("it was just matched");
                    };
                    return Ok(Some(begun.with(buf.into())));
                }
                State::Away(_) => panic!("bytes came while the payload was received in place"),
                State::Broken(malformed) => return Err(*malformed),
            }
        }
    }

    /// How many bytes of a payload are missing; 0 if none is expected.
    pub fn payload_missing(&self) -> usize {
        match &self.0 {
            State::Payload { buf, filled, .. } => buf.len() - filled,
            _ => 0,
        }
    }

    /// The buffer of the expected payload, and how many bytes of it have arrived.
    pub fn take_payload(&mut self) -> Option<(Buf, usize)> {
        match std::mem::replace(&mut self.0, BETWEEN_FRAMES) {
            State::Payload { begun, buf, filled } => {
                self.0 = State::Away(begun);
                Some((buf, filled))
            }
            other => {
                self.0 = other;
                None
            }
        }
    }

    /// The frame with the payload that was taken and is complete now.
    ///
    /// # Panics
    /// If no payload was taken.
    pub fn give_payload(&mut self, payload: Buf) -> Frame {
        match std::mem::replace(&mut self.0, BETWEEN_FRAMES) {
            State::Away(begun) => begun.with(payload.into()),
            _ => panic!("no payload was taken"),
        }
    }
}

/// Moves as many bytes from the front of `from` as possible.
fn move_bytes(from: &mut &[u8], to: &mut [u8]) -> usize {
    let count = from.len().min(to.len());
    let (taken, rest) = from.split_at(count);
    to[..count].copy_from_slice(taken);
    *from = rest;
    count
}

#[cfg(test)]
mod tests;
