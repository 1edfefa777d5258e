#![no_main]
//! A page of checksums of a thick volume.

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| fuzzing::checksum_page::run(input));
