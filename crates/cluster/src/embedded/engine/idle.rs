//! What an engine need not wake for.

use raft::{ProgressState, StateRole};

use super::Engine;
use crate::limits::{ELECTION_TICKS_MIN, HEARTBEAT_TICKS};

impl Engine {
    /// How many ticks may be handled at the same time, when the last of them is due: before that, none would
    /// do anything.
    ///
    /// They are so many that an idle follower is woken by its leader's heartbeats, and not by its ticks. A
    /// leader without other members has nobody to send heartbeats to.
    pub(in crate::embedded) fn ticks_together(&self) -> u32 {
        let raft = &self.raft.raft;
        let left = match raft.state {
            _ if self.waits() || raft.leader_id == 0 => 1,
            StateRole::Leader => {
                let election = ELECTION_TICKS_MIN.saturating_sub(raft.election_elapsed);
                match self.is_alone() {
                    true => election,
                    false => HEARTBEAT_TICKS.saturating_sub(raft.heartbeat_elapsed()).min(election),
                }
            }
            StateRole::Follower => {
                self.timeout.0.saturating_sub(raft.election_elapsed).min(2 * HEARTBEAT_TICKS)
            }
            StateRole::Candidate | StateRole::PreCandidate => 1,
        };
        left.max(1) as u32
    }

    /// Whether answers to heartbeats ([`super::super::may_wait`]) may wait until the engine wakes anyway: this
    /// node leads, and all others have its whole log.
    ///
    /// Then all that follows from an answer is that the follower counts as heard, which a leader looks at when
    /// it takes a tick. It wakes for that with each of its heartbeats.
    pub(in crate::embedded) fn needs_no_answers(&self) -> bool {
        let raft = &self.raft.raft;
        let last = raft.raft_log.last_index();
        let mut others = raft.prs().iter().filter(|(node, _)| **node != raft.id).map(|(_, other)| other);
        raft.state == StateRole::Leader
            && !self.waits()
            && others.all(|other| other.matched == last && other.state == ProgressState::Replicate)
    }

    /// Whether something here waits for other nodes, the disk or a time.
    fn waits(&self) -> bool {
        self.pending.calls() + self.reads.len() > 0
            || self.deferred.since.is_some()
            || self.unconfirmed.is_some()
            || self.succession.is_some()
            || self.doubt.is_some()
            || !self.snapshots.is_empty()
    }
}
