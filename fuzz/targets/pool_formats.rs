#![no_main]
//! Superblocks and catalogues of a pool. Their checksums hold, so that what is behind them is reached.

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (bool, &[u8])| match input {
    (true, bytes) => store::fuzzing::superblock(bytes),
    (false, bytes) => store::fuzzing::catalog(bytes),
});
