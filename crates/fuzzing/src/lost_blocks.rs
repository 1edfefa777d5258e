//! The list of lost blocks of a copy's slice. Its checksum is set right, so that the rest is parsed.

/// Parses a list.
pub fn run(bytes: &[u8]) {
    store::fuzzing::lost_blocks(bytes);
}
