//! What a seed means: the cluster, the load and the measure of each fault.

use std::fmt;
use std::time::Duration;

use base::{BlockSize, Rng};
use initiator::command::ReservationType;

use crate::harm::{self, Harm};
use crate::layout::OWNERS_MAX;
use crate::load::KINDS;
use crate::rot::Rot;

/// What [`Plan::without`] calls it that the blocks of disks are larger than the volumes'.
pub const LARGE_DISK_BLOCKS: &str = "disk blocks larger than the volume's";

/// What it calls it that pools have two disks.
pub const TWO_DISKS: &str = "two disks";

/// What it calls it that a disk lies when all is over.
pub const ROT: &str = "rot";

/// What it calls it that some hosts are fenced off by reservations that all registrants hold.
pub const ALL_REGISTRANTS: &str = "reservations of all registrants";

/// What a plan may have besides faults, and be tried without ([`Plan::without`]).
pub const PARTS: [&str; 4] = [LARGE_DISK_BLOCKS, TWO_DISKS, ROT, ALL_REGISTRANTS];

/// Where a second volume lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beside {
    /// In the same pool: what happens to its disk happens to both.
    SamePool,
    /// In a second pool of each node, on a disk of its own.
    OwnPool,
}

/// How a run differs from others.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Everything follows from it.
    pub seed: u64,
    /// Nodes, each with a copy.
    pub nodes: usize,
    /// Cores of each.
    pub cores: usize,
    /// Two nodes have a witness for a third vote. Without it the first node has the only one; three nodes
    /// have a vote each.
    pub witness: bool,
    /// The second of two nodes, which has no vote, may continue alone with each volume when it hears nothing
    /// of the first: somebody has agreed to the risk. Such a plan has no fault by which both could continue,
    /// so that no volume may ever be split.
    pub forks: bool,
    /// The nodes keep the cluster's record themselves, by Raft; else it is the simulator's.
    pub raft: bool,
    /// The volume's blocks.
    pub block: BlockSize,
    /// The blocks of all disks, in bytes: larger than the volume's, neighbours of what is written are
    /// written, too.
    pub disk_block: u32,
    /// Each pool has two disks, and its volumes lie on both.
    pub two_disks: bool,
    /// When all is over the disk of one copy lies, which a comparison must find.
    pub rot: Option<Rot>,
    /// A second volume.
    pub beside: Option<Beside>,
    /// Whether the first volume, and the second, are log-structured; else they are thick.
    pub logs: [bool; 2],
    /// What hosts do.
    pub load: Load,
    /// Of which types reservations are by which hosts are fenced off.
    pub reservations: Vec<ReservationType>,
    /// What goes wrong, and how often beside the others.
    pub harms: Vec<(&'static Harm, u64)>,
    /// How many times something goes wrong.
    pub times: u32,
    /// How long it takes at most until the next.
    pub gap: Duration,
    /// How much faster than true time the nodes' clocks run, in parts per million.
    pub drifts: Vec<i32>,
    /// On which nodes reads are confirmed (R24): only their clocks stop. Elsewhere a stop is a known risk.
    pub confirms: Vec<bool>,
    /// What packets take at most.
    pub delay: Duration,
    /// What reads of each node's disk take at most: what happens while somebody reads is seen only where that
    /// takes long.
    pub reads: Vec<Duration>,
    /// One packet in so many finds its connection broken; 0: none.
    pub break_one_in: u64,
}

/// What hosts do: how many there are of each kind.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// What a host thinks between two commands, on average: what it does costs the same in a short run and in
    /// a long one.
    pub pause: Duration,
    /// Hosts that share blocks, through one node each.
    pub single: u64,
    /// They share few of these: what they do meets all the time.
    pub narrow: bool,
    /// Hosts with blocks of their own, through all nodes.
    pub owners: u64,
    /// Hosts that exchange blocks by COMPARE AND WRITE.
    pub exchangers: u64,
    /// Hosts that are fenced off by another.
    pub writers: u64,
    /// Hosts that register, where nobody is fenced off.
    pub registrants: u64,
    /// Hosts that share blocks of a second volume, through one node each.
    pub beside: u64,
}

impl Plan {
    /// What the seed means. A run has its own measure of each fault, and none of some: faults hide each
    /// other, and what one seed never meets another meets all the time ("swarm testing", ISSTA 2012).
    pub fn from_seed(seed: u64) -> Plan {
        let mut rng = Rng::new(seed ^ 0x5eed);
        let nodes = 2 + rng.below(2) as usize;
        let mut any = |from: &[u64]| from[rng.below(from.len() as u64) as usize];
        let times = 6 + any(&[0, 4, 12]) as u32;
        let gap = Duration::from_millis(any(&[200, 800, 2500]));
        let writers = any(&[0, 0, 3]);
        let load = Load {
            pause: gap * times / any(&[100, 200, 500]) as u32,
            single: any(&[1, 2, 3, 6]),
            narrow: any(&[0, 1]) == 1,
            owners: any(&[0, 1, 1, OWNERS_MAX]),
            exchangers: any(&[0, 0, 4, 6]),
            writers,
            registrants: if writers == 0 { any(&[0, 3]) } else { 0 },
            beside: 1 + part_of(seed, "hosts beside").below(2),
        };
        // Leases count on clocks that differ by no more than one part in a hundred, from each other.
        let drift = [0, 500, 5_000][rng.below(3) as usize];
        let drifts = (0..nodes).map(|_| rng.below(2 * drift + 1) as i32 - drift as i32).collect();
        let reads =
            (0..nodes).map(|_| Duration::from_micros([150, 150, 3_000, 60_000][rng.below(4) as usize]));
        let reads = reads.collect();
        let cores = 1 + rng.below(2) as usize;
        let witness = nodes == 2 && rng.one_in(2);
        let forks = nodes == 2 && !witness && part_of(seed, "forks").one_in(2);
        Plan {
            reads,
            seed,
            nodes,
            cores,
            witness,
            forks,
            raft: rng.one_in(2),
            block: if rng.one_in(4) { BlockSize::B512 } else { BlockSize::B4096 },
            disk_block: if part_of(seed, "disk block").one_in(2) { 4096 } else { 512 },
            two_disks: part_of(seed, "disks").one_in(4),
            rot: draw_rot(seed),
            beside: draw_beside(seed),
            logs: draw_logs(seed),
            load,
            reservations: draw_reservations(seed),
            harms: draw_harms(seed, forks),
            times,
            gap,
            drifts,
            confirms: draw_confirms(seed, nodes),
            delay: Duration::from_micros([100, 300, 3000][rng.below(3) as usize]),
            break_one_in: [0, 0, 20_000][rng.below(3) as usize],
        }
    }

    /// The same without one of its parts: a fault, by its name, or one of [`PARTS`]. Where the fault
    /// would happen nothing does, so that all is the same until then.
    ///
    /// # Panics
    /// If the plan does not have that.
    pub fn without(&self, part: &str) -> Plan {
        assert!(self.has(part), "the plan of seed {} has no part called {part}", self.seed);
        let mut plan = self.clone();
        match part {
            LARGE_DISK_BLOCKS => plan.disk_block = 512,
            TWO_DISKS => plan.two_disks = false,
            ROT => plan.rot = None,
            // Each counts as one that only registrants pass: as many are left.
            ALL_REGISTRANTS => plan.reservations.iter_mut().for_each(|kind| *kind = registrants_only(*kind)),
            _ => {}
        }
        for (harm, _) in plan.harms.iter_mut().filter(|(harm, _)| harm.name == part) {
            *harm = &harm::NOTHING;
        }
        plan
    }

    /// Whether it has such a part.
    pub fn has(&self, part: &str) -> bool {
        self.harms.iter().any(|(harm, _)| harm.name == part)
            || part == LARGE_DISK_BLOCKS && self.disk_block > self.block.bytes()
            || part == TWO_DISKS && self.two_disks
            || part == ROT && self.rot.is_some()
            || part == ALL_REGISTRANTS && self.fences_by_all_registrants()
    }

    /// Whether a host may fence others off by a reservation that all registrants hold.
    fn fences_by_all_registrants(&self) -> bool {
        use ReservationType::{ExclusiveAccessAllRegistrants, WriteExclusiveAllRegistrants};
        let of_all = |kind: &_| matches!(kind, WriteExclusiveAllRegistrants | ExclusiveAccessAllRegistrants);
        self.load.writers > 0 && self.reservations.iter().any(of_all)
    }

    /// Whether pools are in files, whose file system may be full; else they are on block devices.
    pub fn has_pools_in_files(&self) -> bool {
        self.harms.iter().any(|(harm, _)| harm.name == harm::FULL.name)
    }

    /// Whether volumes may grow.
    pub fn grows(&self) -> bool {
        self.harms.iter().any(|(harm, _)| harm.name == harm::GROW.name)
    }

    /// Whether a copy may have to copy everything.
    pub fn costs_full_copies(&self) -> bool {
        self.harms.iter().any(|(harm, _)| harm.costs_full_copies)
    }
}

/// Each fault's measure hangs on the seed and its own name: a fault that is new changes nothing in plans that
/// leave it out.
fn draw_harms(seed: u64, forks: bool) -> Vec<(&'static Harm, u64)> {
    let may_cost_full_copies = part_of(seed, "full copies").one_in(3);
    let can = harm::ALL.iter().filter(|harm| harm.plans.has(forks));
    let can = can.filter(|harm| may_cost_full_copies || !harm.costs_full_copies);
    let drawn = can.map(|harm| {
        let mut rng = part_of(seed, harm.name);
        (harm, harm.weight * harm.measures[rng.below(harm.measures.len() as u64) as usize])
    });
    drawn.filter(|(_, weight)| *weight > 0).collect()
}

/// In half of all plans on no node: confirmed reads need no leases, and a fault in the rules of leases must
/// be noticed.
fn draw_confirms(seed: u64, nodes: usize) -> Vec<bool> {
    let mut rng = part_of(seed, "confirms");
    let some = rng.one_in(2);
    (0..nodes).map(|_| some && !rng.one_in(3)).collect()
}

/// The type that differs from one of all registrants only in who holds the reservation; others as they are.
fn registrants_only(kind: ReservationType) -> ReservationType {
    match kind {
        ReservationType::WriteExclusiveAllRegistrants => ReservationType::WriteExclusiveRegistrantsOnly,
        ReservationType::ExclusiveAccessAllRegistrants => ReservationType::ExclusiveAccessRegistrantsOnly,
        other => other,
    }
}

/// All types, or one.
fn draw_reservations(seed: u64) -> Vec<ReservationType> {
    let mut rng = part_of(seed, "reservations");
    let all = KINDS.map(|(kind, _)| kind);
    if rng.one_in(3) { all.to_vec() } else { vec![all[rng.below(all.len() as u64) as usize]] }
}

fn draw_rot(seed: u64) -> Option<Rot> {
    let all = [None, None, None, Some(Rot::Decay), Some(Rot::LostWrite), Some(Rot::MisdirectedWrite)];
    all[part_of(seed, "rot").below(all.len() as u64) as usize]
}

fn draw_beside(seed: u64) -> Option<Beside> {
    [None, None, Some(Beside::SamePool), Some(Beside::OwnPool)][part_of(seed, "beside").below(4) as usize]
}

fn draw_logs(seed: u64) -> [bool; 2] {
    let mut rng = part_of(seed, "logs");
    [rng.one_in(4), rng.one_in(4)]
}

/// Numbers for a part of a plan, which change by nothing that is drawn for other parts.
fn part_of(seed: u64, part: &str) -> Rng {
    // FNV-1a.
    let hash = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    Rng::new(seed ^ part.bytes().fold(0xcbf2_9ce4_8422_2325, hash))
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Plan { seed, nodes, cores, block, disk_block, load, times, gap, delay, break_one_in, .. } = self;
        let votes = match (nodes, self.witness) {
            (2, true) => "with a witness",
            (2, false) if self.forks => "of which the first has the vote, and the second may continue alone,",
            (2, false) => "of which the first has the vote",
            _ => "with a vote each",
        };
        let record = if self.raft { "kept by Raft" } else { "simulated" };
        writeln!(
            f,
            "seed {seed}: {nodes} nodes of {cores} cores {votes} in the record, {record}; blocks of {} bytes on {} with {disk_block}",
            block.bytes(),
            if self.two_disks { "two disks" } else { "one disk" }
        )?;
        writeln!(
            f,
            "  {load:?}, second volume: {:?}, log-structured: {:?}, reservations: {:?}",
            self.beside, self.logs, self.reservations
        )?;
        writeln!(f, "  {times} times in up to {gap:?} each: {:?}", self.harms)?;
        write!(
            f,
            "  packets take up to {delay:?}, one in {break_one_in} breaks; drifts {:?}; reads up to {:?}, confirmed {:?}",
            self.drifts, self.reads, self.confirms
        )
    }
}
