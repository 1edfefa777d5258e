//! How often everything must happen at least: a run in which hosts get nowhere proves nothing.
//!
//! Only successes count: a COMPARE AND WRITE that exchanged its block, not one that was sent.

use std::collections::BTreeMap;

use rt::sim::{Fault, FaultCounts};

use crate::harm;

/// Number of seeds of a default run, to which the floors apply: seeds from 0 on, without a mistake.
///
/// Other seeds may have other plans, and a run with a mistake ends when a check finds it.
pub const SEEDS: u64 = 200;

/// Operations of hosts, and checks: about a third of their number in the first [`SEEDS`] seeds.
const DONE: &[(&str, u64)] = &[
    ("read", 40_000),
    ("write", 7000),
    ("write with FUA", 3500),
    ("WRITE SAME", 1500),
    ("flush", 1500),
    ("read by several paths", 3500),
    ("write by several paths", 5000),
    ("UNMAP", 1700),
    ("WRITE SAME of zeros", 1700),
    ("exchange", 7000),
    ("miscompare", 1000),
    ("write of a registrant", 4500),
    ("fencing", 100),
    ("fencing, Write Exclusive", 5),
    ("fencing, Exclusive Access", 5),
    ("fencing, Write Exclusive, Registrants Only", 5),
    ("fencing, Exclusive Access, Registrants Only", 5),
    ("fencing, Write Exclusive, All Registrants", 5),
    ("fencing, Exclusive Access, All Registrants", 5),
    ("read that a reservation allows", 2_000),
    ("read that a reservation forbids", 2_000),
    ("write that a reservation allows", 2_000),
    ("write that a reservation forbids", 2_000),
    ("look at registrations", 5000),
    ("epoch", 450),
    ("copy joins", 150),
    ("copy in sync again", 150),
    ("copy gone for another", 1),
    ("reservation released", 30),
    ("reservation cleared", 5),
    ("comparison of equal copies", 180),
    ("comparison that finds rot", 50),
    ("sector that decays", 10),
    ("write that is lost", 10),
    ("write that goes elsewhere", 10),
    ("block of a log that decays", 2),
    ("block of a log that rots", 5),
    ("map of a log that rots", 2),
    ("state of a log that rots", 3),
    ("root of a log that rots", 3),
    ("head of a log that rots", 3),
    ("write of a log that is lost", 1),
    ("write of a log that goes elsewhere", 1),
    ("rot in a log found by a scrub", 5),
    ("log without a head refused", 1),
    ("disk of a copy in sync after a power loss", 50),
    ("two that may be read looked at", 400_000),
    ("difference of two copies looked at", 100_000),
    ("two beside that may be read looked at", 150_000),
    ("difference of two copies beside looked at", 20_000),
    ("read of what a volume has grown by", 130),
    ("write to what a volume has grown by", 140),
    ("fault of a second disk", 8),
    ("clock that leaps too far", 3),
    ("machine set back told at once", 2),
    ("read of a host that is not harmed", 15),
    ("write of a host that is not harmed", 15),
    ("read past a slow disk", 1),
    ("read of a host that has lost a path", 1),
    ("reset of links that costs no copy", 1),
    ("leases requested without the record", 1),
    ("pool filled up", 3),
    ("logs filled up", 3),
    ("conversion begun", 30),
    ("conversion cancelled", 5),
    ("copy converted", 30),
    ("power loss during a conversion", 1),
    ("log of a copy in sync opened after a power loss", 8),
    ("log of a running node opened", 300),
    ("two logs that may be read looked at", 1000),
    ("difference of two logs looked at", 20),
    ("snapshot taken", 20),
    ("snapshot refused", 2),
    ("snapshot undone", 2),
    ("snapshot of two volumes", 4),
    ("snapshot deleted", 8),
    ("copy of a snapshot read", 60),
    ("snapshot compared with what hosts saw", 20),
    ("volumes restored", 5),
    ("restore refused", 1),
    ("restore that discards what was there", 1),
    ("restore compared with what hosts saw", 5),
    ("state before a restore compared with what hosts saw", 3),
    ("bad blocks good again", 10),
    ("bad blocks told of", 6),
    ("disk replaced", 8),
    ("disk emptied under load", 2),
    ("pool opened anew", 15),
    ("machine set back noticed", 3),
    ("fork", 5),
    ("fork settled", 5),
    ("node that continues alone looked at", 500),
];

/// Faults of the world.
const FAULTS: &[(Fault, u64)] = &[
    (Fault::NodeCrash, 60),
    (Fault::NodeKill, 700),
    (Fault::NodePause, 20),
    (Fault::ClockStop, 8),
    (Fault::ClockLeap, 5),
    (Fault::TimeOfDaySet, 15),
    (Fault::CoreDelay, 250),
    (Fault::DiskSpike, 800),
    (Fault::WriteError, 3),
    (Fault::LostSector, 60),
    (Fault::TornWrite, 5),
    (Fault::ConnectionBreak, 90),
    (Fault::LinkHold, 1500),
    (Fault::ConnectionRefused, 10_000),
    (Fault::NetSpike, 1600),
    (Fault::ReadError, 50),
    (Fault::FlushError, 1),
    (Fault::DiskFull, 30),
    (Fault::DeadDisk, 50),
    (Fault::Corruption, 10),
    (Fault::LostWrite, 10),
    (Fault::MisdirectedWrite, 10),
];

/// What a default run did less often than its floor, one per line.
pub fn missed(counts: &BTreeMap<&'static str, u64>, faults: &FaultCounts) -> Vec<String> {
    let done = DONE.iter().copied().chain(harm::ALL.iter().map(|harm| (harm.name, harm.floor)));
    let done = done.map(|(what, floor)| (what.to_owned(), counts.get(what).copied().unwrap_or(0), floor));
    let world = FAULTS.iter().map(|(fault, floor)| (format!("{fault} (world)"), faults.of(*fault), *floor));
    let below = done
        .chain(world)
        .filter_map(|(what, seen, floor)| (seen < floor).then(|| format!("{what}: {seen}, minimum {floor}")));
    below.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Never happens to whole nodes: what they send is delivered, or the connection breaks.
    const NO_FAULTS: &[Fault] = &[Fault::ConnectionTimeout];

    #[test]
    fn every_fault_has_a_floor_or_never_happens() {
        for fault in Fault::ALL {
            let has_floor = FAULTS.iter().any(|(other, _)| *other == fault);
            assert!(has_floor != NO_FAULTS.contains(&fault), "{fault}");
        }
    }

    #[test]
    fn rare_operations_are_named() {
        let named = missed(&BTreeMap::from([("exchange", 0)]), &FaultCounts::default());
        assert!(named.iter().any(|line| line.starts_with("exchange: 0, ")), "{named:?}");
        assert_eq!(named.len(), DONE.len() + FAULTS.len() + harm::ALL.len());
        let enough: BTreeMap<&str, u64> =
            DONE.iter().copied().chain(harm::ALL.iter().map(|harm| (harm.name, harm.floor))).collect();
        assert_eq!(missed(&enough, &FaultCounts::default()).len(), FAULTS.len());
    }
}
