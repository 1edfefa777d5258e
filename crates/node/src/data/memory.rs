//! How much memory an operation needs.

use proto::block::BlockOp;

use super::{STEP_BYTES, Volume};

/// How often a comparison holds the blocks: as they were read, and both sides contiguous.
const COMPARED: u64 = 3;

/// What one descriptor of GET LBA STATUS takes, with the extents that it is made from.
const STATUS_BYTES: u64 = 64;

impl Volume {
    /// How much memory `op` needs at most in addition to the data that came with it.
    ///
    /// Its session must have room for it.
    pub fn working_bytes(&self, op: &BlockOp) -> usize {
        let all = op.range().map_or(0, |range| (range.count * self.block_size).0);
        let step = all.min(STEP_BYTES);
        let bytes = match op {
            BlockOp::Read { .. } => all,
            BlockOp::Verify { .. } | BlockOp::WriteAndVerify { compare: false, .. } => step,
            BlockOp::Compare { .. } | BlockOp::WriteAndVerify { compare: true, .. } => COMPARED * step,
            BlockOp::CompareAndWrite { .. } => COMPARED * all,
            // What was read, and what is written.
            BlockOp::OrWrite { .. } => 2 * step,
            // One block, repeated.
            BlockOp::WriteSame { .. } => step,
            BlockOp::LbaStatus { max, .. } => *max as u64 * STATUS_BYTES,
            BlockOp::Write { .. }
            | BlockOp::WriteAtomic { .. }
            | BlockOp::Unmap { .. }
            | BlockOp::Flush
            | BlockOp::TestReady
            | BlockOp::Prefetch { .. }
            | BlockOp::Space => 0,
        };
        bytes as usize
    }
}
