//! Volumes.

mod candidates;
pub(super) mod change;
pub(super) mod conversion;
pub(super) mod copies;
pub(super) mod copying;
pub(super) mod counters;
pub(super) mod creation;
pub(super) mod deletion;
mod elsewhere;
pub(super) mod health;
pub(super) mod scrub;
pub(super) mod split_brain;
pub(super) mod verification;

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use ::node::control::{ControlError, VolumeStatus};
use ::node::member::{ClonedFrom, CopiesStatus};
use ::node::{Control, VolumeId};
use api::{
    CloneOf, ClusterNode, ClusterRecord, Compression, List, Missing, Volume, VolumeHealth, VolumeKind,
    VolumeMap, WhenFull,
};
use terms::loss::{Cluster, losses};
use terms::same_names::same_names;

pub use self::elsewhere::Elsewhere;
use self::elsewhere::There;
pub(super) use self::elsewhere::of_ids;
use self::health::health;
use super::input::Segments;
use super::node::record;
use super::refusal::{Refusal, Reply};
use super::state::State;

/// How long a call that starts a job waits for its end, so that small volumes need no second request.
const ENDS_WITHIN: Duration = Duration::from_secs(5);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// All volumes of the cluster, by name.
///
/// If the queried node has no copy of a volume, `pool` is that of a node that has one, and `used` is what it
/// takes there. `missing` lists nodes that did not answer within two seconds: if no other node with a copy
/// has reported a volume before, its `pool` is empty and its `used` is 0.
#[utoipa::path(get, path = "/v1/volumes", tag = "volumes", operation_id = "list_volumes", responses((status = OK, description = "All of them", body = List<Volume>)))]
pub(super) async fn list(state: State) -> Reply<List<Volume>> {
    all(&state).await.map(axum::Json)
}

/// All volumes of the cluster, and the nodes that did not report theirs.
pub(super) async fn all(state: &State) -> Result<List<Volume>, Refusal> {
    let everywhere = state.call(everywhere).await?;
    let missing = elsewhere::learn(state, &everywhere.there).await?;
    let items = everywhere.shown(&state.elsewhere, &missing);
    Ok(List { items, missing })
}

/// Waits for the end of a job that has just begun, but not for long; returns its state. `now`: its state now.
async fn wait_for_end<T>(
    begun: T,
    is_running: impl Fn(&T) -> bool,
    now: impl Fn() -> Result<Option<T>, ControlError>,
) -> Result<T, ControlError> {
    let mut found = begun;
    let until = rt::now() + ENDS_WITHIN;
    while is_running(&found) && rt::now() < until {
        rt::sleep(LOOK_EVERY).await;
        found = now()?.unwrap_or(found);
    }
    Ok(found)
}

/// What the list of volumes is made from.
struct Everywhere {
    here: Vec<VolumeStatus>,
    there: There,
    names: BTreeMap<u16, String>,
    nodes: Vec<ClusterNode>,
    record: Option<ClusterRecord>,
}

impl Everywhere {
    /// All volumes by name. Not to be called on the node's core, which also answers hosts. `missing`: the
    /// nodes that did not report theirs.
    fn shown(self, known: &Elsewhere, missing: &[Missing]) -> Vec<Volume> {
        let cluster = Cluster { nodes: &self.nodes, record: self.record.as_ref() };
        let here = self.here.into_iter().map(|volume| shown(volume, &self.names));
        let mut items: Vec<Volume> = here.chain(self.there.shown(known, missing, &self.names)).collect();
        for volume in &mut items {
            volume.losses = losses(volume, cluster);
            volume.health = health(volume, cluster.nodes);
        }
        items.sort_by(|a, b| a.name.cmp(&b.name));
        items
    }
}

/// How long to wait for the record to list the voters. Without them, failure tolerance is not shown.
const VOTES_DEADLINE: Duration = Duration::from_secs(1);

async fn everywhere(control: Rc<Control>) -> Result<Everywhere, ControlError> {
    let here = control.volumes().await;
    let there = There::look(&control, here.iter().map(|volume| volume.info.id).collect()).await;
    let (nodes, record) = (nodes(&control).await, record(&control).await);
    Ok(Everywhere { here, there, names: control.node_names(), nodes, record })
}

/// The nodes of the cluster; empty if they are not known in time.
async fn nodes(control: &Control) -> Vec<ClusterNode> {
    match rt::timeout(VOTES_DEADLINE, control.nodes()).await {
        Ok(Ok(nodes)) => nodes.into_iter().map(super::cluster::shown).collect(),
        _ => Vec::new(),
    }
}

/// Shows one volume, by name or ID.
#[utoipa::path(
    get, path = "/v1/volumes/{name}", tag = "volumes", operation_id = "show_volume",
    params(("name" = String, Path, description = "Volume name or ID")),
    responses(
        (status = OK, description = "The volume", body = Volume),
        (status = NOT_FOUND, description = "`volume_not_found`"),
    ),
)]
pub(super) async fn show(state: State, Segments(name): Segments<String>) -> Reply<Volume> {
    let known = state.elsewhere.clone();
    let find = move |control: Rc<Control>| async move { found(control, known, &name).await };
    Ok(axum::Json(state.call(find).await?))
}

/// The volume of this name or ID, wherever its copies are.
async fn found(control: Rc<Control>, known: Elsewhere, name: &str) -> Result<Volume, ControlError> {
    let volume = match control.volume(name) {
        Ok(volume) => named(&control, volume),
        Err(error) => elsewhere::one(&control, known, name).await?.ok_or(error)?,
    };
    Ok(judged(&control, volume).await)
}

/// A volume of this node, completed as every call returns it.
async fn whole(control: &Control, volume: VolumeStatus) -> Volume {
    judged(control, named(control, volume)).await
}

async fn judged(control: &Control, mut volume: Volume) -> Volume {
    let (nodes, record) = (nodes(control).await, record(control).await);
    volume.losses = losses(&volume, Cluster { nodes: &nodes, record: record.as_ref() });
    volume.health = health(&volume, &nodes);
    volume
}

fn named(control: &Control, volume: VolumeStatus) -> Volume {
    shown(volume, &control.node_names())
}

/// A volume of this node, without the other nodes' view.
fn shown(volume: VolumeStatus, names: &BTreeMap<u16, String>) -> Volume {
    let VolumeStatus { info, pool, maps, problem, copies, scrub } = volume;
    let checksums = info.kind.is_durable().then_some(info.kind.has_checksums() || info.checksums);
    let mut volume = Volume {
        id: info.id.to_string(),
        name: info.name,
        pool,
        kind: kind(info.kind),
        size: info.capacity.0,
        block_size: info.block_size.bytes(),
        physical_block_size: info.block_size.bytes() << info.physical_exponent,
        slices: info.stripe.slices(),
        reserved: if info.kind.is_thin() { info.space.reserve.0 } else { info.reserved.0 },
        used: info.reserved.0,
        when_full: info.kind.is_thin().then_some(when_full(info.space.when_full)),
        compression: info.kind.is_compressible().then(|| compression(info.compression)),
        checksums,
        compression_ratio_percent: info.in_logs.ratio().map(|ratio| (ratio * 100.0).round() as u64),
        created: info.created,
        clone_of: copies.as_ref().and_then(clone_of),
        naa: naa(info.id),
        maps: maps.into_iter().map(map).collect(),
        serving: copies.as_ref().map_or(problem.is_none(), |copies| copies.serving),
        copies: copies.as_ref().map(|copies| copies::shown(copies, names)).unwrap_or_default(),
        epoch: copies.as_ref().map(|copies| copies.entry.epoch),
        split_brain_policy: copies.as_ref().and_then(split_brain::chosen),
        fork: copies.as_ref().and_then(split_brain::fork),
        comparison: copies.as_ref().map(|copies| verification::compared(copies, info.id, info.created)),
        scrub: scrub.as_ref().map(scrub::scrubbed),
        reason: copies.map(|copies| copies.entry.reason.to_string()),
        problem: problem.map(|problem| problem.to_string()),
        health: VolumeHealth::Healthy,
        losses: Vec::new(),
    };
    // As far as it can be determined without the other nodes.
    volume.health = health(&volume, &[]);
    volume
}

same_names! {
    fn when_full(store::WhenFull) -> WhenFull { Fail, Pause }
    fn asked_when_full(WhenFull) -> store::WhenFull { Fail, Pause }
    fn kind(store::VolumeKind) -> VolumeKind { Thick, Ram, Log }
    fn asked_kind(VolumeKind) -> store::VolumeKind { Thick, Ram, Log }
    fn compression(store::Compression) -> Compression { Lz4, Off }
    fn asked_compression(Compression) -> store::Compression { Lz4, Off }
}

/// What a volume is a clone of.
fn clone_of(copies: &CopiesStatus) -> Option<CloneOf> {
    let ClonedFrom { id, volume, snapshot } = copies.clone_of.clone()?;
    Some(CloneOf { volume, volume_id: id, snapshot })
}

/// A volume as another node has returned it, adapted to a node without a copy.
pub(super) fn seen_from_here(mut volume: Volume) -> Volume {
    volume.serving = false;
    volume.problem = None;
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
