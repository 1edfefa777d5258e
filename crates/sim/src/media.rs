//! What is on the disks themselves, whatever the nodes report (A2, A8).
//!
//! A sector of a thick volume is found on a disk by its content when the world is new, and stays there until
//! the copy is removed from its node. Blocks of log volumes move with each write, so they are not checked.

use std::cell::{Ref, RefCell};
use std::collections::{BTreeMap, BTreeSet};

use rt::sim::DiskImage;
use store::VolumeKind;

use crate::cluster::{Cluster, Volume};
use crate::history::{History, value_of};
use crate::layout::SECTOR;

/// A place on a node's disks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spot {
    /// Index of the disk in the pool.
    pub disk: usize,
    /// Bytes from the beginning of the disk.
    pub at: u64,
}

/// Where the sectors of each volume's history are on each node's disks: by volume and node.
///
/// After a copy was removed from a node, the place of a later copy there is unknown.
pub struct Media(Vec<Vec<RefCell<BTreeMap<u64, Spot>>>>);

impl Media {
    /// Finds the sectors of each volume by their present values, which are unique.
    ///
    /// # Panics
    /// If a sector is not found on some disk, or found twice.
    pub fn find(cluster: &Cluster, held: &[BTreeMap<u64, u64>]) -> Media {
        let of_volume = |(volume, held): (&Volume, &BTreeMap<u64, u64>)| {
            let sector_of: BTreeMap<u64, u64> =
                held.iter().map(|(sector, value)| (*value, *sector)).collect();
            assert_eq!(sector_of.len(), held.len(), "each sector holds something else");
            let places = (0..cluster.servers.len()).map(|index| {
                if volume.kind == VolumeKind::Log {
                    return RefCell::default();
                }
                let found = places(&cluster.disks(index, volume.pool), &sector_of);
                assert_eq!(found.len(), held.len(), "all are on the disk of node {}", index + 1);
                RefCell::new(found)
            });
            places.collect()
        };
        Media(cluster.volumes.iter().zip(held).map(of_volume).collect())
    }

    /// Where the volume's sectors are on a node's disks, by sector.
    pub fn places(&self, volume: &Volume, index: usize) -> Ref<'_, BTreeMap<u64, Spot>> {
        self.0[volume.index][index].borrow()
    }

    /// Forgets where the node's copy of the volume is: the copy is being removed.
    pub fn forget(&self, volume: &Volume, index: usize) {
        self.0[volume.index][index].borrow_mut().clear();
    }

    /// Checks that a node in sync that lost power has all acknowledged writes, or newer ones, on its disk.
    ///
    /// Sectors that are `lost` there are excluded: no host can read them (R27).
    ///
    /// # Panics
    /// If a write is missing.
    pub fn check(
        &self,
        cluster: &Cluster,
        volume: &Volume,
        index: usize,
        history: &History,
        lost: &BTreeSet<u64>,
    ) {
        let images = cluster.disks(index, volume.pool);
        let places = self.places(volume, index);
        for (sector, place) in places.iter().filter(|(sector, _)| !lost.contains(sector)) {
            let found = value_of(&place.read(&images));
            let checked = found.map(|value| history.check_found(*sector, value));
            assert!(
                checked == Some(Ok(())),
                "node {} was in sync and lost power, and sector {sector} of {} is {found:?} on its disk: {checked:?}\n{}",
                index + 1,
                volume.name,
                history.tail(*sector)
            );
        }
    }
}

impl Spot {
    /// Reads the sector from images of the pool's disks.
    pub fn read(&self, images: &[DiskImage]) -> [u8; SECTOR] {
        let mut bytes = [0; SECTOR];
        images[self.disk].read(self.at, &mut bytes);
        bytes
    }
}

fn places(images: &[DiskImage], sector_of: &BTreeMap<u64, u64>) -> BTreeMap<u64, Spot> {
    let mut found = BTreeMap::new();
    for (disk, image) in images.iter().enumerate() {
        for (offset, len) in image.allocated(0, image.size()) {
            let mut bytes = vec![0; len as usize];
            image.read(offset, &mut bytes);
            for (at, sector) in (offset..).step_by(SECTOR).zip(bytes.chunks_exact(SECTOR)) {
                let Some(sector) = value_of(sector).and_then(|value| sector_of.get(&value)) else { continue };
                let before = found.insert(*sector, Spot { disk, at });
                assert_eq!(before, None, "sector {sector} is on the disks twice");
            }
        }
    }
    found
}
