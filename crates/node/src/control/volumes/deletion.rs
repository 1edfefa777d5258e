//! Deletion of volumes: they are unmapped first, then closed on all cores, then deleted from their pools.

use std::collections::BTreeSet;
use std::rc::Rc;

use replica::NodeId;

use super::super::change::{Changing, WaitsFor};
use super::super::doing::Doing;
use super::super::turns::{NOTHING, Thing};
use super::super::{Control, ControlError, Result};
use crate::copies::{CopyEntry, VolumeEntry, volume_key};
use crate::data::VolumeId;

impl Control {
    /// Deletes a volume with all its data. `force` also deletes its LUN maps.
    ///
    /// The target that was created with the volume is deleted, too, if it has no other maps, no alias and no
    /// secret.
    ///
    /// # Errors
    /// [`ControlError::Mapped`]; [`ControlError::InSeveralPools`]; [`ControlError::HasSnapshots`].
    pub async fn delete_volume(self: &Rc<Control>, name: &str, force: bool) -> Result<()> {
        let (volume, pool) = self.volume_and_pool_name(name)?;
        self.change(Doing::DeleteVolume.of(&volume.name), NOTHING, |control, changing| async move {
            changing.concerns(volume.id);
            let _volume = changing.hold(Thing::volume_in(volume.id, pool)).await?;
            let (pool, volume) = control.volume_to_change(&volume)?;
            control.reconciler()?.check_entry(&volume_key(volume.id))?;
            control.check_no_snapshots(volume.id, &volume.name)?;
            control.unmap_volume(&changing, volume.id, &volume.name, force).await?;
            if control.is_recorded(volume.id).await? {
                // Each node holds the volume for its own part.
                drop((_volume, pool));
                return control.delete_replicated(&changing, volume.id, &volume.name).await;
            }
            // Only this node knows of it.
            control.close_volume(&changing, &pool, volume.id).await;
            changing.waits_for(WaitsFor::Disks(pool.paths()));
            Ok(pool.delete_volume_watched(volume.id, changing.zeroing()).await?)
        })
        .await
    }

    /// Checks, without doing it, whether what this node has of a volume could be deleted, apart from LUN
    /// maps.
    ///
    /// # Errors
    /// [`ControlError::NotFound`]; [`ControlError::InSeveralPools`].
    pub fn check_deletion(&self, name: &str) -> Result<()> {
        let (_, volume) = self.volume_named(name)?;
        self.check_no_snapshots(volume.id, &volume.name)?;
        self.check_in_one_pool(&volume)
    }

    /// The volume of this name or identity, if no node with a copy can be reached, and this node's copy, if
    /// it has one, is in a pool that is not open.
    ///
    /// # Errors
    /// [`ControlError::NotFound`]; [`ControlError::ElsewhereOnly`]: a node with a copy is there.
    pub fn unreachable_volume(&self, name: &str) -> Result<(VolumeId, VolumeEntry)> {
        let reconciler = self.reconciler()?;
        let (id, entry) =
            reconciler.entry_named(name).ok_or_else(|| ControlError::not_found("volume", name))?;
        let is_there =
            |copy: &&CopyEntry| NodeId(copy.node) != reconciler.me() && reconciler.hears(NodeId(copy.node));
        let there = entry.copies.iter().find(is_there).map(|copy| copy.node);
        match there {
            Some(node) => Err(ControlError::ElsewhereOnly { volume: entry.name, node }),
            None => Ok((id, entry)),
        }
    }

    /// Deletes a volume of which no copy can be reached. Its nodes delete their copies when they return: the
    /// record says so in the same transaction. `force` also deletes its LUN maps.
    ///
    /// # Errors
    /// As [`Control::unreachable_volume`]; [`ControlError::Mapped`]; those of the record.
    pub async fn delete_unreachable(self: &Rc<Control>, name: &str, force: bool) -> Result<()> {
        let (id, entry) = self.unreachable_volume(name)?;
        self.change(Doing::DeleteVolume.of(&entry.name), NOTHING, |control, changing| async move {
            changing.concerns(id);
            let volume = changing.hold([Thing::Volume(id)]).await?;
            // A node may have returned meanwhile.
            let (_, entry) = control.unreachable_volume(&id.to_string())?;
            control.reconciler()?.check_entry(&volume_key(id))?;
            control.check_no_snapshots(id, &entry.name)?;
            control.unmap_volume(&changing, id, &entry.name, force).await?;
            drop(volume);
            control.delete_replicated(&changing, id, &entry.name).await
        })
        .await
    }

    /// Deletes all maps of a volume that is to be deleted, if that is allowed. The caller holds the volume,
    /// so nobody can add maps.
    async fn unmap_volume(&self, changing: &Changing, id: VolumeId, name: &str, force: bool) -> Result<()> {
        if !force {
            self.check_unmapped(id, name)?;
        }
        let volumes = BTreeSet::from([id]);
        if self.unmapping(&volumes, true).is_empty() {
            return Ok(());
        }
        let _record = changing.hold([Thing::Record]).await?;
        // Other changes may have modified the targets in the meantime.
        self.change_access(changing, self.unmapping(&volumes, true)).await
    }

    pub(in crate::control) fn check_unmapped(&self, id: VolumeId, name: &str) -> Result<()> {
        let access = self.access();
        let mut maps =
            access.targets_of(id).flat_map(|target| target.maps.iter().map(move |map| (target, map)));
        match maps.find(|(_, map)| map.volume == id) {
            None => Ok(()),
            Some((target, map)) => Err(ControlError::Mapped {
                volume: name.to_owned(),
                target: target.name.to_string(),
                lun: map.lun,
            }),
        }
    }
}
