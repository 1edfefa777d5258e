//! Why a node's copy of the cluster's record accepts no changes for now.

use thiserror::Error;

/// Why a node's copy of the cluster's record accepts no changes.
///
/// The node takes part again when its copy accepts changes; until then its vote is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Error)]
#[allow(missing_docs)] // The messages say it.
pub enum Stall {
    #[error("no space left on the file system of the data directory")]
    NoSpace,
    #[error("the disk of the data directory is failing")]
    Disk,
    #[error("a bug in Ursa ended it: restart the node and report this")]
    Defect,
    #[error("other nodes run a later version of Ursa, and this one cannot read their changes: update it")]
    Unreadable,
    #[error("a reason that only later versions know (code {0})")]
    Later(u8),
}

impl Stall {
    /// The code that nodes send each other; 0 is no stall.
    pub fn code(self) -> u8 {
        match self {
            Stall::NoSpace => 1,
            Stall::Disk => 2,
            Stall::Defect => 3,
            Stall::Unreadable => 4,
            Stall::Later(code) => code,
        }
    }

    /// The stall of another node's code; `None`: its record accepts changes.
    pub fn of_code(code: u8) -> Option<Stall> {
        match code {
            0 => None,
            1 => Some(Stall::NoSpace),
            2 => Some(Stall::Disk),
            3 => Some(Stall::Defect),
            4 => Some(Stall::Unreadable),
            later => Some(Stall::Later(later)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes() {
        for code in 1..=u8::MAX {
            assert_eq!(Stall::of_code(code).map(Stall::code), Some(code));
        }
        assert_eq!((Stall::of_code(0), Stall::of_code(1)), (None, Some(Stall::NoSpace)));
    }
}
