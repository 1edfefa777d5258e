#![no_main]
//! Bytes of another node's engine of the cluster's record.

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (bool, &[u8])| fuzzing::cluster_bytes::run(input));
