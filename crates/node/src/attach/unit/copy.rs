//! EXTENDED COPY between volumes of this node: the data never leaves the node.
//!
//! A copy runs in steps. Each step first reserves room in its session's memory, and checks that the copy is
//! still allowed on both units and still wanted. An aborted copy ends after its current step.

use base::{BlockCount, BlockSize, Chain, Instant, LbaRange};
use proto::scsi::{CopyError, CopyFailure, CopyFault, CopySegment, ItNexus, NexusId, Refusal};
use rt::Durability;

use super::{AtVolume, Unit};
use crate::data::ClaimRole;
use crate::iscsi::session::{Aborted, Caller};

/// How many bytes are in memory at once.
const STEP_BYTES: u64 = 1 << 20;

/// Why a segment was not completed.
enum Stop {
    Fault(CopyFault),
    Aborted,
}

impl From<CopyFault> for Stop {
    fn from(fault: CopyFault) -> Stop {
        Stop::Fault(fault)
    }
}

impl From<Aborted> for Stop {
    fn from(_: Aborted) -> Stop {
        Stop::Aborted
    }
}

/// Copies the segments in order. Both units must be visible to the session: a copy must not bypass LUN maps.
pub(super) async fn copy(caller: &Caller, nexus: NexusId, segments: &[CopySegment]) -> Result<(), CopyError> {
    for (number, segment) in (0..).zip(segments) {
        let mut written = BlockCount(0);
        copy_segment(caller, nexus, segment, &mut written).await.map_err(|stop| match stop {
            Stop::Aborted => CopyError::Aborted,
            Stop::Fault(fault) => {
                let residual = (written.0 > 0).then(|| segment.target_range.count.0 - written.0);
                CopyError::Failed(CopyFailure { segment: number, residual, fault })
            }
        })?;
    }
    Ok(())
}

/// Copies one segment; `written` counts the target's blocks.
async fn copy_segment(
    caller: &Caller,
    nexus: NexusId,
    segment: &CopySegment,
    written: &mut BlockCount,
) -> Result<(), Stop> {
    let (source, target) = {
        let view = caller.view();
        let unit = |naa| view.by_naa(naa).ok_or(CopyFault::Unreachable);
        (unit(&segment.source)?, unit(&segment.target)?)
    };
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
        let _held = caller.admit(step as usize).await?;
        // Each step checks again, and counts as a command at both units. So the copy of a preempted
        // initiator, or to a unit that was write-protected, ends here.
        let name = caller.view().nexus().clone();
        let data = read(&source, &name, nexus, part(segment.source_range, source_shift));
        let data = data.await.map_err(CopyFault::Source)?;
        let range = part(segment.target_range, target_shift);
        // The read may have taken long.
        let came = caller.word().await.map_err(|_| Stop::Aborted)?;
        let name = caller.view().nexus().clone();
        write(&target, came, (&name, nexus), range, data).await.map_err(CopyFault::Target)?;
        done += step;
        written.0 += range.count.0;
    }
    Ok(())
}

async fn read(source: &Unit, name: &ItNexus, nexus: NexusId, range: LbaRange) -> Result<Chain, Refusal> {
    let _at_source = AtVolume::enter(source, nexus, false);
    source.brain().borrow().may_copy_from(name)?;
    Ok(source.volume().read(range, ClaimRole::Ordinary).await?)
}

async fn write(
    target: &Unit,
    came: Instant,
    (name, nexus): (&ItNexus, NexusId),
    range: LbaRange,
    data: Chain,
) -> Result<(), Refusal> {
    let _at_target = AtVolume::enter(target, nexus, true);
    target.brain().borrow().may_copy_to(name)?;
    let cached = target.brain().borrow().state().write_cache();
    let durability = if cached { Durability::Cached } else { Durability::Durable };
    Ok(target.volume().write(came, range, data, durability, ClaimRole::Ordinary).await?)
}

fn check(unit: &Unit, range: LbaRange, block_size: BlockSize) -> Result<(), CopyFault> {
    if unit.volume().block_size() != block_size {
        return Err(CopyFault::BlockLength);
    }
    if range.end().0 > unit.volume().blocks().0 { Err(CopyFault::OutOfRange) } else { Ok(()) }
}
