//! Changes of volumes that are several of the control's, done as one: a step that fails takes those before it back.

use std::rc::Rc;
use std::time::{SystemTime, UNIX_EPOCH};

use ::node::Control;
use ::node::access::TargetName;
use ::node::control::{ControlError, MapSpec, NewVolume, TargetSpec, VolumeStatus};
use api::{DEFAULT_HOST, VolumeCreate, VolumeKind, default_target};
use base::{BlockSize, ByteLen};

use crate::http::refusal::Refusal;

/// A volume to be made, checked as far as it can be without the node.
pub(super) struct Making {
    volume: NewVolume,
    /// How to map it; its volume is the name of the one to be made.
    map: Option<MapSpec>,
}

impl Making {
    /// What a request asks for.
    ///
    /// # Errors
    /// Fields that cannot be, or not together.
    pub(super) fn of(new: VolumeCreate) -> Result<Making, Refusal> {
        let block_size = BlockSize::from_bytes(new.block_size)
            .ok_or_else(|| Refusal::invalid("block_size", "a volume has blocks of 512 or of 4096 bytes"))?;
        if new.native_512 && block_size != BlockSize::B512 {
            return Err(Refusal::invalid("native_512", "a volume with blocks of 4096 bytes has none of 512"));
        }
        let map = if new.map {
            Some(MapSpec {
                target: new.target.unwrap_or_else(|| default_target(&new.name)),
                volume: new.name.clone(),
                host: new.host.unwrap_or_else(|| DEFAULT_HOST.into()),
                lun: new.lun,
            })
        } else if new.target.is_some() || new.host.is_some() || new.lun.is_some() {
            let detail = "`target`, `host` and `lun` say how to map the volume, and `map` is false";
            return Err(Refusal::invalid("map", detail));
        } else {
            None
        };
        let kind = match new.kind {
            VolumeKind::Thick => store::VolumeKind::Thick,
            VolumeKind::Ram => store::VolumeKind::Ram,
        };
        let volume = NewVolume {
            name: new.name,
            pool: new.pool,
            kind,
            size: ByteLen(new.size),
            block_size,
            native_512: new.native_512,
            slices: new.slices,
            created: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs(),
        };
        Ok(Making { volume, map })
    }

    /// Makes the volume and maps it.
    pub(super) async fn carry_out(self, control: Rc<Control>) -> Result<VolumeStatus, ControlError> {
        let Some(map) = self.map else { return control.create_volume(self.volume).await };
        // Before anything is made: a target's name is the only thing that only `map` would find wrong so late.
        let _: TargetName = map.target.parse()?;
        let volume = control.create_volume(self.volume).await?;
        let id = volume.info.id.to_string();
        match map_new(&control, MapSpec { volume: id.clone(), ..map }).await {
            Ok(()) => control.volume(&id),
            Err(error) => {
                if let Err(undo) = control.delete_volume(&id, true).await {
                    tracing::error!(volume = volume.info.name, error = %undo, "a volume that could not be mapped was left");
                }
                Err(error)
            }
        }
    }
}

/// Maps a volume, and makes the target if it is not there.
async fn map_new(control: &Control, map: MapSpec) -> Result<(), ControlError> {
    let target = map.target.clone();
    let made = match control.create_target(TargetSpec { name: target.clone(), alias: None, chap: None }).await
    {
        Ok(()) => true,
        Err(ControlError::Exists { .. }) => false,
        Err(error) => return Err(error),
    };
    let mapped = control.map(map).await;
    if mapped.is_err()
        && made
        && let Err(undo) = control.delete_target(&target, false).await
    {
        tracing::error!(target, error = %undo, "a target that nothing could be mapped to was left");
    }
    mapped.map(drop)
}

/// Renames and grows, both or none.
pub(super) async fn change(
    control: Rc<Control>,
    name: String,
    new_name: Option<String>,
    size: Option<ByteLen>,
) -> Result<VolumeStatus, ControlError> {
    let before = control.volume(&name)?;
    let id = before.info.id.to_string();
    // The name first: a name can be taken back, a size cannot.
    let new_name = new_name.filter(|name| *name != before.info.name);
    if let Some(new_name) = &new_name {
        control.rename_volume(&id, new_name).await?;
    }
    let Some(size) = size else { return control.volume(&id) };
    let grown = control.grow_volume(&id, size).await;
    if grown.is_err()
        && new_name.is_some()
        && let Err(undo) = control.rename_volume(&id, &before.info.name).await
    {
        tracing::error!(volume = id, error = %undo, "a volume that could not grow kept its new name");
    }
    grown
}

/// Deletes a volume and the target that was made with it.
pub(super) async fn delete(control: Rc<Control>, name: String, force: bool) -> Result<(), ControlError> {
    let volume = control.volume(&name)?.info;
    control.delete_volume(&volume.id.to_string(), force).await?;
    let target = default_target(&volume.name);
    let left = control
        .access()
        .target(&target)
        .is_some_and(|target| target.maps.is_empty() && target.alias.is_none() && target.chap.is_none());
    if left {
        // Somebody who maps something to it at this moment keeps it.
        match control.delete_target(&target, false).await {
            Ok(()) | Err(ControlError::HasLuns { .. } | ControlError::NotFound { .. }) => {}
            Err(error) => tracing::warn!(target, %error, "the target of a deleted volume was left"),
        }
    }
    Ok(())
}
