//! Random runs of deciders and members together: three nodes, each with a copy. Messages arrive in any order
//! or not at all, nodes abandon changes, crash and return with what is on their disks, copies leave and join.
//!
//! Every change adds a registration of its own and removes none, so it is easy to see whether an answered one
//! is lost.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use base::{Instant, Rng};
use proto::scsi::{Abort, Decision, LuState, Outcome};
use replica::{Epoch, NodeId, Slot};

use super::{Decider, Here, Member, Members, Next, Offer, Query, Question, Reply, Stored, Work};
use crate::canary::{Canary, make};

/// For how many steps there are faults, and how many more it may take until all is well.
const FAULTY_STEPS: u64 = 600;
const CALM_STEPS: u64 = 20_000;

/// A state with these registrations.
fn state_of(changes: &BTreeSet<u64>) -> LuState {
    if changes.is_empty() {
        return LuState::default();
    }
    let mut bytes = b"ULUS\x01\x00".to_vec();
    bytes.extend_from_slice(&[1, 0, 0xff, 0xff]);
    bytes.extend_from_slice(&(changes.len() as u16).to_le_bytes());
    for change in changes {
        bytes.extend_from_slice(&change.to_le_bytes());
        bytes.extend_from_slice(&(*change as u16).to_le_bytes());
        bytes.extend_from_slice(&[1, 0, 0, 0, 0, 0, 0, 0, 0]);
    }
    bytes.extend_from_slice(&base::crc32c(&bytes).to_le_bytes());
    LuState::from_durable(&bytes).unwrap()
}

/// The registrations of a state.
fn changes_of(state: &LuState) -> BTreeSet<u64> {
    let durable = state.to_durable();
    let registrations = durable.get(12..).unwrap_or_default().chunks_exact(19);
    registrations.map(|bytes| u64::from_le_bytes(*bytes.first_chunk().unwrap())).collect()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    InSync,
    Joining,
    Outside,
}

/// The standing of each copy, in this life of its node.
type Config = BTreeMap<u16, (Standing, u64)>;

/// Who has asked: a node in a life, one of its tasks, and the number of the question.
#[derive(Clone, Copy, Debug)]
struct Asker {
    node: u16,
    life: u64,
    task: u64,
    number: u64,
}

#[derive(Debug)]
enum Message {
    Question { from: Asker, to: u16, life: u64, question: Question },
    Reply { to: Asker, reply: Reply },
}

/// A change that is being decided, or what the members know being learned.
struct Task {
    number: u64,
    /// `None`: it only learns.
    change: Option<u64>,
    decider: Decider,
    /// The questions that are not answered, and their epoch.
    open: BTreeMap<u64, Epoch>,
    /// The last attempt has failed.
    rests: bool,
}

struct Node {
    id: u16,
    up: bool,
    life: u64,
    /// The newest configuration that it knows; it acts in it.
    epoch: Option<u64>,
    disk: LuState,
    state: LuState,
    member: Member,
    offers: VecDeque<(Asker, Offer)>,
    taking: Option<(Asker, Work)>,
    tasks: Vec<Task>,
    /// The greatest number that it has given to a change.
    numbered: u64,
}

struct World {
    rng: Rng,
    nodes: Vec<Node>,
    /// By epoch; there is none with number 0.
    configs: Vec<Config>,
    messages: Vec<Message>,
    answered: BTreeSet<u64>,
    last_change: u64,
    last_task: u64,
}

/// Something that may happen next.
#[derive(Clone, Copy, Debug)]
enum Step {
    Deliver(usize),
    Lose(usize),
    Work(usize),
    Follow(usize),
    TryAgain(usize),
    GiveUpWaiting(usize),
    Change(usize),
    Abandon(usize),
    Crash(usize),
    Start(usize),
    MembershipPolicy(usize),
}

impl Node {
    fn new(id: u16) -> Node {
        Node {
            id,
            up: true,
            life: 1,
            epoch: None,
            disk: LuState::default(),
            state: LuState::default(),
            member: Member::new(Slot::new(id as usize - 1).unwrap()),
            offers: VecDeque::new(),
            taking: None,
            tasks: Vec::new(),
            numbered: 0,
        }
    }

    /// The same machine's next life.
    fn restarted(&self) -> Node {
        let (life, state) = (self.life + 1, self.disk.clone());
        Node { life, disk: state.clone(), state, ..Node::new(self.id) }
    }
}

impl World {
    fn new(seed: u64) -> World {
        let nodes = [1, 2, 3].map(|id| {
            let mut node = Node { epoch: Some(1), ..Node::new(id) };
            node.member.handle_open(true);
            node
        });
        let all = nodes.iter().map(|node| (node.id, (Standing::InSync, 1))).collect();
        World {
            rng: Rng::new(seed),
            nodes: nodes.into(),
            configs: vec![Config::new(), all],
            messages: Vec::new(),
            answered: BTreeSet::new(),
            last_change: 0,
            last_task: 0,
        }
    }

    fn newest(&self) -> u64 {
        self.configs.len() as u64 - 1
    }

    /// The standing of this life of the node in the configuration that it acts in.
    fn standing(&self, at: usize) -> Standing {
        let node = &self.nodes[at];
        let config = node.epoch.filter(|_| node.up).map(|epoch| &self.configs[epoch as usize]);
        match config.and_then(|config| config.get(&node.id)) {
            Some((standing, life)) if *life == node.life => *standing,
            _ => Standing::Outside,
        }
    }

    fn acts_in(&self, at: usize) -> Option<Epoch> {
        (self.standing(at) != Standing::Outside).then_some(Epoch(self.nodes[at].epoch?))
    }

    fn members(&self, at: usize) -> Option<Members> {
        let epoch = self.acts_in(at)?;
        let config = &self.configs[epoch.0 as usize];
        let those = |is: fn(Standing) -> bool| {
            let those = config.iter().filter(|(_, (standing, _))| is(*standing));
            those.map(|(id, _)| NodeId(*id)).collect::<Vec<_>>()
        };
        let nodes = those(|standing| standing != Standing::Outside);
        Some(Members { epoch, nodes, in_sync: those(|standing| standing == Standing::InSync) })
    }

    fn here(&self, at: usize) -> Here {
        Here { epoch: self.acts_in(at), state: self.nodes[at].state.clone(), stored: true }
    }

    fn begin_task(&mut self, at: usize, change: Option<u64>) {
        self.last_task += 1;
        let me = NodeId(self.nodes[at].id);
        let decider = match change {
            Some(_) => Decider::new(me, Instant(0), self.nodes[at].numbered),
            None => Decider::to_learn(me),
        };
        let task = Task { number: self.last_task, change, decider, open: BTreeMap::new(), rests: true };
        self.nodes[at].tasks.push(task);
        self.try_again(at, self.last_task);
    }

    fn try_again(&mut self, at: usize, number: u64) {
        let members = self.members(at);
        let Some(task) = self.nodes[at].tasks.iter_mut().find(|task| task.number == number) else { return };
        (task.rests, task.open) = (false, BTreeMap::new());
        task.decider.begin(Instant(0), members);
        self.advance(at, number);
    }

    /// Does what the decider of a task wants.
    fn advance(&mut self, at: usize, number: u64) {
        let lives: BTreeMap<u16, u64> = self.nodes.iter().map(|node| (node.id, node.life)).collect();
        let node = &mut self.nodes[at];
        let Some(index) = node.tasks.iter().position(|task| task.number == number) else { return };
        let task = &mut node.tasks[index];
        loop {
            match task.decider.poll() {
                None => return,
                Some(Next::Ask(queries)) => {
                    for Query { number, to, question } in queries {
                        task.open.insert(number, question.epoch());
                        let from = Asker { node: node.id, life: node.life, task: task.number, number };
                        let life = lives[&to.0];
                        self.messages.push(Message::Question { from, to: to.0, life, question });
                    }
                }
                Some(Next::Decide) => {
                    let change = task.change.expect("a task that learns decides nothing");
                    let mut changes = changes_of(&node.state);
                    changes.insert(change);
                    let decision = Decision {
                        state: Some(state_of(&changes)),
                        durable: true,
                        flush: false,
                        abort: Abort::NONE,
                        notices: Vec::new(),
                        outcome: Outcome::good_out(change),
                    };
                    task.decider.handle_decision(Instant(0), node.member.installed(), decision);
                    node.numbered = task.decider.numbered();
                }
                Some(Next::TryAgain) => task.rests = true,
                Some(Next::Done(outcome)) => {
                    self.answered.insert(outcome.transfer);
                    node.tasks.remove(index);
                    return;
                }
                Some(Next::Settled) => {
                    node.tasks.remove(index);
                    return;
                }
                Some(Next::Abandoned) => panic!("no time passes"),
            }
        }
    }

    fn reply(&mut self, to: Asker, reply: Reply) {
        self.messages.push(Message::Reply { to, reply });
    }

    fn deliver(&mut self, message: Message) {
        match message {
            Message::Question { from, to, life, question } => {
                let at = to as usize - 1;
                if !self.nodes[at].up || self.nodes[at].life != life {
                    return;
                }
                match question {
                    Question::Tell(epoch) => {
                        let told = self.nodes[at].member.tell(&self.here(at), epoch);
                        self.reply(
                            from,
                            told.map_or(Reply::Nothing, |told| Reply::MemberReport(Box::new(told))),
                        );
                    }
                    Question::Take(offer) => {
                        self.nodes[at].offers.push_back((from, *offer));
                        self.take_next(at);
                    }
                }
            }
            Message::Reply { to, reply } => {
                let at = to.node as usize - 1;
                let node = &mut self.nodes[at];
                if !node.up || node.life != to.life {
                    return;
                }
                let task = node.tasks.iter_mut().find(|task| task.number == to.task);
                if let Some(task) = task {
                    task.open.remove(&to.number);
                    task.decider.handle_reply(to.number, reply);
                    self.advance(at, to.task);
                }
            }
        }
    }

    /// Hands the member its next offer, if it has none.
    fn take_next(&mut self, at: usize) {
        while self.nodes[at].taking.is_none()
            && let Some((asker, offer)) = self.nodes[at].offers.pop_front()
        {
            let here = self.here(at);
            self.nodes[at].member.handle_offer(&here, offer);
            self.next_work(at, asker);
        }
    }

    /// Begins what the member wants; the end of that is a step of its own.
    fn next_work(&mut self, at: usize, asker: Asker) {
        let node = &mut self.nodes[at];
        match node.member.poll().expect("the last piece of work was reported as done") {
            Work::Answer(taken) => {
                node.taking = None;
                self.reply(asker, Reply::Taken(taken));
            }
            work => {
                if let Work::Install(news) = &work {
                    node.state = news.state.clone();
                }
                node.taking = Some((asker, work));
            }
        }
    }

    fn end_work(&mut self, at: usize) {
        let epoch = self.acts_in(at);
        let node = &mut self.nodes[at];
        let Some((asker, work)) = node.taking.take() else { return };
        match work {
            Work::Store(durable) => {
                node.disk = LuState::from_durable(&durable).unwrap();
                node.member.handle_stored(Stored::Done);
            }
            _ => node.member.handle_done(epoch),
        }
        self.next_work(at, asker);
        self.take_next(at);
    }

    fn follow(&mut self, at: usize) {
        let newest = self.newest();
        let node = &mut self.nodes[at];
        node.epoch = Some(node.epoch.map_or(newest, |epoch| epoch + 1));
        let acts = self.acts_in(at);
        self.nodes[at].member.handle_membership(acts.is_some());
        // Answers are waited for as long as the epoch lasts.
        self.give_up_waiting(at, |epoch| Some(epoch) != acts);
    }

    fn give_up_waiting(&mut self, at: usize, is_over: impl Fn(Epoch) -> bool) {
        let mut open = Vec::new();
        for task in &self.nodes[at].tasks {
            let over = task.open.iter().filter(|(_, epoch)| is_over(**epoch));
            open.extend(over.map(|(number, _)| (task.number, *number)));
        }
        for (task, number) in open {
            let node = &self.nodes[at];
            let to = Asker { node: node.id, life: node.life, task, number };
            self.deliver(Message::Reply { to, reply: Reply::Nothing });
        }
    }

    /// Changes the configuration as a copy in sync, or the last one that is back, would.
    fn membership_policy(&mut self, at: usize, calm: bool) {
        let (newest, node) = (self.newest(), &self.nodes[at]);
        if !node.up || node.epoch != Some(newest) {
            return;
        }
        let (id, life) = (node.id, node.life);
        let mut config = self.configs[newest as usize].clone();
        let is_alive = |id: &u16, life: u64| {
            let node = &self.nodes[*id as usize - 1];
            node.up && node.life == life
        };
        if self.standing(at) != Standing::InSync {
            let mut in_sync = config.iter().filter(|(_, (standing, _))| *standing == Standing::InSync);
            let all_lost = in_sync.clone().all(|(other, (_, life))| !is_alive(other, *life));
            if in_sync.any(|(other, _)| *other == id) && all_lost {
                config.values_mut().for_each(|copy| copy.0 = Standing::Outside);
                config.insert(id, (Standing::InSync, life));
                self.configs.push(config);
            }
            return;
        }
        let acting = |id: &u16| self.nodes[*id as usize - 1].epoch == Some(newest);
        let all_act = config.iter().all(|(id, (standing, _))| *standing != Standing::InSync || acting(id));
        let joins = config.values().any(|(standing, _)| *standing == Standing::Joining);
        let mut next = None;
        for other in (1..=3).filter(|other| *other != id) {
            let there = &self.nodes[other as usize - 1];
            let (standing, member) = config[&other];
            let changed = match standing {
                Standing::InSync | Standing::Joining if !is_alive(&other, member) => Standing::Outside,
                Standing::InSync | Standing::Joining if !calm && self.rng.one_in(50) => Standing::Outside,
                Standing::Joining if all_act && acting(&other) && there.member.is_known() => Standing::InSync,
                Standing::Outside if there.up && acting(&other) && !joins => Standing::Joining,
                _ => continue,
            };
            next = Some((other, (changed, there.life)));
            break;
        }
        if let Some((other, copy)) = next {
            config.insert(other, copy);
            self.configs.push(config);
        }
    }

    fn possible(&mut self, calm: bool) -> Vec<Step> {
        let mut steps: Vec<Step> = (0..self.messages.len()).map(Step::Deliver).collect();
        if !calm && !steps.is_empty() && self.rng.one_in(33) {
            return vec![Step::Lose(self.rng.below(steps.len() as u64) as usize)];
        }
        for at in 0..self.nodes.len() {
            let node = &self.nodes[at];
            if !node.up {
                steps.push(Step::Start(at));
                continue;
            }
            steps.push(Step::MembershipPolicy(at));
            if node.taking.is_some() {
                steps.extend([Step::Work(at); 2]);
            }
            if node.epoch != Some(self.newest()) {
                steps.extend([Step::Follow(at); 2]);
            }
            if node.tasks.iter().any(|task| task.rests) {
                steps.push(Step::TryAgain(at));
            }
            if calm {
                if self.messages.is_empty() {
                    steps.push(Step::GiveUpWaiting(at));
                }
                continue;
            }
            let serves = self.standing(at) == Standing::InSync && node.member.is_known();
            if serves && node.tasks.is_empty() {
                steps.push(Step::Change(at));
            }
            if node.tasks.iter().any(|task| task.rests && task.change.is_some()) && self.rng.one_in(10) {
                steps.push(Step::Abandon(at));
            }
            if self.rng.one_in(50) {
                steps.push(Step::Crash(at));
            }
            if self.rng.one_in(10) {
                steps.push(Step::GiveUpWaiting(at));
            }
        }
        steps
    }

    fn step(&mut self, calm: bool) {
        let steps = self.possible(calm);
        match steps[self.rng.below(steps.len() as u64) as usize] {
            Step::Deliver(index) => {
                let message = self.messages.remove(index);
                self.deliver(message);
            }
            Step::Lose(index) => drop(self.messages.remove(index)),
            Step::Work(at) => self.end_work(at),
            Step::Follow(at) => self.follow(at),
            Step::TryAgain(at) => {
                let resting = self.nodes[at].tasks.iter().filter(|task| task.rests);
                let resting: Vec<u64> = resting.map(|task| task.number).collect();
                resting.into_iter().for_each(|number| self.try_again(at, number));
            }
            Step::GiveUpWaiting(at) => self.give_up_waiting(at, |_| true),
            Step::Change(at) => {
                self.last_change += 1;
                self.begin_task(at, Some(self.last_change));
            }
            Step::Abandon(at) => {
                self.nodes[at].tasks.retain(|task| !task.rests || task.change.is_none());
            }
            Step::Crash(at) => self.nodes[at].up = false,
            Step::Start(at) => self.nodes[at] = self.nodes[at].restarted(),
            Step::MembershipPolicy(at) => self.membership_policy(at, calm),
        }
        for at in 0..self.nodes.len() {
            let node = &self.nodes[at];
            let learns = node.tasks.iter().any(|task| task.change.is_none());
            if self.acts_in(at).is_some() && !node.member.is_known() && !learns {
                self.begin_task(at, None);
            }
        }
    }

    /// No node that may serve hosts lacks a change that was answered.
    fn check(&self) {
        for at in 0..self.nodes.len() {
            let node = &self.nodes[at];
            let serves = self.standing(at) == Standing::InSync && node.epoch == Some(self.newest());
            if serves && node.member.is_known() && node.member.installed().is_some() {
                let has = changes_of(&node.state);
                let lost: Vec<u64> = self.answered.difference(&has).copied().collect();
                assert!(lost.is_empty(), "node {} in epoch {}: {lost:?}", node.id, self.newest());
            }
        }
    }

    fn is_settled(&self) -> bool {
        let rests = |at: usize| {
            let node = &self.nodes[at];
            let serves = self.standing(at) == Standing::InSync && node.epoch == Some(self.newest());
            serves && node.member.is_known() && node.taking.is_none() && node.tasks.is_empty()
        };
        self.messages.is_empty() && (0..self.nodes.len()).all(rests)
    }
}

/// Runs the world of a seed; returns how many changes were answered.
fn run(seed: u64) -> usize {
    let mut world = World::new(seed);
    for _ in 0..FAULTY_STEPS {
        world.step(false);
        world.check();
    }
    for _ in 0..CALM_STEPS {
        if world.is_settled() {
            assert!(world.nodes.iter().all(|node| node.disk == node.state), "seed {seed}");
            return world.answered.len();
        }
        world.step(true);
        world.check();
    }
    panic!("seed {seed}: the nodes do not come to an end");
}

#[test]
fn no_answered_change_is_lost_whatever_happens() {
    let answered: usize = (0..100).map(run).sum();
    assert!(answered > 100, "something happens: {answered}");
}

/// Within a few seeds; one that takes an older change shows only in hundreds, and has a test of its own.
#[test]
fn a_first_member_that_takes_what_it_did_not_expect_is_noticed() {
    make(Some(Canary::InstallUnexpected));
    let noticed = (0..50).any(|seed| std::panic::catch_unwind(|| run(seed)).is_err());
    make(None);
    assert!(noticed);
}
