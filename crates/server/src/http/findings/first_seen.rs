//! Since when a node's own faults last.
//!
//! Most faults tell how long they have lasted. For the others, this module notes when they were first seen:
//! the HTTP interface has a core of the node check about once per second while it is open.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use api::{FindingCode, Since, Subject};

use super::identity::identity;
use super::own::Report;

/// The number of faults that are noted, some 100 bytes each. A pool, a disk or another node has at most one,
/// and a node has some dozens of these.
const NOTED_MAX: usize = 1024;

/// When faults began.
#[derive(Default)]
pub(in crate::http) struct FirstSeen(Mutex<Noted>);

#[derive(Default)]
struct Noted {
    since: BTreeMap<Key, Since>,
    /// Whether the interface has checked before.
    looked: bool,
}

/// Identifies a fault.
type Key = (FindingCode, Subject);

impl FirstSeen {
    /// Notes the faults that exist now, and forgets the others. A fault that exists at the first check may
    /// have begun before.
    pub(in crate::http) fn note(&self, now: u64, reports: &[Report]) {
        // Each statement leaves the contents consistent, even if its thread panics later.
        let mut noted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let or_earlier = !std::mem::replace(&mut noted.looked, true);
        let there: BTreeSet<Key> = reports.iter().map(identity).collect();
        noted.since.retain(|known, _| there.contains(known));
        for key in there {
            if noted.since.len() < NOTED_MAX {
                noted.since.entry(key).or_insert(Since { at: now, or_earlier });
            }
        }
    }

    /// Since when a fault lasts; `None`: it has not been noted yet. Called on a core of the node, so it does
    /// not wait for the lock.
    pub(super) fn of(&self, report: &Report) -> Option<Since> {
        self.0.try_lock().ok()?.since.get(&identity(report)).copied()
    }
}

#[cfg(test)]
mod tests {
    use ::node::control::{FaultKind, PoolFault};

    use super::*;
    use crate::http::findings::own::OwnFault;

    fn report(pool: &str) -> Report {
        let kind = FaultKind::PoolClosed { pool: pool.into(), why: PoolFault::Other };
        Report { fault: OwnFault::Node(kind), since: None, node: 1, node_name: "a".into() }
    }

    #[test]
    fn a_fault_began_when_it_was_first_seen() {
        let first_seen = FirstSeen::default();
        let (old, new) = (report("a"), report("b"));
        assert_eq!(first_seen.of(&old), None);
        first_seen.note(10, std::slice::from_ref(&old));
        first_seen.note(20, &[old.clone(), new.clone()]);
        first_seen.note(30, &[old.clone(), new.clone()]);
        assert_eq!(first_seen.of(&old), Some(Since { at: 10, or_earlier: true }), "from before the start");
        assert_eq!(first_seen.of(&new), Some(Since::exactly(20)));
        // When the fault occurs again, it is a new one.
        first_seen.note(40, &[]);
        assert_eq!(first_seen.of(&new), None);
        first_seen.note(50, std::slice::from_ref(&new));
        assert_eq!(first_seen.of(&new), Some(Since::exactly(50)));
    }

    #[test]
    fn memory_is_bounded() {
        let first_seen = FirstSeen::default();
        let many: Vec<Report> = (0..=NOTED_MAX).map(|n| report(&format!("p{n:05}"))).collect();
        first_seen.note(10, &many);
        assert!(first_seen.of(&many[NOTED_MAX - 1]).is_some());
        assert_eq!(first_seen.of(&many[NOTED_MAX]), None);
    }
}
