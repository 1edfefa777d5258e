//! Limits of a single command. The commands enforce the same constants that VPD page B0h (Block Limits) and
//! RECEIVE COPY RESULTS announce, so that the two cannot differ.

use base::{BlockCount, BlockSize};

/// The most bytes that one command may transfer (MAXIMUM TRANSFER LENGTH), verify or OR.
///
/// It bounds the memory that one command holds. Linux' own target announces 8 MiB for files, so ESXi (up to 4
/// MiB in practice), Windows (up to 2 MiB) and Linux (up to 4 MiB by default) work with it. It must not be
/// smaller: libiscsi writes 2,048 blocks of 4,096 bytes without reading the limit.
pub const TRANSFER_BYTES_MAX: u64 = 8 << 20;

/// OPTIMAL TRANSFER LENGTH: not reported. Linux would use it as the size of every request, and mkfs.xfs as
/// the stripe width.
pub const TRANSFER_BLOCKS_OPTIMAL: u32 = 0;

/// The most bytes that one PRE-FETCH loads. A longer one is truncated, since it is only a hint.
pub const PREFETCH_BYTES_MAX: u64 = TRANSFER_BYTES_MAX;

/// The most bytes that one WRITE SAME may cover (MAXIMUM WRITE SAME LENGTH).
///
/// It bounds the time of one command: 16 MiB take 80 ms on a disk of 200 MB/s. It must be less than 65,536
/// blocks, because libiscsi checks larger limits with a WRITE of 65,536 blocks, regardless of the maximum
/// transfer length.
pub const WRITE_SAME_BYTES_MAX: u64 = 16 << 20;

/// WSNZ: a WRITE SAME of zero blocks is refused.
///
/// It would extend to the end of the volume, which nearly always exceeds the limit above.
pub const WRITE_SAME_NON_ZERO: bool = true;

/// The most blocks that one UNMAP may cover in all its descriptors (MAXIMUM UNMAP LBA COUNT): 512 MiB or 4
/// GiB. libiscsi considers a larger limit insane.
pub const UNMAP_BLOCKS_MAX: u32 = 1 << 20;

/// The most descriptors in one UNMAP (MAXIMUM UNMAP BLOCK DESCRIPTOR COUNT): a parameter list of 8 + 256 * 16
/// = 4,104 bytes.
pub const UNMAP_DESCRIPTORS_MAX: u32 = 256;

/// The unit of released space in bytes (OPTIMAL UNMAP GRANULARITY): a page of the file systems below us.
pub const UNMAP_BYTES_OPTIMAL: u64 = 4096;

/// The most blocks that one COMPARE AND WRITE may cover (MAXIMUM COMPARE AND WRITE LENGTH, a field of one
/// byte).
///
/// One block is one write, which reaches all copies of a volume or none; and a volume with a single copy may
/// get more copies while it is in use. Clustered file systems use one block.
pub const COMPARE_AND_WRITE_BLOCKS_MAX: u8 = 1;

/// The most descriptors in one GET LBA STATUS, regardless of the allocation length: 8 + 1,024 * 16 = 16,392
/// bytes.
pub const LBA_STATUS_DESCRIPTORS_MAX: usize = 1024;

/// The most CSCD (target) descriptors in one EXTENDED COPY.
pub const COPY_TARGETS_MAX: u16 = 8;
/// The most segment descriptors in one EXTENDED COPY.
pub const COPY_SEGMENTS_MAX: u16 = 32;
/// The most bytes of all descriptors in one EXTENDED COPY: eight of 32 bytes and 32 of 28 bytes.
pub const COPY_DESCRIPTOR_BYTES_MAX: u32 = COPY_TARGETS_MAX as u32 * 32 + COPY_SEGMENTS_MAX as u32 * 28;
/// The most bytes that one segment may copy.
///
/// A field of 16 bits holds less than 65,536 blocks of 4,096 bytes, so no segment can exceed it.
pub const COPY_SEGMENT_BYTES_MAX: u32 = 65_536 * 4096;
/// The most copy results held for RECEIVE COPY RESULTS, for all nexuses of a unit on one core. The oldest are
/// dropped first.
pub const COPY_RESULTS_HELD_MAX: usize = 64;

// One descriptor too many, of either kind, must fit: it is refused as "too many", not as "too long" (SPC-4,
// EXTENDED COPY).
const _: () = assert!((COPY_TARGETS_MAX as u32 + 1) * 32 + 28 <= COPY_DESCRIPTOR_BYTES_MAX);
const _: () = assert!(32 + (COPY_SEGMENTS_MAX as u32 + 1) * 28 <= COPY_DESCRIPTOR_BYTES_MAX);
// MAXIMUM WRITE SAME LENGTH stays below 65,536 blocks, see above. Every block size divides the byte limits.
const _: () = assert!(WRITE_SAME_BYTES_MAX / 512 < 65_536);
const _: () = assert!(TRANSFER_BYTES_MAX.is_multiple_of(4096) && WRITE_SAME_BYTES_MAX.is_multiple_of(4096));

/// The number of blocks of a size in `bytes`, for a limit above.
pub const fn blocks_of(bytes: u64, size: BlockSize) -> BlockCount {
    BlockCount(bytes >> size.shift())
}

/// The volume's guarantee for WRITE ATOMIC (SBC-4 clause 5): after a power loss, either all of the command's
/// blocks are written or none.
///
/// All fields are in blocks, as in VPD page B0h.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AtomicWrites {
    /// MAXIMUM ATOMIC TRANSFER LENGTH; zero if atomic writes are not supported.
    pub blocks_max: u32,
    /// ATOMIC ALIGNMENT: the first block must be a multiple of it; zero or one: no restriction.
    pub alignment: u32,
    /// ATOMIC TRANSFER LENGTH GRANULARITY: the length must be a multiple of it; zero or one: no restriction.
    pub granularity: u32,
}
