#![no_main]
//! What a target sends to an initiator.

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: fuzzing::initiator::Input| fuzzing::initiator::run(input));
