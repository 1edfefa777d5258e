//! How a command ended.

use base::Chain;

use super::Sense;

/// The status of a command (SAM-5).
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

/// The response to a command.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The status byte.
    pub status: Status,
    /// The reason, with CHECK CONDITION. [`Sense::encode`] returns the bytes in the format that is set for
    /// the unit.
    pub sense: Option<Sense>,
    /// Data for the initiator, already truncated to the allocation length; empty for commands that return
    /// none.
    pub data_in: Chain,
    /// The bytes that the CDB asked to transfer, in its direction.
    ///
    /// The difference to the transport's expected length is the residual. For data-in it is `data_in.len()`
    /// unless the command failed.
    pub transfer: u64,
}

impl Outcome {
    /// GOOD, and nothing to transfer.
    pub fn good() -> Outcome {
        Outcome::status(Status::Good)
    }

    /// GOOD, after `transfer` bytes were received from the initiator.
    pub fn good_out(transfer: u64) -> Outcome {
        Outcome { transfer, ..Outcome::good() }
    }

    /// A status without sense or data.
    pub fn status(status: Status) -> Outcome {
        Outcome { status, sense: None, data_in: Chain::new(), transfer: 0 }
    }

    /// GOOD with parameter data, truncated to the allocation length (SPC-4, allocation length).
    pub fn parameters(bytes: &[u8], allocation: usize) -> Outcome {
        Outcome::data(Chain::copy_of(&bytes[..bytes.len().min(allocation)]))
    }

    /// GOOD with data.
    pub fn data(data_in: Chain) -> Outcome {
        Outcome { transfer: data_in.len() as u64, data_in, ..Outcome::good() }
    }

    /// CHECK CONDITION.
    pub fn check(sense: Sense) -> Outcome {
        Outcome { sense: Some(sense), ..Outcome::status(Status::CheckCondition) }
    }
}

impl From<Sense> for Outcome {
    fn from(sense: Sense) -> Outcome {
        Outcome::check(sense)
    }
}

/// Why a command, or a part of a copy, is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// RESERVATION CONFLICT.
    Conflict,
    /// CHECK CONDITION.
    Check(Sense),
}

impl From<Refusal> for Outcome {
    fn from(refusal: Refusal) -> Outcome {
        match refusal {
            Refusal::Conflict => Outcome::status(Status::ReservationConflict),
            Refusal::Check(sense) => Outcome::check(sense),
        }
    }
}

impl From<Sense> for Refusal {
    fn from(sense: Sense) -> Refusal {
        Refusal::Check(sense)
    }
}
