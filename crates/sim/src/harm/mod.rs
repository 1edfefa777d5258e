//! Faults, as a plan has them.
//!
//! Each file has a family of faults: their names and weights, what they do, and how they end.

mod bad_blocks;
mod clock;
mod conversion;
mod dead_disk;
mod disk;
mod forks;
mod full_disk;
mod full_pool;
mod growth;
mod kinds;
mod lapse;
mod last_words;
mod leaving;
mod log_rot;
mod network;
mod pause;
mod power;
mod process;
mod record;
mod relocation;
mod restores;
mod set_back;
mod snapshots;
mod stutter;
mod turn;
mod unharmed;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::time::Duration;

use base::Rng;
use rt::sim::{NodeId, NodeStatus};
use store::VolumeKind;

pub use self::bad_blocks::BAD;
pub use self::clock::LEAP;
pub use self::full_disk::FULL;
pub use self::growth::GROW;
pub use self::kinds::{ALL, Harm, NOTHING, Victim};
use crate::canary::Canary;
use crate::cluster::{Cluster, Pool};
use crate::history::History;
use crate::inside::Inside;
use crate::load::{Counts, Hurry};
use crate::media::Media;
use crate::plan::Plan;
use crate::snapshots::Snapshots;

/// The faults in which a node stands still, with what it holds.
pub const STANDING_STILL: [&str; 3] = [pause::PAUSE.name, clock::STOP.name, clock::LEAP.name];

/// No further copy is requested for this long.
const ASKED_FOR: Duration = Duration::from_secs(3);

/// The faults that are present, and what they need to act on the world.
pub struct Harms<'a> {
    /// The nodes.
    pub cluster: &'a Cluster,
    /// What hosts have seen, by volume.
    pub histories: &'a [History],
    /// Where sectors are on disks.
    pub media: &'a Media,
    /// Inspects the nodes.
    pub inside: &'a Inside<'a>,
    /// The plan.
    pub plan: &'a Plan,
    /// Machines of hosts.
    pub hosts: &'a [NodeId],
    /// What happened.
    pub counts: &'a Counts,
    /// All snapshots, in a plan that has some.
    pub snapshots: Option<Snapshots>,
    /// Makes hosts hurry.
    hurry: &'a Hurry,
    /// Links between nodes (and the witness) that are cut: from, to.
    cut: Vec<(NodeId, NodeId)>,
    /// Nodes that do not reach the record although the network would let them.
    record_gone: Vec<usize>,
    /// Which nodes receive no changes of the record.
    news_held: Vec<bool>,
    /// Paused nodes, and until when.
    paused: Vec<(usize, Duration)>,
    /// Nodes that were told to stop and have not ended.
    stopping: Vec<usize>,
    /// Nodes whose pools are being reopened at the end of the run, since when.
    reopening: BTreeMap<usize, Duration>,
    /// When a node was last asked to add a copy.
    asked: Cell<Option<Duration>>,
    /// A disk has a fault.
    disks_ill: Cell<bool>,
    /// A disk hangs.
    hangs: Cell<bool>,
    /// Until this time, a disk may not have answered operations from the time when it hung.
    hung_until: Cell<Duration>,
    /// The node whose disk has unreadable blocks.
    spoilt: Cell<Option<usize>>,
    /// Nodes whose disks were lost for good, until they are replaced.
    gone: Vec<(usize, Pool)>,
    /// Pools that may lack a disk, which has left them or is leaving.
    left: Vec<leaving::Left>,
    /// Volumes that fill pools.
    fillers: Vec<full_pool::Filler>,
    /// The kind of each copy when it was looked at last: by volume and node.
    kinds: BTreeMap<(usize, usize), VolumeKind>,
    /// Copies whose disks were set back.
    older: Vec<set_back::Older>,
    /// Machines of hosts that observe one fault.
    guests: RefCell<Vec<NodeId>>,
    /// Disks that lie: a mistake that the run must detect.
    lying: Vec<&'static str>,
    /// Whether nodes' clocks do not count the time for which their machine stood still: a mistake that the
    /// run must detect.
    uncounted: bool,
    /// Whether hosts use only one path: a mistake that the run must detect.
    one_path: bool,
    /// A file system may have no room.
    is_full: Cell<bool>,
}

impl<'a> Harms<'a> {
    /// No faults yet.
    pub fn new(
        cluster: &'a Cluster,
        histories: &'a [History],
        inside: &'a Inside<'a>,
        plan: &'a Plan,
        hosts: &'a [NodeId],
        counts: &'a Counts,
        hurry: &'a Hurry,
    ) -> Harms<'a> {
        Harms {
            plan,
            cluster,
            histories,
            media: inside.media,
            inside,
            hosts,
            counts,
            snapshots: None,
            hurry,
            cut: Vec::new(),
            record_gone: Vec::new(),
            news_held: vec![false; cluster.servers.len()],
            paused: Vec::new(),
            stopping: Vec::new(),
            reopening: BTreeMap::new(),
            asked: Cell::default(),
            disks_ill: Cell::default(),
            hangs: Cell::default(),
            hung_until: Cell::default(),
            spoilt: Cell::default(),
            gone: Vec::new(),
            left: Vec::new(),
            fillers: Vec::new(),
            kinds: BTreeMap::new(),
            older: Vec::new(),
            guests: RefCell::default(),
            lying: Vec::new(),
            uncounted: false,
            one_path: false,
            is_full: Cell::default(),
        }
    }

    /// Makes the mistake from now on, if it is one of the world.
    pub fn make(&mut self, canary: Option<Canary>) {
        let disks = |pools: &[Pool], first: usize| {
            pools.iter().flat_map(|pool| pool.disks.iter().skip(first)).copied().collect()
        };
        let pools = &self.cluster.pools;
        match canary {
            Some(Canary::Disks) => self.lying = disks(pools, 0),
            Some(Canary::DisksBeside) => self.lying = disks(&pools[1..], 0),
            Some(Canary::SecondDisks) => self.lying = disks(pools, 1),
            Some(Canary::Clocks) => self.uncounted = true,
            Some(Canary::OnePath) => self.one_path = true,
            _ => {}
        }
        self.make_disks_well();
    }

    /// Does this to a node, if possible; returns whether it did.
    pub fn happen(&mut self, harm: &Harm, rng: &mut Rng) -> bool {
        let nodes = self.cluster.servers.len() as u64;
        let index = rng.below(nodes) as usize;
        let other = (index + 1 + rng.below(nodes - 1) as usize) % nodes as usize;
        // Another failing disk would then be a second loss: that of the only copy with all the data.
        let is_one_too_many = harm.costs_full_copies && self.trusts_older_data();
        let done = !is_one_too_many && (harm.strike)(self, Victim { index, other }, rng);
        if done {
            self.counts.count(harm.name);
            self.cluster.world.note(format!("{harm:?} {} {}", index + 1, other + 1));
        }
        self.reach_record();
        done
    }

    /// Ends what has lasted for long enough.
    pub fn tick(&mut self) {
        ALL.iter().for_each(|harm| (harm.tick)(self));
        self.reach_record();
    }

    /// Ends all faults. [`Harms::look_after`] then does an administrator's part.
    pub fn end(&mut self) {
        ALL.iter().for_each(|harm| (harm.heal)(self));
        self.guests.take().into_iter().for_each(|guest| self.cluster.world.kill(guest));
        self.reach_record();
    }

    /// Does what an administrator does once faults have ended, and starts nodes that are down.
    pub fn look_after(&mut self) {
        ALL.iter().for_each(|harm| (harm.repair)(self));
        self.empty_pools();
        for index in 0..self.cluster.servers.len() {
            if self.is_down(index) && self.may_start(index) {
                self.start(index);
            }
        }
        self.reach_record();
    }

    /// Whether a node that was told to stop still runs.
    pub fn is_stopping(&self) -> bool {
        !self.stopping.is_empty()
    }

    /// Whether a disk that hung may still owe answers: for that, a copy in sync may be removed once more.
    pub fn has_hung(&self) -> bool {
        self.cluster.world.now() < self.hung_until.get()
    }

    fn machine(&self, index: usize) -> NodeId {
        self.cluster.servers[index].machine
    }

    fn is_up(&self, index: usize) -> bool {
        matches!(self.cluster.status(index), NodeStatus::Running | NodeStatus::Paused)
    }

    fn is_down(&self, index: usize) -> bool {
        matches!(self.cluster.status(index), NodeStatus::Off | NodeStatus::Ended)
    }
}

fn number(index: usize) -> cluster::NodeId {
    cluster::NodeId::new(index as u16 + 1).expect("not 0")
}
