#![no_main]
//! Commands of several initiators, with any CDB and data.

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: fuzzing::commands::Input| fuzzing::commands::run(input));
