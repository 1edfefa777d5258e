//! What is on the disks themselves, whatever the nodes report (A2, A8).
//!
//! A sector of a thick volume is found on a disk by its content when the world is new, and stays there until
//! the copy is removed from its node. Blocks of log volumes move with each write: an image of the disk is
//! opened to read them ([`Cluster::opened`]).

use std::cell::{Cell, Ref, RefCell};
use std::collections::{BTreeMap, BTreeSet};

use rt::sim::DiskImage;
use store::VolumeKind;

use crate::cluster::{Cluster, Expects, Found, Pool, Volume};
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

/// Where the sectors of each volume's history are on each node's disks.
pub struct Media {
    /// By volume and node.
    copies: Vec<Vec<Whereabouts>>,
    /// The sectors that are watched, by volume.
    sectors: Vec<Vec<u64>>,
}

/// What is known of a copy of a volume.
///
/// After it was removed from its node, nothing is known of a later copy there: it is not checked any more.
#[derive(Default)]
struct Whereabouts {
    /// Where its sectors are, if they stay where they are.
    places: RefCell<BTreeMap<u64, Spot>>,
    /// Its sectors move: it is a log, or may have been one.
    moves: Cell<bool>,
}

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
            let copies = (0..cluster.servers.len()).map(|index| {
                if volume.kind == VolumeKind::Log {
                    return Whereabouts { moves: Cell::new(true), ..Whereabouts::default() };
                }
                let found = places(&cluster.disks(index, volume.pool), &sector_of);
                assert_eq!(found.len(), held.len(), "all are on the disk of node {}", index + 1);
                Whereabouts { places: RefCell::new(found), ..Whereabouts::default() }
            });
            copies.collect::<Vec<_>>()
        };
        let copies = cluster.volumes.iter().zip(held).map(of_volume).collect();
        let sectors = held.iter().map(|held| held.keys().copied().collect()).collect();
        let media = Media { copies, sectors };
        for (volume, held) in cluster.volumes.iter().zip(held) {
            (0..cluster.servers.len()).for_each(|index| media.check_marks(cluster, volume, index, held));
        }
        media
    }

    /// Checks that the values are read from a copy whose sectors move.
    fn check_marks(&self, cluster: &Cluster, volume: &Volume, index: usize, held: &BTreeMap<u64, u64>) {
        if self.moves(volume, index) {
            let found =
                self.read(cluster, volume, index, Expects::Invariants).expect("nothing has failed yet");
            let found: BTreeMap<u64, u64> =
                found.iter().filter_map(|(sector, bytes)| Some((*sector, value_of(bytes)?))).collect();
            assert_eq!(found, *held, "all are in the logs of node {}", index + 1);
        }
    }

    /// Where the volume's sectors are on a node's disks, by sector; empty if they move, or it is unknown.
    pub fn places(&self, volume: &Volume, index: usize) -> Ref<'_, BTreeMap<u64, Spot>> {
        self.copies[volume.index][index].places.borrow()
    }

    /// Whether the sectors of the node's copy move.
    pub fn moves(&self, volume: &Volume, index: usize) -> bool {
        self.copies[volume.index][index].moves.get()
    }

    /// The sectors of a volume that are watched.
    pub fn sectors(&self, volume: &Volume) -> &[u64] {
        &self.sectors[volume.index]
    }

    /// Forgets where the node's copy of the volume is: the copy is being removed.
    pub fn forget(&self, volume: &Volume, index: usize) {
        let copy = &self.copies[volume.index][index];
        copy.places.borrow_mut().clear();
        copy.moves.set(false);
    }

    /// From now on, the sectors of all copies of the volume may move: it is being converted. Copies of which
    /// nothing is known stay so.
    pub fn let_move(&self, volume: &Volume) {
        for copy in &self.copies[volume.index] {
            if !copy.places.take().is_empty() {
                copy.moves.set(true);
            }
        }
    }

    /// Reads the sectors of a node's copies that move, in one of its pools, from an image of its disks
    /// ([`Cluster::opened`]).
    pub fn read_moving(
        &self,
        cluster: &Cluster,
        index: usize,
        pool: Pool,
        expects: Expects,
    ) -> Result<Found, String> {
        let of_pool = cluster.volumes.iter().filter(|volume| volume.pool == pool);
        let moving = of_pool.filter(|volume| self.moves(volume, index) && cluster.has_copy(volume, index));
        let moving: Vec<_> = moving.map(|volume| (volume, self.sectors(volume).to_vec())).collect();
        if moving.is_empty() {
            return Ok(Found::new());
        }
        cluster.opened(index, pool, &moving, expects)
    }

    /// What is on a node's disks in each watched sector of a volume.
    fn read(
        &self,
        cluster: &Cluster,
        volume: &Volume,
        index: usize,
        expects: Expects,
    ) -> Result<BTreeMap<u64, [u8; SECTOR]>, String> {
        if self.moves(volume, index) {
            let wanted = [(volume, self.sectors(volume).to_vec())];
            let found = cluster.opened(index, volume.pool, &wanted, expects)?;
            return Ok(found.into_iter().map(|((_, sector), bytes)| (sector, bytes)).collect());
        }
        let images = cluster.disks(index, volume.pool);
        let places = self.places(volume, index);
        Ok(places.iter().map(|(sector, place)| (*sector, place.read(&images))).collect())
    }

    /// Checks that a node in sync that lost power has all acknowledged writes, or newer ones, on its disk.
    ///
    /// Sectors that are `lost` there are excluded: no host can read them (R27). Returns whether anything was
    /// checked.
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
        expects: Expects,
    ) -> bool {
        let found = match self.read(cluster, volume, index, expects) {
            Ok(found) => found,
            Err(_) if expects == Expects::Nothing => return false,
            Err(error) => {
                panic!("node {} was in sync and lost power, and {}: {error}", index + 1, volume.name)
            }
        };
        for (sector, bytes) in found.iter().filter(|(sector, _)| !lost.contains(sector)) {
            let found = value_of(bytes);
            let checked = found.map(|value| history.check_found(*sector, value));
            assert!(
                checked == Some(Ok(())),
                "node {} was in sync and lost power, and sector {sector} of {} is {found:?} on its disk: {checked:?}\n{}",
                index + 1,
                volume.name,
                history.tail(*sector)
            );
        }
        !found.is_empty()
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
