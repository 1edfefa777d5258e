//! The content of a log's segments, and its root. Checksums are set right, so that the rest is parsed.

/// Parses the head of a record, a root, a leaf, a state, a slot of it or a compressed block, or compresses a
/// block.
pub fn run((which, bytes): (u8, &[u8])) {
    match which % 7 {
        0 => store::fuzzing::log_head(bytes),
        1 => store::fuzzing::log_root(bytes),
        2 => store::fuzzing::log_leaf(bytes),
        3 => store::fuzzing::log_state(bytes),
        4 => store::fuzzing::log_state_slot(bytes),
        5 => store::fuzzing::log_packed(bytes),
        _ => store::fuzzing::log_block(bytes),
    }
}
