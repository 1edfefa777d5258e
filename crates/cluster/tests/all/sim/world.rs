//! The nodes, their disks, the network, and callers.

use std::collections::BTreeMap;
use std::ops::AddAssign;

use base::{Instant, Rng};
use cluster::embedded::{Answered, Engine, Identity, Notification, Reply, Saved, Settings, is_promise_kept};
use cluster::limits::TICK;
use cluster::{Error, MemberChange, NodeId, Revision, Transaction};

use super::history::{History, mark};

/// How often each fault happens: once in this many.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Faults {
    lost: u64,
    repeated: u64,
    /// The most rounds that a message takes.
    slow: u64,
    /// At a boundary of the disk or of messages.
    crash: u64,
    partition: u64,
    members: u64,
    /// The intended number of voters: once there are as many, other changes of members begin.
    voters: usize,
    /// A disk is set back to an earlier state.
    set_back: u64,
    /// A crash undoes the last batch although it was durable: the checks must detect this.
    pub(crate) forgets: bool,
}

impl Faults {
    /// The faults of this seed; each seed has its own mix.
    pub(crate) fn of(seed: u64) -> Faults {
        let mut rng = Rng::new(seed ^ 0xfa17);
        let mut pick = |choices: [u64; 3]| choices[rng.below(3) as usize];
        Faults {
            lost: pick([5, 30, 1000]),
            repeated: pick([5, 50, 1000]),
            slow: pick([1, 3, 12]),
            crash: pick([50, 200, 2000]),
            partition: pick([50, 150, 1000]),
            members: pick([20, 60, 300]),
            voters: pick([1, 3, 4]) as usize,
            set_back: pick([60, 150, 5000]),
            forgets: false,
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) committed: u64,
    pub(crate) conflicts: u64,
    pub(crate) reads: u64,
    pub(crate) unknown: u64,
    pub(crate) crashes: u64,
    pub(crate) snapshots: u64,
    pub(crate) members: u64,
    pub(crate) elections: u64,
    /// Disks that were set back, and how many of these cases were detected.
    pub(crate) set_back: u64,
    pub(crate) noticed: u64,
}

impl AddAssign for Counts {
    fn add_assign(&mut self, more: Counts) {
        self.committed += more.committed;
        self.conflicts += more.conflicts;
        self.reads += more.reads;
        self.unknown += more.unknown;
        self.crashes += more.crashes;
        self.snapshots += more.snapshots;
        self.members += more.members;
        self.elections += more.elections;
        self.set_back += more.set_back;
        self.noticed += more.noticed;
    }
}

pub(crate) struct World {
    rng: Rng,
    faults: Faults,
    nodes: BTreeMap<NodeId, Node>,
    /// Round, sender, receiver, bytes.
    flying: Vec<(u64, NodeId, NodeId, Vec<u8>)>,
    /// The nodes on one side of a partition.
    apart: Vec<NodeId>,
    round: u64,
    /// By ID: the node and the call.
    calls: BTreeMap<u64, (NodeId, Call)>,
    next: u64,
    highest: u16,
    history: History,
    trial: Option<SetBackTest>,
    pub(crate) counts: Counts,
}

/// One disk is set back, and nothing else fails meanwhile: two simultaneous faults are more than is
/// guaranteed.
#[derive(Clone, Copy)]
struct SetBackTest {
    since: u64,
    /// The node whose disk was set back, once it was.
    node: Option<NodeId>,
    noticed: bool,
}

/// Rounds before a disk is set back, in which nodes store what others have promised.
const BEFORE: u64 = 20;
/// Rounds afterwards, in which it is detected or does no harm.
const AFTER: u64 = 200;

struct Node {
    /// `None`: the node is down.
    engine: Option<Engine>,
    disk: Saved,
    /// The disk before the last batch.
    before: Saved,
    /// Earlier contents of the disk.
    earlier: Vec<Saved>,
    /// The last revision that its watches have seen in this life.
    seen: Revision,
    term: u64,
}

enum Call {
    /// The operation, and what had been shown when it began.
    Cas(u64, Revision),
    Read(Revision),
    Members,
}

fn node(number: u16) -> NodeId {
    NodeId::new(number).unwrap()
}

impl World {
    pub(crate) fn new(seed: u64, faults: Faults) -> World {
        let mut world = World {
            rng: Rng::new(seed),
            faults,
            nodes: BTreeMap::new(),
            flying: Vec::new(),
            apart: Vec::new(),
            round: 0,
            calls: BTreeMap::new(),
            next: 0,
            highest: 1,
            history: History::default(),
            trial: None,
            counts: Counts::default(),
        };
        world.add(Saved::founding(7, node(1)));
        world.start(node(1));
        world
    }

    fn add(&mut self, saved: Saved) {
        let (before, earlier) = (saved.clone(), Vec::new());
        let node = Node { engine: None, before, earlier, disk: saved, seen: Revision(0), term: 0 };
        self.nodes.insert(node.disk.identity.node, node);
    }

    fn now(&self) -> Instant {
        Instant::default() + TICK * u32::try_from(self.round).unwrap()
    }

    fn start(&mut self, id: NodeId) {
        let seed = self.rng.next();
        // One in three has the priority of a witness.
        let settings =
            Settings { witness: id.get().is_multiple_of(3), log_entries: 40, ..Settings::new(seed) };
        let node = self.nodes.get_mut(&id).unwrap();
        let engine = Engine::new(node.disk.clone(), settings);
        assert_eq!(*engine.record().everything(), self.history.at(engine.record().revision().0));
        node.seen = engine.record().revision();
        node.engine = Some(engine);
        self.drive(id);
    }

    fn crash(&mut self, id: NodeId) {
        self.counts.crashes += 1;
        self.calls.retain(|_, (at, _)| *at != id);
        let node = self.nodes.get_mut(&id).unwrap();
        node.engine = None;
        if self.faults.forgets {
            node.disk = node.before.clone();
        }
    }

    /// Simulates one tick.
    pub(crate) fn round(&mut self) {
        self.round += 1;
        self.try_set_back();
        let calm = self.trial.is_some();
        if !calm && self.rng.one_in(self.faults.partition) {
            let mut apart: Vec<NodeId> = self.nodes.keys().copied().collect();
            apart.retain(|_| self.rng.one_in(2));
            self.apart = apart;
        } else if self.rng.one_in(40) {
            self.apart.clear();
        }
        self.retire();
        for id in self.nodes.keys().copied().collect::<Vec<_>>() {
            if self.nodes[&id].engine.is_none() {
                if self.rng.one_in(20) {
                    self.start(id);
                }
                continue;
            }
            if !calm && self.rng.one_in(self.faults.crash) {
                self.crash(id);
                continue;
            }
            // Clocks run at different speeds.
            if !self.rng.one_in(30) {
                let now = self.now();
                self.nodes.get_mut(&id).unwrap().engine.as_mut().unwrap().handle_tick(now);
                self.drive(id);
            }
            if self.rng.one_in(4) && self.nodes[&id].engine.is_some() {
                self.call(id);
            }
        }
        self.deliver();
    }

    /// Starts, continues or ends a trial.
    fn try_set_back(&mut self) {
        let Some(trial) = self.trial else {
            if self.rng.one_in(self.faults.set_back) {
                self.trial = Some(SetBackTest { since: self.round, node: None, noticed: false });
                let down = self.nodes.iter().filter(|(_, node)| node.engine.is_none());
                down.map(|(id, _)| *id).collect::<Vec<_>>().into_iter().for_each(|id| self.start(id));
            }
            return;
        };
        let Some(id) = trial.node else {
            if self.round >= trial.since + BEFORE {
                self.trial =
                    self.set_back().map(|id| SetBackTest { node: Some(id), since: self.round, ..trial });
            }
            return;
        };
        let Some(node) = self.nodes.get(&id) else {
            // It was removed, and would join again under another number.
            self.trial = None;
            return;
        };
        let noticed = node.engine.as_ref().is_some_and(Engine::has_forgotten);
        if noticed && !trial.noticed {
            self.counts.noticed += 1;
            self.trial = Some(SetBackTest { noticed: true, ..trial });
        } else if !trial.noticed && self.round > trial.since + AFTER {
            self.trial = None;
        } else if trial.noticed && self.rng.one_in(20) {
            // A restart does not restore its vote, and another node removes it.
            self.crash(id);
            self.start(id);
            let other = self.nodes.keys().copied().find(|other| *other != id && self.rng.one_in(2));
            let deadline = self.now() + TICK * 60;
            if let Some(engine) = other.and_then(|other| self.nodes.get_mut(&other)?.engine.as_mut()) {
                self.next += 1;
                engine.change_members(self.next, MemberChange::Remove(id), deadline);
                self.calls.insert(self.next, (engine.node(), Call::Members));
            }
        }
    }

    /// Sets the disk of a voter back to a state with the same members, with a restart of this node or of all;
    /// returns the node.
    ///
    /// It needs at least three voters, because the others must form a quorum.
    fn set_back(&mut self) -> Option<NodeId> {
        let leader = self.nodes.values().filter_map(|node| node.engine.as_ref());
        let leader = leader.filter(|it| it.status().leader == Some(u64::from(it.node().get())));
        let members = leader.max_by_key(|it| it.status().term)?.members().clone();
        let voters: Vec<NodeId> = members.voters.iter().copied().collect();
        if voters.len() < 3 {
            return None;
        }
        let id = voters[self.rng.below(voters.len() as u64) as usize];
        let node = self.nodes.get_mut(&id)?;
        let earlier: Vec<Saved> = node.earlier.iter().filter(|it| it.members == members).cloned().collect();
        if earlier.is_empty() || node.disk.members != members {
            return None;
        }
        let to = earlier[self.rng.below(earlier.len() as u64) as usize].clone();
        self.counts.set_back += 1;
        self.apart.clear();
        let all: Vec<NodeId> = self.nodes.keys().copied().collect();
        let stopped = if self.rng.one_in(2) { vec![id] } else { all };
        stopped.iter().for_each(|id| self.crash(*id));
        self.nodes.get_mut(&id)?.disk = to;
        stopped.iter().for_each(|id| self.start(*id));
        Some(id)
    }

    /// Removed nodes continue to run for a while, until someone who learned of the removal from a member
    /// switches them off.
    fn retire(&mut self) {
        let engines = self.nodes.values().filter_map(|node| node.engine.as_ref());
        let engines = engines.filter(|engine| engine.members().has(engine.node()));
        let gone: Vec<NodeId> = engines.flat_map(|engine| engine.members().gone.iter().copied()).collect();
        for id in gone {
            if self.nodes.contains_key(&id) && self.rng.one_in(100) {
                self.nodes.remove(&id);
                self.calls.retain(|_, (at, _)| *at != id);
            }
        }
    }

    /// Delivers the messages that are due, in any order, and those that they cause in the same round.
    fn deliver(&mut self) {
        for _ in 0..4 {
            let due: Vec<_> = self.flying.extract_if(.., |(at, ..)| *at <= self.round).collect();
            let mut due = due;
            while !due.is_empty() {
                let at = self.rng.below(due.len() as u64) as usize;
                let (_, from, to, bytes) = due.swap_remove(at);
                let apart = self.apart.contains(&from) != self.apart.contains(&to);
                if apart || self.rng.one_in(self.faults.lost) {
                    continue;
                }
                if self.rng.one_in(self.faults.repeated) {
                    let later = self.round + 1 + self.rng.below(20);
                    self.flying.push((later, from, to, bytes.clone()));
                }
                let Some(engine) = self.nodes.get_mut(&to).and_then(|node| node.engine.as_mut()) else {
                    continue;
                };
                let _ = engine.handle_message(from, &bytes);
                self.drive(to);
            }
        }
    }

    fn call(&mut self, id: NodeId) {
        self.next += 1;
        let (call, shown) = (self.next, self.history.shown);
        let deadline = self.now() + TICK * (20 + self.rng.below(60) as u32);
        let grows = self.nodes[&id].engine.as_ref().unwrap().members().voters.len() < self.faults.voters;
        let often = if grows { self.faults.members.min(5) } else { self.faults.members };
        let changes = self.trial.is_none() && self.rng.one_in(often);
        let members = changes.then(|| self.member_change(id, grows)).flatten();
        let engine = self.nodes.get_mut(&id).unwrap().engine.as_mut().unwrap();
        if let Some(change) = members {
            engine.change_members(call, change, deadline);
            self.calls.insert(call, (id, Call::Members));
        } else if self.rng.one_in(3) {
            engine.read(call, deadline);
            self.calls.insert(call, (id, Call::Read(shown)));
        } else {
            let mut transaction = Transaction::new(u128::from(call)).put(&mark(call), "");
            let key = format!("counter/{}", self.rng.below(3));
            if self.rng.one_in(2) {
                // Like a real caller: what it knows may be stale.
                let found = engine.record().get(&key).map(|entry| entry.revision);
                transaction = transaction.expect(&key, found);
            }
            // Old marks need not be kept, because the history has each of them.
            let old = engine.record().list("op/").next().map(|(key, _)| key.clone());
            let many = engine.record().list("op/").count() > 20;
            if let Some(old) = old.filter(|old| many && *old != mark(call)) {
                transaction.writes.push((old.replace("op/", "was/"), None));
            }
            transaction = if self.rng.one_in(5) {
                transaction.delete(&key)
            } else {
                transaction.put(&key, call.to_le_bytes())
            };
            engine.propose(call, transaction, deadline);
            self.calls.insert(call, (id, Call::Cas(call, shown)));
        }
        self.drive(id);
    }

    fn member_change(&mut self, id: NodeId, grows: bool) -> Option<MemberChange> {
        let members = self.nodes[&id].engine.as_ref().unwrap().members().clone();
        let all: Vec<NodeId> = members.voters.iter().chain(&members.learners).copied().collect();
        if all.is_empty() {
            return None;
        }
        let any = all[self.rng.below(all.len() as u64) as usize];
        Some(match self.rng.below(if grows { 4 } else { 6 }) {
            0 | 1 if all.len() < 5 && self.nodes.len() < 7 => {
                self.highest += 1;
                let new = node(self.highest);
                self.add(Saved::joining(Identity { cluster: 7, generation: 1, node: new }));
                self.start(new);
                MemberChange::Add(new)
            }
            0..=3 => MemberChange::Promote(any),
            4 => MemberChange::Demote(any),
            _ => MemberChange::Remove(any),
        })
    }

    /// Does everything that the engine of `id` requests, unless it crashes.
    fn drive(&mut self, id: NodeId) {
        loop {
            let Some(engine) = self.nodes.get_mut(&id).and_then(|node| node.engine.as_mut()) else { return };
            let batch = engine.poll_batch();
            let messages: Vec<_> = std::iter::from_fn(|| engine.poll_message()).collect();
            let replies: Vec<_> = std::iter::from_fn(|| engine.poll_reply()).collect();
            let told: Vec<_> = std::iter::from_fn(|| engine.poll_notification()).collect();
            told.into_iter().for_each(|told| self.tell(id, told));
            for reply in replies {
                self.reply(id, reply);
            }
            for (to, bytes) in messages {
                let kept = is_promise_kept(&self.nodes[&id].disk, &bytes);
                assert!(kept, "{id} says to {to} what is not on its disk");
                let at = self.round + self.rng.below(self.faults.slow);
                self.flying.push((at, id, to, bytes));
                if self.trial.is_none() && self.rng.one_in(self.faults.crash * 4) {
                    return self.crash(id);
                }
            }
            let node = self.nodes.get_mut(&id).unwrap();
            let engine = node.engine.as_mut().unwrap();
            let Some(batch) = batch else {
                engine.check();
                let status = engine.status();
                let leads = status.leader == Some(u64::from(id.get()));
                if leads && status.term > node.term {
                    node.term = status.term;
                    self.counts.elections += 1;
                }
                return;
            };
            let crashes = self.trial.is_none();
            if crashes && self.rng.one_in(self.faults.crash) {
                return self.crash(id);
            }
            if self.rng.one_in(8) {
                node.earlier.push(node.disk.clone());
                // The earliest ones are kept, too.
                if node.earlier.len() > 12 {
                    node.earlier.remove(self.rng.below(12) as usize);
                }
            }
            node.before = node.disk.clone();
            node.disk.write(&batch);
            node.disk.check();
            if crashes && self.rng.one_in(self.faults.crash) {
                return self.crash(id);
            }
            engine.handle_persisted();
            assert_eq!(node.disk.record, *engine.record(), "the disk has what the engine has");
        }
    }

    fn tell(&mut self, id: NodeId, told: Notification) {
        let node = self.nodes.get_mut(&id).unwrap();
        match told {
            Notification::Change(change) => {
                assert_eq!(change.revision.0, node.seen.0 + 1, "{id} skipped a change");
                node.seen = change.revision;
                self.history.tell(&change);
            }
            Notification::Replaced => {
                self.counts.snapshots += 1;
                // The record equals the snapshot, unless more was applied since; `drive` polls after each
                // step.
                let record = node.engine.as_ref().unwrap().record();
                assert!(record.revision() >= node.seen, "{id} went back");
                assert_eq!(*record.everything(), self.history.at(record.revision().0));
                node.seen = record.revision();
            }
        }
    }

    fn reply(&mut self, id: NodeId, reply: Reply) {
        let (_, call) = self.calls.remove(&reply.call).expect("one reply a call");
        match (call, reply.result) {
            (Call::Cas(op, since), Ok(Answered::Outcome(outcome))) => {
                self.history.outcome(op, &outcome, since);
                match outcome {
                    cluster::Outcome::Committed(_) => self.counts.committed += 1,
                    cluster::Outcome::Conflict { .. } => self.counts.conflicts += 1,
                }
            }
            (Call::Cas(..), Err(Error::OutcomeUnknown)) => self.counts.unknown += 1,
            (Call::Cas(op, _), Err(Error::NoLeader | Error::NoQuorum)) => self.history.void(op),
            (Call::Read(since), Ok(Answered::Read)) => {
                self.counts.reads += 1;
                let record = self.nodes[&id].engine.as_ref().unwrap().record();
                self.history.read(record.everything(), since);
            }
            (Call::Read(_), Err(Error::NoLeader | Error::NoQuorum)) => {}
            (Call::Members, Ok(Answered::Members)) => self.counts.members += 1,
            (Call::Members, Err(_)) => {}
            (_, other) => panic!("not an answer to that call: {other:?}"),
        }
    }

    /// Ends all faults: all members must reach the same state, and every call must be answered.
    pub(crate) fn heal(&mut self) {
        let calm = u64::MAX;
        self.faults = Faults {
            lost: calm,
            repeated: calm,
            slow: 1,
            crash: calm / 4,
            partition: calm,
            members: calm,
            voters: 0,
            set_back: calm,
            ..self.faults
        };
        self.apart.clear();
        for _ in 0..400 {
            self.round();
        }
        for id in self.nodes.keys().copied().collect::<Vec<_>>() {
            if self.nodes[&id].engine.is_none() {
                self.start(id);
            }
        }
        // Enough for the longest call, an election, and a lost snapshot. There are no more calls.
        for _ in 0..400 {
            self.round += 1;
            for id in self.nodes.keys().copied().collect::<Vec<_>>() {
                let now = self.now();
                self.nodes.get_mut(&id).unwrap().engine.as_mut().unwrap().handle_tick(now);
                self.drive(id);
            }
            self.deliver();
        }
        assert!(self.calls.is_empty(), "each call has an answer at its deadline at the latest");
        let engines = self.nodes.values().map(|node| node.engine.as_ref().unwrap());
        let leader = engines.clone().filter(|it| it.status().leader == Some(u64::from(it.node().get())));
        let leader = leader.max_by_key(|it| it.status().term);
        let leader = leader.unwrap_or_else(|| {
            panic!(
                "nobody leads: {:#?}",
                self.nodes.iter().map(|(id, node)| (id, &node.engine)).collect::<Vec<_>>()
            )
        });
        let members = leader.members().clone();
        assert_eq!(leader.record().revision(), self.history.last());
        for engine in engines.filter(|engine| members.has(engine.node())) {
            assert_eq!(
                *engine.record().everything(),
                self.history.at(self.history.last().0),
                "{}",
                engine.node()
            );
            assert_eq!(*engine.members(), members);
            assert_eq!(engine.record(), leader.record(), "also what is remembered");
        }
        self.history.check();
    }

    /// A checksum of the final state.
    pub(crate) fn digest(&self) -> u32 {
        let mut bytes = self.history.last().0.to_le_bytes().to_vec();
        for node in self.nodes.values() {
            bytes.extend(node.disk.record.encode());
            bytes.extend(node.disk.vote.term.to_le_bytes());
        }
        base::crc32c(&bytes)
    }
}
