//! A record that is out of reach, whose answers are lost, or whose changes come late.

use std::time::Duration;

use cluster::memory::Fault;
use replica::LEASE_LENGTH;
use rt::sim::{NodeId, NodeStatus};

use super::{Harm, Harms, Victim, number};
use crate::record::Record;

/// A node does not reach the record.
pub const GONE: Harm = Harm::new("record gone", 3, |harms, victim, _| {
    let is_calm = harms.is_calm();
    harms.record_gone.push(victim.index);
    if is_calm {
        harms.reach_record();
        harms.inside.run_for(LEASES_END);
        harms.see_leases_requested(victim);
    }
    true
});

/// A node receives no answers to its changes of the record.
pub const ANSWERS_LOST: Harm = Harm::new("answers of the record lost", 2, |harms, victim, _| {
    harms.cluster.record.begin(number(victim.index), Fault::AnswersLost);
    true
});

/// A node receives no changes of the record.
pub const WATCH_HELD: Harm = Harm::new("watch of the record held", 3, |harms, victim, _| {
    harms.news_held[victim.index] = true;
    harms.cluster.record.begin(number(victim.index), Fault::WatchHeld);
    true
});

/// All nodes reach the record as far as the network permits.
pub const BACK: Harm = Harm {
    heal: |harms| harms.make_record_well(),
    ..Harm::new("record back", 8, |harms, _, _| {
        harms.make_record_well();
        true
    })
    .always()
};

/// By then a node has no lease that it requested before it lost the record, and the others no longer hear it
/// if it has requested no further one.
const LEASES_END: Duration = LEASE_LENGTH.saturating_mul(2);

impl Harms<'_> {
    fn make_record_well(&mut self) {
        self.record_gone.clear();
        self.news_held.fill(false);
        for index in 0..self.cluster.servers.len() {
            self.cluster.record.end(number(index), Fault::AnswersLost);
            self.cluster.record.end(number(index), Fault::WatchHeld);
        }
    }

    /// Expects a node that does not reach the record to request leases all the same.
    ///
    /// Whether it gets what it needs to serve hosts is another question: leases do not count if they were
    /// granted after a change of the record that the node has not seen (R10).
    fn see_leases_requested(&self, victim: Victim) {
        self.wait_for("request for leases", || self.cluster.hears(victim.other, victim.index));
        self.counts.count("leases requested without the record");
    }

    /// Lets each node reach the simulator's own record as the network permits.
    ///
    /// A node reaches it if it reaches, in both directions, more than half of the votes, its own included: as
    /// Raft would have it.
    pub(super) fn reach_record(&self) {
        let cluster = self.cluster;
        let raft = matches!(*cluster.record, Record::Raft(_));
        let machines: Vec<NodeId> = cluster.servers.iter().map(|server| server.machine).collect();
        let votes: Vec<NodeId> = match (machines.len(), cluster.witness) {
            (2, None) => vec![machines[0]],
            (_, witness) => machines.iter().copied().chain(witness).collect(),
        };
        for (index, machine) in machines.iter().enumerate() {
            let reached = |vote: &&NodeId| {
                let runs = cluster.world.status(**vote) == NodeStatus::Running;
                runs && (*vote == machine || !self.is_cut(*machine, **vote))
            };
            let majority = votes.iter().filter(reached).count() * 2 > votes.len();
            if (majority || raft) && !self.record_gone.contains(&index) {
                cluster.record.end(number(index), Fault::Unreachable);
            } else {
                cluster.record.begin(number(index), Fault::Unreachable);
            }
        }
    }
}
