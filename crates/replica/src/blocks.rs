//! Ranges of a slice's blocks, the data written to them, and the geometry of a slice.

use std::fmt;
use std::ops::Range;

use base::Chain;
use sha2::{Digest as _, Sha256};

/// Consecutive logical blocks of a slice: `start` to before `end`.
///
/// The unit of the protocol is the block that initiators see: it treats each write of 512 bytes on its own,
/// and each copy reads, changes and writes the larger blocks of its disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Blocks {
    /// The first block.
    pub start: u64,
    /// The block after the last.
    pub end: u64,
}

impl Blocks {
    /// The blocks from `start` to before `end`.
    ///
    /// # Panics
    /// If the range is empty; ranges from the wire are checked when they are decoded.
    pub fn new(start: u64, end: u64) -> Blocks {
        assert!(start < end, "a range has a block");
        Blocks { start, end }
    }

    /// How many blocks there are.
    pub fn count(self) -> u64 {
        self.end - self.start
    }

    /// Whether the two have a block in common.
    pub fn overlaps(self, other: Blocks) -> bool {
        self.start < other.end && other.start < self.end
    }

    /// The blocks that are in both.
    pub fn intersection(self, other: Blocks) -> Option<Blocks> {
        let (start, end) = (self.start.max(other.start), self.end.min(other.end));
        (start < end).then_some(Blocks { start, end })
    }
}

/// The sizes of a slice and its parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// How many blocks the slice has.
    pub blocks: u64,
    /// Bytes of a block.
    pub block_bytes: u32,
    /// Blocks per region, the unit of the dirty map.
    pub region_blocks: u32,
}

impl Geometry {
    /// Bytes of a region on real disks.
    ///
    /// This is large enough that the map of a TiB is 8 MiB, and small enough that a resync after a crash with
    /// a thousand writes under way copies 64 MiB and no more.
    pub const REGION_BYTES: u32 = 64 * 1024;

    /// The geometry of a slice of `blocks` blocks of `block_bytes` bytes.
    pub fn new(blocks: u64, block_bytes: u32) -> Geometry {
        Geometry { blocks, block_bytes, region_blocks: Geometry::REGION_BYTES / block_bytes }
    }

    /// Bytes of a region; the last may be shorter.
    pub fn region_bytes(&self) -> u64 {
        u64::from(self.region_blocks) * u64::from(self.block_bytes)
    }

    /// How many regions there are.
    pub fn regions(&self) -> u64 {
        self.blocks.div_ceil(u64::from(self.region_blocks))
    }

    /// The regions that the blocks are in.
    pub fn regions_of(&self, blocks: Blocks) -> Range<u64> {
        let size = u64::from(self.region_blocks);
        blocks.start / size..(blocks.end - 1) / size + 1
    }

    /// The blocks of a region; the last may be shorter.
    pub fn blocks_of(&self, region: u64) -> Blocks {
        let size = u64::from(self.region_blocks);
        Blocks::new(region * size, ((region + 1) * size).min(self.blocks))
    }
}

/// The SHA-256 of blocks, by which copies find out what is equal.
///
/// Equal regions are not copied. A checksum against accidents only would let a host craft blocks that are not
/// copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digest(pub [u8; 32]);

/// The data of a write.
#[derive(Clone)]
pub enum Payload {
    /// These bytes.
    Data(Chain),
    /// The blocks are unmapped: they read as zeros on every copy.
    Zeros,
}

impl Payload {
    /// Of the payload for the blocks `whole`, the part for the blocks `part`, which lie inside them.
    pub fn part(&self, whole: Blocks, part: Blocks, geometry: &Geometry) -> Payload {
        match self {
            Payload::Zeros => Payload::Zeros,
            Payload::Data(data) if whole == part => Payload::Data(data.clone()),
            Payload::Data(data) => {
                let bytes = |blocks: u64| (blocks * u64::from(geometry.block_bytes)) as usize;
                Payload::Data(data.slice(bytes(part.start - whole.start)..bytes(part.end - whole.start)))
            }
        }
    }

    /// The SHA-256 of the bytes: equal for equal bytes, and different for others as long as SHA-256 is not
    /// broken.
    pub fn digest(&self, blocks: Blocks, geometry: &Geometry) -> Digest {
        let mut sha = Sha256::new();
        match self {
            Payload::Data(data) => data.parts().iter().for_each(|part| sha.update(&part[..])),
            Payload::Zeros => {
                let zeros = [0; 4096];
                let mut left = (blocks.count() * u64::from(geometry.block_bytes)) as usize;
                while left > 0 {
                    let part = left.min(zeros.len());
                    sha.update(&zeros[..part]);
                    left -= part;
                }
            }
        }
        Digest(sha.finalize().into())
    }

    /// Bytes of data that are held in memory.
    pub fn bytes(&self) -> usize {
        match self {
            Payload::Data(data) => data.len(),
            Payload::Zeros => 0,
        }
    }
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Payload::Data(data) => {
                write!(f, "{} bytes, CRC32C {:08x}", data.len(), base::crc32c(&data.contiguous()))
            }
            Payload::Zeros => f.write_str("zeros"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_cover_what_the_blocks_touch() {
        let geometry = Geometry::new(1000, 512);
        assert_eq!((geometry.region_blocks, geometry.regions()), (128, 8));
        assert_eq!(geometry.regions_of(Blocks::new(127, 129)), 0..2);
        assert_eq!(geometry.regions_of(Blocks::new(128, 256)), 1..2);
        assert_eq!(geometry.blocks_of(7), Blocks::new(896, 1000));
    }

    #[test]
    fn a_part_has_its_own_bytes() {
        let geometry = Geometry::new(100, 4);
        let payload = Payload::Data(Chain::copy_of(b"aaaabbbbcccc"));
        let Payload::Data(part) = payload.part(Blocks::new(10, 13), Blocks::new(11, 13), &geometry) else {
            panic!()
        };
        assert_eq!(part.to_vec(), b"bbbbcccc");
    }
}
