//! The formats of `docs/formats/pool.md`, byte by byte. The bytes were computed from the tables there, not by this
//! crate. If one of these tests fails, pools that exist cannot be read any more: the version must change.

use std::collections::BTreeMap;
use std::rc::Rc;

use base::{BlockSize, ByteLen, Rng};

use crate::catalog::{Catalog, DiskEntry, Host, Malformed, VolumeEntry, VolumeKind};
use crate::extent::ExtentRun;
use crate::geometry::Geometry;
use crate::id::{DiskId, HostId, PoolId, VolumeId};
use crate::slot::{self, Header};
use crate::stripe::Stripe;
use crate::superblock::{Superblock, Unreadable};

/// Sixteen bytes that count up from `first`.
fn id(first: u8) -> [u8; 16] {
    std::array::from_fn(|index| first + index as u8)
}

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

/// The checksum at the end, over 4092 bytes.
const SUPERBLOCK_CRC: [u8; 4] = [0xe8, 0xd7, 0xe5, 0x10];

const SLOT_HEADER: [u8; 64] = [
    b'U', b'R', b'S', b'A', b'M', b'E', b'T', b'A', // magic
    0x01, 0x00, 0x00, 0x00, 0x84, 0xdd, 0x82, 0x35, // version 1, checksum
    0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, 0x19, 0x1a, 0x1b, 0x1c, 0x1d, 0x1e,
    0x1f, // pool
    0x07, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, // generation 7
    0x9a, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, // 154 bytes follow
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, // reserved
];

const CATALOG: [u8; 154] = [
    0x01, b'p', // the pool's name
    0xaa, 0xaa, 0xaa, 0xaa, 0xaa, 0xaa, 0xaa, 0xaa, 0xaa, 0xaa, 0xaa, 0xaa, 0xaa, 0xaa, 0xaa,
    0xaa, // host
    0x06, b'n', b'o', b'd', b'e', b'-', b'a', 0x00, // its name; not exported
    0x01, 0x00, // one disk
    0x20, 0x21, 0x22, 0x23, 0x24, 0x25, 0x26, 0x27, 0x28, 0x29, 0x2a, 0x2b, 0x2c, 0x2d, 0x2e,
    0x2f, // disk
    0x00, 0x00, 0x80, 0x00, 0x00, 0x00, 0x00, 0x00, 0x71, 0x00, 0x00, 0x00, // 8 MiB, 113 extents
    0x01, 0x00, 0x00, 0x00, // one volume
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

fn superblock() -> Superblock {
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
    }
}

fn catalog() -> Catalog {
    let run = |start| ExtentRun { disk: 0, start, count: 1 };
    let volume = VolumeEntry {
        name: "db".into(),
        kind: VolumeKind::Thick,
        block_size: BlockSize::B512,
        physical_exponent: 3,
        stripe: Stripe::new(2, ByteLen(64 << 10)),
        capacity: ByteLen(192 << 10),
        created: 1_700_000_000,
        epoch: 0,
        lu_state: vec![1, 2, 3],
        slices: vec![vec![run(4), run(9)], vec![run(5)]],
    };
    Catalog {
        name: "p".into(),
        host: Host { id: HostId([0xaa; 16]), name: "node-a".into() },
        exported: false,
        disks: vec![DiskEntry { id: DiskId(id(0x20)), bytes: 8 << 20, extents: 113 }],
        volumes: BTreeMap::from([(VolumeId(id(0x30)), Rc::new(volume))]),
    }
}

#[test]
fn superblock_bytes() {
    let bytes = superblock().encode();
    assert_eq!(bytes.len(), 4096);
    assert_eq!(bytes[..84], SUPERBLOCK);
    assert!(bytes[84..4092].iter().all(|byte| *byte == 0));
    assert_eq!(bytes[4092..], SUPERBLOCK_CRC);
    assert_eq!(Superblock::decode(&bytes), Ok(superblock()));
}

#[test]
fn slot_bytes() {
    let bytes = slot::encode(PoolId(id(0x10)), 7, &CATALOG);
    assert_eq!(bytes[..64], SLOT_HEADER);
    let header = slot::decode_header(PoolId(id(0x10)), &bytes);
    assert_eq!(header, Some(Header { generation: 7, len: 154 }));
    assert_eq!(slot::decode(header.unwrap(), &bytes), Some(&CATALOG[..]));
    assert_eq!(slot::decode_header(PoolId(id(0x11)), &bytes), None, "a slot of another pool");
}

#[test]
fn catalog_bytes() {
    assert_eq!(catalog().encode(), CATALOG);
    assert_eq!(Catalog::decode(&CATALOG, 64 << 10), Ok(catalog()));
}

#[test]
fn a_newer_version_is_told_apart_from_damage() {
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
    let good = slot::encode(PoolId(id(0x10)), 7, &CATALOG);
    for bit in 0..good.len() * 8 {
        let mut bytes = good.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        let read =
            slot::decode_header(PoolId(id(0x10)), &bytes).and_then(|header| slot::decode(header, &bytes));
        assert_eq!(read, None, "bit {bit}");
    }
}

/// A catalogue is only decoded if its checksum fits; it must not take the process with it all the same.
#[test]
fn no_catalogue_makes_the_decoder_panic() {
    let mut rng = Rng::new(1);
    for _ in 0..200_000 {
        let mut bytes = CATALOG.to_vec();
        for _ in 0..=rng.below(3) {
            let at = rng.below(bytes.len() as u64) as usize;
            bytes[at] = if rng.one_in(2) { 0xff } else { rng.next() as u8 };
        }
        bytes.truncate(if rng.one_in(4) { rng.below(155) as usize } else { 154 });
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
    assert_eq!(Catalog::decode(&twice.encode(), 64 << 10), Err(Malformed::Twice(VolumeId(id(0x31)))));
    assert_eq!(Catalog::decode(&[&CATALOG[..], &[0]].concat(), 64 << 10), Err(Malformed::Length));
}
