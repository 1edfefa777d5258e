//! Overcommitment: whether there is space for pools in files that take space as they are written.
//!
//! Such a file may take more space than it has taken so far. When its file system is full, writes that need
//! new space fail. A file system is overcommitted if all such files of this node's pools together may still
//! take more than it has free.

use std::collections::{BTreeMap, BTreeSet};

use rt::Room;
use store::{Pool, PoolId};

use super::Control;

/// A file system stays overcommitted until it has this part of its free space to spare. Otherwise the state
/// would flap as other files in it come and go.
const SPARE_PART: u64 = 16;

/// A file system that has less free space than pools of this node may still take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overcommit {
    /// How much all pools of this node in it may still take, in bytes.
    pub promised: u64,
    /// Its free space, in bytes.
    pub free: u64,
}

impl Overcommit {
    /// By how many bytes it falls short.
    fn lacking(self) -> u64 {
        self.promised.saturating_sub(self.free)
    }

    fn holds(self, was: bool) -> bool {
        let spare = if was { self.free / SPARE_PART } else { 0 };
        self.promised > self.free - spare
    }
}

/// How much pools may still take.
#[derive(Default)]
pub(super) struct Promises {
    pools: BTreeMap<PoolId, Vec<Room>>,
    /// By file system.
    file_systems: BTreeMap<u64, Overcommit>,
}

impl Promises {
    fn add(&mut self, room: Room) {
        let of = self.file_systems.entry(room.file_system).or_insert(Overcommit { promised: 0, free: 0 });
        of.promised = of.promised.saturating_add(room.promised);
        // The free space may change between two pools.
        of.free = room.free;
    }

    /// The overcommitted file systems; `before` are those that were so until now.
    fn overcommitted(&self, before: &BTreeSet<u64>) -> BTreeSet<u64> {
        let over = self.file_systems.iter().filter(|(id, of)| of.holds(before.contains(id)));
        over.map(|(id, _)| *id).collect()
    }
}

impl Control {
    /// How much the pools of this node may still take, measured now.
    pub(super) fn look_at_promises(&self, pools: &[Pool]) -> Promises {
        let mut promises = Promises::default();
        for pool in pools {
            let rooms = pool.rooms();
            rooms.iter().for_each(|room| promises.add(*room));
            promises.pools.insert(pool.id(), rooms);
        }
        let mut overcommitted = self.overcommitted.borrow_mut();
        *overcommitted = promises.overcommitted(&overcommitted);
        promises
    }

    /// How much this pool may still take, and the one of its overcommitted file systems that falls short
    /// most.
    pub(super) fn promised(&self, promises: &Promises, pool: &Pool) -> (u64, Option<Overcommit>) {
        let rooms = promises.pools.get(&pool.id()).map_or(&[][..], Vec::as_slice);
        let overcommitted = self.overcommitted.borrow();
        let over = rooms.iter().filter(|room| overcommitted.contains(&room.file_system));
        let over = over.filter_map(|room| promises.file_systems.get(&room.file_system).copied());
        (rooms.iter().map(|room| room.promised).sum(), over.max_by_key(|of| of.lacking()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room(file_system: u64, free: u64, promised: u64) -> Room {
        Room { file_system, free, total: 1000, promised }
    }

    fn promises(rooms: &[Room]) -> Promises {
        let mut promises = Promises::default();
        rooms.iter().for_each(|room| promises.add(*room));
        promises
    }

    #[test]
    fn pools_of_one_file_system_are_taken_together() {
        let two = promises(&[room(1, 320, 200), room(2, 500, 400), room(1, 320, 130)]);
        assert_eq!(two.file_systems[&1], Overcommit { promised: 330, free: 320 });
        assert_eq!(two.overcommitted(&BTreeSet::new()), BTreeSet::from([1]));
        assert_eq!(two.file_systems[&1].lacking(), 10);
    }

    #[test]
    fn a_file_system_that_is_short_has_to_have_some_to_spare() {
        let is_over = |free, was: &[u64]| {
            let was = was.iter().copied().collect();
            !promises(&[room(1, free, 300)]).overcommitted(&was).is_empty()
        };
        assert!(!is_over(300, &[]) && is_over(299, &[]));
        assert!(is_over(300, &[1]) && is_over(318, &[1]) && !is_over(320, &[1]));
        assert!(!is_over(310, &[2]), "another one was");
        assert!(is_over(0, &[]) && is_over(0, &[1]));
    }
}
