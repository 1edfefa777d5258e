//! Seeds of a test run; `cargo run -p sim` takes more.

use std::collections::BTreeMap;

use rt::sim::{Fault, FaultCounts};
use sim::{Plan, harm, run};

/// How many seeds a test run takes.
const SEEDS: u64 = 200;

/// How many seeds run twice.
const TWICE: u64 = 6;

/// What hosts did and what was looked at in these runs.
const DONE: [&str; 18] = [
    "read",
    "write",
    "write with FUA",
    "WRITE SAME",
    "flush",
    "read by several paths",
    "write by several paths",
    "UNMAP",
    "WRITE SAME of zeros",
    "exchange",
    "miscompare",
    "write of a registrant",
    "fencing",
    "look at registrations",
    "epoch",
    "disk of a copy in sync after a power loss",
    "two that may be read looked at",
    "difference of two copies looked at",
];

/// What the world does to nodes here. It can do more: their disks have all the space they want and hold what was written.
const FAULTS: [Fault; 14] = [
    Fault::NodeCrash,
    Fault::NodeKill,
    Fault::NodePause,
    Fault::CoreDelay,
    Fault::DiskSpike,
    Fault::WriteError,
    Fault::LostSector,
    Fault::TornWrite,
    Fault::ConnectionBreak,
    Fault::LinkHold,
    Fault::ConnectionRefused,
    Fault::NetSpike,
    Fault::ReadError,
    Fault::FlushError,
];

/// Runs every `of`th seed from `first` on.
fn run_part(first: u64, of: u64) -> (BTreeMap<&'static str, u64>, FaultCounts) {
    let (mut counts, mut faults) = (BTreeMap::new(), FaultCounts::default());
    for seed in (first..SEEDS).step_by(of as usize) {
        println!("seed {seed}: cargo run -p sim -- {seed}");
        let outcome = run(&Plan::from_seed(seed), None);
        outcome.counts.iter().for_each(|(what, count)| *counts.entry(*what).or_default() += count);
        faults.merge(&outcome.faults);
    }
    (counts, faults)
}

#[test]
fn no_seed_breaks_a_rule() {
    let parts = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64);
    let (mut counts, mut faults) = (BTreeMap::<&str, u64>::new(), FaultCounts::default());
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..parts).map(|first| scope.spawn(move || run_part(first, parts))).collect();
        for part in running {
            let (more, happened) = part.join().unwrap();
            more.iter().for_each(|(what, count)| *counts.entry(what).or_default() += count);
            faults.merge(&happened);
        }
    });
    println!("{counts:?} {faults:?}");
    for what in harm::ALL.iter().map(|harm| harm.name).chain(DONE) {
        assert!(counts.contains_key(what), "{what} never happened: {counts:?}");
    }
    for fault in FAULTS {
        assert!(faults.of(fault) > 0, "{fault} never took effect: {faults:?}");
    }
}

#[test]
fn a_seed_is_a_run() {
    for seed in 0..TWICE {
        let plan = Plan::from_seed(seed);
        assert_eq!(run(&plan, None), run(&plan, None), "seed {seed}");
    }
}
