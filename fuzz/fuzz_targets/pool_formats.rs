#![no_main]
//! Superblocks and catalogues of a pool.

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (bool, &[u8])| fuzzing::pool_formats::run(input));
