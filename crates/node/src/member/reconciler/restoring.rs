//! What cores hold back because the record says so: resyncs that are paused, and hosts of volumes that are
//! being restored (`docs/why/snapshots.md`, *Restoring*).

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use base::Instant;
use proto::scsi::{Abort, Affected, Notice, UnitAttention};
use store::VolumeId;

use super::Reconciler;
use crate::attach::unit::install_on_all_cores;
use crate::copies::core::{Copies, HeldBack};
use crate::copies::entry::VolumeEntry;
use crate::shard::on_all_cores;

/// What the cores have been told to hold back, and which hosts still have to be notified.
#[derive(Default)]
pub(super) struct Restores {
    held_back: RefCell<HeldBack>,
    /// Volumes that were restored, and whose hosts have not been notified yet.
    untold: RefCell<BTreeSet<VolumeId>>,
    /// Since when hosts of a volume have been stopped, as far as this life knows.
    stopped_since: RefCell<BTreeMap<VolumeId, Instant>>,
}

impl Restores {
    /// Notes a change of a volume's entry.
    pub(super) fn note(&self, id: VolumeId, before: &VolumeEntry, now: &VolumeEntry) {
        if before.restored != now.restored {
            self.untold.borrow_mut().insert(id);
        }
    }
}

impl Reconciler {
    /// Has all cores hold back what the record says, and nothing else.
    ///
    /// It runs before a slice is opened, or acts in something new, so that nothing begins in between. The
    /// sessions of a volume that was restored get a unit attention before they may continue.
    pub(super) async fn hold_back(&self) {
        let untold = std::mem::take(&mut *self.restores.untold.borrow_mut());
        for id in untold {
            let notice = Notice { to: Affected::All, attention: UnitAttention::ContentReplaced };
            install_on_all_cores(id, None, vec![notice], Abort::NONE).await;
        }
        let mut restoring = BTreeSet::new();
        {
            let (volumes, mut since) = (self.volumes.borrow(), self.restores.stopped_since.borrow_mut());
            let before = std::mem::take(&mut *since);
            for (id, kept) in volumes.iter().filter(|(_, kept)| kept.entry.restoring.is_some()) {
                since.insert(*id, before.get(id).copied().unwrap_or_else(rt::now));
                restoring.insert(kept.entry.number);
            }
        }
        let held = HeldBack { paused: self.paused(), restoring };
        if *self.restores.held_back.borrow() == held {
            return;
        }
        self.restores.held_back.borrow_mut().clone_from(&held);
        on_all_cores(move || async move { Copies::current().hold_back(held) }).await;
    }

    /// The volumes with an open copy here whose hosts are stopped for a restore, and for how long.
    pub fn stopped_for_restores(&self) -> Vec<(VolumeId, Duration)> {
        let (now, volumes) = (rt::now(), self.volumes.borrow());
        let is_open = |id: &VolumeId| volumes.get(id).is_some_and(|kept| kept.open);
        let since = self.restores.stopped_since.borrow();
        since.iter().filter(|(id, _)| is_open(id)).map(|(id, since)| (*id, now.since(*since))).collect()
    }
}
