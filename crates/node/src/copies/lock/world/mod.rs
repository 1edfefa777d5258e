//! Random runs of three nodes whose hosts exchange and write the same blocks. Links break, nodes crash and
//! return, copies leave and join, are closed and opened again, detached and attached; each node learns of the
//! next epoch at its own time.
//!
//! Of a write, the world knows only which copies have it. It is done when all members of an epoch do, and it
//! has left no trace when no copy has it any more. Writes of one epoch may get any place in the order, and
//! those of a later one come after them. So what is checked is this: from the moment at which an exchange has
//! its range until its write is done, no other write begins there in the same epoch; and when it compares, no
//! member knows of a write that is not done. At the end, when nothing fails any more, no range is locked, and
//! each node can lock all of them.

mod steps;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::rc::Rc;

use base::{Instant, Rng};
use replica::{Config, Epoch, Incarnation, NodeId, Revision, Slot, Standing};

use super::{Here, LockMessage, Locks, Look, Work};
use crate::canary::{Canary, make};
use crate::data::{Exclusive, Order};

const NODES: usize = 3;
const BLOCK: u64 = 512;
const BLOCKS: u64 = 4;
/// For how many steps there are faults, and how many more it may take until all is well.
const FAULTY_STEPS: u64 = 800;
const CALM_STEPS: u64 = 20_000;
/// The most operations of a node's hosts at once, of each kind.
const AT_ONCE: usize = 2;
/// When commands give up, and a moment before.
const END: Instant = Instant(2);
const BEFORE_THE_END: Instant = Instant(1);

/// A copy that is open, or was: a node that restarts has another one, and so has one whose pool is reopened.
type CopyId = u64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// It locks its range.
    Locks,
    /// All members have given it.
    Holds,
    /// It has compared.
    Compared,
    /// Its write with this number is under way.
    Writes(u64),
}

/// A command that exchanges blocks.
#[derive(Clone, Debug)]
struct Command {
    number: u64,
    range: Range<u64>,
    epoch: Epoch,
    phase: Phase,
}

/// A host's plain write.
struct HostWrite {
    claim: Exclusive,
    range: Range<u64>,
    /// The number of the write; `None`: it has not begun.
    write: Option<u64>,
}

/// A write that is not done.
#[derive(Debug)]
struct Write {
    number: u64,
    by: CopyId,
    epoch: Epoch,
    range: Range<u64>,
    has: BTreeSet<CopyId>,
}

/// An exchange that has its range, until its write is done.
#[derive(Debug)]
struct Exchange {
    copy: CopyId,
    number: u64,
    epoch: Epoch,
    range: Range<u64>,
    write: Option<u64>,
}

/// One direction of a link.
#[derive(Default)]
struct Link {
    /// The sender's side is up.
    up: bool,
    messages: VecDeque<LockMessage>,
}

struct Node {
    up: bool,
    life: u64,
    /// The copy, and whether it is open.
    copy: CopyId,
    open: bool,
    detached: bool,
    /// The index of the configuration that it acts in.
    at: Option<usize>,
    locks: Locks,
    order: Rc<Order>,
    claims: BTreeMap<u64, Exclusive>,
    /// Those that wait for older operations.
    queued: BTreeSet<u64>,
    /// Those that wait until their range is settled, with the numbers of the writes that were not done there.
    settling: BTreeMap<u64, BTreeSet<u64>>,
    commands: Vec<Command>,
    hosts: Vec<HostWrite>,
}

struct World {
    rng: Rng,
    nodes: Vec<Node>,
    configs: Vec<Config>,
    /// By sender and receiver.
    links: BTreeMap<(usize, usize), Link>,
    writes: Vec<Write>,
    exchanges: Vec<Exchange>,
    last_copy: CopyId,
    last_write: u64,
    /// How many exchanges were done.
    exchanged: usize,
    /// Nothing may be refused any more.
    well: bool,
}

fn slot(at: usize) -> Slot {
    Slot::new(at).unwrap()
}

fn node_id(at: usize) -> NodeId {
    NodeId(at as u16 + 1)
}

fn overlap(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start < other.end && other.start < one.end
}

impl Write {
    /// Whether it is one that the copy has to finish in the range.
    fn is_left_to(&self, copy: CopyId, range: &Range<u64>) -> bool {
        self.has.contains(&copy) && overlap(&self.range, range)
    }
}

impl Node {
    fn new(at: usize, life: u64, copy: CopyId) -> Node {
        Node {
            up: true,
            life,
            copy,
            open: true,
            detached: false,
            at: None,
            // Numbers of claims are never used again.
            locks: Locks::new(slot(at), copy << 32),
            order: Rc::default(),
            claims: BTreeMap::new(),
            queued: BTreeSet::new(),
            settling: BTreeMap::new(),
            commands: Vec::new(),
            hosts: Vec::new(),
        }
    }

    fn is_idle(&self) -> bool {
        self.commands.is_empty() && self.hosts.is_empty() && self.claims.is_empty() && self.locks.is_idle()
    }
}

impl World {
    fn new(seed: u64) -> World {
        let lives: Vec<_> = (0..NODES).map(|at| (node_id(at), Incarnation(1))).collect();
        let mut world = World {
            rng: Rng::new(seed),
            nodes: (0..NODES).map(|at| Node::new(at, 1, at as u64 + 1)).collect(),
            configs: vec![Config::initial(&lives, Revision(1))],
            links: BTreeMap::new(),
            writes: Vec::new(),
            exchanges: Vec::new(),
            last_copy: NODES as u64,
            last_write: 0,
            exchanged: 0,
            well: false,
        };
        for from in 0..NODES {
            for to in (0..NODES).filter(|to| *to != from) {
                world.links.insert((from, to), Link::default());
            }
            world.follow(from);
        }
        world
    }

    fn newest(&self) -> usize {
        self.configs.len() - 1
    }

    fn config(&self, at: usize) -> Option<&Config> {
        self.nodes[at].at.map(|index| &self.configs[index])
    }

    /// Whether the copy of the node may act at all.
    fn works(&self, at: usize) -> bool {
        self.nodes[at].up && self.nodes[at].open && self.nodes[at].at.is_some()
    }

    fn standing(&self, at: usize) -> Standing {
        let config = self.config(at).filter(|_| self.works(at));
        let life = Incarnation(self.nodes[at].life);
        config.map_or(Standing::Outside, |config| config.standing(slot(at), life))
    }

    fn serves(&self, at: usize) -> bool {
        matches!(self.standing(at), Standing::InSync(_))
    }

    /// Whether the node acts in this configuration, of which it is a member.
    fn acts_in(&self, at: usize, index: usize) -> bool {
        self.nodes[at].at == Some(index) && self.standing(at) != Standing::Outside
    }

    fn owner_of(&self, copy: CopyId) -> Option<usize> {
        (0..NODES).find(|at| self.nodes[*at].copy == copy && self.works(*at))
    }

    /// Whether the copy has nothing to finish in the range.
    fn is_settled(&self, at: usize, range: &Range<u64>) -> bool {
        let copy = self.nodes[at].copy;
        !self.writes.iter().any(|write| write.is_left_to(copy, range))
    }

    /// Whether the copy still has one of these writes to finish.
    fn has_one_of(&self, at: usize, writes: &BTreeSet<u64>) -> bool {
        let copy = self.nodes[at].copy;
        self.writes.iter().any(|write| writes.contains(&write.number) && write.has.contains(&copy))
    }

    fn any_range(&mut self) -> Range<u64> {
        let start = self.rng.below(BLOCKS);
        let end = start + 1 + self.rng.below(BLOCKS - start);
        start * BLOCK..end * BLOCK
    }

    fn tell<T>(&mut self, at: usize, what: impl FnOnce(&mut Locks) -> T) -> T {
        let told = what(&mut self.nodes[at].locks);
        while let Some(work) = self.nodes[at].locks.poll() {
            let node = &mut self.nodes[at];
            match work {
                Work::Say(to, message) => {
                    let link = self.links.get_mut(&(at, to.0 as usize - 1)).unwrap();
                    if link.up {
                        link.messages.push_back(message);
                    }
                }
                Work::Queue(claim, range) => {
                    let place = node.order.queue(range);
                    if place.has_come() {
                        node.locks.handle_come(claim);
                    } else {
                        node.queued.insert(claim);
                    }
                    node.claims.insert(claim, place);
                }
                Work::Settle { claim, range, .. } => {
                    let left = self.writes.iter().filter(|write| write.is_left_to(node.copy, &range));
                    let left = left.map(|write| write.number).collect();
                    node.settling.insert(claim, left);
                }
                Work::Leave(claim) => {
                    node.queued.remove(&claim);
                    node.settling.remove(&claim);
                    node.claims.remove(&claim);
                }
            }
        }
        told
    }

    fn deliver(&mut self, from: usize, to: usize) {
        let Some(message) = self.links.get_mut(&(from, to)).unwrap().messages.pop_front() else { return };
        if self.works(to) {
            let life = Incarnation(self.nodes[from].life);
            let here = Here { len: BLOCKS * BLOCK, block_bytes: BLOCK, detached: self.nodes[to].detached };
            self.tell(to, |locks| locks.handle_message(node_id(from), life, here, message));
        }
    }

    fn disconnect(&mut self, one: usize, other: usize) {
        for direction in [(one, other), (other, one)] {
            self.links.insert(direction, Link::default());
        }
    }

    fn handle_link_up(&mut self, at: usize, other: usize) {
        if self.works(at) && !self.nodes[at].detached {
            self.tell(at, |locks| locks.handle_link_up(node_id(other)));
        }
    }

    fn handle_links_up(&mut self, at: usize) {
        for other in (0..NODES).filter(|other| *other != at) {
            if self.links[&(at, other)].up {
                self.handle_link_up(at, other);
            }
        }
    }

    /// The node acts in a later configuration, which need not be the next one.
    fn follow(&mut self, at: usize) {
        let newest = self.newest();
        let before = self.nodes[at].at;
        let next = match before {
            // It may act in an old one first.
            None if self.rng.one_in(4) => newest.saturating_sub(1),
            Some(before) if !self.rng.one_in(4) => before + 1,
            _ => newest,
        };
        self.nodes[at].at = Some(next);
        let config = self.configs[next].clone();
        self.tell(at, |locks| locks.enter(config));
        let (copy, life) = (self.nodes[at].copy, Incarnation(self.nodes[at].life));
        let since = before.map_or(next, |before| before + 1);
        let mut passed = self.configs[since..=next].iter();
        if passed.any(|config| !config.has_member(slot(at), life)) {
            for write in &mut self.writes {
                write.has.remove(&copy);
            }
        }
        if before.is_none() {
            self.handle_links_up(at);
        }
    }

    /// The copy is gone, and with it all that its commands were about to do.
    fn lose_copy(&mut self, at: usize) {
        let Node { life, copy, .. } = self.nodes[at];
        self.nodes[at] = Node { open: false, ..Node::new(at, life, copy) };
        self.exchanges.retain(|exchange| exchange.copy != copy || exchange.write.is_some());
    }

    fn close(&mut self, at: usize) {
        self.tell(at, Locks::leave);
        for number in self.nodes[at].commands.iter().map(|command| command.number).collect::<Vec<_>>() {
            self.tell(at, |locks| locks.end(number));
        }
        self.nodes[at].hosts.clear();
        assert!(self.nodes[at].claims.is_empty(), "a copy that leaves keeps a range locked");
        self.lose_copy(at);
    }

    /// The next copy of the node.
    fn open(&mut self, at: usize, life: u64) {
        self.last_copy += 1;
        self.nodes[at] = Node::new(at, life, self.last_copy);
    }

    /// Whether a copy that was closed in this life may be opened again: it is outside.
    fn may_open(&self, at: usize) -> bool {
        let node = &self.nodes[at];
        let newest = &self.configs[self.newest()];
        node.up && !node.open && !newest.has_member(slot(at), Incarnation(node.life))
    }

    /// Whether another copy is in sync, and acts in the newest configuration.
    fn may_close(&self, at: usize) -> bool {
        let is_well = |other: usize| self.serves(other) && self.nodes[other].at == Some(self.newest());
        self.works(at) && (0..NODES).any(|other| other != at && is_well(other))
    }

    /// Changes the configuration as a copy in sync, or the last one that is back, would.
    fn membership_policy(&mut self, at: usize, calm: bool) {
        let newest = self.newest();
        let config = self.configs[newest].clone();
        let me = Incarnation(self.nodes[at].life);
        let suspect = self.rng.below(NODES as u64) as usize;
        let suspect = (!calm && self.rng.one_in(6)).then_some(suspect);
        let acts = |other: usize| self.works(other) && self.nodes[other].at == Some(newest);
        let is_alive = |other: usize| {
            let life = Incarnation(self.nodes[other].life);
            self.nodes[other].up && self.nodes[other].open && config.has_member(slot(other), life)
        };
        if !acts(at) {
            return;
        }
        if !self.serves(at) {
            let in_sync = config.in_sync();
            if in_sync.contains(slot(at)) && !in_sync.iter().any(|slot| is_alive(slot.index())) {
                self.configs.push(config.recover(slot(at), me).unwrap());
            }
            return;
        }
        let all_act = config.in_sync().iter().all(|slot| acts(slot.index()));
        for other in (0..NODES).filter(|other| *other != at) {
            let place = slot(other);
            let life = Incarnation(self.nodes[other].life);
            let joins = config.joining().contains(place);
            let changed = if config.members().contains(place) {
                if !is_alive(other) || suspect == Some(other) {
                    config.remove(place)
                } else if joins && all_act && acts(other) {
                    config.promote(place)
                } else {
                    continue;
                }
            } else if acts(other) && config.joining().is_empty() {
                config.admit(place, life)
            } else {
                continue;
            };
            if let Ok(changed) = changed {
                return self.configs.push(changed);
            }
        }
    }

    /// A write begins at the node.
    fn begin_write(&mut self, at: usize, range: Range<u64>, of: Option<u64>) -> u64 {
        let (copy, life) = (self.nodes[at].copy, Incarnation(self.nodes[at].life));
        let epoch = self.config(at).unwrap().epoch;
        for exchange in self.exchanges.iter().filter(|exchange| exchange.epoch >= epoch) {
            let is_own = exchange.copy == copy && of == Some(exchange.number);
            let mut configs = self.configs.iter().filter(|config| config.epoch == exchange.epoch);
            let concerned = configs.any(|config| config.has_member(slot(at), life));
            assert!(
                is_own || !concerned || !overlap(&exchange.range, &range),
                "node {} begins a write of {range:?} in {epoch:?} beside {exchange:?}",
                at + 1
            );
        }
        self.last_write += 1;
        let has = BTreeSet::from([copy]);
        self.writes.push(Write { number: self.last_write, by: copy, epoch, range, has });
        self.last_write
    }

    fn is_under_way(&self, write: u64) -> bool {
        self.writes.iter().any(|other| other.number == write)
    }

    fn lock(&mut self, at: usize, range: Range<u64>) {
        let epoch = self.config(at).unwrap().epoch;
        let number = self.tell(at, |locks| locks.begin(range.clone(), END)).unwrap();
        self.nodes[at].commands.push(Command { number, range, epoch, phase: Phase::Locks });
    }

    fn serves_in(&self, at: usize, epoch: Epoch) -> bool {
        self.serves(at) && self.config(at).is_some_and(|config| config.epoch == epoch)
    }

    /// Whether the command has something to do.
    fn may_advance(&self, at: usize, index: usize) -> bool {
        let Command { number, range, epoch, phase } = &self.nodes[at].commands[index];
        match phase {
            Phase::Locks => !matches!(self.nodes[at].locks.look(*number, BEFORE_THE_END), Look::Waits(_)),
            // Blocks with a write under way are not readable.
            Phase::Holds => !self.serves_in(at, *epoch) || self.is_settled(at, range),
            Phase::Compared => true,
            Phase::Writes(write) => !self.is_under_way(*write),
        }
    }

    /// The command's next step.
    fn advance(&mut self, at: usize, index: usize) {
        let Command { number, range, epoch, phase } = self.nodes[at].commands[index].clone();
        let copy = self.nodes[at].copy;
        let in_epoch = self.serves_in(at, epoch);
        let next = match phase {
            Phase::Locks => match self.nodes[at].locks.look(number, BEFORE_THE_END) {
                Look::Waits(_) => return,
                Look::Holds => {
                    self.exchanges.push(Exchange { copy, number, epoch, range, write: None });
                    Some(Phase::Holds)
                }
                Look::Refused | Look::Late => {
                    assert!(!self.well, "a range is refused although nothing fails");
                    None
                }
            },
            Phase::Holds if in_epoch => {
                self.check_settled(at, &range);
                Some(Phase::Compared)
            }
            Phase::Compared if !self.rng.one_in(4) && self.serves(at) => {
                if self.nodes[at].locks.holds(&range) {
                    let write = self.begin_write(at, range, Some(number));
                    let mut own = self.exchanges.iter_mut();
                    let own = own.find(|exchange| exchange.copy == copy && exchange.number == number);
                    own.unwrap().write = Some(write);
                    Some(Phase::Writes(write))
                } else {
                    assert!(!in_epoch, "a command has lost its range");
                    None
                }
            }
            Phase::Holds | Phase::Compared => None,
            Phase::Writes(_) => {
                self.exchanged += 1;
                None
            }
        };
        match next {
            Some(phase) => self.nodes[at].commands[index].phase = phase,
            None => self.end(at, index),
        }
    }

    /// When an exchange compares, no member has a write that is not done.
    fn check_settled(&self, at: usize, range: &Range<u64>) {
        let index = self.nodes[at].at.unwrap();
        for other in (0..NODES).filter(|other| self.acts_in(*other, index)) {
            assert!(
                self.is_settled(other, range),
                "node {} compares {range:?} although node {} has a write there: {:?}",
                at + 1,
                other + 1,
                self.writes
            );
        }
    }

    /// The command needs its range no longer. Its write may still be under way.
    fn end(&mut self, at: usize, index: usize) {
        let Command { number, .. } = self.nodes[at].commands.remove(index);
        let copy = self.nodes[at].copy;
        let ends = |exchange: &Exchange| {
            exchange.copy == copy && exchange.number == number && exchange.write.is_none()
        };
        self.exchanges.retain(|exchange| !ends(exchange));
        self.tell(at, |locks| locks.end(number));
    }

    fn may_advance_write(&self, at: usize, index: usize) -> bool {
        let HostWrite { claim, write, .. } = &self.nodes[at].hosts[index];
        write.map_or_else(|| claim.has_come(), |write| !self.is_under_way(write))
    }

    fn advance_write(&mut self, at: usize, index: usize) {
        if self.nodes[at].hosts[index].write.is_none() && self.serves(at) {
            let range = self.nodes[at].hosts[index].range.clone();
            let write = self.begin_write(at, range, None);
            self.nodes[at].hosts[index].write = Some(write);
        } else {
            self.nodes[at].hosts.remove(index);
        }
    }

    /// Another member gets a write, from one that acts in the same epoch.
    fn spread(&mut self, index: usize, to: usize) {
        let copy = self.nodes[to].copy;
        self.writes[index].has.insert(copy);
    }

    fn may_spread(&self, index: usize, to: usize) -> bool {
        let write = &self.writes[index];
        let Some(acts) = self.nodes[to].at.filter(|acts| self.acts_in(to, *acts)) else { return false };
        let gives = |from: usize| self.acts_in(from, acts) && !self.nodes[from].detached;
        !write.has.contains(&self.nodes[to].copy)
            && !self.nodes[to].detached
            && write.has.iter().any(|copy| self.owner_of(*copy).is_some_and(gives))
    }

    /// Whether all members of an epoch have the write, and one that completes it knows that.
    fn may_finish(&self, index: usize) -> bool {
        let write = &self.writes[index];
        let completes = |copy: &CopyId| {
            let Some(at) = self.owner_of(*copy) else { return false };
            let Some(acts) = self.nodes[at].at.filter(|acts| self.acts_in(at, *acts)) else { return false };
            let config = &self.configs[acts];
            // What a lost node has left is completed in a later epoch.
            let may = *copy == write.by || config.epoch > write.epoch;
            let has = |slot: Slot| {
                let other = slot.index();
                self.acts_in(other, acts) && write.has.contains(&self.nodes[other].copy)
            };
            may && config.members().iter().all(has)
        };
        write.has.iter().any(completes)
    }

    fn finish(&mut self, index: usize) {
        let Write { number, .. } = self.writes.remove(index);
        self.exchanges.retain(|exchange| exchange.write != Some(number));
    }
}

/// Runs the world of a seed; returns how many exchanges were done.
fn run(seed: u64) -> usize {
    let mut world = World::new(seed);
    for _ in 0..FAULTY_STEPS {
        world.step(false);
    }
    // What a detached copy was asked meanwhile, nobody asks again: such commands give up.
    for at in 0..NODES {
        for index in (0..world.nodes[at].commands.len()).rev() {
            world.abandon(at, index);
        }
    }
    world.settle(seed);
    world.well = true;
    (0..NODES).for_each(|at| world.lock(at, 0..BLOCKS * BLOCK));
    world.settle(seed);
    world.exchanged
}

#[test]
fn no_write_comes_between_and_no_range_stays_locked_whatever_happens() {
    let exchanged: usize = (0..500).map(run).sum();
    assert!(exchanged > 1500, "something happens: {exchanged}");
}

/// Within a few hundred seeds, most of them.
#[test]
fn rules_that_are_left_out_are_noticed() {
    for canary in [
        Canary::LockHere,
        Canary::GiveUnsettled,
        Canary::ReleaseUnsettled,
        Canary::ReleaseAfterEpoch,
        Canary::HoldsOfAnyLife,
        Canary::HoldsOfAnyEpoch,
    ] {
        make(Some(canary));
        let noticed = (0..5000).any(|seed| std::panic::catch_unwind(|| run(seed)).is_err());
        make(None);
        assert!(noticed, "{canary:?} was not noticed");
    }
}
