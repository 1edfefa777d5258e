//! What requests for volumes mean to the node's control.

use std::rc::Rc;

use ::node::Control;
use ::node::control::{ControlError, MapSpec, NewVolume, Placement, VolumeStatus};
use api::{DEFAULT_HOST, VolumeCreate, VolumeKind, default_target};
use base::{BlockSize, ByteLen};

use crate::clock::unix_now;
use crate::http::refusal::Refusal;

/// What a request for a volume asks for, checked as far as it can be without the node.
///
/// # Errors
/// Fields that cannot be, or not together.
pub(super) fn new_volume(new: VolumeCreate) -> Result<NewVolume, Refusal> {
    let block_size = BlockSize::from_bytes(new.block_size)
        .ok_or_else(|| Refusal::invalid("block_size", "a volume has blocks of 512 or of 4096 bytes"))?;
    if new.native_512 && block_size != BlockSize::B512 {
        return Err(Refusal::invalid("native_512", "a volume with blocks of 4096 bytes has none of 512"));
    }
    let map = if new.map {
        Some(MapSpec {
            target: new.target.unwrap_or_else(|| default_target(&new.name)),
            host: new.host.unwrap_or_else(|| DEFAULT_HOST.into()),
            lun: new.lun,
        })
    } else if new.target.is_some() || new.host.is_some() || new.lun.is_some() {
        let detail = "`target`, `host` and `lun` say how to map the volume, and `map` is false";
        return Err(Refusal::invalid("map", detail));
    } else {
        None
    };
    let copies = match (new.copies, new.nodes) {
        (None, None) => None,
        (Some(count), None) => Some(Placement::Count(count)),
        (None, Some(nodes)) => Some(Placement::Nodes(nodes)),
        (Some(_), Some(_)) => {
            let detail = "`copies` says how many nodes have a copy, `nodes` says which: give one of the two";
            return Err(Refusal::invalid("copies", detail));
        }
    };
    let kind = match new.kind {
        VolumeKind::Thick => store::VolumeKind::Thick,
        VolumeKind::Ram => store::VolumeKind::Ram,
    };
    Ok(NewVolume {
        name: new.name,
        pool: new.pool,
        kind,
        size: ByteLen(new.size),
        block_size,
        native_512: new.native_512,
        slices: new.slices,
        created: unix_now(),
        map,
        copies,
    })
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
    control.delete_volume(&volume.id.to_string(), force, Some(&default_target(&volume.name))).await
}
