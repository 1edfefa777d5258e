//! Changes of members that nodes learn of one after the other.

use std::ops::Range;
use std::time::Duration;

use base::Rng;
use cluster::memory::Fault;
use rt::sim::{DiskLatency, NodeStatus};

use super::lapse::LAPSE_LOOK;
use super::{Harm, Harms, number};

/// Members change while hosts hurry, and nodes learn of each change one after the other.
pub const TURN: Harm = Harm::new("turn", 8, |harms, victim, rng| harms.turn(victim.index, rng)).may_split();

/// Number of changes: a node leaves, joins, and comes in sync.
const TURNS: usize = 3;
/// Duration of disks' reads and flushes meanwhile, in milliseconds: what one node does in an instant takes
/// another longer than a change of members.
const PACES: [Range<u64>; 3] = [1..2, 1..20, 20..80];
/// Longest time until each of these changes.
const TURN_MAX: Duration = Duration::from_secs(3);
/// How long hosts hurry before the nodes learn of it.
const BEFORE_TURN: Duration = Duration::from_millis(60);

impl Harms<'_> {
    /// Makes a node leave and come back, if another copy is in sync, too; or come back, if it is down.
    ///
    /// Nodes learn of each change of members one after the other, while hosts hurry, disks are slow, and
    /// messages of a node are delayed.
    fn turn(&mut self, index: usize, rng: &mut Rng) -> bool {
        let cluster = self.cluster;
        let nodes = 0..cluster.servers.len();
        let in_sync = nodes.clone().filter(|index| cluster.is_in_sync(*index)).count();
        let leaves = cluster.is_started(index) && cluster.is_in_sync(index) && in_sync > 1;
        if !leaves && !self.is_down(index) {
            return false;
        }
        for (index, disk) in self.disks().collect::<Vec<_>>() {
            let mut pace = || {
                let Range { start, end } = &PACES[rng.below(PACES.len() as u64) as usize];
                Duration::from_millis(*start)..Duration::from_millis(*end)
            };
            let latency = DiskLatency { read: pace(), flush: pace(), ..self.latency(index) };
            cluster.world.set_disk_latency(self.machine(index), disk.path, latency);
        }
        for turn in usize::from(!leaves)..TURNS {
            let epoch = cluster.entry().epoch;
            let hears: Vec<usize> = nodes.clone().filter(|index| !self.news_held[*index]).collect();
            // Some changes of members come during much I/O, and all nodes learn of them at once.
            let sudden = rng.one_in(2);
            if sudden {
                self.hurry.begin(index);
                self.inside.run_for(BEFORE_TURN);
            } else {
                hears.iter().for_each(|index| cluster.record.begin(number(*index), Fault::WatchHeld));
            }
            match turn {
                0 => drop(self.kill_and_tell(index)),
                1 if self.is_down(index) => self.start(index),
                _ => {}
            }
            let until = cluster.world.now() + TURN_MAX;
            while cluster.entry().epoch == epoch && cluster.world.now() < until {
                self.inside.run_for(LAPSE_LOOK);
            }
            self.hurry.begin(index);
            self.inside.run_for(BEFORE_TURN);
            let hears = if sudden { Vec::new() } else { hears };
            let first = rng.below(hears.len().max(1) as u64) as usize;
            for at in 0..hears.len() {
                let index = hears[(first + at) % hears.len()];
                let others = cluster.servers.len() as u64 - 1;
                let from = (index + 1 + rng.below(others) as usize) % cluster.servers.len();
                let tell = || cluster.record.end(number(index), Fault::WatchHeld);
                self.hold_up_from(from, index, rng, tell);
            }
            self.inside.run_for(BEFORE_TURN);
            self.hurry.end();
        }
        self.make_disks_fast();
        matches!(cluster.status(index), NodeStatus::Running)
    }
}
