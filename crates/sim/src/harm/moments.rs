//! Harm that is over when it has happened: moments in which what somebody sees may be what nobody should.

use std::ops::Range;
use std::time::Duration;

use base::Rng;
use cluster::memory::Fault;
use rt::sim::{DiskLatency, NodeId, NodeStatus};

use super::{Harms, number};
use crate::cluster::DISK;

/// How long some others do not hear a node before it dies, and how long hosts look closely at what becomes of that.
const LAST_WORDS_MAX: Duration = Duration::from_millis(10);
const AFTER_LAST_WORDS: Duration = Duration::from_millis(60);
/// How often something is held up when the network stutters, and how long at most: not for as long that anybody is missed.
const STUTTERS: usize = 10;
const STUTTER_MAX: Duration = Duration::from_millis(60);
/// How long hosts hurry before: what they had under way comes to its end.
const BEFORE_STUTTER: Duration = Duration::from_millis(4);
/// How long a node is cut off at most for others to go on without it, and how often it is looked whether they do.
const LAPSE_MAX: Duration = Duration::from_secs(2);
const LAPSE_LOOK: Duration = Duration::from_millis(20);
/// After so long at most its leases have run out, and hosts hurry for a moment: what they ask for then waits for leases.
const UNLEASED_MAX: Duration = Duration::from_millis(800);
const LAPSE_HURRY: Duration = Duration::from_millis(30);
/// For so long it may be cut off yet when it is no member any more: its leases run out meanwhile, and the others act without it.
const LAPSED_MAX: Duration = Duration::from_millis(1200);
/// How long it takes at most until it is in sync again, where nothing else happens.
const BACK_MAX: Duration = Duration::from_secs(4);
/// In a turn a node leaves, joins, and comes in sync.
const TURNS: usize = 3;
/// What disks take for reads and for flushes meanwhile, in milliseconds: what one node does in an instant takes another longer than a change of members.
const PACES: [Range<u64>; 3] = [1..2, 1..20, 20..80];
/// How long each of these may take to come about.
const TURN_MAX: Duration = Duration::from_secs(3);
/// How long hosts hurry before the nodes hear of it.
const BEFORE_TURN: Duration = Duration::from_millis(60);

impl Harms<'_> {
    /// What the node says last reaches some of the others only.
    pub(super) fn speak_last_words(&self, index: usize, other: usize, rng: &mut Rng) {
        let (world, servers) = (&self.cluster.world, &self.cluster.servers);
        let (machine, deaf) = (servers[index].machine, servers[other].machine);
        let was_cut = self.is_cut(machine, deaf);
        self.hurry.begin(index);
        self.inside.run_for(LAST_WORDS_MAX);
        world.cut_one_way(machine, deaf);
        self.inside.run_for(Duration::from_micros(rng.below(LAST_WORDS_MAX.as_micros() as u64)));
        world.break_connections(machine, deaf);
        if rng.one_in(2) {
            self.power_loss(&[index]);
        } else {
            world.kill(machine);
        }
        if !was_cut {
            world.heal(machine, deaf);
        }
        self.inside.run_for(AFTER_LAST_WORDS);
        self.hurry.end();
    }

    /// Commands that wait at the node may be there still when it is back: it does not hear that the others have gone on without it.
    pub(super) fn let_lapse(&self, index: usize, rng: &mut Rng) {
        let (world, servers) = (&self.cluster.world, &self.cluster.servers);
        let machine = servers[index].machine;
        let others = servers.iter().map(|server| server.machine).filter(|other| *other != machine);
        let others: Vec<NodeId> = others.filter(|other| !self.is_cut(machine, *other)).collect();
        others.iter().for_each(|other| world.cut(machine, *other));
        let unheard = !rng.one_in(3) && !self.news_held[index];
        if unheard {
            self.cluster.record.begin(number(index), Fault::WatchHeld);
        }
        let until = world.now() + LAPSE_MAX;
        self.inside.run_for(Duration::from_micros(rng.below(UNLEASED_MAX.as_micros() as u64)));
        self.hurry.begin(index);
        self.inside.run_for(LAPSE_HURRY);
        self.hurry.end();
        while self.cluster.is_in_sync(index) && world.now() < until {
            self.inside.run_for(LAPSE_LOOK);
        }
        if unheard {
            self.inside.run_for(Duration::from_micros(rng.below(LAPSED_MAX.as_micros() as u64)));
            self.cluster.record.end(number(index), Fault::WatchHeld);
        }
        others.iter().for_each(|other| world.heal(machine, *other));
        let until = world.now() + BACK_MAX;
        while !self.cluster.is_in_sync(index) && world.now() < until {
            self.inside.run_for(LAPSE_LOOK);
        }
    }

    /// Holds up what nodes say to each other.
    pub(super) fn stutter(&self, rng: &mut Rng) {
        (0..STUTTERS).for_each(|_| self.hold_up(rng));
        self.hurry.end();
    }

    /// Holds up what one node says to another, unless their link is cut, while hosts of the one write.
    fn hold_up(&self, rng: &mut Rng) {
        let nodes = self.cluster.servers.len() as u64;
        let to = rng.below(nodes) as usize;
        let from = (to + 1 + rng.below(nodes - 1) as usize) % self.cluster.servers.len();
        self.hurry.begin(from);
        self.inside.run_for(BEFORE_STUTTER);
        self.hold_up_from(from, to, rng, || {});
    }

    /// Meanwhile something happens.
    fn hold_up_from(&self, from: usize, to: usize, rng: &mut Rng, happen: impl FnOnce()) {
        let (world, servers) = (&self.cluster.world, &self.cluster.servers);
        let (from, to) = (servers[from].machine, servers[to].machine);
        let for_how_long = Duration::from_micros(rng.below(STUTTER_MAX.as_micros() as u64));
        let was_cut = self.is_cut(from, to);
        if !was_cut {
            world.cut_one_way(from, to);
        }
        happen();
        self.inside.run_for(for_how_long);
        if !was_cut {
            world.heal(from, to);
        }
    }

    /// Has a node leave and come back, if it is in sync and not alone in that; or come back, if it is down. Of each change of members the nodes hear one
    /// after the other, while hosts hurry, disks take their time, and what somebody says is held up.
    pub(super) fn turn(&mut self, index: usize, rng: &mut Rng) -> bool {
        let cluster = self.cluster;
        let nodes = 0..cluster.servers.len();
        let in_sync = nodes.clone().filter(|index| cluster.is_in_sync(*index)).count();
        let leaves = cluster.is_started(index) && cluster.is_in_sync(index) && in_sync > 1;
        if !leaves && !self.is_down(index) {
            return false;
        }
        for (index, server) in cluster.servers.iter().enumerate() {
            let mut pace = || {
                let Range { start, end } = &PACES[rng.below(PACES.len() as u64) as usize];
                Duration::from_millis(*start)..Duration::from_millis(*end)
            };
            let latency = DiskLatency { read: pace(), flush: pace(), ..self.latency(index) };
            cluster.world.set_disk_latency(server.machine, DISK, latency);
        }
        for turn in usize::from(!leaves)..TURNS {
            let epoch = cluster.entry().epoch;
            let hears: Vec<usize> = nodes.clone().filter(|index| !self.news_held[*index]).collect();
            // Some changes of members come while much is under way, and are heard of at once.
            let sudden = rng.one_in(2);
            if sudden {
                self.hurry.begin(index);
                self.inside.run_for(BEFORE_TURN);
            } else {
                hears.iter().for_each(|index| cluster.record.begin(number(*index), Fault::WatchHeld));
            }
            match turn {
                0 => drop(self.kill_and_tell(index)),
                1 if self.is_down(index) => self.start(index),
                _ => {}
            }
            let until = cluster.world.now() + TURN_MAX;
            while cluster.entry().epoch == epoch && cluster.world.now() < until {
                self.inside.run_for(LAPSE_LOOK);
            }
            self.hurry.begin(index);
            self.inside.run_for(BEFORE_TURN);
            let hears = if sudden { Vec::new() } else { hears };
            let first = rng.below(hears.len().max(1) as u64) as usize;
            for at in 0..hears.len() {
                let index = hears[(first + at) % hears.len()];
                let others = cluster.servers.len() as u64 - 1;
                let from = (index + 1 + rng.below(others) as usize) % cluster.servers.len();
                let tell = || cluster.record.end(number(index), Fault::WatchHeld);
                self.hold_up_from(from, index, rng, tell);
            }
            self.inside.run_for(BEFORE_TURN);
            self.hurry.end();
        }
        self.make_disks_fast();
        matches!(cluster.status(index), NodeStatus::Running)
    }
}
