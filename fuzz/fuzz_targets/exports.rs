#![no_main]
//! Exports of snapshots.

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| fuzzing::exports::run(input));
