//! Processes that stand still while their clocks continue.

use std::time::Duration;

use rt::sim::NodeStatus;

use super::{Harm, Harms};

/// A process stands still for a while; its clock continues.
pub const PAUSE: Harm = Harm {
    tick: |harms| {
        let now = harms.cluster.world.now();
        harms.resume(|until| until <= now);
    },
    heal: |harms| harms.resume(|_| true),
    ..Harm::new("pause", 4, |harms, victim, rng| {
        let world = &harms.cluster.world;
        if harms.cluster.status(victim.index) != NodeStatus::Running {
            return false;
        }
        world.pause(harms.machine(victim.index));
        let until = world.now() + Duration::from_millis(rng.below(PAUSE_MAX_MILLIS));
        harms.paused.push((victim.index, until));
        true
    })
    .may_split()
};

/// Longest pause of a process: longer than a lease.
const PAUSE_MAX_MILLIS: u64 = 3000;

impl Harms<'_> {
    /// Resumes the processes whose pause was to last until such a time.
    fn resume(&mut self, is_due: impl Fn(Duration) -> bool) {
        let cluster = self.cluster;
        self.paused.retain(|(index, until)| {
            let (paused, due) = (cluster.status(*index) == NodeStatus::Paused, is_due(*until));
            if paused && due {
                cluster.world.resume(cluster.servers[*index].machine);
            }
            paused && !due
        });
    }
}
