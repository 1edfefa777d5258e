//! The two slots of a node's record. Their checksums are set right, so that the rest is parsed.

/// Parses a slot with this header, whose payload is the last `payload_len` bytes, and chooses between it and
/// a complete one of generation `other`.
pub fn run((other, payload_len, bytes): (u8, u16, &[u8])) {
    let (header, payload) = bytes.split_at(bytes.len().saturating_sub(usize::from(payload_len)));
    node::fuzzing::record(header, payload, u64::from(other));
}
