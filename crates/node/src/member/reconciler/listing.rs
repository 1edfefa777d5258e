//! Lists the cluster's volumes and their state.

use std::collections::BTreeSet;
use std::ops::Bound;

use replica::{NodeId, Revision};
use store::VolumeId;

use super::unreadable::legible;
use super::{ClonedFrom, CopiesStatus, Reconciler, parse};
use crate::copies::clone::Origin;
use crate::copies::entry::{
    CopyEntry, DroppedCopy, StandingEntry, VOLUMES, VolumeEntry, volume_key, volume_name_key,
};
use crate::copies::snapshot::{SnapshotEntry, pool_number};
use crate::yielding::ITEMS_PER_TURN;

/// What the last searches of all volumes' entries have found, each with the revision of the record that it
/// holds for.
///
/// To read a thousand entries takes milliseconds, and these are asked for every second, or more often.
#[derive(Default)]
pub(super) struct Searched {
    /// Copies that were removed from this node.
    dropped: Option<(Revision, Vec<(VolumeEntry, DroppedCopy)>)>,
    /// Nodes with a copy in sync of a volume that has another one out of sync.
    givers: Option<(Revision, BTreeSet<NodeId>)>,
}

/// What was found at this revision.
fn found_at<T: Clone>(found: &Option<(Revision, T)>, revision: Revision) -> Option<T> {
    found.as_ref().filter(|(at, _)| *at == revision).map(|(_, found)| found.clone())
}

impl Reconciler {
    /// The copies that were removed from this node and that its pools may still have, with the volumes'
    /// entries.
    ///
    /// It looks at a few volumes in each turn of this core.
    pub(super) async fn dropped_copies(&self) -> Vec<(VolumeEntry, DroppedCopy)> {
        let (me, revision) = (self.me().0, self.followed());
        if let Some(dropped) = found_at(&self.searched.borrow().dropped, revision) {
            return dropped;
        }
        let mut all = Vec::new();
        self.for_each_entry(|entry| {
            let dropped = entry.dropped.iter().find(|dropped| dropped.node == me).copied();
            all.extend(dropped.map(|dropped| (entry, dropped)));
        })
        .await;
        // If the record has changed meanwhile, this holds for no revision that is asked about again.
        self.searched.borrow_mut().dropped = Some((revision, all.clone()));
        all
    }

    /// The nodes with a copy in sync of a volume that has another one out of sync.
    pub(super) fn possible_givers(&self) -> BTreeSet<NodeId> {
        let revision = self.followed();
        if let Some(givers) = found_at(&self.searched.borrow().givers, revision) {
            return givers;
        }
        let volumes: Vec<VolumeEntry> = self.list(VOLUMES);
        let in_sync = |copy: &&CopyEntry| copy.standing == StandingEntry::InSync;
        let behind = volumes.iter().filter(|volume| !volume.copies.iter().all(|copy| in_sync(&copy)));
        let givers: BTreeSet<NodeId> =
            behind.flat_map(|volume| &volume.copies).filter(in_sync).map(|copy| NodeId(copy.node)).collect();
        self.searched.borrow_mut().givers = Some((revision, givers.clone()));
        givers
    }

    /// All volumes with copies, on any nodes, at one moment.
    ///
    /// Only for rare decisions that need all of them: hosts' requests wait meanwhile.
    pub fn volumes(&self) -> Vec<CopiesStatus> {
        self.list::<VolumeEntry>(VOLUMES).into_iter().map(|entry| self.status_of(entry)).collect()
    }

    /// The volumes that `wanted` selects, a few in each turn of this core.
    pub async fn volumes_in_parts(&self, wanted: impl Fn(&VolumeEntry) -> bool) -> Vec<CopiesStatus> {
        let mut all = Vec::new();
        self.for_each_entry(|entry| {
            if wanted(&entry) {
                all.push(self.status_of(entry));
            }
        })
        .await;
        all
    }

    /// Calls `each` with what the record says about each volume, a few in each turn of this core.
    ///
    /// It may or may not see what changes meanwhile.
    pub async fn for_each_entry(&self, mut each: impl FnMut(VolumeEntry)) {
        let mut after = VOLUMES.to_owned();
        loop {
            {
                let (record, unreadable) = (self.record.borrow(), self.unreadable.borrow());
                let rest =
                    record.entries.range::<str, _>((Bound::Excluded(after.as_str()), Bound::Unbounded));
                let part = rest.take_while(|(key, _)| key.starts_with(VOLUMES)).take(ITEMS_PER_TURN);
                let mut last = None;
                for (key, value) in part {
                    last = Some(key.clone());
                    let legible = legible(&unreadable, key, value);
                    legible.and_then(|value| parse(key, &value.value)).into_iter().for_each(&mut each);
                }
                match last {
                    Some(key) => after = key,
                    None => return,
                }
            }
            rt::next_turn().await;
        }
    }

    /// Whether the record has the volume.
    pub fn has(&self, id: VolumeId) -> bool {
        self.record.borrow().entries.contains_key(&volume_key(id))
    }

    /// The copies of one volume; `None`: volume not found in the record.
    pub fn volume(&self, id: VolumeId) -> Option<CopiesStatus> {
        let (entry, _) = self.get(&volume_key(id))?;
        Some(self.status_of(entry))
    }

    /// The record's entry of the volume with this name or identity; a name takes precedence. `None`: not
    /// found.
    pub fn entry_named(&self, name: &str) -> Option<(VolumeId, VolumeEntry)> {
        let id = self.get::<String>(&volume_name_key(name)).map_or_else(|| name.to_owned(), |(id, _)| id);
        let id = VolumeId::parse(&id)?;
        let (entry, _) = self.get(&volume_key(id))?;
        Some((id, entry))
    }

    /// The copies of the volume with this name or identity; `None`: volume not found in the record.
    pub fn volume_named(&self, name: &str) -> Option<CopiesStatus> {
        self.entry_named(name).map(|(_, entry)| self.status_of(entry))
    }

    fn status_of(&self, entry: VolumeEntry) -> CopiesStatus {
        let (now, volumes) = (rt::now(), self.volumes.borrow());
        let kept = VolumeId::parse(&entry.id).and_then(|id| volumes.get(&id));
        let serving = kept.is_some_and(|kept| kept.sole || kept.open && self.serves(now, kept));
        let syncs = self.syncs_of(now, &entry);
        let (policy, fork) = (self.policy_of(&entry), self.fork_of(&entry));
        let here = kept.map(|kept| (kept.slot, kept.open || kept.sole));
        let verification = VolumeId::parse(&entry.id).map(|id| self.verification(id)).unwrap_or_default();
        let verify_every = self.verify_every();
        let clone_of = entry.reads().map(|(of, _)| self.cloned_from(of));
        CopiesStatus { entry, here, serving, syncs, policy, fork, verification, verify_every, clone_of }
    }

    fn cloned_from(&self, of: &Origin) -> ClonedFrom {
        let number = of.snapshot.checked_sub(pool_number(self.cluster(), 0));
        let keys = number.and_then(|number| u32::try_from(number).ok()).map(SnapshotEntry::keys);
        let snapshot = keys.and_then(|keys| keys.iter().find_map(|key| self.get::<SnapshotEntry>(key)));
        let volume = VolumeId::parse(&of.volume).and_then(|id| self.get::<VolumeEntry>(&volume_key(id)));
        ClonedFrom {
            id: of.volume.clone(),
            volume: volume.map_or_else(|| of.volume.clone(), |(volume, _)| volume.name),
            snapshot: snapshot.map_or_else(|| of.snapshot.to_string(), |(snapshot, _)| snapshot.name),
        }
    }
}
