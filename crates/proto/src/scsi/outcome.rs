//! How a command ended.

use base::Chain;

use super::Sense;

/// SAM-5 table 33.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum Status {
    Good = 0x00,
    CheckCondition = 0x02,
    ConditionMet = 0x04,
    Busy = 0x08,
    ReservationConflict = 0x18,
    TaskSetFull = 0x28,
    TaskAborted = 0x40,
}

/// The answer to a command.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The status byte.
    pub status: Status,
    /// With CHECK CONDITION, why.
    pub sense: Option<Sense>,
    /// Data for the initiator, already cut to the allocation length; empty for commands that give none.
    pub data_in: Chain,
    /// The bytes that the CDB asked to transfer, in its direction: against the transport's expected length this gives
    /// the residual. For data-in it is `data_in.len()` unless the command failed.
    pub transfer: u64,
}
