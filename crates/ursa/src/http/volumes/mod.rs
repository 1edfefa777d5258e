//! Volumes.

mod candidates;
mod copies;
mod elsewhere;
mod making;
mod strategy;

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use ::node::Control;
use ::node::control::{AddedCopy, ControlError, NewVolume, VolumeStatus};
use api::{
    Candidate, ClusterNode, CopyCreate, DryRun, List, Problem, Verification, Volume, VolumeChange,
    VolumeCreate, VolumeKind, VolumeMap,
};
use axum::extract::State as Extracted;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use base::ByteLen;
use serde::Deserialize;
use utoipa::IntoParams;

pub use self::elsewhere::Elsewhere;
pub(super) use self::elsewhere::of_ids;
pub(super) use self::strategy::{__path_choose_strategy, __path_resolve_fork, choose_strategy, resolve_fork};
use super::dry_run::{self, Asked};
use super::input::{Json, Parameters, Segments};
use super::peers;
use super::refusal::Refusal;
use super::state::State;
use crate::loss::losses;

/// How to delete.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Deletion {
    /// Delete its LUN maps, too.
    #[serde(default)]
    pub(super) force: bool,
    /// Of volumes: say what would be done, and do nothing.
    #[serde(default)]
    pub(super) dry_run: bool,
}

/// All volumes of the cluster, by name, and those that this node alone knows of.
///
/// Of a volume without a copy on the node that is asked, `pool` is that of a node that has one. If that node does not answer in two seconds and nothing was known of the volume before, it is
/// missing, and `missing` says so.
#[utoipa::path(get, path = "/v1/volumes", tag = "volumes", operation_id = "list_volumes", responses((status = OK, description = "All of them", body = List<Volume>)))]
pub(super) async fn list(Extracted(state): Extracted<State>) -> Result<axum::Json<List<Volume>>, Refusal> {
    let known = state.elsewhere.clone();
    Ok(axum::Json(state.call(|control| everywhere(control, known)).await?))
}

/// How long it is waited for the cluster's record to say who votes: without that it is not said what a loss would do.
const VOTES_DEADLINE: Duration = Duration::from_secs(1);

async fn everywhere(control: Rc<Control>, known: Elsewhere) -> Result<List<Volume>, ControlError> {
    let names = control.node_names();
    let mut items: Vec<Volume> = control.volumes().into_iter().map(|volume| shown(volume, &names)).collect();
    let here = items.iter().map(|volume| volume.id.clone()).collect();
    let (others, missing) = elsewhere::all(&control, known, &here).await?;
    if !others.is_empty() {
        items.extend(others);
        items.sort_by(|a, b| a.name.cmp(&b.name));
    }
    if items.iter().any(|volume| !volume.copies.is_empty()) {
        let nodes = nodes(&control).await;
        items.iter_mut().for_each(|volume| volume.losses = losses(volume, &nodes));
    }
    Ok(List { items, missing })
}

/// The nodes of the cluster; none if that cannot be said soon.
async fn nodes(control: &Control) -> Vec<ClusterNode> {
    match rt::timeout(VOTES_DEADLINE, control.nodes()).await {
        Ok(Ok(nodes)) => nodes.into_iter().map(super::cluster::shown).collect(),
        _ => Vec::new(),
    }
}

/// One volume, by name or identity.
#[utoipa::path(
    get, path = "/v1/volumes/{name}", tag = "volumes", operation_id = "show_volume",
    params(("name" = String, Path, description = "The volume's name or identity")),
    responses(
        (status = OK, description = "The volume", body = Volume),
        (status = NOT_FOUND, description = "`volume_not_found`", body = Problem, content_type = Problem::MEDIA_TYPE),
    ),
)]
pub(super) async fn show(
    Extracted(state): Extracted<State>,
    Segments(name): Segments<String>,
) -> Result<axum::Json<Volume>, Refusal> {
    let known = state.elsewhere.clone();
    let find = |control: Rc<Control>| async move { found(control, known, &name).await };
    Ok(axum::Json(state.call(find).await?))
}

/// The volume of this name or identity, wherever its copies are.
async fn found(control: Rc<Control>, known: Elsewhere, name: &str) -> Result<Volume, ControlError> {
    let mut volume = match control.volume(name) {
        Ok(volume) => named(&control, volume),
        Err(error) => {
            let mut all = everywhere(control, known).await?.items.into_iter();
            return all.find(|volume| volume.name == name || volume.id == name).ok_or(error);
        }
    };
    if !volume.copies.is_empty() {
        volume.losses = losses(&volume, &nodes(&control).await);
    }
    Ok(volume)
}

/// Makes a volume, and maps it so that it can be used at once.
///
/// Unless `map` is false it becomes a LUN of `target` (made if it does not exist) for `host`. If that fails the volume
/// is deleted again: all of it is done or nothing. Where no place is found, `candidates` of the problem names every node and pool, and by which rule it does not do.
#[utoipa::path(
    post, path = "/v1/volumes", tag = "volumes", operation_id = "create_volume",
    params(Asked),
    request_body = VolumeCreate,
    responses(
        (status = OK, description = "With `dry_run`: what would be done", body = DryRun),
        (status = CREATED, description = "The volume", body = Volume),
        (status = NOT_FOUND, description = "`pool_not_found`, `host_not_found`", body = Problem, content_type = Problem::MEDIA_TYPE),
        (status = CONFLICT, description = "`volume_exists`, `no_pool`, `lun_taken`, `target_full`, `no_cluster`, `too_few_nodes`, `node_unavailable`", body = Problem, content_type = Problem::MEDIA_TYPE),
        (status = UNPROCESSABLE_ENTITY, description = "`name_invalid`, `field_invalid`, `pool_ambiguous`", body = Problem, content_type = Problem::MEDIA_TYPE),
        (status = INSUFFICIENT_STORAGE, description = "`no_space`, `no_memory`, `too_many_volumes`, `metadata_full`, `record_full`", body = Problem, content_type = Problem::MEDIA_TYPE),
    ),
)]
pub(super) async fn create(
    Extracted(state): Extracted<State>,
    Parameters(Asked { dry_run }): Parameters<Asked>,
    Json(asked): Json<VolumeCreate>,
) -> Result<Response, Refusal> {
    let new = making::new_volume(asked.clone())?;
    if dry_run {
        return would_create(&state, asked, new).await;
    }
    let known = state.elsewhere.clone();
    let make = |control: Rc<Control>| async move {
        let id = control.create_volume(new).await?.to_string();
        found(control, known, &id).await
    };
    match state.call(make).await {
        Ok(volume) => Ok((StatusCode::CREATED, axum::Json(volume)).into_response()),
        Err(refusal) => Err(with_candidates(&state, &asked, refusal).await),
    }
}

/// Says what making a volume would do.
async fn would_create(state: &State, asked: VolumeCreate, new: NewVolume) -> Result<Response, Refusal> {
    let check = |control: Rc<Control>| async move { control.check_volume(&new).await };
    let nodes = match state.call(check).await {
        Ok(nodes) => nodes,
        Err(refusal) => return Err(with_candidates(state, &asked, refusal).await),
    };
    let found = candidates_for(state, &asked).await?;
    let is_taken =
        |found: &&Candidate| nodes.is_empty() || found.node.is_some_and(|node| nodes.contains(&node));
    if let Some(bad) = found.iter().filter(is_taken).find(|found| found.rule.is_some()) {
        let code = bad.rule.clone().unwrap_or_default();
        let status = if code == "no_space" { StatusCode::INSUFFICIENT_STORAGE } else { StatusCode::CONFLICT };
        let detail = format!("the volume would not be made on {}: {}", bad.node_name, bad.text);
        let refused = found.into_iter().filter(|found| found.rule.is_some()).collect();
        return Err(Refusal::new(status, code, detail).candidates(refused));
    }
    let mut steps: Vec<String> = found
        .iter()
        .filter(is_taken)
        .map(|found| {
            let pool = found.pool.as_deref().unwrap_or_default();
            format!("{} bytes are taken of pool {pool} on {}", asked.size, found.node_name)
        })
        .collect();
    if asked.kind == VolumeKind::Ram {
        steps = vec![format!("{} bytes of memory are reserved", asked.size)];
    }
    if asked.map {
        let target = asked.target.clone().unwrap_or_else(|| api::default_target(&asked.name));
        let host = asked.host.as_deref().unwrap_or(api::DEFAULT_HOST);
        steps.push(format!("volume {} becomes a LUN of target {target} for host {host}", asked.name));
    }
    Ok(dry_run::would(steps, found))
}

/// Refusals that say that there is no place.
const NO_PLACE: [&str; 12] = [
    "no_pool",
    "pool_ambiguous",
    "pool_not_found",
    "pool_unavailable",
    "pool_opening",
    "too_few_nodes",
    "node_unavailable",
    "node_refused",
    "no_space",
    "no_memory",
    "metadata_full",
    "too_many_volumes",
];

/// The refusal with every node and pool that was looked at, if it is for want of a place.
async fn with_candidates(state: &State, asked: &VolumeCreate, refusal: Refusal) -> Refusal {
    if !NO_PLACE.contains(&refusal.code()) {
        return refusal;
    }
    match candidates_for(state, asked).await {
        Ok(found) => refusal.candidates(found.into_iter().filter(|found| found.rule.is_some()).collect()),
        Err(_) => refusal,
    }
}

async fn candidates_for(state: &State, asked: &VolumeCreate) -> Result<Vec<Candidate>, Refusal> {
    // Without copies it is the node that is asked, whatever cluster it is in.
    let of_cluster = asked.copies.is_some() || asked.nodes.is_some();
    let nodes = match of_cluster {
        true => state.call(|control| async move { Ok(nodes(&control).await) }).await?,
        false => Vec::new(),
    };
    let whose = if nodes.is_empty() { peers::Asked::This } else { peers::Asked::All };
    let own = |control: Rc<Control>| async move { Ok(super::pools::all(&control)) };
    let List { items: pools, missing } = peers::list(state, whose, peers::POOLS, own).await?;
    let known = candidates::Known { nodes, pools, missing, name: state.name.clone() };
    let nodes = asked.nodes.clone().unwrap_or_default();
    let wanted =
        candidates::Wanted { pool: asked.pool.as_deref(), kind: asked.kind, size: asked.size, nodes: &nodes };
    Ok(candidates::all(&wanted, &known))
}

/// Grows or renames a volume, while it is in use.
#[utoipa::path(
    patch, path = "/v1/volumes/{name}", tag = "volumes", operation_id = "change_volume",
    params(("name" = String, Path, description = "The volume's name or identity")),
    request_body = VolumeChange,
    responses(
        (status = OK, description = "The volume", body = Volume),
        (status = NOT_FOUND, description = "`volume_not_found`", body = Problem, content_type = Problem::MEDIA_TYPE),
        (status = CONFLICT, description = "`volume_exists`, `copy_elsewhere`", body = Problem, content_type = Problem::MEDIA_TYPE),
        (status = UNPROCESSABLE_ENTITY, description = "`would_shrink`, `name_invalid`, `field_invalid`", body = Problem, content_type = Problem::MEDIA_TYPE),
        (status = INSUFFICIENT_STORAGE, description = "`no_space`, `no_memory`", body = Problem, content_type = Problem::MEDIA_TYPE),
    ),
)]
pub(super) async fn change(
    Extracted(state): Extracted<State>,
    Segments(name): Segments<String>,
    Json(change): Json<VolumeChange>,
) -> Result<axum::Json<Volume>, Refusal> {
    let change = move |control: Rc<Control>| async move {
        let size = change.size.map(ByteLen);
        let changed = making::change(Rc::clone(&control), name.clone(), change.name, size).await;
        let changed = changed.map_err(|error| said_where(&control, &name, error));
        changed.map(|volume| named(&control, volume))
    };
    Ok(axum::Json(state.call(change).await?))
}

/// Deletes a volume with all its data.
///
/// The target that was made with it goes, too, unless it has other maps or was given an alias or a secret.
#[utoipa::path(
    delete, path = "/v1/volumes/{name}", tag = "volumes", operation_id = "delete_volume",
    params(("name" = String, Path, description = "The volume's name or identity"), Deletion),
    responses(
        (status = NO_CONTENT, description = "Done"),
        (status = OK, description = "With `dry_run`: what would be done", body = DryRun),
        (status = NOT_FOUND, description = "`volume_not_found`", body = Problem, content_type = Problem::MEDIA_TYPE),
        (status = CONFLICT, description = "`volume_mapped`, `volume_in_use`, `copy_elsewhere`", body = Problem, content_type = Problem::MEDIA_TYPE),
    ),
)]
pub(super) async fn delete(
    Extracted(state): Extracted<State>,
    Segments(name): Segments<String>,
    Parameters(Deletion { force, dry_run }): Parameters<Deletion>,
) -> Result<Response, Refusal> {
    if dry_run {
        return would_delete(&state, name, force).await;
    }
    let delete = move |control: Rc<Control>| async move {
        let deleted = making::delete(Rc::clone(&control), name.clone(), force).await;
        deleted.map_err(|error| said_where(&control, &name, error))
    };
    state.call(delete).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// The error, unless the volume is there and this node has no copy: who has one.
fn said_where(control: &Control, name: &str, error: ControlError) -> ControlError {
    let ControlError::NotFound { kind: "volume", .. } = error else { return error };
    let volumes = control.keeper().map(|keeper| keeper.volumes()).unwrap_or_default();
    let entry =
        volumes.into_iter().map(|volume| volume.entry).find(|entry| entry.name == name || entry.id == name);
    match entry.as_ref().and_then(|entry| entry.copies.first()) {
        Some(copy) => ControlError::ElsewhereOnly { volume: name.to_owned(), node: copy.node },
        None => error,
    }
}

/// Says what deleting a volume would do.
async fn would_delete(state: &State, name: String, force: bool) -> Result<Response, Refusal> {
    let volume = state.call(move |control| async move { control.volume(&name) }).await?;
    if let Some((target, lun, _)) = volume.maps.first().filter(|_| !force) {
        let mapped = ControlError::Mapped { volume: volume.info.name, target: target.clone(), lun: *lun };
        return Err(mapped.into());
    }
    let name = &volume.info.name;
    let mut steps: Vec<String> = volume
        .maps
        .iter()
        .map(|(target, lun, host)| format!("LUN {lun} of target {target} for host {host} is taken away"))
        .collect();
    match &volume.copies {
        None => {
            steps.push(format!("volume {name} is deleted, with {} bytes of data", volume.info.capacity.0))
        }
        Some(copies) => {
            let nodes: Vec<String> = copies.entry.copies.iter().map(|copy| copy.node.to_string()).collect();
            let nodes = nodes.join(", ");
            steps.push(format!(
                "volume {name} is deleted, with {} bytes of data, on nodes {nodes}",
                volume.info.capacity.0
            ));
        }
    }
    Ok(dry_run::would(steps, Vec::new()))
}

/// Reads all copies of a volume, on all of their nodes, and compares them.
///
/// What hosts write meanwhile may be in one copy's checksum and not in the other's: ask while nobody writes.
#[utoipa::path(
    post, path = "/v1/volumes/{name}/verify", tag = "volumes", operation_id = "verify_volume",
    params(("name" = String, Path, description = "The volume's name or identity")),
    responses(
        (status = OK, description = "What was found", body = Verification),
        (status = NOT_FOUND, description = "`volume_not_found`", body = Problem, content_type = Problem::MEDIA_TYPE),
        (status = CONFLICT, description = "`not_replicated`", body = Problem, content_type = Problem::MEDIA_TYPE),
    ),
)]
pub(super) async fn verify(
    Extracted(state): Extracted<State>,
    Segments(name): Segments<String>,
) -> Result<axum::Json<Verification>, Refusal> {
    let checked = state.call(move |control| async move { control.verify_copies(&name).await }).await?;
    Ok(axum::Json(copies::verification(checked)))
}

/// Adds a copy to a volume while it is in use, or moves one.
///
/// The new copy is given all of the volume's data in the background; until it is in sync its state is not `in_sync`. With `instead_of`
/// that node's copy is taken away then. The node that is asked must have a copy. Asked again after a 504 it goes on where it was.
#[utoipa::path(
    post, path = "/v1/volumes/{name}/copies", tag = "volumes", operation_id = "add_copy",
    params(("name" = String, Path, description = "The volume's name or identity"), Asked),
    request_body = CopyCreate,
    responses(
        (status = OK, description = "With `dry_run`: what would be done", body = DryRun),
        (status = ACCEPTED, description = "The volume; the copy is being made", body = Volume),
        (status = NOT_FOUND, description = "`volume_not_found`, `copy_not_found`", body = Problem, content_type = Problem::MEDIA_TYPE),
        (status = CONFLICT, description = "`no_cluster`, `copy_exists`, `copies_full`, `copy_elsewhere`, `node_unavailable`, `node_refused`, `changed_meanwhile`", body = Problem, content_type = Problem::MEDIA_TYPE),
        (status = SERVICE_UNAVAILABLE, description = "`node_unreachable`, `record_unavailable`", body = Problem, content_type = Problem::MEDIA_TYPE),
        (status = GATEWAY_TIMEOUT, description = "`node_unanswered`", body = Problem, content_type = Problem::MEDIA_TYPE),
    ),
)]
pub(super) async fn add_copy(
    Extracted(state): Extracted<State>,
    Segments(name): Segments<String>,
    Parameters(Asked { dry_run }): Parameters<Asked>,
    Json(copy): Json<CopyCreate>,
) -> Result<Response, Refusal> {
    if dry_run {
        return would_add_copy(&state, name, copy).await;
    }
    let CopyCreate { node, pool, instead_of } = copy;
    let add = move |control: Rc<Control>| async move {
        control.add_copy(&name, AddedCopy { node, pool, instead_of }).await?;
        control.volume(&name).map(|volume| named(&control, volume))
    };
    Ok((StatusCode::ACCEPTED, axum::Json(state.call(add).await?)).into_response())
}

/// Says what adding a copy would do.
async fn would_add_copy(state: &State, name: String, copy: CopyCreate) -> Result<Response, Refusal> {
    let volume = state.call(move |control| async move { control.volume(&name) }).await?;
    let name = volume.info.name.clone();
    let Some(copies) = &volume.copies else { return Err(ControlError::NotReplicated(name).into()) };
    let has = |node: u16| copies.entry.copies.iter().any(|copy| copy.node == node);
    if has(copy.node) {
        return Err(ControlError::HasCopy { volume: name, node: copy.node }.into());
    }
    if let Some(node) = copy.instead_of.filter(|node| !has(*node)) {
        return Err(ControlError::HasNoCopy { volume: name, node }.into());
    }
    if copies.entry.free_slot().is_none() {
        return Err(ControlError::FourCopies(name).into());
    }
    let mut asked = VolumeCreate::new(&name, volume.info.capacity.0);
    asked.pool = copy.pool;
    asked.nodes = Some(vec![copy.node]);
    if volume.info.kind == store::VolumeKind::Ram {
        asked.kind = VolumeKind::Ram;
    }
    let found = candidates_for(state, &asked).await?;
    if let Some(bad) = found.iter().find(|found| found.rule.is_some()) {
        let detail = format!("volume {name} would get no copy on node {}: {}", copy.node, bad.text);
        let code = bad.rule.clone().unwrap_or_default();
        return Err(Refusal::new(StatusCode::CONFLICT, code, detail).candidates(found));
    }
    let mut steps = vec![format!("node {} is given all {} bytes of volume {name}", copy.node, asked.size)];
    if let Some(from) = copy.instead_of {
        steps.push(format!("then the copy on node {from} is deleted"));
    }
    Ok(dry_run::would(steps, found))
}

/// Takes a volume's copy off a node, while the volume is in use, and deletes it there.
///
/// The last copy in sync stays. A node that is down deletes its copy when it is back.
#[utoipa::path(
    delete, path = "/v1/volumes/{name}/copies/{node}", tag = "volumes", operation_id = "remove_copy",
    params(
        ("name" = String, Path, description = "The volume's name or identity"),
        ("node" = u16, Path, description = "The number of the copy's node"),
        Asked,
    ),
    responses(
        (status = OK, description = "With `dry_run`: what would be done", body = DryRun),
        (status = NO_CONTENT, description = "Done"),
        (status = ACCEPTED, description = "It is done as soon as the other copies have agreed"),
        (status = NOT_FOUND, description = "`volume_not_found`, `copy_not_found`", body = Problem, content_type = Problem::MEDIA_TYPE),
        (status = CONFLICT, description = "`no_cluster`, `only_in_sync`, `changed_meanwhile`", body = Problem, content_type = Problem::MEDIA_TYPE),
        (status = SERVICE_UNAVAILABLE, description = "`record_unavailable`", body = Problem, content_type = Problem::MEDIA_TYPE),
    ),
)]
pub(super) async fn remove_copy(
    Extracted(state): Extracted<State>,
    Segments((name, node)): Segments<(String, u16)>,
    Parameters(Asked { dry_run }): Parameters<Asked>,
) -> Result<Response, Refusal> {
    if dry_run {
        return would_remove_copy(&state, name, node).await;
    }
    let done = state.call(move |control| async move { control.remove_copy(&name, node).await }).await?;
    Ok(if done { StatusCode::NO_CONTENT } else { StatusCode::ACCEPTED }.into_response())
}

/// Says what taking a copy away would do.
async fn would_remove_copy(state: &State, name: String, node: u16) -> Result<Response, Refusal> {
    let volume = state.call(move |control| async move { control.volume(&name) }).await?;
    let name = volume.info.name;
    let Some(copies) = &volume.copies else { return Err(ControlError::NotReplicated(name).into()) };
    let entry = &copies.entry;
    if !entry.copies.iter().any(|copy| copy.node == node) {
        return Err(ControlError::HasNoCopy { volume: name, node }.into());
    }
    let rest: Vec<_> =
        entry.copies.iter().filter(|copy| copy.node != node && !entry.is_to_leave(copy)).collect();
    let in_sync = rest.iter().filter(|copy| copy.standing == ::node::copies::StandingEntry::InSync).count();
    if in_sync == 0 {
        return Err(ControlError::OnlyInSync { volume: name, node }.into());
    }
    let steps = vec![
        format!("the copy of volume {name} on node {node} is deleted"),
        format!("{in_sync} copies in sync are left"),
    ];
    Ok(dry_run::would(steps, Vec::new()))
}

fn named(control: &Control, volume: VolumeStatus) -> Volume {
    shown(volume, &control.node_names())
}

fn shown(volume: VolumeStatus, names: &BTreeMap<u16, String>) -> Volume {
    let VolumeStatus { info, pool, maps, problem, copies } = volume;
    Volume {
        id: info.id.to_string(),
        name: info.name,
        pool,
        kind: match info.kind {
            store::VolumeKind::Thick => VolumeKind::Thick,
            store::VolumeKind::Ram => VolumeKind::Ram,
        },
        size: info.capacity.0,
        block_size: info.block_size.bytes(),
        physical_block_size: info.block_size.bytes() << info.physical_exponent,
        slices: info.stripe.slices(),
        reserved: info.reserved.0,
        created: info.created,
        naa: ::node::naa(info.id).iter().map(|byte| format!("{byte:02x}")).collect(),
        maps: maps.into_iter().map(|(target, lun, host)| VolumeMap { target, lun, host }).collect(),
        serving: copies.as_ref().map_or(problem.is_none(), |copies| copies.serving),
        copies: copies.as_ref().map(|copies| copies::shown(copies, names)).unwrap_or_default(),
        epoch: copies.as_ref().map(|copies| copies.entry.epoch),
        strategy: copies.as_ref().and_then(strategy::chosen),
        fork: copies.as_ref().and_then(strategy::fork),
        reason: copies.map(|copies| copies.entry.reason),
        problem,
        losses: Vec::new(),
    }
}
