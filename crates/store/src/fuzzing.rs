//! Doors for the fuzz targets: decoders with whole checksums.

use std::collections::BTreeMap;
use std::rc::Rc;

use base::{BlockSize, ByteLen, crc32c};

use crate::catalog::{Catalog, DiskEntry, Host, Logs, VolumeEntry, VolumeKind};
use crate::copy::PoolMark;
use crate::extent::ExtentRun;
use crate::geometry::Geometry;
use crate::id::{DiskId, HostId, PoolId, VolumeId};
use crate::log::leaf::Leaf;
use crate::log::place::{SEGMENT_SLOTS_MIN, SLOT_BYTES};
use crate::log::record::Head;
use crate::log::root::Root;
use crate::log::state::State;
use crate::stripe::Stripe;
use crate::superblock::Superblock;

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

/// Decodes a catalogue.
pub fn catalog(bytes: &[u8]) {
    if let Ok(catalog) = Catalog::decode(bytes, EXTENT_BYTES) {
        let encoded = catalog.encode();
        let again = Catalog::decode(&encoded, EXTENT_BYTES).expect("what is written can be read");
        assert_eq!(again.encode(), encoded);
    }
}

/// Puts the checksum of a slot where heads and roots have it.
fn with_checksum(content: &[u8]) -> Vec<u8> {
    let mut bytes = content.to_vec();
    bytes.resize(SLOT_BYTES, 0);
    bytes[8..12].fill(0);
    let crc = crc32c(&bytes);
    bytes[8..12].copy_from_slice(&crc.to_le_bytes());
    bytes
}

/// Decodes the head of a record with this content.
pub fn log_head(content: &[u8]) {
    if let Some(head) = Head::decode(&with_checksum(content)) {
        assert_eq!(Head::decode(&head.encode()), Some(head), "what is written can be read");
    }
}

/// Decodes the root of a log with this content.
pub fn log_root(content: &[u8]) {
    if let Some(root) = Root::decode(&with_checksum(content)) {
        assert_eq!(Root::decode(&root.encode()), Some(root), "what is written can be read");
    }
}

/// Decodes a leaf with this content, whichever it is, and looks up all of it.
pub fn log_leaf(content: &[u8]) {
    let mut bytes = content.to_vec();
    if bytes.len() < 32 {
        return;
    }
    let crc = crc32c(&bytes[8..]);
    bytes[4..8].copy_from_slice(&crc.to_le_bytes());
    let field = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
    let branch = u32::from_le_bytes(bytes[8..12].try_into().expect("four bytes"));
    if let Some(leaf) = Leaf::check(&bytes, (branch, field(12)), field(24)) {
        let spots = leaf.spots();
        let mut tail = spots[100..].to_vec();
        leaf.read(100, &mut tail);
        assert_eq!(tail, spots[100..]);
    }
}

/// Decodes the state of a log with the smallest segments.
pub fn log_state(bytes: &[u8]) {
    if let Some(state) = State::decode(bytes, SEGMENT_SLOTS_MIN) {
        let again = State::decode(&state.encode_with(&state.leaves), SEGMENT_SLOTS_MIN);
        assert_eq!(again, Some(state), "what is written can be read");
    }
}

/// What [`superblock`] takes.
pub fn superblock_seed() -> Vec<u8> {
    let mut bytes = superblock_example().encode();
    bytes.truncate(crate::superblock::CRC_AT);
    let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    bytes.truncate(end);
    bytes
}

/// What [`catalog`] takes.
pub fn catalog_seed() -> Vec<u8> {
    catalog_example(512 << 20, &[4]).encode()
}

/// Sixteen bytes that count up from `first`.
pub(crate) fn id(first: u8) -> [u8; 16] {
    std::array::from_fn(|index| first + index as u8)
}

/// Of disk 1 of 2.
pub(crate) fn superblock_example() -> Superblock {
    Superblock {
        pool: PoolId(id(0x10)),
        disk: DiskId(id(0x20)),
        index: 1,
        count: 2,
        generation: 7,
        geometry: Geometry {
            disk_bytes: 8 << 20,
            extent_bytes: 64 << 10,
            extents: 113,
            slot_bytes: 216 << 10,
        },
        reserved: true,
    }
}

/// One disk of 113 extents, and a volume of two slices, of which the first has these extents.
pub(crate) fn catalog_example(disk_bytes: u64, first_slice: &[u32]) -> Catalog {
    let run = |start: &u32| ExtentRun { disk: 0, start: *start, count: 1 };
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
        slices: vec![first_slice.iter().map(run).collect(), vec![run(&5)]],
        map: Vec::new(),
        branch: 0,
    };
    Catalog {
        name: "p".into(),
        host: Host { id: HostId([0xaa; 16]), name: "node-a".into() },
        exported: false,
        disks: vec![DiskEntry { id: DiskId(id(0x20)), bytes: disk_bytes, extents: 113 }],
        volumes: BTreeMap::from([(VolumeId(id(0x30)), Rc::new(volume))]),
        mark: PoolMark::default(),
        sealed: 0,
        logs: Logs::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Flips and cuts of whole ones; what is decoded must not panic.
    #[test]
    fn no_part_of_a_log_makes_a_decoder_panic() {
        use crate::log::golden;
        let state = golden::state();
        shake(&golden::head().encode(), log_head);
        shake(&golden::root().encode(), log_root);
        shake(&golden::leaf(), log_leaf);
        shake(&state.encode_with(&state.leaves), log_state);
    }

    fn shake(seed: &[u8], decode: fn(&[u8])) {
        let mut rng = base::Rng::new(1);
        decode(seed);
        for _ in 0..20_000 {
            let mut bytes = seed.to_vec();
            for _ in 0..=rng.below(3) {
                let at = rng.below(bytes.len().min(200) as u64) as usize;
                bytes[at] = if rng.one_in(2) { 0xff } else { rng.next() as u8 };
            }
            if rng.one_in(4) {
                bytes.truncate(rng.below(bytes.len() as u64 + 1) as usize);
            }
            decode(&bytes);
        }
    }

    #[test]
    fn the_seeds_are_whole() {
        let mut bytes = superblock_seed();
        bytes.resize(crate::superblock::CRC_AT, 0);
        bytes.extend_from_slice(&crc32c(&bytes).to_le_bytes());
        assert!(Superblock::decode(&bytes).is_ok());
        let catalog = Catalog::decode(&catalog_seed(), EXTENT_BYTES);
        assert!(catalog.is_ok(), "{catalog:?}");
    }
}
