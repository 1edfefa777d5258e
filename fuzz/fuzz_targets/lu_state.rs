#![no_main]
//! The durable state of a unit.

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| fuzzing::lu_state::run(input));
