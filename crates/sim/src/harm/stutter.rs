//! Links that delay what they carry for moments.

use std::time::Duration;

use base::Rng;

use super::{Harm, Harms};

/// Messages between nodes are delayed here and there, for a moment, while hosts hurry.
pub const STUTTER: Harm = Harm::new("stutter", 6, |harms, _, rng| {
    (0..STUTTERS).for_each(|_| harms.hold_up(rng));
    harms.hurry.end();
    true
});

/// Number of delays, and the longest of them: too short for a heartbeat timeout.
const STUTTERS: usize = 10;
const STUTTER_MAX: Duration = Duration::from_millis(60);
/// How long hosts hurry before: their earlier commands end meanwhile.
const BEFORE_STUTTER: Duration = Duration::from_millis(4);

impl Harms<'_> {
    /// Delays messages of one node to another, unless their link is cut, while hosts of the first one write.
    fn hold_up(&self, rng: &mut Rng) {
        let nodes = self.cluster.servers.len() as u64;
        let to = rng.below(nodes) as usize;
        let from = (to + 1 + rng.below(nodes - 1) as usize) % self.cluster.servers.len();
        self.hurry.begin(from);
        self.inside.run_for(BEFORE_STUTTER);
        self.hold_up_from(from, to, rng, || {});
    }

    /// Calls `happen` during the delay.
    pub(super) fn hold_up_from(&self, from: usize, to: usize, rng: &mut Rng, happen: impl FnOnce()) {
        let (world, servers) = (&self.cluster.world, &self.cluster.servers);
        let (from, to) = (servers[from].machine, servers[to].machine);
        let for_how_long = Duration::from_micros(rng.below(STUTTER_MAX.as_micros() as u64));
        let was_cut = self.is_cut(from, to);
        if !was_cut {
            world.cut_one_way(from, to);
        }
        happen();
        self.inside.run_for(for_how_long);
        if !was_cut {
            world.heal(from, to);
        }
    }
}
