//! Bytes of another node as a message between copies.
//!
//! The decoder never panics, allocates no memory that the bytes do not justify, and what it accepts has only
//! one encoding.

use base::{Chain, crc32c};
use replica::Geometry;
use replica::wire::{HEADER_BYTES, Header, decode, encode};

/// Decodes a message whose payload is the last `input.0` bytes.
pub fn run(input: (u16, &[u8])) {
    let (payload_len, bytes) = input;
    let (bytes, payload) = bytes.split_at(bytes.len().saturating_sub(usize::from(payload_len)));
    if bytes.len() < HEADER_BYTES {
        return;
    }
    // The checksum is set right: otherwise nothing after it would be decoded.
    let mut bytes = bytes.to_vec();
    let crc = crc32c(&[&bytes[..28], &bytes[HEADER_BYTES..]].concat());
    bytes[28..32].copy_from_slice(&crc.to_le_bytes());
    let (header_bytes, body) = bytes.split_first_chunk::<HEADER_BYTES>().expect("long enough");
    let Ok(header) = Header::parse(header_bytes) else { return };
    let geometry = Geometry::new(100_000, 512);
    if let Ok(envelope) = decode(header, body, Chain::copy_of(payload), &geometry) {
        let (head, data) = encode(&envelope);
        assert_eq!((head, data.to_vec()), (bytes, payload.to_vec()));
    }
}
