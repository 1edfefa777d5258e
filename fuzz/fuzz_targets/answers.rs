#![no_main]
//! What a target's units answer to an initiator's commands.

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u8, &[u8])| fuzzing::answers::run(input));
