//! Full file systems under pools: no copy fails, and all works again when there is room.

use super::{Harm, Harms};

/// How many bytes are left, at most: some pages.
const LEFT_MAX: u64 = 48 << 10;

/// The file system of one node, or of all, has no room for blocks that were never written.
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
        harms.is_full.set(true);
        true
    })
};

/// All file systems have room again.
pub const ROOM: Harm = Harm::new("room", 4, |harms, _, _| {
    harms.expect_no_failed_copy();
    harms.make_room();
    harms.plan.has_pools_in_files()
});

impl Harms<'_> {
    fn make_room(&self) {
        (0..self.cluster.servers.len())
            .for_each(|index| self.cluster.world.set_space(self.machine(index), None));
        self.is_full.set(false);
    }

    /// Checks that no copy has failed, in plans in which no disk fails.
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
