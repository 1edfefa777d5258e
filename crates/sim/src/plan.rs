//! What a seed means: the cluster, the load, and the weight of each fault.

use std::fmt;
use std::time::Duration;

use base::{BlockSize, Rng};
use initiator::command::ReservationType;
use rt::sim::NetProfile;

use crate::harm::{self, Harm};
use crate::layout::OWNERS_MAX;
use crate::load::KINDS;
use crate::rot::Rot;

/// The name that [`Plan::without`] uses for disk blocks that are larger than the volume's.
pub const LARGE_DISK_BLOCKS: &str = "disk blocks larger than the volume's";

/// Its name for pools with two disks.
pub const TWO_DISKS: &str = "two disks";

/// Its name for clocks that leap by more than the time for which their machine stood still.
pub const LEAPS_TOO_FAR: &str = "clock that leaps too far";

/// Its name for fencing by reservations that all registrants hold.
pub const ALL_REGISTRANTS: &str = "reservations of all registrants";

/// Its name for pools that are full for a while.
pub const FULL_POOLS: &str = "full pools";

/// Its name for volumes that are converted while they are in use.
pub const CONVERSIONS: &str = "conversions";

/// Its name for what rots in logs while they are in use.
pub const ROT_IN_LOGS: &str = "rot in logs";

/// Its name for snapshots that are taken and deleted.
pub const SNAPSHOTS: &str = "snapshots";

/// Its name for volumes that are restored to snapshots.
pub const RESTORES: &str = "restores";

/// Its name for log volumes: without them, all are thick, and stay so.
pub const LOGS: &str = "logs";

/// The parts of a plan, besides faults, that can be left out ([`Plan::without`]).
pub const PARTS: [&str; 13] = [
    LARGE_DISK_BLOCKS,
    TWO_DISKS,
    Rot::Decay.name(),
    Rot::LostWrite.name(),
    Rot::MisdirectedWrite.name(),
    LEAPS_TOO_FAR,
    ALL_REGISTRANTS,
    FULL_POOLS,
    CONVERSIONS,
    ROT_IN_LOGS,
    SNAPSHOTS,
    RESTORES,
    LOGS,
];

/// Where the second volume is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beside {
    /// In the first volume's pool: a fault of the disk hits both volumes.
    SamePool,
    /// In a second pool of each node, with its own disks.
    OwnPool,
}

/// The parameters of a run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Everything follows from it.
    pub seed: u64,
    /// Number of nodes. Each has a copy.
    pub nodes: usize,
    /// Cores of each node.
    pub cores: usize,
    /// Two nodes have a witness for a third vote. Without a witness, the first of two nodes has the only
    /// vote; three nodes have a vote each.
    pub witness: bool,
    /// The second of two nodes, which has no vote, may continue alone with each volume when the first is
    /// unreachable: an administrator has accepted the risk. Such a plan has no fault that lets both continue,
    /// so no split brain may occur.
    pub forks: bool,
    /// The nodes keep the cluster's record themselves, by Raft; otherwise the simulator keeps it.
    pub raft: bool,
    /// The volume's block size.
    pub block: BlockSize,
    /// Block size of all disks, in bytes. If it is larger than the volume's, a write also rewrites
    /// neighboring blocks.
    pub disk_block: u32,
    /// Each pool has two disks, and its volumes use both.
    pub two_disks: bool,
    /// How the disk of one copy lies at the end of the run, which a comparison must find.
    pub rot: Option<Rot>,
    /// Where a second volume is stored, if there is one.
    pub beside: Option<Beside>,
    /// Whether the first and the second volume are log-structured; otherwise they are thick.
    pub logs: [bool; 2],
    /// Thick volumes have checksums: only on disks whose blocks are as large as what has one, so that all
    /// else stays the same.
    pub checksums: bool,
    /// Now and then another volume takes all space of a node's pool for a while.
    pub fills: bool,
    /// Now and then a volume is converted to the other kind.
    pub converts: bool,
    /// Now and then something rots in the logs of a node, or a write there is lost.
    pub rots: bool,
    /// Now and then a snapshot of a volume, or of all volumes, is taken, read or deleted.
    pub snapshots: bool,
    /// Now and then volumes are restored to a snapshot.
    pub restores: bool,
    /// What hosts do.
    pub load: Load,
    /// The types of reservations by which hosts are fenced off.
    pub reservations: Vec<ReservationType>,
    /// The faults, each with its weight relative to the others.
    pub harms: Vec<(&'static Harm, u64)>,
    /// Number of faults.
    pub times: u32,
    /// Longest time until the next fault.
    pub gap: Duration,
    /// How much faster than true time each node's clock runs, in parts per million.
    pub drifts: Vec<i32>,
    /// On which nodes reads are confirmed (R24). Only the clocks of these stop: elsewhere a stopped clock is
    /// a known risk.
    pub confirms: Vec<bool>,
    /// A clock that leaps after its machine stood still may leap by more than the missed time, if reads are
    /// confirmed on all other nodes.
    pub leaps_too_far: bool,
    /// Longest delay of a packet.
    pub delay: Duration,
    /// Longest read of each node's disk. Where reads take long, other things happen during a read.
    pub reads: Vec<Duration>,
    /// One packet in this many finds its connection broken; 0: none.
    pub break_one_in: u64,
}

/// The number of hosts of each kind.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Average time that a host waits between two commands. With it, short and long runs do about the same
    /// amount of I/O.
    pub pause: Duration,
    /// Hosts that share blocks, each through one node.
    pub single: u64,
    /// They share few blocks, so that their commands often overlap.
    pub narrow: bool,
    /// Hosts with blocks of their own, through all nodes.
    pub owners: u64,
    /// Hosts that exchange blocks by COMPARE AND WRITE.
    pub exchangers: u64,
    /// Hosts that another host fences off.
    pub writers: u64,
    /// Hosts that register on a unit where no host is fenced off.
    pub registrants: u64,
    /// Hosts that share blocks of the second volume, each through one node.
    pub beside: u64,
}

impl Plan {
    /// The plan of a seed.
    ///
    /// Each plan leaves out some faults and has its own weights for the rest: faults hide each other, and
    /// what one seed never meets, another meets all the time ("swarm testing", ISSTA 2012).
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
        // Leases assume that clocks differ from each other by no more than one part in a hundred.
        let drift = [0, 500, 5_000][rng.below(3) as usize];
        let drifts = (0..nodes).map(|_| rng.below(2 * drift + 1) as i32 - drift as i32).collect();
        let reads =
            (0..nodes).map(|_| Duration::from_micros([150, 150, 3_000, 60_000][rng.below(4) as usize]));
        let reads = reads.collect();
        let cores = 1 + rng.below(2) as usize;
        let witness = nodes == 2 && rng.one_in(2);
        let forks = nodes == 2 && !witness && part_of(seed, "forks").one_in(2);
        let two_disks = part_of(seed, "disks").one_in(4);
        let (beside, logs) = (draw_beside(seed), draw_logs(seed));
        let spare_disks = two_disks && has_pool_without_logs(beside, logs);
        let fills = draw_fills(seed, forks, spare_disks);
        let converts = draw_converts(seed, fills, spare_disks);
        let rots = draw_rots(seed, forks, converts);
        let snapshots = draw_snapshots(seed, forks, rots);
        // A snapshot of both volumes shows more, if both can have one. (What a disk may do depends on whether
        // each volume is a log only where there are two disks.)
        let logs = if snapshots && !two_disks { [true; 2] } else { logs };
        let (harms, confirms) = (draw_harms(seed, forks, spare_disks), draw_confirms(seed, nodes));
        let leaps_too_far = may_leap_too_far(&harms, &confirms);
        let disk_block = if part_of(seed, "disk block").one_in(2) { 4096 } else { 512 };
        Plan {
            reads,
            seed,
            nodes,
            cores,
            witness,
            forks,
            raft: rng.one_in(2),
            block: if rng.one_in(4) { BlockSize::B512 } else { BlockSize::B4096 },
            disk_block,
            two_disks,
            rot: draw_rot(seed),
            beside,
            logs,
            // A volume that was a log has none.
            checksums: disk_block == 4096 && !converts && part_of(seed, "verified").one_in(4),
            fills,
            converts,
            rots,
            snapshots,
            restores: draw_restores(seed, snapshots),
            load,
            reservations: draw_reservations(seed),
            harms,
            times,
            gap,
            drifts,
            confirms,
            leaps_too_far,
            delay: Duration::from_micros([100, 300, 3000][rng.below(3) as usize]),
            break_one_in: [0, 0, 20_000][rng.below(3) as usize],
        }
    }

    /// The plan without one of its parts: a fault, by its name, or one of [`PARTS`].
    ///
    /// Nothing happens in place of the fault, so that the run is the same until then.
    ///
    /// # Panics
    /// If the plan does not have this part.
    pub fn without(&self, part: &str) -> Plan {
        assert!(self.has(part), "the plan of seed {} has no part called {part}", self.seed);
        let mut plan = self.clone();
        match part {
            LARGE_DISK_BLOCKS => (plan.disk_block, plan.checksums) = (512, false),
            TWO_DISKS => plan.two_disks = false,
            LEAPS_TOO_FAR => plan.leaps_too_far = false,
            FULL_POOLS => plan.fills = false,
            CONVERSIONS => plan.converts = false,
            ROT_IN_LOGS => plan.rots = false,
            SNAPSHOTS => (plan.snapshots, plan.restores) = (false, false),
            RESTORES => plan.restores = false,
            // Then there is no log volume whose pool could be full, and no volume becomes one.
            LOGS => {
                (plan.logs, plan.fills, plan.converts) = ([false; 2], false, false);
                (plan.rots, plan.snapshots, plan.restores) = (false, false, false);
            }
            // Each becomes the type that only registrants pass, so that their number stays the same.
            ALL_REGISTRANTS => plan.reservations.iter_mut().for_each(|kind| *kind = registrants_only(*kind)),
            part if self.lies_by(part) => plan.rot = None,
            _ => {}
        }
        for (harm, _) in plan.harms.iter_mut().filter(|(harm, _)| harm.name == part) {
            *harm = &harm::NOTHING;
        }
        plan
    }

    /// Whether the plan has this part.
    pub fn has(&self, part: &str) -> bool {
        self.harms.iter().any(|(harm, _)| harm.name == part)
            || part == LARGE_DISK_BLOCKS && self.disk_block > self.block.bytes()
            || part == TWO_DISKS && self.two_disks
            || part == LEAPS_TOO_FAR && self.leaps_too_far
            || self.lies_by(part)
            || part == FULL_POOLS && self.fills
            || part == CONVERSIONS && self.converts
            || part == ROT_IN_LOGS && self.rots
            || part == SNAPSHOTS && self.snapshots
            || part == RESTORES && self.restores
            || part == LOGS && (self.logs[0] || self.logs[1] && self.beside.is_some())
            || part == ALL_REGISTRANTS && self.fences_by_all_registrants()
    }

    /// Whether a disk lies in the way of this name at the end of the run.
    fn lies_by(&self, name: &str) -> bool {
        self.rot.is_some_and(|rot| rot.name() == name)
    }

    /// The network of the run.
    pub fn net_profile(&self) -> NetProfile {
        NetProfile {
            delay: Duration::from_micros(20)..self.delay,
            break_one_in: self.break_one_in,
            ..NetProfile::default()
        }
    }

    /// Whether a host may fence off others by a reservation that all registrants hold.
    fn fences_by_all_registrants(&self) -> bool {
        use ReservationType::{ExclusiveAccessAllRegistrants, WriteExclusiveAllRegistrants};
        let of_all = |kind: &_| matches!(kind, WriteExclusiveAllRegistrants | ExclusiveAccessAllRegistrants);
        self.load.writers > 0 && self.reservations.iter().any(of_all)
    }

    /// Whether pools are in files, whose file system may be full; otherwise they are on block devices.
    pub fn has_pools_in_files(&self) -> bool {
        self.harms.iter().any(|(harm, _)| harm.name == harm::FULL.name)
    }

    /// Whether volumes may grow.
    pub fn grows(&self) -> bool {
        self.harms.iter().any(|(harm, _)| harm.name == harm::GROW.name)
    }

    /// Whether a disk under a log may fail: then the log need not open, and may lose a part of its map.
    ///
    /// Bad blocks are those of thick volumes; a conversion may give their place to a log.
    pub fn harms_logs(&self) -> bool {
        self.costs_full_copies() || self.converts && self.has(harm::BAD.name)
    }

    /// Whether a copy may need a full resync.
    pub fn costs_full_copies(&self) -> bool {
        self.harms.iter().any(|(harm, _)| harm.costs_full_copies)
    }
}

/// Draws the weight of each fault.
///
/// The weight depends only on the seed and the fault's name, so that a new fault does not change plans
/// without it.
fn draw_harms(seed: u64, forks: bool, spare_disks: bool) -> Vec<(&'static Harm, u64)> {
    let may_cost_full_copies = part_of(seed, "full copies").one_in(3);
    let can = harm::ALL.iter().filter(|harm| harm.plans.has(forks, spare_disks));
    let can = can.filter(|harm| may_cost_full_copies || !harm.costs_full_copies);
    let drawn = can.map(|harm| {
        let mut rng = part_of(seed, harm.name);
        (harm, harm.weight * harm.measures[rng.below(harm.measures.len() as u64) as usize])
    });
    drawn.filter(|(_, weight)| *weight > 0).collect()
}

/// Draws the nodes on which reads are confirmed.
///
/// In half of all plans there are none: confirmed reads need no leases, and the runs must notice mistakes in
/// the rules of leases.
fn draw_confirms(seed: u64, nodes: usize) -> Vec<bool> {
    let mut rng = part_of(seed, "confirms");
    let some = rng.one_in(2);
    (0..nodes).map(|_| some && !rng.one_in(3)).collect()
}

/// Whether a clock leaps in this plan, and on some node it may leap too far.
fn may_leap_too_far(harms: &[(&Harm, u64)], confirms: &[bool]) -> bool {
    let confirmed = confirms.iter().filter(|confirmed| **confirmed).count();
    harms.iter().any(|(harm, _)| harm.name == harm::LEAP.name) && confirmed + 1 >= confirms.len()
}

/// Replaces a type of all registrants by the one that differs only in who holds the reservation.
fn registrants_only(kind: ReservationType) -> ReservationType {
    match kind {
        ReservationType::WriteExclusiveAllRegistrants => ReservationType::WriteExclusiveRegistrantsOnly,
        ReservationType::ExclusiveAccessAllRegistrants => ReservationType::ExclusiveAccessRegistrantsOnly,
        other => other,
    }
}

/// Draws the types of reservations: all of them, or one.
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

/// Whether some volume is drawn as a log.
fn has_logs(seed: u64) -> bool {
    let [first, second] = draw_logs(seed);
    first || second && draw_beside(seed).is_some()
}

/// Whether the volumes of some pool are all thick.
fn has_pool_without_logs(beside: Option<Beside>, [first, second]: [bool; 2]) -> bool {
    match beside {
        None => !first,
        Some(Beside::SamePool) => !first && !second,
        Some(Beside::OwnPool) => !first || !second,
    }
}

/// Draws whether pools are full for a while, in plans with log volumes.
///
/// Disks and nodes with a copy that is lost, set back or left behind would bring back the volumes that fill
/// pools, or lose them. A disk cannot leave a full pool.
fn draw_fills(seed: u64, forks: bool, spare_disks: bool) -> bool {
    let costs_full_copies =
        || draw_harms(seed, forks, spare_disks).iter().any(|(harm, _)| harm.costs_full_copies);
    has_logs(seed) && !forks && !spare_disks && part_of(seed, FULL_POOLS).one_in(2) && !costs_full_copies()
}

/// Draws whether volumes are converted while they are in use.
///
/// No disk leaves a pool while one of its volumes is being converted, and if one has become a log volume, the
/// other disk is too small for its zones. In all plans with full pools they are: a conversion has to wait for
/// space there.
fn draw_converts(seed: u64, fills: bool, spare_disks: bool) -> bool {
    fills || !spare_disks && part_of(seed, CONVERSIONS).one_in(4)
}

/// Draws whether something rots in logs, in plans that have some.
///
/// Nodes are killed for that while the others are well, so none may have continued alone.
fn draw_rots(seed: u64, forks: bool, converts: bool) -> bool {
    (has_logs(seed) || converts) && !forks && part_of(seed, ROT_IN_LOGS).one_in(2)
}

/// Draws whether snapshots are taken, in plans that have logs.
///
/// In a plan with forks, what a node takes that continues alone may be settled away. What has rotted in a
/// snapshot is not repaired from another copy yet.
fn draw_snapshots(seed: u64, forks: bool, rots: bool) -> bool {
    has_logs(seed) && !forks && !rots && part_of(seed, "snapshots of sets").one_in(3)
}

/// Draws whether volumes are restored, in plans with snapshots.
///
/// After that, a copy that was away needs a full resync. Plans without restores check that there is none.
fn draw_restores(seed: u64, snapshots: bool) -> bool {
    snapshots && part_of(seed, "restoring").one_in(2)
}

/// Random numbers for one part of a plan, independent of what is drawn for other parts.
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
        if self.fills {
            writeln!(f, "  pools are full for a while")?;
        }
        if self.converts {
            writeln!(f, "  volumes are converted")?;
        }
        if self.rots {
            writeln!(f, "  logs rot")?;
        }
        if self.snapshots {
            writeln!(f, "  snapshots are taken and deleted")?;
        }
        if self.restores {
            writeln!(f, "  volumes are restored")?;
        }
        if self.checksums {
            writeln!(f, "  thick volumes have checksums")?;
        }
        write!(
            f,
            "  packets take up to {delay:?}, one in {break_one_in} breaks; drifts {:?}; reads up to {:?}, confirmed {:?}",
            self.drifts, self.reads, self.confirms
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_without_logs_has_none_by_conversion_either() {
        let plans = (0..200).map(Plan::from_seed).filter(|plan| plan.has(LOGS));
        let plans: Vec<Plan> = plans.map(|plan| plan.without(LOGS)).collect();
        assert!(!plans.is_empty());
        assert!(!plans.iter().any(|plan| plan.has(LOGS) || plan.fills || plan.converts));
    }

    #[test]
    fn plans_with_snapshots_have_logs_and_some_have_sets_of_two() {
        let plans: Vec<Plan> = (0..400).map(Plan::from_seed).filter(|plan| plan.snapshots).collect();
        assert!(plans.iter().any(|plan| plan.beside.is_some() && plan.logs == [true; 2]));
        assert!(plans.iter().all(|plan| plan.has(LOGS) && !plan.forks && !plan.rots));
    }

    #[test]
    fn only_some_plans_with_snapshots_have_restores() {
        let plans: Vec<Plan> = (0..200).map(Plan::from_seed).collect();
        assert!(plans.iter().all(|plan| plan.snapshots || !plan.restores));
        for restores in [false, true] {
            let has = |plan: &&Plan| plan.snapshots && plan.restores == restores;
            assert!(plans.iter().filter(has).count() >= 5);
        }
        let with = plans.iter().filter(|plan| plan.restores);
        assert!(with.clone().any(|plan| !plan.harms_logs()) && with.clone().any(|plan| plan.nodes == 3));
        assert!(!with.map(|plan| plan.without(SNAPSHOTS)).any(|plan| plan.has(RESTORES)));
    }

    /// A disk cannot leave a pool with a log, nor can one of two be set back alone: these faults know only
    /// which volumes began as logs.
    #[test]
    fn only_pools_of_one_disk_or_with_a_log_have_conversions() {
        let converts = (0..200).map(Plan::from_seed).filter(|plan| plan.converts);
        let converts: Vec<Plan> = converts.collect();
        assert!(!converts.is_empty());
        let well = |plan: &Plan| !plan.two_disks || !has_pool_without_logs(plan.beside, plan.logs);
        assert!(converts.iter().all(well));
    }
}
