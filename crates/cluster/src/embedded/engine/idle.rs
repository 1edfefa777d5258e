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

    /// Whether answers to heartbeats may wait until the engine wakes anyway
    /// ([`may_wait`](super::super::may_wait)): this node leads, and all others have its whole log.
    ///
    /// Then all that follows from an answer is that the follower counts as heard, which a leader looks at
    /// when it takes a tick. It wakes for that with each of its heartbeats.
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

#[cfg(test)]
mod tests {
    use base::Instant;

    use super::super::{Members, NodeId, Saved, Settings};
    use super::*;
    use crate::embedded::may_wait;
    use crate::embedded::saved::Identity;
    use crate::limits::TICK;

    fn engine(number: u16) -> Engine {
        let node = |number| NodeId::new(number).unwrap();
        let members = Members { voters: [node(1), node(2)].into(), ..Members::default() };
        let identity = Identity { cluster: 7, generation: 1, node: node(number) };
        let saved = Saved { identity, members, ..Saved::founding(7, node(number)) };
        Engine::new(saved, Settings::new(number.into()))
    }

    /// What an engine costs whose node is alone is that it wakes: twice a second, not with each heartbeat.
    #[test]
    fn an_engine_that_is_alone_sleeps_through_heartbeats() {
        let mut engine = Engine::new(Saved::founding(7, NodeId::new(1).unwrap()), Settings::new(1));
        assert!(sent_by(&mut engine).is_empty() && engine.is_leader());
        let (mut tick, mut wakes) = (0, 0);
        while tick < 200 {
            for _ in 0..engine.ticks_together() {
                tick += 1;
                engine.handle_tick(Instant::default() + TICK * tick);
                assert!(sent_by(&mut engine).is_empty() && engine.is_leader(), "tick {tick}");
            }
            wakes += 1;
        }
        assert!(wakes < 200 / ELECTION_TICKS_MIN + 5, "{wakes}");
    }

    /// Makes everything durable; returns the messages.
    fn sent_by(engine: &mut Engine) -> Vec<Vec<u8>> {
        while engine.poll_batch().is_some() {
            engine.handle_persisted();
        }
        std::iter::from_fn(|| engine.poll_message()).map(|(_, bytes)| bytes).collect()
    }

    /// Delivers these messages of one engine, then all that follow from them.
    fn deliver(engines: &mut [Engine; 2], from: usize, sent: Vec<Vec<u8>>) {
        let (mut from, mut sent) = (from, sent);
        while !sent.is_empty() {
            let node = engines[from].node();
            sent.iter().for_each(|bytes| engines[1 - from].handle_message(node, bytes).unwrap());
            from = 1 - from;
            sent = sent_by(&mut engines[from]);
        }
    }

    #[test]
    fn before_the_last_of_the_ticks_that_are_taken_together_nothing_happens() {
        let mut engines = [engine(1), engine(2)];
        let mut left_out = [0; 2];
        for tick in 1..400 {
            for index in [0, 1] {
                let engine = &mut engines[index];
                let role = |engine: &Engine| (engine.raft.raft.term, engine.raft.raft.state);
                let (together, before) = (engine.ticks_together(), role(engine));
                engine.handle_tick(Instant::default() + TICK * tick);
                let sent = sent_by(engine);
                if together > 1 {
                    assert!(sent.is_empty() && role(engine) == before, "tick {tick}");
                    left_out[index] += 1;
                }
                // In the end they are cut off from each other: one misses its leader, one its followers.
                if tick < 300 {
                    deliver(&mut engines, index, sent);
                }
            }
            let leads = engines.iter().filter(|engine| engine.is_leader()).count();
            assert!(leads == 1 || !(100..300).contains(&tick), "tick {tick}");
        }
        assert!(left_out.iter().all(|ticks| *ticks > 100), "{left_out:?}");
    }

    /// As long as a leader says that it needs no answers, it makes no difference if they come with its ticks.
    #[test]
    fn a_leader_whose_followers_have_everything_needs_their_answers_only_with_its_ticks() {
        let mut engines = [engine(1), engine(2)];
        let (mut left, mut waited): ([Vec<Vec<u8>>; 2], _) = (Default::default(), 0);
        for tick in 1..400 {
            for index in [0, 1] {
                let node = engines[1 - index].node();
                for bytes in std::mem::take(&mut left[index]) {
                    engines[index].handle_message(node, &bytes).unwrap();
                    waited += 1;
                    assert!(sent_by(&mut engines[index]).is_empty(), "nothing follows, tick {tick}");
                }
                engines[index].handle_tick(Instant::default() + TICK * tick);
                let sent = sent_by(&mut engines[index]);
                let needs_none = engines[index].needs_no_answers();
                if needs_none && sent.iter().all(|bytes| may_wait(bytes)) {
                    let from = engines[index].node();
                    let other = &mut engines[1 - index];
                    sent.iter().for_each(|bytes| other.handle_message(from, bytes).unwrap());
                    left[index] = sent_by(other);
                    assert!(left[index].iter().all(|bytes| may_wait(bytes)), "tick {tick}");
                } else {
                    deliver(&mut engines, index, sent);
                }
            }
            let leads = engines.iter().filter(|engine| engine.is_leader()).count();
            assert!(leads == 1 || tick < 100, "tick {tick}");
        }
        assert!(waited > 100, "{waited}");
        let leader = engines.iter().position(|engine| engine.is_leader()).unwrap();
        assert!(engines[leader].needs_no_answers() && !engines[1 - leader].needs_no_answers());
        let other = engines[1 - leader].node();
        engines[leader].handle_unreachable(other);
        assert!(!engines[leader].needs_no_answers(), "what was on its way to it may be lost");
    }
}
