//! What may happen next, and a run until all is well.

use std::collections::BTreeSet;

use super::{AT_ONCE, CALM_STEPS, Command, CopyId, END, HostWrite, Link, Look, NODES, Phase, World};

/// Something that may happen next.
#[derive(Clone, Copy, Debug)]
enum Step {
    Deliver(usize, usize),
    Break(usize, usize),
    Connect(usize, usize),
    Come(usize, u64),
    Settled(usize, u64),
    Follow(usize),
    MembershipPolicy(usize),
    Lock(usize),
    Advance(usize, usize),
    /// A command gives up, or answers that its outcome is unknown.
    Abandon(usize, usize),
    Write(usize),
    AdvanceWrite(usize, usize),
    AbandonWrite(usize, usize),
    Spread(usize, usize),
    Finish(usize),
    Crash(usize),
    Start(usize),
    Close(usize),
    Open(usize),
    Detach(usize),
    Attach(usize),
}

impl World {
    fn possible(&mut self, calm: bool) -> Vec<Step> {
        let mut steps = Vec::new();
        let pairs = (0..NODES).flat_map(|from| (0..NODES).map(move |to| (from, to)));
        for (from, to) in pairs.filter(|(from, to)| from != to) {
            let link = &self.links[&(from, to)];
            if !link.messages.is_empty() && self.links[&(to, from)].up {
                steps.extend([Step::Deliver(from, to); 3]);
            }
            if !link.up && self.nodes[from].up && self.nodes[to].up {
                steps.push(Step::Connect(from, to));
            }
            if !calm && link.up && self.rng.one_in(100) {
                steps.push(Step::Break(from, to));
            }
        }
        for index in 0..self.writes.len() {
            if self.may_finish(index) {
                steps.push(Step::Finish(index));
            }
            let to = (0..NODES).filter(|to| self.may_spread(index, *to));
            steps.extend(to.map(|to| Step::Spread(index, to)));
        }
        for at in 0..NODES {
            let node = &self.nodes[at];
            if !node.up {
                steps.push(Step::Start(at));
                continue;
            }
            if self.may_open(at) {
                steps.push(Step::Open(at));
            }
            if !node.open {
                continue;
            }
            if node.at != Some(self.newest()) {
                steps.push(Step::Follow(at));
            }
            if calm || self.rng.one_in(8) {
                steps.push(Step::MembershipPolicy(at));
            }
            if node.detached {
                steps.push(Step::Attach(at));
            }
            let come = node.queued.iter().filter(|claim| node.claims[*claim].has_come());
            steps.extend(come.map(|claim| Step::Come(at, *claim)));
            let settled = node.settling.iter().filter(|(_, left)| !self.has_one_of(at, left));
            steps.extend(settled.map(|(claim, _)| Step::Settled(at, *claim)));
            let commands = (0..node.commands.len()).filter(|index| self.may_advance(at, *index));
            steps.extend(commands.map(|index| Step::Advance(at, index)));
            let writes = (0..node.hosts.len()).filter(|index| self.may_advance_write(at, *index));
            steps.extend(writes.map(|index| Step::AdvanceWrite(at, index)));
            if calm {
                continue;
            }
            let serves = self.serves(at);
            if serves && node.commands.len() < AT_ONCE {
                steps.push(Step::Lock(at));
            }
            if serves && node.hosts.len() < AT_ONCE {
                steps.push(Step::Write(at));
            }
            for index in (0..node.commands.len()).filter(|_| self.rng.one_in(30)) {
                steps.push(Step::Abandon(at, index));
            }
            for index in (0..node.hosts.len()).filter(|_| self.rng.one_in(30)) {
                steps.push(Step::AbandonWrite(at, index));
            }
            if self.rng.one_in(100) {
                steps.push(Step::Crash(at));
            }
            if self.rng.one_in(60) && self.may_close(at) {
                steps.push(Step::Close(at));
            }
            if self.rng.one_in(100) {
                steps.push(Step::Detach(at));
            }
        }
        steps
    }

    pub(super) fn step(&mut self, calm: bool) {
        let steps = self.possible(calm);
        if steps.is_empty() {
            return;
        }
        match steps[self.rng.below(steps.len() as u64) as usize] {
            Step::Deliver(from, to) => self.deliver(from, to),
            Step::Break(one, other) => self.disconnect(one, other),
            Step::Connect(at, other) => {
                self.links.get_mut(&(at, other)).unwrap().up = true;
                self.handle_link_up(at, other);
            }
            Step::Come(at, claim) => {
                self.nodes[at].queued.remove(&claim);
                self.tell(at, |locks| locks.handle_come(claim));
            }
            Step::Settled(at, claim) => {
                self.nodes[at].settling.remove(&claim);
                self.tell(at, |locks| locks.handle_settled(claim));
            }
            Step::Follow(at) => self.follow(at),
            Step::MembershipPolicy(at) => self.membership_policy(at, calm),
            Step::Lock(at) => {
                let range = self.any_range();
                self.lock(at, range);
            }
            Step::Advance(at, index) => self.advance(at, index),
            Step::Abandon(at, index) => self.abandon(at, index),
            Step::Write(at) => {
                let range = self.any_range();
                let claim = self.nodes[at].order.queue(range.clone());
                self.nodes[at].hosts.push(HostWrite { claim, range, write: None });
            }
            Step::AdvanceWrite(at, index) => self.advance_write(at, index),
            Step::AbandonWrite(at, index) => drop(self.nodes[at].hosts.remove(index)),
            Step::Spread(index, to) => self.spread(index, to),
            Step::Finish(index) => self.finish(index),
            Step::Crash(at) => {
                (0..NODES).filter(|other| *other != at).for_each(|other| self.disconnect(at, other));
                self.lose_copy(at);
                self.nodes[at].up = false;
            }
            Step::Start(at) => self.open(at, self.nodes[at].life + 1),
            Step::Close(at) => self.close(at),
            Step::Open(at) => {
                self.open(at, self.nodes[at].life);
                self.nodes[at].at = Some(self.newest());
                let config = self.configs[self.newest()].clone();
                self.tell(at, |locks| locks.enter(config));
                self.handle_links_up(at);
            }
            Step::Detach(at) => self.nodes[at].detached = true,
            Step::Attach(at) => {
                self.nodes[at].detached = false;
                self.handle_links_up(at);
            }
        }
        self.forget_what_nobody_has();
    }

    pub(super) fn abandon(&mut self, at: usize, index: usize) {
        let Command { number, phase, .. } = self.nodes[at].commands[index];
        let waits = matches!(self.nodes[at].locks.look(number, END), Look::Late | Look::Refused);
        if waits || matches!(phase, Phase::Writes(_)) {
            self.end(at, index);
        }
    }

    fn forget_what_nobody_has(&mut self) {
        let open: BTreeSet<CopyId> =
            self.nodes.iter().filter(|node| node.up && node.open).map(|node| node.copy).collect();
        while let Some(index) = self.writes.iter().position(|write| write.has.is_disjoint(&open)) {
            self.finish(index);
        }
    }

    fn is_well(&self) -> bool {
        let newest = self.newest();
        let is_well = |at: usize| {
            let node = &self.nodes[at];
            self.serves(at) && node.at == Some(newest) && !node.detached && node.is_idle()
        };
        let has_nothing = |link: &Link| link.up && link.messages.is_empty();
        self.writes.is_empty() && self.links.values().all(has_nothing) && (0..NODES).all(is_well)
    }

    pub(super) fn settle(&mut self, seed: u64) {
        for _ in 0..CALM_STEPS {
            if self.is_well() {
                assert!(self.exchanges.is_empty(), "seed {seed}: {:?}", self.exchanges);
                return;
            }
            self.step(true);
        }
        panic!("seed {seed}: the nodes do not come to an end");
    }
}
