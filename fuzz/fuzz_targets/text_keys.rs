#![no_main]
//! Text segments, and what stands in them.

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| fuzzing::text_keys::run(input));
