//! Scenarios, step by step, that seeds would produce rarely or never.

use std::collections::BTreeMap;

use base::Instant;
use cluster::embedded::{Answered, Engine, Identity, Refused, Reply, Saved, Settings};
use cluster::limits::{DOUBT_TICKS, QUESTION_TICKS, SNAPSHOT_TICKS, TICK, WITNESS_PATIENCE_TICKS};
use cluster::{MemberChange, NodeId, Outcome, Transaction};

fn node(number: u16) -> NodeId {
    NodeId::new(number).unwrap()
}

/// Nodes whose messages arrive at once, unless a test decides otherwise.
#[derive(Default)]
struct Lab {
    engines: BTreeMap<NodeId, Engine>,
    disks: BTreeMap<NodeId, Saved>,
    ticks: u32,
    replies: Vec<Reply>,
    /// Directions in which messages are lost: from, to.
    cut: Vec<(u16, u16)>,
    /// The number of snapshots that will get lost.
    snapshots_lost: u32,
    /// The number of batches that a node still makes durable before its power fails.
    batches_left: BTreeMap<NodeId, u32>,
}

impl Lab {
    /// A cluster of nodes 1 to `voters`; 3 is a witness.
    fn new(voters: u16) -> Lab {
        let mut lab = Lab::default();
        lab.disks.insert(node(1), Saved::founding(7, node(1)));
        lab.start(1);
        for number in 2..=voters {
            lab.add(number);
            lab.change(1, MemberChange::Promote(node(number)));
        }
        lab
    }

    fn add(&mut self, number: u16) {
        let joining = Saved::joining(Identity { cluster: 7, generation: 1, node: node(number) });
        self.disks.insert(node(number), joining);
        self.start(number);
        self.change(1, MemberChange::Add(node(number)));
    }

    fn start(&mut self, number: u16) {
        let settings = Settings { witness: number == 3, log_entries: 16, ..Settings::new(number.into()) };
        let engine = Engine::new(self.disks[&node(number)].clone(), settings);
        self.engines.insert(node(number), engine);
        self.run();
    }

    fn stop(&mut self, number: u16) {
        self.engines.remove(&node(number));
    }

    fn engine(&mut self, number: u16) -> &mut Engine {
        self.engines.get_mut(&node(number)).unwrap()
    }

    fn now(&self) -> Instant {
        Instant::default() + TICK * self.ticks
    }

    /// Runs until nothing is left to do.
    fn run(&mut self) {
        loop {
            let mut messages = Vec::new();
            for id in self.engines.keys().copied().collect::<Vec<_>>() {
                while let Some(engine) = self.engines.get_mut(&id) {
                    let batch = engine.poll_batch();
                    let sent = std::iter::from_fn(|| engine.poll_message());
                    messages.extend(sent.map(|(to, bytes)| (id, to, bytes)));
                    self.replies.extend(std::iter::from_fn(|| engine.poll_reply()));
                    let Some(batch) = batch else { break };
                    match self.batches_left.get_mut(&id) {
                        Some(0) => drop(self.engines.remove(&id)),
                        left => {
                            left.into_iter().for_each(|left| *left -= 1);
                            self.disks.get_mut(&id).unwrap().write(&batch);
                            engine.handle_persisted();
                        }
                    }
                }
            }
            if messages.is_empty() {
                return;
            }
            for (from, to, bytes) in messages {
                // The second byte of a message is its kind; 7 is a snapshot.
                if bytes[1] == 7 && self.snapshots_lost > 0 {
                    self.snapshots_lost -= 1;
                    continue;
                }
                if let Some(engine) =
                    self.engines.get_mut(&to).filter(|_| !self.cut.contains(&(from.get(), to.get())))
                {
                    match engine.handle_message(from, &bytes) {
                        Ok(()) | Err(Refused::Gone | Refused::Forgotten) => {}
                        Err(refused) => panic!("{refused}"),
                    }
                }
            }
        }
    }

    fn tick(&mut self) {
        self.ticks += 1;
        let now = self.now();
        self.engines.values_mut().for_each(|engine| engine.handle_tick(now));
        self.run();
    }

    /// Lets up to `ticks` ticks pass until `done`; returns how many.
    fn until(&mut self, ticks: u64, mut done: impl FnMut(&mut Lab) -> bool) -> u64 {
        for tick in 0..ticks {
            if done(self) {
                return tick;
            }
            self.tick();
        }
        panic!("not within {ticks} ticks");
    }

    fn leader(&self) -> Option<u16> {
        let leads = |engine: &&Engine| engine.status().leader == Some(u64::from(engine.node().get()));
        let latest = self.engines.values().filter(leads).max_by_key(|engine| engine.status().term);
        latest.map(|engine| engine.node().get())
    }

    fn change(&mut self, at: u16, change: MemberChange) {
        let deadline = self.now() + TICK * 400;
        self.engine(at).change_members(1, change, deadline);
        self.run();
        let done = Reply { call: 1, result: Ok(Answered::Members) };
        self.until(400, |lab| std::mem::take(&mut lab.replies).contains(&done));
    }

    fn put(&mut self, at: u16, key: &str) {
        let deadline = self.now() + TICK * 400;
        let op_id = u128::from(self.ticks) << 32 | u128::from(self.engine(at).record().sequence() + 1000);
        self.engine(at).propose(2, Transaction::new(op_id).put(key, "x"), deadline);
        self.run();
        self.until(400, |lab| {
            let committed = |it: &Reply| matches!(it.result, Ok(Answered::Outcome(Outcome::Committed(_))));
            std::mem::take(&mut lab.replies).iter().any(committed)
        });
    }

    /// Makes `number` the leader.
    fn lead(&mut self, number: u16) {
        let others: Vec<u16> = self.engines.keys().map(|id| id.get()).filter(|it| *it != number).collect();
        // The others do not hear from each other, so they cannot be elected. `number` can be, once they hear
        // from it.
        while self.leader() != Some(number) {
            let leader = self.leader();
            self.cut = others.iter().flat_map(|it| others.iter().map(|other| (*it, *other))).collect();
            if let Some(leader) = leader {
                self.cut.push((leader, number));
            }
            self.until(200, |lab| lab.leader() != leader);
            self.cut.clear();
            self.until(200, |lab| lab.leader().is_some());
        }
    }
}

/// Of two voters, one is switched off as soon as its removal was reported, and the power of the other one
/// fails at any boundary of its disk. (Seed 169 of an earlier mix.)
#[test]
fn a_removed_voter_is_not_waited_for_after_a_power_cut() {
    let mut told = 0;
    for batches in 0..12 {
        let mut lab = Lab::new(2);
        lab.lead(1);
        lab.batches_left.insert(node(1), batches);
        let deadline = lab.now() + TICK * 400;
        lab.engine(1).change_members(9, MemberChange::Remove(node(2)), deadline);
        lab.run();
        if !lab.replies.iter().any(|reply| reply.call == 9 && reply.result.is_ok()) {
            continue;
        }
        told += 1;
        lab.stop(1);
        lab.stop(2);
        lab.batches_left.clear();
        lab.start(1);
        lab.until(100, |lab| lab.leader() == Some(1));
    }
    assert!(told > 5, "{told}");
}

/// A voter's disk is set back to an earlier state, and the leader knows that the voter had confirmed more. It
/// may have forgotten votes as well. (raft-rs ends the thread.)
#[test]
fn a_voter_that_forgot_what_it_confirmed_never_votes_again() {
    let mut lab = Lab::new(3);
    lab.lead(1);
    let earlier = lab.disks[&node(2)].clone();
    for key in ["a", "b", "c"] {
        lab.put(1, key);
    }
    lab.stop(2);
    lab.disks.insert(node(2), earlier);
    lab.start(2);
    lab.until(20, |lab| lab.engine(2).has_forgotten());
    // The others form a quorum.
    lab.put(1, "d");
    lab.stop(1);
    for _ in 0..200 {
        lab.tick();
        assert_eq!(lab.leader(), None, "nobody is elected by who has forgotten");
    }
    // A restart does not restore its vote either.
    lab.stop(2);
    lab.start(2);
    assert!(lab.engine(2).has_forgotten());
    lab.start(1);
    lab.until(200, |lab| matches!(lab.leader(), Some(1 | 3)));
    lab.put(1, "e");
}

/// No node leads when the nodes return, so no leader knows what they had confirmed; but all remember what
/// they were promised.
#[test]
fn a_voter_set_back_during_a_blackout_elects_nobody() {
    for set_back in [1, 2] {
        let mut lab = Lab::new(3);
        lab.lead(1);
        let earlier = lab.disks[&node(set_back)].clone();
        // Only nodes 1 and 2 have the committed entries.
        lab.cut = vec![(1, 3), (3, 1)];
        for key in ["a", "b", "c"] {
            lab.put(1, key);
        }
        // The promises are stored.
        (0..10).for_each(|_| lab.tick());
        let latest = lab.engine(1).record().clone();
        [1, 2, 3].into_iter().for_each(|number| lab.stop(number));
        lab.cut.clear();
        lab.disks.insert(node(set_back), earlier);
        [1, 2, 3].into_iter().for_each(|number| lab.start(number));
        (0..2 * QUESTION_TICKS).for_each(|_| lab.tick());
        // The only node that has everything has answered, and is cut off for a while.
        let other = 3 - set_back;
        lab.cut = [(other, set_back), (set_back, other), (other, 3), (3, other)].to_vec();
        for _ in 0..2 * WITNESS_PATIENCE_TICKS {
            lab.tick();
            assert_eq!(lab.leader(), None, "nobody is elected who lacks something");
        }
        lab.cut.clear();
        lab.until(400, |lab| lab.leader().is_some());
        let leader = lab.leader().unwrap();
        assert_ne!(leader, set_back);
        lab.put(leader, "d");
        // A leader promises its own entries to no other node, so it only has to catch up.
        assert_eq!(lab.engine(set_back).has_forgotten(), set_back == 2);
        let kept = lab.engine(leader).record();
        assert!(latest.list("").all(|(key, _)| kept.get(key).is_some()), "what was committed is there");
    }
}

/// A voter that starts and cannot ask all others does not wait forever.
#[test]
fn a_voter_that_cannot_ask_all_votes_after_a_while() {
    let mut lab = Lab::new(3);
    lab.lead(1);
    lab.put(1, "a");
    [1, 2, 3].into_iter().for_each(|number| lab.stop(number));
    lab.start(2);
    for _ in 0..200 {
        lab.tick();
    }
    assert_eq!(lab.engine(2).status().term, lab.disks[&node(2)].vote.term, "alone it stands for nothing");
    lab.start(1);
    let ticks = lab.until(400, |lab| lab.leader().is_some());
    assert!(ticks >= DOUBT_TICKS, "the third may have known more");
    lab.put(1, "b");
}

#[test]
fn a_term_is_not_announced_before_its_vote_is_durable() {
    let mut lab = Lab::new(1);
    lab.add(4);
    lab.stop(1);
    let mut alone = Engine::new(lab.disks[&node(1)].clone(), Settings::new(5));
    let batch = alone.poll_batch().unwrap();
    assert_eq!(alone.status().leader, Some(1), "it elects itself at once");
    assert_eq!(alone.poll_message(), None);
    lab.disks.get_mut(&node(1)).unwrap().write(&batch);
    alone.handle_persisted();
    assert!(alone.poll_message().is_some_and(|(to, _)| to == node(4)));
}

/// Entries that never had a quorum are kept, because their outcome may have been reported; changes of members
/// among them have no effect.
#[test]
fn a_survivor_keeps_what_it_has_but_no_member() {
    let mut lab = Lab::new(3);
    lab.lead(1);
    lab.put(1, "committed");
    lab.cut = vec![(1, 2), (1, 3)];
    let deadline = lab.now() + TICK * 400;
    lab.engine(1).propose(3, Transaction::new(77).put("perhaps", "x"), deadline);
    lab.engine(1).change_members(4, MemberChange::Remove(node(3)), deadline);
    lab.run();
    (1..=3).for_each(|number| lab.stop(number));
    let saved = lab.disks.get_mut(&node(1)).unwrap();
    assert!(saved.last().index >= saved.vote.commit + 2, "both are in its log, and no more");
    saved.force_new_cluster().unwrap();
    let forced = saved.members.clone();
    assert_eq!((forced.voters.len(), forced.gone), (1, [node(2), node(3)].into()));
    lab.start(1);
    lab.until(100, |lab| lab.leader() == Some(1));
    lab.put(1, "after");
    let engine = lab.engine(1);
    assert!(["committed", "perhaps", "after"].iter().all(|key| engine.record().get(key).is_some()));
    assert_eq!(engine.members().voters, [node(1)].into());
    // Messages of a node that was abandoned are refused.
    lab.cut.clear();
    let identity = lab.disks[&node(2)].identity;
    assert_eq!((identity.generation, lab.engine(1).status().generation), (1, 2));
    let mut old = Engine::new(lab.disks[&node(2)].clone(), Settings::new(8));
    let mut refused = 0;
    for tick in 0..60 {
        old.handle_tick(Instant::default() + TICK * tick);
        while old.poll_batch().is_some() {
            old.handle_persisted();
        }
        while let Some((to, bytes)) = old.poll_message() {
            if to == node(1) {
                assert_eq!(lab.engine(1).handle_message(node(2), &bytes), Err(Refused::OtherGeneration));
                refused += 1;
            }
        }
    }
    assert!(refused > 0, "it stands for election");
}

#[test]
fn a_leader_hands_over_before_it_is_removed() {
    let mut lab = Lab::new(3);
    lab.lead(1);
    lab.change(2, MemberChange::Remove(node(1)));
    assert!(lab.leader().is_some_and(|leader| leader != 1));
    lab.put(2, "a");
    assert!(!lab.engine(2).members().has(node(1)));
}

/// The witness has the only copy of an entry, and the leader that wrote it is gone. Another voter has a
/// longer log, of an earlier term, and a higher priority.
#[test]
fn a_witness_with_the_newest_entry_leads_in_the_end() {
    let mut lab = Lab::new(3);
    lab.lead(2);
    // 2 writes entries that no other node gets; then 1 leads, and only the witness gets the first entry of
    // its term.
    lab.cut = vec![(2, 1), (2, 3), (1, 2), (3, 2)];
    let deadline = lab.now() + TICK * 10;
    for number in 0..4 {
        let lost = Transaction::new(100 + number).put("lost", "x");
        lab.engine(2).propose(3, lost, deadline);
        lab.run();
    }
    lab.until(200, |lab| lab.leader() == Some(1));
    lab.put(1, "kept");
    lab.stop(1);
    lab.cut.clear();
    let (behind, ahead) = (lab.engine(2).saved().clone(), lab.engine(3).saved().clone());
    assert!(behind.vote.term < ahead.vote.term && behind.last().index > ahead.last().index);
    let term = ahead.vote.term;
    let leads = |lab: &mut Lab| lab.leader().is_some() && lab.engine(3).status().term > term;
    let ticks = lab.until(WITNESS_PATIENCE_TICKS + 100, leads);
    assert!(ticks > WITNESS_PATIENCE_TICKS, "else this is not the story: {ticks}");
    lab.put(2, "after");
    assert!(lab.engine(2).record().get("kept").is_some() && lab.engine(2).record().get("lost").is_none());
}

#[test]
fn a_witness_leaves_the_lead_to_others() {
    let mut lab = Lab::new(3);
    for _ in 0..20 {
        let leader = lab.leader().unwrap();
        assert_ne!(leader, 3, "all logs are equal");
        lab.stop(leader);
        lab.until(100, |lab| lab.leader().is_some());
        lab.start(leader);
        lab.until(100, |lab| {
            let revisions: Vec<_> = lab.engines.values().map(|it| it.saved().vote.commit).collect();
            revisions.iter().all(|it| *it == revisions[0])
        });
    }
}

#[test]
fn a_snapshot_that_got_lost_is_sent_again() {
    let mut lab = Lab::new(2);
    lab.lead(1);
    lab.add(4);
    lab.stop(4);
    for number in 0..40 {
        lab.put(1, &format!("k{number}"));
    }
    lab.snapshots_lost = 1;
    lab.start(4);
    let ticks = lab.until(2 * SNAPSHOT_TICKS, |lab| lab.engine(4).record().get("k39").is_some());
    assert!(ticks >= SNAPSHOT_TICKS && lab.snapshots_lost == 0, "{ticks}");
    // The transport can report the loss at once.
    lab.stop(4);
    for number in 0..40 {
        lab.put(1, &format!("l{number}"));
    }
    lab.snapshots_lost = 1;
    lab.start(4);
    lab.until(20, |lab| lab.snapshots_lost == 0);
    lab.engine(1).handle_unreachable(node(4));
    lab.until(20, |lab| lab.engine(4).record().get("l39").is_some());
}
