//! Which blocks of a volume are used for what.
//!
//! All of them are in few regions of the dirty map, so that a full resync is distinguishable from a partial
//! one.

use std::ops::Range;

use base::{BlockSize, ByteLen};

/// How a volume is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Its capacity at first.
    pub capacity: ByteLen,
    /// Its largest capacity, after it has grown.
    pub grown_max: ByteLen,
    /// Number of regions of the dirty map that are ever written, over all slices.
    pub regions_max: usize,
    /// Hosts also share blocks on both sides of a stripe unit's end.
    has_edge: bool,
    /// Byte offset of the quiet block.
    quiet: u64,
}

/// The first volume, which has 32 regions. All kinds of hosts use it.
pub const FIRST: Layout = Layout {
    capacity: ByteLen(2 << 20),
    grown_max: ByteLen(5 << 20),
    regions_max: 6,
    has_edge: true,
    quiet: STRIPE_UNIT + STRIPE_UNIT / 2,
};

/// The second volume. Some hosts share its blocks, and one host has blocks of its own.
pub const BESIDE: Layout = Layout {
    capacity: ByteLen(1 << 20),
    grown_max: ByteLen(3 << 20),
    regions_max: 4,
    has_edge: false,
    quiet: STRIPE_UNIT / 2,
};

/// By how much a volume grows at a time, in bytes.
pub const GROWTHS: [u64; 3] = [4096, 68 << 10, 1 << 20];

/// What every disk writes as one piece, in bytes.
pub const SECTOR: usize = 512;

/// The stripe unit, in bytes. The blocks after its end are in another slice if there are two.
const STRIPE_UNIT: u64 = 1 << 20;

/// How many of the blocks by which a volume has grown are used, at most.
const GROWN_BLOCKS_MAX: u64 = 4;

impl Layout {
    /// Blocks that many hosts read and write at once: adjacent ones, and some on both sides of a stripe
    /// unit's end.
    pub fn hot(&self, size: BlockSize) -> Vec<Range<u64>> {
        let edge = STRIPE_UNIT / u64::from(size.bytes());
        let edge = self.has_edge.then(|| edge - 2..edge + 2);
        std::iter::once(0..6).chain(edge).collect()
    }

    /// A block in a region of its own, which is written when a fault begins and otherwise left alone: no
    /// later write sets its region's dirty bit.
    pub fn quiet(&self, size: BlockSize) -> u64 {
        self.quiet / u64::from(size.bytes())
    }

    /// Blocks that many hosts read and write once the volume has grown to `blocks` blocks; none before.
    pub fn grown(&self, size: BlockSize, blocks: u64) -> Range<u64> {
        let from = self.capacity.0 / u64::from(size.bytes());
        from..blocks.clamp(from, from + GROWN_BLOCKS_MAX)
    }
}

/// Blocks that hosts exchange by COMPARE AND WRITE.
pub const EXCHANGED: Range<u64> = 6..8;

/// The block that hosts write until they are fenced off.
pub const FENCED: u64 = 8;

/// The blocks that only this host uses.
pub fn own(host: u64) -> Range<u64> {
    OWN.start + host * OWN_BLOCKS..OWN.start + (host + 1) * OWN_BLOCKS
}

/// Number of blocks that only one host uses.
const OWN_BLOCKS: u64 = 8;

/// Number of hosts with blocks of their own, at most.
pub const OWNERS_MAX: u64 = 2;

/// The blocks of all of these.
pub const OWN: Range<u64> = 10..10 + OWNERS_MAX * OWN_BLOCKS;

const _: () = assert!(OWN.end <= 32, "with blocks of 4096 bytes they are in two regions of 64 KiB");
