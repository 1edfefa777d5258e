//! A node that is cut off for just as long as it takes until the others go on without it.

use std::time::Duration;

use base::Rng;
use cluster::memory::Fault;
use rt::sim::NodeId;

use super::{Harm, Harms, number};

/// A node reaches no other until they have gone on without it, and no longer.
pub const LAPSE: Harm = Harm::new("lapse", 12, |harms, victim, rng| {
    let can = harms.cluster.is_started(victim.index) && harms.cluster.is_in_sync(victim.index);
    if can {
        harms.let_lapse(victim.index, rng);
    }
    can
})
.may_split();

/// How long a node is cut off, at most, until the others go on without it; and how often to check.
const LAPSE_MAX: Duration = Duration::from_secs(2);
pub(super) const LAPSE_LOOK: Duration = Duration::from_millis(20);
/// Longest time until hosts hurry for a moment: if the node's leases have expired by then, their commands
/// wait for leases.
const UNLEASED_MAX: Duration = Duration::from_millis(800);
const LAPSE_HURRY: Duration = Duration::from_millis(30);
/// How long it may stay cut off after its removal: its leases expire meanwhile, and the others act without
/// it.
const LAPSED_MAX: Duration = Duration::from_millis(1200);
/// Longest time until it is in sync again, without other faults.
const BACK_MAX: Duration = Duration::from_secs(4);

impl Harms<'_> {
    /// Cuts a node off until the others have gone on without it.
    ///
    /// It may not learn of that, and commands that wait at the node may still be there when it is back.
    fn let_lapse(&self, index: usize, rng: &mut Rng) {
        let (world, servers) = (&self.cluster.world, &self.cluster.servers);
        let machine = servers[index].machine;
        let others = servers.iter().map(|server| server.machine).filter(|other| *other != machine);
        let others: Vec<NodeId> = others.filter(|other| !self.is_cut(machine, *other)).collect();
        others.iter().for_each(|other| world.cut(machine, *other));
        let unheard = !rng.one_in(3) && !self.news_held[index];
        if unheard {
            self.cluster.record.begin(number(index), Fault::WatchHeld);
        }
        let until = world.now() + LAPSE_MAX;
        self.inside.run_for(Duration::from_micros(rng.below(UNLEASED_MAX.as_micros() as u64)));
        self.hurry.begin(index);
        self.inside.run_for(LAPSE_HURRY);
        self.hurry.end();
        while self.cluster.is_in_sync(index) && world.now() < until {
            self.inside.run_for(LAPSE_LOOK);
        }
        if unheard {
            self.inside.run_for(Duration::from_micros(rng.below(LAPSED_MAX.as_micros() as u64)));
            self.cluster.record.end(number(index), Fault::WatchHeld);
        }
        others.iter().for_each(|other| world.heal(machine, *other));
        let until = world.now() + BACK_MAX;
        while !self.cluster.is_in_sync(index) && world.now() < until {
            self.inside.run_for(LAPSE_LOOK);
        }
    }
}
