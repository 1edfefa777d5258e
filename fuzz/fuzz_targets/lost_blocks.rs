#![no_main]
//! The list of lost blocks of a copy's slice.

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| fuzzing::lost_blocks::run(input));
