//! The LUNs that a session sees.

use std::collections::BTreeMap;
use std::rc::{Rc, Weak};

use proto::scsi::{ItNexus, Lun, NexusId, Outcome, ReportLuns};

use crate::attach::unit::{Unit, naa};
use crate::data::VolumeId;
use crate::shard::Shard;

/// The units behind a session's LUNs, at one moment.
///
/// No task keeps a view while it waits. A command keeps only its own unit, so a volume closes when its own
/// commands have ended, regardless of the commands to other LUNs.
pub struct View {
    nexus: ItNexus,
    luns: BTreeMap<Lun, Rc<Unit>>,
    /// LUNs whose volumes will be back soon.
    away: BTreeMap<Lun, VolumeId>,
}

impl View {
    /// A view of nothing.
    pub fn empty(nexus: ItNexus) -> View {
        View { nexus, luns: BTreeMap::new(), away: BTreeMap::new() }
    }

    /// The view of those of these volumes that the core has.
    pub fn of(self, volumes: impl IntoIterator<Item = (Lun, VolumeId)>, shard: &Shard) -> View {
        let (mut luns, mut away) = (BTreeMap::new(), BTreeMap::new());
        for (lun, volume) in volumes {
            if shard.is_expected(volume) {
                away.insert(lun, volume);
            } else if let Some(unit) = shard.unit(volume) {
                luns.insert(lun, unit);
            }
        }
        View { luns, away, ..self }
    }

    /// Whether the LUN's volume will be back soon.
    pub fn is_away(&self, lun: [u8; 8]) -> bool {
        Lun::decode(lun).is_some_and(|lun| self.away.contains_key(&lun))
    }

    /// The LUNs that REPORT LUNS lists, and their volumes.
    pub fn inventory(&self) -> BTreeMap<Lun, VolumeId> {
        let present = self.luns.iter().map(|(lun, unit)| (*lun, unit.id()));
        present.chain(self.away.iter().map(|(lun, volume)| (*lun, *volume))).collect()
    }

    /// The I_T nexus that the view belongs to.
    pub fn nexus(&self) -> &ItNexus {
        &self.nexus
    }

    /// The LUNs with their units.
    pub fn luns(&self) -> &BTreeMap<Lun, Rc<Unit>> {
        &self.luns
    }

    /// Its units, one by one. The iterator keeps none open, and skips those that are closed meanwhile.
    pub fn units(&self) -> impl Iterator<Item = Rc<Unit>> + use<> {
        let units: Vec<Weak<Unit>> = self.luns.values().map(Rc::downgrade).collect();
        units.into_iter().filter_map(|unit| unit.upgrade())
    }

    /// Answers REPORT LUNS, for any unit or none.
    ///
    /// No unit needs to report the change of the LUNs to this nexus any more.
    pub fn report(&self, nexus: NexusId, report: &ReportLuns) -> Outcome {
        for unit in self.luns.values() {
            unit.brain().borrow_mut().luns_reported(nexus);
        }
        let luns: Vec<Lun> = self.inventory().into_keys().collect();
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
