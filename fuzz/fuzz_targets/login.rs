#![no_main]
//! What an initiator sends to log in, in pieces.

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: fuzzing::login::Input| fuzzing::login::run(input));
