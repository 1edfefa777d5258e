//! Turns: changes of different things run side by side, changes of the same thing one after the other.
//!
//! Turns are given in the order of the requests. Things have an order: names first, then pools and volumes,
//! then the record. No change waits for a thing while it holds, or is in the line for, a later one in this
//! order, so there is no deadlock. (A pool that is imported is not open yet, so nobody else waits for it.)

use std::cell::{Cell, RefCell};

use rt::sync::Notify;

use super::change::Work;
use crate::data::VolumeId;

/// Something that a change needs exclusively.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Thing {
    /// A pool as a whole: its name, its disks, whether it is open.
    Pool(String),
    /// The volumes of a pool. Several changes may hold them at the same time, but none may then hold the
    /// pool.
    VolumesOf(String),
    /// A volume.
    Volume(VolumeId),
    /// A name that a volume is about to get.
    VolumeName(String),
    /// The record, and with it targets, maps and host groups. A change holds it only briefly, and never while
    /// it waits for a pool's disk.
    Record,
}

/// For a change that holds nothing, or holds things only for a part of its time.
pub(super) const NOTHING: [Thing; 0] = [];

impl Thing {
    /// A volume, as far as the pool of this name has it.
    pub(super) fn volume_in(id: VolumeId, pool: String) -> [Thing; 2] {
        [Thing::Volume(id), Thing::VolumesOf(pool)]
    }

    pub(super) fn as_volume(&self) -> Option<VolumeId> {
        match self {
            Thing::Volume(id) => Some(*id),
            _ => None,
        }
    }

    fn excludes(&self, other: &Thing) -> bool {
        match (self, other) {
            (Thing::VolumesOf(_), Thing::VolumesOf(_)) => false,
            (Thing::Pool(one), Thing::VolumesOf(other)) | (Thing::VolumesOf(one), Thing::Pool(other)) => {
                one == other
            }
            (one, other) => one == other,
        }
    }
}

/// The things that a change holds or waits for.
struct Claim {
    number: u64,
    things: Vec<Thing>,
    of: Work,
}

/// All claims of a node.
#[derive(Default)]
pub(super) struct Turns {
    /// In the order of the requests.
    claims: RefCell<Vec<Claim>>,
    next: Cell<u64>,
    /// Notified when a claim was dropped.
    gone: Notify,
}

/// A claim; dropping it releases the things.
pub(super) struct Held<'a> {
    turns: &'a Turns,
    number: u64,
}

impl Turns {
    /// Queues up for all of `things` at once.
    pub(super) fn claim(&self, things: Vec<Thing>, of: Work) -> Held<'_> {
        let number = self.next.get();
        self.next.set(number + 1);
        self.claims.borrow_mut().push(Claim { number, things, of });
        Held { turns: self, number }
    }
}

impl Held<'_> {
    /// The earliest claim before this one that includes one of its things; `None` if it is this claim's turn.
    pub(super) fn waits_for(&self) -> Option<Work> {
        let claims = self.turns.claims.borrow();
        let own = claims.iter().find(|claim| claim.number == self.number)?;
        let mut earlier = claims.iter().take_while(|claim| claim.number != self.number);
        let stands_in_the_way = |claim: &&Claim| {
            own.things.iter().any(|own| claim.things.iter().any(|thing| thing.excludes(own)))
        };
        earlier.find(stands_in_the_way).map(|claim| claim.of.clone())
    }

    /// Waits for the turn. Calls `waits_for` with each change that it has to wait for.
    pub(super) async fn turn(&self, waits_for: impl Fn(Work)) {
        while let Some(work) = self.waits_for() {
            waits_for(work);
            self.turns.gone.notified().await;
        }
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.turns.claims.borrow_mut().retain(|claim| claim.number != self.number);
        self.turns.gone.notify();
    }
}

#[cfg(test)]
mod tests {
    use super::super::doing::Doing;
    use super::*;

    fn claim<'a>(turns: &'a Turns, name: &str, things: &[Thing]) -> Held<'a> {
        turns.claim(things.to_vec(), Doing::RepairRecord.of(name))
    }

    fn blocker(held: &Held<'_>) -> Option<String> {
        held.waits_for().map(|work| work.name)
    }

    fn pool(name: &str) -> Thing {
        Thing::Pool(name.into())
    }

    fn volumes_of(name: &str) -> Thing {
        Thing::VolumesOf(name.into())
    }

    #[test]
    fn changes_of_different_things_do_not_wait_for_each_other() {
        let turns = Turns::default();
        let things = [
            vec![Thing::Volume(VolumeId([1; 16])), volumes_of("a")],
            vec![Thing::Volume(VolumeId([2; 16])), volumes_of("a")],
            vec![Thing::VolumeName("db".into()), volumes_of("a")],
            vec![pool("b")],
            vec![Thing::Record],
        ];
        let held: Vec<Held> = things.iter().map(|things| claim(&turns, "one", things)).collect();
        assert!(held.iter().all(|held| held.waits_for().is_none()));
        for things in &things {
            assert_eq!(blocker(&claim(&turns, "other", things)), Some("one".into()), "{things:?}");
        }
    }

    #[test]
    fn the_next_turn_goes_to_the_first_in_line() {
        let turns = Turns::default();
        let one = claim(&turns, "one", &[volumes_of("a")]);
        let whole = claim(&turns, "whole", &[pool("a")]);
        let late = claim(&turns, "late", &[volumes_of("a")]);
        assert_eq!(blocker(&whole), Some("one".into()));
        assert_eq!(blocker(&late), Some("whole".into()), "the pool's turn comes some day");
        drop(one);
        assert_eq!(blocker(&whole), None);
        assert_eq!(blocker(&late), Some("whole".into()));
        drop(whole);
        assert_eq!(blocker(&late), None);
    }

    #[test]
    fn a_waiter_that_gives_up_is_skipped() {
        let turns = Turns::default();
        let _one = claim(&turns, "one", &[volumes_of("a")]);
        let whole = claim(&turns, "whole", &[pool("a")]);
        let late = claim(&turns, "late", &[volumes_of("a")]);
        drop(whole);
        assert_eq!(blocker(&late), None);
    }
}
