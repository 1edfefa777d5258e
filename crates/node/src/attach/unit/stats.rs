//! The counters of a unit on one core, for metrics.

use std::collections::BTreeMap;
use std::time::Duration;

use proto::block::BlockOp;
use proto::scsi::Outcome;

use crate::histogram::Histogram;

base::listed! {
    /// Kinds of commands that are measured separately.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Operation {
        /// READ.
        Read,
        /// WRITE, WRITE AND VERIFY, WRITE ATOMIC.
        Write,
        /// SYNCHRONIZE CACHE.
        Flush,
        /// UNMAP.
        Unmap,
        /// COMPARE AND WRITE, ORWRITE.
        Atomic,
        /// WRITE SAME.
        WriteSame,
        /// VERIFY and comparisons.
        Verify,
        /// EXTENDED COPY.
        Copy,
        /// All commands that move no blocks.
        Other,
    }
}

impl Operation {
    /// The kind of a block operation.
    pub fn of(op: &BlockOp) -> Operation {
        match op {
            BlockOp::Read { .. } => Operation::Read,
            BlockOp::Write { .. } | BlockOp::WriteAndVerify { .. } | BlockOp::WriteAtomic { .. } => {
                Operation::Write
            }
            BlockOp::WriteSame { .. } => Operation::WriteSame,
            BlockOp::Unmap { .. } => Operation::Unmap,
            BlockOp::Verify { .. } | BlockOp::Compare { .. } => Operation::Verify,
            BlockOp::CompareAndWrite { .. } | BlockOp::OrWrite { .. } => Operation::Atomic,
            BlockOp::Flush => Operation::Flush,
            BlockOp::TestReady | BlockOp::Prefetch { .. } | BlockOp::LbaStatus { .. } | BlockOp::Space => {
                Operation::Other
            }
        }
    }

    /// The name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Operation::Read => "read",
            Operation::Write => "write",
            Operation::Flush => "flush",
            Operation::Unmap => "unmap",
            Operation::Atomic => "atomic",
            Operation::WriteSame => "write_same",
            Operation::Verify => "verify",
            Operation::Copy => "copy",
            Operation::Other => "other",
        }
    }
}

/// Counters of one unit.
#[derive(Clone, Debug, Default)]
pub struct UnitStats {
    /// Latency from the arrival of all data to the response, by kind.
    pub latency: [Histogram; Operation::ALL.len()],
    /// Bytes of the blocks concerned, by kind.
    pub bytes: [u64; Operation::ALL.len()],
    /// Commands that ended with CHECK CONDITION, by (sense key, code and qualifier).
    pub errors: BTreeMap<(u8, u16), u64>,
}

impl UnitStats {
    /// Counts one command.
    pub fn record(&mut self, operation: Operation, bytes: u64, latency: Duration, outcome: &Outcome) {
        self.latency[operation as usize].record(latency);
        match &outcome.sense {
            None => self.bytes[operation as usize] += bytes,
            Some(sense) => *self.errors.entry((sense.key as u8, sense.code)).or_default() += 1,
        }
    }

    /// Adds the counters of another core.
    pub fn add(&mut self, other: &UnitStats) {
        self.latency.iter_mut().zip(&other.latency).for_each(|(sum, more)| sum.add(more));
        self.bytes.iter_mut().zip(other.bytes).for_each(|(sum, more)| *sum += more);
        for (sense, count) in &other.errors {
            *self.errors.entry(*sense).or_default() += count;
        }
    }
}
