//! Compressed blocks: what lies in a half or a quarter of a slot. Byte table: `docs/formats/log.md`.
//!
//! A block is compressed by itself (LZ4), and only counts as compressed if that halves it. What is stored has
//! a checksum of its own, so that only what was written is ever decompressed; what comes out must match the
//! checksum that the map has for the block.

use base::crc32c;
use lz4_flex::block::{compress_into, decompress_into, get_maximum_output_size};

use super::place::{SLOT_BYTES, Size};
use super::record::reveal;

/// Length and checksum of the compressed bytes.
const HEADER_BYTES: usize = 6;

/// Blocks in a row that did not shrink before no more are tried, and how many are not tried then.
const MISSES_MAX: u32 = 30;
const SKIPPED: u32 = 1000;

/// Compresses blocks of one slice. Gives up for a while if that does not pay.
pub(crate) struct Packer {
    compressed: Vec<u8>,
    /// How many blocks in a row did not shrink.
    misses: u32,
    /// How many blocks are not tried from now on.
    to_skip: u32,
    /// How many blocks were tried.
    tried: usize,
}

impl Default for Packer {
    fn default() -> Packer {
        let compressed = vec![0; get_maximum_output_size(SLOT_BYTES)];
        Packer { compressed, misses: 0, to_skip: 0, tried: 0 }
    }
}

impl Packer {
    /// How many blocks were tried so far: those that cost time.
    pub(crate) fn tried(&self) -> usize {
        self.tried
    }

    /// Compresses a block. Appends what is to be stored to `stored`, filled up with zeros to the size that is
    /// returned; [`Size::Whole`], and nothing, if the block is to be stored as it is.
    pub(crate) fn pack(&mut self, block: &[u8; SLOT_BYTES], stored: &mut Vec<u8>) -> Size {
        if self.to_skip > 0 {
            self.to_skip -= 1;
            return Size::Whole;
        }
        self.tried += 1;
        let compressed = compress_into(block, &mut self.compressed).ok();
        let compressed = compressed.and_then(|len| self.compressed.get(..len));
        let fits = |size: &Size| compressed.is_some_and(|bytes| HEADER_BYTES + bytes.len() <= size.bytes());
        match (compressed, [Size::Quarter, Size::Half].into_iter().find(fits)) {
            (Some(bytes), Some(size)) => {
                let end = stored.len() + size.bytes();
                stored.extend_from_slice(&(bytes.len() as u16).to_le_bytes());
                stored.extend_from_slice(&crc32c(bytes).to_le_bytes());
                stored.extend_from_slice(bytes);
                stored.resize(end, 0);
                self.misses = 0;
                size
            }
            _ => {
                self.misses += 1;
                if self.misses >= MISSES_MAX {
                    self.misses = 0;
                    self.to_skip = SKIPPED;
                }
                Size::Whole
            }
        }
    }
}

/// Decompresses what is stored in a part of a slot. Returns whether it is a block with this checksum;
/// otherwise, `block` means nothing.
pub(crate) fn unpack(stored: &[u8], block: &mut [u8], crc: u32) -> bool {
    let Some((header, rest)) = stored.split_first_chunk::<HEADER_BYTES>() else { return false };
    let [a, b, checksum @ ..] = *header;
    let Some(bytes) = rest.get(..usize::from(u16::from_le_bytes([a, b]))) else { return false };
    crc32c(bytes) == u32::from_le_bytes(checksum)
        && decompress_into(bytes, block).is_ok_and(|len| len == SLOT_BYTES)
        && crc32c(block) == crc
}

/// Whether what is stored in a place of this size is the block with this checksum. Undoes the disguise of a
/// block that is stored as it is.
pub(crate) fn is_intact(stored: &mut [u8], size: Size, crc: u32) -> bool {
    match size {
        Size::Whole => reveal(stored, crc),
        Size::Half | Size::Quarter => unpack(stored, &mut [0; SLOT_BYTES], crc),
    }
}

#[cfg(test)]
mod tests {
    use base::Rng;

    use super::*;

    /// A block that shrinks to about `random` bytes.
    fn block(random: usize, seed: u64) -> [u8; SLOT_BYTES] {
        let mut block = [7; SLOT_BYTES];
        Rng::new(seed).fill(&mut block[..random]);
        block
    }

    #[test]
    fn blocks_take_the_smallest_size_that_fits() {
        let mut packer = Packer::default();
        for (random, expected) in [
            (0, Size::Quarter),
            (900, Size::Quarter),
            (1900, Size::Half),
            (2100, Size::Whole),
            (4096, Size::Whole),
        ] {
            let block = block(random, random as u64);
            let mut stored = vec![1; 10];
            let size = packer.pack(&block, &mut stored);
            assert_eq!(size, expected, "{random}");
            if !size.is_packed() {
                assert_eq!(stored.len(), 10);
                continue;
            }
            assert_eq!(stored.len(), 10 + size.bytes());
            let crc = crc32c(&block);
            let mut read = [0; SLOT_BYTES];
            assert!(unpack(&stored[10..], &mut read, crc));
            assert_eq!(read, block);
            assert!(!unpack(&stored[10..], &mut read, !crc), "another block");
            assert!(is_intact(&mut stored[10..], size, crc));
        }
    }

    #[test]
    fn no_byte_of_a_compressed_block_may_change() {
        let block = block(900, 1);
        let mut stored = Vec::new();
        Packer::default().pack(&block, &mut stored);
        let len = HEADER_BYTES + usize::from(u16::from_le_bytes([stored[0], stored[1]]));
        for bit in 0..len * 8 {
            let mut bytes = stored.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(!unpack(&bytes, &mut [0; SLOT_BYTES], crc32c(&block)), "bit {bit}");
        }
        for len in 0..len {
            assert!(!unpack(&stored[..len], &mut [0; SLOT_BYTES], crc32c(&block)));
        }
    }

    /// A slot of compressed blocks must not be mistaken for a head.
    #[test]
    fn a_compressed_block_never_begins_like_a_head() {
        assert!(usize::from(u16::from_le_bytes(*b"UR")) > Size::Half.bytes());
    }

    #[test]
    fn what_does_not_shrink_is_not_tried_again_for_a_while() {
        let mut packer = Packer::default();
        let (good, bad) = (block(0, 1), block(SLOT_BYTES, 1));
        let mut stored = Vec::new();
        for _ in 1..MISSES_MAX {
            assert_eq!(packer.pack(&bad, &mut stored), Size::Whole);
        }
        assert_eq!(packer.pack(&good, &mut stored), Size::Quarter, "it begins to count again");
        for _ in 0..MISSES_MAX {
            assert_eq!(packer.pack(&bad, &mut stored), Size::Whole);
        }
        for _ in 0..SKIPPED {
            assert_eq!(packer.pack(&good, &mut stored), Size::Whole);
        }
        assert_eq!(packer.pack(&good, &mut stored), Size::Quarter);
        assert_eq!(stored.len(), 2 * Size::Quarter.bytes());
        assert_eq!(packer.tried(), 2 * MISSES_MAX as usize + 1);
    }
}
