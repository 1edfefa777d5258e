//! Disks with a role that this version does not know.

use super::*;
use crate::geometry::SUPERBLOCK_BYTES;
use crate::superblock::{CRC_AT, Superblock};

/// Where a superblock has the role.
const ROLE_AT: usize = 85;

/// A disk of a pool whose superblocks of the newest generation, or else the older ones, have this role.
fn with_role(role: u8, newest: bool) -> DiskImage {
    let world = World::new(1);
    let node = machine(&world, used_disks(1, 512));
    world.block_on(node, CORE, || async {
        let pool = create(1).await;
        pool.set_mark(PoolMark { count: 1, at: 0 }, false).await.unwrap();
    });
    let mut image = world.disk_image(node, path(0));
    let end = image.size();
    let places = [0, SUPERBLOCK_BYTES, end - 2 * SUPERBLOCK_BYTES, end - SUPERBLOCK_BYTES];
    let mut superblocks = places.map(|offset| {
        let mut bytes = vec![0; SUPERBLOCK_BYTES as usize];
        image.read(offset, &mut bytes);
        let generation = Superblock::decode(&bytes).unwrap().generation;
        (offset, generation, bytes)
    });
    let last = superblocks.iter().map(|(_, generation, _)| *generation).max().unwrap();
    let is_meant = |generation: u64| (generation == last) == newest;
    for (offset, _, bytes) in superblocks.iter_mut().filter(|(_, generation, _)| is_meant(*generation)) {
        bytes[ROLE_AT] = role;
        let crc = base::crc32c(&bytes[..CRC_AT]);
        bytes[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
        image.write(*offset, bytes);
    }
    image
}

/// The result of opening a pool of this disk.
fn opened(image: DiskImage) -> Result<(), StoreError> {
    let world = World::new(2);
    let node = machine(&world, vec![image]);
    world.block_on(node, CORE, || async { open(1).await.map(drop) })
}

/// An older superblock with a known role does not hide it: the pool would put extents on the disk.
#[test]
fn a_disk_with_an_unknown_role_is_refused() {
    for role in [0, 2, 0xff] {
        let refused = opened(with_role(role, true)).unwrap_err();
        assert!(matches!(&refused, StoreError::DiskRole { role: found, .. } if *found == role), "{refused}");
        let expected = format!("/disk0 has the role {role} in its pool");
        assert!(refused.to_string().starts_with(&expected), "{refused}");
    }
    opened(with_role(1, true)).unwrap();
}

/// A disk that had another role has the present one.
#[test]
fn the_newest_superblock_says_the_role() {
    opened(with_role(2, false)).unwrap();
}
