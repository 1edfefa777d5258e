//! Quantities. Only meaningful conversions exist: a block number times a block size is a byte offset; two
//! byte offsets cannot be added.

use std::fmt;
use std::ops::{Add, Mul, Sub};

/// The number of a logical block, counted from the start of a volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lba(pub u64);

/// A number of logical blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockCount(pub u64);

/// A position in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteOffset(pub u64);

/// A length in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteLen(pub u64);

/// The logical block size of a volume: 512 or 4096 bytes, nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BlockSize {
    /// 512 bytes (possibly 512e: the physical block is then 4096 bytes).
    B512,
    /// 4096 bytes.
    B4096,
}

impl BlockSize {
    /// The size in bytes.
    pub const fn bytes(self) -> u32 {
        match self {
            BlockSize::B512 => 512,
            BlockSize::B4096 => 4096,
        }
    }

    /// The block size of `bytes`, or `None` for a size that no volume has.
    pub const fn from_bytes(bytes: u32) -> Option<BlockSize> {
        match bytes {
            512 => Some(BlockSize::B512),
            4096 => Some(BlockSize::B4096),
            _ => None,
        }
    }

    /// log2 of the size.
    pub const fn shift(self) -> u32 {
        self.bytes().trailing_zeros()
    }
}

impl Mul<BlockSize> for Lba {
    type Output = ByteOffset;
    fn mul(self, size: BlockSize) -> ByteOffset {
        ByteOffset(self.0 * u64::from(size.bytes()))
    }
}

impl Mul<BlockSize> for BlockCount {
    type Output = ByteLen;
    fn mul(self, size: BlockSize) -> ByteLen {
        ByteLen(self.0 * u64::from(size.bytes()))
    }
}

impl Add<BlockCount> for Lba {
    type Output = Lba;
    fn add(self, count: BlockCount) -> Lba {
        Lba(self.0 + count.0)
    }
}

impl Sub<Lba> for Lba {
    type Output = BlockCount;
    fn sub(self, earlier: Lba) -> BlockCount {
        BlockCount(self.0 - earlier.0)
    }
}

impl Add<ByteLen> for ByteOffset {
    type Output = ByteOffset;
    fn add(self, len: ByteLen) -> ByteOffset {
        ByteOffset(self.0 + len.0)
    }
}

/// For people: `10G` is ten times 2^30 bytes. The text is exact if that is short, otherwise it has one digit
/// after the point.
impl fmt::Display for ByteLen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 6] = ["B", "K", "M", "G", "T", "P"];
        if self.0 == 0 {
            return f.write_str("0");
        }
        let exact = (self.0.trailing_zeros() / 10).min(5);
        let count = self.0 >> (10 * exact);
        if count < 10_000 {
            return write!(f, "{count}{}", UNITS[exact as usize]);
        }
        let unit = (self.0.ilog2() / 10).min(5);
        write!(f, "{:.1}{}", self.0 as f64 / (1u64 << (10 * unit)) as f64, UNITS[unit as usize])
    }
}

crate::shows!(Display for Lba, |it| "LBA {}", it.0);

/// Consecutive blocks: `start`, `start + 1`, … `end() - 1`. A range never wraps: its creator has checked
/// that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LbaRange {
    /// The first block.
    pub start: Lba,
    /// The number of blocks; may be zero.
    pub count: BlockCount,
}

impl LbaRange {
    /// The range, or `None` if its end is not a block number.
    pub fn new(start: Lba, count: BlockCount) -> Option<LbaRange> {
        start.0.checked_add(count.0).map(|_| LbaRange { start, count })
    }

    /// The first block after the range.
    pub fn end(self) -> Lba {
        self.start + self.count
    }

    /// Whether the two ranges have a block in common.
    pub fn overlaps(self, other: LbaRange) -> bool {
        self.start < other.end() && other.start < self.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_become_bytes() {
        assert_eq!(Lba(3) * BlockSize::B512, ByteOffset(1536));
        assert_eq!(BlockCount(2) * BlockSize::B4096, ByteLen(8192));
    }

    #[test]
    fn lengths_are_short_for_people() {
        for (bytes, text) in [
            (0, "0"),
            (512, "512B"),
            (4096, "4K"),
            (10 << 30, "10G"),
            (1536 << 20, "1536M"),
            (10_737_418_241, "10.0G"),
            (65_537, "64.0K"),
            (u64::MAX, "16384.0P"),
        ] {
            assert_eq!(ByteLen(bytes).to_string(), text);
        }
        assert_eq!(BlockSize::from_bytes(520), None);
    }

    #[test]
    fn ranges_overlap_only_in_common_blocks() {
        let range = |start, count| LbaRange::new(Lba(start), BlockCount(count)).unwrap();
        assert!(range(0, 4).overlaps(range(3, 1)));
        assert!(!range(0, 4).overlaps(range(4, 1)));
        assert!(!range(2, 0).overlaps(range(0, 2)));
        assert_eq!(LbaRange::new(Lba(u64::MAX), BlockCount(1)), None);
    }
}
