//! The formats of `docs/formats/pool.md`, byte by byte.
//!
//! The bytes were computed from the tables there, not by this crate. If one of these tests fails, existing
//! pools can no longer be read: the version must change.

use std::rc::Rc;

use base::{ByteLen, Rng};

use crate::catalog::{
    CLONE_DEPTH_MAX, Catalog, Compression, LogEntry, Logs, Malformed, OtherLayout, SpacePolicy, VolumeEntry,
    VolumeKind, WhenFull,
};
use crate::copy::{CopyOf, CopyState, PoolMark};
use crate::extent::ExtentRun;
use crate::fuzzing::{self, id};
use crate::id::{ClusterId, PoolId, VolumeId};
use crate::log::marks::Origin;
use crate::slot::{self, Header};
use crate::stripe::Stripe;
use crate::superblock::{Superblock, Unreadable};

const SUPERBLOCK: [u8; 84] = [
    b'U', b'R', b'S', b'A', b'P', b'O', b'O', b'L', // magic
    0x01, 0x00, 0x01, 0x00, 0x02, 0x00, 0x00, 0x00, // version 1, disk 1 of 2
    0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, 0x19, 0x1a, 0x1b, 0x1c, 0x1d, 0x1e,
    0x1f, // pool
    0x20, 0x21, 0x22, 0x23, 0x24, 0x25, 0x26, 0x27, 0x28, 0x29, 0x2a, 0x2b, 0x2c, 0x2d, 0x2e,
    0x2f, // disk
    0x07, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, // generation 7
    0x00, 0x00, 0x80, 0x00, 0x00, 0x00, 0x00, 0x00, // 8 MiB
    0x00, 0x00, 0x01, 0x00, 0x00, 0x00, 0x00, 0x00, // extents of 64 KiB
    0x00, 0x60, 0x03, 0x00, 0x00, 0x00, 0x00, 0x00, // slots of 216 KiB
    0x71, 0x00, 0x00, 0x00, // 113 extents
];

/// The checksum at the end, over 4092 bytes, with 1 (zeroing frees the space) and with 2 (zeroing keeps it)
/// at byte 84, and 1 (data) at byte 85.
const SUPERBLOCK_CRC: [[u8; 4]; 2] = [[0x44, 0xa9, 0x7c, 0x0b], [0x9c, 0xfc, 0xc3, 0x66]];

const SLOT_HEADER: [u8; 64] = [
    b'U', b'R', b'S', b'A', b'M', b'E', b'T', b'A', // magic
    0x01, 0x00, 0x00, 0x00, 0xed, 0x30, 0x2e, 0xe8, // version 1, checksum
    0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, 0x19, 0x1a, 0x1b, 0x1c, 0x1d, 0x1e,
    0x1f, // pool
    0x07, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, // generation 7
    0x16, 0x01, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, // 278 bytes follow
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, // reserved
];

/// Everything up to the first volume, except whether it is a copy.
const START: [u8; 154] = [
    0x01, b'p', // the pool's name
    0xaa, 0xaa, 0xaa, 0xaa, 0xaa, 0xaa, 0xaa, 0xaa, 0xaa, 0xaa, 0xaa, 0xaa, 0xaa, 0xaa, 0xaa,
    0xaa, // host
    0x06, b'n', b'o', b'd', b'e', b'-', b'a', 0x00, // its name; not exported
    0x01, 0x00, // one disk
    0x20, 0x21, 0x22, 0x23, 0x24, 0x25, 0x26, 0x27, 0x28, 0x29, 0x2a, 0x2b, 0x2c, 0x2d, 0x2e,
    0x2f, // disk
    0x00, 0x00, 0x80, 0x00, 0x00, 0x00, 0x00, 0x00, 0x71, 0x00, 0x00, 0x00, // 8 MiB, 113 extents
    0x02, 0x00, 0x00, 0x00, // two volumes
    0x30, 0x31, 0x32, 0x33, 0x34, 0x35, 0x36, 0x37, 0x38, 0x39, 0x3a, 0x3b, 0x3c, 0x3d, 0x3e,
    0x3f, // volume
    0x02, b'd', b'b', // its name
    0x01, 0x09, 0x03, 0x10, // thick, 2^9 a block, 2^3 blocks a physical block, 2^16 a stripe unit
    0x00, 0x00, 0x03, 0x00, 0x00, 0x00, 0x00, 0x00, // 192 KiB
    0x00, 0xf1, 0x53, 0x65, 0x00, 0x00, 0x00, 0x00, // made in November 2023
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, // epoch 0
    0x03, 0x00, 0x00, 0x00, 0x01, 0x02, 0x03, // three bytes of a logical unit's state
    0x02, 0x00, // two slices
    0x02, 0x00, 0x00, 0x00, // the first has two runs
    0x00, 0x00, 0x04, 0x00, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00, // disk 0, from extent 4 on, 1
    0x00, 0x00, 0x09, 0x00, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00, // disk 0, from extent 9 on, 1
    0x01, 0x00, 0x00, 0x00, // the second has one
    0x00, 0x00, 0x05, 0x00, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00, // disk 0, from extent 5 on, 1
];

/// That the first volume is not a copy; and a second volume, which is one.
const COPY: [u8; 100] = [
    0x00, // no copy
    0x40, 0x41, 0x42, 0x43, 0x44, 0x45, 0x46, 0x47, 0x48, 0x49, 0x4a, 0x4b, 0x4c, 0x4d, 0x4e,
    0x4f, // volume
    0x02, b'c', b'p', // its name
    0x01, 0x09, 0x03, 0x10, // thick, 2^9 a block, 2^3 blocks a physical block, 2^16 a stripe unit
    0x00, 0x00, 0x01, 0x00, 0x00, 0x00, 0x00, 0x00, // 64 KiB
    0x00, 0xf1, 0x53, 0x65, 0x00, 0x00, 0x00, 0x00, // made in November 2023
    0x02, 0x01, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, // epoch 258
    0x00, 0x00, 0x00, 0x00, // no state of a logical unit
    0x01, 0x00, // one slice
    0x01, 0x00, 0x00, 0x00, // of one run
    0x00, 0x00, 0x06, 0x00, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00, // disk 0, from extent 6 on, 1
    0x02, 0x03, // a copy with content that counts, in slot 3
    0x50, 0x51, 0x52, 0x53, 0x54, 0x55, 0x56, 0x57, 0x58, 0x59, 0x5a, 0x5b, 0x5c, 0x5d, 0x5e,
    0x5f, // cluster
    0x01, 0x00, 0x00, 0x00, // its map has one run
    0x00, 0x00, 0x07, 0x00, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00, // disk 0, from extent 7 on, 1
];

/// The pool's mark.
const MARK: [u8; 24] = [
    0x09, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, // marked for the ninth time
    0x00, 0xf1, 0x53, 0x65, 0x00, 0x00, 0x00, 0x00, // in November 2023
    0x05, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, // all disks are of generation 5 at least
];

fn catalog_bytes() -> Vec<u8> {
    [&START[..], &COPY[..], &MARK[..]].concat()
}

fn superblock() -> Superblock {
    fuzzing::superblock_example()
}

/// A catalog with a volume, and a volume that is a copy.
fn catalog() -> Catalog {
    let mut catalog = fuzzing::catalog_example(8 << 20, &[4, 9]);
    let run = |start| ExtentRun { disk: 0, start, count: 1 };
    let volume = VolumeEntry {
        name: "cp".into(),
        stripe: Stripe::new(1, ByteLen(64 << 10)),
        capacity: ByteLen(64 << 10),
        copy: Some(CopyOf {
            cluster: ClusterId(id(0x50)),
            slot: 3,
            state: CopyState::Trusted { epoch: 258 },
        }),
        lu_state: Vec::new(),
        slices: vec![vec![run(6)]],
        map: vec![run(7)],
        ..(*catalog.volumes[&VolumeId(id(0x30))]).clone()
    };
    catalog.volumes.insert(VolumeId(id(0x40)), Rc::new(volume));
    (catalog.mark, catalog.sealed) = (PoolMark { count: 9, at: 1_700_000_000 }, 5);
    catalog
}

#[test]
fn superblock_bytes() {
    for (at, reserved) in [false, true].into_iter().enumerate() {
        let superblock = Superblock { reserved, ..superblock() };
        let bytes = superblock.encode();
        assert_eq!(bytes.len(), 4096);
        assert_eq!((&bytes[..84], &bytes[84..86]), (&SUPERBLOCK[..], &[at as u8 + 1, 1][..]));
        assert!(bytes[86..4092].iter().all(|byte| *byte == 0));
        assert_eq!(bytes[4092..], SUPERBLOCK_CRC[at]);
        assert_eq!(Superblock::decode(&bytes), Ok(superblock));
    }
}

#[test]
fn slot_bytes() {
    let bytes = slot::encode(PoolId(id(0x10)), 7, &catalog_bytes());
    assert_eq!(bytes[..64], SLOT_HEADER);
    let header = slot::decode_header(PoolId(id(0x10)), &bytes);
    assert_eq!(header, Some(Header { generation: 7, len: 278 }));
    assert_eq!(slot::decode(header.unwrap(), &bytes), Some(&catalog_bytes()[..]));
    assert_eq!(slot::decode_header(PoolId(id(0x11)), &bytes), None, "a slot of another pool");
}

#[test]
fn catalog_bytes_are_as_documented() {
    assert_eq!(catalog().encode(), catalog_bytes());
    assert_eq!(Catalog::decode(&catalog_bytes(), 64 << 10), Ok(catalog()));
    // The same, set back.
    let mut older = catalog();
    older.distrust_copies();
    let mut bytes = catalog_bytes();
    bytes[222] = 3;
    assert_eq!(older.encode(), bytes);
    assert_eq!(Catalog::decode(&bytes, 64 << 10), Ok(older));
}

/// A log volume of one slice, and its log.
const LOG_VOLUME: [u8; 89] = [
    0x60, 0x61, 0x62, 0x63, 0x64, 0x65, 0x66, 0x67, 0x68, 0x69, 0x6a, 0x6b, 0x6c, 0x6d, 0x6e,
    0x6f, // volume
    0x02, b'l', b'g', // its name
    0x03, 0x0c, 0x00, 0x10, // log-structured, 2^12 a block, one a physical block, 2^16 a stripe unit
    0x00, 0x00, 0x00, 0x00, 0x00, 0x01, 0x00, 0x00, // 1 TiB
    0x00, 0xf1, 0x53, 0x65, 0x00, 0x00, 0x00, 0x00, // made in November 2023
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, // epoch 0
    0x00, 0x00, 0x00, 0x00, // no state of a logical unit
    0x01, 0x00, // one slice
    0x00, 0x00, 0x00, 0x00, // which has no runs
    0x00, // no copy
    0x05, 0x00, 0x00, 0x00, // branch 5
    0x02, // its writes wait for room
    0x00, 0x00, 0x00, 0xc0, 0x00, 0x00, 0x00, 0x00, // 3 GiB are reserved
    0x01, // compressed
    0x00, // no clone
    0x09, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, // the pool: marked for the ninth time
    0x00, 0xf1, 0x53, 0x65, 0x00, 0x00, 0x00, 0x00, // in November 2023
];

/// Follows the rest of the mark.
const LOGS: [u8; 75] = [
    0x06, 0x00, 0x00, 0x00, // the next branch is 6
    0x01, 0x00, 0x00, 0x00, // the first mirror has one run
    0x00, 0x00, 0x10, 0x00, 0x00, 0x00, 0x08, 0x00, 0x00, 0x00, // disk 0, from extent 16 on, 8
    0x01, 0x00, 0x00, 0x00, // so has the second
    0x00, 0x00, 0x18, 0x00, 0x00, 0x00, 0x08, 0x00, 0x00, 0x00, // disk 0, from extent 24 on, 8
    0x01, 0x00, // one log
    0x00, 0x00, // number 0
    0x70, 0x71, 0x72, 0x73, 0x74, 0x75, 0x76, 0x77, 0x78, 0x79, 0x7a, 0x7b, 0x7c, 0x7d, 0x7e,
    0x7f, // identity
    0x10, 0x02, 0x00, 0x00, 0x00, // segments of 2^16 bytes, 2 in a zone
    0x01, 0x00, 0x00, 0x00, // one zone
    0x03, 0x00, 0x00, 0x00, // number 3
    0x00, 0x00, 0x20, 0x00, 0x00, 0x00, 0x02, 0x00, 0x00, 0x00, // disk 0, from extent 32 on, 2
];

#[test]
fn logs_are_as_documented() {
    let mut logged = catalog();
    let run = |start, count| ExtentRun { disk: 0, start, count };
    let volume = VolumeEntry {
        name: "lg".into(),
        kind: VolumeKind::Log,
        block_size: base::BlockSize::B4096,
        physical_exponent: 0,
        capacity: ByteLen(1 << 40),
        slices: vec![vec![]],
        lu_state: Vec::new(),
        copy: None,
        map: Vec::new(),
        branch: 5,
        space: SpacePolicy { when_full: WhenFull::Pause, reserve: ByteLen(3 << 30) },
        compression: Compression::Lz4,
        ..(*logged.volumes[&VolumeId(id(0x40))]).clone()
    };
    logged.volumes.insert(VolumeId(id(0x60)), Rc::new(volume));
    let log =
        LogEntry { identity: id(0x70), segment_shift: 16, zone_segments: 2, zones: [(3, run(32, 2))].into() };
    logged.logs =
        Logs { roots: [vec![run(16, 8)], vec![run(24, 8)]], next_branch: 6, logs: [(0, log)].into() };
    let mut start = START;
    start[56] = 3;
    let bytes = [&start[..], &COPY, &LOG_VOLUME, &MARK[16..], &LOGS].concat();
    assert_eq!(logged.encode(), bytes);
    assert_eq!(Catalog::decode(&bytes, 64 << 10), Ok(logged.clone()));
    let invalid = |change: fn(&mut Logs)| {
        let mut changed = logged.clone();
        change(&mut changed.logs);
        assert_eq!(Catalog::decode(&changed.encode(), 64 << 10), Err(Malformed::Logs));
    };
    let [when_full, reserve, compression, clone] = [27, 26, 18, 17].map(|back| LOG_VOLUME.len() - back);
    for (at, byte) in [(when_full, 0), (when_full, 3), (reserve + 5, 2), (compression, 2), (clone, 2)] {
        let mut bytes = bytes.clone();
        bytes[START.len() + COPY.len() + at] = byte;
        let found = Catalog::decode(&bytes, 64 << 10);
        assert_eq!(found, Err(Malformed::Volume(VolumeId(id(0x60)))), "byte {at}: {byte}");
    }
    invalid(|logs| logs.next_branch = 5);
    invalid(|logs| logs.logs.clear());
    invalid(|logs| logs.roots[1].clear());
    invalid(|logs| logs.roots[1][0].start = 31);
    invalid(|logs| logs.logs.get_mut(&0).unwrap().segment_shift = 15);
    invalid(|logs| logs.logs.get_mut(&0).unwrap().zones.get_mut(&3).unwrap().count = 1);
    invalid(|logs| logs.logs.get_mut(&0).unwrap().zones.get_mut(&3).unwrap().start = 112);
}

/// A clone of the log volume of [`logs_are_as_documented`].
#[test]
fn clones_are_as_documented() {
    let mut cloned = catalog();
    let run = |start, count| ExtentRun { disk: 0, start, count };
    let parent = VolumeEntry {
        name: "lg".into(),
        kind: VolumeKind::Log,
        slices: vec![vec![]],
        copy: None,
        map: Vec::new(),
        branch: 5,
        ..(*cloned.volumes[&VolumeId(id(0x40))]).clone()
    };
    let origin = Some(Origin { branch: 5, snapshot: 0x0807_0605_0403_0201 });
    let clone = VolumeEntry { name: "cl".into(), branch: 6, origin, ..parent.clone() };
    let log =
        LogEntry { identity: id(0x70), segment_shift: 16, zone_segments: 2, zones: [(3, run(32, 2))].into() };
    cloned.logs =
        Logs { roots: [vec![run(16, 8)], vec![run(24, 8)]], next_branch: 9, logs: [(0, log)].into() };
    cloned.volumes.insert(VolumeId(id(0x60)), Rc::new(parent.clone()));
    cloned.volumes.insert(VolumeId(id(0x61)), Rc::new(clone.clone()));
    let bytes = cloned.encode();
    // Behind it are the pool's mark, 24 bytes, and the logs.
    let end = bytes.len() - 24 - LOGS.len();
    let tail = [
        0x06, 0x00, 0x00, 0x00, // branch 6
        0x01, // its writes fail
        0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, // nothing is reserved
        0x00, // not compressed
        0x01, // a clone
        0x05, 0x00, 0x00, 0x00, // of branch 5
        0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08, // and this snapshot
    ];
    assert_eq!(bytes[end - tail.len()..end], tail);
    assert_eq!(Catalog::decode(&bytes, 64 << 10), Ok(cloned.clone()));
    // What it was made of is there, and older; and it is not too deep.
    let invalid = |clone: VolumeEntry| {
        let mut changed = cloned.clone();
        changed.volumes.insert(VolumeId(id(0x61)), Rc::new(clone));
        assert_eq!(Catalog::decode(&changed.encode(), 64 << 10), Err(Malformed::Logs));
    };
    for branch in [4, 6, 7] {
        invalid(VolumeEntry { origin: Some(Origin { branch, snapshot: 1 }), ..clone.clone() });
    }
    invalid(VolumeEntry { branch: 4, ..clone.clone() });
    let mut deep = cloned;
    deep.logs.next_branch = 20;
    for depth in 2..=CLONE_DEPTH_MAX as u32 + 1 {
        let of = 4 + depth;
        let origin = Some(Origin { branch: of, snapshot: 1 });
        let entry = VolumeEntry { name: format!("cl{depth}"), branch: of + 1, origin, ..clone.clone() };
        deep.volumes.insert(VolumeId(id(0x60 + depth as u8)), Rc::new(entry));
        let found = Catalog::decode(&deep.encode(), 64 << 10);
        assert_eq!(found.is_ok(), depth <= CLONE_DEPTH_MAX as u32, "{depth}");
    }
}

/// A volume on its way to a log, and a log volume on its way to extents.
#[test]
fn conversions_are_as_documented() {
    // Behind the end of the first volume, the identity and the name.
    const KIND: usize = 1 + 16 + 3;
    let mut converting = catalog();
    let run = |start, count| ExtentRun { disk: 0, start, count };
    let mut volume = (*converting.volumes[&VolumeId(id(0x40))]).clone();
    let to_log = |branch| OtherLayout {
        kind: VolumeKind::Log,
        slices: vec![vec![]],
        checksums: None,
        branch,
        origin: None,
        compression: Compression::Lz4,
    };
    let to_thick = |runs| OtherLayout {
        kind: VolumeKind::Thick,
        slices: vec![runs],
        checksums: None,
        branch: 0,
        origin: None,
        compression: Compression::Off,
    };
    volume.next = Some(to_log(5));
    converting.volumes.insert(VolumeId(id(0x40)), Rc::new(volume.clone()));
    let log =
        LogEntry { identity: id(0x70), segment_shift: 16, zone_segments: 2, zones: [(3, run(32, 2))].into() };
    converting.logs =
        Logs { roots: [vec![run(16, 8)], vec![run(24, 8)]], next_branch: 6, logs: [(0, log)].into() };
    let next = [0x05, 0x00, 0x00, 0x00, 0x01];
    let bytes = [&START[..], &COPY[..KIND], &[0x81], &COPY[KIND + 1..], &next, &MARK, &LOGS];
    assert_eq!(converting.encode(), bytes.concat());
    assert_eq!(Catalog::decode(&bytes.concat(), 64 << 10), Ok(converting.clone()));
    let with = |volume: &VolumeEntry| {
        let mut changed = converting.clone();
        changed.volumes.insert(VolumeId(id(0x40)), Rc::new(volume.clone()));
        changed
    };
    let back = VolumeEntry {
        kind: VolumeKind::Log,
        slices: vec![vec![]],
        branch: 5,
        next: Some(to_thick(vec![run(6, 1)])),
        ..volume.clone()
    };
    let bytes = with(&back).encode();
    let entry = &bytes[START.len()..];
    assert_eq!(entry[KIND], 0x83);
    let end = entry.len() - MARK.len() - LOGS.len();
    let slice = [0x01, 0x00, 0x00, 0x00, 0x00, 0x00, 0x06, 0x00, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00];
    assert_eq!(entry[end - slice.len()..end], slice);
    assert_eq!(Catalog::decode(&bytes, 64 << 10), Ok(with(&back)));
    // The same, to extents with checksums.
    let checked = OtherLayout { checksums: Some(vec![run(8, 1)]), ..to_thick(vec![run(6, 1)]) };
    let kept = VolumeEntry { next: Some(checked), ..back.clone() };
    let bytes = with(&kept).encode();
    let entry = &bytes[START.len()..];
    assert_eq!(entry[KIND], 0xa3);
    let end = entry.len() - MARK.len() - LOGS.len();
    let checksums = [0x01, 0x00, 0x00, 0x00, 0x00, 0x00, 0x08, 0x00, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00];
    assert_eq!(entry[end - checksums.len()..end], checksums);
    assert_eq!(Catalog::decode(&bytes, 64 << 10), Ok(with(&kept)));
    // Its extents are its own, and as many as it needs; so is its branch.
    let invalid = |volume: VolumeEntry| Catalog::decode(&with(&volume).encode(), 64 << 10).unwrap_err();
    let of = Malformed::Extents(VolumeId(id(0x40)));
    let thick = |runs| Some(to_thick(runs));
    assert_eq!(invalid(VolumeEntry { next: thick(vec![run(7, 1)]), ..back.clone() }), of);
    assert_eq!(invalid(VolumeEntry { next: thick(vec![run(40, 2)]), ..back.clone() }), of);
    assert_eq!(invalid(VolumeEntry { next: thick(vec![]), ..back }), of);
    assert_eq!(invalid(VolumeEntry { next: Some(to_log(6)), ..volume }), Malformed::Logs);
}

#[test]
fn checksums_are_as_documented() {
    // Behind the end of the first volume, the identity and the name.
    const KIND: usize = 1 + 16 + 3;
    let id = VolumeId(id(0x40));
    let run = |start| ExtentRun { disk: 0, start, count: 1 };
    let with = |checksums: Vec<ExtentRun>| {
        let mut catalog = catalog();
        let volume = (*catalog.volumes[&id]).clone();
        catalog.volumes.insert(id, Rc::new(VolumeEntry { checksums: Some(checksums), ..volume }));
        catalog
    };
    let runs = [0x01, 0x00, 0x00, 0x00, 0x00, 0x00, 0x08, 0x00, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00];
    let bytes = [&START[..], &COPY[..KIND], &[0x41], &COPY[KIND + 1..], &runs, &MARK].concat();
    assert_eq!(with(vec![run(8)]).encode(), bytes);
    assert_eq!(Catalog::decode(&bytes, 64 << 10), Ok(with(vec![run(8)])));
    // Its extents are its own, and as many as it needs.
    for runs in [vec![], vec![run(7)], vec![run(8), run(10)]] {
        let found = Catalog::decode(&with(runs).encode(), 64 << 10);
        assert_eq!(found, Err(Malformed::Extents(id)));
    }
    // No log volume has checksums of its own, and only a volume that becomes thick gets some.
    for kind in [0x43, 0x21] {
        let mut bytes = bytes.clone();
        bytes[START.len() + KIND] = kind;
        assert_eq!(Catalog::decode(&bytes, 64 << 10), Err(Malformed::Volume(id)));
    }
}

#[test]
fn a_newer_version_is_distinguished_from_damage() {
    let mut bytes = superblock().encode();
    bytes[8] = 2;
    assert_eq!(Superblock::decode(&bytes), Err(Unreadable::Damaged));
    let crc = base::crc32c(&bytes[..4092]);
    bytes[4092..].copy_from_slice(&crc.to_le_bytes());
    assert_eq!(Superblock::decode(&bytes), Err(Unreadable::Version(2)));
    assert_eq!(Superblock::decode(&[0; 4096]), Err(Unreadable::Absent));
    assert_eq!(Superblock::decode(b"URSAPOOL"), Err(Unreadable::Damaged));
}

#[test]
fn an_unknown_role_is_distinguished_from_damage() {
    for role in [0, 2, 3, 0xff] {
        let mut bytes = superblock().encode();
        bytes[85] = role;
        assert_eq!(Superblock::decode(&bytes), Err(Unreadable::Damaged));
        let crc = base::crc32c(&bytes[..4092]);
        bytes[4092..].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(Superblock::decode(&bytes), Err(Unreadable::Role { role, generation: 7 }));
    }
}

#[test]
fn every_flipped_bit_of_a_superblock_is_noticed() {
    let good = superblock().encode();
    for bit in 0..good.len() * 8 {
        let mut bytes = good.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert!(Superblock::decode(&bytes).is_err(), "bit {bit}");
    }
}

#[test]
fn every_flipped_bit_of_a_slot_is_noticed() {
    let good = slot::encode(PoolId(id(0x10)), 7, &catalog_bytes());
    for bit in 0..good.len() * 8 {
        let mut bytes = good.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        let read =
            slot::decode_header(PoolId(id(0x10)), &bytes).and_then(|header| slot::decode(header, &bytes));
        assert_eq!(read, None, "bit {bit}");
    }
}

/// A catalog is only decoded if its checksum is right; even so, no catalog may crash the process.
#[test]
fn no_catalogue_makes_the_decoder_panic() {
    let mut rng = Rng::new(1);
    for _ in 0..400_000 {
        let mut bytes = catalog_bytes();
        for _ in 0..=rng.below(3) {
            let at = rng.below(bytes.len() as u64) as usize;
            bytes[at] = if rng.one_in(2) { 0xff } else { rng.next() as u8 };
        }
        if rng.one_in(4) {
            bytes.truncate(rng.below(bytes.len() as u64 + 1) as usize);
        }
        if let Ok(catalog) = Catalog::decode(&bytes, 64 << 10) {
            assert_eq!(catalog.check(64 << 10), Ok(()));
        }
    }
}

#[test]
fn contradictions_are_found() {
    let changed = |change: fn(&mut VolumeEntry)| {
        let mut catalog = catalog();
        let mut volume = (*catalog.volumes[&VolumeId(id(0x30))]).clone();
        change(&mut volume);
        catalog.volumes.insert(VolumeId(id(0x30)), Rc::new(volume));
        Catalog::decode(&catalog.encode(), 64 << 10)
    };
    let extents = Err(Malformed::Extents(VolumeId(id(0x30))));
    assert_eq!(changed(|volume| volume.slices[1][0].start = 9), extents, "on another extent of the volume");
    assert_eq!(changed(|volume| volume.slices[1][0].start = 113), extents, "behind the disk");
    assert_eq!(changed(|volume| volume.slices[1][0].start = u32::MAX), extents);
    assert_eq!(changed(|volume| volume.slices[1][0].disk = 1), extents, "on a disk that is not there");
    assert_eq!(changed(|volume| volume.slices[1].clear()), extents, "no space");
    let field = Err(Malformed::Volume(VolumeId(id(0x30))));
    assert_eq!(changed(|volume| volume.name = "a/b".into()), field);
    assert_eq!(changed(|volume| volume.capacity.0 += 1), field);
    let mut twice = catalog();
    let volume = VolumeEntry {
        kind: VolumeKind::Ram,
        slices: vec![vec![], vec![]],
        ..(*twice.volumes[&VolumeId(id(0x30))]).clone()
    };
    twice.volumes.insert(VolumeId(id(0x31)), Rc::new(volume));
    let bytes = twice.encode();
    let found = Catalog::decode(&bytes, 64 << 10);
    assert_eq!(found, Err(Malformed::Twice(VolumeId(id(0x31)))));
    let bytes = [&catalog_bytes()[..], &[0]].concat();
    assert_eq!(Catalog::decode(&bytes, 64 << 10), Err(Malformed::Length));
}

#[test]
fn contradictions_of_copies_are_found() {
    let decoded = |at: usize, byte: u8| {
        let mut bytes = catalog_bytes();
        bytes[at] = byte;
        Catalog::decode(&bytes, 64 << 10)
    };
    let (state, slot, map_start, map_count) = (222, 223, 246, 250);
    let field = Err(Malformed::Volume(VolumeId(id(0x40))));
    assert_eq!(decoded(state, 4), field);
    assert_eq!(decoded(state, 1), field, "blank, and of an epoch");
    assert_eq!(decoded(slot, 4), field);
    let extents = Err(Malformed::Extents(VolumeId(id(0x40))));
    assert_eq!(decoded(map_start, 6), extents, "on the volume's own extent");
    assert_eq!(decoded(map_start, 113), extents, "behind the disk");
    assert_eq!(decoded(map_count, 2), extents, "more than the map needs");
}
