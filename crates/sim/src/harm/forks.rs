//! One of two nodes continues alone, as an administrator has permitted (`docs/why/forks.md`), because the
//! node with the only vote is lost.
//!
//! No split brain may occur here. So while the second node has continued alone and that is not settled, the
//! first one must not run without the second: after five seconds it would continue itself, and rightly. It is
//! started only when the second runs, and is lost together with it.

use std::time::Duration;

use base::Rng;

use super::{Harm, Harms};

/// The node with the vote is lost, mostly for so long that the other one continues alone. Half of the time,
/// the other one is restarted before it hears from the first one again.
pub const VOTE_LOST: Harm =
    Harm::new("loss of the vote", 16, |harms, _, rng| harms.lose_vote(rng)).always().of_forks().floor(10);

/// The node with the vote.
const VOTER: usize = 0;
/// The node that continues alone.
const ALONE: usize = 1;
/// Bytes of the node's own record that are there if it continued alone with a volume.
const FORK_KEY: &[u8] = b"fork/";

/// Longest time until a node continues alone, without other faults: five seconds of silence, and leases.
const GOES_ON_WITHIN: Duration = Duration::from_secs(8);
/// Longest time until its process starts again, without other faults.
const STARTS_WITHIN: Duration = Duration::from_secs(2);
/// How often to check.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Longest time until the next fault, if there are other faults.
const LOST_MAX: Duration = Duration::from_secs(9);
/// How long hosts hurry then.
const AFTERWARDS: Duration = Duration::from_millis(60);
/// Longest time until the next fault after the return of the node with the vote: the fork may be settled by
/// then.
const SETTLING_MAX: Duration = Duration::from_millis(1500);

impl Harms<'_> {
    fn lose_vote(&mut self, rng: &mut Rng) -> bool {
        let is_calm = rng.one_in(2) && self.calm_down();
        let cluster = self.cluster;
        let is_there = cluster.is_started(ALONE) && !self.stopping.contains(&ALONE);
        if !self.is_up(VOTER) || !is_there {
            return false;
        }
        match rng.below(3) {
            0 => self.kill(VOTER),
            1 => self.power_loss(&[VOTER]),
            _ => drop(self.kill_and_tell(VOTER)),
        }
        self.reach_record();
        if is_calm {
            let until = cluster.world.now() + GOES_ON_WITHIN;
            while !cluster.serves(ALONE) {
                assert!(cluster.world.now() < until, "all was well, and node 2 does not continue alone");
                self.inside.run_for(LOOK_EVERY);
            }
            self.write_unharmed(self.any_volume(rng), ALONE);
        } else {
            self.inside.run_for(Duration::from_micros(rng.below(LOST_MAX.as_micros() as u64)));
        }
        self.hurry.begin(ALONE);
        self.inside.run_for(AFTERWARDS);
        self.hurry.end();
        let (restarts, returns) = (rng.one_in(2), rng.one_in(2));
        if restarts {
            self.restart_alone();
        }
        if (restarts || returns) && self.is_down(VOTER) && self.may_start(VOTER) {
            self.start(VOTER);
            self.reach_record();
            self.inside.run_for(Duration::from_micros(rng.below(SETTLING_MAX.as_micros() as u64)));
        }
        true
    }

    /// Restarts the second node: what it knows of having continued alone is in its own record.
    fn restart_alone(&mut self) {
        self.kill(ALONE);
        self.start(ALONE);
        let until = self.cluster.world.now() + STARTS_WITHIN;
        while !self.cluster.is_started(ALONE) && self.cluster.world.now() < until {
            self.inside.run_for(LOOK_EVERY);
        }
    }

    /// Whether the second node has continued alone with a volume, or may find so at its next start, and that
    /// is not settled.
    fn is_forked(&self) -> bool {
        let cluster = self.cluster;
        let may_find_it = || contains(&cluster.node_record(ALONE), FORK_KEY);
        cluster.forks && cluster.has_fork(ALONE).unwrap_or_else(may_find_it)
    }

    /// Whether the node lacks, or may lack, writes of the other one alone, whatever the record says.
    pub(super) fn is_left_behind(&self, index: usize) -> bool {
        index == VOTER && self.is_forked()
    }

    /// Whether a node that is down may be started.
    pub(super) fn may_start(&self, index: usize) -> bool {
        let is_there = || self.cluster.is_started(ALONE) && !self.stopping.contains(&ALONE);
        index != VOTER || !self.is_forked() || is_there()
    }

    /// The nodes that are lost with this one, which is the last of them.
    pub(super) fn lost_with(&self, index: usize) -> Vec<usize> {
        match index {
            ALONE if self.is_up(VOTER) && self.is_forked() => vec![VOTER, ALONE],
            VOTER if self.is_about_to_act_alone() => vec![ALONE, VOTER],
            _ => vec![index],
        }
    }

    /// Whether the node with the vote waits for the leases of the second, which the record has out of sync.
    ///
    /// Nothing has been acknowledged without the second node, and it may not know of that change. If it is
    /// left alone now, it rightly continues: but by the record, that is a split brain (seed 7301909).
    fn is_about_to_act_alone(&self) -> bool {
        let cluster = self.cluster;
        let is_out = || cluster.volumes.iter().any(|volume| !cluster.has_in_sync(volume, ALONE));
        cluster.forks && self.is_up(VOTER) && is_out() && self.inside.is_to_act(VOTER)
    }

    /// Kills the process of a node, and of all that are lost with it.
    pub(super) fn kill(&self, index: usize) {
        for index in self.lost_with(index) {
            self.cluster.world.kill(self.machine(index));
        }
    }
}

/// Whether these bytes are anywhere in the image's data.
fn contains(image: &rt::sim::DiskImage, wanted: &[u8]) -> bool {
    image.allocated(0, image.size()).into_iter().any(|(offset, len)| {
        let mut bytes = vec![0; len as usize];
        image.read(offset, &mut bytes);
        bytes.windows(wanted.len()).any(|found| found == wanted)
    })
}
