#![no_main]
//! A stream of PDUs from either side.

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (bool, bool, &[u8])| fuzzing::wire::run(input));
