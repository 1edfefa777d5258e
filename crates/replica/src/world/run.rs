//! One run: faults and load from a seed, then peace, after which nothing may be missing.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::*;
use crate::Slots;

/// The number of steps with faults.
const STEPS: u32 = 2500;
/// The maximum number of steps until all copies have been in sync at once under load, after the last fault.
const LOADED_STEPS_MAX: u32 = 20_000;
/// The maximum number of steps until everything is in sync and at rest after the last fault (A13): 9 seconds,
/// since a copy that owed acknowledgements is not let in for more than three.
const PEACE_STEPS_MAX: u32 = 15_000;

/// The faults of a run, and how often each happens in 10,000 steps. Each run has its own rate of each fault,
/// and leaves some out: faults hide each other, and what never happens in one seed happens all the time in
/// another ("swarm testing", ISSTA 2012).
const FAULTS: [(Fault, u64); 17] = [
    (Fault::Crash, 30),
    (Fault::Restart, 200),
    (Fault::BlackOut, 4),
    (Fault::Cut, 50),
    (Fault::Connect, 150),
    (Fault::Isolate, 15),
    (Fault::IsolateAtChange, 2500),
    (Fault::RecordGone, 4),
    (Fault::Suspect, 75),
    (Fault::RemoveCut, 700),
    (Fault::Admit, 500),
    (Fault::AdmitEarly, 60),
    (Fault::Promote, 1500),
    (Fault::Recover, 100),
    (Fault::TakeAway, 60),
    (Fault::Add, 400),
    (Fault::CutAtChange, 2500),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Crash,
    Restart,
    BlackOut,
    Cut,
    Connect,
    Isolate,
    /// At the moment after the record has changed, which is the worst.
    IsolateAtChange,
    RecordGone,
    /// A node is removed without a fault of its own.
    Suspect,
    /// A node that does not answer is removed.
    RemoveCut,
    Admit,
    /// Without the bulk of what it misses.
    AdmitEarly,
    Promote,
    Recover,
    /// A copy that is outside is removed.
    TakeAway,
    /// Another node gets a copy in a slot whose copy was removed.
    Add,
    /// Like [`Fault::IsolateAtChange`], for one link.
    CutAtChange,
}

/// The parameters of one run.
struct Plan {
    rng: Rng,
    faults: Vec<(Fault, u64)>,
    /// Separate, so that what happens to clocks does not change the rest of a seed.
    clocks: Rng,
    /// How often in 10,000 steps a node stalls, and how often a node with confirmed reads does so together
    /// with its clock.
    standstills: u64,
    clock_stops: u64,
    /// A host does something once in this many steps.
    load: u64,
    /// A block of some disk goes bad once in this many steps; 0: never. Separate, so that everything else is
    /// the same without it.
    bad: Rng,
    bad_one_in: u64,
}

impl Plan {
    fn new(seed: u64, bad_blocks: bool) -> Plan {
        let mut rng = Rng::new(seed ^ 0x5eed);
        let faults = FAULTS
            .iter()
            .map(|(fault, weight)| {
                let heals = matches!(
                    fault,
                    Fault::Restart | Fault::Connect | Fault::Promote | Fault::Admit | Fault::Add
                );
                let factors: &[u64] = if heals { &[2, 4, 4, 12] } else { &[0, 0, 2, 4, 4, 16] };
                (*fault, weight * factors[rng.below(factors.len() as u64) as usize] / 4)
            })
            .collect();
        let load = 1 + rng.below(3);
        let mut clocks = Rng::new(seed ^ 0xc10c_5eed);
        let standstills = [0, 0, 5, 20][clocks.below(4) as usize];
        let clock_stops = [0, 0, 20, 80][clocks.below(4) as usize];
        let mut bad = Rng::new(seed ^ 0x0bad_b10c);
        let bad_one_in = if bad_blocks { [0, 0, 40, 10][bad.below(4) as usize] } else { 0 };
        Plan { rng, faults, clocks, standstills, clock_stops, load, bad, bad_one_in }
    }
}

/// Where reads are confirmed (R24).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Confirms {
    /// On the nodes that the plan draws.
    Drawn,
    /// Everywhere.
    All,
}

/// Runs one seed.
pub fn run(seed: u64, canary: Option<Canary>) -> BTreeMap<&'static str, u64> {
    run_with(seed, canary, Confirms::Drawn)
}

/// Runs one seed, with reads confirmed where `confirms` says.
pub fn run_with(seed: u64, canary: Option<Canary>, confirms: Confirms) -> BTreeMap<&'static str, u64> {
    let bad_blocks = canary == Some(Canary::RepairLate) || std::env::var_os("URSA_BAD_BLOCKS").is_some();
    let mut plan = Plan::new(seed, bad_blocks);
    let copies = [2, 2, 3, 3, 3, 4][plan.rng.below(6) as usize];
    let mut world = World::new(seed, copies, canary);
    world.membership_policies = plan.rng.one_in(2);
    world.slow_reads = seed % 4 == 3;
    // Clocks stop only where reads are confirmed: elsewhere that is a known risk.
    for node in world.nodes.iter_mut().filter(|_| plan.clock_stops > 0) {
        node.confirms = confirms == Confirms::All || plan.clocks.one_in(2);
    }
    if confirms == Confirms::All {
        world.nodes.iter_mut().for_each(|node| node.confirms = true);
    }
    for step in 0..STEPS {
        world.step();
        if plan.rng.one_in(plan.load) {
            world.load(&mut plan.rng);
        }
        for (fault, weight) in &plan.faults {
            if plan.rng.below(10_000) < *weight {
                world.fault(*fault, &mut plan.rng);
            }
        }
        if plan.clocks.below(10_000) < plan.standstills {
            let index = plan.clocks.below(world.nodes.len() as u64) as usize;
            world.stand_still(index, false);
        }
        if plan.clocks.below(10_000) < plan.clock_stops {
            let index = plan.clocks.below(world.nodes.len() as u64) as usize;
            if world.nodes[index].confirms {
                world.stand_still(index, true);
            }
        }
        if plan.bad_one_in > 0 && plan.bad.one_in(plan.bad_one_in) {
            world.spoil_some(&mut plan.bad);
        }
        world.seen = world.record.len();
        world.check_put_off();
        if step % 8 == 0 {
            world.check_map();
        }
    }
    world.make_peace(&mut plan.rng);
    world.check_history();
    world.counts
}

impl World {
    fn load(&mut self, plan: &mut Rng) {
        let index = plan.below(self.nodes.len() as u64) as usize;
        match plan.below(3) {
            0 => self.host_write(index),
            _ => self.host_read(index),
        }
    }

    /// A block goes bad on a copy in sync, where hosts are or elsewhere, and is read.
    fn spoil_some(&mut self, plan: &mut Rng) {
        let in_sync: Vec<usize> =
            self.record.last().unwrap().in_sync().iter().map(crate::Slot::index).collect();
        let index = in_sync[plan.below(in_sync.len() as u64) as usize];
        let block = if plan.one_in(2) { plan.below(self.hot) } else { plan.below(GEOMETRY.blocks) };
        self.spoil(index, block, !plan.one_in(12));
        self.host_read_of(index, Blocks::new(block, block + 1));
    }

    fn fault(&mut self, fault: Fault, plan: &mut Rng) {
        let count = self.nodes.len() as u64;
        let a = plan.below(count) as usize;
        let b = (a + 1 + plan.below(count - 1) as usize) % self.nodes.len();
        match fault {
            Fault::Crash => self.crash(a),
            Fault::Restart => self.restart(a),
            Fault::BlackOut => {
                self.count("black-out");
                (0..self.nodes.len()).for_each(|index| self.crash(index));
            }
            Fault::Cut => self.cut(a, b),
            Fault::Connect => self.connect(a, b),
            Fault::Isolate => self.isolate(a, 400),
            Fault::IsolateAtChange if self.seen < self.record.len() => self.isolate(a, 300),
            Fault::IsolateAtChange => {}
            Fault::RecordGone => {
                self.count("record out of reach");
                let until = self.now + Duration::from_millis(plan.below(300));
                self.nodes.iter_mut().for_each(|node| node.record_gone_until = until);
            }
            Fault::Suspect => self.remove(a, b),
            Fault::RemoveCut if self.is_cut(a, b) => self.remove(a, b),
            Fault::Admit if self.nodes[a].replica.caught_up().contains(slot(b)) => self.admit(a, b),
            Fault::RemoveCut | Fault::Admit => {}
            Fault::AdmitEarly => self.admit(a, b),
            Fault::Promote => self.promote(a),
            Fault::Recover => self.recover(a),
            Fault::TakeAway => self.take_away(a, b),
            Fault::Add => self.add(a, b),
            Fault::CutAtChange if self.seen < self.record.len() => self.cut(a, b),
            Fault::CutAtChange => {}
        }
    }

    /// Everything works again, and the membership policies let all copies join.
    fn make_peace(&mut self, plan: &mut Rng) {
        (self.membership_policies, self.calm) = (true, true);
        (0..self.nodes.len()).for_each(|index| self.end_standstill(index));
        let now = self.now;
        self.nodes.iter_mut().for_each(|node| node.record_gone_until = now);
        // Disks are replaced, with their content; a copy whose disk failed is opened again.
        for index in 0..self.nodes.len() {
            self.nodes[index].disk.mend();
            if self.nodes[index].replica.has_failed() {
                self.crash(index);
            }
        }
        for step in 0.. {
            let newest = self.record.last().unwrap();
            if newest.in_sync().len() as usize == self.nodes.len() {
                break;
            }
            assert!(
                step < LOADED_STEPS_MAX,
                "hosts keep a copy from coming in sync: {}",
                self.why_not_whole()
            );
            self.load(plan);
            self.heal();
            self.refill();
            self.step();
        }
        for _ in 0..PEACE_STEPS_MAX {
            self.heal();
            self.step();
            if self.is_whole() {
                let all = Blocks::new(0, GEOMETRY.blocks);
                let first = self.nodes[0].disk.read(all);
                for node in &self.nodes {
                    assert_eq!(node.disk.read(all), first, "all are in sync, and their disks differ");
                }
                for block in (0..GEOMETRY.blocks).filter(|block| first[*block as usize] != LOST) {
                    let now = self.tick_moment();
                    let value = first[block as usize];
                    self.history[block as usize].push(Op { kind: Kind::Read, value, call: now, reply: now });
                }
                return;
            }
            if plan.one_in(1000) {
                self.check_map();
            }
        }
        panic!("it never came to rest: {:?} {}", self.record.last().unwrap(), self.why_not_whole());
    }

    fn heal(&mut self) {
        for a in 0..self.nodes.len() {
            self.restart(a);
            for b in a + 1..self.nodes.len() {
                self.connect(a, b);
            }
        }
    }

    /// Adds a copy in each slot without one.
    fn refill(&mut self) {
        for whom in 0..self.nodes.len() {
            (0..self.nodes.len()).filter(|by| *by != whom).for_each(|by| self.add(by, whom));
        }
    }

    fn why_not_whole(&self) -> String {
        let nodes = self.nodes.iter().map(|node| {
            format!(
                "{:?} {} dirty {} active {:?}",
                node.replica.standing(),
                node.replica.unrest(),
                node.replica.map().dirty(Slots::ALL).count(),
                node.membership.active().map(|config| config.epoch),
            )
        });
        nodes.collect::<Vec<_>>().join("; ")
    }
}

/// The first seed that fails of `count` seeds from `from` on, with its message.
pub fn first_failure(from: u64, count: u64, canary: Canary) -> Option<(u64, String)> {
    (from..from + count).find_map(|seed| {
        let message = catch_unwind(AssertUnwindSafe(|| run(seed, Some(canary)))).err()?;
        let text = message.downcast_ref::<String>().cloned();
        Some((
            seed,
            text.or_else(|| message.downcast_ref::<&str>().map(|text| (*text).to_owned()))
                .unwrap_or_default(),
        ))
    })
}
