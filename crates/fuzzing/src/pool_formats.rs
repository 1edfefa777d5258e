//! Superblocks and catalogs of a pool. Their checksums are set right, so that the rest is parsed.

/// Parses a superblock, or else a catalog.
pub fn run((superblock, bytes): (bool, &[u8])) {
    match superblock {
        true => store::fuzzing::superblock(bytes),
        false => store::fuzzing::catalog(bytes),
    }
}
