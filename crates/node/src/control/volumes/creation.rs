//! Volumes that are created.

use std::rc::Rc;

use super::super::change::Changing;
use super::super::doing::Doing;
use super::super::turns::{NOTHING, Thing};
use super::super::{Control, ControlError, Ranking, Result};
use super::{NewVolume, check_space, whole_blocks};
use crate::attach::access::VolumeName;
use crate::data::VolumeId;

impl Control {
    /// Creates a volume and maps it, or does neither. All of its copies may be on other nodes.
    ///
    /// A power cut in between may leave the volume without its map.
    ///
    /// # Errors
    /// An invalid name or size; a name that is taken; no pool, no space, or no free LUN; too few nodes.
    pub async fn create_volume(self: &Rc<Control>, new: NewVolume) -> Result<VolumeId> {
        self.change(Doing::MakeVolume.of(&new.name), NOTHING, |control, changing| async move {
            control.make_volume(&changing, new).await
        })
        .await
    }

    /// Checks, without doing it, whether a volume could be created; returns the nodes for its copies.
    ///
    /// # Errors
    /// As [`Control::create_volume`], except those that only the pool can report.
    pub async fn check_volume(&self, new: &NewVolume) -> Result<Ranking> {
        let name = self.check_new(new)?;
        if let Some(map) = &new.map {
            self.place_for_new(map)?;
        }
        let ranking = self.check_placement(name, &self.placement(new.copies.as_ref())).await?;
        if ranking.named && ranking.nodes.contains(&self.number()) {
            match &new.pool {
                Some(pool) => self.pool_named(pool)?,
                None => self.only_pool()?,
            };
        }
        Ok(ranking)
    }

    /// Checks what a volume would be, and that its name is free; returns the name.
    fn check_new(&self, new: &NewVolume) -> Result<VolumeName> {
        let name: VolumeName = new.name.parse()?;
        check_space(new.space, new.kind, whole_blocks(new.size, new.block_size)?)?;
        match self.volume_named(name.as_str()) {
            Ok(_) => Err(ControlError::Exists { kind: "volume", name: name.into() }),
            Err(_) => Ok(name),
        }
    }

    async fn make_volume(&self, changing: &Changing, new: NewVolume) -> Result<VolumeId> {
        let name: VolumeName = new.name.parse()?;
        let _name = changing.hold([Thing::VolumeName(name.to_string())]).await?;
        self.check_new(&new)?;
        let placement = self.placement(new.copies.as_ref());
        self.make_replicated(changing, new, &placement).await
    }
}
