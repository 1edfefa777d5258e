//! The agenda, the log and the fault counts of a world, which every part of it writes.

use std::collections::BTreeMap;
use std::time::Duration;

use super::clock::WorldTime;
use super::disk::DiskOpNumber;
use super::fault::{Fault, FaultCounts};
use super::log::{Event, Log};
use super::net::NetDue;

/// What the world itself will do at some time.
#[derive(Clone, Copy, Debug)]
pub(super) enum Due {
    Disk(DiskOpNumber),
    Net(NetDue),
}

pub(super) struct Ledger {
    time: WorldTime,
    /// By time, then by age.
    agenda: BTreeMap<(u64, u64), Due>,
    next: u64,
    pub(super) log: Log,
    pub(super) faults: FaultCounts,
}

impl Ledger {
    pub(super) fn new(time: WorldTime, seed: u64) -> Ledger {
        Ledger { time, agenda: BTreeMap::new(), next: 0, log: Log::new(seed), faults: FaultCounts::default() }
    }

    pub(super) fn now(&self) -> u64 {
        self.time.now()
    }

    pub(super) fn schedule(&mut self, time: u64, due: Due) {
        self.agenda.insert((time.max(self.now()), self.next), due);
        self.next += 1;
    }

    pub(super) fn schedule_in(&mut self, delay: Duration, due: Due) {
        self.schedule(self.now() + delay.as_nanos() as u64, due);
    }

    pub(super) fn next_due(&self) -> Option<u64> {
        self.agenda.first_key_value().map(|((time, _), _)| *time)
    }

    /// Takes the next entry that is due by now.
    pub(super) fn take_due(&mut self) -> Option<Due> {
        let first = self.agenda.first_entry()?;
        (first.key().0 <= self.time.now()).then(|| first.remove())
    }

    pub(super) fn log(&mut self, event: Event) {
        self.log.add(self.time.now(), event);
    }

    pub(super) fn fault(&mut self, fault: Fault) {
        self.faults.add(fault);
        self.log.add(self.time.now(), Event::Fault(fault));
    }
}
