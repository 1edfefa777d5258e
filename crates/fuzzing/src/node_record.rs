//! The two slots of a node's record. Their checksums hold, so that what is behind them is reached.

/// Takes a slot with this header, whose payload is the last so many bytes, and chooses between it and a whole
/// one of this generation.
pub fn run((other, payload_len, bytes): (u8, u16, &[u8])) {
    let (header, payload) = bytes.split_at(bytes.len().saturating_sub(usize::from(payload_len)));
    node::fuzzing::record(header, payload, u64::from(other));
}
