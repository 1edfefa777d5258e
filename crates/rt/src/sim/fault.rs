//! The kinds of faults, and how often each took effect.

use std::collections::BTreeMap;
use std::fmt;

base::listed! {
    /// A kind of fault. It is counted when it takes effect, not when it is requested.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum Fault {
        /// A node lost power.
        NodeCrash,
        /// A node's process was killed; its machine stayed up.
        NodeKill,
        /// A node was paused for a while.
        NodePause,
        /// A node and its clock were stopped for a while.
        ClockStop,
        /// A node's clock leapt forward.
        ClockLeap,
        /// A node's time of day was set.
        TimeOfDaySet,
        /// A core did not get its processor for a while.
        CoreDelay,
        /// A disk took much longer than usual.
        DiskSpike,
        /// A read failed.
        ReadError,
        /// A write failed.
        WriteError,
        /// A flush failed.
        FlushError,
        /// The file system was full.
        DiskFull,
        /// An operation failed because the disk was dead.
        DeadDisk,
        /// A power cut lost a sector that had not been flushed.
        LostSector,
        /// A power cut kept a part of a write and lost the rest.
        TornWrite,
        /// Bits of a disk were changed silently.
        Corruption,
        /// A write was acknowledged and dropped.
        LostWrite,
        /// A write was acknowledged and executed at another place.
        MisdirectedWrite,
        /// A connection was broken.
        ConnectionBreak,
        /// Bytes were held back by a cut link.
        LinkHold,
        /// A connection gave up after a cut or a crash.
        ConnectionTimeout,
        /// A connection was refused because nothing listened at its target.
        ConnectionRefused,
        /// A packet was late (lost and sent again).
        NetSpike,
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// How often each kind of fault took effect.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FaultCounts(BTreeMap<Fault, u64>);

impl FaultCounts {
    pub(super) fn add(&mut self, fault: Fault) {
        *self.0.entry(fault).or_default() += 1;
    }

    /// How often `fault` took effect.
    pub fn of(&self, fault: Fault) -> u64 {
        self.0.get(&fault).copied().unwrap_or(0)
    }

    /// The kinds that never took effect.
    pub fn missing(&self) -> Vec<Fault> {
        Fault::ALL.into_iter().filter(|fault| self.of(*fault) == 0).collect()
    }

    /// The kinds that took effect, with their counts.
    pub fn iter(&self) -> impl Iterator<Item = (Fault, u64)> {
        self.0.iter().map(|(fault, count)| (*fault, *count))
    }

    /// Adds the counts of another run.
    pub fn merge(&mut self, other: &FaultCounts) {
        for (fault, count) in other.iter() {
            *self.0.entry(fault).or_default() += count;
        }
    }
}
