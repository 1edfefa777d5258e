//! The operations that a protocol requests of a volume, and their results. All ranges have been checked
//! against the capacity.
//!
//! Nothing here belongs to one protocol: each protocol turns its commands into these operations, and their
//! results into its own responses.

use base::{BlockCount, ByteLen, Chain, Lba, LbaRange};

/// An operation on blocks.
///
/// `data` has as many bytes as the range, unless the operation says otherwise. With `fua`, a change is
/// durable before the operation completes.
#[derive(Clone, Debug)]
#[allow(missing_docs)] // Fields are explained where their names do not.
pub enum BlockOp {
    /// Read. With `fua`, blocks that are in a volatile cache but not on the medium are written to the medium
    /// first.
    Read { range: LbaRange, fua: bool },
    /// Write.
    Write { range: LbaRange, data: Chain, fua: bool },
    /// Write, then read back from the medium. With `compare`, also compare that with `data`;
    /// [`BlockError::Miscompare`] if they differ.
    WriteAndVerify { range: LbaRange, data: Chain, compare: bool },
    /// Write all blocks or, if power is lost, none. Guaranteed only within the limits that the volume has
    /// announced.
    WriteAtomic { range: LbaRange, data: Chain, fua: bool },
    /// Write one block's content, the pattern, to every block of the range.
    WriteSame { range: LbaRange, pattern: Chain, fua: bool },
    /// Release the blocks, in the order given; they read as zeros afterwards.
    Unmap { ranges: Vec<LbaRange>, fua: bool },
    /// Check that the medium has the blocks and that they can be read.
    Verify { range: LbaRange },
    /// Compare the blocks with `data`, which may also be one block to compare with each;
    /// [`BlockError::Miscompare`] if they differ.
    Compare { range: LbaRange, data: Chain },
    /// Compare with the expected content and, if equal, write the new one: atomic with respect to all other
    /// commands.
    CompareAndWrite { range: LbaRange, compare: Chain, write: Chain, fua: bool },
    /// Read, OR with `data`, write: atomic with respect to all other commands.
    OrWrite { range: LbaRange, data: Chain, fua: bool },
    /// Make all completed writes durable, of the whole volume: hosts do not use the command's range.
    Flush,
    /// Check whether the volume accepts writes: [`BlockError::Offline`] if not. It reads and writes nothing,
    /// and waits for nothing.
    TestReady,
    /// Load the blocks into a cache, if there is one.
    Prefetch { range: LbaRange },
    /// Report which blocks are mapped, from `start` on, in at most `max` extents.
    LbaStatus { start: Lba, max: usize },
    /// Report how much space there is. Only for volumes that may run out of space.
    Space,
}

/// The result of an operation that succeeded.
#[derive(Clone, Debug)]
pub enum BlockDone {
    /// Done, without data.
    Done,
    /// The data that was read.
    Data(Chain),
    /// The prefetch is complete, and all of its blocks are in a cache now.
    Cached,
    /// Consecutive extents with their state; the first begins at the requested block.
    LbaStatus(Vec<(Lba, BlockCount, Provisioning)>),
    /// How much space there is.
    Space(Space),
}

/// The space of a volume that may run out of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// What this volume uses.
    pub used: ByteLen,
    /// What this volume, and those with which it shares its space, can still use.
    pub available: ByteLen,
    /// The same in percent of all of the space.
    pub available_percent: u8,
}

impl BlockOp {
    /// The blocks that the operation reads or writes; `None` if they are not a single range.
    pub fn range(&self) -> Option<LbaRange> {
        match self {
            BlockOp::Read { range, .. }
            | BlockOp::Write { range, .. }
            | BlockOp::WriteAndVerify { range, .. }
            | BlockOp::WriteAtomic { range, .. }
            | BlockOp::WriteSame { range, .. }
            | BlockOp::Verify { range }
            | BlockOp::Compare { range, .. }
            | BlockOp::CompareAndWrite { range, .. }
            | BlockOp::OrWrite { range, .. }
            | BlockOp::Prefetch { range } => Some(*range),
            BlockOp::Unmap { .. }
            | BlockOp::Flush
            | BlockOp::TestReady
            | BlockOp::LbaStatus { .. }
            | BlockOp::Space => None,
        }
    }

    /// Whether the operation changes no block.
    pub fn is_read_only(&self) -> bool {
        match self {
            BlockOp::Read { .. }
            | BlockOp::Verify { .. }
            | BlockOp::Compare { .. }
            | BlockOp::Flush
            | BlockOp::TestReady
            | BlockOp::Prefetch { .. }
            | BlockOp::LbaStatus { .. }
            | BlockOp::Space => true,
            BlockOp::Write { .. }
            | BlockOp::WriteAndVerify { .. }
            | BlockOp::WriteAtomic { .. }
            | BlockOp::WriteSame { .. }
            | BlockOp::Unmap { .. }
            | BlockOp::CompareAndWrite { .. }
            | BlockOp::OrWrite { .. } => false,
        }
    }
}

/// Whether blocks occupy space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Provisioning {
    /// They do.
    Mapped,
    /// They do not, and read as zeros.
    Deallocated,
}

/// Why an operation failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockError {
    /// The compared data differs: offset of the first byte that differs, from the start of the data.
    Miscompare(u64),
    /// A disk could not read this block.
    Unreadable(Lba),
    /// A disk could not write or flush; the block is unknown.
    Unwritable,
    /// No space is left.
    Full,
    /// The volume is out of service: its disk failed and accepts nothing more, or was removed.
    Offline,
    /// This node's copy of the volume cannot serve now; a copy on another node may, or this one soon.
    Unavailable,
    /// Task management aborted the operation before it took effect, or its effect is unknown.
    Aborted,
    /// The operation may have taken effect, or may still: other copies of the volume are unreachable.
    Unknown,
}
