//! A node of two that continues alone, as somebody has agreed to (`docs/why/forks.md`), because the one with
//! the only vote is lost.
//!
//! No volume may be split here. So where the second node has continued alone, and that is not settled, the
//! first one does not run without it: it would continue itself after five seconds, and rightly. It is started
//! when the other one is there, and it is lost together with that.

use std::time::Duration;

use base::Rng;

use super::{Harm, Harms};

/// The node with the vote is lost, mostly for so long that the other one continues alone.
pub const VOTE_LOST: Harm =
    Harm::new("loss of the vote", 16, |harms, _, rng| harms.lose_vote(rng)).always().of_forks().floor(10);

/// The node with the vote.
const VOTER: usize = 0;
/// The one that continues alone.
const ALONE: usize = 1;
/// Bytes of its own record where it has such a volume there.
const FORK_KEY: &[u8] = b"fork/";

/// How long it takes at most until a node continues alone, where all else is well: five seconds of silence,
/// and leases.
const GOES_ON_WITHIN: Duration = Duration::from_secs(8);
/// How often that is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How long the other faults wait, at most, where all is not well.
const LOST_MAX: Duration = Duration::from_secs(9);
/// How long hosts hurry then.
const AFTERWARDS: Duration = Duration::from_millis(60);
/// When the node with the vote is back the next fault falls on what is settled within this time.
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
        if rng.one_in(2) && self.is_down(VOTER) && self.may_start(VOTER) {
            self.start(VOTER);
            self.reach_record();
            self.inside.run_for(Duration::from_micros(rng.below(SETTLING_MAX.as_micros() as u64)));
        }
        true
    }

    /// Whether the second node has continued alone with a volume, or its next life may find that it has, and
    /// that is not settled.
    fn is_forked(&self) -> bool {
        let cluster = self.cluster;
        let may_find_it = || contains(&cluster.node_record(ALONE), FORK_KEY);
        cluster.forks && cluster.has_fork(ALONE).unwrap_or_else(may_find_it)
    }

    /// Whether the node lacks, or may lack, what the other one has written alone, whatever the record says.
    pub(super) fn is_left_behind(&self, index: usize) -> bool {
        index == VOTER && self.is_forked()
    }

    /// Whether a node that is down may be started.
    pub(super) fn may_start(&self, index: usize) -> bool {
        let is_there = || self.cluster.is_started(ALONE) && !self.stopping.contains(&ALONE);
        index != VOTER || !self.is_forked() || is_there()
    }

    /// Which nodes are lost when this one is, the last of them itself.
    pub(super) fn lost_with(&self, index: usize) -> Vec<usize> {
        match index == ALONE && self.is_up(VOTER) && self.is_forked() {
            true => vec![VOTER, ALONE],
            false => vec![index],
        }
    }

    /// Kills the process of a node, and of all that are lost with it.
    pub(super) fn kill(&self, index: usize) {
        for index in self.lost_with(index) {
            self.cluster.world.kill(self.machine(index));
        }
    }
}

/// Whether these bytes are anywhere in what is written there.
fn contains(image: &rt::sim::DiskImage, wanted: &[u8]) -> bool {
    image.allocated(0, image.size()).into_iter().any(|(offset, len)| {
        let mut bytes = vec![0; len as usize];
        image.read(offset, &mut bytes);
        bytes.windows(wanted.len()).any(|found| found == wanted)
    })
}
