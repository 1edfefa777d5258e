//! Doors for the fuzz targets, in fuzz builds only: decoders with whole checksums.

use base::crc32c;

use crate::catalog::Catalog;
use crate::superblock::{Superblock, Version};

/// Decodes a superblock with this content.
pub fn superblock(content: &[u8]) {
    let mut bytes = content.to_vec();
    bytes.resize(crate::superblock::CRC_AT, 0);
    bytes.extend_from_slice(&crc32c(&bytes).to_le_bytes());
    if let Ok(superblock) = Superblock::decode(&bytes) {
        let again = Superblock::decode(&superblock.encode()).expect("what is written can be read");
        assert_eq!(again, superblock);
    }
}

/// Decodes a catalogue of either version.
pub fn catalog(bytes: &[u8]) {
    const EXTENT_BYTES: u64 = 4 << 20;
    for version in [Version::First, Version::Copies] {
        if let Ok(catalog) = Catalog::decode(version, bytes, EXTENT_BYTES) {
            let encoded = catalog.encode(version);
            let again =
                Catalog::decode(version, &encoded, EXTENT_BYTES).expect("what is written can be read");
            assert_eq!(again.encode(version), encoded);
        }
    }
}
