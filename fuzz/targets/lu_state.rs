#![no_main]
//! The durable state of a unit.

use libfuzzer_sys::fuzz_target;
use proto::scsi::LuState;

fuzz_target!(|bytes: &[u8]| {
    if let Some(state) = LuState::from_durable(bytes) {
        let again = LuState::from_durable(&state.to_durable()).expect("what is written can be read");
        assert_eq!(again.to_durable(), state.to_durable());
    }
});
