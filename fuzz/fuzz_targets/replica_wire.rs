#![no_main]
//! Bytes of another node as a message between copies.

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u16, &[u8])| fuzzing::replica_wire::run(input));
