//! How much one command may ask for: what the commands enforce and what VPD page B0h (Block Limits) and
//! RECEIVE COPY RESULTS announce come from here, so that the two cannot differ.

use base::{BlockCount, BlockSize};

/// Bytes that one command may transfer (MAXIMUM TRANSFER LENGTH), verify or OR.
///
/// 8 MiB is what Linux' own target announces for files, so ESXi (up to 4 MiB in practice), Windows (up to
/// 2 MiB) and Linux (up to 4 MiB by default) live with it; it bounds what one command holds in memory.
/// libiscsi writes 2,048 blocks of 4,096 bytes without asking for the limit, which is the lower bound.
pub const TRANSFER_BYTES_MAX: u64 = 8 << 20;

/// OPTIMAL TRANSFER LENGTH: none is better than another. Linux would make it the size of every request, and
/// mkfs.xfs the width of a stripe.
pub const TRANSFER_BLOCKS_OPTIMAL: u32 = 0;

/// Blocks that one PRE-FETCH may bring in; a longer one is cut, as it is a hint.
pub const PREFETCH_BYTES_MAX: u64 = TRANSFER_BYTES_MAX;

/// Bytes that one WRITE SAME may cover (MAXIMUM WRITE SAME LENGTH).
///
/// It bounds the time of one command: 16 MiB take 80 ms on a disk of 200 MB/s. Fewer than 65,536 blocks,
/// because libiscsi checks larger limits by a WRITE of 65,536 blocks, whatever the maximum transfer length
/// is.
pub const WRITE_SAME_BYTES_MAX: u64 = 16 << 20;

/// WSNZ: a WRITE SAME of zero blocks, which would reach to the end of the volume, is refused. The limit above
/// would forbid it nearly always.
pub const WRITE_SAME_NON_ZERO: bool = true;

/// Blocks that one UNMAP may cover in all its descriptors (MAXIMUM UNMAP LBA COUNT): 512 MiB or 4 GiB.
/// libiscsi takes more for insane.
pub const UNMAP_BLOCKS_MAX: u32 = 1 << 20;

/// Descriptors in one UNMAP (MAXIMUM UNMAP BLOCK DESCRIPTOR COUNT): a parameter list of 8 + 256 * 16 =
/// 4,104 bytes.
pub const UNMAP_DESCRIPTORS_MAX: u32 = 256;

/// Bytes that are given back together (OPTIMAL UNMAP GRANULARITY): a page of the file systems below us.
pub const UNMAP_BYTES_OPTIMAL: u64 = 4096;

/// Blocks that one COMPARE AND WRITE may cover (MAXIMUM COMPARE AND WRITE LENGTH, a field of one byte). One
/// block is one write, which is on all copies of a volume or on none; and a volume with one copy may get more
/// while it is in use. Clustered file systems use one block.
pub const COMPARE_AND_WRITE_BLOCKS_MAX: u8 = 1;

/// Descriptors of one GET LBA STATUS, whatever the allocation length is: 8 + 1,024 * 16 = 16,392 bytes.
pub const LBA_STATUS_DESCRIPTORS_MAX: usize = 1024;

/// CSCD (target) descriptors of one EXTENDED COPY.
pub const COPY_TARGETS_MAX: u16 = 8;
/// Segment descriptors of one EXTENDED COPY.
pub const COPY_SEGMENTS_MAX: u16 = 32;
/// Bytes of all descriptors of one EXTENDED COPY: eight of 32 bytes and 32 of 28 bytes.
pub const COPY_DESCRIPTOR_BYTES_MAX: u32 = COPY_TARGETS_MAX as u32 * 32 + COPY_SEGMENTS_MAX as u32 * 28;
/// Bytes that one segment may copy: the field of 16 bits holds less than 65,536 blocks of 4,096 bytes, so
/// that no segment can exceed it.
pub const COPY_SEGMENT_BYTES_MAX: u32 = 65_536 * 4096;
/// Results of copies that are held for RECEIVE COPY RESULTS, of all nexuses of a unit on one core; the oldest
/// go first.
pub const COPY_RESULTS_HELD_MAX: usize = 64;

// One too many of either kind is refused as "too many", not as "too long" (SPC-4, EXTENDED COPY): it must
// fit.
const _: () = assert!((COPY_TARGETS_MAX as u32 + 1) * 32 + 28 <= COPY_DESCRIPTOR_BYTES_MAX);
const _: () = assert!(32 + (COPY_SEGMENTS_MAX as u32 + 1) * 28 <= COPY_DESCRIPTOR_BYTES_MAX);
// MAXIMUM WRITE SAME LENGTH stays below 65,536 blocks, see above; a block of any size divides every byte
// limit.
const _: () = assert!(WRITE_SAME_BYTES_MAX / 512 < 65_536);
const _: () = assert!(TRANSFER_BYTES_MAX.is_multiple_of(4096) && WRITE_SAME_BYTES_MAX.is_multiple_of(4096));

/// How many blocks of a size are `bytes`, for a limit above.
pub const fn blocks_of(bytes: u64, size: BlockSize) -> BlockCount {
    BlockCount(bytes >> size.shift())
}

/// What the volume promises of WRITE ATOMIC (SBC-4 clause 5): after a power loss either all of the command is
/// there or nothing. All in blocks, as in VPD page B0h.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AtomicWrites {
    /// MAXIMUM ATOMIC TRANSFER LENGTH; zero if there are no atomic writes.
    pub blocks_max: u32,
    /// ATOMIC ALIGNMENT: the first block is a multiple of it; zero or one if any will do.
    pub alignment: u32,
    /// ATOMIC TRANSFER LENGTH GRANULARITY: the length is a multiple of it; zero or one if any will do.
    pub granularity: u32,
}
