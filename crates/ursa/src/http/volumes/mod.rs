//! Volumes.

pub(super) mod alone;
mod candidates;
pub(super) mod change;
pub(super) mod copies;
pub(super) mod copying;
pub(super) mod counters;
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
use api::{ClusterNode, ClusterRecord, List, Problem, Volume, VolumeKind, VolumeMap};
use axum::extract::State as Extracted;

pub use self::elsewhere::Elsewhere;
pub(super) use self::elsewhere::of_ids;
use self::elsewhere::{There, Untold};
use super::input::{Parameters, Segments};
use super::node::record;
use super::refusal::Refusal;
use super::state::State;
use super::there::OfNode;
use crate::loss::{Cluster, losses};

/// All volumes of the cluster, by name: volumes with copies, and local volumes (`node`). Several nodes may
/// have local volumes of the same name.
///
/// If the queried node has no copy of a volume, `pool` is that of a node that has one. `missing` lists nodes
/// that did not answer within two seconds: their local volumes are missing then, and so is a volume with
/// copies of which nothing was known before.
#[utoipa::path(get, path = "/v1/volumes", tag = "volumes", operation_id = "list_volumes", responses((status = OK, description = "All of them", body = List<Volume>)))]
pub(super) async fn list(Extracted(state): Extracted<State>) -> Result<axum::Json<List<Volume>>, Refusal> {
    let everywhere = state.call(everywhere).await?;
    // Both at once: a node that does not answer is waited for.
    let (unknown, alone) =
        tokio::join!(elsewhere::learn(&state, &everywhere.there), alone::of_others(&state));
    let (mut missing, (alone, silent)) = (unknown?, alone?);
    missing.extend(silent);
    missing.sort_by_key(|one| one.node);
    missing.dedup_by_key(|one| one.node);
    Ok(axum::Json(List { items: everywhere.shown(&state.elsewhere, alone), missing }))
}

/// What the list of volumes is made of.
struct Everywhere {
    here: Vec<VolumeStatus>,
    there: There,
    me: Option<u16>,
    names: BTreeMap<u16, String>,
    nodes: Vec<ClusterNode>,
    record: Option<ClusterRecord>,
}

impl Everywhere {
    /// All of it and what other nodes have alone, by name, but for volumes of which no node has told. Not for the node's core, which has requests of hosts to answer.
    fn shown(self, known: &Elsewhere, alone: Vec<Volume>) -> Vec<Volume> {
        let cluster = Cluster { nodes: &self.nodes, record: self.record.as_ref() };
        let here = self.here.into_iter().map(|volume| shown(volume, self.me, &self.names));
        let mut items: Vec<Volume> = here.chain(self.there.shown(known, &self.names)).chain(alone).collect();
        items.iter_mut().for_each(|volume| volume.losses = losses(volume, cluster));
        items.sort_by(|a, b| (&a.name, a.node).cmp(&(&b.name, b.node)));
        items
    }
}

/// How long it is waited for the cluster's record to say who votes: without that it is not said what a loss would do.
const VOTES_DEADLINE: Duration = Duration::from_secs(1);

async fn everywhere(control: Rc<Control>) -> Result<Everywhere, ControlError> {
    let here = control.volumes().await;
    let there = There::look(&control, here.iter().map(|volume| volume.info.id).collect()).await;
    let has_copies = here.iter().any(|volume| volume.copies.is_some()) || !there.is_empty();
    let (nodes, record) = match has_copies {
        true => (nodes(&control).await, record(&control).await),
        false => (Vec::new(), None),
    };
    Ok(Everywhere { here, there, me: control.number(), names: control.node_names(), nodes, record })
}

/// The nodes of the cluster; none if that cannot be said soon.
async fn nodes(control: &Control) -> Vec<ClusterNode> {
    match rt::timeout(VOTES_DEADLINE, control.nodes()).await {
        Ok(Ok(nodes)) => nodes.into_iter().map(super::cluster::shown).collect(),
        _ => Vec::new(),
    }
}

/// Shows one volume, by name or ID.
///
/// Names of local volumes are unique only on their node. A name means first a local volume of the queried
/// node or a volume in the cluster's record, then a local volume of another node. If several other nodes have
/// one, `node` or the volume ID selects it. This applies to all calls that name a volume.
#[utoipa::path(
    get, path = "/v1/volumes/{name}", tag = "volumes", operation_id = "show_volume",
    params(("name" = String, Path, description = "Volume name or ID"), OfNode),
    responses(
        (status = OK, description = "The volume", body = Volume),
        (status = NOT_FOUND, description = "`volume_not_found`, `node_not_found`", body = Problem, content_type = Problem::MEDIA_TYPE),
        (status = CONFLICT, description = "`volume_ambiguous`: `candidates` lists the nodes; `no_cluster`", body = Problem, content_type = Problem::MEDIA_TYPE),
        (status = SERVICE_UNAVAILABLE, description = "`copy_unreachable`: it exists, but no node with a copy reports its state", body = Problem, content_type = Problem::MEDIA_TYPE),
    ),
)]
pub(super) async fn show(
    Extracted(state): Extracted<State>,
    Segments(name): Segments<String>,
    Parameters(OfNode { node }): Parameters<OfNode>,
) -> Result<axum::Json<Volume>, Refusal> {
    let known = state.elsewhere.clone();
    let find = move |control: Rc<Control>| async move {
        let asked = match node.filter(|node| control.number() != Some(*node)) {
            None => name,
            // Of a volume with copies, that node's view is not asked for: only which volume it calls so.
            Some(node) => match alone::called_at(&control, node, &name).await? {
                Ok(volume) if volume.copies.is_empty() => return Ok(Ok(volume)),
                Ok(volume) => volume.id,
                Err(refusal) => return Ok(Err(refusal)),
            },
        };
        let error = match found(Rc::clone(&control), known, &asked).await {
            Ok(found) => return Ok(found.map_err(Untold::refusal)),
            Err(error @ ControlError::NotFound { .. }) if node.is_none() => error,
            Err(error) => return Err(error),
        };
        Ok(alone::Named::of_others(&control, &asked).await?.only_or(error))
    };
    Ok(axum::Json(state.call(find).await??))
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
    volume = with_losses(&control, volume).await;
    Ok(Ok(volume))
}

/// A volume of this node, as every call answers with it.
async fn whole(control: &Control, volume: VolumeStatus) -> Volume {
    with_losses(control, named(control, volume)).await
}

async fn with_losses(control: &Control, mut volume: Volume) -> Volume {
    if !volume.copies.is_empty() {
        let (nodes, record) = (nodes(control).await, record(control).await);
        volume.losses = losses(&volume, Cluster { nodes: &nodes, record: record.as_ref() });
    }
    volume
}

fn named(control: &Control, volume: VolumeStatus) -> Volume {
    shown(volume, control.number(), &control.node_names())
}

/// A volume of the node `me`.
fn shown(volume: VolumeStatus, me: Option<u16>, names: &BTreeMap<u16, String>) -> Volume {
    let VolumeStatus { info, pool, maps, problem, copies } = volume;
    // What has copies is the cluster's, also while its record does not say so here.
    let node = me.filter(|_| info.copy.is_none());
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
        maps: maps.into_iter().map(map).collect(),
        serving: copies.as_ref().map_or(problem.is_none(), |copies| copies.serving),
        copies: copies.as_ref().map(|copies| copies::shown(copies, names)).unwrap_or_default(),
        node,
        node_name: node.and_then(|node| names.get(&node).cloned()),
        epoch: copies.as_ref().map(|copies| copies.entry.epoch),
        strategy: copies.as_ref().and_then(strategy::chosen),
        fork: copies.as_ref().and_then(strategy::fork),
        comparison: copies.as_ref().map(|copies| verification::compared(copies, info.id, info.created)),
        reason: copies.map(|copies| copies.entry.reason.to_string()),
        problem,
        losses: Vec::new(),
    }
}

/// What another node has said of a volume of which nothing is on this one. If that node has it alone, its problem is the volume's: why it is not served only that node knows.
pub(super) fn seen_from_here(mut volume: Volume) -> Volume {
    volume.serving = false;
    volume.problem = volume.problem.filter(|_| volume.node.is_some());
    volume.copies.iter_mut().for_each(|copy| copy.here = false);
    volume
}

/// Target, LUN and host group.
fn map((target, lun, host): (String, u16, String)) -> VolumeMap {
    VolumeMap { target, lun, host }
}

fn naa(id: VolumeId) -> String {
    ::node::naa(id).iter().map(|byte| format!("{byte:02x}")).collect()
}
