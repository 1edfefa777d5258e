//! Since when something is so, as it is shown.
//!
//! Most things tell how long they have been so. Of a trouble that does not, it is noted when it was first there: it is looked once a second, for as long as the
//! interface is open.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use ::node::control::Trouble;
use ::node::copies::Lasting;
use api::Since;

use crate::clock::unix_now;

/// Troubles that are noted, of some 100 bytes each: a pool, a disk or another node has one at most, and a node has some dozens of these.
const NOTED_MAX: usize = 1024;

/// Since when something is so that has lasted for so long.
pub(super) fn since(lasting: Lasting) -> Since {
    Since { at: unix_now().saturating_sub(lasting.age.as_secs()), or_earlier: lasting.at_least }
}

/// When troubles began.
#[derive(Default)]
pub(super) struct Beginnings(Mutex<Noted>);

#[derive(Default)]
struct Noted {
    since: BTreeMap<Key, Since>,
    /// It was looked before.
    looked: bool,
}

/// Which trouble: its code, and what it is about.
type Key = (&'static str, String);

fn key(trouble: &Trouble) -> Key {
    (trouble.code, trouble.subject.clone())
}

impl Beginnings {
    /// Notes what is there now, and forgets what is not. What is there when it is first looked was there when the node was started, or began with that.
    pub(super) fn note(&self, now: u64, troubles: &[Trouble]) {
        // What is in there is whole between two statements.
        let mut noted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let or_earlier = !std::mem::replace(&mut noted.looked, true);
        let there: BTreeSet<Key> = troubles.iter().map(key).collect();
        noted.since.retain(|known, _| there.contains(known));
        for key in there {
            if noted.since.len() < NOTED_MAX {
                noted.since.entry(key).or_insert(Since { at: now, or_earlier });
            }
        }
    }

    /// Since when it is there; `None`: it has not been noted yet. A core of the node asks, which waits for no lock.
    pub(super) fn of(&self, now: u64, trouble: &Trouble) -> Option<Since> {
        match trouble.age {
            Some(age) => Some(Since::exactly(now.saturating_sub(age.as_secs()))),
            None => self.0.try_lock().ok()?.since.get(&key(trouble)).copied(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn trouble(code: &'static str, subject: &str) -> Trouble {
        Trouble::new(code, subject, "something is the matter")
    }

    #[test]
    fn a_trouble_began_when_it_was_first_seen() {
        let beginnings = Beginnings::default();
        let (old, new) = (trouble("pool_closed", "a"), trouble("pool_closed", "b"));
        assert_eq!(beginnings.of(10, &old), None);
        beginnings.note(10, std::slice::from_ref(&old));
        beginnings.note(20, &[old.clone(), new.clone()]);
        beginnings.note(30, &[old.clone(), new.clone()]);
        assert_eq!(
            beginnings.of(35, &old),
            Some(Since { at: 10, or_earlier: true }),
            "from before the start"
        );
        assert_eq!(beginnings.of(35, &new), Some(Since::exactly(20)));
        // It comes again: another one.
        beginnings.note(40, &[]);
        assert_eq!(beginnings.of(41, &new), None);
        beginnings.note(50, std::slice::from_ref(&new));
        assert_eq!(beginnings.of(55, &new), Some(Since::exactly(50)));
        let tells = trouble("disk_failed", "/dev/sdb").lasting(Duration::from_secs(7));
        assert_eq!(beginnings.of(60, &tells), Some(Since::exactly(53)));
    }

    #[test]
    fn memory_is_bounded() {
        let beginnings = Beginnings::default();
        let many: Vec<Trouble> =
            (0..=NOTED_MAX).map(|n| trouble("pool_closed", &format!("p{n:05}"))).collect();
        beginnings.note(10, &many);
        assert!(beginnings.of(10, &many[NOTED_MAX - 1]).is_some());
        assert_eq!(beginnings.of(10, &many[NOTED_MAX]), None);
    }
}
