//! File systems under pools that are full: nothing breaks, and all of it passes when there is room.

use super::{Harm, Harms};

/// What is left at most: some pages.
const LEFT_MAX: u64 = 48 << 10;

/// The file system of one node, or of all at once, has no room for what was not written to before.
pub const FULL: Harm = Harm {
    heal: |harms| {
        harms.expect_no_failed_copy();
        harms.make_room();
    },
    ..Harm::new("full disk", 4, |harms, victim, rng| {
        let all = rng.one_in(2);
        for index in (0..harms.cluster.servers.len()).filter(|index| all || *index == victim.index) {
            harms.cluster.world.leave_space(harms.machine(index), rng.below(LEFT_MAX));
        }
        true
    })
};

/// There is room again, everywhere.
pub const ROOM: Harm = Harm::new("room", 4, |harms, _, _| {
    harms.expect_no_failed_copy();
    harms.make_room();
    harms.plan.has_pools_in_files()
});

impl Harms<'_> {
    fn make_room(&self) {
        (0..self.cluster.servers.len())
            .for_each(|index| self.cluster.world.set_space(self.machine(index), None));
    }

    /// Where no disk fails, no copy has failed.
    fn expect_no_failed_copy(&self) {
        if self.plan.costs_full_copies() {
            return;
        }
        for index in 0..self.cluster.servers.len() {
            assert!(
                !self.pool_failed(index),
                "a copy of node {} counts as failed, and no disk has failed",
                index + 1
            );
        }
    }
}
