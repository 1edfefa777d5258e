//! What rots in the logs of one node, and writes there that its disk loses or puts elsewhere.
//!
//! Only one node's disks do that at a time, and all else is well: so all can be repaired, hosts notice
//! nothing, and afterwards nothing is left of it. An image of the disks must open at any moment, and return
//! each block as it should be, or not at all. The design makes two exceptions:
//!
//! - A head that a recovery needs is there once. Without it, a log must not be opened, until a checkpoint has
//!   merged what it said. Blocks in the slot of such a head share its fate.
//! - Nobody can tell what has rotted of the newest records, of which no other record says that they are
//!   durable, from what a power cut has torn. So these do not rot here; and after a write that was lost,
//!   which is one of them, the node is neither restarted nor its image opened before all is repaired.
//!
//! This is a part of a plan, and no [`super::Harm`]: it happens beside the plan's faults, by random numbers
//! of its own, and takes no fault's turn.

use std::time::Duration;

use base::Rng;
use node::control::ScrubState;
use rt::sim::{Astray, DiskFaults, Fault};
use store::VolumeKind;

use super::Harms;
use super::disk::Disk;
use crate::cluster::{Expects, Pool, Volume};
use crate::history::value_of;
use crate::layout::SECTOR;
use crate::logs::{Next, Parts};
use crate::media::Spot;

/// Something rots in one turn of faults out of this many.
const ONE_IN: u64 = 3;
/// Of the parts that rot, one in this many becomes unreadable; the others change.
const UNREADABLE_ONE_IN: u64 = 3;
/// Longest time until all is repaired. Some disks take 60 ms for a read, and hosts' writes overtake repairs.
const REPAIRED_WITHIN: Duration = Duration::from_secs(300);
/// Longest time until a node that was killed is in sync again.
const BACK_WITHIN: Duration = Duration::from_secs(90);
/// Longest time from an answered write until each copy's disk has it.
const WRITTEN_WITHIN: Duration = Duration::from_secs(2);
/// Usual time until all bits of repairs are cleared.
const CLEAN_WITHIN: Duration = Duration::from_secs(30);
/// How often to check.
const LOOK_EVERY: Duration = Duration::from_millis(50);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hit {
    /// A block.
    Block,
    /// All leaves of the map.
    Leaves,
    /// A slot of one copy of the state.
    State,
    /// One mirror of the root.
    Root,
    /// The head of a record that is not in the map yet.
    Head,
    /// A write of a record is lost.
    LostWrite,
    /// It goes to another segment.
    MisdirectedWrite,
}

/// Blocks most often: they are what hosts read.
const HITS: [Hit; 12] = [
    Hit::Block,
    Hit::Block,
    Hit::Block,
    Hit::Leaves,
    Hit::State,
    Hit::State,
    Hit::Root,
    Hit::Root,
    Hit::Head,
    Hit::Head,
    Hit::LostWrite,
    Hit::MisdirectedWrite,
];

impl Hit {
    /// Its name in counts.
    fn name(self) -> &'static str {
        match self {
            Hit::Block => "block of a log that rots",
            Hit::Leaves => "map of a log that rots",
            Hit::State => "state of a log that rots",
            Hit::Root => "root of a log that rots",
            Hit::Head => "head of a log that rots",
            Hit::LostWrite => "write of a log that is lost",
            Hit::MisdirectedWrite => "write of a log that goes elsewhere",
        }
    }

    fn is_of_write(self) -> bool {
        matches!(self, Hit::LostWrite | Hit::MisdirectedWrite)
    }
}

impl Harms<'_> {
    /// Lets something rot in a node's logs now and then, in a quiet moment, and sees it repaired.
    ///
    /// The random numbers are for this alone.
    pub fn rot_logs(&mut self, rng: &mut Rng) {
        let cluster = self.cluster;
        let strikes = rng.one_in(ONE_IN);
        let index = rng.below(cluster.servers.len() as u64) as usize;
        let volume = &cluster.volumes[rng.below(cluster.volumes.len() as u64) as usize];
        let hit = HITS[rng.below(HITS.len() as u64) as usize];
        let (is_unreadable, restarts) = (rng.one_in(UNREADABLE_ONE_IN), rng.one_in(2));
        let mut rng = rng.fork();
        let may_strike = strikes && self.media.moves(volume, index);
        if !may_strike || !self.calm_down() || !self.has_settled_logs(volume, index) {
            return;
        }
        // What an image would return after the loss of such a write is not known.
        self.inside.leave_out_logs(Some(index));
        let is_hit = match hit {
            Hit::LostWrite | Hit::MisdirectedWrite => self.lead_astray(volume, index, hit, &mut rng),
            _ => self.let_rot(volume.pool, index, hit, is_unreadable, &mut rng),
        };
        if is_hit {
            self.counts.count(hit.name());
            cluster.world.note(format!("{hit:?} of a log, {} {is_unreadable} {restarts}", index + 1));
            if !hit.is_of_write() && !is_unreadable {
                self.check_image(volume.pool, index, hit);
            }
            for blocks in volume.layout.hot(self.plan.block) {
                self.read_unharmed(volume, index, blocks);
            }
            if restarts && !hit.is_of_write() && hit != Hit::Head {
                self.restart(index);
            }
            self.see_logs_repaired(volume.pool, index);
        }
        self.inside.leave_out_logs(None);
    }

    /// Whether the node's copy is a log, and no volume of its pool is being converted or created.
    fn has_settled_logs(&self, volume: &Volume, index: usize) -> bool {
        let cluster = self.cluster;
        let mut others = cluster.volumes.iter().filter(|other| other.pool == volume.pool);
        !self.has_fillers()
            && !self.is_converting(index)
            && cluster.kinds_of_copy(volume, index) == Some((VolumeKind::Log, None))
            && others.all(|other| cluster.is_of_its_kind(other, index) == Some(true))
    }

    /// Lets a part of the pool's logs rot, or become unreadable, if there is one. Returns whether it did.
    fn let_rot(&self, pool: Pool, index: usize, hit: Hit, is_unreadable: bool, rng: &mut Rng) -> bool {
        let parts = Parts::find(&self.cluster.disks(index, pool));
        let spots: Vec<Spot> = match hit {
            Hit::Block => parts.any_block(rng),
            Hit::Leaves => parts.all_leaves(),
            Hit::State => parts.any_state(rng).into_iter().collect(),
            Hit::Root => parts.any_root(rng).into_iter().collect(),
            Hit::Head => parts.newest_head().into_iter().collect(),
            Hit::LostWrite | Hit::MisdirectedWrite => Vec::new(),
        };
        if spots.is_empty() {
            return false;
        }
        if is_unreadable {
            for (disk, path) in pool.disks.iter().copied().enumerate() {
                let on_disk = spots.iter().filter(|spot| spot.disk == disk);
                let sector = |spot: &Spot| spot.at / SECTOR as u64 * SECTOR as u64;
                let faults = on_disk.fold(DiskFaults::default().remapping(), |faults, spot| {
                    faults.with_unreadable(sector(spot)..sector(spot) + SECTOR as u64)
                });
                self.harm_disk(index, Disk { pool, path }, faults);
            }
            self.spoilt.set(Some(index));
        } else {
            self.cluster.flip_bits(index, pool, &spots);
        }
        true
    }

    /// Has the disk lose or misdirect the next record of hosts; returns whether it did.
    fn lead_astray(&self, volume: &Volume, index: usize, hit: Hit, rng: &mut Rng) -> bool {
        let (cluster, machine) = (self.cluster, self.machine(index));
        let parts = Parts::find(&cluster.disks(index, volume.pool));
        let Some(Next { disk, range, others }) = parts.next_record(rng) else { return false };
        let astray = match hit {
            Hit::MisdirectedWrite if others.is_empty() => return false,
            Hit::MisdirectedWrite => Astray::Misdirected(others[rng.below(others.len() as u64) as usize]),
            _ => Astray::Lost,
        };
        let disk = volume.pool.disks[disk];
        let astray_so_far = || {
            let faults = cluster.world.fault_counts();
            faults.of(Fault::LostWrite) + faults.of(Fault::MisdirectedWrite)
        };
        let before = astray_so_far();
        cluster.world.lead_write_astray(machine, disk, range, astray);
        self.write_unharmed(volume, (index + 1) % cluster.servers.len());
        let until = cluster.world.now() + WRITTEN_WITHIN;
        while astray_so_far() == before && cluster.world.now() < until {
            self.inside.run_for(LOOK_EVERY);
        }
        // If it went elsewhere, to another segment, the next one must not.
        cluster.world.lead_write_astray(machine, disk, 0..0, Astray::Lost);
        astray_so_far() > before
    }

    /// Checks what an image of the disks returns, as after a kill at this moment.
    fn check_image(&self, pool: Pool, index: usize, hit: Hit) {
        match self.media.read_moving(self.cluster, index, pool, Expects::Rot) {
            Ok(found) => {
                for ((volume, sector), bytes) in found {
                    let (value, history) = (value_of(&bytes), &self.histories[volume]);
                    let checked = value.map(|value| history.check_found(sector, value));
                    assert!(
                        checked == Some(Ok(())),
                        "{} of node {}, and sector {sector} is {value:?}: {checked:?}\n{}",
                        hit.name(),
                        index + 1,
                        history.tail(sector)
                    );
                }
            }
            Err(_) if hit == Hit::Head => self.counts.count("log without a head refused"),
            Err(error) => panic!("{} of node {}, and {}: {error}", hit.name(), index + 1, pool.name),
        }
    }

    /// Kills the process of a node and starts it again; waits until all copies are in sync and served.
    fn restart(&mut self, index: usize) {
        let cluster = self.cluster;
        cluster.world.kill(self.machine(index));
        self.start(index);
        let until = cluster.world.now() + BACK_WITHIN;
        let serves = |index| cluster.is_started(index) && cluster.has_all(index) && cluster.serves(index);
        while !(0..cluster.servers.len()).all(serves) {
            assert!(cluster.world.now() < until, "node {} does not come back with its logs", index + 1);
            self.look_after();
            self.inside.run_for(LOOK_EVERY);
        }
    }

    /// Scrubs the pool until nothing is bad in it any more.
    fn see_logs_repaired(&self, pool: Pool, index: usize) {
        let cluster = self.cluster;
        let until = cluster.world.now() + REPAIRED_WITHIN;
        loop {
            let left = self.scrub(pool, index, until);
            let opened = self.media.read_moving(cluster, index, pool, Expects::Data);
            if left == Some(0) && opened.is_ok() {
                break;
            }
            assert!(
                cluster.world.now() < until,
                "what has rotted on node {} is not repaired: {left:?} bad blocks left, {:?}",
                index + 1,
                opened.err()
            );
        }
        if self.spoilt.get().is_some() {
            self.make_disks_well();
        }
        // A part of the map is repaired with all of its blocks, each of which is noted for the other copies
        // meanwhile.
        let most: usize = cluster.volumes.iter().map(|volume| volume.layout.regions_max).sum();
        let until = cluster.world.now() + CLEAN_WITHIN;
        let is_clean = |index| cluster.is_started(index) && cluster.dirty_regions(index) <= most;
        while !(0..cluster.servers.len()).all(is_clean) && cluster.world.now() < until {
            self.inside.run_for(LOOK_EVERY);
        }
    }

    /// Scrubs all volumes of a pool. Returns how many bad blocks were not repaired; `None`: a scrub was
    /// interrupted, or none began.
    fn scrub(&self, pool: Pool, index: usize, until: Duration) -> Option<u64> {
        let cluster = self.cluster;
        let volumes = cluster.begin_scrubs(index, pool);
        let mut left = (!volumes.is_empty()).then_some(0);
        for id in volumes {
            let scrub = loop {
                self.inside.run_for(LOOK_EVERY);
                let scrub = cluster.last_scrub(index, &id);
                let is_running = scrub.as_ref().is_some_and(|scrub| scrub.state == ScrubState::Running);
                if !is_running || cluster.world.now() >= until {
                    break scrub;
                }
            };
            let scrub = scrub.filter(|scrub| scrub.state == ScrubState::Done);
            if scrub.as_ref().is_some_and(|scrub| scrub.found.bad > 0) {
                self.counts.count("rot in a log found by a scrub");
            }
            // Of an older version, another copy need not have the snapshot any more, or yet.
            let unrepaired = scrub.map(|scrub| {
                let of_snapshots = scrub.found.of_snapshots;
                if of_snapshots > 0 {
                    self.counts.count("rot in a snapshot that no other copy has");
                }
                scrub.found.unrepaired().saturating_sub(of_snapshots)
            });
            left = left.zip(unrepaired).map(|(left, unrepaired)| left + unrepaired);
        }
        left
    }
}
