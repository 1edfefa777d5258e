//! The disks of a pool by their places: their identities and layouts.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::METADATA_DISKS;
use crate::catalog::DiskEntry;
use crate::disks::{CoreDisks, PoolDisk};
use crate::geometry::Geometry;
use crate::id::DiskId;

/// All disks of a pool. A layout is never changed in place: its users keep it when another one replaces it.
///
/// A disk keeps its place, which extents name, when another one is removed. A place whose disk was removed is
/// vacant until another disk is added.
#[derive(Clone)]
pub(super) struct Layout {
    pub(super) disks: CoreDisks,
    pub(super) ids: Vec<DiskId>,
    pub(super) geometry: Vec<Geometry>,
    /// The place of the disk that is leaving the pool.
    pub(super) leaving: Option<usize>,
}

impl Layout {
    /// The number of places.
    pub(super) fn len(&self) -> usize {
        self.geometry.len()
    }

    /// The places that have a disk, in order.
    pub(super) fn places(&self) -> impl Iterator<Item = usize> {
        (0..self.len()).filter(move |place| self.disks.get(*place).is_some())
    }

    /// The places whose disks have metadata: the first ones.
    pub(super) fn metadata_places(&self) -> impl Iterator<Item = usize> {
        self.places().take(METADATA_DISKS)
    }

    /// The place that the next disk gets.
    pub(super) fn next_place(&self) -> usize {
        (0..self.len()).find(|place| self.disks.get(*place).is_none()).unwrap_or(self.len())
    }

    /// The place of the disk with this path on this node.
    pub(super) fn place_of(&self, path: &Path) -> Option<usize> {
        self.places().find(|place| self.disks.get(*place).is_some_and(|disk| disk.path() == path))
    }

    /// The same disks, and one more at [`Layout::next_place`].
    pub(super) fn with(&self, disk: Rc<PoolDisk>, id: DiskId, geometry: Geometry) -> Layout {
        let (mut layout, place) = (self.clone(), self.next_place());
        layout.disks = self.disks.with(place, Some(disk));
        layout.ids.resize(self.len().max(place + 1), id);
        layout.geometry.resize(self.len().max(place + 1), geometry);
        (layout.ids[place], layout.geometry[place]) = (id, geometry);
        layout
    }

    /// The other disks.
    pub(super) fn without(&self, place: usize) -> Layout {
        let mut layout = self.clone();
        layout.disks = self.disks.with(place, None);
        layout.ids[place] = DiskEntry::VACANT.id;
        layout.geometry[place] = self.geometry[place].vacant();
        layout.leaving = self.leaving.filter(|leaving| *leaving != place);
        layout
    }

    /// The same disks, of which this one is leaving the pool.
    pub(super) fn with_leaving(&self, leaving: Option<usize>) -> Layout {
        Layout { leaving, ..self.clone() }
    }

    /// The places' entries for the catalog.
    pub(super) fn entries(&self) -> Vec<DiskEntry> {
        let entry = |place: usize| DiskEntry {
            id: self.ids[place],
            bytes: self.geometry[place].disk_bytes,
            extents: self.geometry[place].extents,
            leaving: self.leaving == Some(place),
        };
        (0..self.len()).map(entry).collect()
    }

    /// The disks' paths on this node.
    pub(super) fn paths(&self) -> Vec<PathBuf> {
        self.disks.all().map(|disk| disk.path().to_owned()).collect()
    }
}
