//! What a session sees: its LUNs.

use std::collections::BTreeMap;
use std::rc::Rc;

use proto::scsi::{ItNexus, Lun};

use super::budget::ReadBudget;
use crate::unit::{Unit, naa};

/// The units behind a session's LUNs, at one moment. Commands keep the view they began with.
pub struct View {
    nexus: ItNexus,
    reads: Rc<ReadBudget>,
    luns: BTreeMap<Lun, Rc<Unit>>,
}

impl View {
    /// A view.
    pub fn new(nexus: ItNexus, reads: Rc<ReadBudget>, luns: BTreeMap<Lun, Rc<Unit>>) -> View {
        View { nexus, reads, luns }
    }

    /// What the session's reads may hold.
    pub fn reads(&self) -> &ReadBudget {
        &self.reads
    }

    /// Whose view it is.
    pub fn nexus(&self) -> &ItNexus {
        &self.nexus
    }

    /// The LUNs with their units.
    pub fn luns(&self) -> &BTreeMap<Lun, Rc<Unit>> {
        &self.luns
    }

    /// The LUNs alone.
    pub fn numbers(&self) -> Vec<Lun> {
        self.luns.keys().copied().collect()
    }

    /// The unit at a LUN as it came over the wire.
    pub fn unit(&self, lun: [u8; 8]) -> Option<&Rc<Unit>> {
        self.luns.get(&Lun::decode(lun)?)
    }

    /// The unit with this NAA name, if the session sees it.
    pub fn by_naa(&self, name: &[u8; 16]) -> Option<Rc<Unit>> {
        self.luns.values().find(|unit| naa(unit.id()) == *name).cloned()
    }
}
