//! Requests (sections *Request message* and *Request types*).

use crate::violation::Violation;
use crate::wire::{REQUEST_MAGIC, command, command_flag};

/// The most bytes of a write. They are skipped, as nothing is written; the protocol calls more than that a
/// denial of service.
pub const WRITE_BYTES_MAX: u32 = 32 << 20;

const REQUEST_BYTES: usize = 28;

/// What a client asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// What is to be done.
    pub command: Command,
    /// Returned with each reply to this request.
    pub cookie: u64,
    /// Where the range begins in the export.
    pub offset: u64,
    /// The length of the range in bytes.
    pub len: u32,
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Read the range.
    Read {
        /// In one chunk.
        is_whole: bool,
    },
    /// Tell what is known about the range.
    BlockStatus {
        /// Only about its first extent.
        is_one: bool,
    },
    /// End the connection when all other requests have been answered.
    Disconnect,
    /// Change the range, which is refused.
    Change,
    /// Something unknown, or with flags that it does not have.
    Unknown,
}

impl Command {
    fn new(kind: u16, flags: u16) -> Command {
        match (kind, flags) {
            (command::READ, 0 | command_flag::DF) => Command::Read { is_whole: flags != 0 },
            (command::BLOCK_STATUS, 0 | command_flag::REQ_ONE) => Command::BlockStatus { is_one: flags != 0 },
            // It has no reply that could be an error.
            (command::DISC, _) => Command::Disconnect,
            (command::WRITE | command::TRIM | command::WRITE_ZEROES, _) => Command::Change,
            _ => Command::Unknown,
        }
    }
}

/// Decodes the requests of a connection. It keeps at most one that has not all come, besides what it was
/// given.
#[derive(Debug, Default)]
pub struct Requests {
    input: Vec<u8>,
    /// How many more bytes are data of a write.
    skips: u32,
}

impl Requests {
    /// Takes bytes of the client. After each call, call [`Requests::next`] until it returns `None`.
    pub fn handle_bytes(&mut self, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
    }

    /// The next request; `None`: more bytes are needed.
    ///
    /// # Errors
    /// What follows cannot be understood: the connection must be ended.
    #[allow(clippy::should_implement_trait)] // More may come after `None`.
    pub fn next(&mut self) -> Result<Option<Request>, Violation> {
        let skipped = self.input.len().min(self.skips as usize);
        self.input.drain(..skipped);
        self.skips -= skipped as u32;
        let Some(bytes) = self.input.first_chunk::<REQUEST_BYTES>() else { return Ok(None) };
        let [m0, m1, m2, m3, f0, f1, k0, k1, rest @ ..] = *bytes;
        let [c0, c1, c2, c3, c4, c5, c6, c7, o0, o1, o2, o3, o4, o5, o6, o7, l0, l1, l2, l3] = rest;
        let magic = u32::from_be_bytes([m0, m1, m2, m3]);
        if magic != REQUEST_MAGIC {
            return Err(Violation::RequestMagic(magic));
        }
        let (flags, kind) = (u16::from_be_bytes([f0, f1]), u16::from_be_bytes([k0, k1]));
        let len = u32::from_be_bytes([l0, l1, l2, l3]);
        if kind == command::WRITE {
            if len > WRITE_BYTES_MAX {
                return Err(Violation::LongWrite(len));
            }
            self.skips = len;
        }
        self.input.drain(..REQUEST_BYTES);
        Ok(Some(Request {
            command: Command::new(kind, flags),
            cookie: u64::from_be_bytes([c0, c1, c2, c3, c4, c5, c6, c7]),
            offset: u64::from_be_bytes([o0, o1, o2, o3, o4, o5, o6, o7]),
            len,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const READ: &[u8] = b"\x25\x60\x95\x13\0\0\0\0\x01\x02\x03\x04\x05\x06\x07\x08\
                          \0\0\0\0\0\x10\0\0\0\0\x02\0";

    fn request(flags: u16, kind: u16, len: u32) -> Vec<u8> {
        let mut bytes = READ.to_vec();
        bytes[4..6].copy_from_slice(&flags.to_be_bytes());
        bytes[6..8].copy_from_slice(&kind.to_be_bytes());
        bytes[24..].copy_from_slice(&len.to_be_bytes());
        bytes
    }

    #[test]
    fn a_request_is_decoded_wherever_it_is_cut() {
        let expected = Request {
            command: Command::Read { is_whole: false },
            cookie: 0x0102_0304_0506_0708,
            offset: 0x10_0000,
            len: 512,
        };
        for cut in 0..READ.len() {
            let mut requests = Requests::default();
            requests.handle_bytes(&READ[..cut]);
            assert_eq!(requests.next(), Ok(None));
            requests.handle_bytes(&READ[cut..]);
            assert_eq!(requests.next(), Ok(Some(expected)));
            assert_eq!(requests.next(), Ok(None));
        }
    }

    #[test]
    fn flags_belong_to_their_commands() {
        for (flags, kind, expected) in [
            (4, 0, Command::Read { is_whole: true }),
            (8, 0, Command::Unknown),
            (1, 0, Command::Unknown),
            (0, 7, Command::BlockStatus { is_one: false }),
            (8, 7, Command::BlockStatus { is_one: true }),
            (4, 7, Command::Unknown),
            (0, 2, Command::Disconnect),
            (0, 3, Command::Unknown), // a flush was not offered
            (0, 4, Command::Change),
            (0, 5, Command::Unknown),
            (2, 6, Command::Change),
            (0, 0xffff, Command::Unknown),
        ] {
            let mut requests = Requests::default();
            requests.handle_bytes(&request(flags, kind, 512));
            assert_eq!(requests.next().unwrap().unwrap().command, expected, "{kind} with {flags}");
        }
    }

    #[test]
    fn data_of_a_write_is_skipped_as_it_comes() {
        let mut requests = Requests::default();
        requests.handle_bytes(&request(0, 1, 10_000));
        assert_eq!(requests.next().unwrap().unwrap().command, Command::Change);
        for _ in 0..4 {
            requests.handle_bytes(&[0x25; 2400]);
            assert_eq!(requests.next(), Ok(None));
            assert!(requests.input.is_empty());
        }
        requests.handle_bytes(&[0x25; 400]);
        requests.handle_bytes(READ);
        assert_eq!(requests.next().unwrap().unwrap().len, 512);
    }

    #[test]
    fn what_is_no_request_ends_the_connection() {
        let mut requests = Requests::default();
        requests.handle_bytes(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n");
        assert_eq!(requests.next(), Err(Violation::RequestMagic(0x4745_5420)));
        let mut requests = Requests::default();
        requests.handle_bytes(&request(0, 1, (32 << 20) + 1));
        assert_eq!(requests.next(), Err(Violation::LongWrite((32 << 20) + 1)));
    }
}
