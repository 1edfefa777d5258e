//! A disk whose bytes change by themselves when all is over: thick volumes have no checksums, so what must hold is that a comparison of the copies finds exactly
//! that region, names the node where it can be told, and changes nothing. Where nothing has rotted it finds nothing.

use std::time::Duration;

use base::Rng;
use rt::sim::DiskImage;

use crate::cluster::{Cluster, DISK};
use crate::layout::SECTOR;
use crate::load::Counts;
use crate::media::Media;
use crate::plan::Plan;

/// What is compared at a time.
const REGION: u64 = replica::Geometry::REGION_BYTES as u64;

/// Compares the copies of a volume at rest, and once more when a sector of one has rotted, if the plan has that.
///
/// # Panics
/// If it finds something else than there is.
pub(crate) fn check(plan: &Plan, cluster: &Cluster, media: &Media, counts: &Counts) {
    let mut rng = Rng::new(plan.seed ^ 0x0707);
    let by = rng.below(plan.nodes as u64) as usize;
    let found = cluster.verify(by);
    assert!(found.is_equal(), "copies that are equal are said to differ, or were not compared: {found:?}");
    counts.count("comparison of equal copies");
    let index = rng.below(plan.nodes as u64) as usize;
    let places: Vec<(u64, u64)> = media.places(index).iter().map(|(sector, at)| (*sector, *at)).collect();
    if !plan.rot || places.is_empty() {
        return;
    }
    let (sector, place) = places[rng.below(places.len() as u64) as usize];
    let before: Vec<DiskImage> = (0..plan.nodes).map(|index| cluster.disk(index)).collect();
    cluster.world.corrupt_disk(cluster.servers[index].machine, DISK, place..place + SECTOR as u64);
    let rotten = sector_at(&cluster.disk(index), place);
    assert_ne!(rotten, sector_at(&before[index], place), "it has rotted");
    let found = cluster.verify(by);
    counts.count("comparison that finds rot");
    let offset = sector * SECTOR as u64 / REGION * REGION;
    let at: Vec<(u64, u64)> = found.differences.iter().map(|it| (it.offset, it.len)).collect();
    assert_eq!((at, found.different, found.unchecked), (vec![(offset, REGION)], REGION, 0), "{found:?}");
    let nodes = &found.differences[0].nodes;
    let number = index as u16 + 1;
    assert!(nodes.contains(&number) && (plan.nodes == 2 || nodes.len() == 1), "{number}: {found:?}");
    // Nobody has decided whose data is right: nothing is spread, and nothing is put right.
    cluster.world.run_for(Duration::from_secs(2));
    for (node, before) in before.iter().enumerate() {
        let now = cluster.disk(node);
        for place in media.places(node).values() {
            let same = sector_at(before, *place) == sector_at(&now, *place);
            assert!(same || node == index, "a comparison has changed the copy of node {}", node + 1);
        }
    }
    assert_eq!(sector_at(&cluster.disk(index), place), rotten);
}

fn sector_at(image: &DiskImage, place: u64) -> [u8; SECTOR] {
    let mut bytes = [0; SECTOR];
    image.read(place, &mut bytes);
    bytes
}
