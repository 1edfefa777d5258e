#![no_main]
//! A whole session of mostly valid PDUs.

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: fuzzing::session::Input| fuzzing::session::run(input));
