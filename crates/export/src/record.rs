//! Records of a stream.

use base::crc32c;

/// The most bytes of the volume in a record with data.
pub const RECORD_BYTES_MAX: usize = 1 << 20;

/// What each record begins with.
pub(crate) const HEAD_BYTES: usize = 32;
/// Bytes of a SHA-256.
pub(crate) const DIGEST_BYTES: usize = 32;

/// What a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Bytes of the volume follow, as they are.
    Data,
    /// Bytes of the volume follow, as an LZ4 block.
    Lz4,
    /// The range became zeros.
    Zeros,
    /// The stream ends here. Its digest follows.
    End,
}

/// What each record begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub kind: Kind,
    /// How many bytes follow.
    pub stored: u32,
    /// Where the range begins in the volume. At the end: how many records come before.
    pub offset: u64,
    /// How long the range is. At the end: how long all ranges with data are together.
    pub len: u64,
    /// The checksum of the bytes that follow.
    pub crc: u32,
}

impl Head {
    pub(crate) fn encode(&self) -> [u8; HEAD_BYTES] {
        let [kind, compression] = match self.kind {
            Kind::Data => [1, 0],
            Kind::Lz4 => [1, 1],
            Kind::Zeros => [2, 0],
            Kind::End => [3, 0],
        };
        let mut bytes = [0; HEAD_BYTES];
        bytes[..2].copy_from_slice(&[kind, compression]);
        bytes[4..8].copy_from_slice(&self.stored.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.offset.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.len.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.crc.to_le_bytes());
        let crc = crc32c(&bytes[..28]);
        bytes[28..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// `None`: it is damaged, or what follows would be too long for its kind.
    pub(crate) fn decode(bytes: &[u8; HEAD_BYTES]) -> Option<Head> {
        let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|byte| bytes[at + byte]));
        let long = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| bytes[at + byte]));
        if word(28) != crc32c(&bytes[..28]) || bytes[2..4] != [0; 2] {
            return None;
        }
        let kind = match [bytes[0], bytes[1]] {
            [1, 0] => Kind::Data,
            [1, 1] => Kind::Lz4,
            [2, 0] => Kind::Zeros,
            [3, 0] => Kind::End,
            _ => return None,
        };
        let head = Head { kind, stored: word(4), offset: long(8), len: long(16), crc: word(24) };
        let (stored, len) = (u64::from(head.stored), head.len);
        let fits_record = (1..=RECORD_BYTES_MAX as u64).contains(&len);
        let fits = match kind {
            Kind::Data => fits_record && stored == len,
            Kind::Lz4 => fits_record && (1..len).contains(&stored),
            Kind::Zeros => len > 0 && stored == 0,
            Kind::End => stored == DIGEST_BYTES as u64,
        };
        fits.then_some(head)
    }
}
