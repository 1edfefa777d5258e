//! Doors for the fuzz targets: decoders with whole checksums.

use std::collections::BTreeMap;
use std::rc::Rc;

use base::{BlockSize, ByteLen, crc32c};

use crate::catalog::{Catalog, DiskEntry, Host, VolumeEntry, VolumeKind};
use crate::extent::ExtentRun;
use crate::geometry::Geometry;
use crate::id::{DiskId, HostId, PoolId, VolumeId};
use crate::stripe::Stripe;
use crate::superblock::{Superblock, Version};

/// Of the pools whose catalogues are decoded.
const EXTENT_BYTES: u64 = 4 << 20;

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
    for version in [Version::First, Version::Copies] {
        if let Ok(catalog) = Catalog::decode(version, bytes, EXTENT_BYTES) {
            let encoded = catalog.encode(version);
            let again =
                Catalog::decode(version, &encoded, EXTENT_BYTES).expect("what is written can be read");
            assert_eq!(again.encode(version), encoded);
        }
    }
}

/// What [`superblock`] takes: disk 1 of 2.
pub fn superblock_seed() -> Vec<u8> {
    let geometry = Geometry::new(8 << 20, 64 << 10, 216 << 10).expect("the disk has room for extents");
    let superblock = Superblock {
        version: Version::First,
        pool: PoolId([1; 16]),
        disk: DiskId([2; 16]),
        index: 1,
        count: 2,
        generation: 7,
        geometry,
        reserved: Some(true),
    };
    let mut bytes = superblock.encode();
    bytes.truncate(crate::superblock::CRC_AT);
    let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    bytes.truncate(end);
    bytes
}

/// What [`catalog`] takes, in both versions: one disk, and a volume of two slices.
pub fn catalog_seeds() -> [Vec<u8>; 2] {
    let run = |start| ExtentRun { disk: 0, start, count: 1 };
    let volume = VolumeEntry {
        name: "db".into(),
        kind: VolumeKind::Thick,
        block_size: BlockSize::B512,
        physical_exponent: 3,
        stripe: Stripe::new(2, ByteLen(64 << 10)),
        capacity: ByteLen(192 << 10),
        created: 1_700_000_000,
        copy: None,
        lu_state: vec![1, 2, 3],
        slices: vec![vec![run(4)], vec![run(5)]],
        map: Vec::new(),
    };
    let catalog = Catalog {
        name: "p".into(),
        host: Host { id: HostId([3; 16]), name: "node-a".into() },
        exported: false,
        disks: vec![DiskEntry { id: DiskId([2; 16]), bytes: 512 << 20, extents: 113 }],
        volumes: BTreeMap::from([(VolumeId([4; 16]), Rc::new(volume))]),
    };
    [Version::First, Version::Copies].map(|version| catalog.encode(version))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seeds_are_whole() {
        let mut bytes = superblock_seed();
        bytes.resize(crate::superblock::CRC_AT, 0);
        bytes.extend_from_slice(&crc32c(&bytes).to_le_bytes());
        assert!(Superblock::decode(&bytes).is_ok());
        for (version, bytes) in [Version::First, Version::Copies].into_iter().zip(catalog_seeds()) {
            let catalog = Catalog::decode(version, &bytes, EXTENT_BYTES);
            assert!(catalog.is_ok(), "{version:?}: {catalog:?}");
        }
    }
}
