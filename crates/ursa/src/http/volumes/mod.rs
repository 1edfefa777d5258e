//! Volumes.

mod candidates;
pub(super) mod change;
pub(super) mod copies;
pub(super) mod copying;
pub(super) mod creation;
pub(super) mod deletion;
mod elsewhere;
pub(super) mod strategy;
pub(super) mod verification;

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use ::node::control::{ControlError, VolumeStatus};
use ::node::{Control, VolumeId};
use api::{ClusterNode, ClusterRecord, List, Missing, Problem, Volume, VolumeKind, VolumeMap};
use axum::extract::State as Extracted;

pub use self::elsewhere::Elsewhere;
use self::elsewhere::Untold;
pub(super) use self::elsewhere::of_ids;
use super::input::Segments;
use super::node::record;
use super::refusal::Refusal;
use super::state::State;
use crate::loss::{Cluster, losses};

/// All volumes of the cluster, by name, and those that this node alone knows of.
///
/// Of a volume without a copy on the node that is asked, `pool` is that of a node that has one. If that node does not answer in two seconds and nothing was known of the volume before, it is
/// missing, and `missing` says so.
#[utoipa::path(get, path = "/v1/volumes", tag = "volumes", operation_id = "list_volumes", responses((status = OK, description = "All of them", body = List<Volume>)))]
pub(super) async fn list(Extracted(state): Extracted<State>) -> Result<axum::Json<List<Volume>>, Refusal> {
    let known = state.elsewhere.clone();
    let Everywhere { mut items, missing, nodes, record } =
        state.call(|control| everywhere(control, known)).await?;
    // Not on the node's core, which has requests of hosts to answer.
    let cluster = Cluster { nodes: &nodes, record: record.as_ref() };
    items.iter_mut().for_each(|volume| volume.losses = losses(volume, cluster));
    items.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(axum::Json(List { items, missing }))
}

/// What the list of volumes is made of.
struct Everywhere {
    items: Vec<Volume>,
    missing: Vec<Missing>,
    nodes: Vec<ClusterNode>,
    record: Option<ClusterRecord>,
}

/// How long it is waited for the cluster's record to say who votes: without that it is not said what a loss would do.
const VOTES_DEADLINE: Duration = Duration::from_secs(1);

async fn everywhere(control: Rc<Control>, known: Elsewhere) -> Result<Everywhere, ControlError> {
    let names = control.node_names();
    let mut items: Vec<Volume> = control.volumes().into_iter().map(|volume| shown(volume, &names)).collect();
    let here = items.iter().map(|volume| volume.id.clone()).collect();
    let (others, missing) = elsewhere::all(&control, known, &here).await?;
    items.extend(others);
    let (nodes, record) = match items.iter().any(|volume| !volume.copies.is_empty()) {
        true => (nodes(&control).await, record(&control).await),
        false => (Vec::new(), None),
    };
    Ok(Everywhere { items, missing, nodes, record })
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
        (status = SERVICE_UNAVAILABLE, description = "`copy_unreachable`: it is there, and no node that has a copy tells of it", body = Problem, content_type = Problem::MEDIA_TYPE),
    ),
)]
pub(super) async fn show(
    Extracted(state): Extracted<State>,
    Segments(name): Segments<String>,
) -> Result<axum::Json<Volume>, Refusal> {
    let known = state.elsewhere.clone();
    let find = |control: Rc<Control>| async move { found(control, known, &name).await };
    Ok(axum::Json(state.call(find).await?.map_err(Untold::refusal)?))
}

/// The volume of this name or identity, wherever its copies are, or that no node tells of it.
async fn found(
    control: Rc<Control>,
    known: Elsewhere,
    name: &str,
) -> Result<Result<Volume, Untold>, ControlError> {
    let mut volume = match control.volume(name) {
        Ok(volume) => named(&control, volume),
        Err(error) => match elsewhere::one(&control, known, name).await? {
            Some(Ok(volume)) => volume,
            Some(Err(untold)) => return Ok(Err(untold)),
            None => return Err(error),
        },
    };
    if !volume.copies.is_empty() {
        let (nodes, record) = (nodes(&control).await, record(&control).await);
        volume.losses = losses(&volume, Cluster { nodes: &nodes, record: record.as_ref() });
    }
    Ok(Ok(volume))
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
        naa: naa(info.id),
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

fn naa(id: VolumeId) -> String {
    ::node::naa(id).iter().map(|byte| format!("{byte:02x}")).collect()
}
