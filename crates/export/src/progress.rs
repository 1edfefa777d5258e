//! How far a stream was read or written: what is needed to continue it.

use sha2::{Digest, Sha256};

use crate::record::{DIGEST_BYTES, Head, Kind};

/// How far a stream was read or written: its header, and some whole records.
#[derive(Clone, Debug)]
pub struct Progress {
    /// Of all bytes so far.
    hash: Sha256,
    bytes: u64,
    records: u64,
    data_bytes: u64,
    /// Where the last record ends in the volume.
    end: u64,
    /// The volume's size.
    size: u64,
    is_incremental: bool,
}

impl Progress {
    pub(crate) fn new(header: &[u8], size: u64, is_incremental: bool) -> Progress {
        let (bytes, records, data_bytes, end) = (header.len() as u64, 0, 0, 0);
        let hash = Sha256::new_with_prefix(header);
        Progress { hash, bytes, records, data_bytes, end, size, is_incremental }
    }

    /// How many bytes of the stream these are.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Where the last record ends in the volume: what comes before is complete.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// How many bytes of the volume the records have.
    pub fn data_bytes(&self) -> u64 {
        self.data_bytes
    }

    /// Whether a range can be the next one: it lies behind the last one, and in the volume.
    pub(crate) fn takes(&self, head: &Head) -> bool {
        let end = head.offset.checked_add(head.len);
        let is_next = head.offset >= self.end && end.is_some_and(|end| end <= self.size);
        // In a full stream, what has no record is zeros.
        is_next && (self.is_incremental || head.kind != Kind::Zeros)
    }

    /// Notes a record.
    pub(crate) fn add(&mut self, head: &Head, encoded: &[u8], stored: &[u8]) {
        self.hash.update(encoded);
        self.hash.update(stored);
        self.bytes += (encoded.len() + stored.len()) as u64;
        self.records += 1;
        self.end = head.offset + head.len;
        if head.kind != Kind::Zeros {
            self.data_bytes += head.len;
        }
    }

    /// The last record of the stream: its head, and the digest.
    pub(crate) fn last(&self) -> (Head, [u8; DIGEST_BYTES]) {
        let digest: [u8; DIGEST_BYTES] = self.hash.clone().finalize().into();
        let (stored, crc) = (DIGEST_BYTES as u32, base::crc32c(&digest));
        (Head { kind: Kind::End, stored, offset: self.records, len: self.data_bytes, crc }, digest)
    }
}
