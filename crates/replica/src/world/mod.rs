//! Simulates whole copies under faults: a network that delays and breaks, disks that lose writes under way,
//! clocks that drift or stop, processes that die or stall, a record that is unreachable, and hosts that read
//! and write through all of them. Everything comes from a seed.
//!
//! Times are those of a fast network with leases of 60 ms, so that each second has many leases, ticks and
//! faults.

mod bad_blocks;
mod check;
mod clocks;
mod disk;
mod network;
mod record;
mod run;
mod scenarios;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use base::{Instant, Rng};

use crate::canary::Canary;
use crate::lease::{LeaseGrant, LeaseRequest, Leases, Terms};
use crate::{
    Blocks, Command, Config, Confirmation, Confirmed, DiskFailed, Envelope, Geometry, Incarnation,
    Membership, MembershipPolicy, NodeId, Outcome, Output, ReadMark, Reason, Receivers, RegionCompare,
    RegionRead, Replica, Revision, Slot, Standing, Unreadable, View, wire,
};
use disk::{Disk, EMPTY, Ended, LOST};
use rt::sim::linear::{self, Kind, NEVER, Op};

const TERMS: Terms = Terms { length: Duration::from_millis(60), drift_permille: 10 };
const GEOMETRY: Geometry = Geometry { blocks: 48, block_bytes: 8, region_blocks: 6 };
const LEASE_EVERY: Duration = Duration::from_millis(15);
const TICK_EVERY: Duration = Duration::from_millis(10);
const SILENCE_MAX: Duration = Duration::from_millis(45);
/// The maximum time of some reads: nodes are lost and come back meanwhile.
const SLOW_READ: Duration = Duration::from_millis(800);
const SLOW_READ_ONE_IN: u64 = 6;
/// The lowest number of a node that gets a copy later.
const NEWCOMERS: u16 = 100;

/// What a link carries.
enum Packet {
    Slice(Envelope),
    Ask(LeaseRequest),
    Give(LeaseGrant),
    /// Asks the receiver to read these blocks; with the number of the question.
    Fetch(u64, Blocks),
    /// What these blocks hold, if the sender can tell.
    Fetched(u64, Option<Vec<u64>>),
}

/// The packets on their way in one direction, in order.
type Wire = VecDeque<(Instant, Packet)>;

struct Node {
    /// The number of the node; a slot may belong to another node later.
    id: NodeId,
    up: bool,
    incarnation: Incarnation,
    /// By how many thousandths its clock runs faster than true time, and the clock's start.
    drift: i64,
    clock_from: u64,
    /// Set while the node is stalled.
    standstill: Option<clocks::Standstill>,
    /// How long its clock has been stopped.
    clock_stood: Duration,
    /// Whether its reads are confirmed (R24): only such a node's clock stops.
    confirms: bool,
    leases: Leases,
    membership: Membership,
    membership_policy: MembershipPolicy,
    replica: Replica,
    disk: Disk,
    /// How many of the record's configurations it knows; `None`: it has just started, and will begin with the
    /// newest.
    learned: Option<usize>,
    /// A revision that the node knows but does not act by everywhere yet: its cores need a while.
    known: Option<Revision>,
    /// Until then it does not reach the record.
    record_gone_until: Instant,
    region_reads: Vec<RegionReading>,
    region_compares: Vec<(Instant, RegionCompare)>,
    host_reads: Vec<HostRead>,
    fetches: Vec<bad_blocks::Fetch>,
    last_fetch: u64,
    services: Vec<bad_blocks::Service>,
    ask_at: Instant,
    tick_at: Instant,
}

/// A region that is being read for a resync.
struct RegionReading {
    look_at: Instant,
    end_at: Instant,
    read: RegionRead,
    values: Option<Vec<u64>>,
}

/// A host's read whose data is on its way from the disk.
struct HostRead {
    look_at: Instant,
    end_at: Instant,
    blocks: Blocks,
    mark: ReadMark,
    confirmation: Option<Confirmation>,
    values: Option<Vec<u64>>,
    called: u64,
}

struct HostWrite {
    blocks: Blocks,
    value: u64,
    called: u64,
    node: usize,
}

pub struct World {
    rng: Rng,
    /// The speed of resyncs; separate, so that nothing else depends on it.
    sync_rng: Rng,
    now: Instant,
    /// The cluster's record of this volume.
    record: Vec<Config>,
    /// How many of its configurations there were one step ago.
    seen: usize,
    /// In how many blocks most hosts' accesses are, and the maximum times of messages and the disk.
    hot: u64,
    network: Duration,
    disk: Duration,
    nodes: Vec<Node>,
    /// By sender and receiver; `None`: broken.
    links: BTreeMap<(usize, usize), Option<Wire>>,
    /// Watchers' messages on their way: when each arrives, at which node, from which slot, and whose life is
    /// over.
    death_notices: Vec<(Instant, usize, usize, NodeId, Incarnation)>,
    /// Separate, so that what watchers do does not change the rest of a seed.
    watchers: Rng,
    /// Likewise for what happens to clocks.
    clocks: Rng,
    writes: BTreeMap<Command, HostWrite>,
    last_value: u64,
    history: Vec<Vec<Op>>,
    /// The moments of the history, all different.
    moment: u64,
    /// How often each event happened: a fault that never happened proves nothing.
    pub counts: BTreeMap<&'static str, u64>,
    canary: Option<Canary>,
    /// Whether nodes propose changes themselves.
    membership_policies: bool,
    /// Whether nothing is slow any more.
    calm: bool,
    /// How many other nodes have got a copy.
    newcomers: u16,
    /// Whether some reads take as long as a node is lost.
    slow_reads: bool,
    /// Whether to print all events: `URSA_TRACE`.
    trace: bool,
}

/// The message as the receiver decodes it.
fn through_the_wire(envelope: &Envelope) -> Envelope {
    let (head, payload) = wire::encode(envelope);
    wire::parse(&head, payload, &GEOMETRY).unwrap()
}

fn slot(index: usize) -> Slot {
    Slot::new(index).unwrap()
}

fn node_id(index: usize) -> NodeId {
    NodeId(index as u16 + 1)
}

impl World {
    pub fn new(seed: u64, copies: usize, canary: Option<Canary>) -> World {
        crate::canary::make(canary);
        let mut rng = Rng::new(seed);
        let members: Vec<(NodeId, Incarnation)> =
            (0..copies).map(|index| (node_id(index), Incarnation(1))).collect();
        let nodes = (0..copies).map(|index| Node::new(index, &mut rng)).collect();
        let mut links = BTreeMap::new();
        for from in 0..copies {
            for to in (0..copies).filter(|to| *to != from) {
                links.insert((from, to), None);
            }
        }
        let mut world = World {
            sync_rng: Rng::new(seed ^ 0x5ac),
            now: Instant(1_000_000_000),
            seen: 1,
            hot: 1 + rng.below(6),
            network: Duration::from_millis(1 + rng.below(5)),
            disk: Duration::from_millis(1 + rng.below(9)),
            record: vec![Config::initial(&members, Revision(1))],
            nodes,
            links,
            death_notices: Vec::new(),
            watchers: Rng::new(seed ^ 0x0b17_0a2f),
            clocks: Rng::new(seed ^ 0xc10c),
            writes: BTreeMap::new(),
            last_value: EMPTY,
            history: vec![Vec::new(); GEOMETRY.blocks as usize],
            moment: 1,
            counts: BTreeMap::new(),
            canary,
            membership_policies: false,
            calm: false,
            newcomers: 0,
            slow_reads: false,
            trace: std::env::var_os("URSA_TRACE").is_some(),
            rng,
        };
        for a in 0..copies {
            (a + 1..copies).for_each(|b| world.connect(a, b));
        }
        world
    }

    fn say(&self, what: impl FnOnce() -> String) {
        if self.trace {
            println!("{} {}", self.now, what());
        }
    }

    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    fn later(&mut self, below: Duration) -> Instant {
        // Sometimes an action takes twenty times as long. In peace it does not, so that no heartbeat seems
        // lost.
        let below = if self.rng.one_in(40) && !self.calm { below * 20 } else { below };
        self.now + Duration::from_nanos(self.rng.below(below.as_nanos() as u64))
    }

    fn tick_moment(&mut self) -> u64 {
        self.moment += 1;
        self.moment
    }

    /// Lets time pass, and carries out whatever is due.
    pub fn step(&mut self) {
        self.now = self.now + Duration::from_micros(200 + self.rng.below(800));
        self.deliver();
        self.deliver_obituaries();
        self.end_standstills();
        for index in 0..self.nodes.len() {
            if self.runs(index) {
                self.nodes[index].replica.send_probes();
                self.learn(index);
                self.run_disk(index);
                self.run_reads(index);
                self.run_timers(index);
                self.drain(index);
            }
        }
    }

    /// The node learns of the record's next change, and acts on it when it may.
    fn learn(&mut self, index: usize) {
        if let Some(known) = self.nodes[index].known.filter(|_| self.rng.one_in(2)) {
            self.activate(index);
            let node = &mut self.nodes[index];
            // An outside copy stops at once. A member may continue in the epoch before, in which nothing can
            // end without it.
            node.leases.set_applied(known);
            node.known = None;
        } else if self.nodes[index].known.is_none() && self.reaches_record(index) && self.rng.one_in(4) {
            let next = match self.nodes[index].learned {
                // The record that a node has when it starts may be older than the one by which its last life
                // acted.
                None => (self.record.len() - 1).saturating_sub(self.rng.below(3) as usize),
                Some(known) => known,
            };
            if let Some(config) = self.record.get(next).cloned() {
                let node = &mut self.nodes[index];
                node.learned = Some(next + 1);
                node.known = Some(config.revision);
                node.leases.set_known(config.revision);
                let known = node.membership.newest();
                let holder = |config: &Config, slot| config.copy(slot).map(|copy| copy.node);
                let others = Slot::all()
                    .filter(|slot| known.is_none_or(|known| holder(known, *slot) != holder(&config, *slot)));
                others.for_each(|slot| node.membership_policy.forget(slot));
                node.membership.learn(config);
            }
        }
        self.activate(index);
    }

    fn activate(&mut self, index: usize) {
        let node = &mut self.nodes[index];
        let now = node.clock(self.now);
        if let Some(activation) = node.membership.poll(now, &node.leases) {
            if self.trace {
                println!(
                    "{} {index} acts in epoch {}, kept {}",
                    self.now, activation.config.epoch.0, activation.kept
                );
            }
            let outside = activation.config.standing(slot(index), node.incarnation) == Standing::Outside;
            node.replica.activate(activation);
            if outside {
                node.replica.catch_up();
            }
            self.drain(index);
        }
    }

    fn run_disk(&mut self, index: usize) {
        while let Some(ended) = self.nodes[index].disk.end(self.now) {
            let replica = &mut self.nodes[index].replica;
            match ended {
                Ended::Data(id) if self.trace => {
                    println!("{} {index} wrote {id:?}", self.now);
                    replica.handle_applied(id, Ok(()));
                }
                Ended::Data(id) => replica.handle_applied(id, Ok(())),
                Ended::Unrepaired(id) => {
                    replica.handle_unrepaired(id);
                    *self.counts.entry("block not repaired").or_default() += 1;
                }
                Ended::Page(page) => replica.handle_page_written(page, Ok(())),
            }
            self.drain(index);
        }
    }

    fn run_reads(&mut self, index: usize) {
        let node = &mut self.nodes[index];
        let now = self.now;
        for reading in &mut node.region_reads {
            if reading.values.is_none() && reading.look_at <= now {
                reading.values = Some(node.disk.read(reading.read.blocks));
            }
        }
        let over = |reading: &RegionReading| reading.values.is_some() && reading.end_at <= now;
        let (ended, open) = std::mem::take(&mut node.region_reads).into_iter().partition(over);
        node.region_reads = open;
        let ended: Vec<RegionReading> = ended;
        let mut bad_regions = Vec::new();
        for RegionReading { read, values, .. } in ended {
            let node = &mut self.nodes[index];
            // What was lost when the disk looked may have been found by now.
            let was_lost = values.iter().flatten().any(|value| *value == LOST);
            if node.disk.is_bad(read.blocks) || was_lost {
                bad_regions.push(read.blocks);
                if !read.by_block {
                    node.replica.handle_region_read(read, Err(DiskFailed));
                    continue;
                }
                let found = self.without_lost(index, read.blocks, values.unwrap());
                self.nodes[index].replica.handle_region_read_by_block(read, found);
            } else {
                node.replica.handle_region_read(read, Ok(disk::from_values(&values.unwrap())));
            }
        }
        let node = &mut self.nodes[index];
        let (due, later) =
            std::mem::take(&mut node.region_compares).into_iter().partition(|(due, _)| *due <= now);
        node.region_compares = later;
        let due: Vec<(Instant, RegionCompare)> = due;
        for (_, compare) in due {
            let values = node.disk.read(compare.blocks);
            let payload = disk::from_values(&values);
            let equal = payload.digest(compare.blocks, &GEOMETRY) == compare.digest;
            *self
                .counts
                .entry(if equal { "region found equal" } else { "region found different" })
                .or_default() += 1;
            let payload = (!node.disk.is_bad(compare.blocks)).then_some(payload);
            node.replica.handle_region_compared(compare, Ok(payload));
        }
        for read in &mut node.host_reads {
            if read.values.is_none() && read.look_at <= now {
                read.values = Some(node.disk.read(read.blocks));
            }
        }
        let (ended, open) = std::mem::take(&mut node.host_reads).into_iter().partition(|read| {
            let replica = &node.replica;
            let waits = |of| replica.confirmation(of) == Confirmed::NotYet;
            read.values.is_some() && read.end_at <= now && !read.confirmation.is_some_and(waits)
        });
        node.host_reads = open;
        let ended: Vec<HostRead> = ended;
        self.run_services(index);
        for blocks in bad_regions {
            let node = &self.nodes[index];
            if let Ok(mark) = node.replica.readable(node.clock(now), &node.leases, blocks) {
                self.fetch(index, blocks, mark, None);
            }
        }
        for read in ended {
            let node = &self.nodes[index];
            let void = |of| node.replica.confirmation(of) == Confirmed::Void;
            if read.confirmation.is_some_and(void) {
                self.count("read that nobody confirmed in its epoch");
            } else if node.disk.is_bad(read.blocks) || read.values.iter().flatten().any(|it| *it == LOST) {
                self.count("read fails");
                self.fetch(index, read.blocks, read.mark, Some(read.called));
            } else if node.replica.still_readable(read.mark, node.clock(now), &node.leases, read.blocks) {
                let reply = self.tick_moment();
                self.say(|| format!("{index} host read {:?} of {:?}", read.values, read.blocks));
                self.note_read(read.blocks, &read.values.unwrap(), read.called, reply);
                self.count(if read.confirmation.is_some() { "confirmed read" } else { "read" });
            } else {
                self.count("read again");
            }
        }
    }

    fn run_timers(&mut self, index: usize) {
        if self.nodes[index].ask_at <= self.now {
            self.nodes[index].ask_at = self.now + LEASE_EVERY;
            let request = self.nodes[index].leases.request(self.nodes[index].clock(self.now));
            for to in (0..self.nodes.len()).filter(|to| *to != index) {
                self.send(index, to, Packet::Ask(request));
            }
        }
        if self.nodes[index].tick_at <= self.now {
            self.nodes[index].tick_at = self.now + TICK_EVERY;
            let rested = !self.nodes[index].replica.needs_tick();
            self.nodes[index].replica.handle_tick();
            assert!(
                !rested || !self.nodes[index].replica.needs_tick(),
                "a tick that was not needed did something: {}",
                self.nodes[index].replica.unrest()
            );
            if self.membership_policies {
                self.membership_policy(index);
            }
            self.look_for_lost(index);
            if let Some(page) = self.nodes[index].replica.poll_idle() {
                let due = self.later(self.disk);
                self.nodes[index].disk.write_page(due, page);
            }
        }
    }

    /// Commits what the node's membership policy proposes, unless another node was faster.
    fn membership_policy(&mut self, index: usize) {
        let node = &mut self.nodes[index];
        let view = View {
            caught_up: node.replica.caught_up(),
            promotable: node.replica.promotable(),
            overdue: node.replica.overdue(),
            starved: node.replica.starved(),
            failed: node.replica.failure(),
            ..View::default()
        };
        let now = node.clock(self.now);
        let proposal = node.membership_policy.propose(now, &node.membership, &node.leases, view);
        let newest = node.membership.newest() == self.record.last();
        if let Some(proposal) = proposal.filter(|_| newest && self.reaches_record(index)) {
            let what = match proposal.reason {
                Reason::Restarted => "membership policy removes a restarted process",
                Reason::Silent => "membership policy removes who is silent",
                Reason::Died => "membership policy removes the dead",
                Reason::Complete => "membership policy promotes",
                Reason::CaughtUp => "membership policy admits",
                Reason::Alone => "membership policy goes on alone",
                Reason::Overdue => "membership policy removes who owes acknowledgements",
                Reason::Unreadable => "membership policy removes whom it cannot read all for",
                Reason::DiskFailed | Reason::NoSpace => "membership policy steps back",
                Reason::Unrepaired => "membership policy steps back from a bad block",
                Reason::DiskFailing | Reason::DiskSilent => unreachable!("drivers find that out"),
                Reason::SourceFailed => "membership policy lets go of who joins",
                Reason::Leaves => unreachable!("nobody is said to be so here"),
            };
            self.commit(proposal.config, what);
        }
    }

    /// Carries out the copy's outputs.
    fn drain(&mut self, index: usize) {
        self.carry_out(index);
        // Validations leave on their own soon, with the next write, or at the next tick.
        if self.nodes[index].replica.has_validations() && self.sync_rng.below(8) == 0 {
            self.nodes[index].replica.validate();
            self.carry_out(index);
        }
        // Resyncs are fast or slow.
        let regions = self.sync_rng.below(4) as u32;
        if self.nodes[index].replica.begin_regions(regions, Receivers::All) > 0 {
            self.carry_out(index);
        }
    }

    fn carry_out(&mut self, index: usize) {
        while let Some(output) = self.nodes[index].replica.poll() {
            match output {
                Output::Send(to, envelope) => {
                    self.send(index, to.index(), Packet::Slice(through_the_wire(&envelope)))
                }
                Output::Apply(apply) => {
                    self.say(|| format!("{index} writes {apply:?}"));
                    let due = self.later(self.disk);
                    self.nodes[index].disk.apply(due, apply);
                }
                Output::WritePage(page) => {
                    let due = self.later(self.disk);
                    self.nodes[index].disk.write_page(due, page);
                }
                Output::ReadRegion(read) => {
                    let (look_at, end_at) = self.reading();
                    let reading = RegionReading { look_at, end_at, read, values: None };
                    self.nodes[index].region_reads.push(reading);
                }
                Output::CompareRegion(compare) => {
                    let due = self.later(self.disk);
                    self.nodes[index].region_compares.push((due, compare));
                }
                Output::Complete(command, outcome) => self.complete(command, outcome),
            }
        }
    }

    fn complete(&mut self, command: Command, outcome: Outcome) {
        let write = self.writes.remove(&command).expect("a write ends once");
        let reply = match outcome {
            Outcome::Done => self.tick_moment(),
            Outcome::Unknown => NEVER,
        };
        self.say(|| format!("host's write {} of {:?} is {outcome:?}", write.value, write.blocks));
        self.count(if outcome == Outcome::Done { "write" } else { "write of unknown outcome" });
        self.note(&write, reply);
    }

    fn note(&mut self, write: &HostWrite, reply: u64) {
        for block in write.blocks.start..write.blocks.end {
            self.history[block as usize].push(Op {
                kind: Kind::Write,
                value: write.value,
                call: write.called,
                reply,
            });
        }
    }

    fn any_blocks(&mut self) -> Blocks {
        let start = self.rng.below(GEOMETRY.blocks);
        // Most accesses are in few places, so that writes meet.
        let start = if self.rng.one_in(3) { start } else { start % self.hot };
        Blocks::new(start, (start + 1 + self.rng.below(3)).min(GEOMETRY.blocks))
    }

    pub fn host_write(&mut self, index: usize) {
        let blocks = self.any_blocks();
        self.last_value += 1;
        let (value, called) = (self.last_value, self.tick_moment());
        let command = Command(value);
        let node = &mut self.nodes[index];
        // Safety does not depend on clocks: here they are always 0.
        if node.runs() && node.replica.write(command, blocks, disk::payload(value, blocks), 0).is_ok() {
            self.writes.insert(command, HostWrite { blocks, value, called, node: index });
            self.say(|| format!("{index} host writes {value} to {blocks:?}"));
            self.drain(index);
        }
    }

    pub fn host_read(&mut self, index: usize) {
        let blocks = self.any_blocks();
        self.host_read_of(index, blocks);
    }

    fn host_read_of(&mut self, index: usize, blocks: Blocks) {
        let called = self.tick_moment();
        let node = &self.nodes[index];
        if !node.runs() {
            return;
        }
        let readable = node.replica.readable(node.clock(self.now), &node.leases, blocks);
        if readable == Err(Unreadable::Unsettled) {
            self.nodes[index].replica.ask_validation(blocks);
            self.drain(index);
        }
        if let Ok(mark) = readable {
            let (look_at, end_at) = self.reading();
            let node = &mut self.nodes[index];
            let confirmation = node.confirms.then(|| node.replica.ask_confirmation());
            node.host_reads.push(HostRead {
                look_at,
                end_at,
                blocks,
                mark,
                confirmation,
                values: None,
                called,
            });
        }
    }

    /// When the disk looks and when it answers. Some answers take so long that a node is lost and comes back
    /// meanwhile.
    fn reading(&mut self) -> (Instant, Instant) {
        let look_at = self.later(self.disk);
        let is_slow = self.slow_reads && !self.calm && self.rng.one_in(SLOW_READ_ONE_IN);
        let takes = if is_slow { SLOW_READ } else { self.disk * 2 };
        (look_at, look_at.max(self.later(takes)))
    }

    pub fn crash(&mut self, index: usize) {
        if !std::mem::replace(&mut self.nodes[index].up, false) {
            return;
        }
        self.count("crash");
        self.say(|| format!("{index} crashes"));
        self.tell_death(index);
        self.end_standstill(index);
        let mut rng = self.rng.fork();
        let node = &mut self.nodes[index];
        node.disk.crash(&mut rng);
        node.region_reads.clear();
        node.region_compares.clear();
        node.host_reads.clear();
        node.fetches.clear();
        node.services.clear();
        let lost: Vec<Command> = self
            .writes
            .iter()
            .filter(|(_, write)| write.node == index)
            .map(|(command, _)| *command)
            .collect();
        for command in lost {
            let write = self.writes.remove(&command).unwrap();
            self.note(&write, NEVER);
        }
        for other in (0..self.nodes.len()).filter(|other| *other != index) {
            for ends in [(index, other), (other, index)] {
                if let Some(queue) = self.links.get_mut(&ends).unwrap() {
                    // What has left the machine still arrives.
                    queue.retain(|_| ends.0 == index && self.rng.one_in(2));
                }
            }
        }
    }

    pub fn restart(&mut self, index: usize) {
        if self.nodes[index].up {
            return;
        }
        self.count("restart");
        self.say(|| format!("{index} restarts"));
        let now = self.now;
        let keeps_life = self.canary == Some(Canary::NoIncarnation);
        let node = &mut self.nodes[index];
        node.up = true;
        let clock = node.clock(now);
        if !keeps_life {
            node.incarnation.0 += 1;
        }
        node.leases = Leases::new(clock, node.incarnation, TERMS);
        node.membership = Membership::new(slot(index), node.incarnation);
        node.membership_policy = MembershipPolicy::new(clock, slot(index), node.incarnation, SILENCE_MAX);
        node.replica = Replica::new(slot(index), node.incarnation, GEOMETRY, node.disk.map());
        (node.learned, node.known) = (None, None);
        for other in (0..self.nodes.len()).filter(|other| *other != index) {
            // The old connection ended with its process.
            self.unlink(index, other);
            self.connect(index, other);
        }
    }

    fn count_of(&self, what: &str) -> u64 {
        self.counts.get(what).copied().unwrap_or(0)
    }

    fn steps(&mut self, count: u32) {
        (0..count).for_each(|_| self.step());
    }
}

impl Node {
    fn new(index: usize, rng: &mut Rng) -> Node {
        let incarnation = Incarnation(1);
        let drift = rng.below(11) as i64 - 5;
        let clock_from = rng.below(1 << 40);
        let mut node = Node {
            id: node_id(index),
            up: true,
            incarnation,
            drift,
            clock_from,
            standstill: None,
            clock_stood: Duration::ZERO,
            confirms: false,
            leases: Leases::new(Instant(0), incarnation, TERMS),
            membership: Membership::new(slot(index), incarnation),
            membership_policy: MembershipPolicy::new(Instant(0), slot(index), incarnation, SILENCE_MAX),
            replica: Replica::new(slot(index), incarnation, GEOMETRY, Disk::new(GEOMETRY, slot(index)).map()),
            disk: Disk::new(GEOMETRY, slot(index)),
            learned: None,
            known: None,
            record_gone_until: Instant(0),
            region_reads: Vec::new(),
            region_compares: Vec::new(),
            host_reads: Vec::new(),
            fetches: Vec::new(),
            last_fetch: 0,
            services: Vec::new(),
            ask_at: Instant(0),
            tick_at: Instant(0),
        };
        let now = node.clock(Instant(1_000_000_000));
        node.leases = Leases::new(now, incarnation, TERMS);
        node.membership_policy = MembershipPolicy::new(now, slot(index), incarnation, SILENCE_MAX);
        node
    }

    /// The node's clock at this true time.
    fn clock(&self, now: Instant) -> Instant {
        let rate = (1000 + self.drift) as u64;
        let stands_since = self.standstill.filter(|standstill| standstill.with_clock).map(|it| it.since);
        let ran = stands_since.unwrap_or(now).0 - self.clock_stood.as_nanos() as u64;
        Instant(self.clock_from + ran / 1000 * rate)
    }
}
