//! Compares the protocol's state in the nodes with the bytes on their disks, without passing time (A3, A4,
//! A5, A7).
//!
//! It inspects only running processes. What a node that is down believes of its disk is checked when it is
//! back.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use base::{BlockSize, ByteLen, ByteOffset};
use node::copies::{Copies, FORK_EPOCHS, SliceCopy, StandingEntry, VolumeEntry};
use replica::{Config, Incarnation, Slot, Slots, Standing};
use rt::CoreId;
use rt::sim::NodeStatus;

use crate::cluster::Cluster;
use crate::history::value_of;
use crate::layout::SECTOR;
use crate::load::Counts;
use crate::media::{Media, Spot};
use crate::onlooker::Epochs;

/// The interval of inspections.
const EVERY: Duration = Duration::from_millis(25);

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
    /// The sectors whose place is known, by their number in the volume.
    sectors: BTreeMap<u64, Sector>,
}

struct Sector {
    /// Hosts could read what the disk holds.
    readable: bool,
    /// No copy could read it when this copy was resynced: what the disk holds is something else (R27).
    lost: bool,
    /// The other copies that may differ here, according to this one.
    dirty: Slots,
    bytes: [u8; SECTOR],
}

impl<'a> Inside<'a> {
    /// An inspector that has inspected nothing yet.
    pub fn new(
        cluster: &'a Cluster,
        media: &'a Media,
        epochs: Vec<Epochs>,
        block: BlockSize,
        counts: &'a Counts,
    ) -> Inside<'a> {
        let (acted, forked, lost) = (RefCell::default(), RefCell::default(), RefCell::default());
        Inside { cluster, media, epochs, counts, block: block.bytes(), acted, forked, lost }
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
        let seen: Vec<Seen> = running.flat_map(|node| self.copies_of(node)).collect();
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
        self.copies_of(node).iter().any(|copy| Some(copy.config.epoch.0) < epoch(copy.volume))
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

    fn copies_of(&self, node: usize) -> Vec<Seen> {
        let cluster = self.cluster;
        let machine = cluster.servers[node].machine;
        let images: Vec<_> = cluster.pools.iter().map(|pool| (*pool, cluster.disks(node, *pool))).collect();
        let see = |copy: &SliceCopy| {
            let volume = cluster.volume_of(copy)?;
            let (_, images) = images.iter().find(|(pool, _)| *pool == volume.pool)?;
            let places = self.media.places(volume, node);
            let replica = copy.replica();
            let config = replica.config()?.clone();
            let sector = |(sector, place): (&u64, &Spot)| {
                let offset = copy.place_of(ByteOffset(sector * SECTOR as u64))?;
                let bytes = place.read(images);
                let dirty = replica.map().get(offset.0 / u64::from(replica::Geometry::REGION_BYTES));
                let block = u64::from(self.block);
                let readable = copy.is_readable(ByteOffset(offset.0 - offset.0 % block), ByteLen(block));
                let lost = copy.has_lost_in(offset, ByteLen(SECTOR as u64));
                Some((*sector, Sector { readable: readable && !lost, lost, dirty, bytes }))
            };
            let sectors = places.iter().filter_map(sector).collect();
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
        for (sector, at_x, at_y) in both(x, y).filter(|(_, at_x, at_y)| at_x.readable && at_y.readable) {
            self.counts.count(looked(
                x.volume,
                "two that may be read looked at",
                "two beside that may be read looked at",
            ));
            assert!(
                at_x.bytes == at_y.bytes,
                "sector {sector} may be read on nodes {} and {} in one epoch, and is {:?} and {:?}",
                x.node + 1,
                y.node + 1,
                value_of(&at_x.bytes),
                value_of(&at_y.bytes)
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
        let differ = |at_x: &Sector, at_y: &Sector| at_x.bytes != at_y.bytes && !at_x.lost && !at_y.lost;
        for (sector, at_x, at_y) in both(x, y).filter(|(_, at_x, at_y)| differ(at_x, at_y)) {
            self.counts.count(looked(
                x.volume,
                "difference of two copies looked at",
                "difference of two copies beside looked at",
            ));
            assert!(
                at_x.dirty.contains(y.slot) || at_y.dirty.contains(x.slot),
                "sector {sector} differs on nodes {} and {}, and no bit says so: {:?} and {:?}",
                x.node + 1,
                y.node + 1,
                value_of(&at_x.bytes),
                value_of(&at_y.bytes)
            );
        }
    }
}

/// The counter of the first volume, or of the second.
fn looked(volume: usize, first: &'static str, beside: &'static str) -> &'static str {
    if volume == 0 { first } else { beside }
}

/// The sectors that both have.
fn both<'a>(x: &'a Seen, y: &'a Seen) -> impl Iterator<Item = (u64, &'a Sector, &'a Sector)> {
    x.sectors.iter().filter_map(|(sector, at_x)| Some((*sector, at_x, y.sectors.get(sector)?)))
}
