//! Which blocks of the volume are used for what. All of them are in few regions of the dirty map, so that a copy of everything is told from one
//! of what was missed.

use std::ops::Range;

use base::BlockSize;

/// The volume's capacity.
pub const VOLUME_BYTES: u64 = 2 << 20;

/// How much it grows at a time, and how large it becomes at most.
pub const GROWTHS: [u64; 3] = [4096, 68 << 10, 1 << 20];
/// See [`GROWTHS`].
pub const GROWN_MAX: u64 = 5 << 20;

/// The capacity of the volume beside it, which has only blocks of one host ([`own`]).
pub const BESIDE_BYTES: u64 = 1 << 20;
/// Regions of its dirty map that are ever written to.
pub const BESIDE_REGIONS_MAX: usize = 2;

/// Regions of the dirty map that are ever written to, with all slices: of 32.
pub const REGIONS_MAX: usize = 5;

/// What is written as one piece on every disk.
pub const SECTOR: usize = 512;

/// From here on blocks belong to another stripe unit, and so to another slice where there are two.
const STRIPE_UNIT: u64 = 1 << 20;

/// Blocks that many hosts read and write at once: neighbours, and some on both sides of a stripe unit's end.
pub fn hot(size: BlockSize) -> [Range<u64>; 2] {
    let edge = STRIPE_UNIT / u64::from(size.bytes());
    [0..6, edge - 2..edge + 2]
}

/// Blocks that are exchanged by COMPARE AND WRITE.
pub const EXCHANGED: Range<u64> = 6..8;

/// The block that hosts write until they are fenced off.
pub const FENCED: u64 = 8;

/// A block in a region of its own, which is written when a fault begins, and otherwise left alone: what it should hold is noted by no bit of a dirty map later.
pub fn quiet(size: BlockSize) -> u64 {
    (STRIPE_UNIT + STRIPE_UNIT / 2) / u64::from(size.bytes())
}

/// Blocks of a host that has them for itself.
pub fn own(host: u64) -> Range<u64> {
    10 + host * 8..18 + host * 8
}

/// Hosts with blocks of their own, at most.
pub const OWNERS_MAX: u64 = 2;

const _: () =
    assert!(10 + OWNERS_MAX * 8 <= 32, "with blocks of 4096 bytes they are in two regions of 64 KiB");
