//! Deleting a volume.

use std::collections::BTreeSet;
use std::rc::Rc;

use ::node::control::{ControlError, VolumeStatus};
use ::node::copies::VolumeEntry;
use ::node::{Control, VolumeId};
use api::DryRun;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use terms::size::Size;
use utoipa::IntoParams;

use crate::http::dry_run;
use crate::http::input::{Parameters, Segments};
use crate::http::refusal::Refusal;
use crate::http::state::State;

/// How to delete a volume.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::http) struct Deletion {
    /// Delete its LUN maps, too.
    #[serde(default)]
    force: bool,
    /// Dry run: show what would be done, and change nothing.
    #[serde(default)]
    dry_run: bool,
}

/// Deletes a volume with all its data.
///
/// A target that was created with it is deleted, too, unless it has other maps, an alias or a secret. If no
/// node with a copy can be reached, the volume is deleted from the cluster's record, and its nodes delete
/// their copies when they return.
#[utoipa::path(
    delete, path = "/v1/volumes/{name}", tag = "volumes", operation_id = "delete_volume",
    params(("name" = String, Path, description = "Volume name or ID"), Deletion),
    responses(
        (status = NO_CONTENT, description = "Done"),
        (status = OK, description = "With `dry_run`: what would be done", body = DryRun),
        (status = NOT_FOUND, description = "`volume_not_found`"),
        (status = CONFLICT, description = "`volume_mapped`, `volume_in_use`, `volume_in_several_pools`"),
    ),
)]
pub(in crate::http) async fn delete(
    state: State,
    Segments(name): Segments<String>,
    Parameters(Deletion { force, dry_run }): Parameters<Deletion>,
) -> Result<Response, Refusal> {
    if dry_run {
        return would_delete(&state, name, force).await;
    }
    state.call(move |control| deleted(control, name, force)).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

async fn deleted(control: Rc<Control>, name: String, force: bool) -> Result<(), ControlError> {
    match control.volume(&name) {
        Ok(volume) => control.delete_volume(&volume.info.id.to_string(), force).await,
        Err(_) => control.delete_unreachable(&name, force).await,
    }
}

/// What is known of a volume that is to be deleted.
struct Going {
    id: VolumeId,
    name: String,
    size: u64,
    maps: Vec<(String, u16, String)>,
    /// The nodes with its copies.
    nodes: Vec<u16>,
    is_reachable: bool,
}

impl Going {
    fn find(control: &Control, name: &str) -> Result<Going, ControlError> {
        let nodes_of = |entry: &VolumeEntry| entry.copies.iter().map(|copy| copy.node).collect();
        match control.volume(name) {
            Ok(VolumeStatus { info, maps, copies, .. }) => Ok(Going {
                id: info.id,
                name: info.name,
                size: info.capacity.0,
                maps,
                // The record may not list it.
                nodes: copies.map_or_else(|| vec![control.number()], |copies| nodes_of(&copies.entry)),
                is_reachable: true,
            }),
            Err(_) => {
                let (id, entry) = control.unreachable_volume(name)?;
                Ok(Going {
                    id,
                    maps: control.maps_of(&entry.id),
                    nodes: nodes_of(&entry),
                    size: entry.size,
                    name: entry.name,
                    is_reachable: false,
                })
            }
        }
    }
}

async fn would_delete(state: &State, name: String, force: bool) -> Result<Response, Refusal> {
    let look = move |control: Rc<Control>| async move {
        let volume = Going::find(&control, &name)?;
        if volume.is_reachable {
            control.check_deletion(&name)?;
        }
        let volumes = BTreeSet::from([volume.id]);
        let access = control.access();
        let going = access.targets().filter(|target| target.goes_with(&volumes));
        let targets: Vec<String> = going.map(|target| target.name.to_string()).collect();
        Ok((volume, targets))
    };
    let (volume, targets) = state.call(look).await?;
    if let Some((target, lun, _)) = volume.maps.first().filter(|_| !force) {
        let mapped = ControlError::Mapped { volume: volume.name, target: target.clone(), lun: *lun };
        return Err(mapped.into());
    }
    let name = &volume.name;
    let mut steps: Vec<String> = volume
        .maps
        .iter()
        .map(|(target, lun, host)| format!("LUN {lun} of target {target} is unmapped from host group {host}"))
        .collect();
    steps.extend(
        targets.into_iter().map(|target| format!("target {target}, which was created with it, is deleted")),
    );
    let data = Size(volume.size);
    let on = if volume.nodes.len() == 1 { "node" } else { "nodes" };
    let nodes: Vec<String> = volume.nodes.iter().map(ToString::to_string).collect();
    let nodes = nodes.join(", ");
    steps.push(format!("volume {name} is deleted, with {data} of data, on {on} {nodes}"));
    if !volume.is_reachable {
        steps.push(
            "its nodes cannot be reached: they serve hosts that still reach them, and delete their copies when they return"
                .into(),
        );
    }
    Ok(dry_run::would(steps, Vec::new()))
}
