//! A disk that lies at the end of a run.
//!
//! Its bytes change silently, or it acknowledges a write and executes it nowhere, or in another place. In a
//! thick volume without checksums, a comparison of the copies must find exactly the affected regions, name
//! the node where that can be known, and change nothing. With checksums, the node notices by itself, and
//! repairs its copy. So it does in logs, where here only blocks rot (`harm/log_rot.rs` has the rest). A
//! comparison must find nothing where no disk has lied.

use std::collections::BTreeSet;
use std::time::Duration;

use base::{Lba, Rng};
use rt::CoreId;
use rt::sim::Astray;
use store::VolumeKind;

use crate::cluster::{Cluster, Expects, Volume, log_in};
use crate::history::filled;
use crate::layout::SECTOR;
use crate::load::Counts;
use crate::logs::Parts;
use crate::media::{Media, Spot};
use crate::plan::Plan;
use crate::run::wait_until_clean;

/// The value that a host writes in the end, which is nowhere else.
const NEW: u64 = u64::MAX >> 1;
/// The largest block size of a disk or volume, in bytes. Writes begin at multiples of their own blocks, and
/// misdirected ones are off by a multiple of this.
const MISDIRECTED_TO: u64 = 4096;
/// The unit of comparison.
const REGION: u64 = replica::Geometry::REGION_BYTES as u64;

/// What a disk does to a sector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rot {
    /// Its content changes silently.
    Decay,
    /// A write is lost.
    LostWrite,
    /// A write goes to another sector's place.
    MisdirectedWrite,
}

impl Rot {
    /// Its name in lists of a plan's parts.
    pub const fn name(self) -> &'static str {
        match self {
            Rot::Decay => "decay",
            Rot::LostWrite => "lost write",
            Rot::MisdirectedWrite => "misdirected write",
        }
    }
}

/// Compares the copies of a volume at rest, and, if the plan says so, again after a disk has lied.
///
/// # Panics
/// If the comparison finds anything but the lies.
pub(crate) fn check(plan: &Plan, cluster: &Cluster, media: &Media, counts: &Counts) {
    let mut rng = Rng::new(plan.seed ^ 0x0707);
    let by = rng.below(plan.nodes as u64) as usize;
    for volume in &cluster.volumes {
        let found = cluster.verify(volume, by);
        assert!(
            found.is_equal(),
            "copies that are equal are said to differ, or were not compared: {found:?}"
        );
        counts.count("comparison of equal copies");
    }
    let index = rng.below(plan.nodes as u64) as usize;
    let volume = &cluster.volumes[rng.below(cluster.volumes.len() as u64) as usize];
    if plan.rot == Some(Rot::Decay) && cluster.kinds_of_copy(volume, index) == Some((VolumeKind::Log, None)) {
        return check_log(cluster, media, counts, (volume, index, by), &mut rng);
    }
    let places = media.places(volume, index);
    let places: Vec<(u64, Spot)> = places.iter().map(|(sector, at)| (*sector, *at)).collect();
    let Some(rot) = plan.rot.filter(|_| !places.is_empty()) else { return };
    let (sector, place) = places[rng.below(places.len() as u64) as usize];
    let regions = match rot {
        Rot::Decay => {
            let machine = cluster.servers[index].machine;
            let disk = volume.pool.disks[place.disk];
            cluster.world.corrupt_disk(machine, disk, place.at..place.at + SECTOR as u64);
            counts.count("sector that decays");
            BTreeSet::from([region_of(sector)])
        }
        Rot::LostWrite => {
            write_astray(plan, cluster, volume, (index, by), (sector, place), Astray::Lost);
            counts.count("write that is lost");
            BTreeSet::from([region_of(sector)])
        }
        Rot::MisdirectedWrite => {
            let elsewhere = places
                .iter()
                .filter(|(other, there)| region_of(*other) != region_of(sector) && there.disk == place.disk);
            let elsewhere: Vec<_> = elsewhere.collect();
            if elsewhere.is_empty() {
                return;
            }
            let (other, there) = *elsewhere[rng.below(elsewhere.len() as u64) as usize];
            // From the block start of one place to that of the other, whichever sector of a block each is.
            let start = |place: u64| (place - place % MISDIRECTED_TO) as i64;
            let astray = Astray::Misdirected(start(there.at) - start(place.at));
            write_astray(plan, cluster, volume, (index, by), (sector, place), astray);
            counts.count("write that goes elsewhere");
            BTreeSet::from([region_of(sector), region_of(other)])
        }
    };
    let before: Vec<_> = (0..plan.nodes).map(|index| cluster.disks(index, volume.pool)).collect();
    let found = cluster.verify(volume, by);
    counts.count("comparison that finds rot");
    if volume.checksums {
        // The node finds what its disk has lied about when it reads it, and repairs it from another copy.
        assert!(found.is_equal(), "{rot:?} in a volume with checksums: {found:?}");
        return;
    }
    let at: BTreeSet<(u64, u64)> = found.differences.iter().map(|it| (it.offset, it.len)).collect();
    let bytes = regions.len() as u64 * REGION;
    let regions = regions.into_iter().map(|region| (region * REGION, REGION)).collect();
    assert_eq!((at, found.different, found.unchecked), (regions, bytes, 0), "{rot:?}: {found:?}");
    let number = index as u16 + 1;
    for difference in &found.differences {
        let nodes = &difference.nodes;
        assert!(nodes.contains(&number) && (plan.nodes == 2 || nodes.len() == 1), "{number}: {found:?}");
    }
    // No administrator has decided whose data is right, so no copy may be repaired from another.
    cluster.world.run_for(Duration::from_secs(2));
    for (node, before) in before.iter().enumerate() {
        let now = cluster.disks(node, volume.pool);
        for place in media.places(volume, node).values() {
            let same = place.read(before) == place.read(&now);
            assert!(same, "a comparison has changed the copy of node {}", node + 1);
        }
    }
}

/// Lets a block rot in a log of the pool of a node's copy. A comparison by the node `by` must repair it.
fn check_log(
    cluster: &Cluster,
    media: &Media,
    counts: &Counts,
    (volume, index, by): (&Volume, usize, usize),
    rng: &mut Rng,
) {
    let spots = Parts::find(&cluster.disks(index, volume.pool)).any_block(rng);
    if spots.is_empty() {
        return;
    }
    cluster.flip_bits(index, volume.pool, &spots);
    counts.count("block of a log that decays");
    for volume in &cluster.volumes {
        let found = cluster.verify(volume, by);
        assert!(found.is_equal(), "rot in a log: {found:?}");
    }
    if let Err(error) = media.read_moving(cluster, index, volume.pool, Expects::Data) {
        panic!("a comparison has not repaired the log of node {}: {error}", index + 1);
    }
}

/// Writes the block with this sector as a host, while the disk of one node misdirects or loses the write;
/// returns when the cluster is at rest again.
///
/// `nodes`: that node, and the one that the host uses. `sector`: its number, and its place on the disk.
fn write_astray(
    plan: &Plan,
    cluster: &Cluster,
    volume: &Volume,
    nodes: (usize, usize),
    (sector, place): (u64, Spot),
    astray: Astray,
) {
    let (index, by) = nodes;
    let (machine, lun) = (cluster.servers[index].machine, volume.lun);
    let disk = volume.pool.disks[place.disk];
    cluster.world.lead_write_astray(machine, disk, place.at..place.at + SECTOR as u64, astray);
    let (host, portal) = (cluster.add_host("astray"), cluster.servers[by].portal);
    let (block, size) = (sector * SECTOR as u64 / u64::from(plan.block.bytes()), plan.block);
    cluster.world.block_on(host, CoreId(0), move || async move {
        let session = log_in(portal, lun, "astray").await.expect("nothing fails any more");
        let written = session.write(lun, Lba(block), filled(NEW, 1, size), size).await;
        written.expect("nothing fails any more");
    });
    cluster.world.kill(host);
    wait_until_clean(cluster);
}

fn region_of(sector: u64) -> u64 {
    sector * SECTOR as u64 / REGION
}
