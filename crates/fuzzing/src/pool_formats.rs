//! Superblocks and catalogues of a pool. Their checksums hold, so that what is behind them is reached.

/// Takes a superblock, or else a catalogue.
pub fn run((superblock, bytes): (bool, &[u8])) {
    match superblock {
        true => store::fuzzing::superblock(bytes),
        false => store::fuzzing::catalog(bytes),
    }
}
