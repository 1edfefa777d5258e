#![no_main]
//! Bytes of another node as frames of a link.

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: ([u8; 4], &[u8])| fuzzing::link_frames::run(input));
