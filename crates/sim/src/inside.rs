//! Compares the protocol's state in the nodes with the bytes on their disks, without passing time (A3, A4,
//! A5, A7).
//!
//! It inspects only running processes. What a node that is down believes of its disk is checked when it is
//! back. To read a log, an image of the disk is opened, which takes long: so that is done less often.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use base::{ByteLen, ByteOffset};
use node::copies::{Copies, FORK_EPOCHS, SliceCopy, StandingEntry, VolumeEntry};
use replica::{Config, Incarnation, Slot, Slots, Standing};
use rt::CoreId;
use rt::sim::NodeStatus;

use crate::cluster::{Cluster, Expects, Found, Pool};
use crate::history::value_of;
use crate::layout::SECTOR;
use crate::load::Counts;
use crate::media::Media;
use crate::onlooker::Epochs;
use crate::plan::Plan;

/// The interval of inspections.
const EVERY: Duration = Duration::from_millis(25);
/// The interval of inspections of logs, which are opened for that.
const LOGS_EVERY: Duration = Duration::from_millis(1500);

/// Counters of the first volume, of the second, and of logs.
const LOOKED_AT_EQUAL: [&str; 3] = [
    "two that may be read looked at",
    "two beside that may be read looked at",
    "two logs that may be read looked at",
];

/// As [`LOOKED_AT_EQUAL`].
const LOOKED_AT_DIFFERENT: [&str; 3] = [
    "difference of two copies looked at",
    "difference of two copies beside looked at",
    "difference of two logs looked at",
];

/// A copy of a slice: node, volume, slice.
type Place = (usize, usize, u16);

/// The inspector: see the module.
pub struct Inside<'a> {
    cluster: &'a Cluster,
    /// Where sectors are on disks.
    pub media: &'a Media,
    /// By volume.
    epochs: Vec<Epochs>,
    counts: &'a Counts,
    /// The volumes' block size, in bytes.
    block: u32,
    /// A disk under a log may fail: then the log need not open, and may have lost a part of its map.
    may_fail: bool,
    /// When logs are to be inspected.
    logs_at: Cell<Duration>,
    /// The node in whose logs something has rotted: they are left out.
    rotten: Cell<Option<usize>>,
    /// The incarnation and epoch in which each slice's copy acted last.
    acted: RefCell<BTreeMap<Place, (Incarnation, u64)>>,
    /// Volumes with which a node continued alone, and the epoch in which it did.
    forked: RefCell<BTreeSet<(usize, u64)>>,
    /// The lost sectors of each slice's copy, as of its last inspection.
    lost: RefCell<BTreeMap<Place, BTreeSet<u64>>>,
}

/// A copy of a slice at one moment.
struct Seen {
    node: usize,
    volume: usize,
    slice: u16,
    slot: Slot,
    life: Incarnation,
    config: Config,
    /// The watched sectors, by their number in the volume.
    sectors: BTreeMap<u64, Sector>,
}

struct Sector {
    /// Hosts could read what the disk holds.
    readable: bool,
    /// No copy could read it when this copy was resynced: what the disk holds is something else (R27).
    lost: bool,
    /// The other copies that may differ here, according to this one.
    dirty: Slots,
    /// What the disk holds; `None`: it was not read.
    bytes: Option<[u8; SECTOR]>,
}

impl<'a> Inside<'a> {
    /// An inspector that has inspected nothing yet.
    pub fn new(
        cluster: &'a Cluster,
        media: &'a Media,
        epochs: Vec<Epochs>,
        plan: &Plan,
        counts: &'a Counts,
    ) -> Inside<'a> {
        let (block, may_fail) = (plan.block.bytes(), plan.harms_logs());
        let (acted, forked, lost) = (RefCell::default(), RefCell::default(), RefCell::default());
        let (logs_at, rotten) = (Cell::default(), Cell::default());
        Inside { cluster, media, epochs, counts, block, may_fail, logs_at, rotten, acted, forked, lost }
    }

    /// Leaves out the logs of this node from now on, if any: what their disk holds may be older than what
    /// they know.
    pub fn leave_out_logs(&self, node: Option<usize>) {
        self.rotten.set(node);
    }

    /// Lets time pass, and inspects all copies at each interval.
    pub fn run_for(&self, duration: Duration) {
        let world = &self.cluster.world;
        let until = world.now() + duration;
        loop {
            world.run_for(EVERY.min(until.saturating_sub(world.now())));
            self.look();
            if world.now() >= until {
                return;
            }
        }
    }

    /// Inspects all copies of running processes.
    ///
    /// # Panics
    /// If a check fails, with what was violated.
    pub fn look(&self) {
        let nodes = 0..self.cluster.servers.len();
        let running = nodes.filter(|node| self.cluster.status(*node) == NodeStatus::Running);
        let now = self.cluster.world.now();
        let opens_logs = now >= self.logs_at.get();
        if opens_logs {
            self.logs_at.set(now + LOGS_EVERY);
        }
        let seen: Vec<Seen> = running.flat_map(|node| self.copies_of(node, opens_logs)).collect();
        seen.iter().for_each(|copy| self.check_acts(copy));
        seen.iter().for_each(|copy| self.note_lost(copy));
        for (x, y) in seen.iter().flat_map(|x| seen.iter().map(move |y| (x, y))) {
            if (x.volume, x.slice) == (y.volume, y.slice) && x.node != y.node {
                self.check_alone(x, y);
                self.check_equal(x, y);
                self.check_noted(x, y);
            }
        }
    }

    /// Whether a copy of the node does not act yet in the newest epoch of the record.
    pub fn is_to_act(&self, node: usize) -> bool {
        let epoch = |volume: usize| self.epochs[volume].borrow().keys().next_back().copied();
        self.copies_of(node, false).iter().any(|copy| Some(copy.config.epoch.0) < epoch(copy.volume))
    }

    fn note_lost(&self, copy: &Seen) {
        let lost = copy.sectors.iter().filter(|(_, at)| at.lost).map(|(sector, _)| *sector);
        let lost: BTreeSet<u64> = lost.collect();
        if !lost.is_empty() {
            self.counts.count("copy with lost blocks looked at");
        }
        self.lost.borrow_mut().insert((copy.node, copy.volume, copy.slice), lost);
    }

    /// Sectors of the volume that were lost on the node's copy at its last inspection.
    pub fn lost(&self, node: usize, volume: usize) -> BTreeSet<u64> {
        let lost = self.lost.borrow();
        lost.range((node, volume, 0)..=(node, volume, u16::MAX)).flat_map(|(_, lost)| lost).copied().collect()
    }

    /// What the logs of a running node hold, as far as an image of its disks opens.
    fn found_in_logs(&self, node: usize, pool: Pool) -> Found {
        match self.media.read_moving(self.cluster, node, pool, Expects::Data) {
            Ok(found) => {
                if !found.is_empty() {
                    self.counts.count("log of a running node opened");
                }
                found
            }
            Err(_) if self.may_fail => Found::new(),
            // A node that is killed now opens what is on its disks now.
            Err(error) => panic!("node {} runs, and if it were killed, {}: {error}", node + 1, pool.name),
        }
    }

    fn copies_of(&self, node: usize, opens_logs: bool) -> Vec<Seen> {
        let cluster = self.cluster;
        let machine = cluster.servers[node].machine;
        let images: Vec<_> = cluster.pools.iter().map(|pool| (*pool, cluster.disks(node, *pool))).collect();
        let opens_logs = opens_logs && self.rotten.get() != Some(node);
        let logs = cluster.pools.iter().filter(|_| opens_logs).map(|pool| self.found_in_logs(node, *pool));
        let in_logs: Found = logs.flatten().collect();
        let see = |copy: &SliceCopy| {
            let volume = cluster.volume_of(copy)?;
            let (_, images) = images.iter().find(|(pool, _)| *pool == volume.pool)?;
            let places = self.media.places(volume, node);
            let replica = copy.replica();
            let config = replica.config()?.clone();
            let sectors: Vec<u64> = match self.media.moves(volume, node) {
                true => self.media.sectors(volume).to_vec(),
                false => places.keys().copied().collect(),
            };
            let sector = |sector: &u64| {
                let offset = copy.place_of(ByteOffset(sector * SECTOR as u64))?;
                let place = places.get(sector);
                let in_log = || in_logs.get(&(volume.index, *sector)).copied();
                let bytes = place.map(|place| place.read(images)).or_else(in_log);
                let dirty = replica.map().get(offset.0 / u64::from(replica::Geometry::REGION_BYTES));
                let block = u64::from(self.block);
                let readable = copy.is_readable(ByteOffset(offset.0 - offset.0 % block), ByteLen(block));
                let lost = copy.has_lost_in(offset, ByteLen(SECTOR as u64));
                Some((*sector, Sector { readable: readable && !lost, lost, dirty, bytes }))
            };
            let sectors = sectors.iter().filter_map(sector).collect();
            let (slot, life) = (replica.me(), Copies::current().incarnation());
            let (volume, slice) = (volume.index, copy.address().slice);
            Some(Seen { node, volume, slice, slot, life, config, sectors })
        };
        let on_core = |core: usize| {
            cluster.world.inspect(machine, CoreId(core as u16), || {
                let copies = Copies::try_current().map_or_else(Vec::new, |copies| copies.slices());
                copies.iter().filter_map(|copy| see(copy)).collect::<Vec<_>>()
            })
        };
        (0..cluster.cores).flat_map(on_core).collect()
    }

    /// A7: a copy acts in the configuration that the record had in that epoch, and its epochs only grow.
    fn check_acts(&self, copy: &Seen) {
        let Seen { node, volume, slice, life, config, .. } = copy;
        let epoch = config.epoch.0;
        let before = self.acted.borrow_mut().insert((*node, *volume, *slice), (*life, epoch));
        assert!(before <= Some((*life, epoch)), "node {}: {before:?} and then {life:?} in {epoch}", node + 1);
        let epochs = self.epochs[*volume].borrow();
        // Epochs before the onlooker started are unknown.
        let Some(entry) = epochs.get(&epoch) else {
            if self.cluster.forks && epoch > FORK_EPOCHS {
                return self.check_fork(copy, &epochs);
            }
            return assert!(epochs.keys().next() > Some(&epoch), "node {} acts in epoch {epoch}", node + 1);
        };
        for (slot, state) in config.copies() {
            let recorded = entry.config(config.revision).and_then(|config| config.copy(slot));
            assert_eq!(
                recorded,
                Some(state),
                "node {} acts in another epoch {epoch} than the record's",
                node + 1
            );
        }
    }

    /// A14: a copy that acts in an epoch that the record does not have has continued alone. It was in sync in
    /// the epoch from which it continued, and in the record it still is.
    fn check_fork(&self, copy: &Seen, epochs: &BTreeMap<u64, VolumeEntry>) {
        let Seen { node, volume, slot, life, config, .. } = copy;
        let in_sync = |entry: &VolumeEntry, slot: Slot| {
            entry.copy_in(slot).is_some_and(|copy| copy.standing == StandingEntry::InSync)
        };
        let others =
            config.copies().all(|(other, state)| other == *slot || state.standing == Standing::Outside);
        assert!(
            others && config.standing(*slot, *life) == Standing::InSync(*life),
            "node {} has continued alone, and not by itself: {config:?}",
            node + 1
        );
        let parent = epochs.get(&(config.epoch.0 - FORK_EPOCHS));
        let was = |entry: &VolumeEntry| in_sync(entry, *slot);
        assert!(parent.is_none_or(was), "node {} has continued alone from {parent:?}", node + 1);
        let newest = epochs.values().next_back().expect("it began with one");
        assert!(
            in_sync(newest, *slot),
            "node {} continues alone, and the record has moved on: {newest:?}",
            node + 1
        );
        if self.forked.borrow_mut().insert((*volume, config.epoch.0)) {
            self.counts.count("fork");
        }
        self.counts.count("node that continues alone looked at");
    }

    /// A5: a copy serves no reads while another acts in a later epoch in which the first is not in sync.
    ///
    /// A node whose clock stood still relies on answers instead of leases for a while (R24). There, only what
    /// hosts read shows a violation (A1).
    fn check_alone(&self, x: &Seen, y: &Seen) {
        if self.cluster.world.now() < self.cluster.servers[x.node].misled_until.get() {
            return;
        }
        let acts = matches!(y.config.standing(y.slot, y.life), Standing::InSync(_));
        if y.config.epoch <= x.config.epoch || !acts || y.config.in_sync_incarnation(x.slot) == Some(x.life) {
            return;
        }
        let readable = x.sectors.values().any(|sector| sector.readable);
        assert!(
            !readable,
            "node {} may be read in epoch {}, and node {} acts in {} without it",
            x.node + 1,
            x.config.epoch.0,
            y.node + 1,
            y.config.epoch.0
        );
    }

    /// A3: two copies that may serve reads in one epoch have equal data.
    fn check_equal(&self, x: &Seen, y: &Seen) {
        if x.node > y.node || x.config.epoch != y.config.epoch {
            return;
        }
        let both = both(x, y).filter(|(_, at_x, at_y)| at_x.readable && at_y.readable);
        for (sector, in_x, in_y) in both.filter_map(with_bytes) {
            self.counts.count(self.looked(x, y, LOOKED_AT_EQUAL));
            assert!(
                in_x == in_y,
                "sector {sector} may be read on nodes {} and {} in one epoch, and is {:?} and {:?}",
                x.node + 1,
                y.node + 1,
                value_of(in_x),
                value_of(in_y)
            );
        }
    }

    /// A4: where a copy in sync and another copy differ, one of them has a bit for the other.
    fn check_noted(&self, x: &Seen, y: &Seen) {
        let epochs = self.epochs[x.volume].borrow();
        let newest = epochs.values().next_back().expect("it began with one");
        let in_sync = |copy: &Seen| {
            let entry = newest.copy_in(copy.slot);
            entry.is_some_and(|entry| {
                entry.standing == StandingEntry::InSync && entry.incarnation == copy.life.0
            })
        };
        if !in_sync(x) {
            return;
        }
        let known = both(x, y).filter(|(_, at_x, at_y)| !at_x.lost && !at_y.lost);
        for (both, (sector, in_x, in_y)) in known.filter_map(|both| Some((both, with_bytes(both)?))) {
            // During a restore copies differ: each notes what the others miss before hosts continue.
            if in_x == in_y || self.cluster.entry_of(&self.cluster.volumes[x.volume]).restoring.is_some() {
                continue;
            }
            let (_, at_x, at_y) = both;
            self.counts.count(self.looked(x, y, LOOKED_AT_DIFFERENT));
            assert!(
                at_x.dirty.contains(y.slot) || at_y.dirty.contains(x.slot),
                "sector {sector} differs on nodes {} and {}, and no bit says so: {:?} and {:?}",
                x.node + 1,
                y.node + 1,
                value_of(in_x),
                value_of(in_y)
            );
        }
    }

    /// The counter of sectors of this kind of volume that were looked at on these two copies.
    fn looked(&self, x: &Seen, y: &Seen, of: [&'static str; 3]) -> &'static str {
        let [first, beside, logs] = of;
        let volume = &self.cluster.volumes[x.volume];
        match self.media.moves(volume, x.node) || self.media.moves(volume, y.node) {
            true => logs,
            false if x.volume == 0 => first,
            false => beside,
        }
    }
}

/// A sector of two copies.
type Both<'a> = (u64, &'a Sector, &'a Sector);

/// What both hold, if both were read.
fn with_bytes<'a>((sector, at_x, at_y): Both<'a>) -> Option<(u64, &'a [u8; SECTOR], &'a [u8; SECTOR])> {
    Some((sector, at_x.bytes.as_ref()?, at_y.bytes.as_ref()?))
}

/// The sectors that both have.
fn both<'a>(x: &'a Seen, y: &'a Seen) -> impl Iterator<Item = Both<'a>> {
    x.sectors.iter().filter_map(|(sector, at_x)| Some((*sector, at_x, y.sectors.get(sector)?)))
}
