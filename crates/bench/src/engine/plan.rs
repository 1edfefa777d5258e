//! What a run does, with which targets, on which cores.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rt::CoreId;

use crate::device::UnitAddress;
use crate::sequence::Region;
use crate::{Content, Workload};

/// Everything that a run must know.
#[derive(Clone)]
pub(crate) struct Plan {
    pub(crate) workload: Workload,
    pub(crate) places: Vec<Place>,
    pub(crate) lanes: Vec<LanePlan>,
    /// Sessions of each lane; a disk needs none.
    pub(crate) sessions: u32,
    /// How long a request may take before the target counts as lost.
    pub(crate) timeout: Duration,
    /// The number of the run that identifies its data (`--verify`).
    pub(crate) pattern: u64,
    /// Whether [`prepare`](super::prepare) has filled the targets with that data.
    pub(crate) filled: bool,
}

/// A target, in the runtime's terms.
#[derive(Clone)]
pub(crate) enum Place {
    Disk(PathBuf),
    Unit(Arc<UnitAddress>),
}

/// One thread of DISKSPD: a source of requests for one target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LanePlan {
    /// The index of its place.
    pub(crate) place: usize,
    pub(crate) core: CoreId,
    /// Its number among the lanes of its target.
    pub(crate) thread: u32,
}

/// What is done once, before the runs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Preparation {
    /// Create the files with this size.
    pub(crate) create: Option<u64>,
    /// Fill the whole region before the runs.
    pub(crate) fill: Option<Content>,
    /// Destroy existing data.
    pub(crate) overwrite: bool,
    /// At least one run writes.
    pub(crate) writes: bool,
}

/// Why a pattern does not fit a target.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // The messages say it.
pub enum Misfit {
    #[error("{what} of {bytes} bytes is not a multiple of its block size of {block} bytes")]
    Alignment { what: &'static str, bytes: u64, block: u32 },
    #[error("it takes at most {max} bytes per command; use a smaller -b than {block}")]
    TooLong { block: u32, max: u64 },
    #[error("it has {size} bytes, too few for {wanted} bytes from offset {base}; use a smaller -f or -B")]
    TooSmall { size: u64, base: u64, wanted: u64 },
    #[error("{what} would have {bytes} bytes but needs {min}; use a larger target, or more of it")]
    SmallPart { what: &'static str, bytes: u64, min: u64 },
    #[error(
        "--verify needs space for four times the outstanding requests; {outstanding} are too many for {blocks}"
    )]
    Crowded { blocks: u64, outstanding: u64 },
    #[error("--verify tracks space for at most {max} requests, and this is {blocks}; limit it with -f")]
    TooLarge { blocks: u64, max: u64 },
}

/// The part of a target that a pattern uses.
pub(crate) fn region(workload: &Workload, size: u64, block: u32, request_max: u64) -> Result<Region, Misfit> {
    let (crate::Access::Random { align: step } | crate::Access::Sequential { stride: step, .. }) =
        workload.access;
    for (what, bytes) in [
        ("a request size", u64::from(workload.block)),
        ("an alignment or stride", step),
        ("an offset", workload.base),
        ("a thread stride", workload.thread_stride),
    ] {
        if !bytes.is_multiple_of(block.into()) {
            return Err(Misfit::Alignment { what, bytes, block });
        }
    }
    if u64::from(workload.block) > request_max {
        return Err(Misfit::TooLong { block: workload.block, max: request_max });
    }
    let rest = size.saturating_sub(workload.base);
    let wanted = workload.span.unwrap_or(rest).max(workload.block.into());
    if wanted > rest {
        return Err(Misfit::TooSmall { size, base: workload.base, wanted });
    }
    Ok(Region { start: workload.base, len: wanted - wanted % u64::from(block) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Access;

    #[test]
    fn patterns_must_fit_their_target() {
        let workload = Workload { block: 4096, access: Access::Random { align: 512 }, ..Workload::default() };
        let part = Workload { base: 4096, span: Some(8192), ..workload.clone() };
        assert_eq!(region(&workload, 10_000, 512, u64::MAX), Ok(Region { start: 0, len: 9728 }));
        assert_eq!(region(&part, 12_288, 512, u64::MAX), Ok(Region { start: 4096, len: 8192 }));
        assert!(matches!(region(&part, 12_287, 512, u64::MAX), Err(Misfit::TooSmall { .. })));
        assert!(matches!(region(&workload, 4095, 512, u64::MAX), Err(Misfit::TooSmall { .. })));
        assert!(matches!(region(&workload, 1 << 20, 4096, u64::MAX), Err(Misfit::Alignment { .. })));
        assert!(matches!(region(&workload, 1 << 20, 512, 2048), Err(Misfit::TooLong { .. })));
    }
}
