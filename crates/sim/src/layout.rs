//! Which blocks of a volume are used for what. All of them are in few regions of the dirty map, so that a
//! copy of everything is told from one of what was missed.

use std::ops::Range;

use base::{BlockSize, ByteLen};

/// How a volume is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The capacity at first.
    pub capacity: ByteLen,
    /// How large it becomes at most.
    pub grown_max: ByteLen,
    /// Regions of the dirty map that are ever written to, with all slices.
    pub regions_max: usize,
    /// Blocks on both sides of the end of a stripe unit are shared, too.
    has_edge: bool,
    /// Where the quiet block is.
    quiet: u64,
}

/// The first volume: all kinds of hosts use it. It has 32 regions.
pub const FIRST: Layout = Layout {
    capacity: ByteLen(2 << 20),
    grown_max: ByteLen(5 << 20),
    regions_max: 6,
    has_edge: true,
    quiet: STRIPE_UNIT + STRIPE_UNIT / 2,
};

/// The volume beside it, which some hosts share, and of which one has blocks for itself.
pub const BESIDE: Layout = Layout {
    capacity: ByteLen(1 << 20),
    grown_max: ByteLen(3 << 20),
    regions_max: 4,
    has_edge: false,
    quiet: STRIPE_UNIT / 2,
};

/// How much a volume grows at a time.
pub const GROWTHS: [u64; 3] = [4096, 68 << 10, 1 << 20];

/// What is written as one piece on every disk.
pub const SECTOR: usize = 512;

/// From here on blocks belong to another stripe unit, and so to another slice where there are two.
const STRIPE_UNIT: u64 = 1 << 20;

/// Blocks of what a volume has grown by that are used, at most.
const GROWN_BLOCKS_MAX: u64 = 4;

impl Layout {
    /// Blocks that many hosts read and write at once: neighbours, and some on both sides of a stripe unit's
    /// end.
    pub fn hot(&self, size: BlockSize) -> Vec<Range<u64>> {
        let edge = STRIPE_UNIT / u64::from(size.bytes());
        let edge = self.has_edge.then(|| edge - 2..edge + 2);
        std::iter::once(0..6).chain(edge).collect()
    }

    /// A block in a region of its own, which is written when a fault begins, and otherwise left alone: what
    /// it should hold is noted by no bit of a dirty map later.
    pub fn quiet(&self, size: BlockSize) -> u64 {
        self.quiet / u64::from(size.bytes())
    }

    /// Blocks that many hosts read and write once a volume with `blocks` blocks has them. Before it has grown
    /// they are none.
    pub fn grown(&self, size: BlockSize, blocks: u64) -> Range<u64> {
        let from = self.capacity.0 / u64::from(size.bytes());
        from..blocks.clamp(from, from + GROWN_BLOCKS_MAX)
    }
}

/// Blocks that are exchanged by COMPARE AND WRITE.
pub const EXCHANGED: Range<u64> = 6..8;

/// The block that hosts write until they are fenced off.
pub const FENCED: u64 = 8;

/// Blocks of a host that has them for itself.
pub fn own(host: u64) -> Range<u64> {
    10 + host * 8..18 + host * 8
}

/// Hosts with blocks of their own, at most.
pub const OWNERS_MAX: u64 = 2;

const _: () =
    assert!(10 + OWNERS_MAX * 8 <= 32, "with blocks of 4096 bytes they are in two regions of 64 KiB");
