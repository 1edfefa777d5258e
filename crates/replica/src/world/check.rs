//! The invariants of the world: while it runs, and at rest.

use crate::{Command, Slot, Slots, Standing};

use super::{EMPTY, GEOMETRY, LOST, NEVER, Node, World, linear, slot};

impl World {
    /// A4: where the disks of an in-sync copy and another one differ, one of them has a bit for the other on
    /// its disk.
    pub(super) fn check_map(&self) {
        let newest = self.record.last().unwrap();
        for x in newest.in_sync().iter().map(Slot::index) {
            for y in newest.configured().iter().map(Slot::index).filter(|y| *y != x) {
                for region in 0..GEOMETRY.regions() {
                    let blocks = GEOMETRY.blocks_of(region);
                    let (a, b) = (&self.nodes[x].disk, &self.nodes[y].disk);
                    let said = a.bits(region).contains(slot(y)) || b.bits(region).contains(slot(x));
                    // A disk does not hold what is lost on it (R27).
                    let are_equal = || {
                        let (a, b) = (a.read(blocks), b.read(blocks));
                        a.into_iter().zip(b).all(|(a, b)| a == b || a == LOST || b == LOST)
                    };
                    assert!(
                        said || are_equal(),
                        "copies {x} and {y} differ in region {region}, and no bit says so: {:?} {:?}",
                        a.read(blocks),
                        b.read(blocks)
                    );
                }
            }
        }
    }

    /// R15: what a joiner has deferred is not older than anything that a copy in sync, which may tell it what
    /// is equal, has forgotten there.
    pub(super) fn check_put_off(&self) {
        let acting = |node: &&Node| node.up && node.replica.config().is_some();
        for joiner in self.nodes.iter().filter(acting) {
            let epoch = |node: &Node| node.replica.config().map(|config| config.epoch);
            let is_asked = |node: &&Node| {
                acting(node)
                    && epoch(node) == epoch(joiner)
                    && matches!(node.replica.standing(), Standing::InSync(_))
            };
            for other in self.nodes.iter().filter(is_asked) {
                let over = joiner.replica.put_off_and_forgotten_by(&other.replica);
                assert_eq!(over, None, "{:?} has forgotten what is newer", other.replica.me());
            }
        }
    }

    /// What clients saw must be linearizable.
    pub(super) fn check_history(&mut self) {
        if let Err(violation) = self.try_history() {
            panic!("the history is not linearizable: {violation:?}");
        }
    }

    pub(super) fn try_history(&mut self) -> Result<(), linear::Violation> {
        let open: Vec<Command> = self.writes.keys().copied().collect();
        for command in open {
            let write = self.writes.remove(&command).unwrap();
            self.note(&write, NEVER);
        }
        self.history.iter().try_for_each(|history| linear::check(EMPTY, history))
    }

    pub(super) fn is_whole(&self) -> bool {
        let newest = self.record.last().unwrap();
        newest.in_sync().len() as usize == self.nodes.len()
            && self
                .nodes
                .iter()
                .all(|node| node.up && node.membership.active() == Some(newest) && !node.replica.needs_tick())
            // Other copies can read by now what is lost on one copy, unless all have lost it.
            && self.nodes.iter().all(|node| node.disk.lost().keys().eq(self.nodes[0].disk.lost().keys()))
            && (0..self.nodes.len())
                .all(|index| self.nodes[index].replica.map().dirty(Slots::ALL).next().is_none())
    }
}
