//! Processes that die, are stopped and started.

use std::time::Duration;

use node::Handle;
use node::control::Handoff;
use rt::CoreId;
use rt::sim::NodeStatus;

use super::{Harm, Harms};

/// A process is killed.
pub const KILL: Harm = Harm::new("kill", 6, |harms, victim, _| {
    let up = harms.is_up(victim.index);
    harms.kill(victim.index);
    up
});

/// A process is killed, and the other nodes receive a report of its death.
pub const KILL_AND_TELL: Harm =
    Harm::new("kill that is told", 4, |harms, victim, _| harms.kill_and_tell(victim.index));

/// A node that is down is started.
pub const START: Harm = Harm::new("start", 30, |harms, victim, _| {
    let nodes = harms.cluster.servers.len();
    let down = (0..nodes)
        .map(|at| (at + victim.index) % nodes)
        .find(|at| harms.is_down(*at) && harms.may_start(*at));
    down.inspect(|index| harms.start(*index)).is_some()
})
.always();

/// A node is stopped as a service is.
pub const STOP: Harm = Harm::new("orderly stop", 3, |harms, victim, _| {
    let cluster = harms.cluster;
    if !cluster.is_started(victim.index) || harms.lost_with(victim.index).len() > 1 {
        return false;
    }
    let handle = Handle::new(cluster.world.handle(harms.machine(victim.index)));
    drop(cluster.world.spawn_on(cluster.watcher, CoreId(0), move || async move { handle.drain().await }));
    harms.stopping.push(victim.index);
    true
});

/// How long the report of a death is tried.
const TELL_MAX: Duration = Duration::from_secs(2);

impl Harms<'_> {
    pub(super) fn start(&mut self, index: usize) {
        self.stopping.retain(|stopping| *stopping != index);
        self.cluster.start(index);
    }

    pub(super) fn kill_and_tell(&mut self, index: usize) -> bool {
        let cluster = self.cluster;
        // If it was told to stop, it may have ended by now.
        if !cluster.is_started(index) {
            return false;
        }
        let handoff: Option<Handoff> = cluster.control(index, |control| async move { control.handoff() });
        if cluster.status(index) != NodeStatus::Running {
            return false;
        }
        self.kill(index);
        if let Some(handoff) = handoff {
            drop(cluster.world.spawn_on(cluster.watcher, CoreId(0), move || async move {
                // A node that the report does not reach learns of the death by silence.
                let _ = handoff.carry_out(None, TELL_MAX).await;
            }));
        }
        true
    }
}
