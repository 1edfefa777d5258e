//! Converting a volume to another kind.

use std::rc::Rc;

use ::node::Control;
use api::{Candidate, DryRun, Volume, VolumeConvert, VolumeKind};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use base::ByteLen;

use super::change::room_for;
use super::{asked_kind, named, whole};
use crate::http::dry_run::{self, DryRunParam};
use crate::http::input::{Json, Parameters, Segments};
use crate::http::jobs::id;
use crate::http::refusal::Refusal;
use crate::http::state::State;

/// Rules of candidates that do not keep a volume from being converted: a node that is down follows when it is
/// back.
const FOLLOW_LATER: [&str; 2] = ["node_down", "node_unanswered"];

/// Converts a volume to another kind while it is in use: thick to log, or log to thick.
///
/// Each node converts its own copy in the background, and continues after a restart. No copy goes out of
/// sync. Until a copy is converted, it takes the space of both kinds. Each is a job of its node; cancelling
/// one cancels the conversion of the whole volume. A volume being converted cannot grow.
#[utoipa::path(
    post, path = "/v1/volumes/{name}/convert", tag = "volumes", operation_id = "convert_volume",
    params(("name" = String, Path, description = "Volume name or ID"), DryRunParam),
    request_body = VolumeConvert,
    responses(
        (status = OK, description = "With `dry_run`: what would be done", body = DryRun),
        (status = ACCEPTED, description = "The volume; its copies are being converted", body = Volume, headers(("Location" = String, description = "The job of this node that shows progress and result"))),
        (status = NOT_FOUND, description = "`volume_not_found`"),
        (status = CONFLICT, description = "`volume_in_several_pools`, `forked`, `changed_meanwhile`, `disk_leaving`; `pool_unavailable`, `pool_read_only`, `disk_failed`: of a node with a copy"),
        (status = UNPROCESSABLE_ENTITY, description = "`field_invalid`: the volume cannot have this kind, or has a reserve or a policy for a full pool that this kind does not have"),
        (status = INSUFFICIENT_STORAGE, description = "`no_space`"),
    ),
)]
pub(in crate::http) async fn convert(
    state: State,
    Segments(name): Segments<String>,
    Parameters(DryRunParam { dry_run }): Parameters<DryRunParam>,
    Json(VolumeConvert { kind }): Json<VolumeConvert>,
) -> Result<Response, Refusal> {
    let DryRun { would, candidates } = plan(&state, name.clone(), kind).await?;
    if dry_run {
        return Ok(dry_run::would(would, candidates));
    }
    // In two calls: each may run twice (see [`State::call`]), and the first changes something.
    let of_volume = name.clone();
    let convert =
        move |control: Rc<Control>| async move { control.convert_volume(&of_volume, asked_kind(kind)).await };
    let converted = state.call(convert).await?;
    let volume = converted.info.id;
    let show = move |control: Rc<Control>| async move {
        let status = control.volume(&volume.to_string())?;
        Ok((whole(&control, status).await, control.number()))
    };
    let (shown, here) = state.call(show).await?;
    let job = id::of_conversion(volume, here);
    Ok((StatusCode::ACCEPTED, id::location(&job), axum::Json(shown)).into_response())
}

/// What converting the volume would do.
///
/// # Errors
/// Why it is refused: also if a node that is up lacks the space.
async fn plan(state: &State, name: String, kind: VolumeKind) -> Result<DryRun, Refusal> {
    let check = move |control: Rc<Control>| async move {
        let is_new = control.check_conversion(&name, asked_kind(kind))?;
        Ok((named(&control, control.volume(&name)?), is_new))
    };
    let (volume, is_new) = state.call(check).await?;
    if !is_new {
        let steps = vec![format!(
            "no change: volume {} already is a {} volume, or is being converted to one",
            volume.name,
            kind.name()
        )];
        return Ok(DryRun { would: steps, candidates: Vec::new() });
    }
    // A log takes its space as it is written: at most that of everything that the volume has in use.
    let found = room_for(state, &volume, kind, |_| volume.size).await?;
    let keeps = |found: &&Candidate| found.rule.as_deref().is_some_and(|rule| !FOLLOW_LATER.contains(&rule));
    if let Some(bad) = found.iter().find(keeps) {
        let code = bad.rule.clone().unwrap_or_default();
        let status = if code == "no_space" { StatusCode::INSUFFICIENT_STORAGE } else { StatusCode::CONFLICT };
        let detail = format!("cannot convert volume {} on {}: {}", volume.name, bad.node_name, bad.text);
        return Err(Refusal::new(status, code, detail).candidates(found));
    }
    Ok(DryRun { would: steps(&volume, kind, &found), candidates: found })
}

fn steps(volume: &Volume, kind: VolumeKind, found: &[Candidate]) -> Vec<String> {
    let size = ByteLen(volume.size);
    let step = |found: &Candidate| {
        let (node, pool) = (&found.node_name, found.pool.as_deref().unwrap_or_default());
        match (&found.rule, kind.is_thin()) {
            (Some(_), _) => format!("{node} ({}) converts its copy when it is back", found.text),
            (None, true) => format!(
                "{node} copies what is in use to the log of pool {pool}, which needs up to {size} more until the former space is freed"
            ),
            (None, false) => format!(
                "{node} allocates {size} in pool {pool}, copies what is in use there, and then frees the space in the log"
            ),
        }
    };
    let mut steps: Vec<String> = found.iter().map(step).collect();
    if !kind.has_checksums() {
        steps.push(format!("the blocks of volume {} will have no checksums", volume.name));
    }
    steps.push(format!("volume {} remains available to hosts; it cannot grow meanwhile", volume.name));
    steps
}

#[cfg(test)]
mod tests {
    use terms::samples;

    use super::*;

    #[test]
    fn the_plan_says_what_each_node_does() {
        let candidate = |node: u16, rule: Option<&str>| Candidate {
            node,
            node_name: format!("san{node}"),
            pool: Some("main".into()),
            rule: rule.map(str::to_owned),
            text: "unreachable: heartbeat timeout".into(),
        };
        let volume = samples::volume("db", Vec::new());
        let found = [candidate(1, None), candidate(2, Some("node_down"))];
        let told = steps(&volume, VolumeKind::Log, &found);
        assert!(told[0].starts_with("san1 copies what is in use to the log of pool main"), "{told:?}");
        assert_eq!(told[1], "san2 (unreachable: heartbeat timeout) converts its copy when it is back");
        assert_eq!(told.len(), 3);
        assert!(steps(&volume, VolumeKind::Thick, &found)[0].starts_with("san1 allocates"));
    }
}
