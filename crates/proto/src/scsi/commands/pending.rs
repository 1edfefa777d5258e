//! From the result of an operation to the command's response.

use base::{Chain, Lba, LbaRange};

use super::{lba_status, prefetch};
use crate::block::{BlockDone, BlockError, BlockOp};
use crate::scsi::sense::{SenseFormat, code};
use crate::scsi::{Outcome, Refusal, Sense, SenseKey, Step, log};

/// What `finish` needs to know about the command.
#[derive(Debug)]
pub struct Pending {
    /// The bytes that the CDB asks to transfer.
    transfer: u64,
    /// What the response consists of.
    answer: Answer,
}

/// What the response to a command consists of.
#[derive(Debug)]
enum Answer {
    /// The status.
    Status,
    /// The data that was read.
    Data,
    /// The status. The offset of a miscompare is relative to the start of the block of `block_bytes` bytes
    /// with which each block was compared.
    Compared { block_bytes: u64 },
    /// The status, which tells whether all requested blocks are in a cache; they are not if the request was
    /// `cut`.
    Prefetched { cut: bool },
    /// Extents, in at most `allocation` bytes.
    LbaStatus { allocation: usize },
    /// Whether and why the medium is not ready, as data of at most `allocation` bytes.
    Readiness { format: SenseFormat, allocation: usize },
    /// A log page about the space, from the parameter `first` on, in at most `allocation` bytes.
    Space { first: u16, allocation: usize },
}

/// Checks whether the medium is ready.
pub(in crate::scsi) fn test_ready() -> Step {
    carry_out(0, BlockOp::TestReady)
}

/// Checks whether the medium is ready, and returns the result as sense data of at most `allocation` bytes.
pub(in crate::scsi) fn tell_readiness(format: SenseFormat, allocation: usize) -> Step {
    let pending = Pending { transfer: 0, answer: Answer::Readiness { format, allocation } };
    Step::Block(pending, BlockOp::TestReady)
}

/// Reports how much space there is, in a log page: from the parameter `first` on, in at most `allocation`
/// bytes.
pub(in crate::scsi) fn tell_space(first: u16, allocation: usize) -> Step {
    Step::Block(Pending { transfer: 0, answer: Answer::Space { first, allocation } }, BlockOp::Space)
}

pub(super) fn read(transfer: u64, op: BlockOp) -> Step {
    Step::Block(Pending { transfer, answer: Answer::Data }, op)
}

/// Executes an operation without data-in, after `transfer` bytes were received from the initiator.
pub(super) fn carry_out(transfer: u64, op: BlockOp) -> Step {
    Step::Block(Pending { transfer, answer: Answer::Status }, op)
}

/// Compares each block of a range with the same data.
pub(super) fn compare_each(range: LbaRange, data: Chain) -> Step {
    let block_bytes = data.len() as u64;
    let pending = Pending { transfer: block_bytes, answer: Answer::Compared { block_bytes } };
    Step::Block(pending, BlockOp::Compare { range, data })
}

/// Prefetches all requested blocks, or fewer if they were `cut`.
pub(super) fn fetch(range: LbaRange, cut: bool) -> Step {
    Step::Block(Pending { transfer: 0, answer: Answer::Prefetched { cut } }, BlockOp::Prefetch { range })
}

/// Reports which blocks are mapped.
pub(super) fn ask_status(start: Lba, max: usize, allocation: usize) -> Step {
    let pending = Pending { transfer: 0, answer: Answer::LbaStatus { allocation } };
    Step::Block(pending, BlockOp::LbaStatus { start, max })
}

/// The response to a command whose operation has been executed.
///
/// # Panics
/// If the result does not belong to the operation: what executes operations is part of this program.
pub(in crate::scsi) fn finish(pending: Pending, result: Result<BlockDone, BlockError>) -> Outcome {
    let Pending { transfer, answer } = pending;
    match (result, answer) {
        (Ok(BlockDone::Data(data)), Answer::Data) => {
            assert_eq!(data.len() as u64, transfer, "a read gives all of its bytes");
            Outcome::data(data)
        }
        (Ok(BlockDone::Done), Answer::Status | Answer::Compared { .. }) => Outcome::good_out(transfer),
        (Ok(BlockDone::Done), Answer::Prefetched { .. }) => prefetch::answer(false),
        (Ok(BlockDone::Cached), Answer::Prefetched { cut }) => prefetch::answer(!cut),
        (Ok(BlockDone::LbaStatus(extents)), Answer::LbaStatus { allocation }) => {
            Outcome::parameters(&lba_status::encode(&extents), allocation)
        }
        (Ok(BlockDone::Space(space)), Answer::Space { first, allocation }) => {
            Outcome::parameters(&log::provisioning(&space, first), allocation)
        }
        (result, Answer::Readiness { format, allocation }) => {
            let sense = result.err().map_or(Sense::NOTHING, failure);
            Outcome::parameters(&Sense { format, ..sense }.encode(), allocation)
        }
        (Ok(done), answer) => panic!("{done:?} is no answer to an operation that ends in {answer:?}"),
        (Err(error), answer) => {
            let error = match (error, &answer) {
                (BlockError::Miscompare(at), Answer::Compared { block_bytes }) => {
                    BlockError::Miscompare(at % block_bytes)
                }
                (error, _) => error,
            };
            // The data of a failed read is not sent; the data of a failed write had been received.
            let transfer = if matches!(answer, Answer::Data) { 0 } else { transfer };
            Outcome { transfer, ..Outcome::check(failure(error)) }
        }
    }
}

/// The sense data for a failed operation.
fn failure(error: BlockError) -> Sense {
    match error {
        // SBC-3 clause 5, COMPARE AND WRITE and VERIFY (10): INFORMATION is the offset into the Data-Out
        // Buffer.
        BlockError::Miscompare(at) => {
            Sense::new(SenseKey::Miscompare, code::MISCOMPARE_DURING_VERIFY_OPERATION).with_information(at)
        }
        BlockError::Unreadable(lba) => {
            Sense::new(SenseKey::MediumError, code::UNRECOVERED_READ_ERROR).with_information(lba.0)
        }
        // Without INFORMATION: it would name the block that failed (SBC-3 clause 4, error reporting), which
        // is unknown.
        BlockError::Unwritable => Sense::new(SenseKey::MediumError, code::WRITE_ERROR),
        // SBC-3 clause 4, thin provisioned units: no space for a block that was not mapped, until an
        // administrator provides some.
        BlockError::Full => Sense::new(SenseKey::DataProtect, code::SPACE_ALLOCATION_FAILED_WRITE_PROTECT),
        BlockError::Offline => {
            Sense::new(SenseKey::NotReady, code::LOGICAL_UNIT_NOT_READY_MANUAL_INTERVENTION_REQUIRED)
        }
        // SPC-4 5.15.2.7: initiators retry, on this path or another one.
        BlockError::Unavailable => Sense::new(
            SenseKey::NotReady,
            code::LOGICAL_UNIT_NOT_ACCESSIBLE_ASYMMETRIC_ACCESS_STATE_TRANSITION,
        ),
        BlockError::Aborted => Sense::ABORTED,
        // Initiators send the command again, and the repeated command is executed after this one.
        BlockError::Unknown => Sense::new(SenseKey::AbortedCommand, code::IO_PROCESS_TERMINATED),
    }
}

impl From<BlockError> for Refusal {
    fn from(error: BlockError) -> Refusal {
        Refusal::Check(failure(error))
    }
}
