#![no_main]
//! What another node sends behind the handshake of TLS.

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: fuzzing::link_records::Input| fuzzing::link_records::run(input));
