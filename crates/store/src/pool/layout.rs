//! The disks of a pool, in their order: who they are and how each is laid out.

use std::path::PathBuf;
use std::rc::Rc;

use crate::catalog::DiskEntry;
use crate::disks::{CoreDisks, PoolDisk};
use crate::geometry::Geometry;
use crate::id::DiskId;

/// All disks of a pool. Never changed in place: who uses one goes on with it while another comes into force.
#[derive(Clone)]
pub(super) struct Layout {
    pub(super) disks: CoreDisks,
    pub(super) ids: Vec<DiskId>,
    pub(super) geometry: Vec<Geometry>,
}

impl Layout {
    /// How many disks there are.
    pub(super) fn len(&self) -> usize {
        self.geometry.len()
    }

    /// With one more, behind the others.
    pub(super) fn with(&self, disk: Rc<PoolDisk>, id: DiskId, geometry: Geometry) -> Layout {
        let mut layout = self.clone();
        layout.disks = self.disks.with(vec![disk]);
        layout.ids.push(id);
        layout.geometry.push(geometry);
        layout
    }

    /// As the catalogue has them.
    pub(super) fn entries(&self) -> Vec<DiskEntry> {
        let entry = |(id, geometry): (&DiskId, &Geometry)| DiskEntry {
            id: *id,
            bytes: geometry.disk_bytes,
            extents: geometry.extents,
        };
        self.ids.iter().zip(&self.geometry).map(entry).collect()
    }

    /// Where they are here.
    pub(super) fn paths(&self) -> Vec<PathBuf> {
        self.disks.all().iter().map(|disk| disk.path().to_owned()).collect()
    }
}
