#![no_main]
//! The slots of a node's record.

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u8, u16, &[u8])| fuzzing::node_record::run(input));
