//! What SCSI asks of a volume, and what can come of it. All ranges were checked against the capacity.

use base::{BlockCount, Chain, Lba, LbaRange};

use super::Refusal;

/// One operation on blocks.
#[derive(Clone, Debug)]
pub enum BlockOp {
    /// Read; from the medium itself if `fua`.
    Read {
        /// Which blocks.
        range: LbaRange,
        /// What a volatile cache has of them and the medium has not goes to the medium first.
        fua: bool,
    },
    /// Write; done when durable if `fua`.
    Write {
        /// Which blocks.
        range: LbaRange,
        /// As many bytes as the range has.
        data: Chain,
        /// Durable before it is done.
        fua: bool,
    },
    /// Write, then read back from the medium: WRITE AND VERIFY.
    WriteAndVerify {
        /// Which blocks.
        range: LbaRange,
        /// As many bytes as the range has.
        data: Chain,
        /// What was read back is compared with `data`; [`BlockError::Miscompare`] if it differs.
        compare: bool,
    },
    /// Write all or, should power be lost, nothing; only as far as the unit's configuration promises it.
    WriteAtomic {
        /// Which blocks.
        range: LbaRange,
        /// As many bytes as the range has.
        data: Chain,
        /// Durable before it is done.
        fua: bool,
    },
    /// Write one block's content to every block of the range.
    WriteSame {
        /// Which blocks.
        range: LbaRange,
        /// One block.
        pattern: Chain,
        /// Durable before it is done.
        fua: bool,
    },
    /// Give the blocks back; they read as zeros afterwards.
    Unmap {
        /// Which blocks, in the order given.
        ranges: Vec<LbaRange>,
        /// Durable before it is done.
        fua: bool,
    },
    /// Check that the medium has the blocks, and that they can be read.
    Verify {
        /// Which blocks.
        range: LbaRange,
    },
    /// Compare the blocks with `data`; [`BlockError::Miscompare`] if they differ.
    Compare {
        /// Which blocks.
        range: LbaRange,
        /// As many bytes as the range has, or one block to compare with each.
        data: Chain,
    },
    /// Compare and, if equal, write: one step to all other commands.
    CompareAndWrite {
        /// Which blocks.
        range: LbaRange,
        /// What must be there.
        compare: Chain,
        /// What is written then.
        write: Chain,
        /// Durable before it is done.
        fua: bool,
    },
    /// Read, OR with `data`, write: one step to all other commands.
    OrWrite {
        /// Which blocks.
        range: LbaRange,
        /// As many bytes as the range has.
        data: Chain,
        /// Durable before it is done.
        fua: bool,
    },
    /// Make all completed writes durable (of the whole volume: ranges are a hint that nobody uses).
    Flush,
    /// Say whether the volume takes writes: [`BlockError::Offline`] if not. Nothing is read or written, and
    /// nothing is waited for.
    TestReady,
    /// Bring the blocks into a cache if there is one.
    Prefetch {
        /// Which blocks.
        range: LbaRange,
    },
    /// Which blocks are mapped, from `start` on, in at most `max` descriptors.
    LbaStatus {
        /// The first block of interest.
        start: Lba,
        /// How many descriptors fit.
        max: usize,
    },
}

/// An operation was done.
#[derive(Clone, Debug)]
pub enum BlockDone {
    /// Done, and nothing to tell.
    Done,
    /// What was read.
    Data(Chain),
    /// A prefetch was done, and all of its blocks are in a cache now.
    Cached,
    /// Consecutive extents with their state; the first begins where the question did.
    LbaStatus(Vec<(Lba, BlockCount, Provisioning)>),
}

impl BlockOp {
    /// The blocks that it reads or writes; `None` if that is not one range.
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
            BlockOp::Unmap { .. } | BlockOp::Flush | BlockOp::TestReady | BlockOp::LbaStatus { .. } => None,
        }
    }

    /// Whether it changes no block.
    pub fn is_read_only(&self) -> bool {
        match self {
            BlockOp::Read { .. }
            | BlockOp::Verify { .. }
            | BlockOp::Compare { .. }
            | BlockOp::Flush
            | BlockOp::TestReady
            | BlockOp::Prefetch { .. }
            | BlockOp::LbaStatus { .. } => true,
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

/// PROVISIONING STATUS (SBC-3 clause 5, GET LBA STATUS).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
#[repr(u8)]
pub enum Provisioning {
    Mapped = 0,
    Deallocated = 1,
}

/// An operation was not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockError {
    /// The first byte that differs, counted from the start of the data.
    Miscompare(u64),
    /// The disk could not read this block.
    Unreadable(Lba),
    /// The disk could not write, or flush; which block it was is not known.
    Unwritable,
    /// No space is left for it.
    Full,
    /// The volume is out of service: its disk failed, and takes nothing more, or was taken away.
    Offline,
    /// This node's copy of the volume does not serve now; that of another may, or this one in a moment.
    Unavailable,
    /// It was aborted by task management before it took effect, or its effect is unknown.
    Aborted,
    /// It may have taken effect, or still do so: other copies of the volume are out of reach.
    Unknown,
    /// A copy stopped.
    Copy(CopyFailure),
}

/// Where a copy stopped, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyFailure {
    /// The segment, counted from zero; the earlier ones were done.
    pub segment: u16,
    /// The target's blocks of the segment that were not written; `None` if none was.
    pub residual: Option<u64>,
    /// Why.
    pub fault: CopyFault,
}

/// Why a segment of a copy was not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyFault {
    /// No unit has the name of the source or the target, or this initiator may not use it.
    Unreachable,
    /// The unit's block is not as long as the command says.
    BlockLength,
    /// The range does not lie inside the unit.
    OutOfRange,
    /// What the source answered instead of giving its blocks.
    Source(Refusal),
    /// What the target answered instead of taking the blocks.
    Target(Refusal),
}
