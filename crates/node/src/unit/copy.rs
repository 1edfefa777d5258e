//! EXTENDED COPY between volumes of this node: the data never leaves it.

use base::{BlockCount, BlockSize, ByteLen, LbaRange};
use proto::scsi::{BlockDone, BlockError, CopyFault, CopySegment, NexusId};
use rt::Durability;
use std::rc::Rc;

use super::{AtVolume, Unit};
use crate::session::View;
use crate::volume::Standing;

/// What is in memory at once.
const STEP_BYTES: u64 = 1 << 20;

/// Copies the segments in order. A unit must be visible to the session that asks: a copy is not a way around LUN maps.
pub(super) async fn copy(
    view: &View,
    nexus: NexusId,
    segments: &[CopySegment],
) -> Result<BlockDone, BlockError> {
    for (number, segment) in (0..).zip(segments) {
        copy_segment(view, nexus, segment).await.map_err(|fault| BlockError::Copy(number, fault))?;
    }
    Ok(BlockDone::Done)
}

async fn copy_segment(view: &View, nexus: NexusId, segment: &CopySegment) -> Result<(), CopyFault> {
    let source = view.by_naa(&segment.source).ok_or(CopyFault::Unreachable)?;
    let target = view.by_naa(&segment.target).ok_or(CopyFault::Unreachable)?;
    check(&source, segment.source_range, segment.source_block_size)?;
    check(&target, segment.target_range, segment.target_block_size)?;
    let (source_shift, target_shift) =
        (source.volume().block_size().shift(), target.volume().block_size().shift());
    let total = segment.source_range.count.0 << source_shift;
    let mut done = 0;
    while done < total {
        let step = (total - done).min(STEP_BYTES);
        let part = |range: LbaRange, shift: u32| LbaRange {
            start: range.start + BlockCount(done >> shift),
            count: BlockCount(step >> shift),
        };
        let at_source = AtVolume::enter(&source, nexus);
        if !source.brain().borrow().may_copy_from(view.nexus()) {
            return Err(CopyFault::Source);
        }
        let data = source.volume().read(part(segment.source_range, source_shift), Standing::Ordinary).await;
        drop(at_source);
        let data = data.map_err(|_| CopyFault::Source)?;
        debug_assert_eq!(ByteLen(data.len() as u64), ByteLen(step));
        let range = part(segment.target_range, target_shift);
        // Each step asks anew, and is seen by those who wait for the target's commands: a preempted initiator's copy ends here.
        let _at_target = AtVolume::enter(&target, nexus);
        if !target.brain().borrow().may_copy_to(view.nexus()) {
            return Err(CopyFault::WriteProtected);
        }
        let cached = target.brain().borrow().state().write_cache();
        let durability = if cached { Durability::Cached } else { Durability::Durable };
        let written = target.volume().write(range, data, durability, Standing::Ordinary).await;
        written
            .map_err(|error| if error == BlockError::Full { CopyFault::Full } else { CopyFault::Target })?;
        done += step;
    }
    Ok(())
}

fn check(unit: &Rc<Unit>, range: LbaRange, block_size: BlockSize) -> Result<(), CopyFault> {
    if unit.volume().block_size() != block_size {
        return Err(CopyFault::BlockLength);
    }
    if range.end().0 > unit.volume().blocks().0 { Err(CopyFault::OutOfRange) } else { Ok(()) }
}
