//! The durable state of a unit. Its checksum is set right, so that the rest is parsed.

use base::crc32c;
use proto::scsi::LuState;

/// Parses a state whose checksum is appended here.
pub fn run(bytes: &[u8]) {
    let bytes = [bytes, &crc32c(bytes).to_le_bytes()].concat();
    if let Some(state) = LuState::from_durable(&bytes) {
        let again = LuState::from_durable(&state.to_durable()).expect("what is written can be read");
        assert_eq!(again.to_durable(), state.to_durable());
    }
}
