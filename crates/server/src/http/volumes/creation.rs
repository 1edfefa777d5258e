//! Creating a volume.

use std::rc::Rc;

use ::node::Control;
use ::node::control::{MapSpec, NewVolume, Placement, Ranking};
use api::{Candidate, DEFAULT_HOST, DryRun, List, Volume, VolumeCreate, default_target};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use base::{BlockSize, ByteLen};
use terms::clock::unix_now;
use terms::loss::single_copy;
use terms::size::Size;

use super::{asked_compression, asked_kind, asked_when_full, candidates, found, nodes};
use crate::http::dry_run::{self, DryRunParam};
use crate::http::input::{Json, Parameters};
use crate::http::refusal::Refusal;
use crate::http::state::State;
use crate::http::{peers, pools};

/// Creates a volume and maps it, so that it can be used right away.
///
/// Unless `map` is false, it becomes a LUN of `target` (created if it does not exist) for `host`. If that
/// fails, the volume is deleted again: either everything is done, or nothing. If it cannot be placed,
/// `candidates` of the problem lists all nodes and pools, with the rule that each of them fails.
#[utoipa::path(
    post, path = "/v1/volumes", tag = "volumes", operation_id = "create_volume",
    params(DryRunParam),
    request_body = VolumeCreate,
    responses(
        (status = OK, description = "With `dry_run`: what would be done", body = DryRun),
        (status = CREATED, description = "The volume", body = Volume),
        (status = NOT_FOUND, description = "`pool_not_found`, `host_not_found`"),
        (status = CONFLICT, description = "`volume_exists`, `no_pool`, `lun_taken`, `target_full`, `too_few_nodes`, `node_unavailable`"),
        (status = UNPROCESSABLE_ENTITY, description = "`name_invalid`, `field_invalid`, `pool_ambiguous`"),
        (status = INSUFFICIENT_STORAGE, description = "`no_space`, `no_memory`, `too_many_volumes`, `metadata_full`, `record_full`"),
    ),
)]
pub(in crate::http) async fn create(
    state: State,
    Parameters(DryRunParam { dry_run }): Parameters<DryRunParam>,
    Json(asked): Json<VolumeCreate>,
) -> Result<Response, Refusal> {
    let new = new_volume(asked.clone())?;
    if dry_run {
        return would_create(&state, asked, new).await;
    }
    let known = state.elsewhere.clone();
    // In two calls: each may run twice (see [`State::call`]), but the volume must be created once.
    let make = |control: Rc<Control>| async move { Ok(control.create_volume(new).await?.to_string()) };
    let id = match state.call(make).await {
        Ok(made) => made,
        Err(refusal) => return Err(with_candidates(&state, &asked, refusal).await),
    };
    let show = move |control: Rc<Control>| async move { found(control, known, &id).await };
    Ok((StatusCode::CREATED, axum::Json(state.call(show).await?)).into_response())
}

async fn would_create(state: &State, asked: VolumeCreate, new: NewVolume) -> Result<Response, Refusal> {
    let check = |control: Rc<Control>| async move { control.check_volume(&new).await };
    let ranking = match state.call(check).await {
        Ok(ranking) => ranking,
        Err(refusal) => return Err(with_candidates(state, &asked, refusal).await),
    };
    let found = candidates_for(state, &asked).await?;
    let taken = match taken(&found, &ranking) {
        Ok(taken) => taken,
        Err(refusal) => {
            let refused = found.into_iter().filter(|found| found.rule.is_some()).collect();
            return Err(refusal.candidates(refused));
        }
    };
    let step = |found: &&Candidate| {
        let (node, pool) = (&found.node_name, found.pool.as_deref().unwrap_or_default());
        match asked.kind.is_thin() {
            true => format!("pool {pool} on {node} allocates space as blocks are written"),
            false => format!("{} is allocated in pool {pool} on {node}", Size(asked.size)),
        }
    };
    let mut steps: Vec<String> = match asked.kind.is_durable() {
        true => taken.iter().map(step).collect(),
        false => vec![format!("{} of memory is reserved", Size(asked.size))],
    };
    if let Some(reserve) = asked.reserve.filter(|reserve| *reserve > 0) {
        steps.push(format!("{} of that space is reserved for volume {}", Size(reserve), asked.name));
    }
    if let [only] = taken[..] {
        let node = format!("node {} ({})", only.node, only.node_name);
        steps.push(format!("volume {} has {}", asked.name, single_copy(asked.kind, &node)));
    }
    if asked.map {
        let target = asked.target.clone().unwrap_or_else(|| api::default_target(&asked.name));
        let host = asked.host.as_deref().unwrap_or(api::DEFAULT_HOST);
        steps.push(format!(
            "volume {} is mapped to host group {host} as a LUN of target {target}",
            asked.name
        ));
    }
    Ok(dry_run::would(steps, found))
}

/// The nodes that would get the copies: the best ones that have space.
fn taken<'a>(found: &'a [Candidate], ranking: &Ranking) -> Result<Vec<&'a Candidate>, Refusal> {
    let refused = |bad: &Candidate| {
        let code = bad.rule.clone().unwrap_or_default();
        Refusal::new(
            candidates::status_of(&code),
            code,
            format!("cannot create the volume on {}: {}", bad.node_name, bad.text),
        )
    };
    let of_node = |node: &u16| found.iter().find(|found| found.node == *node);
    let ranked: Vec<&Candidate> = ranking.nodes.iter().filter_map(of_node).collect();
    if let Some(bad) = ranked.iter().find(|found| ranking.named && found.rule.is_some()) {
        return Err(refused(bad));
    }
    let fit: Vec<&Candidate> =
        ranked.iter().copied().filter(|found| found.rule.is_none()).take(ranking.wanted).collect();
    if fit.len() == ranking.wanted {
        return Ok(fit);
    }
    let why = ranked.iter().filter(|found| found.rule.is_some());
    let why: Vec<String> = why.map(|found| format!("{}: {}", found.node_name, found.text)).collect();
    let (wanted, there) = (ranking.wanted, fit.len());
    let detail = format!("{wanted} copies requested, {there} available. {}", why.join("; "));
    Err(Refusal::new(StatusCode::CONFLICT, "too_few_nodes", detail))
}

/// The codes of refusals that are about the place of a volume.
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

/// Whether the refusal is about the place for a volume, or for its growth.
pub(super) fn is_for_want_of_a_place(refusal: &Refusal) -> bool {
    NO_PLACE.contains(&refusal.code())
}

/// If the refusal is about the place, adds every node and pool that was considered.
pub(super) async fn with_candidates(state: &State, asked: &VolumeCreate, refusal: Refusal) -> Refusal {
    if !is_for_want_of_a_place(&refusal) {
        return refusal;
    }
    match candidates_for(state, asked).await {
        Ok(found) => refusal.candidates(found.into_iter().filter(|found| found.rule.is_some()).collect()),
        Err(_) => refusal,
    }
}

/// Every node and pool as a candidate, with the rule by which it is not suitable, if any.
pub(super) async fn candidates_for(state: &State, asked: &VolumeCreate) -> Result<Vec<Candidate>, Refusal> {
    placement(asked.copies, asked.nodes.clone())?;
    let look = |control: Rc<Control>| async move { Ok((nodes(&control).await, control.number_and_name())) };
    let (nodes, here) = state.call(look).await?;
    let whose = if nodes.is_empty() { peers::QueriedNodes::This } else { peers::QueriedNodes::All };
    let List { items: pools, missing } = pools::of_nodes(state, whose).await?;
    let known = candidates::Known { nodes, pools, missing, here };
    let nodes = asked.nodes.clone().unwrap_or_default();
    let wanted = candidates::CopyRequirements {
        pool: asked.pool.as_deref(),
        kind: asked.kind,
        size: asked.size,
        nodes: &nodes,
    };
    Ok(candidates::all(&wanted, &known))
}

/// Parses a request for a volume, and checks it as far as possible without the node.
fn new_volume(new: VolumeCreate) -> Result<NewVolume, Refusal> {
    let block_size = BlockSize::from_bytes(new.block_size)
        .ok_or_else(|| Refusal::invalid("block_size", "block size must be 512 or 4096 bytes"))?;
    if new.native_512 && block_size != BlockSize::B512 {
        return Err(Refusal::invalid("native_512", "`native_512` requires 512-byte blocks"));
    }
    if new.compression.is_some() && !new.kind.is_compressible() {
        return Err(Refusal::invalid("compression", "only volumes of kind `log` can be compressed"));
    }
    if new.checksums && new.kind.has_checksums() {
        let detail = "volumes of kind `log` always have checksums: omit `checksums`";
        return Err(Refusal::invalid("checksums", detail));
    }
    if new.checksums && !new.kind.is_durable() {
        return Err(Refusal::invalid("checksums", "only volumes on disks have checksums"));
    }
    let copies = Some(placement(new.copies, new.nodes)?);
    let map = if new.map {
        Some(MapSpec {
            target: new.target.unwrap_or_else(|| default_target(&new.name)),
            host: new.host.unwrap_or_else(|| DEFAULT_HOST.into()),
            lun: new.lun,
        })
    } else if new.target.is_some() || new.host.is_some() || new.lun.is_some() {
        let detail = "`target`, `host` and `lun` require `map` to be true";
        return Err(Refusal::invalid("map", detail));
    } else {
        None
    };
    Ok(NewVolume {
        name: new.name,
        pool: new.pool,
        kind: asked_kind(new.kind),
        size: ByteLen(new.size),
        block_size,
        native_512: new.native_512,
        slices: new.slices,
        created: unix_now(),
        map,
        copies,
        space: store::SpacePolicy {
            when_full: new.when_full.map(asked_when_full).unwrap_or_default(),
            reserve: ByteLen(new.reserve.unwrap_or(0)),
        },
        compression: asked_compression(new.compression.unwrap_or_default()),
        checksums: new.checksums,
    })
}

/// Where the copies should be.
///
/// # Errors
/// Both `copies` and `nodes` are given.
pub(in crate::http) fn placement(copies: Option<u8>, nodes: Option<Vec<u16>>) -> Result<Placement, Refusal> {
    match (copies, nodes) {
        (None, None) => Ok(Placement::Default),
        (Some(count), None) => Ok(Placement::Count(count)),
        (None, Some(nodes)) => Ok(Placement::Nodes(nodes)),
        (Some(_), Some(_)) => {
            let detail = "`copies` and `nodes` cannot be combined: give the number of copies, or the nodes that get one";
            Err(Refusal::invalid("copies", detail))
        }
    }
}
