#![no_main]
//! Heads of records, roots, leaves and states of a log.

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u8, &[u8])| fuzzing::log_formats::run(input));
