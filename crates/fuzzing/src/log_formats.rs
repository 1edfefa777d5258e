//! The content of a log's segments, and its root. Checksums are set right, so that the rest is parsed.

/// Parses the head of a record, a root, a leaf, a state, or a slot of it.
pub fn run((which, bytes): (u8, &[u8])) {
    match which % 5 {
        0 => store::fuzzing::log_head(bytes),
        1 => store::fuzzing::log_root(bytes),
        2 => store::fuzzing::log_leaf(bytes),
        3 => store::fuzzing::log_state(bytes),
        _ => store::fuzzing::log_state_slot(bytes),
    }
}
