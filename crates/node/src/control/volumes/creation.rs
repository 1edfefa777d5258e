//! Volumes that are created, and deleted again if they cannot be exposed.

use std::rc::Rc;

use base::BlockSize;
use store::{Pool, VolumeInfo, VolumeSpec};

use super::super::access::MapSpec;
use super::super::change::{Changing, WaitsFor, Work};
use super::super::doing::Doing;
use super::super::turns::Thing;
use super::super::{Control, ControlError, Ranking};
use super::{NewVolume, check_space, whole_blocks};
use crate::access::VolumeName;
use crate::volume::VolumeId;

impl Control {
    /// Creates a volume and maps it, or does neither. All of its copies may be on other nodes.
    ///
    /// A power cut in between may leave the volume without its map.
    ///
    /// # Errors
    /// An invalid name or size; a name that is taken; no pool, no space, or no free LUN.
    pub async fn create_volume(self: &Rc<Control>, new: NewVolume) -> Result<VolumeId, ControlError> {
        let control = Rc::clone(self);
        self.change(Work::new(Doing::MakeVolume, &new.name), |changing| async move {
            control.make_volume(&changing, new).await
        })
        .await
    }

    /// Checks, without doing it, whether a volume could be created; returns the nodes of the cluster for its
    /// copies, or `None` if it would be on this node only.
    ///
    /// # Errors
    /// As [`Control::create_volume`], except those that only the pool can report.
    pub async fn check_volume(&self, new: &NewVolume) -> Result<Option<Ranking>, ControlError> {
        let name: VolumeName = new.name.parse()?;
        if self.volume_named(name.as_str()).is_ok() {
            return Err(ControlError::Exists { kind: "volume", name: name.into() });
        }
        check_space(new.space, new.kind, whole_blocks(new.size, new.block_size)?)?;
        if let Some(map) = &new.map {
            self.place_for_new(map)?;
        }
        if let Some(placement) = self.placement(new.copies.as_ref()) {
            return self.check_placement(name, &placement).await.map(Some);
        }
        match &new.pool {
            Some(pool) => self.pool_named(pool)?,
            None => self.only_pool()?,
        };
        Ok(None)
    }

    async fn make_volume(&self, changing: &Changing, new: NewVolume) -> Result<VolumeId, ControlError> {
        let name: VolumeName = new.name.parse()?;
        check_space(new.space, new.kind, whole_blocks(new.size, new.block_size)?)?;
        if let Some(placement) = self.placement(new.copies.as_ref()) {
            let _name = changing.hold([Thing::VolumeName(name.to_string())]).await?;
            if self.volume_named(name.as_str()).is_ok() {
                return Err(ControlError::Exists { kind: "volume", name: name.into() });
            }
            return self.make_replicated(changing, new, &placement).await;
        }
        let pool = match &new.pool {
            Some(pool) => pool.clone(),
            None => self.only_pool()?.name(),
        };
        let _name =
            changing.hold([Thing::VolumeName(name.to_string()), Thing::VolumesOf(pool.clone())]).await?;
        if self.volume_named(name.as_str()).is_ok() {
            return Err(ControlError::Exists { kind: "volume", name: name.into() });
        }
        let pool = self.pool_named(&pool)?;
        let physical_exponent = match (new.block_size, new.native_512) {
            (BlockSize::B512, false) => 3,
            _ => 0,
        };
        let capacity = whole_blocks(new.size, new.block_size)?;
        if let Some(map) = &new.map {
            // Detect a bad map before anything is created.
            self.place_for_new(map)?;
        }
        let spec = VolumeSpec {
            name: name.into(),
            kind: new.kind,
            block_size: new.block_size,
            physical_exponent,
            capacity,
            slices: new.slices,
            stripe_unit: None,
            created: new.created,
            id: None,
            copy: None,
            space: new.space,
            compression: new.compression,
            checksums: new.checksums,
        };
        changing.waits_for(WaitsFor::Disks(pool.paths()));
        let info = pool.create_volume_watched(spec, changing.zeroing()).await?;
        changing.concerns(info.id);
        let shown = self.show_new_volume(changing, &pool, &info, new.map).await;
        if let Err(error) = shown {
            self.take_back(changing, &pool, &info).await;
            return Err(error);
        }
        Ok(info.id)
    }

    async fn show_new_volume(
        &self,
        changing: &Changing,
        pool: &Pool,
        info: &VolumeInfo,
        map: Option<MapSpec>,
    ) -> Result<(), ControlError> {
        let _volume = changing.hold([Thing::Volume(info.id)]).await?;
        self.open_new_volume(pool, info).await?;
        let Some(map) = map else { return Ok(()) };
        let _record = changing.hold([Thing::Record]).await?;
        let place = self.place_for_new(&map)?;
        self.change_access(changing, vec![place.taken_by(info.id)]).await
    }

    /// Deletes a new volume that could not be exposed.
    async fn take_back(&self, changing: &Changing, pool: &Pool, info: &VolumeInfo) {
        self.close_volume(changing, pool, info.id).await;
        changing.waits_for(WaitsFor::Disks(pool.paths()));
        if let Err(undo) = pool.delete_volume(info.id).await {
            let error = &undo as &dyn std::error::Error;
            tracing::error!(volume = info.name, error, "a volume that could not be exposed was left behind");
        }
    }
}
