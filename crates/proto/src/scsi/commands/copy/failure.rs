//! Why a copy stopped, and the sense data for it.

use crate::scsi::sense::{Copied, Forwarded, Side, code};
use crate::scsi::{Refusal, Sense, SenseKey, Status};

/// Why a copy did not copy all of its segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyError {
    /// Task management aborted it; it is unknown how many segments are complete.
    Aborted,
    /// A segment failed.
    Failed(CopyFailure),
}

/// Where a copy stopped, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyFailure {
    /// The segment, counted from zero; earlier segments are complete.
    pub segment: u16,
    /// The number of the segment's target blocks that were not written; `None` if none was written.
    pub residual: Option<u64>,
    /// Why it stopped.
    pub fault: CopyFault,
}

/// Why a segment of a copy failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyFault {
    /// No unit has the name of the source or the target, or this initiator may not use that unit.
    Unreachable,
    /// The unit's block size differs from the one in the command.
    BlockLength,
    /// The range exceeds the unit.
    OutOfRange,
    /// The source refused to return its blocks.
    Source(Refusal),
    /// The target refused to take the blocks.
    Target(Refusal),
}

impl CopyError {
    /// The number of segments that are known to be complete.
    pub(super) fn segments_done(self) -> usize {
        match self {
            CopyError::Aborted => 0,
            CopyError::Failed(failure) => usize::from(failure.segment),
        }
    }

    /// The sense data for it.
    pub(super) fn sense(self) -> Sense {
        match self {
            CopyError::Aborted => Sense::ABORTED,
            CopyError::Failed(failure) => failure.sense(),
        }
    }
}

impl CopyFailure {
    /// SPC-4, EXTENDED COPY command errors detected during processing of segment descriptors.
    fn sense(self) -> Sense {
        let CopyFailure { segment, residual, fault } = self;
        let (code, third_party) = match fault {
            CopyFault::Unreachable => (code::COPY_TARGET_DEVICE_NOT_REACHABLE, None),
            CopyFault::BlockLength => (code::INCORRECT_COPY_TARGET_DEVICE_TYPE, None),
            CopyFault::OutOfRange => (code::NO_ADDITIONAL_SENSE_INFORMATION, None),
            CopyFault::Source(refusal) => (code::THIRD_PARTY_DEVICE_FAILURE, Some((Side::Source, refusal))),
            CopyFault::Target(refusal) => (code::THIRD_PARTY_DEVICE_FAILURE, Some((Side::Target, refusal))),
        };
        let forwarded = third_party.map(|(side, refusal)| match refusal {
            Refusal::Conflict => Forwarded { side, status: Status::ReservationConflict, sense: None },
            Refusal::Check(sense) => {
                Forwarded { side, status: Status::CheckCondition, sense: Some((sense.key, sense.code)) }
            }
        });
        let copied = Some(Copied { segment, forwarded });
        Sense { information: residual, copied, ..Sense::new(SenseKey::CopyAborted, code) }
    }
}
