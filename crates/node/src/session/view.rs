//! What a session sees: its LUNs.

use std::collections::BTreeMap;
use std::rc::Rc;

use proto::scsi::{ItNexus, Lun, NexusId, Outcome, ReportLuns};

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

    /// Answers REPORT LUNS, whichever unit was asked or even none: no unit needs to tell of the change any more.
    pub fn report(&self, nexus: NexusId, report: &ReportLuns) -> Outcome {
        for unit in self.luns.values() {
            unit.brain().borrow_mut().luns_reported(nexus);
        }
        let luns: Vec<Lun> = self.luns.keys().copied().collect();
        report.answer(&luns)
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
