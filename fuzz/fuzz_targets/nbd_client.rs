#![no_main]
//! What an NBD client sends.

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (bool, &[u8])| fuzzing::nbd_client::run(input));
