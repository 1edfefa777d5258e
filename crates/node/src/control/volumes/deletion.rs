//! Deletion of volumes: they are unmapped first, then closed on all cores, then deleted from their pools.

use std::collections::BTreeSet;
use std::rc::Rc;

use store::VolumeInfo;

use super::super::change::{Changing, WaitsFor, Work};
use super::super::doing::Doing;
use super::super::turns::Thing;
use super::super::{Control, ControlError};
use crate::copies::volume_key;
use crate::volume::VolumeId;

impl Control {
    /// Deletes a volume with all its data. `force` also deletes its LUN maps.
    ///
    /// The target that was created with the volume is deleted, too, if it has no other maps, no alias and no
    /// secret.
    ///
    /// # Errors
    /// [`ControlError::Mapped`].
    pub async fn delete_volume(self: &Rc<Control>, name: &str, force: bool) -> Result<(), ControlError> {
        let (control, (volume, pool)) = (Rc::clone(self), self.volume_and_pool_name(name)?);
        self.change(Work::new(Doing::DeleteVolume, &volume.name), |changing| async move {
            changing.concerns(volume.id);
            let _volume = changing.hold([Thing::Volume(volume.id), Thing::VolumesOf(pool)]).await?;
            let (pool, volume) = control.volume_still(&volume)?;
            match control.keeper() {
                Some(keeper) if control.is_the_clusters(&volume) => {
                    keeper.check_entry(&volume_key(volume.id))?
                }
                _ => control.check_alone(&pool, &volume)?,
            }
            control.unmap_volume(&changing, &volume, force).await?;
            if control.is_the_clusters(&volume) && control.is_recorded(volume.id).await? {
                drop((_volume, pool));
                return control.delete_replicated(volume.id, &volume.name).await;
            }
            control.close_volume(&changing, &pool, volume.id).await;
            changing.waits_for(WaitsFor::Disks(pool.paths()));
            Ok(pool.delete_volume_watched(volume.id, changing.zeroing()).await?)
        })
        .await
    }

    /// Deletes all maps of a volume that is to be deleted, if that is allowed. The caller holds the volume,
    /// so nobody can add maps.
    async fn unmap_volume(
        &self,
        changing: &Changing,
        volume: &VolumeInfo,
        force: bool,
    ) -> Result<(), ControlError> {
        if !force {
            self.check_unmapped(volume.id, &volume.name)?;
        }
        let volumes = BTreeSet::from([volume.id]);
        if self.unmapping(&volumes, true).is_empty() {
            return Ok(());
        }
        let _record = changing.hold([Thing::Record]).await?;
        // Other changes may have modified the targets in the meantime.
        self.change_access(changing, self.unmapping(&volumes, true)).await
    }

    pub(in crate::control) fn check_unmapped(&self, id: VolumeId, name: &str) -> Result<(), ControlError> {
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
