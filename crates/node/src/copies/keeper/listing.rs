//! Lists the cluster's volumes and their state.

use std::ops::Bound;

use store::VolumeId;

use super::super::entry::{VOLUMES, VolumeEntry, volume_key, volume_name_key};
use super::unreadable::legible;
use super::{CopiesStatus, Keeper, parse};
use crate::parts::A_TURN;

impl Keeper {
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
                let part = rest.take_while(|(key, _)| key.starts_with(VOLUMES)).take(A_TURN);
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
        CopiesStatus { entry, here, serving, syncs, policy, fork, verification, verify_every }
    }
}
