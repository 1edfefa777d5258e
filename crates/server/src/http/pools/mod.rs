//! Pools.

mod report;
mod would;

use std::path::{Path, PathBuf};
use std::rc::Rc;

use ::node::Control;
use ::node::control::{
    ControlError, ImportSpec, LostMap, Muteness, PoolRemains as Remains, PoolSpec, PoolStatus,
};
use api::{
    DryRun, Job, List, NewDisk, Pool, PoolAddDisk, PoolCreate, PoolForget, PoolImport, PoolRemains,
    PoolRemoveDisk, RemainingDisk, RemainingMap, RemainingVolume,
};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use base::ByteLen;
use store::VolumeInfo;

pub(super) use self::report::PoolReport;
use self::report::text;
use super::dry_run::Answer;
use super::input::{Json, Parameters, Segments};
use super::jobs;
use super::node_param::{AskedOfNode, OfNode};
use super::peers::{self, PeerQuery, QueriedNodes, Whose};
use super::refusal::{Refusal, Reply, with_causes};
use super::state::State;

/// All pools of the queried node, by name; with `node=all`, of all nodes.
///
/// Pools of different nodes may have the same name: a pool name in a path means a pool of the queried node,
/// or of the node given by `node`.
#[utoipa::path(
    get, path = "/v1/pools", tag = "pools", operation_id = "list_pools",
    params(Whose),
    responses(
        (status = OK, description = "All of them", body = List<Pool>),
    ),
)]
pub(super) async fn list(state: State, Parameters(whose): Parameters<Whose>) -> Reply<List<Pool>> {
    Ok(axum::Json(of_nodes(&state, whose.asked()?).await?))
}

/// The pools of these nodes.
///
/// # Errors
/// A node does not exist.
pub(super) async fn of_nodes(state: &State, asked: QueriedNodes) -> Result<List<Pool>, Refusal> {
    let here = |control: Rc<Control>, is_asked: bool| async move {
        Ok(if is_asked { own(&control) } else { Vec::new() })
    };
    let (mut items, answers) = peers::gather(state, asked, |_| PeerQuery::Pools, here).await?;
    let (theirs, missing) = answers.read::<PoolReport>();
    items.extend(theirs.into_iter().map(PoolReport::shown));
    Ok(List { items, missing })
}

/// The pools of this node.
pub(super) fn own(control: &Control) -> Vec<Pool> {
    let (node, node_name) = control.number_and_name();
    let of_node = |pool| shown(pool, node, node_name.clone());
    control.pools().into_iter().map(of_node).collect()
}

/// The pools of this node, for another node that asks.
pub(super) fn all(control: &Control) -> Vec<PoolReport> {
    let (node, node_name) = control.number_and_name();
    let of_node = |pool: PoolStatus| PoolReport::of(&pool, node, node_name.clone());
    control.pools().into_iter().map(of_node).collect()
}

/// Shows one pool.
#[utoipa::path(
    get, path = "/v1/pools/{name}", tag = "pools", operation_id = "show_pool",
    params(("name" = String, Path, description = "Pool name"), OfNode),
    responses(
        (status = OK, description = "The pool", body = Pool),
        (status = NOT_FOUND, description = "`pool_not_found`, `node_not_found`"),
    ),
)]
pub(super) async fn show(
    state: State,
    Segments(name): Segments<String>,
    Parameters(OfNode { node }): Parameters<OfNode>,
) -> Reply<Pool> {
    let pool = with(&state, node, move |control| async move { control.pool(&name) }).await?;
    Ok(axum::Json(pool))
}

/// Creates a pool.
#[utoipa::path(
    post, path = "/v1/pools", tag = "pools", operation_id = "create_pool",
    params(AskedOfNode),
    request_body = PoolCreate,
    responses(
        (status = OK, description = "With `dry_run`: what would be done", body = DryRun),
        (status = CREATED, description = "The pool", body = Pool),
        (status = CONFLICT, description = "`pool_exists`, `disk_not_empty`"),
        (status = UNPROCESSABLE_ENTITY, description = "`name_invalid`, `no_disks`, `disk_unusable`, `disk_too_small`, `field_invalid`"),
    ),
)]
pub(super) async fn create(
    state: State,
    Parameters(AskedOfNode { node, dry_run }): Parameters<AskedOfNode>,
    Json(new): Json<PoolCreate>,
) -> Result<Response, Refusal> {
    let disks = new.disks.into_iter().map(|disk| new_disk(disk, "disks")).collect::<Result<_, _>>()?;
    let spec = PoolSpec { name: new.name, disks, wipe: new.wipe };
    if dry_run {
        return would::create(&state, node, spec).await;
    }
    let pool = with(&state, node, |control| async move { control.create_pool(spec).await }).await?;
    Ok(made(pool))
}

/// Imports a pool that was created on another server, or by an earlier installation of this one.
#[utoipa::path(
    post, path = "/v1/pools/import", tag = "pools", operation_id = "import_pool",
    params(AskedOfNode),
    request_body = PoolImport,
    responses(
        (status = OK, description = "With `dry_run`: what would be done", body = DryRun),
        (status = CREATED, description = "The pool", body = Pool),
        (status = CONFLICT, description = "`pool_exists`, `volume_exists`, `pool_used_elsewhere`, `pool_damaged`, `disks_missing`, `wrong_disks`, `pool_version`"),
        (status = UNPROCESSABLE_ENTITY, description = "`not_a_pool`, `no_disks`, `disk_unusable`, `name_invalid`, `field_invalid`"),
    ),
)]
pub(super) async fn import(
    state: State,
    Parameters(AskedOfNode { node, dry_run }): Parameters<AskedOfNode>,
    Json(import): Json<PoolImport>,
) -> Result<Response, Refusal> {
    let paths = import.paths.into_iter().map(|path| absolute(path, "paths")).collect::<Result<_, _>>()?;
    let import = ImportSpec { paths, name: import.name, force: import.force };
    if dry_run {
        return would::import(&state, node, import).await;
    }
    let pool = with(&state, node, |control| async move { control.import_pool(import).await }).await?;
    Ok(made(pool))
}

/// Exports a pool: closes it so that another server can import it. Its volumes must not be mapped.
#[utoipa::path(
    post, path = "/v1/pools/{name}/export", tag = "pools", operation_id = "export_pool",
    params(("name" = String, Path, description = "Pool name"), AskedOfNode),
    responses(
        (status = NO_CONTENT, description = "Done"),
        (status = OK, description = "With `dry_run`: what would be done", body = DryRun),
        (status = NOT_FOUND, description = "`pool_not_found`, `node_not_found`"),
        (status = CONFLICT, description = "`volume_mapped`"),
    ),
)]
pub(super) async fn export(
    state: State,
    Segments(name): Segments<String>,
    Parameters(AskedOfNode { node, dry_run }): Parameters<AskedOfNode>,
) -> Result<Response, Refusal> {
    if dry_run {
        return would::export(&state, node, name).await;
    }
    state.call_on(node, move |control| async move { control.export_pool(&name).await }).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Adds a disk to a pool while it is in use.
///
/// Existing volumes are not moved. New volumes, and space that volumes grow by, go to the disk with most free
/// space.
#[utoipa::path(
    post, path = "/v1/pools/{name}/disks", tag = "pools", operation_id = "add_disk",
    params(("name" = String, Path, description = "Pool name"), AskedOfNode),
    request_body = PoolAddDisk,
    responses(
        (status = OK, description = "With `dry_run`: what would be done", body = DryRun),
        (status = CREATED, description = "The pool", body = Pool),
        (status = NOT_FOUND, description = "`pool_not_found`, `node_not_found`"),
        (status = CONFLICT, description = "`disk_not_empty`"),
        (status = UNPROCESSABLE_ENTITY, description = "`disk_unusable`, `disk_too_small`, `disk_too_large`, `too_many_disks`, `field_invalid`"),
    ),
)]
pub(super) async fn add_disk(
    state: State,
    Segments(name): Segments<String>,
    Parameters(AskedOfNode { node, dry_run }): Parameters<AskedOfNode>,
    Json(PoolAddDisk { path, size, preallocate, wipe }): Json<PoolAddDisk>,
) -> Result<Response, Refusal> {
    let disk = new_disk(NewDisk { path, size, preallocate }, "path")?;
    if dry_run {
        return would::add_disk(&state, node, name, disk, wipe).await;
    }
    let add = move |control: Rc<Control>| async move { control.add_disk(&name, disk, wipe).await };
    Ok(made(with(&state, node, add).await?))
}

/// Removes a disk from a pool while it is in use.
///
/// If the disk holds no data, it is removed at once, and its metadata is wiped. Otherwise it is `leaving`
/// first: the data of thick and log volumes and the dirty maps of copies move to the other disks while hosts
/// use the volumes, even after a restart of the node. `cancel` keeps the disk.
#[utoipa::path(
    post, path = "/v1/pools/{name}/remove-disk", tag = "pools", operation_id = "remove_disk",
    params(("name" = String, Path, description = "Pool name"), AskedOfNode),
    request_body = PoolRemoveDisk,
    responses(
        (status = OK, description = "The pool; with `dry_run`: what would be done", body = Answer<Pool>),
        (status = NOT_FOUND, description = "`pool_not_found`, `node_not_found`, `disk_not_found`"),
        (status = CONFLICT, description = "`disk_in_use`: it holds thick volumes whose extents are too large to move; `disk_only`, `disk_leaving`, `disk_not_leaving`, `being_converted`"),
        (status = INSUFFICIENT_STORAGE, description = "`no_space`: the other disks have too little free space"),
    ),
)]
pub(super) async fn remove_disk(
    state: State,
    Segments(name): Segments<String>,
    Parameters(AskedOfNode { node, dry_run }): Parameters<AskedOfNode>,
    Json(PoolRemoveDisk { path, cancel }): Json<PoolRemoveDisk>,
) -> Result<Response, Refusal> {
    let path = absolute(path, "path")?;
    if dry_run {
        return match cancel {
            true => would::keep_disk(&state, node, name, path).await,
            false => would::remove_disk(&state, node, name, path).await,
        };
    }
    let remove = move |control: Rc<Control>| async move {
        match cancel {
            true => control.keep_disk(&name, path).await,
            false => control.remove_disk(&name, path).await,
        }
    };
    Ok(axum::Json(with(&state, node, remove).await?).into_response())
}

/// Grows a pool whose disks have become larger, while it is in use.
///
/// Enlarge a disk or file first (`lvextend`, `truncate`). All disks of the pool are checked.
#[utoipa::path(
    post, path = "/v1/pools/{name}/grow", tag = "pools", operation_id = "grow_pool",
    params(("name" = String, Path, description = "Pool name"), AskedOfNode),
    responses(
        (status = OK, description = "The pool; with `dry_run`: what would be done", body = Answer<Pool>),
        (status = NOT_FOUND, description = "`pool_not_found`, `node_not_found`"),
        (status = CONFLICT, description = "`pool_not_grown`: no disk has grown enough"),
        (status = UNPROCESSABLE_ENTITY, description = "`disk_too_large`"),
        (status = INSUFFICIENT_STORAGE, description = "`no_space`: a file is preallocated, and its file system has too little space"),
    ),
)]
pub(super) async fn grow(
    state: State,
    Segments(name): Segments<String>,
    Parameters(AskedOfNode { node, dry_run }): Parameters<AskedOfNode>,
) -> Result<Response, Refusal> {
    if dry_run {
        return would::grow(&state, node, name).await;
    }
    let pool = with(&state, node, move |control| async move { control.grow_pool(&name).await }).await?;
    Ok(axum::Json(pool).into_response())
}

/// Closes a pool that does not work (a disk failed to write, or it could not be opened), and opens it again.
///
/// Initiators stay logged in and see its LUNs busy meanwhile. Writes that they did not flush may be lost; a
/// unit attention notifies them. If it cannot be opened, it becomes `unavailable`, and can be reopened again.
#[utoipa::path(
    post, path = "/v1/pools/{name}/reopen", tag = "pools", operation_id = "reopen_pool",
    params(("name" = String, Path, description = "Pool name"), AskedOfNode),
    responses(
        (status = OK, description = "The pool; with `dry_run`: what would be done", body = Answer<Pool>),
        (status = NOT_FOUND, description = "`pool_not_found`, `node_not_found`"),
        (status = CONFLICT, description = "`pool_works`"),
    ),
)]
pub(super) async fn reopen(
    state: State,
    Segments(name): Segments<String>,
    Parameters(AskedOfNode { node, dry_run }): Parameters<AskedOfNode>,
) -> Result<Response, Refusal> {
    if dry_run {
        return would::reopen(&state, node, name).await;
    }
    let pool = with(&state, node, move |control| async move { control.reopen_pool(&name).await }).await?;
    Ok(axum::Json(pool).into_response())
}

/// Accepts the older data of a pool that was set back.
///
/// For volumes that are unavailable because no other copy in sync continued with them: writes made since the
/// pool's older state are lost, and all other copies are fully resynced from it.
#[utoipa::path(
    post, path = "/v1/pools/{name}/accept-older", tag = "pools", operation_id = "accept_older_pool",
    params(("name" = String, Path, description = "Pool name"), AskedOfNode),
    responses(
        (status = OK, description = "The pool; with `dry_run`: what would be done", body = Answer<Pool>),
        (status = NOT_FOUND, description = "`pool_not_found`, `node_not_found`"),
        (status = CONFLICT, description = "`nothing_older`"),
    ),
)]
pub(super) async fn accept_older(
    state: State,
    Segments(name): Segments<String>,
    Parameters(AskedOfNode { node, dry_run }): Parameters<AskedOfNode>,
) -> Result<Response, Refusal> {
    if dry_run {
        return would::accept_older(&state, node, name).await;
    }
    let pool = with(&state, node, move |control| async move { control.accept_older(&name).await }).await?;
    Ok(axum::Json(pool).into_response())
}

/// Acknowledges read errors of the pool's disks.
///
/// They are no longer listed as a problem. New errors are.
#[utoipa::path(
    post, path = "/v1/pools/{name}/acknowledge", tag = "pools", operation_id = "acknowledge_pool",
    params(("name" = String, Path, description = "Pool name"), OfNode),
    responses(
        (status = OK, description = "The pool", body = Pool),
        (status = NOT_FOUND, description = "`pool_not_found`, `node_not_found`"),
    ),
)]
pub(super) async fn acknowledge(
    state: State,
    Segments(name): Segments<String>,
    Parameters(OfNode { node }): Parameters<OfNode>,
) -> Reply<Pool> {
    let acknowledge = move |control: Rc<Control>| async move {
        control.acknowledge_read_errors(&name).await?;
        control.pool(&name)
    };
    Ok(axum::Json(with(&state, node, acknowledge).await?))
}

/// Scrubs the volumes of a pool on its node, two at a time: see `POST /v1/volumes/{name}/scrub`.
///
/// Volumes that cannot be scrubbed now are left out. Each scrub is a job.
#[utoipa::path(
    post, path = "/v1/pools/{name}/scrub", tag = "pools", operation_id = "scrub_pool",
    params(("name" = String, Path, description = "Pool name"), OfNode),
    responses(
        (status = ACCEPTED, description = "The jobs", body = List<Job>),
        (status = NOT_FOUND, description = "`pool_not_found`, `node_not_found`"),
    ),
)]
pub(super) async fn scrub(
    state: State,
    Segments(name): Segments<String>,
    Parameters(OfNode { node }): Parameters<OfNode>,
) -> Result<(StatusCode, axum::Json<List<Job>>), Refusal> {
    let begin = move |control: Rc<Control>| async move {
        control.check_is_here(node)?;
        Ok((control.begin_pool_scrub(&name)?, control.number()))
    };
    let (begun, node) = state.call(begin).await?;
    let items = begun.into_iter().map(|(id, scrub)| jobs::of_scrub(id, scrub, node).shown()).collect();
    Ok((StatusCode::ACCEPTED, axum::Json(List { items, missing: Vec::new() })))
}

/// Shows what would remain if a pool that cannot be used is forgotten.
///
/// Its disks are read if possible; a disk that does not respond within five seconds is skipped.
#[utoipa::path(
    get, path = "/v1/pools/{name}/remains", tag = "pools", operation_id = "show_pool_remains",
    params(("name" = String, Path, description = "Pool name"), OfNode),
    responses(
        (status = OK, description = "Its content, and the LUN maps that refer to it", body = PoolRemains),
        (status = NOT_FOUND, description = "`pool_not_found`, `node_not_found`"),
        (status = CONFLICT, description = "`pool_open`"),
    ),
)]
pub(super) async fn remains(
    state: State,
    Segments(name): Segments<String>,
    Parameters(OfNode { node }): Parameters<OfNode>,
) -> Reply<PoolRemains> {
    let remains = state.call_on(node, move |control| async move { control.pool_remains(&name).await });
    Ok(axum::Json(remaining(remains.await?)))
}

/// Forgets a pool that cannot be used: one that is unavailable or read-only.
///
/// Nothing on its disks is changed, and it can be imported again. Volumes of a read-only pool must not be
/// mapped unless `unmap` is true, since initiators still see them.
#[utoipa::path(
    post, path = "/v1/pools/{name}/forget", tag = "pools", operation_id = "forget_pool",
    params(("name" = String, Path, description = "Pool name"), AskedOfNode),
    request_body = PoolForget,
    responses(
        (status = OK, description = "With `dry_run`: what would be done", body = DryRun),
        (status = NO_CONTENT, description = "Done"),
        (status = NOT_FOUND, description = "`pool_not_found`, `node_not_found`"),
        (status = CONFLICT, description = "`pool_open`, `volume_mapped`"),
    ),
)]
pub(super) async fn forget(
    state: State,
    Segments(name): Segments<String>,
    Parameters(AskedOfNode { node, dry_run }): Parameters<AskedOfNode>,
    Json(PoolForget { unmap }): Json<PoolForget>,
) -> Result<Response, Refusal> {
    if dry_run {
        return would::forget(&state, node, name, unmap).await;
    }
    state.call_on(node, move |control| async move { control.forget_pool(&name, unmap).await }).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

fn made(pool: Pool) -> Response {
    (StatusCode::CREATED, axum::Json(pool)).into_response()
}

/// Runs `act` on this node's control, and returns the pool after that.
async fn with<F>(
    state: &State,
    node: Option<u16>,
    act: impl FnOnce(Rc<Control>) -> F + Clone + Send + 'static,
) -> Result<Pool, Refusal>
where
    F: Future<Output = Result<PoolStatus, ControlError>> + 'static,
{
    let act = move |control: Rc<Control>| async move {
        control.check_is_here(node)?;
        Ok((act(Rc::clone(&control)).await?, control.number_and_name()))
    };
    let (pool, (node, node_name)) = state.call(act).await?;
    Ok(shown(pool, node, node_name))
}

fn remaining(remains: Remains) -> PoolRemains {
    let disk = |(path, mute): (PathBuf, Option<Muteness>)| RemainingDisk {
        path: text(&path),
        problem: mute.map(|mute| with_causes(&mute)),
    };
    let volume = |volume: VolumeInfo| RemainingVolume {
        id: volume.id.to_string(),
        name: volume.name,
        size: volume.capacity.0,
    };
    let map = |map: LostMap| RemainingMap {
        target: map.target,
        lun: map.lun,
        host: map.host,
        volume_id: map.volume.to_string(),
    };
    PoolRemains {
        disks: remains.disks.into_iter().map(disk).collect(),
        volumes: remains.volumes.map(|volumes| volumes.into_iter().map(volume).collect()),
        maps: remains.maps.into_iter().map(map).collect(),
    }
}

fn new_disk(disk: NewDisk, field: &'static str) -> Result<store::NewDisk, Refusal> {
    if disk.preallocate && disk.size.is_none() {
        return Err(Refusal::invalid(
            field,
            "`preallocate` applies to files that are created: give their `size`, too",
        ));
    }
    Ok(store::NewDisk {
        path: absolute(disk.path, field)?,
        create: disk.size.map(ByteLen),
        reserve: disk.preallocate,
    })
}

/// Paths must be absolute: callers need not know the node's working directory.
fn absolute(path: String, field: &'static str) -> Result<PathBuf, Refusal> {
    if Path::new(&path).is_absolute() && !path.contains('\0') {
        Ok(path.into())
    } else {
        Err(Refusal::invalid(field, format!("{path:?} is not an absolute path")))
    }
}

fn shown(pool: PoolStatus, node: u16, node_name: String) -> Pool {
    // About a pool of its own, this node knows more than it reports to others.
    let reason = pool.state.as_ref().err().map(ToString::to_string);
    let shown = PoolReport::of(&pool, node, node_name).shown();
    Pool { reason: reason.or(shown.reason), ..shown }
}
