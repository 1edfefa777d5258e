//! The disks of a pool, in order: their identities and layouts.

use std::path::PathBuf;
use std::rc::Rc;

use crate::catalog::DiskEntry;
use crate::disks::{CoreDisks, PoolDisk};
use crate::geometry::Geometry;
use crate::id::DiskId;

/// All disks of a pool. A layout is never changed in place: its users keep it when another one replaces it.
#[derive(Clone)]
pub(super) struct Layout {
    pub(super) disks: CoreDisks,
    pub(super) ids: Vec<DiskId>,
    pub(super) geometry: Vec<Geometry>,
}

impl Layout {
    /// The number of disks.
    pub(super) fn len(&self) -> usize {
        self.geometry.len()
    }

    /// The same disks, with one more at the end.
    pub(super) fn with(&self, disk: Rc<PoolDisk>, id: DiskId, geometry: Geometry) -> Layout {
        let mut layout = self.clone();
        layout.disks = self.disks.with(vec![disk]);
        layout.ids.push(id);
        layout.geometry.push(geometry);
        layout
    }

    /// The disks' entries for the catalog.
    pub(super) fn entries(&self) -> Vec<DiskEntry> {
        let entry = |(id, geometry): (&DiskId, &Geometry)| DiskEntry {
            id: *id,
            bytes: geometry.disk_bytes,
            extents: geometry.extents,
        };
        self.ids.iter().zip(&self.geometry).map(entry).collect()
    }

    /// The disks' paths on this node.
    pub(super) fn paths(&self) -> Vec<PathBuf> {
        self.disks.all().iter().map(|disk| disk.path().to_owned()).collect()
    }
}
