//! Faults, as a plan has them.

mod moments;

use std::collections::BTreeMap;
use std::time::Duration;

use base::Rng;
use cluster::memory::Fault;
use node::Handle;
use node::control::LastWill;
use rt::CoreId;
use rt::sim::{DiskFaults, DiskLatency, NodeId, NodeStatus};

use crate::cluster::{Cluster, DISK};
use crate::history::History;
use crate::inside::Inside;
use crate::load::{Counts, Hurry};
use crate::media::Media;
use crate::plan::{Harm, Plan};
use crate::record::Record;

/// How long a paused process stands still at most: longer than a lease.
const PAUSE_MAX_MILLIS: u64 = 3000;
/// How long the pool of a disk that is well again may take to be opened anew.
const REOPENS_WITHIN: Duration = Duration::from_secs(10);
/// How long the news of a death is carried.
const TELL_MAX: Duration = Duration::from_secs(2);

/// What is wrong at the moment, and what the world is told of it.
pub struct Harms<'a> {
    /// The nodes.
    pub cluster: &'a Cluster,
    /// What hosts have seen.
    pub history: &'a History,
    /// Where sectors are.
    pub media: &'a Media,
    /// Looks into nodes.
    pub inside: &'a Inside<'a>,
    /// What is planned.
    pub plan: &'a Plan,
    /// Machines of hosts.
    pub hosts: &'a [NodeId],
    /// What happened.
    pub counts: &'a Counts,
    /// Has hosts hurry.
    hurry: &'a Hurry,
    /// Links between nodes (and the witness) that are cut, from and to.
    cut: Vec<(NodeId, NodeId)>,
    /// Nodes that do not reach the record though the network would let them.
    record_gone: Vec<usize>,
    /// Which nodes hear of no changes of the record.
    news_held: Vec<bool>,
    /// Paused nodes, and until when.
    paused: Vec<(usize, Duration)>,
    /// Nodes that were told to stop and have not ended.
    stopping: Vec<usize>,
    /// Nodes whose pools are being opened anew in the end, since when.
    reopening: BTreeMap<usize, Duration>,
    /// Disks that lie: a mistake that is to be noticed.
    disks_lie: bool,
}

impl<'a> Harms<'a> {
    /// All is well.
    pub fn new(
        cluster: &'a Cluster,
        history: &'a History,
        inside: &'a Inside<'a>,
        plan: &'a Plan,
        hosts: &'a [NodeId],
        counts: &'a Counts,
        hurry: &'a Hurry,
    ) -> Harms<'a> {
        Harms {
            plan,
            cluster,
            history,
            media: inside.media,
            inside,
            hosts,
            counts,
            hurry,
            cut: Vec::new(),
            record_gone: Vec::new(),
            news_held: vec![false; cluster.servers.len()],
            paused: Vec::new(),
            stopping: Vec::new(),
            reopening: BTreeMap::new(),
            disks_lie: false,
        }
    }

    /// From now on no flush of any disk promises anything.
    pub fn have_disks_lie(&mut self) {
        self.disks_lie = true;
        (0..self.cluster.servers.len()).for_each(|index| self.set_disk_faults(index, DiskFaults::default()));
    }

    /// Does it to somebody, if it can be done.
    pub fn happen(&mut self, harm: Harm, rng: &mut Rng) {
        let nodes = self.cluster.servers.len() as u64;
        let index = rng.below(nodes) as usize;
        let other = (index + 1 + rng.below(nodes - 1) as usize) % nodes as usize;
        if self.carry_out(harm, index, other, rng) {
            self.counts.count(name(harm));
            self.cluster.world.note(format!("{harm:?} {} {}", index + 1, other + 1));
        }
        self.reach_record();
    }

    fn carry_out(&mut self, harm: Harm, index: usize, other: usize, rng: &mut Rng) -> bool {
        let cluster = self.cluster;
        let (world, machine) = (&cluster.world, cluster.servers[index].machine);
        let up = matches!(cluster.status(index), NodeStatus::Running | NodeStatus::Paused);
        match harm {
            Harm::Kill => {
                world.kill(machine);
                up
            }
            Harm::KillAndTell if cluster.is_started(index) => self.kill_and_tell(index),
            Harm::LastWords if up => {
                self.speak_last_words(index, other, rng);
                true
            }
            Harm::PowerLoss if up => {
                self.power_loss(&[index]);
                true
            }
            Harm::BlackOut => {
                self.power_loss(&(0..cluster.servers.len()).collect::<Vec<_>>());
                true
            }
            Harm::Start => match (0..cluster.servers.len())
                .map(|at| (at + index) % cluster.servers.len())
                .find(|at| self.is_down(*at))
            {
                Some(index) => {
                    self.start(index);
                    true
                }
                None => false,
            },
            Harm::Stop if cluster.is_started(index) => {
                let handle = Handle::new(world.handle(machine));
                drop(world.spawn_on(cluster.watcher, CoreId(0), move || async move { handle.drain().await }));
                self.stopping.push(index);
                true
            }
            Harm::Pause if cluster.status(index) == NodeStatus::Running => {
                world.pause(machine);
                let until = world.now() + Duration::from_millis(rng.below(PAUSE_MAX_MILLIS));
                self.paused.push((index, until));
                true
            }
            Harm::Cut | Harm::CutOneWay => {
                let to = cluster.witness.filter(|_| rng.one_in(3)).unwrap_or(cluster.servers[other].machine);
                let both = harm == Harm::Cut;
                let (from, to) = if rng.one_in(2) { (machine, to) } else { (to, machine) };
                self.cut(from, to);
                if both {
                    self.cut(to, from);
                }
                true
            }
            Harm::Isolate => {
                let machines = cluster.servers.iter().map(|server| server.machine).chain(cluster.witness);
                for other in machines.filter(|other| *other != machine).collect::<Vec<_>>() {
                    self.cut(machine, other);
                    self.cut(other, machine);
                }
                true
            }
            Harm::Lapse if cluster.is_started(index) && cluster.is_in_sync(index) => {
                self.let_lapse(index, rng);
                true
            }
            Harm::Stutter => {
                self.stutter(rng);
                true
            }
            Harm::Turn => self.turn(index, rng),
            Harm::CutHost => {
                let host = self.hosts[rng.below(self.hosts.len() as u64) as usize];
                let (from, to) = if rng.one_in(2) { (host, machine) } else { (machine, host) };
                world.cut_one_way(from, to);
                if rng.one_in(2) {
                    world.cut_one_way(to, from);
                }
                true
            }
            Harm::Heal => {
                world.heal_all();
                self.cut.clear();
                true
            }
            Harm::Break => world.break_connections(machine, cluster.servers[other].machine) > 0,
            Harm::SlowDisk => {
                // Some are so slow that a node is lost and back before an answer comes.
                let max = [300, 300, 3_000][rng.below(3) as usize];
                let slow = Duration::from_millis(1 + rng.below(max));
                let latency = DiskLatency {
                    spike_one_in: 1 + rng.below(50),
                    spike: slow / 4..slow,
                    ..self.latency(index)
                };
                world.set_disk_latency(machine, DISK, latency);
                true
            }
            Harm::FailingDisk => {
                let mut one_in = || if rng.one_in(2) { 1 + rng.below(10) } else { 0 };
                let faults = DiskFaults {
                    read_error_one_in: one_in(),
                    write_error_one_in: one_in(),
                    flush_error_one_in: one_in(),
                    ..DiskFaults::default()
                };
                self.set_disk_faults(index, faults);
                true
            }
            Harm::WellDisks => {
                self.make_disks_well();
                self.reopen_pools();
                true
            }
            Harm::RecordGone => {
                self.record_gone.push(index);
                true
            }
            Harm::AnswersLost => {
                cluster.record.begin(number(index), Fault::AnswersLost);
                true
            }
            Harm::WatchHeld => {
                self.news_held[index] = true;
                cluster.record.begin(number(index), Fault::WatchHeld);
                true
            }
            Harm::RecordBack => {
                self.make_record_well();
                true
            }
            Harm::KillAndTell
            | Harm::Lapse
            | Harm::LastWords
            | Harm::PowerLoss
            | Harm::Stop
            | Harm::Pause => false,
        }
    }

    fn start(&mut self, index: usize) {
        self.stopping.retain(|stopping| *stopping != index);
        self.cluster.start(index);
    }

    fn is_down(&self, index: usize) -> bool {
        matches!(self.cluster.status(index), NodeStatus::Off | NodeStatus::Ended)
    }

    fn kill_and_tell(&mut self, index: usize) -> bool {
        let cluster = self.cluster;
        let (world, machine) = (&cluster.world, cluster.servers[index].machine);
        // One that was told to stop may have ended by now.
        if !cluster.is_started(index) {
            return false;
        }
        let will: Option<LastWill> = cluster.control(index, |control| async move { control.last_will() });
        if cluster.status(index) != NodeStatus::Running {
            return false;
        }
        world.kill(machine);
        if let Some(will) = will {
            drop(world.spawn_on(cluster.watcher, CoreId(0), move || async move {
                // Who is not reached learns of it by silence.
                let _ = will.carry_out(None, TELL_MAX).await;
            }));
        }
        true
    }

    /// Takes the power of these nodes away at once, and looks at their disks.
    fn power_loss(&self, indices: &[usize]) {
        let cluster = self.cluster;
        let in_sync: Vec<usize> =
            indices.iter().copied().filter(|index| cluster.is_in_sync(*index)).collect();
        indices.iter().for_each(|index| cluster.world.crash(cluster.servers[*index].machine));
        for index in in_sync {
            self.counts.count("disk of a copy in sync after a power loss");
            self.media.check(cluster, index, self.history);
        }
    }

    fn is_cut(&self, one: NodeId, other: NodeId) -> bool {
        self.cut.iter().any(|link| *link == (one, other) || *link == (other, one))
    }

    fn cut(&mut self, from: NodeId, to: NodeId) {
        self.cluster.world.cut_one_way(from, to);
        self.cut.push((from, to));
    }

    fn set_disk_faults(&self, index: usize, faults: DiskFaults) {
        let faults = DiskFaults { lies: self.disks_lie, ..faults };
        self.cluster.world.set_disk_faults(self.cluster.servers[index].machine, DISK, faults);
    }

    fn latency(&self, index: usize) -> DiskLatency {
        DiskLatency { read: Duration::from_micros(60)..self.plan.reads[index], ..DiskLatency::default() }
    }

    /// All disks are as the plan has them.
    pub fn make_disks_well(&self) {
        self.make_disks_fast();
        (0..self.cluster.servers.len()).for_each(|index| self.set_disk_faults(index, DiskFaults::default()));
    }

    fn make_disks_fast(&self) {
        for (index, server) in self.cluster.servers.iter().enumerate() {
            self.cluster.world.set_disk_latency(server.machine, DISK, self.latency(index));
        }
    }

    fn make_record_well(&mut self) {
        self.record_gone.clear();
        self.news_held.fill(false);
        for index in 0..self.cluster.servers.len() {
            self.cluster.record.end(number(index), Fault::AnswersLost);
            self.cluster.record.end(number(index), Fault::WatchHeld);
        }
    }

    /// Where the record is the simulator's, a node reaches it if it reaches, both ways, more than half of the votes, its own among them: what Raft would make
    /// of the network.
    fn reach_record(&self) {
        let cluster = self.cluster;
        let raft = matches!(*cluster.record, Record::Raft(_));
        let machines: Vec<NodeId> = cluster.servers.iter().map(|server| server.machine).collect();
        let votes: Vec<NodeId> = match (machines.len(), cluster.witness) {
            (2, None) => vec![machines[0]],
            (_, witness) => machines.iter().copied().chain(witness).collect(),
        };
        for (index, machine) in machines.iter().enumerate() {
            let reached = |vote: &&NodeId| {
                let runs = cluster.world.status(**vote) == NodeStatus::Running;
                runs && (*vote == machine || !self.is_cut(*machine, **vote))
            };
            let majority = votes.iter().filter(reached).count() * 2 > votes.len();
            if (majority || raft) && !self.record_gone.contains(&index) {
                cluster.record.end(number(index), Fault::Unreachable);
            } else {
                cluster.record.begin(number(index), Fault::Unreachable);
            }
        }
    }

    /// Lets paused nodes go on whose time has come.
    pub fn resume_due(&mut self) {
        let (cluster, now) = (self.cluster, self.cluster.world.now());
        self.paused.retain(|(index, until)| {
            if cluster.status(*index) != NodeStatus::Paused {
                return false;
            }
            let due = *until <= now;
            if due {
                cluster.world.resume(cluster.servers[*index].machine);
            }
            !due
        });
        self.reach_record();
    }

    /// Ends all faults. Nodes that are down, and those whose disks had failed, are started in the next moments by [`Harms::look_after`].
    pub fn end(&mut self) {
        let world = &self.cluster.world;
        world.heal_all();
        self.cut.clear();
        self.make_disks_well();
        self.make_record_well();
        for (index, _) in std::mem::take(&mut self.paused) {
            if self.cluster.status(index) == NodeStatus::Paused {
                world.resume(self.cluster.servers[index].machine);
            }
        }
        self.reach_record();
    }

    /// Whether a node that was told to stop is still there.
    pub fn is_stopping(&self) -> bool {
        !self.stopping.is_empty()
    }

    /// Whether somebody has to look after the pool of a node, which is not about to end.
    fn pool_failed(&self, index: usize) -> bool {
        self.cluster.is_started(index) && !self.stopping.contains(&index) && self.cluster.pool_failed(index)
    }

    /// Opens anew the pools that do not work, as an administrator does when a disk is well again.
    fn reopen_pools(&self) {
        for index in 0..self.cluster.servers.len() {
            if self.pool_failed(index) {
                self.counts.count("pool opened anew");
                self.cluster.reopen_pool(index);
            }
        }
    }

    /// Starts nodes that are down, and anew those whose pools do not work and could not be opened anew.
    pub fn look_after(&mut self) {
        let (cluster, now) = (self.cluster, self.cluster.world.now());
        for (index, server) in cluster.servers.iter().enumerate() {
            if self.pool_failed(index) {
                match self.reopening.get(&index) {
                    None => {
                        self.counts.count("pool opened anew");
                        cluster.reopen_pool(index);
                        self.reopening.insert(index, now);
                    }
                    Some(began) if now - *began < REOPENS_WITHIN => {}
                    Some(_) => {
                        self.counts.count("pool not opened anew");
                        cluster.world.kill(server.machine);
                        self.reopening.remove(&index);
                    }
                }
            }
            if self.is_down(index) {
                self.start(index);
            }
        }
        self.reach_record();
    }
}

fn number(index: usize) -> cluster::NodeId {
    cluster::NodeId::new(index as u16 + 1).expect("not 0")
}

/// What it is counted under.
pub fn name(harm: Harm) -> &'static str {
    match harm {
        Harm::Kill => "kill",
        Harm::KillAndTell => "kill that is told",
        Harm::LastWords => "last words",
        Harm::PowerLoss => "power loss",
        Harm::BlackOut => "black-out",
        Harm::Start => "start",
        Harm::Stop => "orderly stop",
        Harm::Pause => "pause",
        Harm::Cut => "cut",
        Harm::CutOneWay => "cut one way",
        Harm::Isolate => "isolation",
        Harm::Lapse => "lapse",
        Harm::Stutter => "stutter",
        Harm::Turn => "turn",
        Harm::CutHost => "cut of a host",
        Harm::Heal => "heal",
        Harm::Break => "reset of links",
        Harm::SlowDisk => "slow disk",
        Harm::FailingDisk => "failing disk",
        Harm::WellDisks => "well disks",
        Harm::RecordGone => "record gone",
        Harm::AnswersLost => "answers of the record lost",
        Harm::WatchHeld => "watch of the record held",
        Harm::RecordBack => "record back",
    }
}
