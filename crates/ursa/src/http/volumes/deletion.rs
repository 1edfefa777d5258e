//! Deleting a volume.

use std::collections::BTreeSet;
use std::rc::Rc;

use ::node::Control;
use ::node::control::ControlError;
use api::{DryRun, Problem};
use axum::extract::State as Extracted;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use utoipa::IntoParams;

use crate::http::dry_run;
use crate::http::input::{Parameters, Segments};
use crate::http::refusal::Refusal;
use crate::http::state::State;
use crate::size::Size;

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
/// A target that was created with it is deleted, too, unless it has other maps, an alias or a secret.
#[utoipa::path(
    delete, path = "/v1/volumes/{name}", tag = "volumes", operation_id = "delete_volume",
    params(("name" = String, Path, description = "Volume name or ID"), Deletion),
    responses(
        (status = NO_CONTENT, description = "Done"),
        (status = OK, description = "With `dry_run`: what would be done", body = DryRun),
        (status = NOT_FOUND, description = "`volume_not_found`", body = Problem, content_type = Problem::MEDIA_TYPE),
        (status = CONFLICT, description = "`volume_mapped`, `volume_in_use`, `no_cluster`", body = Problem, content_type = Problem::MEDIA_TYPE),
    ),
)]
pub(in crate::http) async fn delete(
    Extracted(state): Extracted<State>,
    Segments(name): Segments<String>,
    Parameters(Deletion { force, dry_run }): Parameters<Deletion>,
) -> Result<Response, Refusal> {
    if dry_run {
        return would_delete(&state, name, force).await;
    }
    state.call(move |control| deleted(control, name, force)).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Deletes a volume.
async fn deleted(control: Rc<Control>, name: String, force: bool) -> Result<(), ControlError> {
    let volume = control.volume(&name)?.info;
    control.delete_volume(&volume.id.to_string(), force).await
}

/// Answers a dry run of deleting a volume.
async fn would_delete(state: &State, name: String, force: bool) -> Result<Response, Refusal> {
    let look = move |control: Rc<Control>| async move {
        let volume = control.volume(&name)?;
        let volumes = BTreeSet::from([volume.info.id]);
        let access = control.access();
        let going = access.targets().filter(|target| target.goes_with(&volumes));
        let targets: Vec<String> = going.map(|target| target.name.to_string()).collect();
        Ok((volume, targets))
    };
    let (volume, targets) = state.call(look).await?;
    if let Some((target, lun, _)) = volume.maps.first().filter(|_| !force) {
        let mapped = ControlError::Mapped { volume: volume.info.name, target: target.clone(), lun: *lun };
        return Err(mapped.into());
    }
    let name = &volume.info.name;
    let mut steps: Vec<String> = volume
        .maps
        .iter()
        .map(|(target, lun, host)| format!("LUN {lun} of target {target} is unmapped from host group {host}"))
        .collect();
    steps.extend(
        targets.into_iter().map(|target| format!("target {target}, which was created with it, is deleted")),
    );
    let data = Size(volume.info.capacity.0);
    match &volume.copies {
        None => steps.push(format!("volume {name} is deleted, with {data} of data")),
        Some(copies) => {
            let nodes: Vec<String> = copies.entry.copies.iter().map(|copy| copy.node.to_string()).collect();
            let nodes = nodes.join(", ");
            steps.push(format!("volume {name} is deleted, with {data} of data, on nodes {nodes}"));
        }
    }
    Ok(dry_run::would(steps, Vec::new()))
}
