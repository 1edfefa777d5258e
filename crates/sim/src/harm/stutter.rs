//! Links that hold up what they carry for moments.

use std::time::Duration;

use base::Rng;

use super::{Harm, Harms};

/// What nodes say to each other is held up here and there, for a moment, while hosts hurry.
pub const STUTTER: Harm = Harm::new("stutter", 6, |harms, _, rng| {
    (0..STUTTERS).for_each(|_| harms.hold_up(rng));
    harms.hurry.end();
    true
});

/// How often something is held up when the network stutters, and how long at most: not for as long that
/// anybody is missed.
const STUTTERS: usize = 10;
const STUTTER_MAX: Duration = Duration::from_millis(60);
/// How long hosts hurry before: what they had under way comes to its end.
const BEFORE_STUTTER: Duration = Duration::from_millis(4);

impl Harms<'_> {
    /// Holds up what one node says to another, unless their link is cut, while hosts of the one write.
    fn hold_up(&self, rng: &mut Rng) {
        let nodes = self.cluster.servers.len() as u64;
        let to = rng.below(nodes) as usize;
        let from = (to + 1 + rng.below(nodes - 1) as usize) % self.cluster.servers.len();
        self.hurry.begin(from);
        self.inside.run_for(BEFORE_STUTTER);
        self.hold_up_from(from, to, rng, || {});
    }

    /// Meanwhile something happens.
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
