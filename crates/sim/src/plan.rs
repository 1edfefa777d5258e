//! What a seed means: the cluster, the load and the measure of each fault.

use std::fmt;
use std::time::Duration;

use base::{BlockSize, Rng};

use crate::layout::OWNERS_MAX;

/// How a run differs from others.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Everything follows from it.
    pub seed: u64,
    /// Nodes, each with a copy.
    pub nodes: usize,
    /// Cores of each.
    pub cores: usize,
    /// Two nodes have a witness for a third vote. Without it the first node has the only one; three nodes have a vote each.
    pub witness: bool,
    /// The nodes keep the cluster's record themselves, by Raft; else it is the simulator's.
    pub raft: bool,
    /// The volume's blocks.
    pub block: BlockSize,
    /// What hosts do.
    pub load: Load,
    /// What goes wrong, and how often in [`WEIGHTS`] of harm.
    pub harms: Vec<(Harm, u64)>,
    /// How many times something goes wrong.
    pub times: u32,
    /// How long it takes at most until the next.
    pub gap: Duration,
    /// How much faster than true time the nodes' clocks run, in parts per million.
    pub drifts: Vec<i32>,
    /// What packets take at most.
    pub delay: Duration,
    /// What reads of each node's disk take at most: what happens while somebody reads is seen only where that takes long.
    pub reads: Vec<Duration>,
    /// One packet in so many finds its connection broken; 0: none.
    pub break_one_in: u64,
}

/// What hosts do: how many there are of each kind.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// What a host thinks between two commands, on average: what it does costs the same in a short run and in a long one.
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
}

/// What can go wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Harm {
    /// A process is killed.
    Kill,
    /// A process is killed, and the others are told.
    KillAndTell,
    /// A process is killed, or its machine loses power, while what it says does not reach all others any more.
    LastWords,
    /// A machine loses power.
    PowerLoss,
    /// All machines lose power at once.
    BlackOut,
    /// A node that is down is started.
    Start,
    /// A node is stopped as a service is.
    Stop,
    /// A process stands still for a while; its clock goes on.
    Pause,
    /// Two nodes do not reach each other.
    Cut,
    /// One node does not reach another, which reaches it.
    CutOneWay,
    /// A node reaches no other.
    Isolate,
    /// A node reaches no other for as long as it takes until they go on without it, and no longer.
    Lapse,
    /// What nodes say to each other is held up here and there, for a moment, while hosts hurry.
    Stutter,
    /// Members change while hosts hurry, and nodes hear of each change one after the other.
    Turn,
    /// A host does not reach a node.
    CutHost,
    /// Everybody reaches everybody.
    Heal,
    /// Connections between two nodes are reset.
    Break,
    /// A disk takes long.
    SlowDisk,
    /// A disk's writes or flushes fail now and then.
    FailingDisk,
    /// All disks are fast and well.
    WellDisks,
    /// A node does not reach the record.
    RecordGone,
    /// What a node has changed in the record it does not learn of.
    AnswersLost,
    /// A node hears of no changes of the record.
    WatchHeld,
    /// All reach the record as far as the network lets them.
    RecordBack,
}

/// What the measures of harm are parts of, all together.
const WEIGHTS: [(Harm, u64); 24] = [
    (Harm::Kill, 6),
    (Harm::KillAndTell, 4),
    (Harm::LastWords, 5),
    (Harm::PowerLoss, 6),
    (Harm::BlackOut, 3),
    (Harm::Start, 30),
    (Harm::Stop, 3),
    (Harm::Pause, 4),
    (Harm::Cut, 6),
    (Harm::CutOneWay, 5),
    (Harm::Isolate, 4),
    (Harm::Lapse, 12),
    (Harm::Stutter, 6),
    (Harm::Turn, 8),
    (Harm::CutHost, 3),
    (Harm::Heal, 16),
    (Harm::Break, 4),
    (Harm::SlowDisk, 4),
    (Harm::FailingDisk, 12),
    (Harm::WellDisks, 6),
    (Harm::RecordGone, 3),
    (Harm::AnswersLost, 2),
    (Harm::WatchHeld, 3),
    (Harm::RecordBack, 8),
];

impl Harm {
    /// All kinds.
    pub fn all() -> impl Iterator<Item = Harm> {
        WEIGHTS.into_iter().map(|(harm, _)| harm)
    }

    /// Whether it ends other harm.
    fn heals(self) -> bool {
        matches!(self, Harm::Start | Harm::Heal | Harm::WellDisks | Harm::RecordBack)
    }
}

impl Plan {
    /// What the seed means. A run has its own measure of each fault, and none of some: faults hide each other, and what one seed never meets
    /// another meets all the time ("swarm testing", ISSTA 2012).
    pub fn from_seed(seed: u64) -> Plan {
        let mut rng = Rng::new(seed ^ 0x5eed);
        let nodes = 2 + rng.below(2) as usize;
        let mut any = |from: &[u64]| from[rng.below(from.len() as u64) as usize];
        let harms = WEIGHTS.map(|(harm, weight)| {
            let factor = if harm.heals() { any(&[2, 4, 4, 8]) } else { any(&[0, 0, 2, 4, 4, 16]) };
            // A disk that fails may cost a copy of everything: what must cost none would not be told from it.
            let factor = if harm == Harm::FailingDisk { any(&[0, 0, factor]) } else { factor };
            (harm, weight * factor)
        });
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
        };
        // Leases count on clocks that differ by no more than one part in a hundred, from each other.
        let drift = [0, 500, 5_000][rng.below(3) as usize];
        let drifts = (0..nodes).map(|_| rng.below(2 * drift + 1) as i32 - drift as i32).collect();
        let reads =
            (0..nodes).map(|_| Duration::from_micros([150, 150, 3_000, 60_000][rng.below(4) as usize]));
        let reads = reads.collect();
        Plan {
            reads,
            seed,
            nodes,
            cores: 1 + rng.below(2) as usize,
            witness: nodes == 2 && rng.one_in(2),
            raft: rng.one_in(2),
            block: if rng.one_in(4) { BlockSize::B512 } else { BlockSize::B4096 },
            load,
            harms: harms.into_iter().filter(|(_, weight)| *weight > 0).collect(),
            times,
            gap,
            drifts,
            delay: Duration::from_micros([100, 300, 3000][rng.below(3) as usize]),
            break_one_in: [0, 0, 20_000][rng.below(3) as usize],
        }
    }

    /// Whether a disk may fail, and not only lose power.
    pub fn disks_fail(&self) -> bool {
        self.harms.iter().any(|(harm, _)| *harm == Harm::FailingDisk)
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Plan { seed, nodes, cores, block, load, times, gap, delay, break_one_in, .. } = self;
        let votes = match (nodes, self.witness) {
            (2, true) => "with a witness",
            (2, false) => "of which the first has the vote",
            _ => "with a vote each",
        };
        let record = if self.raft { "kept by Raft" } else { "simulated" };
        writeln!(
            f,
            "seed {seed}: {nodes} nodes of {cores} cores {votes} in the record, {record}; blocks of {} bytes",
            block.bytes()
        )?;
        writeln!(f, "  {load:?}")?;
        writeln!(f, "  {times} times in up to {gap:?} each: {:?}", self.harms)?;
        write!(
            f,
            "  packets take up to {delay:?}, one in {break_one_in} breaks; drifts {:?}; reads up to {:?}",
            self.drifts, self.reads
        )
    }
}
